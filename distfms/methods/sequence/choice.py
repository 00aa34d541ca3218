"""What folds choose of sequences: a candidate, such as a kind of models or a ridge, then a stop.

A candidate has losses by prefix and fold. Candidates are compared by their mean loss over a fixed
grid of budgets, shares of the whole cost, so that no single prefix decides; within the best one the
fewest groups are taken that are within a standard error of its best prefix. The first prefix has no
group: where nothing explains anything, nothing is bought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from distfms.methods.frame.choose import best, chosen_without, fewest
from distfms.solve.costs import longest_affordable

BUDGET_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Budgets at which candidates are compared, as shares of what all groups cost."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Losses of one kind of sequence on folds.

    Attributes
    ----------
    losses : numpy.ndarray of shape (M, n_folds)
        Of M prefixes, the first without a group.
    grid : sequence of int
        Which of these prefixes the `BUDGET_SHARES` pay for.
    of_pairs : numpy.ndarray of shape (M, n_folds, n_folds), optional
        Where rows are few, losses without two folds; see `choose.chosen_without`.
    """

    losses: np.ndarray
    grid: Sequence[int]
    of_pairs: np.ndarray | None = None

    @property
    def on_grid(self) -> np.ndarray:
        """Mean loss over the grid on each fold, shape (n_folds,)."""
        return self.losses[list(self.grid)].mean(axis=0)


def best_candidate(candidates: Sequence[Candidate], weights: Sequence[float] | np.ndarray) -> int:
    """Return the number of the candidate with the least mean loss over the grid and the folds."""
    return best(np.stack([candidate.on_grid for candidate in candidates]), weights)


def chosen_on_other_folds(
    candidates: Sequence[Candidate], weights: Sequence[float] | np.ndarray
) -> list[tuple[int, int]]:
    """Return the candidate, and its prefix, that all folds but one choose, for each fold."""
    sizes = [len(candidate.losses) for candidate in candidates]
    starts = np.cumsum((0, *sizes))

    def rule(losses: np.ndarray, weights: np.ndarray) -> int:
        parts = np.split(losses, starts[1:-1])
        of_part = zip(candidates, parts, strict=True)
        compared = [replace(candidate, losses=part) for candidate, part in of_part]
        number = best_candidate(compared, weights)
        return int(starts[number]) + fewest(parts[number], weights)

    losses = np.concatenate([candidate.losses for candidate in candidates])
    pairs = [candidate.of_pairs for candidate in candidates if candidate.of_pairs is not None]
    of_pairs = np.concatenate(pairs) if pairs else None
    rows = chosen_without(losses, weights, rule, of_pairs)
    numbers = np.searchsorted(starts, rows, side="right") - 1
    return list(zip(numbers.tolist(), (rows - starts[numbers]).tolist(), strict=True))


def grid_of(spent: np.ndarray) -> list[int]:
    """Return the prefixes that the `BUDGET_SHARES` of the cost of the last pay for.

    `spent` (M,) are the costs of prefixes, that of no group first.
    """
    return [longest_affordable(spent, share * spent[-1]) - 1 for share in BUDGET_SHARES]
