"""Acquisition plan: which judgments to collect before the refit (step 3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import SpecError
from distfms.methods.multiselect.objective import check_repeats


@dataclass(frozen=True, eq=False)
class AcquisitionPlan:
    """Judgments to collect, one row per object and attribute that lacks some.

    Attributes
    ----------
    object : ndarray of shape (n_rows,)
        Identifiers of the objects.
    attribute : ndarray of str, shape (n_rows,)
    have : ndarray of int, shape (n_rows,)
        Judgments there are.
    want : ndarray of int, shape (n_rows,)
        Judgments the selection asks for.
    more : ndarray of int, shape (n_rows,)
        Judgments to collect, ``want - have`` and at least 1.
    cost : ndarray of shape (n_rows,)
        Cost of these judgments.
    """

    object: np.ndarray
    attribute: np.ndarray
    have: np.ndarray
    want: np.ndarray
    more: np.ndarray
    cost: np.ndarray

    @property
    def total_judgments(self) -> int:
        """Number of judgments to collect."""
        return int(self.more.sum())

    @property
    def total_cost(self) -> float:
        """Cost of the whole plan."""
        return float(self.cost.sum())

    def columns(self) -> dict[str, np.ndarray]:
        """Return the plan as the columns of a table.

        Returns
        -------
        dict of str to ndarray
            ``object, attribute, have, want, more, cost``.
        """
        return {
            "object": self.object,
            "attribute": self.attribute,
            "have": self.have,
            "want": self.want,
            "more": self.more,
            "cost": self.cost,
        }


def acquisition_plan(
    counts: ArrayLike,
    repeats: ArrayLike,
    costs: ArrayLike,
    names: Sequence[str],
    objects: ArrayLike | None = None,
) -> AcquisitionPlan:
    """List how many more judgments of each object to collect.

    Parameters
    ----------
    counts : array_like of int, shape (n, d)
        Judgments k_i[a] that each object has.
    repeats : array_like of int, shape (d,)
        Selection r.
    costs : array_like of shape (d,)
        Cost of one judgment.
    names : sequence of str, length d
    objects : array_like of shape (n,), optional
        Identifiers; default: 0 … n−1.

    Returns
    -------
    AcquisitionPlan
        max(0, r[a] − k_i[a]) where that is positive; by object, then by attribute. Plans of
        blocks of objects may be concatenated.

    Raises
    ------
    SpecError
        Lengths disagree.
    """
    have = np.asarray(counts, dtype=np.int64)
    want = check_repeats(repeats, len(names))
    if have.ndim != 2 or have.shape[1] != len(names):
        raise SpecError(f"counts has shape {have.shape}; it needs {len(names)} columns.")
    identifiers = np.arange(have.shape[0]) if objects is None else np.asarray(objects)
    if identifiers.shape != (have.shape[0],):
        raise SpecError(f"There are {have.shape[0]} objects but {identifiers.size} identifiers.")
    support = np.flatnonzero(want > 0)
    lacking = want[support] - have[:, support]
    rows, columns = np.nonzero(lacking > 0)
    attributes = support[columns]
    more = lacking[rows, columns]
    return AcquisitionPlan(
        object=identifiers[rows],
        attribute=np.asarray(names, dtype=np.str_)[attributes],
        have=have[rows, attributes],
        want=want[attributes],
        more=more,
        cost=more * np.asarray(costs, dtype=float)[attributes],
    )
