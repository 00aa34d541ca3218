import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from distfms.data.files.partition import Partition
from distfms.data.rows.folds import assign_parts, hash_keys
from distfms.errors import DataError

MASK = 2**64 - 1
PARTITION = Partition(0, "/data/a", "a", (0,), 50, 0, 0, 0, "", "", key="a")


def mix(value):
    """splitmix64, written out."""
    z = (value + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def literal_text_hash(text):
    content = text.encode()
    value = 0
    for byte in content:
        value = (value * 0x100000001B3 + byte) & MASK
    return mix(value ^ mix(len(content)))


def literal_part(key_hash, n_folds, test, seed):
    value = mix(key_hash ^ mix((seed + 0x9E3779B97F4A7C15) & MASK))
    if (value >> 11) / 2**53 < test:
        return n_folds
    upper = mix((value + 0xE7037ED1A0B428DB) & MASK) >> 32
    return (upper * n_folds) >> 32


def test_splitmix64_is_the_published_one():
    # First output of splitmix64 seeded with 0, from the authors' reference code.
    assert hash_keys(np.array([0]))[0] == 0xE220A8397B1DCDAF


def test_texts_hash_as_defined():
    texts = ["", "a", "b", "ab", "ba", "é", "\0a", "a longer identifier 0123456789"]
    assert hash_keys(texts).tolist() == [literal_text_hash(text) for text in texts]


@pytest.mark.parametrize(("test", "seed"), [(0.3, 11), (0.0, 11), (0.3, 2**63)])
def test_parts_are_as_defined(test, seed):
    keys = np.arange(-20, 300)
    parts = assign_parts(keys, n_folds=5, test=test, seed=seed)
    expected = [literal_part(mix(int(k) & MASK), 5, test, seed) for k in keys]
    assert parts.tolist() == expected
    assert parts.dtype == np.uint8


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64", "float32"])
def test_whole_numbers_hash_alike_in_every_width(dtype):
    keys = np.array([0, 1, 5, 100])
    assert (hash_keys(keys.astype(dtype)) == hash_keys(keys)).all()
    assert (hash_keys(pa.array(keys.astype(dtype))) == hash_keys(keys)).all()


def test_texts_hash_alike_however_they_are_stored():
    texts = ["u", "vv", "u", ""]
    plain = hash_keys(texts)
    assert plain[0] == plain[2] != plain[1]
    stored = [
        np.array(texts),
        np.array(texts, dtype=object),
        pa.array(texts, pa.large_string()),
        pa.array(texts).dictionary_encode(),
        pa.array(["x", *texts])[1:],
        pa.chunked_array([texts[:1], texts[1:]]),
        pa.array([t.encode() for t in texts]),
    ]
    for keys in stored:
        assert (hash_keys(keys) == plain).all()


def test_dates_times_and_decimals_hash_by_value():
    day = datetime.date(2026, 1, 2)
    assert hash_keys(pa.array([day]))[0] == mix((day - datetime.date(1970, 1, 1)).days)
    times = pa.array([datetime.datetime(2026, 1, 2), datetime.datetime(2026, 1, 3)])
    assert len(set(hash_keys(times).tolist())) == 2
    decimals = pa.array([1, 2, 1]).cast(pa.decimal128(22, 2))
    values = hash_keys(decimals)
    assert values[0] == values[2] != values[1]
    assert len(set(hash_keys(pa.array([True, False])).tolist())) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (pa.array([1, None]), "missing values"),
        (np.array([1.0, np.nan]), "missing values"),
        (["a", None], "missing values"),
        (pa.array([[1], [2]]), r"list<.*cannot be hashed"),
    ],
)
def test_keys_that_cannot_be_hashed(keys, message):
    with pytest.raises(DataError, match=message):
        hash_keys(keys)
    assert hash_keys(pa.chunked_array([], pa.string())).shape == (0,)


def test_without_keys_the_file_and_its_row_number_decide():
    def parts(partition):
        return assign_parts(None, partition=partition, n_folds=4, test=0.2, seed=0)

    whole = parts(PARTITION)
    # Neither the place of the file in the dataset nor the cut into partitions matters.
    assert (parts(replace(PARTITION, index=3, row_offset=900)) == whole).all()
    tail = replace(PARTITION, n_rows=20, file_row_offset=30)
    assert (parts(tail) == whole[30:]).all()
    assert (parts(replace(PARTITION, key="b")) != whole).any()
