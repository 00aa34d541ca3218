"""The comparison of sequences in ``metrics.json``: curves, timeliness, baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distfms.methods.sequence.timeliness import oracle_curve, plateau, stopping_cost, timeliness

MAX_POINTS = 200
"""Most points of a curve in ``metrics.json``."""


def thinned(n: int, limit: int) -> np.ndarray:
    """Positions of at most `limit` of n items, evenly, the first and the last among them."""
    if n <= limit:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, limit).round().astype(np.intp))


@dataclass(frozen=True, eq=False)
class Curve:
    """How well the prefixes 0..K of a rule's sequence do.

    Attributes
    ----------
    groups : tuple of str
        In the order of the sequence.
    cost, value : numpy.ndarray of shape (K + 1,)
        Cost, and share explained on the training rows.
    test : numpy.ndarray of shape (K + 1,), optional
        Share explained on the held-out rows.
    more : mapping of str to numpy.ndarray of shape (K + 1,)
        Further numbers of each prefix; NaN where one is not known.
    validation : numpy.ndarray, optional
        Share explained in cross-validation, of the prefixes that `thinned` keeps.
    """

    groups: tuple[str, ...]
    cost: np.ndarray
    value: np.ndarray
    test: np.ndarray | None = None
    more: Mapping[str, np.ndarray] = field(default_factory=dict)
    validation: np.ndarray | None = None

    def points(self) -> list[dict[str, Any]]:
        """Return the entries of ``metrics.json``, thinned."""
        found = []
        for i, prefix in enumerate(thinned(len(self.cost), MAX_POINTS).tolist()):
            more = {name: float(values[prefix]) for name, values in self.more.items()}
            point = {
                "n_groups": prefix,
                "spent": float(self.cost[prefix]),
                "explained_variance": float(self.value[prefix]),
                "validation": None if self.validation is None else float(self.validation[i]),
                "test": None if self.test is None else float(self.test[prefix]),
            }
            found.append(point | {name: v for name, v in more.items() if not np.isnan(v)})
        return found


def compared(
    curves: Mapping[str, Curve], reference: Curve, alpha: float | None, with_oracle: bool
) -> dict[str, Any]:
    """Compare the sequences of rules: ``curves``, ``timeliness``, ``alpha``, ``baselines``.

    Parameters
    ----------
    curves : mapping of str to Curve
        By the name of the rule; the chosen one first.
    reference : Curve
        Where it reaches `alpha`, α-timeliness of all rules is cut, while `stopping_cost` is each
        rule's own.
    alpha : float or None
        Share of the final objective; None for the plateau rule.
    with_oracle : bool
        Compare with the steps of the chosen sequence in the order of their gain per cost.
    """
    if with_oracle:
        own = next(iter(curves.values()))
        oracle = oracle_curve(own.cost, own.value)
        more = {name: oracle.value for name in own.more if name == "explained_deviance"}
        curves = {**curves, "oracle": Curve((), oracle.cost, oracle.value, more=more)}
    share = plateau(reference.cost, reference.value) if alpha is None else alpha
    cut = stopping_cost(reference.cost, reference.value, share)
    drawn: list[dict[str, Any]] = [
        {"name": name, "points": curve.points()} for name, curve in curves.items()
    ]
    return {
        "curves": drawn,
        "timeliness": _timeliness(curves, share, cut),
        "alpha": {"alpha": share, "stopping_cost": cut, "by_plateau": alpha is None},
        "baselines": {
            entry["name"]: {
                "groups": list(curves[entry["name"]].groups) or None,
                **entry["points"][-1],
            }
            for entry in drawn[1:]
        },
    }


def _timeliness(
    curves: Mapping[str, Curve], alpha: float, cut: float
) -> dict[str, dict[str, float | None]]:
    """Timeliness of every rule, on a scale that all share."""
    end = max(float(curve.cost[-1]) for curve in curves.values())
    final = max(float(curve.value[-1]) for curve in curves.values())
    tests = [float(curve.test[-1]) for curve in curves.values() if curve.test is not None]
    return {
        name: {
            "timeliness": timeliness(curve.cost, curve.value, stop=end, final=final),
            "alpha": alpha,
            "stopping_cost": stopping_cost(curve.cost, curve.value, alpha),
            "alpha_timeliness": timeliness(curve.cost, curve.value, stop=cut, final=final),
            "test_alpha_timeliness": None
            if curve.test is None
            else timeliness(curve.cost, curve.test, stop=cut, final=max(tests)),
        }
        for name, curve in curves.items()
    }
