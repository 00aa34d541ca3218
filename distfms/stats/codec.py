"""One binary form for what the package keeps: values of steps, partial statistics.

A value is made of None, booleans, numbers, text, numpy arrays without objects, lists, tuples,
mappings and frozen dataclasses of this package. Its form is a head of JSON, the tree of the value
with the types and shapes of its arrays, and then array after array, aligned. Nothing in it is
executed: a record is looked up by name, in this package or in what is already imported (a method of
another package), and made of its fields.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO, cast

import numpy as np

#: Begins every value; its number rises with the form.
MAGIC = b"distfms-value-1\n"
_ALIGNED = 64
#: Bytes of an array that is copied in less time than it is wrapped.
_SMALL = 2**14
_TO_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class CodecError(ValueError):
    """Bytes that are not a value, or of a class that no longer is as it was."""


def encode(value: Any) -> bytes:
    """Return the bytes of a value: the same for the same value.

    Raises
    ------
    TypeError
        If it holds what a value cannot be made of.
    """
    return b"".join(chunks(value))


def chunks(value: Any) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a value piece by piece, so that its arrays are not copied."""
    arrays: list[np.ndarray] = []
    tree = _taken_apart(value, arrays)
    described = [[array.dtype.str, array.shape] for array in arrays]
    head = _TO_JSON([tree, described]).encode()
    start = MAGIC + len(head).to_bytes(8, "little") + head
    yield start + bytes(-len(start) % _ALIGNED)
    for array in arrays:
        if array.nbytes < _SMALL:
            yield array.tobytes().ljust(-(-array.nbytes // _ALIGNED) * _ALIGNED, b"\0")
            continue
        yield memoryview(cast(Any, np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
        yield bytes(-array.nbytes % _ALIGNED)


def decode(payload: bytes) -> Any:
    """Return the value; inverse of `encode`.

    Its arrays share the memory of the payload and cannot be written.

    Raises
    ------
    CodecError
    """
    place = _Payload(payload)
    return _put_together(place.take, place.array)


def load(stream: BinaryIO) -> Any:
    """Read a value from a file; its arrays are read one by one, into memory of their own."""

    def array(dtype: np.dtype[Any], shape: list[int]) -> np.ndarray:
        found = np.empty(shape, dtype)
        n_bytes = stream.readinto(cast(Any, found.reshape(-1).view(np.uint8)))  # type: ignore[attr-defined]
        if n_bytes != found.nbytes:
            raise CodecError("it ends too early")
        stream.read(-found.nbytes % _ALIGNED)
        return found

    return _put_together(stream.read, array)


def settled(value: Any) -> Any:
    """Return a value as `decode` would give it back, without its bytes.

    Arrays are in C order, numbers those of Python, mappings dictionaries.
    """
    arrays: list[np.ndarray] = []
    tree = _taken_apart(value, arrays)
    return _joined(tree, [np.asarray(array, order="C") for array in arrays])


# --- apart and together ---------------------------------------------------------------------------


def _taken_apart(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return the tree of a value, whose arrays are numbered in the order in which it has them."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"an array of {value.dtype} cannot be kept")
        arrays.append(value)
        return {"a": len(arrays) - 1}
    if isinstance(value, np.generic):
        return _taken_apart(value.item(), arrays)
    if isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        return {"m": [[_taken_apart(part, arrays) for part in pair] for pair in value.items()]}
    if isinstance(value, list):
        return [_taken_apart(part, arrays) for part in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"t": [_taken_apart(part, arrays) for part in value]}
    kind: Any = type(value)
    own = {name: _taken_apart(getattr(value, name), arrays) for name in _field_names(kind)}
    return {"c": f"{kind.__module__}:{kind.__qualname__}", "f": own}


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    if issubclass(kind, tuple):
        return tuple(cast(Any, kind)._fields)
    if not is_dataclass(kind):
        raise TypeError(f"a {kind.__name__} cannot be kept")
    return tuple(field.name for field in fields(kind) if field.init)


def _joined(tree: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_joined(part, arrays) for part in tree]
    if not isinstance(tree, dict):
        return tree
    if "a" in tree:
        return arrays[tree["a"]]
    if "t" in tree:
        return tuple(_joined(part, arrays) for part in tree["t"])
    if "m" in tree:
        return {_joined(key, arrays): _joined(part, arrays) for key, part in tree["m"]}
    own = {name: _joined(part, arrays) for name, part in tree["f"].items()}
    return _class_named(tree["c"])(**own)


@cache
def _class_named(name: str) -> Any:
    module, _, qualified = name.partition(":")
    if not (module.startswith("distfms.") or module in sys.modules):
        raise CodecError(f"it holds {name}, which is not a class of this package")
    found: Any = import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    if not (isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple))):
        raise CodecError(f"{name} is no record")
    return found


def _put_together(
    take: Callable[[int], bytes], array: Callable[[np.dtype[Any], list[int]], np.ndarray]
) -> Any:
    try:
        if take(len(MAGIC)) != MAGIC:
            raise CodecError("it is not a value of this form")
        n_bytes = int.from_bytes(take(8), "little")
        tree, described = json.loads(take(n_bytes))
        take(-(len(MAGIC) + 8 + n_bytes) % _ALIGNED)
        return _joined(tree, [array(np.dtype(kind), shape) for kind, shape in described])
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, LookupError, AttributeError, ImportError) as error:
        raise CodecError(f"{type(error).__name__}: {error}") from error


class _Payload:
    """Bytes that are taken from the front."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._start = payload, 0

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes."""
        self._start += n_bytes
        return self._payload[self._start - n_bytes : self._start]

    def array(self, dtype: np.dtype[Any], shape: list[int]) -> np.ndarray:
        """Return the next array."""
        count = math.prod(shape)
        found = np.frombuffer(self._payload, dtype, count, self._start).reshape(shape)
        self._start += found.nbytes
        self._start += -found.nbytes % _ALIGNED
        return found
