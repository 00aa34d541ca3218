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
from distfms.methods.multiselect.greedy import Algorithm, Criterion, select
from distfms.methods.multiselect.model import LinearModel, path_models
from distfms.methods.multiselect.objective import (
    Costs,
    Problem,
    holdout_loss,
    holdout_losses,
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
    """

    costs: Costs = 1.0
    ridge: float = 0.0
    internal_variance: np.ndarray | None = None
    names: tuple[str, ...] | None = None

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
        return Problem.from_estimates(estimates, self.costs, self.ridge, names=self.names)


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


def holdout_loss_interval(
    folds: Sequence[JudgmentStatistics],
    model: LinearModel,
    *,
    internal_variance: np.ndarray | None = None,
    level: float = 0.95,
) -> Interval:
    """Interval of the held-out loss of a fixed model.

    Parameters
    ----------
    folds : sequence of JudgmentStatistics
        Of held-out objects, in at least 2 folds or shards.
    model : LinearModel
    internal_variance : ndarray of shape (d,), optional
        Known internal variances, NaN = estimate.
    level : float, default=0.95

    Returns
    -------
    Interval
        Of a number.
    """

    def loss(statistics: JudgmentStatistics) -> float:
        estimates = statistics.estimates(internal_variance, model.names)
        return holdout_loss(estimates, model.weights, model.intercept, model.repeats)

    return jackknife(folds, loss, level)


def selection_interval(
    folds: Sequence[JudgmentStatistics],
    budgets: Sequence[float],
    options: ProblemOptions | None = None,
    *,
    algorithm: Algorithm = "full",
    criterion: Criterion = "gain_per_cost",
    level: float = 0.95,
) -> Interval:
    """Interval of the projected loss of the whole procedure: selection, then model.

    Every replicate selects anew, so the choice of repeats is part of what varies.

    Parameters
    ----------
    folds : sequence of JudgmentStatistics
    budgets : sequence of float
        The selection runs to the largest; smaller ones are read off its path.
    options : ProblemOptions, optional
    algorithm : {"full", "scoring"}, default="full"
    criterion : {"gain_per_cost", "gain", "best"}, default="gain_per_cost"
    level : float, default=0.95

    Returns
    -------
    Interval
        Of an array of shape (n_budgets,): label variance minus the Full objective of the
        repeats, whatever the algorithm.
    """
    options = options or ProblemOptions()

    def losses(statistics: JudgmentStatistics) -> np.ndarray:
        problem = options.problem(statistics)
        path = select(problem, max(budgets), algorithm, criterion)
        objective = path_models(problem, path).objective
        return problem.label_variance - objective[[path.steps_at(b) for b in budgets]]

    return jackknife(folds, losses, level)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Held-out losses of the whole procedure.

    Attributes
    ----------
    budgets : ndarray of shape (n_budgets,)
    losses : ndarray of shape (n_folds, n_budgets)
        Held-out loss on each fold of the model selected and fitted on the others.
    mean : ndarray of shape (n_budgets,)
        Mean over the folds, by their weights.
    standard_error : ndarray of shape (n_budgets,)
        Of the mean, as if the folds' losses were independent (they share training data, so this
        is a little too small).
    """

    budgets: np.ndarray
    losses: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray


def cross_validate(
    folds: Sequence[JudgmentStatistics],
    budgets: Sequence[float],
    options: ProblemOptions | None = None,
    *,
    algorithm: Algorithm = "full",
    criterion: Criterion = "gain_per_cost",
) -> CrossValidation:
    """Cross-validate selection and projected model at several budgets.

    Parameters
    ----------
    folds : sequence of JudgmentStatistics
        At least 2 with objects.
    budgets : sequence of float
    options : ProblemOptions, optional
    algorithm : {"full", "scoring"}, default="full"
    criterion : {"gain_per_cost", "gain", "best"}, default="gain_per_cost"

    Returns
    -------
    CrossValidation

    Raises
    ------
    DataError
        Fewer than 2 folds have objects.
    """
    options = options or ProblemOptions()
    folds = [fold for fold in folds if fold.means.weight > 0]
    if len(folds) < 2:
        raise DataError(f"Cross-validation needs at least 2 folds; {len(folds)} have objects.")
    losses = np.empty((len(folds), len(budgets)))
    for j, fold in enumerate(folds):
        problem = options.problem(merge_tree([*folds[:j], *folds[j + 1 :]]))
        path = select(problem, max(budgets), algorithm, criterion)
        models = path_models(problem, path)
        held_out = fold.estimates(options.internal_variance, options.names)
        steps = [path.steps_at(b) for b in budgets]
        losses[j] = holdout_losses(
            held_out, models.weights[steps], models.intercepts[steps], models.repeats[steps]
        )
    share = np.array([fold.means.weight for fold in folds])
    share = share / share.sum()
    mean = share @ losses
    spread = share @ (losses - mean) ** 2 / (len(folds) - 1)
    return CrossValidation(np.asarray(budgets, dtype=float), losses, mean, np.sqrt(spread))
