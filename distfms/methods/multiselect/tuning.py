"""Options of a multi-selection on one fold: the loss of what they select without it.

Pure: from statistics of a fold to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distfms.methods.grid_paths import grouped_by_path
from distfms.methods.multiselect.curves import Fold, FoldTask
from distfms.methods.multiselect.training import Settings

MEASURES = {"projected_loss": False}
"""What selections are compared by, and whether more is better: the unbiased estimate of the
squared loss on the fold, at the numbers of judgments that are selected without it."""

#: Settings that points of a grid may differ in, beside ``psd``.
_TUNED = ("algorithms", "budget", "criterion", "ridge")


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
    keys = [tuple(sorted((k, v) for k, v in p.items() if k != "budget")) for p in options]
    budgets, places = grouped_by_path(
        [(k, p["budget"]) for k, p in zip(keys, options, strict=True)]
    )
    return [SelectionItem(key, own) for key, own in budgets.items()], places


@dataclass(frozen=True, eq=False)
class PreparedFold:
    """A fold whose problem is made once, for all points of a grid.

    The positive semi-definite matrix, O(d³), depends on the fold and on ``psd`` only.

    Attributes
    ----------
    task : FoldTask
    """

    task: FoldTask
    _made: dict[str, Fold | None] = field(default_factory=dict, init=False)

    def of(self, settings: Settings) -> Fold | None:
        """Return what `Fold.of` gives for the settings, which differ in what is tuned."""
        if settings.psd not in self._made:
            self._made[settings.psd] = Fold.of(settings, self.task)
        fold = self._made[settings.psd]
        if fold is None:
            return None
        tuned = {name: getattr(settings, name) for name in _TUNED}
        training = replace(
            fold.training,
            settings=replace(fold.training.settings, **tuned),
            problem=replace(fold.training.problem, ridge=float(settings.ridge)),
        )
        return replace(fold, training=training)


@dataclass(frozen=True, eq=False)
class FoldLosses:
    """Picklable function from a fold and an item to the losses of the item's points.

    Attributes
    ----------
    settings : Settings
        Options of the item replace its own.
    """

    settings: Settings

    def __call__(self, prepared: PreparedFold, item: SelectionItem) -> dict[str, np.ndarray]:
        """Select on all but the fold; take the loss on the fold, NaN where it has none."""
        options = dict(item.options)
        algorithm = options.pop("algorithm")
        settings = replace(
            self.settings, algorithms=(algorithm,), budget=max(item.budgets), **options
        )
        fold, held_out = prepared.of(settings), prepared.task.held_out
        if fold is None:
            values = np.full(len(item.budgets), np.nan)
        else:
            values = _losses(fold, algorithm, np.array(item.budgets))
        return {
            "values": values,
            "weight": np.array(held_out.means.weight),
            "n_rows": np.array(held_out.means.n_samples),
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
