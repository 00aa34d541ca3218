"""Small problems that tests of feature multi-selection share."""

from __future__ import annotations

import numpy as np

from distfms.solve.buying import Problem
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics
from distfms.stats.ragged import Ragged
from tests.reference.statistics import ragged_of


def build_problem(
    b, v, external, *, label_variance, means=None, noise_covariance=None, **options
) -> Problem:
    """The problem of known numbers."""
    b = np.asarray(b, dtype=float)
    external = np.asarray(external, dtype=float)
    estimates = JudgmentEstimates(
        b=b,
        v=np.asarray(v, dtype=float),
        second_moment=external,
        noise=np.zeros(b.size),
        external=external,
        external_variance=np.maximum(np.diagonal(external), 0.0),
        label_variance=label_variance,
        label_mean=0.0,
        means=np.zeros(b.size) if means is None else means,
        n_objects=1,
        n_judgments=np.ones(b.size),
        n_missing=np.zeros(b.size),
        mean_judgments=np.ones(b.size),
        noise_covariance=noise_covariance,
    )
    if noise_covariance is not None:
        options["buy_from"] = "same"
    return Problem.from_estimates(estimates, **options)


def random_problem(seed: int, d: int = 6, **options) -> Problem:
    """Correlated attributes, consistent b = Σβ, positive internal variances."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((d, d))
    external = factors @ factors.T / d
    weights = rng.standard_normal(d)
    options.setdefault("label_variance", float(weights @ external @ weights) + 0.5)
    options.setdefault("v", rng.uniform(0.2, 2.0, d))
    v = options.pop("v")
    return build_problem(external @ weights, v, external, **options)


def random_judgments(seed: int, m: int = 60, d: int = 5, k: int = 2):
    """Judgments of shape (m, d, k), label and the true values, correlated attributes."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((m, d)) @ rng.standard_normal((d, d)) + rng.uniform(-3, 3, d)
    label = truth @ rng.standard_normal(d) + 0.5 * rng.standard_normal(m) + 10.0
    noise = rng.uniform(0.3, 2.0, d)[None, :, None] * rng.standard_normal((m, d, k))
    return truth[:, :, None] + noise, label, truth


def ragged(judgments: np.ndarray) -> list[Ragged]:
    """One Ragged per attribute from (m, d, k) judgments; NaN = not judged."""
    by_attribute = judgments.transpose(1, 0, 2)
    return [ragged_of([row[~np.isnan(row)] for row in rows]) for rows in by_attribute]


def statistics(judgments: np.ndarray, label: np.ndarray) -> JudgmentStatistics:
    """Statistics of (m, d, k) judgments."""
    return JudgmentStatistics.from_block(ragged(judgments), label)
