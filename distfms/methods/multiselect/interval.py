"""Confidence intervals by leaving out one fold (or shard) at a time.

Everything is computed from one statistic per fold, without another look at the data.

References
----------
.. [1] F. Busing, E. Meijer and R. van der Leeden, "Delete-m Jackknife for Unequal m", Statistics
   and Computing 9, 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.costs import Costs
from distfms.methods.multiselect.objective import (
    Problem,
    Psd,
    projected_loss,
)
from distfms.stats.base import merge_tree
from distfms.stats.judgments import JudgmentStatistics


@dataclass(frozen=True, eq=False)
class Interval:
    """Estimate with a jackknife confidence interval; arrays have the statistic's shape.

    Attributes
    ----------
    estimate : ndarray
        Statistic of all folds together; the interval is centred on it.
    standard_error : ndarray
    lower, upper : ndarray
        Ends of the interval, by Student's t with n_folds − 1 degrees of freedom.
    bias : ndarray
        Jackknife estimate of the bias of `estimate`; not taken off.
    level : float
        Nominal coverage, in (0, 1).
    n_folds : int
    """

    estimate: np.ndarray
    standard_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    bias: np.ndarray
    level: float
    n_folds: int


def jackknife(
    folds: Sequence[JudgmentStatistics],
    statistic: Callable[[JudgmentStatistics], ArrayLike],
    level: float = 0.95,
) -> Interval:
    """Delete-one-fold jackknife of any function of the statistics.

    Parameters
    ----------
    folds : sequence of JudgmentStatistics
        At least 2, with at least one object each; they may differ in size.
    statistic : callable
        From statistics to a number or an array of fixed shape.
    level : float, default=0.95

    Returns
    -------
    Interval

    Raises
    ------
    DataError
        Fewer than 2 folds have objects.
    SpecError
        The level is not in (0, 1).

    Notes
    -----
    ``statistic`` is called once per fold and once on everything. With fold weights m_j of n in
    all, h_j = n/m_j and pseudo-values θ̃_j = h_j θ̂ − (h_j − 1) θ̂_(−j), the variance is
    (1/g) Σ_j (θ̃_j − θ_J)² / (h_j − 1), θ_J = g θ̂ − Σ_j (1 − m_j/n) θ̂_(−j) (equation 8 of [1]_).

    References
    ----------
    .. [1] F. Busing, E. Meijer and R. van der Leeden, "Delete-m Jackknife for Unequal m",
       Statistics and Computing 9, 1999.
    """
    if not 0 < level < 1:
        raise SpecError(f"The confidence level is {level}; it must lie between 0 and 1.")
    weights = np.array([fold.means.weight for fold in folds], dtype=float)
    folds = [fold for fold, weight in zip(folds, weights, strict=True) if weight > 0]
    weights = weights[weights > 0]
    if len(folds) < 2:
        raise DataError(f"A jackknife needs at least 2 folds with objects; there are {len(folds)}.")
    everything = np.asarray(statistic(merge_tree(folds)), dtype=float)
    without = np.stack(
        [
            np.asarray(statistic(merge_tree([*folds[:j], *folds[j + 1 :]])), dtype=float)
            for j in range(len(folds))
        ]
    )
    return _delete_m(everything, without, weights, level)


def _delete_m(
    everything: np.ndarray, without: np.ndarray, weights: np.ndarray, level: float
) -> Interval:
    g = weights.size
    share = (weights / weights.sum()).reshape(-1, *([1] * everything.ndim))
    h = 1.0 / share
    centre = g * everything - np.sum((1.0 - share) * without, axis=0)
    pseudo = h * everything - (h - 1.0) * without
    standard_error = np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1.0), axis=0))
    half = scipy.stats.t.ppf(0.5 + level / 2, g - 1) * standard_error
    return Interval(
        estimate=everything,
        standard_error=standard_error,
        lower=everything - half,
        upper=everything + half,
        bias=everything - centre,
        level=level,
        n_folds=g,
    )


@dataclass(frozen=True, eq=False)
class ProblemOptions:
    """How to come from statistics to a problem.

    Attributes
    ----------
    costs : float, sequence, or mapping, default=1
    ridge : float, default=0
    internal_variance : ndarray of shape (d,), optional
        Known internal variances, NaN = estimate.
    names : tuple of str, optional
    psd : {"nearest", "none"}, default="nearest"
    """

    costs: Costs = 1.0
    ridge: float = 0.0
    internal_variance: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    psd: Psd = "nearest"

    def problem(self, statistics: JudgmentStatistics) -> Problem:
        """Return the problem of some statistics.

        Parameters
        ----------
        statistics : JudgmentStatistics

        Returns
        -------
        Problem
        """
        estimates = statistics.estimates(self.internal_variance, self.names)
        return Problem.from_estimates(
            estimates, self.costs, self.ridge, names=self.names, psd=self.psd
        )


def projected_loss_interval(
    folds: Sequence[JudgmentStatistics],
    repeats: ArrayLike,
    options: ProblemOptions | None = None,
    *,
    level: float = 0.95,
) -> Interval:
    """Interval of the projected loss of repeats that are given.

    Parameters
    ----------
    folds : sequence of JudgmentStatistics
    repeats : array_like of int, shape (d,)
    options : ProblemOptions, optional
    level : float, default=0.95

    Returns
    -------
    Interval
        Of a number. It reflects the sampling of objects and judgments, not that the repeats were
        chosen to make this very estimate small; see :func:`selection_interval`.
    """
    options = options or ProblemOptions()
    return jackknife(folds, lambda s: projected_loss(options.problem(s), repeats), level)
