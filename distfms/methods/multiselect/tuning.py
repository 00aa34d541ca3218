"""Options of a multi-selection on one fold: the loss of what they select without it.

Pure: from statistics of a fold to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.multiselect.curves import Fold, FoldTask
from distfms.methods.multiselect.training import Settings

MEASURES = {"projected_loss": False}
"""What selections are compared by, and whether more is better: the unbiased estimate of the
squared loss on the fold, at the numbers of judgments that are selected without it."""


@dataclass(frozen=True)
class SelectionItem:
    """Points of a grid that share the problem, and the path where that is possible.

    Attributes
    ----------
    options : tuple of (str, object)
        algorithm, criterion, psd and ridge.
    budgets : tuple of float
    """

    options: tuple[tuple[str, Any], ...]
    budgets: tuple[float, ...]


def grouped(
    options: Sequence[Mapping[str, Any]],
) -> tuple[list[SelectionItem], list[tuple[int, int]]]:
    """Put points together that differ by their budget only.

    Parameters
    ----------
    options : sequence of mapping
        Of each point: algorithm, criterion, psd, ridge, budget.

    Returns
    -------
    items : list of SelectionItem
        In the order of their first points.
    places : list of (int, int)
        For each point its item and the place among the item's budgets.
    """
    budgets: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    found = []
    for point in options:
        key = tuple(sorted((name, value) for name, value in point.items() if name != "budget"))
        own = budgets.setdefault(key, [])
        own.append(point["budget"])
        found.append((key, len(own) - 1))
    index = {key: i for i, key in enumerate(budgets)}
    items = [SelectionItem(key, tuple(own)) for key, own in budgets.items()]
    return items, [(index[key], place) for key, place in found]


@dataclass(frozen=True, eq=False)
class FoldLosses:
    """Picklable function from a fold and an item to the losses of the item's points.

    Attributes
    ----------
    settings : Settings
        Options of the item replace its own.
    """

    settings: Settings

    def __call__(self, task: FoldTask, item: SelectionItem) -> dict[str, np.ndarray]:
        """Select on all but the fold; take the loss on the fold, NaN where it has none."""
        options = dict(item.options)
        algorithm = options.pop("algorithm")
        settings = replace(
            self.settings, algorithms=(algorithm,), budget=max(item.budgets), **options
        )
        fold = Fold.of(settings, task)
        if fold is None:
            values = np.full(len(item.budgets), np.nan)
        else:
            values = _losses(fold, algorithm, np.array(item.budgets))
        return {
            "values": values,
            "weight": np.array(task.held_out.means.weight),
            "n_rows": np.array(task.held_out.means.n_samples),
        }


def _losses(fold: Fold, algorithm: str, budgets: np.ndarray) -> np.ndarray:
    """Losses of what each budget selects.

    With equal costs a smaller budget buys the beginning of what a larger one buys. With unequal
    ones it spends its rest on something cheaper, and exchanges depend on the whole budget, so
    every budget then has a search of its own, on the same problem.
    """
    training = fold.training
    costs = training.settings.costs
    if (costs == costs[0]).all() and not training.settings.refine:
        order = np.argsort(budgets)  # a path is followed from the smallest on
        found = np.empty(len(budgets))
        found[order] = fold.losses(algorithm, budgets[order])[0]
        return found
    alone = []
    for budget in budgets.tolist():
        own = replace(training, settings=replace(training.settings, budget=budget))
        alone.append(replace(fold, training=own).losses(algorithm, np.array([budget]))[1])
    return np.array(alone)
