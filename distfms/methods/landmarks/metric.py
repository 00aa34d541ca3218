"""A metric learned from the target: distances count the directions in which the target changes.

The similarity is K(x, z) = k(‖T(x − z)‖) with M = TᵀT. A model f(x) = Σ w_l K(x, z_l) is fitted,
M becomes the mean of ∇f ∇fᵀ over the rows, or its diagonal, and so on. Rows that are held out
choose among all iterations, widths and ridges, and decide whether the metric is kept.

References
----------
Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 383 (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.methods.landmarks.similarity import KERNELS, Similarity, transformed
from distfms.methods.landmarks.squared import Ridges
from distfms.methods.passes import Sums
from distfms.stats.base import Fields

#: Widths of the similarity that are tried, in median distances between landmarks.
WIDTHS = (0.5, 1.0, 2.0)
#: Ridges that are tried, for a target of unit variance.
RIDGES = np.logspace(-9.0, 0.0, 19)
#: Gradients are those of a model of a ridge this much smaller than the best: at the best one it can
#: be so smooth that its gradients are about the same everywhere.
_SHARPER = 100.0
#: Iterations without a lower error, after which no more follow.
_PATIENCE = 3


@dataclass(frozen=True, eq=False)
class TaughtRows:
    """Rows that teach a metric, and rows that judge it.

    Attributes
    ----------
    features : ndarray of shape (d, n)
        Scaled and centred.
    target : ndarray of shape (P, n)
    weight : ndarray of shape (n,)
    held_out : ndarray of bool, shape (n,)
        Rows that judge.
    """

    features: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    held_out: np.ndarray


@dataclass(frozen=True, eq=False)
class Metric(Fields):
    """A metric with the width and the ridge that were best with it.

    Attributes
    ----------
    kind : {"none", "diagonal", "full"}
    iteration : int
        After which it was learned; 0 for `none`.
    transform : ndarray of shape (d,) or (d, d)
        T, such that tr TᵀT = d; of a diagonal metric the diagonal.
    sigma : float
        Width of the similarity, in distances under the metric.
    ridge : float
        Of the norm of the function, for a target of unit variance.
    errors : ndarray of shape (m,)
        Squared errors of the held-out rows, summed over targets, relative to their mean square.
    weight : ndarray of shape (m,)
        Of these rows.
    """

    kind: str
    iteration: int
    transform: np.ndarray
    sigma: float
    ridge: float
    errors: np.ndarray
    weight: np.ndarray

    @property
    def error(self) -> float:
        """Mean squared error of the held-out rows."""
        return float(np.average(self.errors, weights=self.weight))

    def gain_over(self, other: Metric) -> tuple[float, float]:
        """Return how much lower the error is than another, and the standard error of that."""
        gain, n = other.errors - self.errors, len(self.errors)
        mean = float(np.average(gain, weights=self.weight))
        share = self.weight / self.weight.sum()
        return mean, float(np.sqrt(np.sum((share * (gain - mean)) ** 2) * n / max(n - 1, 1)))


def learn(
    rows: TaughtRows,
    landmarks: np.ndarray,
    kernel: str,
    kinds: Sequence[str],
    iterations: int = 5,
    sigma: float | None = None,
    ridge: float | None = None,
) -> list[Metric]:
    """Learn metrics; return the isotropic one, then the best of each kind.

    Parameters
    ----------
    rows : TaughtRows
    landmarks : ndarray of shape (d, L)
        As the features.
    kernel : {"gaussian", "laplace"}
    kinds : sequence of {"diagonal", "full"}
    iterations : int
        At most.
    sigma, ridge : float, optional
        The one width and the one ridge, in place of those that are tried.
    """
    fitter = Fitter(rows, landmarks, kernel, sigma, ridge)
    plain, start = fitter.fitted("none", 0, np.ones(len(landmarks)))
    found = [plain]
    for kind in kinds if np.ptp(rows.target, axis=1).any() else ():
        best, weights, last = plain, start, plain
        for iteration in range(1, iterations + 1):
            if iteration - best.iteration > _PATIENCE:
                break
            products = gradient_products(
                fitter.teaching, landmarks, kernel, last.transform, last.sigma, weights
            )
            transform = root(products, kind)
            if transform is None:
                break
            last, weights = fitter.fitted(kind, iteration, transform)
            if last.error < best.error:
                best = last
        if best is not plain:
            found.append(best)
    return found


@dataclass(frozen=True, eq=False)
class Fitter:
    """Fits models on teaching rows under one transform after another; see `learn`."""

    rows: TaughtRows
    landmarks: np.ndarray
    kernel: str
    sigma: float | None = None
    ridge: float | None = None

    @property
    def teaching(self) -> TaughtRows:
        """The rows that are not held out."""
        own, kept = self.rows, ~self.rows.held_out
        return TaughtRows(
            own.features[:, kept], own.target[:, kept], own.weight[kept], own.held_out[kept]
        )

    def fitted(self, kind: str, iteration: int, transform: np.ndarray) -> tuple[Metric, np.ndarray]:
        """Return the best width and ridge, and the weights (L, P) whose gradients are taken."""
        rows, held = self.rows, self.rows.held_out
        landmarks = np.ascontiguousarray(transformed(transform, self.landmarks).T)
        far = distances(landmarks, transformed(transform, rows.features))
        apart = distances(landmarks, landmarks.T)
        unit = float(np.sqrt(np.median(apart[np.triu_indices(len(apart), 1)]))) or 1.0
        sigmas = [f * unit for f in WIDTHS] if self.sigma is None else [self.sigma]
        grid = RIDGES if self.ridge is None else np.array([self.ridge])
        weight, found = rows.weight[~held] / rows.weight[~held].sum(), []
        level = rows.target[:, ~held] @ weight
        target = rows.target - level[:, np.newaxis]
        scale = max(float(np.sum((target[:, ~held] ** 2) @ weight)), 1e-300)
        for sigma in sigmas:
            similar = of_distances(self.kernel, far, sigma)
            similar -= (similar[:, ~held] @ weight)[:, np.newaxis]
            taught, own = similar[:, ~held], similar[:, held]
            weighed = taught * weight
            ridges = Ridges.of(
                weighed @ taught.T,
                weighed @ target[:, ~held].T,
                of_distances(self.kernel, apart, sigma),
            )
            errors = ridges.errors(grid, own, target[:, held]) / scale
            at = int(np.argmin(errors @ rows.weight[held]))
            metric = Metric(
                kind, iteration, transform, sigma, float(grid[at]), errors[at], rows.weight[held]
            )
            found.append((metric, ridges))
        best, ridges = min(found, key=lambda pair: pair[0].error)
        return best, ridges.weights(best.ridge / _SHARPER)


def distances(landmarks: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return squared distances (L, n) of rows (d, n) to landmarks (L, d)."""
    found = np.empty((len(landmarks), rows.shape[1]))
    Similarity("euclidean").fill(landmarks, np.ascontiguousarray(rows), found)
    return np.negative(found, out=found)


