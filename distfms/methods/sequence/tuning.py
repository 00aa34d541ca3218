"""Options of a sequence on one fold: what a path says of its own rows left out.

Pure: from statistics of a fold to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.grid_paths import grouped_by_path
from distfms.methods.sequence.evaluate import FoldTask, Settings
from distfms.methods.sequence.path import HeldOutCurve, SequencePath
from distfms.methods.sequence.rules import Rule
from distfms.methods.sequence.timeliness import timeliness

MEASURES = {"timeliness": True, "explained_variance": True, "mse": False}
"""What sequences are compared by, and whether more is better; see `FoldScores`."""


@dataclass(frozen=True)
class SequenceItem:
    """Points of a grid that one path answers.

    Attributes
    ----------
    rule : Rule
    ridge : float
    max_groups : tuple of (int or None)
        Where the sequence may end; None after all groups.
    """

    rule: Rule
    ridge: float
    max_groups: tuple[int | None, ...]

    @property
    def longest(self) -> int | None:
        """Where the longest of the sequences ends."""
        known = [n for n in self.max_groups if n is not None]
        return max(known) if len(known) == len(self.max_groups) else None


def grouped(
    options: Sequence[Mapping[str, Any]],
) -> tuple[list[SequenceItem], list[tuple[int, int]]]:
    """Put points together that differ by their last group only.

    A sequence that ends after fewer groups is the beginning of one that ends later.

    Parameters
    ----------
    options : sequence of mapping
        Of each point: criterion, cost_aware, doubling, ridge, max_groups.

    Returns
    -------
    items : list of SequenceItem
        In the order of their first points.
    places : list of (int, int)
        For each point its item and the place among the item's ends.
    """
    keys = [(Rule(p["criterion"], p["cost_aware"], p["doubling"]), p["ridge"]) for p in options]
    ends, places = grouped_by_path(
        [(key, p["max_groups"]) for key, p in zip(keys, options, strict=True)]
    )
    return [SequenceItem(rule, ridge, own) for (rule, ridge), own in ends.items()], places


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Picklable function from a fold and an item to the measure of the item's points.

    Attributes
    ----------
    settings : Settings
        Its ridge and its end are replaced by those of the item.
    measure : {"timeliness", "explained_variance", "mse"}
        ``timeliness``: mean, over all costs from 0 to that of all groups, of the variance on the
        fold that is explained at this cost (linear between prefixes, constant after the last).
        ``explained_variance`` and ``mse`` (mean over targets) are those of the whole sequence.
    """

    settings: Settings
    measure: str

    def __call__(self, task: FoldTask, item: SequenceItem) -> dict[str, np.ndarray]:
        """Put in order on all but the fold; measure on the fold."""
        settings = replace(self.settings, ridge=item.ridge, max_groups=item.longest)
        path = settings.path(item.rule, settings.problem(task.train))
        curve = path.held_out(task.held_out)
        ends = [len(path) if n is None else min(n, len(path)) for n in item.max_groups]
        return {
            "values": np.array([self._value(path, curve, end) for end in ends]),
            "weight": np.array(task.held_out.weight),
            "n_rows": np.array(task.held_out.n_samples),
        }

    def _value(self, path: SequencePath, curve: HeldOutCurve, end: int) -> float:
        if self.measure == "mse":
            return float(curve.mse[end].mean())
        if self.measure == "explained_variance":
            return float(curve.explained_variance[end])
        costs = self.settings.costs
        whole = float(costs.own.sum() + sum(item.cost for item in costs.shared))
        upto = slice(0, end + 1)
        value = curve.explained_variance[upto]
        return timeliness(path.curve_cost[upto], value, stop=whole, final=1.0)
