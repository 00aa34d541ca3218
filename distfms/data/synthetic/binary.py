"""Binary attributes of falling frequency, for attribute-efficient regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distfms.data.synthetic.base import Recipe, column_names, require

if TYPE_CHECKING:
    import pyarrow as pa


def ridge(rng: np.random.Generator, *, n_features: int, alpha: float) -> Recipe:
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


def lasso(rng: np.random.Generator, *, n_features: int, alpha: float) -> Recipe:
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


def _powers(n_features: int, alpha: float) -> np.ndarray:
    require(n_features >= 1, f"n_features is {n_features}, not at least 1")
    require(alpha <= 0, f"alpha is {alpha}; above 0 the expectations are no probabilities")
    return np.arange(1, n_features + 1, dtype=float) ** alpha


def _recipe(expectations: np.ndarray, weights: np.ndarray) -> Recipe:
    import pyarrow as pa

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
