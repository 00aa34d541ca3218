"""Synthetic data for benchmarks; see `benchmarks.synthetic`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.synthetic import (
    Generator,
    Recipe,
    column_names,
    judged_schema,
    list_column,
    require,
)


def gram(rng: np.random.Generator, *, n_features: int = 100, noise: float = 1.0) -> Recipe:
    """Independent standard normals and a linear target, all float64.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_features : int
    noise : float
        Standard deviation of the target around its linear part, whose variance is 1.

    Returns
    -------
    Recipe
    """
    require(n_features >= 1, f"n_features is {n_features}, not at least 1")
    require(noise >= 0, f"noise is {noise}, which is negative")
    names = column_names("x", n_features)
    coefficients = rng.standard_normal(n_features)
    coefficients /= np.sqrt(np.sum(coefficients**2))

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        target = noise * rng.standard_normal(n)
        columns = []
        for coefficient in coefficients:
            column = rng.standard_normal(n)
            target += coefficient * column
            columns.append(pa.array(column))
        return [*columns, pa.array(target)]

    return Recipe(
        schema=pa.schema([(name, pa.float64()) for name in [*names, "target"]]),
        rows=rows,
        numbers_per_row=n_features + 1,
        truth={"features": names, "coefficients": coefficients.tolist(), "noise_std": noise},
    )


def slices(
    rng: np.random.Generator,
    *,
    n_bins: int = 384,
    bins_per_attribute: int = 8,
    judgments: int = 2,
    n_bumps: int = 48,
) -> Recipe:
    """Smooth histograms of slices along an axis, judged by random bins.

    The protocol of the paper's experiment on CT slices: adjacent bins form one attribute, and a
    judgment is one of its bins drawn at random, with replacement. The histograms are made up:
    bumps along the bins whose heights wave with the position to be predicted, plus variation.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_bins : int
        A multiple of ``bins_per_attribute``.
    bins_per_attribute : int
    judgments : int
        k of every object and attribute.
    n_bumps : int

    Returns
    -------
    Recipe

    References
    ----------
    .. [1] Sabato & Kalai, Feature Multi-Selection among Subjective Features, ICML 2013, section 4.
    """
    require(bins_per_attribute >= 1 and n_bumps >= 1, "counts have to be at least 1")
    require(judgments >= 1, f"judgments is {judgments}, not at least 1")
    require(
        n_bins >= 1 and n_bins % bins_per_attribute == 0,
        f"n_bins is {n_bins}, not a multiple of bins_per_attribute ({bins_per_attribute})",
    )
    d = n_bins // bins_per_attribute
    names = column_names("bins", d)
    centres = rng.uniform(0, n_bins, n_bumps)
    widths = rng.uniform(0.5, 2.0, n_bumps) * max(bins_per_attribute, 2)
    profile = np.exp(-0.5 * ((np.arange(n_bins) - centres[:, None]) / widths[:, None]) ** 2)
    frequency, phase = rng.uniform(0.2, 2.0, n_bumps), rng.uniform(0.0, 1.0, n_bumps)
    offset = bins_per_attribute * np.arange(d)[:, None]

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        position = rng.uniform(0.0, 100.0, n)
        waves = np.sin(2 * np.pi * (position[:, None] / 100.0 * frequency + phase))
        heights = np.maximum(0.5 + 0.5 * waves + 0.2 * rng.standard_normal((n, n_bumps)), 0.0)
        histogram = np.einsum("nm,mj->nj", heights, profile)
        bins = offset[:, :, None] + rng.integers(bins_per_attribute, size=(d, n, judgments))
        drawn = histogram[np.arange(n)[:, None], bins]
        counts = np.full(n, judgments)
        lists = [list_column(drawn[a].ravel(), counts) for a in range(d)]
        return [pa.array(np.arange(first_row, first_row + n)), pa.array(position), *lists]

    return Recipe(
        schema=judged_schema("slice", "position", names),
        rows=rows,
        numbers_per_row=n_bins + d * judgments + n_bumps,
        truth={"attributes": names, "bins_per_attribute": bins_per_attribute},
    )


def ridge(rng: np.random.Generator, *, n_features: int = 500, alpha: float = -1.0) -> Recipe:
    """Binary attributes and a target from a ±1 vector.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_features : int
    alpha : float
        At most 0. The expectations are u_i = i^alpha, projected on the Euclidean unit ball.

    Returns
    -------
    Recipe

    References
    ----------
    .. [1] Kukliansky & Shamir, Attribute Efficient Linear Regression with Distribution-Dependent
       Sampling, ICML 2015, section 5.1.
    """
    expectations = _powers(n_features, alpha)
    expectations /= max(1.0, float(np.sqrt(np.sum(expectations**2))))
    return _recipe(expectations, rng.choice([-1.0, 1.0], n_features))


def lasso(rng: np.random.Generator, *, n_features: int = 500, alpha: float = -1.0) -> Recipe:
    """Binary attributes and a target from a sparse {−1, 0, 1} vector with 30 % non-zeros.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_features : int
    alpha : float
        At most 0. The expectations are u_i = i^alpha, which lie in the unit ball of the maximum
        norm.

    Returns
    -------
    Recipe

    References
    ----------
    .. [1] Kukliansky & Shamir, Attribute Efficient Linear Regression with Distribution-Dependent
       Sampling, ICML 2015, section 5.1.
    """
    weights = rng.choice([-1.0, 0.0, 1.0], n_features, p=[0.15, 0.7, 0.15])
    return _recipe(_powers(n_features, alpha), weights)


def _powers(n_features: int = 500, alpha: float = -1.0) -> np.ndarray:
    require(n_features >= 1, f"n_features is {n_features}, not at least 1")
    require(alpha <= 0, f"alpha is {alpha}; above 0 the expectations are no probabilities")
    return np.arange(1, n_features + 1, dtype=float) ** alpha


def _recipe(expectations: np.ndarray, weights: np.ndarray) -> Recipe:
    names = column_names("x", len(weights))
    # x² = x for binary x.
    second_moments = expectations

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        target = np.zeros(n)
        columns = []
        for expectation, weight in zip(expectations, weights, strict=True):
            x = (rng.random(n) < expectation).astype(np.int8)
            target += weight * x
            columns.append(pa.array(x))
        return [*columns, pa.array(target)]

    return Recipe(
        schema=pa.schema([*((name, pa.int8()) for name in names), ("target", pa.float64())]),
        rows=rows,
        numbers_per_row=len(weights),
        truth={
            "features": names,
            "coefficients": weights.tolist(),
            "second_moments": second_moments.tolist(),
            "improvement_ratio_ridge": float(
                np.sum(np.sqrt(second_moments)) ** 2 / (len(weights) * np.sum(second_moments))
            ),
            "improvement_ratio_lasso": float(
                np.sum(second_moments) / (len(weights) * np.max(second_moments))
            ),
        },
    )


GRAM = Generator("gram", target="target", id=None, make=gram)
RIDGE = Generator("attribute-efficient-ridge", target="target", id=None, make=ridge)
LASSO = Generator("attribute-efficient-lasso", target="target", id=None, make=lasso)
