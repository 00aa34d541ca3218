from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from distfms.stats.base import Folded, from_bytes, merge_tree, to_bytes


@dataclass(frozen=True)
class Shape:
    """Records how it was merged."""

    text: str

    def merge(self, other: Shape) -> Shape:
        return Shape(f"({self.text}{other.text})")


def leaves(text: str) -> list[Shape]:
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
def test_merge_tree_is_aligned_at_powers_of_two(text: str, expected: str) -> None:
    assert merge_tree(leaves(text)).text == expected


@pytest.mark.parametrize("n", [1, 2, 3, 31, 32, 33, 100])
def test_merge_tree_takes_one_item_after_another(n: int) -> None:
    """At most one node of each size waits for the next item."""
    held, most = 0, 0

    def items() -> Iterator[int]:
        nonlocal held, most
        for _ in range(n):
            held += 1
            most = max(most, held)
            yield 1

    def add(a: int, b: int) -> int:
        nonlocal held
        held -= 1
        return a + b

    assert merge_tree(items(), add) == n
    assert most <= n.bit_length()


def test_folded_splits_train_and_test() -> None:
    folded = Folded(tuple(leaves("abct")))
    assert folded.n_folds == 3
    assert folded.test.text == "t"
    assert folded.train().text == "((ab)c)"
    assert folded.train_without(1).text == "(ac)"
    merged = folded.merge(Folded(tuple(leaves("ABCT"))))
    assert [part.text for part in merged.parts] == ["(aA)", "(bB)", "(cC)", "(tT)"]


def test_folded_refuses_misuse() -> None:
    folded, single = Folded(tuple(leaves("abt"))), Folded(tuple(leaves("at")))
    assert single.train().text == "a"  # without cross-validation
    for act in (
        lambda: single.train_without(0),
        lambda: folded.merge(single),
        lambda: merge_tree([]),
    ):
        with pytest.raises(ValueError, match=r"nothing to merge|shorter than"):
            act()


def test_npz_round_trip_is_exact() -> None:
    arrays = {
        "a/b": np.array([[0.1, -0.0], [np.nan, np.inf]]),
        "scalar": np.float64(1 / 3),
        "count": np.int64(2**60),
        "none": np.zeros((0, 3)),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    back = from_bytes(to_bytes(arrays))
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert back[name].shape == np.shape(array)
        assert back[name].dtype == np.asarray(array).dtype
        assert back[name].tobytes() == np.asarray(array).tobytes()


def test_npz_bytes_depend_on_content_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3)
    first = to_bytes({"a": a, "b": b})
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    assert to_bytes({"b": b, "a": np.asfortranarray(a)}) == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_npz_without_pickle() -> None:
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        to_bytes({"x": np.array([{}], dtype=object)})
    np.savez(pickled := io.BytesIO(), x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        from_bytes(pickled.getvalue())
