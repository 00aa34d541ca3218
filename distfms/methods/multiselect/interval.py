"""Confidence intervals by leaving out one fold (or shard) at a time.

Everything is computed from one statistic per fold, without another look at the data.

References
----------
.. [1] F. Busing, E. Meijer and R. van der Leeden, "Delete-m Jackknife for Unequal m", Statistics
   and Computing 9, 1999.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from distfms.errors import DataError, SpecError


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


def delete_m_jackknife(
    everything: ArrayLike,
    without: ArrayLike,
    weights: ArrayLike,
    level: float = 0.95,
) -> Interval:
    """Delete-one-fold jackknife of any function of the statistics.

    Parameters
    ----------
    everything : array_like of any shape
        Statistic θ̂ of all folds together.
    without : array_like of shape (n_folds, …)
        θ̂_(−j): the statistic of all but fold j.
    weights : array_like of shape (n_folds,)
        Sum of the weights m_j of each fold's objects, positive; folds may differ in size.
    level : float, default=0.95

    Returns
    -------
    Interval

    Raises
    ------
    DataError
        There are fewer than 2 folds, or one without objects.
    SpecError
        The level is not in (0, 1).

    Notes
    -----
    With fold weights m_j of n in all, h_j = n/m_j and pseudo-values
    θ̃_j = h_j θ̂ − (h_j − 1) θ̂_(−j), the variance is (1/g) Σ_j (θ̃_j − θ_J)² / (h_j − 1),
    θ_J = g θ̂ − Σ_j (1 − m_j/n) θ̂_(−j) (equation 8 of [1]_).

    An interval of the loss of repeats that were chosen to make this very loss small reflects the
    sampling of objects and judgments, not the choice.

    References
    ----------
    .. [1] F. Busing, E. Meijer and R. van der Leeden, "Delete-m Jackknife for Unequal m",
       Statistics and Computing 9, 1999.
    """
    if not 0 < level < 1:
        raise SpecError(f"The confidence level is {level}; it must lie between 0 and 1.")
    estimate, parts = np.asarray(everything, dtype=float), np.asarray(without, dtype=float)
    m = np.asarray(weights, dtype=float)
    g = m.size
    if g < 2 or not (m > 0).all():
        raise DataError(
            f"A jackknife needs at least 2 folds, all with objects; there are {g}, "
            f"{int((m > 0).sum())} of them with objects."
        )
    share = (m / m.sum()).reshape(-1, *([1] * estimate.ndim))
    h = 1.0 / share
    centre = g * estimate - np.sum((1.0 - share) * parts, axis=0)
    pseudo = h * estimate - (h - 1.0) * parts
    standard_error = np.sqrt(np.mean((pseudo - centre) ** 2 / (h - 1.0), axis=0))
    half = scipy.special.stdtrit(g - 1, 0.5 + level / 2) * standard_error
    return Interval(
        estimate=estimate,
        standard_error=standard_error,
        lower=estimate - half,
        upper=estimate + half,
        bias=estimate - centre,
        level=level,
        n_folds=g,
    )
