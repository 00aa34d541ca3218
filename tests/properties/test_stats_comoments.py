"""Merge laws of moments, co-moments and rows of them.

Tolerances come from the error bounds of the operations. With n rows, p parts, total weight W,
largest magnitude X and range R of the values, a mean is off by at most δ = c·ε·X, c = 4(n + p).
A co-moment is then off by at most c·ε·W·R² from its sums and W(2Rδ + δ²) from the means; a cross
sum by c·ε·W·R + Wδ; a weight by c·ε·W.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distfms.stats.base import merge_tree
from distfms.stats.codec import encode
from distfms.stats.comoments import CoMoments, Moments
from tests.reference.statistics import arrays_of

EPS = float(np.finfo(np.float64).eps)
SETTINGS = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Case:
    """A block, its weights and where to cut its rows."""

    block: np.ndarray
    weight: np.ndarray | None
    cuts: tuple[int, ...]

    def parts(self, kind=CoMoments, **options):
        edges = [0, *self.cuts, self.block.shape[1]]
        runs = [slice(a, b) for a, b in itertools.pairwise(edges)]
        weights = [None if self.weight is None else self.weight[r] for r in runs]
        return [
            kind.from_block(self.block[:, r], w, **options)
            for r, w in zip(runs, weights, strict=True)
        ]

    def tolerances(self):
        seen = self.block[np.isfinite(self.block)]
        largest = float(np.abs(seen).max(initial=0.0))
        spread = float(np.ptp(seen)) if seen.size else 0.0
        total = float(self.block.shape[1] if self.weight is None else self.weight.sum())
        c = 4 * (self.block.shape[1] + len(self.cuts) + 2) * EPS
        delta = c * largest
        return {
            "n_samples": 0.0,
            "weight": c * total,
            "mean": delta,
            "comoment": c * total * spread**2 + total * (2 * spread * delta + delta**2),
            "pair_weight": c * total,
            "cross": c * total * spread + total * delta,
        }

    def assert_equal(self, a, b):
        first = complete(a)
        second = complete(b)
        tolerances = self.tolerances()
        for name, tolerance in tolerances.items():
            np.testing.assert_allclose(
                first[name], second[name], rtol=0, atol=tolerance + 1e-300, err_msg=name
            )


def complete(value):
    """All arrays; a part without gaps says the same with and without the optional ones."""
    full = np.full(value.comoment.shape, value.weight)
    return {"pair_weight": full, "cross": np.zeros_like(full)} | arrays_of(value)


@st.composite
def cases(draw, n_cuts=None):
    d = draw(st.integers(1, 4))
    n = draw(st.integers(0, 12))
    number = st.floats(-100, 100, allow_subnormal=False)
    gap = draw(st.booleans())
    elements = st.one_of(number, st.just(np.nan)) if gap else number
    block = draw(arrays(np.float64, (d, n), elements=elements))
    block = block + draw(st.sampled_from([0.0, 30.0, 1e8]))
    weights = st.sampled_from([0.0, 0.3, 1.0, 7.5])
    weight = draw(st.none() | arrays(np.float64, n, elements=weights))
    size = draw(st.integers(0, 5)) if n_cuts is None else n_cuts
    cuts = draw(st.lists(st.integers(0, n), min_size=size, max_size=size))
    return Case(block, weight, tuple(sorted(cuts)))


@SETTINGS
@given(cases())
def test_any_partitioning_equals_one_block(case):
    merged = merge_tree(case.parts())
    whole = CoMoments.from_block(case.block, case.weight)
    case.assert_equal(merged, whole)
    case.assert_equal(merge_tree(case.parts()[::-1]), whole)
    np.testing.assert_array_equal(merged.comoment, merged.comoment.T)
    assert (np.diagonal(merged.comoment) >= 0).all()


@SETTINGS
@given(cases(n_cuts=0))
def test_no_rows_are_the_identity_to_the_bit(case):
    (value,) = case.parts()
    empty = CoMoments.from_block(case.block[:, :0])
    assert encode(empty) == encode(CoMoments.empty(value.n_columns))
    for merged in (value.merge(empty), empty.merge(value)):
        assert encode(merged) == encode(value)


@SETTINGS
@given(cases(n_cuts=1))
def test_nothing_is_ever_mutated(case):
    block = case.block.copy()
    a, b = case.parts()
    np.testing.assert_array_equal(block, case.block)
    before = [encode(value) for value in (a, b)]
    both = a.merge(b)
    whole = encode(both)
    both.scaled(2.0), both.take([0]), both.variance()
    a.merge(b)
    assert [encode(value) for value in (a, b)] == before
    assert encode(both) == whole


@SETTINGS
@given(cases())
def test_moments_obey_the_same_laws(case):
    merged = merge_tree(case.parts(Moments))
    whole = Moments.from_block(case.block, case.weight)
    tolerances = case.tolerances()
    for name in ("minimum", "maximum"):
        np.testing.assert_array_equal(arrays_of(merged)[name], arrays_of(whole)[name])
    for name, other in (("weight", "weight"), ("mean", "mean"), ("m2", "comoment")):
        np.testing.assert_allclose(
            arrays_of(merged)[name], arrays_of(whole)[name], rtol=0,
            atol=tolerances[other] + 1e-300,
        )  # fmt: skip
