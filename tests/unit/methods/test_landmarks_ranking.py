"""Normalised gains of queries, and the ranker."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms import LandmarkRanker
from distfms.errors import DataError
from distfms.methods.frame.ranking import QueryCounts, RankingScores
from tests.reference import landmarks as literal


@st.composite
def queries(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=14))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    keys = np.array([q for q, _ in rows], dtype=np.uint64) * np.uint64(2**61)
    return keys, np.array([r for _, r in rows], dtype=float), cuts


@given(queries())
def test_gains_are_those_of_the_formula_however_rows_are_divided(rows):
    keys, relevance, cuts = rows
    parts = [
        QueryCounts.from_rows(*own)
        for own in zip(np.split(keys, cuts), np.split(relevance, cuts), strict=True)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    found = merged.gains()(keys, relevance)
    expected = np.empty(len(keys))
    for key in np.unique(keys):
        few = relevance[keys == key][:7]  # the formula tries all permutations
        if len(few) < (keys == key).sum():
            return
        expected[keys == key] = literal.eta(few)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("relevance", "message"),
    [([0.0, 1.5], r"whole number\); found 1.5"), ([-1.0, 2.0], "from 0"), ([0.0, 31.0], "to 30")],
)
def test_relevances_are_checked(relevance, message):
    keys = np.zeros(2, dtype=np.uint64)
    relevance = np.array(relevance)
    with pytest.raises(DataError, match=message):
        QueryCounts.from_rows(keys, relevance)
    if relevance[1] != 1.5:
        with pytest.raises(DataError, match=message):
            RankingScores.from_rows(keys, relevance, np.zeros((2, 1)))


def ranked_rows(n=400, n_queries=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    query = rng.integers(n_queries, size=n)
    score = np.exp(-((X - 0.5) ** 2).sum(axis=1)) + 0.05 * rng.normal(size=n)
    return X, np.digitize(score, [0.1, 0.25, 0.5]), query


def test_rankings_of_all_kinds_of_input(tmp_path):
    X, relevance, query = ranked_rows()
    model = LandmarkRanker(landmarks=30, folds=0).fit(X, relevance, query)
    expected = model.predict(X)
    other, truth, its_query = ranked_rows(seed=1)
    for k in (1, 5, None):
        ndcg = literal.mean_ndcg(model.predict(other), truth, its_query, k)
        assert model.score(other, truth, its_query, k) == pytest.approx(ndcg)
    frame = pd.DataFrame(X, columns=list("abc")).assign(grade=relevance, q=query)
    of_frame = LandmarkRanker(landmarks=30, folds=0).fit(frame, "grade", "q")
    np.testing.assert_allclose(of_frame.predict(frame), expected, rtol=1e-9)
    assert of_frame.feature_names_in_.tolist() == ["a", "b", "c"]
    path = str(tmp_path / "rows.parquet")
    frame.to_parquet(path)
    with pytest.raises(DataError, match="are not adjacent"):
        LandmarkRanker(landmarks=30, folds=0).fit(path, "grade", "q")
    frame = frame.sort_values("q", ignore_index=True)
    frame.to_parquet(path)
    of_file = LandmarkRanker(landmarks=30, folds=0).fit(path, "grade", "q")
    scores = [model.score(frame, "grade", "q") for model in (of_frame, of_file)]
    assert scores[0] == of_frame.score(path, "grade", "q") > 0.8
    assert scores[1] > 0.8
    chunks = da.from_array(frame[list("abc")].to_numpy(), chunks=(400, 3))
    lazy = LandmarkRanker(landmarks=30, folds=0).fit(chunks, frame["grade"], frame["q"])
    assert lazy.score(X, relevance, query) > 0.8
    with pytest.raises(DataError, match="399 rows"):
        LandmarkRanker().fit(X, relevance, query[1:])