def of_distances(kernel: str, squared: np.ndarray, sigma: float) -> np.ndarray:
    """Return similarities of squared distances."""
    found = -squared
    KERNELS[kernel](found, sigma)
    return found


def gradient_products(
    rows: TaughtRows,
    landmarks: np.ndarray,
    kernel: str,
    transform: np.ndarray,
    sigma: float,
    weights: np.ndarray,
) -> Sums:
    """Sum ∇f ∇fᵀ over rows and outputs: ``outer`` (d, d) and ``weight``.

    Parameters
    ----------
    rows : TaughtRows
    landmarks : ndarray of shape (d, L)
    kernel : {"gaussian", "laplace"}
    transform : ndarray of shape (d,) or (d, d)
    sigma : float
    weights : ndarray of shape (L, P)

    Notes
    -----
    ∇f(x) = −M Σ w_l κ_l (x − z_l), where κ is K/σ² (gaussian), or K/(σr) and 0 at r = 0 (Laplace).
    """
    own = np.ascontiguousarray(transformed(transform, landmarks).T)
    squared = distances(own, transformed(transform, rows.features))
    steep = of_distances(kernel, squared, sigma)
    if kernel == "laplace":
        far = np.sqrt(squared)
        np.divide(steep, sigma * far, out=steep, where=far > 0)
        steep[far == 0] = 0.0
    else:
        steep /= sigma**2
    outer = np.zeros((len(landmarks), len(landmarks)))
    for weight in weights.T:
        pulled = weight[:, np.newaxis] * steep
        moved = landmarks @ pulled - rows.features * pulled.sum(axis=0)
        moved = transformed(transform.T, transformed(transform, moved))
        outer += (moved * rows.weight) @ moved.T
    return Sums({"outer": outer, "weight": np.array(rows.weight.sum())})


def root(products: Sums, kind: str) -> np.ndarray | None:
    """Return T of the mean product, or of its diagonal; None where no direction counts."""
    mean = products["outer"] / products["weight"]
    trace = float(np.trace(mean))
    if not (np.isfinite(trace) and trace > 0):
        return None
    mean *= len(mean) / trace
    if kind == "diagonal":
        return np.sqrt(np.diagonal(mean))
    values, vectors = np.linalg.eigh(mean)
    found: Any = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray(found)


def choose(found: Sequence[Metric]) -> Metric:
    """Choose among what `learn` returned: the least error, or the isotropic metric.

    That one unless its error is higher by more than the standard error of the difference.
    """
    best = min(found, key=lambda metric: metric.error)
    gain, error = best.gain_over(found[0])
    return best if gain > error else found[0]
