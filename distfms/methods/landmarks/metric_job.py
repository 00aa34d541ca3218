"""The stage that learns a metric from sampled rows, of all training rows and without each fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.data.folds import hash_keys, mix
from distfms.methods.landmarks.metric import Fitter, Metric, TaughtRows, choose, learn
from distfms.methods.landmarks.procedure import coded
from distfms.methods.landmarks.similarity import KERNELS, LandmarkMap, Similarity
from distfms.stats.sample import RowSample

#: One row in so many is held out from those that teach.
_HELD_OUT = 4
#: Landmarks that a metric is learned with, where there are as many rows: with fewer it may miss the
#: columns that matter.
_LANDMARKS = 500
#: Columns up to which a full metric is tried where the spec does not ask for it.
_MOST_FULL = 500
#: Ridge of a loss of margins, in those of squared loss of classes 0 and 1: scores are several times
#: as large, their squared norm that much more.
_OF_MARGINS = 0.02
#: Rows that are held out at least: fewer say too little of what is better.
_FEWEST = 8


def is_learned(similarity: Similarity, options: Any) -> bool:
    """Return whether a similarity gets its metric, its width and its ridge from the target."""
    none = options.metric == "none" or options.task == "ranking"
    return similarity.name in KERNELS and not none


@dataclass(frozen=True, eq=False)
class Lesson:
    """Picklable: what a metric is learned from.

    Attributes
    ----------
    mapping : LandmarkMap
        To the landmarks of the model, isotropic.
    sample : RowSample
        Training rows: features, target and, where there are weights, these.
    classes : sequence of float, or None
        Of the target, where it has any.
    options : LandmarksOptions
    """

    mapping: LandmarkMap
    sample: RowSample
    classes: Sequence[float] | None
    options: Any

    def rows(self) -> TaughtRows:
        """Return the rows, those held out by the hash of their id, or of the row."""
        sample, n = self.sample, len(self.mapping.scale)
        if self.options.metric_rows:
            sample = sample.first(self.options.metric_rows)
        target = coded(self.classes, sample.values[n])[np.newaxis]
        if self.options.task == "classification":
            target = (target == np.arange(len(self.classes or ()))[:, np.newaxis]) * 1.0
        keys = sample.hashes if sample.ids is None else hash_keys(sample.ids)
        weight = sample.values[n + 1] if len(sample.values) > n + 1 else np.ones(sample.n_rows)
        held_out = mix(mix(keys)) % np.uint64(_HELD_OUT) == 0
        return TaughtRows(self.mapping.scaled(sample.values[:n]), target, weight, held_out)

    def learned(self) -> list[Metric]:
        """Learn; return the chosen metric, then those that it was compared with."""
        options, rows, kernel = self.options, self.rows(), self.mapping.similarity.name
        given = dict(self.mapping.similarity.parameters)
        fixed = {"sigma": given.get("sigma"), "ridge": options.ridge}
        kinds = ("diagonal", "full") if options.metric == "auto" else (options.metric,)
        if options.metric == "auto" and len(rows.features) > _MOST_FULL:
            kinds = kinds[:1]
        teaching = rows.features[:, ~rows.held_out]
        if min(np.count_nonzero(rows.held_out), teaching.shape[1]) < _FEWEST:
            return []
        found = learn(rows, teaching[:, :_LANDMARKS], kernel, kinds, options.iterations, **fixed)
        best = choose(found) if options.metric == "auto" else found[-1]
        own = self.mapping.scaled(self.mapping.landmarks.T)
        last, _ = Fitter(rows, own, kernel, **fixed).fitted(
            best.kind, best.iteration, best.transform
        )
        if options.task == "classification" and options.ridge is None:
            last = replace(last, ridge=last.ridge * _OF_MARGINS)
        return [last, *found]


def learn_lesson(lesson: Lesson) -> list[Metric]:
    """Learn what a lesson teaches."""
    return lesson.learned()


def under(mapping: LandmarkMap, metric: Metric | None) -> LandmarkMap:
    """Return a map under a metric; without one, as it is."""
    if metric is None:
        return mapping
    similarity = replace(mapping.similarity, parameters=(("sigma", metric.sigma),))
    plain = metric.kind == "none"
    return replace(
        mapping,
        similarity=similarity,
        transform=np.zeros(0) if plain else np.asarray(metric.transform),
    )


def told(found: Sequence[Metric], names: Sequence[str]) -> dict[str, Any]:
    """Return what the results say of a metric, the chosen one first, and of its columns."""
    if not found:
        return {"kind": "none"}
    chosen, *compared = found
    content: dict[str, Any] = {
        "kind": chosen.kind,
        "iteration": chosen.iteration,
        "compared": [_compared(metric, compared[0]) for metric in compared],
    }
    if chosen.kind == "none":
        return content
    t = np.asarray(chosen.transform)
    product = np.diag(t**2) if t.ndim == 1 else t.T @ t
    share = np.diagonal(product) / np.trace(product)
    order = np.argsort(-share, kind="stable")
    content["weights"] = {names[i]: float(share[i]) for i in order}
    if chosen.kind == "full":
        values, vectors = np.linalg.eigh(product)
        content["directions"] = [
            {
                "share": float(value / np.trace(product)),
                "columns": _loadings(vector, names),
            }
            for value, vector in list(zip(values[::-1], vectors.T[::-1], strict=True))[:5]
        ]
    return content


def _compared(metric: Metric, plain: Metric) -> Mapping[str, Any]:
    gain, error = metric.gain_over(plain)
    return {
        "kind": metric.kind,
        "iteration": metric.iteration,
        "error": metric.error,
        "gain": gain,
        "standard_error": error,
    }


def _loadings(vector: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return the largest entries of a direction, whose largest is positive."""
    order = np.argsort(-np.abs(vector), kind="stable")[:5]
    sign = np.sign(vector[order[0]]) or 1.0
    return {names[i]: float(sign * vector[i]) for i in order}
