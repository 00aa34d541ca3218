"""Normalised discounted cumulative gain, and its merge over pieces of rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from distfms.methods.frame.ranking import RankingScores, ndcg
from distfms.stats.codec import decode, encode


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=12),
    st.integers(1, 7),
)
@settings(max_examples=60, deadline=None)
def test_ndcg_is_that_of_sklearn_with_ties_shared(documents, cutoff):
    relevance = np.array([r for r, _ in documents], float)
    scores = np.array([s for _, s in documents], float)
    value = ndcg(scores[:, None], relevance, [cutoff, 3])
    if relevance.max() == 0:
        assert value is None
        return
    expected = ndcg_score([2**relevance - 1], [scores], k=cutoff)
    assert value[0, 0] == pytest.approx(expected, rel=1e-12)
    at_three = ndcg_score([2**relevance - 1], [scores], k=3)
    assert value[1, 0] == pytest.approx(at_three, rel=1e-12)


@st.composite
def ranked_rows(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    n = sum(sizes)
    keys = np.repeat(np.arange(len(sizes), dtype=np.uint64) * np.uint64(7), sizes)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=6)))
    return keys, rng.integers(0, 3, n).astype(float), rng.normal(size=(n, 2)), [0, *cuts, n]


def summarise(keys, relevance, scores, bounds):
    return [
        RankingScores.from_rows(keys[a:b], relevance[a:b], scores[a:b])
        for a, b in itertools.pairwise(bounds)
    ]


@given(ranked_rows())
@settings(max_examples=80, deadline=None)
def test_queries_may_straddle_blocks(rows):
    keys, relevance, scores, bounds = rows
    values = [ndcg(scores[keys == k], relevance[keys == k]) for k in np.unique(keys)]
    known = [v for v in values if v is not None]
    expected = np.mean(known, axis=0) if known else np.full((1, 2), np.nan)
    parts = summarise(keys, relevance, scores, bounds)
    forward = parts[0]
    for part in parts[1:]:
        forward = forward.merge(part)
    backward = parts[-1]
    for part in parts[-2::-1]:
        backward = part.merge(backward)
    for merged in (forward, backward, decode(encode(forward))):
        np.testing.assert_allclose(merged.mean, expected, rtol=1e-12)
        assert len(merged.keys) == len(merged.relevance) == len(merged.scores)
    everything = [*forward.closed.tolist(), *np.unique(forward.keys).tolist()]
    assert sorted(everything) == np.unique(keys).tolist()
