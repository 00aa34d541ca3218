"""A scale for each column, by the likelihood of a Gaussian process on a few rows.

With scales t_j the covariance of two rows is exp(−½ Σ_j t_j² (x_j − z_j)²), that of a row with
itself greater by a noise ν. The logarithms of t and ν are those of the greatest likelihood times a
normal prior that holds the log t_j together.

References
----------
Rasmussen, Williams, "Gaussian Processes for Machine Learning" (2006), Section 5.4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Standard deviation of the prior.
_APART = 2.0
#: Bounds of log t and of log ν; ν at first; the most steps, and the gain at which they end.
_SCALES, _NOISES, _NOISE, _STEPS, _GAIN = (-7.0, 4.0), (-14.0, 3.0), 0.1, 50, 1e-4


@dataclass(frozen=True, eq=False)
class LikelyProcess:
    """The likeliest Gaussian process of some rows.

    Attributes
    ----------
    scales : ndarray of shape (d,)
        t.
    coefficients : ndarray of shape (P, n)
        α of its mean Σ α_i exp(−½ Σ_j t_j² (x_j − x_ij)²), less the mean of the targets.
    """

    scales: np.ndarray
    coefficients: np.ndarray


def likely_process(features: np.ndarray, target: np.ndarray, weight: np.ndarray) -> LikelyProcess:
    """Return the process of the likeliest scales and noise.

    Parameters
    ----------
    features : ndarray of shape (d, n)
        Scaled.
    target : ndarray of shape (P, n)
        Several share the scales and the noise.
    weight : ndarray of shape (n,)
        Positive; the noise of a row is divided by its weight relative to the mean weight.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize

    d = len(features)
    centred = target - np.average(target, axis=1, weights=weight)[:, np.newaxis]
    noise = weight.mean() / weight
    logs = minimize(
        unlikeliness,
        np.append(np.full(d, -0.5 * np.log(d)), np.log(_NOISE)),
        (features, centred, noise),
        "L-BFGS-B",
        jac=True,
        bounds=[_SCALES] * d + [_NOISES],
        options={"maxiter": _STEPS, "ftol": _GAIN},
    ).x
    scales = np.exp(logs[:-1])
    covariance = covariance_of(scales, features)
    covariance.flat[:: len(noise) + 1] += np.exp(logs[-1]) * noise
    return LikelyProcess(scales, cho_solve(cho_factor(covariance, lower=True), centred.T).T)


def covariance_of(scales: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return exp(−½ Σ_j t_j² (x_j − z_j)²) of all pairs of rows, shape (n, n)."""
    moved = scales[:, np.newaxis] * features
    halves = np.einsum("ij,ij->j", moved, moved) / 2.0
    exponents = moved.T @ moved
    exponents -= halves[:, np.newaxis] + halves
    return np.exp(np.minimum(exponents, 0.0, out=exponents), out=exponents)


def unlikeliness(
    logs: np.ndarray, features: np.ndarray, target: np.ndarray, noise: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return minus the log of likelihood and prior, up to a constant, and its gradient (d + 1,).

    The variance of the process is the likeliest.
    """
    from scipy.linalg import cho_solve, cholesky
    from scipy.linalg.lapack import dpotri

    scales = np.exp(logs[:-1])
    added = np.exp(logs[-1]) * noise
    moved = scales[:, np.newaxis] * features
    covariance = covariance_of(scales, features).T
    factor = covariance.copy(order="F")
    factor.flat[:: len(factor) + 1] += added
    factor = cholesky(factor, lower=True, overwrite_a=True)
    solved = cho_solve((factor, True), target.T).T
    variance = max(float(np.sum(solved * target)) / target.size, np.finfo(float).tiny)
    apart = logs[:-1] - logs[:-1].mean()
    log_determinant = 2.0 * float(np.log(np.diagonal(factor)).sum())
    value = 0.5 * target.size * np.log(variance) + 0.5 * len(target) * log_determinant
    value += 0.5 * (apart @ apart) / _APART**2
    # Derivatives by the covariance, of the lower triangle alone: there the inverse counts twice.
    slope = dpotri(factor, lower=1, overwrite_c=1)[0]
    slope *= len(target)
    slope.flat[:: len(slope) + 1] *= 0.5
    slope -= ((0.5 / variance * solved).T @ solved).T  # by columns, as the slope is
    of_noise = np.sum(np.diagonal(slope) * added)
    slope *= covariance
    of_scales = 2.0 * scale_slopes(slope, moved) + apart / _APART**2
    return value, np.append(of_scales, of_noise)


def scale_slopes(weighed: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Return Σ_ij W_ij x_ci x_cj − ½ Σ_ij W_ij (x_ci² + x_cj²) of each column c of rows (d, n)."""
    products = np.einsum("ij,ij->i", moved @ weighed, moved)
    totals = weighed.sum(axis=0) + weighed.sum(axis=1)
    return np.asarray(products - moved**2 @ totals / 2.0)
