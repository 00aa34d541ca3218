"""Greedy sequencing, with costs and the doubling rule of Algorithm 2, by `solve.forward`.

References
----------
Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear Prediction".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import SequenceOutline, SequenceProblem
from distfms.solve.cholesky import CRITERIA
from distfms.solve.forward import ForwardPath, Overspent, forward
from distfms.solve.forward import best_set as best_forward_set

BY_STATISTICS = ("fr", "random", "gain")
"""Rules that need no gradient of a model: groups are in order before one is fitted."""


def sequence(
    problem: SequenceProblem,
    criterion: str = "fr",
    *,
    order: Sequence[int] | None = None,
    seed: int = 0,
    **options: Any,
) -> SequencePath:
    """Put the groups of a problem in order, one at a time.

    Parameters
    ----------
    problem : SequenceProblem
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten", "given", "gain", "random"}
        What a step maximises, see `cholesky.CRITERIA`; ``given`` follows `order`, ``gain``
        maximises `gains`, ``random`` follows a permutation drawn from `seed`.
    order : sequence of int, optional
    seed : int
    **options
        Of `solve.forward.forward`.
    """
    if criterion == "random":
        order = np.random.default_rng(seed).permutation(len(problem.groups)).tolist()
    if criterion not in CRITERIA:
        criterion = "fr"
    path = forward(problem.forward, criterion, order=order, **options)
    return path_of(problem, path)


def best_set(
    problem: SequenceProblem, budget: float, max_groups: int | None = None, **where: Any
) -> SequencePath:
    """Find a set of groups that explains much for a budget; see `solve.forward.best_set`."""
    path = best_forward_set(problem.forward, budget, max_groups, **where)
    return path_of(problem, path)


def path_of(problem: SequenceProblem, path: ForwardPath) -> SequencePath:
    """Return what a search has left as a path of regressions."""
    return SequencePath(
        outline=problem.outline,
        order=path.order,
        cost=path.cost,
        notes=overspent_notes(problem, path.overspent),
        n_candidates=path.n_candidates,
        gain=path.gain,
        ranks=path.ranks,
        support=path.support,
        upper=path.upper,
        response=path.response,
    )


def overspent_notes(problem: SequenceOutline, steps: Sequence[Overspent]) -> tuple[str, ...]:
    """Say which steps the doubling rule does not allow."""
    notes = list[str]()
    for step in steps:
        name = problem.groups.names[step.group]
        notes.append(
            f"Not doubling capable at step {step.step}: no group left costs at most the "
            f"{step.spent:.6g} spent so far; continued with the cheapest, {name!r} at "
            f"{step.cost:.6g}."
        )
    return tuple(notes)
