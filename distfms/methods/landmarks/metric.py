"""A metric learned from the target: distances count the columns in which the target changes.

The similarity is K(x, z) = k(‖T(x − z)‖), with tr TᵀT = d. A `diagonal` T has the likely scales of
the columns. A `full` one has TᵀT in proportion to the mean of ∇f ∇fᵀ over rows, where f is the mean
of the Gaussian process with these scales.

References
----------
Rasmussen, Williams, "Gaussian Processes for Machine Learning" (2006), equation 2.25 and Section
5.4.1; Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism for feature learning in neural networks
and backpropagation-free machine learning models", Science 383 (2024): the mean product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.methods.landmarks.likelihood import covariance_of, likely_process
from distfms.methods.landmarks.similarity import LandmarkMap


def learned_transform(
    kind: str, features: np.ndarray, target: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return T of a metric.

    Parameters
    ----------
    kind : {"none", "diagonal", "full"}
    features : ndarray of shape (d, n)
        Scaled.
    target : ndarray of shape (P, n)
    weight : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (0,), (d,) or (d, d)
        Empty for `none`; of a `diagonal` metric the diagonal. Where the target is constant, all
        columns count the same.
    """
    if kind == "none":
        return np.zeros(0)
    if not np.ptp(target, axis=1).any():
        return np.ones(len(features))
    process = likely_process(features, target, weight)
    if kind == "diagonal":
        return with_unit_mean(process.scales)
    product = mean_gradient_product(features, process.scales, process.coefficients, weight)
    values, vectors = np.linalg.eigh(product)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return with_unit_mean(root)


def with_unit_mean(transform: np.ndarray) -> np.ndarray:
    """Return T in proportion, with tr TᵀT = d."""
    total = np.sum(transform**2)
    if not (np.isfinite(total) and total > 0):
        return np.ones(len(transform))
    return np.asarray(transform * np.sqrt(len(transform) / total))


def mean_gradient_product(
    features: np.ndarray, scales: np.ndarray, coefficients: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return the mean over rows of ∇f ∇fᵀ, summed over targets, shape (d, d).

    Parameters
    ----------
    features : ndarray of shape (d, n)
    scales : ndarray of shape (d,)
    coefficients : ndarray of shape (P, n)
        α of f(x) = Σ α_i exp(−‖S(x − x_i)‖²/2), where S is the diagonal of the scales.
    weight : ndarray of shape (n,)

    Notes
    -----
    ∇f(x) = −S² Σ α_i exp(−‖S(x − x_i)‖²/2) (x − x_i).
    """
    similarities = covariance_of(scales, features)
    product = np.zeros((len(features), len(features)))
    for of_target in coefficients:
        pulls = of_target[:, np.newaxis] * similarities
        gradients = features @ pulls - features * pulls.sum(axis=0)
        gradients = scales[:, np.newaxis] ** 2 * gradients
        product += (gradients * weight) @ gradients.T
    return product / weight.sum()


def under(mapping: LandmarkMap, transform: np.ndarray, sigma: float, ridge: float) -> LandmarkMap:
    """Return a map under a metric, with a width and a ridge."""
    similarity = replace(mapping.similarity, parameters=(("sigma", sigma),))
    return replace(mapping, similarity=similarity, transform=transform, ridge=ridge)


def described(kind: str, transform: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Return what the results say of a metric: shares of columns, the largest first."""
    if not transform.size:
        return {"kind": kind}
    squares = transform**2
    if transform.ndim > 1:
        squares = np.sum(squares, axis=0)  # the diagonal of TᵀT
    shares = squares / squares.sum()
    order = np.argsort(-shares, kind="stable")
    return {"kind": kind, "weights": {names[place]: float(shares[place]) for place in order}}
