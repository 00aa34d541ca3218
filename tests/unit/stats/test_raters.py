"""What raters who judge several attributes tell: literal formulas, merges, unbiasedness."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.stats.base import merge_tree
from distfms.stats.codec import decode, encode
from distfms.stats.disagreement import Disagreement
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged, offsets_of
from tests.reference import statistics as literal
from tests.reference.statistics import ragged_of

Ids = list[list[list[int | None]]]


def codes(ids):
    """Whole numbers in place of ids; -1 for None."""
    return [
        Ragged(
            np.array([-1 if r is None else r for row in rows for r in row], dtype=np.int64),
            offsets_of(np.array([len(row) for row in rows], dtype=np.int64)),
        )
        for rows in ids
    ]


@dataclass(frozen=True)
class Case:
    lists: list[list[list[float]]]
    ids: Ids
    label: np.ndarray
    weight: np.ndarray | None

    def part(self, start, stop, **options):
        rows = [ragged_of(attribute).rows(start, stop) for attribute in self.lists]
        raters = [held.rows(start, stop) for held in codes(self.ids)]
        weight = None if self.weight is None else self.weight[start:stop]
        return JudgmentStatistics.from_block(
            rows, self.label[start:stop], weight, raters=raters, **options
        )

    @property
    def whole(self):
        return self.part(0, self.label.size)

    def assert_literal(self, got, atol):
        if not got.n_objects:
            return
        want = literal.rater_estimates(self.lists, self.ids, self.label.tolist(), self.weight)
        off = ~np.eye(len(self.lists), dtype=bool)
        external = got.raters.different.covariance(pairwise=True)
        told = ~np.isnan(want.external)
        np.testing.assert_array_equal(got.raters.apart[off], told[off])
        np.testing.assert_allclose(external[told], want.external[told], rtol=0, atol=atol)
        noise = got.raters.noise_covariance(np.zeros(len(self.lists)))
        expected = np.nan_to_num(want.noise_covariance, nan=0.0)
        np.testing.assert_allclose(noise, np.where(off, expected, 0.0), rtol=0, atol=2 * atol)


@st.composite
def cases(draw, offset=0.0):
    d = draw(st.integers(2, 3))
    n = draw(st.integers(1, 7))
    number = st.floats(-100, 100, allow_subnormal=False).map(lambda x: round(x, 6) + offset)
    alike = draw(st.booleans())  # the same raters for all attributes, or any
    ids = [[] for _ in range(d)]
    for _ in range(n):
        raters = draw(st.lists(st.integers(0, 4), max_size=4, unique=True))
        for own in ids:
            some = st.lists(st.sampled_from([*range(4), None]), max_size=4)
            chosen = draw(st.sampled_from([raters, []])) if alike else draw(some)
            own.append(list(chosen))
    lists = [[[draw(number) for _ in row] for row in own] for own in ids]
    label = np.array(draw(st.lists(st.floats(-9, 9), min_size=n, max_size=n)))
    weight = draw(
        st.none() | st.lists(st.sampled_from([0.0, 0.3, 1.0, 7.5]), min_size=n, max_size=n)
    )
    return Case(lists, ids, label, None if weight is None else np.array(weight))


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_products_are_those_of_the_literal_form_merged_any_way(case, data):
    n = case.label.size
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=3))), n]
    parts = [case.part(a, b) for a, b in itertools.pairwise(edges)]
    for merged in (case.whole, merge_tree(parts), merge_tree(parts[::-1])):
        case.assert_literal(merged, 1e-7)
        assert merged.raters.counts.tolist() == case.whole.raters.counts.tolist()
    content = encode(parts[0])
    nothing = JudgmentStatistics.empty(len(case.lists))
    for same in (parts[0].merge(nothing), nothing.merge(parts[0]), decode(content)):
        assert encode(same) == content


def made(seed, *, ragged):
    d = 4
    n = 40
    k = 3
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(d, n)) + rng.normal(size=n)
    errors = rng.normal(size=(d, n, k)) + rng.normal(size=(n, k))
    held = rng.random((d, n, k)) < (0.7 if ragged else 2.0)
    shown = [[[r for r in range(k) if held[a, i, r]] for i in range(n)] for a in range(d)]
    lists = [
        [[truth[a, i] + errors[a, i, r] for r in shown[a][i]] for i in range(n)] for a in range(d)
    ]
    label = truth.sum(axis=0) + rng.normal(size=n)
    return Case(lists, shown, label, rng.uniform(0.2, 2.0, n) if ragged else None)


def test_what_is_counted():
    ids = [[[1, 1], [7], [None, 2]], [[1, 2], [7], [None]]]
    lists = [[[1.0, 2.0], [3.0], [4.0, 5.0]], [[1.0, 4.0], [2.0], [9.0]]]
    case = Case(lists, ids, np.arange(3.0), None)
    assert case.whole.raters.counts.tolist() == [2, 1, 1]
    case.assert_literal(case.whole, 1e-12)


def test_some_attributes_with_all_are_rows_of_the_whole():
    for ragged in (False, True):
        case = made(3, ragged=ragged)
        whole = case.whole.estimates()
        halves = [case.part(s, t, attributes=slice(1, 3)) for s, t in ((0, 25), (25, 40))]
        some = halves[0].merge(halves[1]).estimates()
        np.testing.assert_allclose(some.external, whole.external[1:3], atol=1e-12)
        np.testing.assert_allclose(some.noise_covariance, whole.noise_covariance[1:3], atol=1e-12)


def test_scaled_take():
    case = made(4, ragged=True)
    first = case.part(0, 25)
    want = first.estimates()
    got = first.scaled(0.25).estimates()
    np.testing.assert_allclose(got.external, want.external, atol=1e-10)
    np.testing.assert_allclose(got.noise_covariance, want.noise_covariance, atol=1e-10)
    taken = first.take([2, 0]).estimates()
    np.testing.assert_array_equal(taken.external, want.external[np.ix_([2, 0], [2, 0])])


# --- who is far from the others -------------------------------------------------------------------


@settings(deadline=None)
@given(cases(), st.data())
def test_disagreement_is_that_of_loops_and_merges(case, data):
    n = case.label.size
    names = [*"cabde"]

    def part(start, stop):
        rows = [ragged_of(attribute).rows(start, stop) for attribute in case.lists]
        raters = [held.rows(start, stop) for held in codes(case.ids)]
        return Disagreement.from_block(rows, raters, names)

    v = [literal.mean_variance(attribute) for attribute in case.lists]
    want = literal.disagreement(case.lists, case.ids, v)
    want = {name: want[r] for name, r in sorted(zip(names, range(5), strict=True)) if r in want}
    cut = data.draw(st.integers(0, n))
    for got in (part(0, n), decode(encode(part(0, cut).merge(part(cut, n))))):
        known = dict(zip(got.names.tolist(), range(got.names.size), strict=True))
        assert set(want) <= set(known)
        messages = [known[name] for name in want]
        for ratio, (_, own, others) in zip(got.ratios()[messages], want.values(), strict=True):
            if others > own / 900:
                assert ratio == pytest.approx(own / others, rel=1e-7, abs=1e-9)


def far_from_others(noise, n, k=3):
    """Raters with such standard deviations, k of whom judge each of n objects, who stand out."""
    rng = np.random.default_rng(0)
    who = rng.permuted(np.tile(np.arange(noise.size), (n, 1)), axis=1)[:, :k]
    scale = rng.choice([0.5, 1.5], size=(n, 1))  # some objects are harder to judge, for all
    values = rng.normal(size=(n, 1)) + scale * noise[who] * rng.normal(size=(n, k))
    offsets = np.arange(0, n * k + 1, k)
    own = [Ragged(values.ravel(), offsets)], [Ragged(who.ravel(), offsets)]
    return Disagreement.from_block(*own, [*"abcdefghijklmnopqrst"]).outlying()


def test_raters_stand_out_by_enough_judgments_that_are_far_from_the_others():
    is_noisy = np.arange(20) < 3
    found = far_from_others(np.where(is_noisy, 3.0, 1.0), 4000)
    assert sorted(name for name, _, _ in found) == ["a", "b", "c"]
    times = [own for _, _, own in found]
    assert times == sorted(times, reverse=True)
    assert not far_from_others(np.where(is_noisy, 3.0, 1.0), 8)  # each judged one or two objects
    assert not far_from_others(np.where(is_noisy, 1.2, 1.0), 4000)
    assert not far_from_others(np.ones(20), 400)
    assert not Disagreement.empty(2).outlying()
    squares = np.full((3, 1), 9.0)
    spreads = np.array([[9.0], [9.0], [0.0]])
    of_all = np.array([9.0]), np.array([9.0])
    by_rater = np.full(3, 99), squares, spreads, np.zeros((3, 1))
    ((name, _, times),) = Disagreement(np.array([*"abc"]), *by_rater, *of_all).outlying()
    assert (name, times) == ("c", pytest.approx(1000.0))
