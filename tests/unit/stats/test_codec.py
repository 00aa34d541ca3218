"""Values that are kept come back as they were; what is no value is refused."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from distfms.stats import codec
from distfms.stats.codec import CodecError, decode, encode, load, settled


@dataclass(frozen=True, eq=False)
class Record:
    number: float
    parts: tuple[Any, ...] = ()


class Pair(NamedTuple):
    first: Any
    second: Any


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ARRAYS = of_numpy.arrays(
    st.sampled_from([np.float64, np.int64, np.uint8, np.bool_, "U3"]),
    of_numpy.array_shapes(min_dims=0, min_side=0, max_side=3),
)
VALUES = st.recursive(
    SCALARS | ARRAYS,
    lambda own: (
        st.lists(own, max_size=3)
        | st.lists(own, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text()), own, max_size=3)
        | st.builds(Pair, own, own)
        | st.builds(Record, st.floats(), st.tuples(own))
    ),
    max_leaves=6,
)


@given(VALUES)
def test_every_way_back_gives_the_same(value):
    payload = encode(value)
    for found in (decode(payload), load(io.BytesIO(payload)), settled(value)):
        assert type(found) is type(value)
        assert encode(found) == payload


def test_settled_values_are_as_they_are_read():
    rows = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    found = settled({"rows": rows, "number": np.float64(2.5), "flag": np.bool_(True)})
    assert found["rows"].flags.c_contiguous
    assert (type(found["number"]), type(found["flag"])) == (float, bool)
    kept = np.arange(3.0)
    assert settled([kept])[0] is kept  # what is in order already is not copied


@pytest.mark.parametrize(
    "value", [object(), len, Record, {1, 2}, b"bytes", np.array([None]), 1j, range(3)]
)
def test_what_is_no_value_is_refused(value):
    with pytest.raises(TypeError, match="cannot be kept"):
        encode({"x": [value]})


def changed(name, by):
    """Return what puts a name of the same length in place of another."""
    return lambda payload: payload.replace(name.encode(), by.encode())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda payload: payload[:-1], "JSONDecodeError|ValueError|too early|buffer"),
        (lambda payload: payload[:40], "."),
        (lambda payload: b"PK" + payload, "not a value of this form"),
        (changed("test_codec:Record", "test_codec:Rekord"), "Rekord"),
        (changed('"parts"', '"party"'), "TypeError.*party"),
    ],
)
def test_what_does_not_hold_is_said(damage, message):
    payload = encode(Record(1.0, (np.arange(64.0),)))
    for read in (decode, lambda own: load(io.BytesIO(own))):
        with pytest.raises(CodecError, match=message):
            read(damage(payload))


def test_nothing_is_imported_that_was_not_there():
    payload = encode(Record(1.0)).replace(b"tests.unit.stats.test_codec:Record", b"x" * 32 + b":R")
    with pytest.raises(CodecError, match="not a class of this package"):
        decode(payload)
    with pytest.raises(CodecError, match="no record"):
        codec._class_named("distfms.stats.codec:encode")
