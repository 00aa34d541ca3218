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
from distfms.methods.landmarks.logistic import LOGISTIC_RIDGES, log_losses
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
#: Landmarks with which classes judge metrics and ridges: more of them differ little, and take long.
_LANDMARKS_JUDGED = 256
#: Widths that are tried for classes, in those with the least squared errors: a wide similarity is
#: nearly linear.
_WIDER = (1.0, 4.0)
#: Powers of likely scales that are tried for classes until one is worse than none: whole ones fit
#: few rows too closely.
_POWERS = (0.0, 0.5, 1.0)


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
        return self.where(slice(n))

    def where(self, own: Any) -> TaughtRows:
        """Return some rows."""
        return TaughtRows(self.features[:, own], self.target[:, own], self.weight[own])


@dataclass(frozen=True)
class Way:
    """How a metric is learned, whatever the rows.

    Attributes
    ----------
    kind : {"none", "diagonal", "full"}
    likely : float
        Power of the likely scales of columns that learning begins with; 0 for equal ones.
    iteration : int
        After which it is learned; 0 for `none` and for likely scales.
    widths : tuple of float
        Of the model that is the first to teach it, and of all others.
    """

    kind: str
    likely: float = 0.0
    iteration: int = 0
    widths: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric with the width and the ridge that were best with it.

    Attributes
    ----------
    way : Way
    transform : ndarray of shape (d,) or (d, d)
        T, such that tr TᵀT = d; of a diagonal metric the diagonal.
    width : float
        Of the similarity, in median distances between landmarks.
    sigma : float
        The same in distances under the metric.
    ridge : float
        Of the norm of the function, for a target of unit variance.
    errors : ndarray of shape (m,)
        Squared errors of the held-out rows, summed over targets, relative to their mean square; of
        classes log losses, relative to that of equal shares.
    weight : ndarray of shape (m,)
        Of these rows.
    """

    way: Way
    transform: np.ndarray
    width: float
    sigma: float
    ridge: float
    errors: np.ndarray
    weight: np.ndarray

    @property
    def kind(self) -> str:
        """Return "none", "diagonal" or "full"."""
        return self.way.kind

    @property
    def iteration(self) -> int:
        """Return after which it was learned; 0 for `none` and for likely scales."""
        return self.way.iteration

    @property
    def error(self) -> float:
        """Mean squared error of the held-out rows."""
        return float(np.average(self.errors, weights=self.weight))

    def may_be_best(self, found: Sequence[Metric]) -> bool:
        """Whether its error is no more than two standard errors higher than the least."""
        gain, error = self.gain_over(min(found, key=lambda metric: metric.error))
        return gain + 2.0 * error >= 0.0

    def gain_over(self, other: Metric) -> tuple[float, float]:
        """Return how much lower the error is than another, and the standard error of that."""
        gain, n = other.errors - self.errors, len(self.errors)
        mean = float(np.average(gain, weights=self.weight))
        share = self.weight / self.weight.sum()
        return mean, float(np.sqrt(np.sum((share * (gain - mean)) ** 2) * n / max(n - 1, 1)))


def learn(
    fitter: Fitter, landmarks: np.ndarray, kinds: Sequence[str], iterations: int = 5
) -> list[Metric]:
    """Learn metrics; return the isotropic one, then the best of each kind.

    Parameters
    ----------
    fitter : Fitter
    landmarks : ndarray of shape (d, L)
        As the features.
    kinds : sequence of {"diagonal", "full"}
    iterations : int
        At most; each but the first keeps the width of the one before it, in median distances.
    """
    starts = [fitter.fitted(landmarks, Way("none"), fitter.start(0.0))]
    found = [starts[0][0]]
    if len(landmarks) <= _MOST_FULL:
        starts.append(fitter.fitted(landmarks, Way("diagonal", 1.0), fitter.start(1.0)))
    start = min(starts, key=lambda pair: pair[0].error)
    for kind in kinds:
        own = taught(fitter, landmarks, start, kind, iterations)
        own += [other for other, _ in starts[1:] if other.kind == kind]
        if own:
            found.append(min(own, key=lambda metric: metric.error))
    return found


def taught(
    fitter: Fitter,
    landmarks: np.ndarray,
    start: tuple[Metric, np.ndarray],
    kind: str,
    iterations: int,
    widths: Sequence[float] = WIDTHS,
) -> list[Metric]:
    """Return the metrics of a kind, each by the gradients of the one before, while errors fall."""
    (last, weights), path, best = start, list[Metric](), start[0]
    for iteration in range(1, iterations + 1):
        products = fitter.mean_product(landmarks, last, weights, kind == "full")
        transform = root(products, kind)
        if transform is None:
            break
        way = Way(kind, last.way.likely, iteration)
        last, weights = fitter.fitted(landmarks, way, transform, widths)
        widths = (last.width,)
        last = replace(last, way=replace(way, widths=(start[0].width, last.width)))
        path.append(last)
        best = min(best, last, key=lambda metric: metric.error)
        if iteration - best.iteration >= _PATIENCE[way.likely > 0.0]:
            break
    return path


def again(
    fitter: Fitter, landmarks: np.ndarray, way: Way, iterations: int
) -> tuple[Way, np.ndarray]:
    """Learn in the way of a metric of other rows or landmarks; return the best way and T.

    What they chose are options, so to speak, but for the iteration, which is judged anew.
    """
    transform = fitter.start(way.likely)
    if not way.iteration:
        return way, transform
    first = Way("diagonal" if way.likely else "none", way.likely)
    start = fitter.fitted(landmarks, first, transform, way.widths[:1])
    path = taught(fitter, landmarks, start, way.kind, iterations, way.widths[1:])
    best = min(path, key=lambda metric: metric.error, default=start[0])
    return best.way, best.transform


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

    def first(self, n: int) -> Fitter:
        """Return what fits models on the first rows, a quarter of which judge."""
        taught = self.taught.first(n)
        judging = taught if self.leaves_out else self.judging.first(n // (JUDGES - 1))
        return replace(self, taught=taught, judging=judging)

    def start(self, likely: float) -> np.ndarray:
        """Return likely scales of columns, or equal ones."""
        own = self.taught.first(_LIKELY_ROWS[self.leaves_out])
        if not (likely and np.ptp(own.target, axis=1).any()):
            return np.ones(len(own.features))
        return likely_scales(own.features, own.target, own.weight)

    def fitted(
        self,
        landmarks: np.ndarray,
        way: Way,
        transform: np.ndarray,
        widths: Sequence[float] = WIDTHS,
    ) -> tuple[Metric, np.ndarray]:
        """Return the best width and ridge, and the weights (L, P) whose gradients are taken."""
        far, near, apart, unit = self._distances(landmarks, transform)
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
            found.append((Metric(way, transform, width, sigma, *best), ridges))
        metric, ridges = min(found, key=lambda pair: pair[0].error)
        return metric, ridges.weights(metric.ridge / _SHARPER)

    def log_losses(self, landmarks: Any, metric: Metric, transform: Any) -> np.ndarray:
        """Return log losses (n_ridges, m) of the rows that judge, by models of their classes."""
        *squared, unit = self._distances(landmarks, transform)
        sigma, share = self.sigma or metric.width * unit, self.taught.weight
        far, near, apart = (of_distances(self.kernel, own, sigma) for own in squared)
        share = share / share.sum()
        mean = (far @ share)[:, np.newaxis]
        far, near = far - mean, near - mean
        ridges = Ridges.of((far * share) @ far.T, np.zeros((len(mean), 0)), apart)
        known = ridges.values, ridges.basis.T @ far, self.taught.target, share
        return log_losses(*known, ridges.basis.T @ near, self.judging.target)

    def _distances(self, landmarks: np.ndarray, transform: np.ndarray) -> tuple[Any, ...]:
        """Return squared distances from landmarks to both kinds of rows and to each other.

        Last the median distance between landmarks.
        """
        moved = np.ascontiguousarray(transformed(transform, landmarks).T)
        far, near, apart = (
            distances(moved, transformed(transform, rows))
            for rows in (self.taught.features, self.judging.features, landmarks)
        )
        unit = float(np.sqrt(np.median(apart[np.triu_indices(len(apart), 1)]))) or 1.0
        return far, near, apart, unit

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
#: columns that matter. Models of no more landmarks than the next number first learn with these and
#: so many rows, which tells what is worth learning with all.
LANDMARKS_TAUGHT, _SKETCHED = 500, (250, 3072)
#: Columns up to which a full metric is tried where the spec does not ask for it.
_MOST_FULL = 500
#: Rows at least: fewer say too little of what is better.
_FEWEST = 32
#: Rows up to which each is left out in turn, rather than a quarter held out, if columns are few.
FEW = 2000


Lesson = tuple[LandmarkMap, RowSample, np.ndarray, Way | None]
"""An isotropic map to the landmarks of the model, training rows (features, target, weight), and
which of `JUDGES` parts each is in; the first judges instead of teaching. Without a fold, also the
way in which the metric of all was learned: these are options, so to speak; what is learned of rows
is learned without the fold.
"""
JUDGES = 4


def learned(
    options: LandmarksOptions, classes: Sequence[float] | None, lesson: Lesson
) -> list[Metric]:
    """Learn; return the chosen metric, then those that it was compared with.

    Few rows all teach and all judge, by leaving out each in turn. Metrics for classes are judged by
    log loss on rows that had no say in them: of few rows on each part in turn.
    """
    mapping, sample, parts, like = lesson
    n, n_classes = len(mapping.scale), len(classes or ())
    target = coded(classes, sample.values[n])[np.newaxis]
    if has_classes := options.task == "classification":
        target = (target == np.arange(n_classes)[n_classes == 2 :, np.newaxis]) * 1.0
    weight = sample.values[n + 1] if len(sample.values) > n + 1 else np.ones(sample.n_rows)
    rows = TaughtRows(mapping.scaled(sample.values[:n]), target, weight)
    numbers = np.unique(parts)
    if sample.n_rows < _FEWEST or len(numbers) < 2:
        return []
    known = mapping.similarity.name, dict(mapping.similarity.parameters).get("sigma")
    turns = [Fitter(rows.where(parts != p), rows.where(parts == p), *known) for p in numbers]
    is_auto, iterations = options.metric == "auto", options.iterations
    kinds, own = [str(options.metric)], mapping.scaled(mapping.landmarks.T)
    is_wide = len(rows.features) > _MOST_FULL
    if is_auto:
        kinds = ["diagonal"] if is_wide else ["diagonal", "full"]
    turns = turns[:1] if sample.n_rows > FEW or is_wide else turns
    fitter = turns[0] if len(turns) == 1 else Fitter(rows, rows, *known)
    if fitter.leaves_out and is_auto:
        if has_classes:
            return by_turns(fitter, turns, own, like)
        kinds, iterations = ["diagonal"], 0  # gradients have seen the rows that are left out

    def of_landmarks(way: Way, transform: np.ndarray) -> Metric:
        return fitter.fitted(own, way, transform)[0]

    marks, are_few = fitter.taught.features[:, :LANDMARKS_TAUGHT], own.shape[1] <= _SKETCHED[0]
    if like is not None:
        found = [of_landmarks(*again(fitter, marks, like, like.iteration))]
    else:
        sketch = fitter.first(_SKETCHED[1]) if are_few else fitter
        some = marks[:, : _SKETCHED[0]] if are_few else marks
        found = learn(sketch, some, kinds, iterations)
        ways = [(m.way, m.transform) for m in found]
        for i, metric in enumerate(found):
            if are_few and metric.iteration and metric.may_be_best(found):
                ways[i] = again(fitter, marks, metric.way, iterations)
        if are_few or has_classes:
            found = [of_landmarks(*way) for way in ways]
    if has_classes:
        found = [judged(m, turns, own, [m.transform] * len(turns)) for m in found]
    best = choose(found) if is_auto else min(found, key=lambda metric: metric.error)
    if like is None and not (are_few or has_classes):
        best = of_landmarks(best.way, best.transform)
    return [best, *found]


def by_turns(
    fitter: Fitter, turns: Sequence[Fitter], landmarks: np.ndarray, like: Way | None
) -> list[Metric]:
    """Return the metric for classes, then what it was compared with: none, and likely scales.

    The scales are the mean of those of each turn, by which its rows are judged.
    """
    logs, found = [np.zeros(len(landmarks)) for _ in turns], list[Metric]()
    for power in _POWERS if like is None else (like.likely,):
        if power and not np.any(logs):
            logs = [np.log(turn.start(1.0)) for turn in turns]
        scaled = [np.exp(power * own) for own in (np.mean(logs, axis=0), *logs)]
        whole, *each = (own / np.sqrt(np.mean(own**2)) for own in scaled)
        way = Way("diagonal" if power else "none", power)
        metric, _ = fitter.fitted(landmarks[:, :_LANDMARKS_JUDGED], way, whole)
        widths = _WIDER if fitter.sigma is None else _WIDER[:1]
        wider = (replace(metric, width=w * metric.width, sigma=w * metric.sigma) for w in widths)
        tried = [judged(own, turns, landmarks, each) for own in wider]
        found.append(min(tried, key=lambda metric: metric.error))
        if found[-1].error > found[0].error:
            break  # scales that are too close to the rows will not become better by more of them
    best = min(found, key=lambda metric: metric.error)
    compared = [found[0], best if best is not found[0] else found[-1]]
    return [choose(compared), *compared]


def judged(
    metric: Metric, turns: Sequence[Fitter], landmarks: np.ndarray, transforms: Sequence[np.ndarray]
) -> Metric:
    """Return a metric with the ridge that logistic models are best with, and their losses."""
    pairs, some = zip(turns, transforms, strict=True), landmarks[:, :_LANDMARKS_JUDGED]
    losses = np.hstack([turn.log_losses(some, metric, own) for turn, own in pairs])
    weight = np.concatenate([turn.judging.weight for turn in turns])
    at = int(np.argmin(losses @ weight))
    return replace(metric, ridge=float(LOGISTIC_RIDGES[at]), errors=losses[at], weight=weight)


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
