"""How many candidates a search says it has evaluated, against counting when it evaluates them."""

from __future__ import annotations

from typing import Any

import pytest

from distfms.methods.multiselect.greedy import FullState, ScoringState, select
from distfms.methods.sequence import greedy as sequence_greedy
from distfms.methods.sequence.greedy import sequence
from tests.reference.distributed_cases import awkward_problem, awkward_sequence_problem

CRITERIA = ["gain_per_cost", "gain", "best"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that gains or values were computed."""
    made: list[str] = []

    def counted(kind: type, name: str) -> None:
        function = getattr(kind, name)

        def call(self: Any, *arguments: Any) -> Any:
            made.append(name)
            return function(self, *arguments)

        monkeypatch.setattr(kind, name, call)

    counted(FullState, "best")
    counted(ScoringState, "best")
    follow = sequence_greedy.follow

    def answer(state: Any, message: Any) -> Any:
        if message[1] is None:
            made.append("values")
        return follow(state, message)

    monkeypatch.setattr(sequence_greedy, "follow", answer)
    return made


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("algorithm", ["full", "scoring"])
def test_multiselect(looks: list[str], algorithm: Any, criterion: Any) -> None:
    problem = awkward_problem(1)
    n = int(problem.candidates.sum())
    assert n < problem.n_attributes
    path = select(problem, 30.0, algorithm, criterion)
    assert path.n_candidates == n * len(looks)
    if criterion != "best":
        assert len(looks) == path.n_steps + 1


@pytest.mark.parametrize("options", [{}, {"doubling": True}, {"max_groups": 3}], ids=str)
def test_sequence(looks: list[str], options: dict[str, Any]) -> None:
    problem = awkward_sequence_problem(0, ridge=1e-3)
    path = sequence(problem, "fr", **options)
    n_groups = len(problem.groups)
    # The cheapest group is next without a look where doubling affords none.
    blind = {int(note.split()[5].rstrip(":")) - 1 for note in path.notes if "doubling" in note}
    assert len(looks) == len(path) - len(blind)
    assert path.n_candidates == sum(n_groups - k for k in range(len(path)) if k not in blind)
    looks.clear()
    given = sequence(problem, "random", seed=3)
    assert (given.n_candidates, looks) == (0, [])  # an order that is given evaluates nothing
