"""Merge laws and estimates of judgment statistics, for any numbers of judgments."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distfms.stats.base import merge_tree
from distfms.stats.codec import decode, encode
from distfms.stats.judgments import JudgmentStatistics
from tests.reference import statistics as literal
from tests.reference.statistics import arrays_of, ragged_of

SETTINGS = settings(max_examples=50, deadline=None)
#: Values and labels lie within ±100 and there are at most 8 objects of weight at most 7.5: sums of
#: squares stay below 8·7.5·200² ≈ 2.4e6, and some 100 roundings of that are below 1e-7.
ATOL = 1e-7


@dataclass(frozen=True)
class Case:
    lists: list[list[list[float]]]
    label: np.ndarray
    weight: np.ndarray | None

    def part(self, start, stop):
        rows = [ragged_of(attribute).rows(start, stop) for attribute in self.lists]
        weight = None if self.weight is None else self.weight[start:stop]
        return JudgmentStatistics.from_block(rows, self.label[start:stop], weight)


@st.composite
def cases(draw):
    d = draw(st.integers(1, 3))
    n = draw(st.integers(0, 8))
    number = st.floats(-100, 100, allow_subnormal=False)
    equal = draw(st.none() | st.integers(1, 3))  # the same k everywhere, or any
    low, high = (0, 4) if equal is None else (equal, equal)
    lists = draw(
        st.lists(
            st.lists(st.lists(number, min_size=low, max_size=high), min_size=n, max_size=n),
            min_size=d,
            max_size=d,
        )
    )
    label = np.array(draw(st.lists(number, min_size=n, max_size=n)))
    weights = st.lists(st.sampled_from([0.0, 0.3, 1.0, 7.5]), min_size=n, max_size=n)
    weight = draw(st.none() | weights)
    return Case(lists, label, None if weight is None else np.array(weight))


def assert_equal(a, b):
    first = arrays_of(a)
    second = arrays_of(b)
    shared = first.keys() & second.keys()  # gaps may be written out or not
    for name in shared:
        integer = first[name].dtype.kind == "i"
        tolerance = 0.0 if integer else ATOL
        np.testing.assert_allclose(first[name], second[name], rtol=0, atol=tolerance, err_msg=name)


@SETTINGS
@given(cases(), st.data())
def test_any_partitioning_equals_one_block(case, data):
    n = case.label.size
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))
    edges = [0, *cuts, n]
    parts = [case.part(a, b) for a, b in itertools.pairwise(edges)]
    before = [encode(part) for part in parts]
    assert_equal(merge_tree(parts), case.part(0, n))
    assert_equal(merge_tree(parts[::-1]), case.part(0, n))
    assert [encode(part) for part in parts] == before


@SETTINGS
@given(cases())
def test_identity_and_round_trip_to_the_bit(case):
    value = case.part(0, case.label.size)
    content = encode(value)
    empty = JudgmentStatistics.empty(value.n_attributes)
    assert encode(case.part(0, 0)) == encode(empty)
    for same in (value.merge(empty), empty.merge(value), decode(content)):
        assert encode(same) == content


@SETTINGS
@given(cases(), st.booleans())
def test_estimates_are_those_of_the_literal_form(case, all_given):
    value = case.part(0, case.label.size)
    assume(value.n_objects > 0 and (value.n_judged > 0).all())
    given_v = np.where((value.n_repeated > 0) & (not all_given), np.nan, 2.5)
    got = value.estimates(given_v)
    want = literal.judgment_estimates(case.lists, case.label.tolist(), case.weight, given_v)
    for name in ("b", "v", "second_moment", "noise", "external", "means"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(want, name), rtol=0, atol=ATOL, err_msg=name
        )
    assert (got.v >= 0).all()
    assert (got.noise >= 0).all()
