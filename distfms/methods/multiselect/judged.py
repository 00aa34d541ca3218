"""Losses of models on other objects, which need not have as many judgments as are bought."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distfms.methods.frame.judge import squared_errors_on_averages
from distfms.methods.multiselect.model import LinearModel, PathModels
from distfms.solve.buying import BuyFrom
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics


@dataclass(frozen=True, eq=False)
class Trained:
    """What stands in where held-out objects do not tell it, of d attributes.

    Attributes
    ----------
    known_variance : ndarray of shape (d,)
        Internal variances that are given, NaN for others.
    v : ndarray of shape (d,)
        Internal variances of the training objects.
    noise_covariance : ndarray of shape (d, d), or None
    """

    known_variance: np.ndarray
    v: np.ndarray
    noise_covariance: np.ndarray | None = None

    def take(self, attributes: np.ndarray) -> Trained:
        """Return the same of some attributes."""
        noise = self.noise_covariance
        if noise is not None:
            noise = noise[np.ix_(attributes, attributes)]
        return Trained(self.known_variance[attributes], self.v[attributes], noise)

    def estimates(self, held_out: JudgmentStatistics) -> JudgmentEstimates:
        """Estimate from held-out objects; variances that are given go first."""
        is_unknown = np.isnan(self.known_variance) & (held_out.n_repeated == 0)
        variance = np.where(is_unknown, self.v, self.known_variance)
        estimates = held_out.estimates(variance)
        if self.noise_covariance is None:
            return estimates
        noise = self.noise_covariance
        if held_out.raters is not None and estimates.noise_covariance is not None:
            is_told_apart = held_out.raters.together & held_out.raters.apart
            noise = np.where(is_told_apart, estimates.noise_covariance, noise)
        return replace(estimates, noise_covariance=noise)


def losses_on(
    held_out: JudgmentStatistics, trained: Trained, models: LinearModel | PathModels, whose: BuyFrom
) -> np.ndarray:
    """Return the unbiased losses of models on other objects, shape (n_models,).

    All are of the same d attributes. NaN where a model uses one of which no object has a judgment.
    """
    weights = np.atleast_2d(models.weights)
    repeats = np.atleast_2d(models.repeats)
    is_used = (weights != 0).any(axis=0)
    judged = np.flatnonzero(is_used & (held_out.n_judged > 0))
    estimates = trained.take(judged).estimates(held_out.take(judged))
    losses = squared_errors_on_averages(
        estimates, weights[:, judged], models.intercept, repeats[:, judged], whose
    )
    is_blind = np.delete(weights != 0, judged, axis=1).any(axis=1)
    return np.where(is_blind, np.nan, losses)
