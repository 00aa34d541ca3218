"""Small problems that tests of feature multi-selection share."""

from __future__ import annotations

import numpy as np

from distfms.solve.buying import Problem
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged
from tests.reference.statistics import ragged_of


def random_problem(seed: int, d: int = 6, *, rank: int | None = None, **options) -> Problem:
    """Correlated attributes, consistent b = Σβ, positive internal variances."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((d, rank or d))
    external = factors @ factors.T / d
    weights = rng.standard_normal(d)
    options.setdefault("label_variance", float(weights @ external @ weights) + 0.5)
    options.setdefault("v", rng.uniform(0.2, 2.0, d))
    v = options.pop("v")
    return Problem.build(external @ weights, v, external, **options)


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


def statistics(judgments: np.ndarray, label: np.ndarray, weight=None) -> JudgmentStatistics:
    """Statistics of (m, d, k) judgments."""
    return JudgmentStatistics.from_block(ragged(judgments), label, weight)
