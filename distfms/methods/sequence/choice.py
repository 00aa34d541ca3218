"""What folds choose of sequences: a candidate, such as a kind of models or a ridge, then a stop.

A candidate has losses by prefix and fold. Candidates are compared by their mean loss over a fixed
grid of budgets, shares of the whole cost, so that no single prefix decides; within the best one the
fewest groups are taken that are within a standard error of its best prefix. The first prefix has no
group: where nothing explains anything, nothing is bought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distfms.methods.frame.choose import best, chosen_without, fewest
from distfms.solve.costs import longest_affordable

BUDGET_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Budgets at which candidates are compared, as shares of what all groups cost."""


CLASS_MEASURES = ("auroc", "accuracy")
"""What headlines say of classes."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Losses of one kind of sequence on folds.

    Attributes
    ----------
    losses : numpy.ndarray of shape (M, n_folds)
        Of M prefixes, the first without a group.
    grid : sequence of int
        Which of these prefixes the `BUDGET_SHARES` pay for.
    classes : mapping of str to numpy.ndarray of shape (M, n_folds)
        How well the prefixes tell classes apart, by `CLASS_MEASURES`; empty where that is not
        known.
    """

    losses: np.ndarray
    grid: Sequence[int]
    classes: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def on_grid(self) -> np.ndarray:
        """Mean loss over the grid on each fold, shape (n_folds,)."""
        return self.losses[list(self.grid)].mean(axis=0)


@dataclass(frozen=True)
class CandidateRule:
    """The whole choice, as a rule of `choose.chosen_without` on all losses below one another."""

    grids: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]

    def __call__(self, losses: np.ndarray, weights: np.ndarray) -> int:
        """Return the row of the chosen prefix of the chosen candidate."""
        ends = np.cumsum(self.sizes)
        parts = np.split(losses, ends[:-1])
        candidates = list(map(Candidate, parts, self.grids))
        number = best_candidate(candidates, weights)
        start = ends[number] - self.sizes[number]
        return int(start) + fewest(parts[number], weights)


def best_candidate(candidates: Sequence[Candidate], weights: Sequence[float] | np.ndarray) -> int:
    """Return the number of the candidate with the least mean loss over the grid and the folds."""
    return best(np.stack([candidate.on_grid for candidate in candidates]), weights)


def chosen_on_other_folds(
    candidates: Sequence[Candidate], weights: Sequence[float] | np.ndarray
) -> list[tuple[int, int]]:
    """Return the candidate, and its prefix, that all folds but one choose, for each fold."""
    sizes = tuple(len(candidate.losses) for candidate in candidates)
    grids = tuple(tuple(candidate.grid) for candidate in candidates)
    losses = np.concatenate([candidate.losses for candidate in candidates])
    rows = chosen_without(losses, weights, CandidateRule(grids, sizes))
    starts = np.cumsum((0, *sizes))
    numbers = np.searchsorted(starts, rows, side="right") - 1
    return list(zip(numbers.tolist(), (rows - starts[numbers]).tolist(), strict=True))


def told_by_other_folds(
    candidates: Sequence[Candidate],
    weights: Sequence[float] | np.ndarray,
    of_first: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Return how well classes are told apart on each fold, (n_folds,), by what the others choose.

    `of_first` says it of the first candidate, which has no measures of its own, with as many groups
    as the other folds choose of it.
    """
    measures = {name: values.copy() for name, values in of_first.items()}
    choices = chosen_on_other_folds(candidates, weights)
    for fold, (number, prefix) in enumerate(choices):
        for name, values in candidates[number].classes.items():
            measures[name][fold] = values[prefix, fold]
    return measures


def grid_of(spent: np.ndarray) -> list[int]:
    """Return the prefixes that the `BUDGET_SHARES` of the cost of the last pay for.

    `spent` (M,) are the costs of prefixes, that of no group first.
    """
    return [longest_affordable(spent, share * spent[-1]) - 1 for share in BUDGET_SHARES]
