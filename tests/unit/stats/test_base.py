from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass

import numpy as np
import pytest

from distfms.stats.base import Folded, explained_by_fold, from_bytes, merge_tree, to_bytes


@dataclass(frozen=True)
class Shape:
    """Records how it was merged."""

    text: str

    def merge(self, other):
        return Shape(f"({self.text}{other.text})")


def leaves(text):
    return [Shape(letter) for letter in text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "a"),
        ("ab", "(ab)"),
        ("abc", "((ab)c)"),
        ("abcde", "(((ab)(cd))e)"),
        ("abcdefg", "(((ab)(cd))((ef)g))"),
    ],
)
def test_merge_tree_is_aligned_at_powers_of_two(text, expected):
    assert merge_tree(leaves(text)).text == expected


def test_folded_refuses_misuse():
    folded = Folded(tuple(leaves("abt")))
    single = Folded(tuple(leaves("at")))
    assert single.train().text == "a"  # without cross-validation
    for act in (
        lambda: single.train_without(0),
        lambda: folded.merge(single),
        lambda: merge_tree([]),
    ):
        with pytest.raises(ValueError, match=r"nothing to merge|shorter than"):
            act()


def test_npz_bytes_depend_on_content_alone(monkeypatch):
    a = np.arange(6.0).reshape(2, 3)
    b = np.arange(3)
    first = to_bytes({"a": a, "b": b})
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    assert to_bytes({"b": b, "a": np.asfortranarray(a)}) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_npz_without_pickle():
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        to_bytes({"x": np.array([{}], dtype=object)})
    np.savez(pickled := io.BytesIO(), x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        from_bytes(pickled.getvalue())


def test_a_share_of_folds_is_that_of_all_and_errs_as_it_does():
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    whole = rng.uniform(1.0, 5.0, 5)
    losses = np.stack([0.02 * whole, whole, 0.5 * whole + 0.01 * rng.normal(size=5)])
    shares = explained_by_fold(losses, whole, weights)
    np.testing.assert_allclose(shares @ weights / 8.0, 1.0 - losses @ weights / (whole @ weights))
    # Folds differ in how hard they are, not in how much of that the models explain.
    assert np.ptp(shares, axis=1).max() < 0.05
    assert np.isnan(explained_by_fold(losses, np.zeros(5), weights)).all()
