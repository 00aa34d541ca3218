"""Statistics written out literally, object by object, with exactly rounded sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import fsum, isnan
from typing import Any

import numpy as np

from distfms.stats.ragged import Ragged, offsets_of

Lists = Sequence[Sequence[Sequence[float]]]  # attribute → object → judgments


def arrays_of(value: Any) -> dict[str, np.ndarray]:
    """All numbers of a statistic by name, those of statistics in it as well."""
    results = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if is_dataclass(content):
            results |= {f"{field.name}_{name}": own for name, own in arrays_of(content).items()}
        elif content is not None:
            results[field.name] = np.asarray(content)
    return results


def ragged_of(lists: Sequence[Sequence[float]]) -> Ragged:
    """One attribute's judgments, a list for each object."""
    counts = np.array([len(row) for row in lists], dtype=np.int64)
    values = np.concatenate([np.empty(0), *(np.asarray(row, dtype=float) for row in lists)])
    return Ragged(values, offsets_of(counts))


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = fsum(weights)
    return fsum(w * x for x, w in zip(values, weights, strict=True)) / total if total else 0.0


@dataclass(frozen=True)
class LiteralCoMoments:
    mean: np.ndarray
    comoment: np.ndarray
    pair_weight: np.ndarray
    cross: np.ndarray


def comoments(block: np.ndarray, weight: Sequence[float] | None = None) -> LiteralCoMoments:
    """Centred co-moments of the columns of a (d, n) block, with NaN for missing."""
    d, n = block.shape
    w = [1.0] * n if weight is None else [float(x) for x in weight]
    x = [[float(value) for value in row] for row in block]
    mean = []
    for row in x:
        seen = [r for r in range(n) if not isnan(row[r])]
        mean.append(weighted_mean([row[r] for r in seen], [w[r] for r in seen]))
    out = np.zeros((3, d, d))
    for i in range(d):
        for j in range(d):
            both = [r for r in range(n) if not isnan(x[i][r]) and not isnan(x[j][r])]
            out[0, i, j] = fsum(w[r] * (x[i][r] - mean[i]) * (x[j][r] - mean[j]) for r in both)
            out[1, i, j] = fsum(w[r] for r in both)
            out[2, i, j] = fsum(w[r] * (x[i][r] - mean[i]) for r in both)
    return LiteralCoMoments(np.array(mean), *out)


@dataclass(frozen=True)
class LiteralEstimates:
    b: np.ndarray
    v: np.ndarray
    second_moment: np.ndarray
    noise: np.ndarray
    external: np.ndarray
    label_variance: float
    means: np.ndarray


def var_est(judgments: Sequence[float]) -> float:
    """Sample variance, n − 1 in the denominator."""
    centre = fsum(judgments) / len(judgments)
    return fsum((x - centre) ** 2 for x in judgments) / (len(judgments) - 1)


def judgment_estimates(
    lists: Lists,
    label: Sequence[float],
    weight: Sequence[float] | None = None,
    given: Sequence[float] | None = None,
) -> LiteralEstimates:
    """Compute the table of the methods page by loops over objects."""
    d = len(lists)
    n = len(label)
    w = [1.0] * n if weight is None else [float(x) for x in weight]
    objects = [i for i in range(n) if w[i] > 0]
    has = [[i for i in objects if len(lists[a][i])] for a in range(d)]
    bar = [{i: fsum(lists[a][i]) / len(lists[a][i]) for i in has[a]} for a in range(d)]
    mean = [weighted_mean([bar[a][i] for i in has[a]], [w[i] for i in has[a]]) for a in range(d)]
    y_mean = weighted_mean([label[i] for i in objects], [w[i] for i in objects])
    b = np.zeros(d)
    v = np.zeros(d)
    u = np.zeros(d)
    S = np.zeros((d, d))
    for a in range(d):
        held = [w[i] for i in has[a]]
        b[a] = weighted_mean([(label[i] - y_mean) * (bar[a][i] - mean[a]) for i in has[a]], held)
        repeated = [i for i in has[a] if len(lists[a][i]) >= 2]
        v[a] = weighted_mean([var_est(lists[a][i]) for i in repeated], [w[i] for i in repeated])
        if given is not None and not isnan(given[a]):
            v[a] = given[a]
        terms = [
            (var_est(lists[a][i]) if len(lists[a][i]) >= 2 else v[a]) / len(lists[a][i])
            for i in has[a]
        ]
        u[a] = weighted_mean(terms, held)
        for c in range(d):
            both = [i for i in has[a] if i in bar[c]]
            products = [(bar[a][i] - mean[a]) * (bar[c][i] - mean[c]) for i in both]
            S[a, c] = weighted_mean(products, [w[i] for i in both])
    y_variance = weighted_mean([(label[i] - y_mean) ** 2 for i in objects], [w[i] for i in objects])
    return LiteralEstimates(b, v, S, u, S - np.diag(u), y_variance, np.array(mean))


