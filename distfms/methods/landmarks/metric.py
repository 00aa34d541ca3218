"""A metric learned from the target: distances count the directions in which the target changes.

The similarity is K(x, z) = k(‖T(x − z)‖) with M = TᵀT. A model f(x) = Σ w_l K(x, z_l) is fitted,
M becomes the mean of ∇f ∇fᵀ over the rows, or its diagonal, and so on, from the likely scales of
columns where these are better than none. Rows that are held out, or of few rows each one left out,
choose among all iterations, widths and ridges, and decide whether the metric is kept.

References
----------
Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 383 (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.landmarks.likelihood import likely_scales
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import KERNELS, LandmarkMap, Similarity, transformed
from distfms.methods.landmarks.squared import Ridges, coded
from distfms.stats.sample import RowSample

#: Widths of the similarity that are tried, in median distances between landmarks.
WIDTHS = (0.5, 1.0, 2.0, 4.0)
#: Ridges that are tried, for a target of unit variance.
RIDGES = np.logspace(-9.0, 0.0, 19)
#: Gradients are those of a model of a ridge this much smaller than the best: at the best one it can
#: be so smooth that its gradients are about the same everywhere.
_SHARPER = 100.0
#: Iterations without a lower error, after which no more follow, from equal and from likely scales.
_PATIENCE = (3, 1)
#: Rows that tell likely scales where others judge them, and where each is left out in turn.
_LIKELY_ROWS = (256, 512)


@dataclass(frozen=True, eq=False)
class TaughtRows:
    """Rows that teach a metric, or judge it.

    Attributes
    ----------
    features : ndarray of shape (d, n)
        Scaled and centred.
    target : ndarray of shape (P, n)
    weight : ndarray of shape (n,)
    """

    features: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    def first(self, n: int) -> TaughtRows:
        """Return the first rows."""
        return TaughtRows(self.features[:, :n], self.target[:, :n], self.weight[:n])


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric with the width and the ridge that were best with it.

    Attributes
    ----------
    kind : {"none", "diagonal", "full"}
    iteration : int
        After which it was learned; 0 for `none` and for likely scales.
    transform : ndarray of shape (d,) or (d, d)
        T, such that tr TᵀT = d; of a diagonal metric the diagonal.
    width : float
        Of the similarity, in median distances between landmarks.
    sigma : float
        The same in distances under the metric.
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
    width: float
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
    fitter: Fitter, landmarks: np.ndarray, kinds: Sequence[str], iterations: int = 5
) -> list[Metric]:
    """Learn metrics; return the isotropic one, then the best of each kind that is better.

    Parameters
    ----------
    fitter : Fitter
    landmarks : ndarray of shape (d, L)
        As the features.
    kinds : sequence of {"diagonal", "full"}
    iterations : int
        At most; each but the first keeps the width of the one before it, in median distances.
    """
    starts = [fitter.fitted(landmarks, "none", 0, np.ones(len(landmarks)))]
    found, n_scales = [starts[0][0]], _LIKELY_ROWS[fitter.leaves_out]
    taught = fitter.taught.first(n_scales)
    if not np.ptp(taught.target, axis=1).any():
        return found
    if len(landmarks) <= _MOST_FULL:
        scales = likely_scales(taught.features, taught.target, taught.weight)
        starts.append(fitter.fitted(landmarks, "diagonal", 0, scales))
    start, weights = min(starts, key=lambda pair: pair[0].error)
    first = fitter.mean_product(landmarks, start, weights, "full" in kinds)
    for kind in kinds:
        path, best, products = [starts[-1][0]], start, first
        for iteration in range(1, iterations + 1):
            transform = root(products, kind)
            if transform is None or iteration - best.iteration > _PATIENCE[start is not found[0]]:
                break
            widths = (path[-1].width,) if iteration > 1 else WIDTHS
            last, weights = fitter.fitted(landmarks, kind, iteration, transform, widths)
            products = fitter.mean_product(landmarks, last, weights, kind == "full")
            path.append(last)
            best = min(best, last, key=lambda metric: metric.error)
        own = [metric for metric in path if metric.kind == kind]
        if own and (best := min(own, key=lambda metric: metric.error)).error < found[0].error:
            found.append(best)
    return found


@dataclass(frozen=True, eq=False)
class Fitter:
    """Fits models on rows under one transform after another.

    Attributes
    ----------
    taught, judging : TaughtRows
        The same where each row is judged by what all others teach.
    kernel : {"gaussian", "laplace"}
    sigma : float or None
        The one width, in place of those that are tried. Ridges are tried whatever the models on
        the metric have, so that a grid of these has one metric.
    """

    taught: TaughtRows
    judging: TaughtRows
    kernel: str
    sigma: float | None = None

    @property
    def leaves_out(self) -> bool:
        """Whether each row is left out in turn."""
        return self.judging is self.taught

    def fitted(
        self,
        landmarks: np.ndarray,
        kind: str,
        iteration: int,
        transform: np.ndarray,
        widths: Sequence[float] = WIDTHS,
    ) -> tuple[Metric, np.ndarray]:
        """Return the best width and ridge, and the weights (L, P) whose gradients are taken."""
        moved = np.ascontiguousarray(transformed(transform, landmarks).T)
        far, near, apart = (
            distances(moved, transformed(transform, rows))
            for rows in (self.taught.features, self.judging.features, landmarks)
        )
        unit = float(np.sqrt(np.median(apart[np.triu_indices(len(apart), 1)]))) or 1.0
        share = self.taught.weight / self.taught.weight.sum()
        level = (self.taught.target @ share)[:, np.newaxis]
        target, truth = ((own.target - level) for own in (self.taught, self.judging))
        scale, found = max(float(np.sum((target**2) @ share)), 1e-300), []
        for width in widths if self.sigma is None else (self.sigma / unit,):
            sigma = width * unit
            similar, own = (of_distances(self.kernel, squared, sigma) for squared in (far, near))
            mean = (similar @ share)[:, np.newaxis]
            similar, own = (similar - mean) * np.sqrt(share), own - mean
            ridges = Ridges.of(
                similar @ similar.T,
                similar @ (target * np.sqrt(share)).T,
                of_distances(self.kernel, apart, sigma),
            )
            left = share if self.leaves_out else None
            errors = ridges.errors(RIDGES, own, truth, left) / scale
            at = int(np.argmin(errors @ self.judging.weight))
            best = (float(RIDGES[at]), errors[at], self.judging.weight)
            found.append((Metric(kind, iteration, transform, width, sigma, *best), ridges))
        metric, ridges = min(found, key=lambda pair: pair[0].error)
        return metric, ridges.weights(metric.ridge / _SHARPER)

    # A width may be of any size: where squares of gradients overflow, no metric is learned.
    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def mean_product(
        self, landmarks: np.ndarray, metric: Metric, weights: np.ndarray, is_full: bool
    ) -> np.ndarray:
        """Return the mean over the rows that teach of ∇f ∇fᵀ, summed over outputs.

        Of shape (d, d), or (d,) for the diagonal alone, which takes d times less work.

        Notes
        -----
        ∇f(x) = −M Σ w_l κ_l (x − z_l), where κ is K/σ² (gaussian), or K/(σr) and 0 at r = 0
        (Laplace).
        """
        transform, sigma, rows = metric.transform, metric.sigma, self.taught
        own = np.ascontiguousarray(transformed(transform, landmarks).T)
        squared = distances(own, transformed(transform, rows.features))
        steep = of_distances(self.kernel, squared, sigma)
        if self.kernel == "laplace":
            far = np.sqrt(squared)
            np.divide(steep, sigma * far, out=steep, where=far > 0)
            steep[far == 0] = 0.0
        else:
            steep = steep / sigma / sigma
        outer = np.zeros((len(landmarks),) * (2 if is_full else 1))
        for weight in weights.T:
            pulled = weight[:, np.newaxis] * steep
            moved = landmarks @ pulled - rows.features * pulled.sum(axis=0)
            moved = transformed(transform.T, transformed(transform, moved))
            weighed = moved * rows.weight
            outer += weighed @ moved.T if is_full else np.einsum("ij,ij->i", weighed, moved)
        return outer / rows.weight.sum()


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


def root(mean: np.ndarray, kind: str) -> np.ndarray | None:
    """Return T of the mean product, or of its diagonal; None where no direction counts."""
    diagonal = mean if mean.ndim == 1 else np.diagonal(mean)
    trace = float(diagonal.sum())
    if not (np.isfinite(trace) and trace > 0):
        return None
    if kind == "diagonal":
        return np.sqrt(diagonal * (len(mean) / trace))
    mean = mean * (len(mean) / trace)
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


# --- what a metric is learned from, and what is told of it --------------------------------------

#: Landmarks that a metric is learned with, where there are as many rows: with fewer it may miss the
#: columns that matter.
LANDMARKS_TAUGHT = 500
#: Columns up to which a full metric is tried where the spec does not ask for it.
_MOST_FULL = 500
#: Rows at least: fewer say too little of what is better.
_FEWEST = 32
#: Rows up to which each is left out in turn, rather than a quarter held out, if columns are few.
_FEW = 2000


Lesson = tuple[LandmarkMap, RowSample, np.ndarray]
"""An isotropic map to the landmarks of the model, training rows (features, target, weight), and
which of them judge instead of teaching.
"""


def taught_rows(
    options: LandmarksOptions, classes: Sequence[float] | None, lesson: Lesson
) -> tuple[TaughtRows, TaughtRows]:
    """Return the rows that teach and those that judge; few rows do both."""
    mapping, sample, judges = lesson
    n = len(mapping.scale)
    target = coded(classes, sample.values[n])[np.newaxis]
    if options.task == "classification":
        target = (target == np.arange(len(classes or ()))[:, np.newaxis]) * 1.0
    features = sample.values[:n]
    weight = sample.values[n + 1] if len(sample.values) > n + 1 else np.ones(sample.n_rows)
    everyone = TaughtRows(mapping.scaled(features), target, weight)
    if sample.n_rows <= _FEW and len(everyone.features) <= _MOST_FULL:
        return everyone, everyone
    taught, judging = (
        TaughtRows(everyone.features[:, own], target[:, own], weight[own])
        for own in (~judges, judges)
    )
    return taught, judging


def learned(
    options: LandmarksOptions, classes: Sequence[float] | None, lesson: Lesson
) -> list[Metric]:
    """Learn; return the chosen metric, then those that it was compared with."""
    similarity, (taught, judging) = lesson[0].similarity, taught_rows(options, classes, lesson)
    kinds: tuple[str, ...] = (options.metric,)
    iterations = options.iterations
    if options.metric == "auto":
        kinds = ("diagonal", "full") if len(taught.features) <= _MOST_FULL else ("diagonal",)
        if taught is judging:  # gradients have seen the rows that are left out: scales suffice
            kinds, iterations = ("diagonal",), 0
    if lesson[1].n_rows < _FEWEST:
        return []
    sigma = dict(similarity.parameters).get("sigma")
    fitter = Fitter(taught, judging, similarity.name, sigma)
    found = learn(fitter, taught.features[:, :LANDMARKS_TAUGHT], kinds, iterations)
    best = choose(found) if options.metric == "auto" else found[-1]
    own = lesson[0].scaled(lesson[0].landmarks.T)
    last, _ = fitter.fitted(own, best.kind, best.iteration, best.transform)
    return [last, *found]


def under(mapping: LandmarkMap, metric: Metric | None) -> LandmarkMap:
    """Return a map under a metric; without one, as it is."""
    if metric is None:
        return mapping
    similarity = replace(mapping.similarity, parameters=(("sigma", metric.sigma),))
    transform = np.zeros(0) if metric.kind == "none" else np.asarray(metric.transform)
    return replace(mapping, similarity=similarity, transform=transform, ridge=metric.ridge)


def told(found: Sequence[Metric], names: Sequence[str]) -> dict[str, Any]:
    """Return what the results say of a metric, the chosen one first, and of its columns."""
    if not found:
        return {"kind": "none"}
    chosen, *compared = found
    content: dict[str, Any] = {"kind": chosen.kind, "iteration": chosen.iteration, "compared": []}
    for metric in compared:
        gain, error = metric.gain_over(compared[0])
        own = {"kind": metric.kind, "iteration": metric.iteration, "error": metric.error}
        content["compared"].append({**own, "gain": gain, "standard_error": error})
    if chosen.kind == "none":
        return content
    t = np.asarray(chosen.transform)
    squares = t**2 if t.ndim == 1 else np.sum(t**2, axis=0)  # the diagonal of TᵀT
    content["weights"] = _largest(squares / squares.sum(), names, len(names))
    if chosen.kind == "full":
        values, vectors = np.linalg.eigh(t.T @ t / squares.sum())
        content["directions"] = [
            {"share": float(values[-i]), "columns": _largest(vectors[:, -i], names, 5)}
            for i in range(1, min(5, len(values)) + 1)
        ]
    return content


def _largest(vector: np.ndarray, names: Sequence[str], most: int) -> dict[str, float]:
    """Return the largest entries of a vector, turned so that the first of them is positive."""
    order = np.argsort(-np.abs(vector), kind="stable")[:most]
    sign = np.sign(vector[order[0]]) or 1.0
    return {names[i]: float(sign * vector[i]) for i in order}
