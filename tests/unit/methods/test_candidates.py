"""How many candidates a search says it has evaluated, against counting when it evaluates them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distfms.engine.open import make_pool
from distfms.methods.multiselect.greedy import FullState, ScoringState, select, slabs_of
from distfms.methods.sequence import greedy as sequence_greedy
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.greedy import slabs_of as group_slabs_of
from tests.reference.distributed_cases import (
    awkward_problem,
    awkward_sequence_problem,
    require_same_sequence,
)

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


@pytest.mark.parametrize("criterion", CRITERIA)
def test_multiselect_on_actors_evaluates_as_many(criterion: Any) -> None:
    for problem in (awkward_problem(1), awkward_problem(2, unequal=False)):
        expected = select(problem, 30.0, "full", criterion)
        with make_pool("serial") as pool:
            path = select(problem, 30.0, "full", criterion, pool=pool, slabs=slabs_of(problem))
            n_steps = pool.counts.n_steps
        assert path.n_candidates == int(problem.candidates.sum()) * n_steps
        assert path.n_candidates == expected.n_candidates


@pytest.mark.parametrize("options", [{}, {"doubling": True}, {"max_groups": 3}], ids=str)
def test_sequence(looks: list[str], options: dict[str, Any]) -> None:
    problem = awkward_sequence_problem(0, ridge=1e-3)
    path = sequence(problem, "fr", **options)
    n_groups = len(problem.groups)
    # The cheapest group is next without a look where doubling affords none.
    blind = {int(note.split()[5].rstrip(":")) - 1 for note in path.notes if "doubling" in note}
    assert len(looks) == len(path) - len(blind)
    assert path.n_candidates == sum(n_groups - k for k in range(len(path)) if k not in blind)
    with make_pool("serial") as pool:
        found = sequence(problem, "fr", pool=pool, slabs=group_slabs_of(problem), **options)
    assert found.n_candidates == path.n_candidates


def test_an_order_that_is_given_evaluates_nothing(looks: list[str]) -> None:
    problem = awkward_sequence_problem(0, ridge=1e-3)
    path = sequence(problem, "random", seed=3)
    assert (path.n_candidates, looks) == (0, [])
    with make_pool("serial") as pool:
        found = sequence(problem, "random", seed=3, pool=pool, slabs=group_slabs_of(problem))
    assert found.n_candidates == 0


def test_a_stored_sequence_keeps_its_count() -> None:
    problem = awkward_sequence_problem(0, ridge=1e-3)
    path = sequence(problem, "omp")
    stored = type(path).from_arrays(path.to_arrays(), problem.outline)
    require_same_sequence(stored, path)
    assert replace(path, n_candidates=0).n_candidates != stored.n_candidates