@dataclass(frozen=True)
class LiteralRaters:
    """Off the diagonal; NaN where there is no pair of judgments to tell."""

    external: np.ndarray
    noise_covariance: np.ndarray


def rater_estimates(
    lists: Lists,
    ids: Sequence[Sequence[Sequence[object]]],
    label: Sequence[float],
    weight: Sequence[float] | None = None,
) -> LiteralRaters:
    """Covariances from pairs of judgments by different raters, and by the same, by loops.

    A judgment whose rater is None, and a rater's second judgment of one attribute of an object, are
    by raters of their own.
    """
    d = len(lists)
    n = len(label)
    w = [1.0] * n if weight is None else [float(x) for x in weight]
    mean = judgment_estimates(lists, label, weight).means
    messages = [[_told_apart(ids[a][i], (a, i)) for i in range(n)] for a in range(d)]
    external = np.full((d, d), np.nan)
    noise = np.full((d, d), np.nan)
    for a in range(d):
        for b in range(d):
            if a == b:
                continue
            different = []
            same = []
            for i in range(n):
                pairs = [
                    ((x - mean[a]) * (y - mean[b]), r == s)
                    for x, r in zip(lists[a][i], messages[a][i], strict=True)
                    for y, s in zip(lists[b][i], messages[b][i], strict=True)
                ]
                for found, wanted in ((different, False), (same, True)):
                    products = [product for product, is_same in pairs if is_same == wanted]
                    if products and w[i] > 0:
                        found.append((fsum(products) / len(products), w[i]))
            if different:
                external[a, b] = weighted_mean(*zip(*different, strict=True))
            if same and different:
                noise[a, b] = weighted_mean(*zip(*same, strict=True)) - external[a, b]
    return LiteralRaters(external, noise)


def mean_variance(lists: Sequence[Sequence[float]]) -> float:
    """Mean over objects with two judgments or more of their variance; 0 if there are none."""
    variances = [float(np.var(values, ddof=1)) for values in lists if len(values) > 1]
    return float(np.mean(variances)) if variances else 0.0


def disagreement(
    lists: Lists, ids: Sequence[Sequence[Sequence[object]]], v: Sequence[float]
) -> dict[object, list[float]]:
    """Objects, Σ u and Σ s² in units of v, by rater, by loops over judgments."""
    objects: dict[object, set[int]] = {}
    terms: dict[object, list[list[float]]] = {}
    for own, raters, unit in zip(lists, ids, v, strict=True):
        for i, (values, known) in enumerate(zip(own, raters, strict=True)):
            k = len(values)
            if k < 2 or not unit:
                continue
            for place, rater in enumerate(known):
                if rater is not None:
                    others = [*values[:place], *values[place + 1 :]]
                    u = (k - 1) / k * (values[place] - fsum(others) / (k - 1)) ** 2
                    spread = float(np.var(others, ddof=1)) if k > 2 else unit
                    own_terms = terms.setdefault(rater, [[], []])
                    own_terms[0].append(u / unit)
                    own_terms[1].append(spread / unit)
                    objects.setdefault(rater, set()).add(i)
    return {r: [len(objects[r]), *map(fsum, t)] for r, t in sorted(terms.items())}


def _told_apart(raters: Sequence[object], cell: object) -> list[object]:
    seen: set[object] = set()
    found: list[object] = []
    for place, rater in enumerate(raters):
        alone = rater is None or rater in seen
        found.append((cell, place) if alone else ("rater", rater))
        seen.add(rater)
    return found
