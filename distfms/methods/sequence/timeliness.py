"""How early a sequence explains: timeliness, stopping costs, plateaus, the oracle order.

References
----------
Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear Prediction",
Section 5.2; Karayev et al. (2012) for the area measure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PLATEAU_START = 0.95
"""A plateau begins once this share of the final objective is there ..."""

PLATEAU_COST = 0.20
"""... and the next per cent of it needs more than this share of all cost."""


def timeliness(
    cost: np.ndarray, value: np.ndarray, *, stop: float | None = None, final: float | None = None
) -> float:
    """Area under value against cost over the whole area, stop × final value.

    The curve runs linearly between its points.

    Parameters
    ----------
    cost : array_like of shape (K + 1,)
        Cost of the prefixes, ascending, usually from 0.
    value : array_like of shape (K + 1,)
        Explained variance of the prefixes.
    stop : float, optional
        Cost at which the curve is cut, interpolated there: the α-stopping cost for
        α-timeliness. Beyond the last cost the curve stays where it is. Default: the last cost.
    final : float, optional
        Value that the whole area is measured with. Default: the last value, which is the same
        for all sequences of the same groups.

    Returns
    -------
    float
        In [0, 1] for a curve that never exceeds `final`; 0 when `stop` is not above the first
        cost (0-timeliness is zero) or `final` is not positive.
    """
    cost, value = np.asarray(cost, dtype=np.float64), np.asarray(value, dtype=np.float64)
    stop = float(cost[-1]) if stop is None else float(stop)
    final = float(value[-1]) if final is None else float(final)
    if stop <= cost[0] or final <= 0:
        return 0.0
    inside = cost < stop
    cut_cost = np.append(cost[inside], stop)
    cut_value = np.append(value[inside], np.interp(stop, cost, value))
    area = float(np.trapezoid(cut_value, cut_cost))
    return area / ((stop - float(cost[0])) * final)


def stopping_cost(cost: np.ndarray, value: np.ndarray, alpha: float) -> float:
    """α-stopping cost: that of the first prefix with α of the final value.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Training curve of CS-G-OMP, ``path.curve_cost`` and ``path.curve_value``.
    alpha : float
        In [0, 1].

    Raises
    ------
    ValueError
        If `alpha` is outside [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}, not in [0, 1]")
    cost, value = np.asarray(cost, dtype=np.float64), np.asarray(value, dtype=np.float64)
    needed = alpha * value[-1]
    reached = value >= needed - 1e-12 * abs(value[-1])  # the last gains are rounding
    return float(cost[np.argmax(reached)])


def plateau(cost: np.ndarray, value: np.ndarray) -> float:
    """α at which a curve reaches its final plateau, 1 if it has none.

    The least α of 0.95, 0.96, …, 0.99 such that going from α to α + 0.01 of the final value
    needs more than 20 % of all cost.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Training curve of CS-G-OMP.
    """
    total = float(cost[-1]) - float(cost[0])
    for percent in range(round(100 * PLATEAU_START), 100):
        here = stopping_cost(cost, value, percent / 100)
        after = stopping_cost(cost, value, (percent + 1) / 100)
        if after - here > PLATEAU_COST * total:
            return percent / 100
    return 1.0


@dataclass(frozen=True, eq=False)
class OracleCurve:
    """Curve of the found groups reordered by gain per cost.

    Attributes
    ----------
    order : numpy.ndarray of int, shape (K,)
        Steps of the original sequence in their new order.
    cost, value : numpy.ndarray of shape (K + 1,)
        Of the prefixes, from 0.
    """

    order: np.ndarray
    cost: np.ndarray
    value: np.ndarray


def oracle_curve(cost: np.ndarray, value: np.ndarray) -> OracleCurve:
    """Approximate upper bound: steps in descending order of gain per cost.

    Gains and costs of the steps are taken to stay what they were. Equal ratios keep their order.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Curve of a sequence, with costs that grow at every step.
    """
    step_cost, gain = np.diff(cost), np.diff(value)
    # What is free comes first, in the order in which it was found.
    per_cost = np.divide(gain, step_cost, out=np.full(len(gain), np.inf), where=step_cost > 0)
    order = np.argsort(-per_cost, kind="stable")
    return OracleCurve(
        order=order,
        cost=float(cost[0]) + np.concatenate(([0.0], np.cumsum(step_cost[order]))),
        value=float(value[0]) + np.concatenate(([0.0], np.cumsum(gain[order]))),
    )
