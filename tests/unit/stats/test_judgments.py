import numpy as np
import pytest

from distfms.errors import DataError
from distfms.stats.base import merge_tree
from distfms.stats.codec import decode, encode
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.statistics import ragged_of


def draw(seed, n, d=3, offset=0.0):
    """Random judgment lists of 0 to 4 values, labels and weights (some 0)."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(offset, 1.0, (d, n))
    counts = rng.integers(0, 5, (d, n))
    lists = [
        [list(truth[a, i] + rng.normal(0, 0.5, counts[a, i])) for i in range(n)] for a in range(d)
    ]
    return lists, truth.sum(axis=0) + rng.normal(0, 0.1, n), rng.integers(0, 4, n).astype(float)


def ragged(lists):
    return [ragged_of(rows) for rows in lists]


def test_attribute_without_repeats_is_named():
    lists = [[[1.0, 2.0], [2.0, 4.0]], [[1.0], [3.0]], [[2.0], []]]
    got = JudgmentStatistics.from_block(ragged(lists), np.arange(2.0))
    with pytest.raises(DataError, match=r"Attributes smiling, eyes: no object has two"):
        got.estimates(names=["age", "smiling", "eyes"])
    with pytest.raises(DataError, match=r"Attribute number 2: no object has two"):
        got.estimates(np.array([np.nan, 0.5, np.nan]))
    given = got.estimates(np.array([np.nan, 0.5, 0.25]))
    np.testing.assert_allclose(given.v, [1.25, 0.5, 0.25])
    np.testing.assert_allclose(given.noise, [0.625, 0.5, 0.25])
    np.testing.assert_allclose(given.external[1, 1], 1.0 - 0.5)
    assert given.sigma[2] == 0.0


def test_other_bad_input():
    one = ragged([[[1.0, 2.0], [3.0, 4.0]]])
    never = JudgmentStatistics.from_block(ragged([[[], []]]), np.arange(2.0))
    with pytest.raises(DataError, match="Attribute age: no object has a judgment"):
        never.estimates(np.array([1.0]), names=["age"])
    with pytest.raises(DataError, match="no object"):
        JudgmentStatistics.empty(1).estimates()
    with pytest.raises(DataError, match="label of object 1 is nan"):
        JudgmentStatistics.from_block(one, np.array([1.0, np.nan]))
    with pytest.raises(DataError, match="judgments of 2 objects, but there are 3"):
        JudgmentStatistics.from_block(one, np.arange(3.0))
    with pytest.raises(DataError, match="not a finite number"):
        JudgmentStatistics.from_block(ragged([[[np.nan], [1.0]]]), np.arange(2.0))


@pytest.mark.parametrize("attributes", [slice(0, 2), slice(2, 3), slice(3, 5), slice(0, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_some_attributes_have_the_estimates_of_all(attributes, weighted):
    def merged(own):
        data = [draw(seed, n=30, d=5, offset=1e3) for seed in range(5)]
        parts = [
            JudgmentStatistics.from_block(
                ragged(lists), label, weight if weighted else None, attributes=own
            )
            for lists, label, weight in data
        ]
        both = merge_tree(parts)
        return [both, both.scaled(0.5)]

    known = np.where(np.arange(5) == 3, 0.25, np.nan)
    for part, whole in zip(merged(attributes), merged(None), strict=True):
        assert (part.n_attributes, part.attributes) == (5, attributes)
        content = encode(part)
        assert encode(decode(content)) == content
        empty = JudgmentStatistics.empty(5, attributes)
        assert encode(empty.merge(part)) == content
        got = part.estimates(known[attributes])
        want = whole.estimates(known)
        for name in ("b", "v", "noise", "external_variance", "sigma", "means", "n_judgments",
                     "n_missing", "mean_judgments", "second_moment", "external"):  # fmt: skip
            expected = getattr(want, name)[attributes]
            np.testing.assert_allclose(getattr(got, name), expected, rtol=1e-9, atol=1e-9)
        assert got.label_variance == pytest.approx(want.label_variance, rel=1e-12)
        assert (got.label_mean, got.n_objects) == (want.label_mean, want.n_objects)
