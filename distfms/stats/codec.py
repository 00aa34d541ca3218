"""One binary form for what the package keeps: values of steps, partial statistics.

A value is made of None, booleans, numbers, text, numpy arrays without objects, lists, tuples,
mappings and frozen dataclasses of this package. Its form is a head of JSON, the tree of the value
with the types and shapes of its arrays, and then array after array, aligned. Nothing in it is
executed: a record is looked up by name, in this package or in what is already imported (a method of
another package), and made of its fields.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO, cast

import numpy as np

#: Begins every value; its number rises with the form.
MAGIC = b"distfms-value-1\n"
_ALIGNED = 64
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
    tree = _tree_of(value, arrays)
    described = [[array.dtype.str, array.shape] for array in arrays]
    head = _TO_JSON([tree, described]).encode()
    n_bytes = len(head).to_bytes(8, "little")
    start = MAGIC + n_bytes + head
    yield start + bytes(_padding(len(start)))
    for array in arrays:
        yield memoryview(_bytes_of(np.ascontiguousarray(array)))
        yield bytes(_padding(array.nbytes))


def _padding(n_bytes: int) -> int:
    """Return how many bytes fill up to a multiple of _ALIGNED."""
    return -n_bytes % _ALIGNED


def _bytes_of(array: np.ndarray) -> Any:
    """View of the memory of an array in C order."""
    return array.reshape(-1).view(np.uint8)


def decode(payload: bytes) -> Any:
    """Return the value; inverse of `encode`.

    Raises
    ------
    CodecError
    """
    return load(io.BytesIO(payload))


def load(stream: BinaryIO) -> Any:
    """Read a value from a file; its arrays are read one by one."""
    try:
        if stream.read(len(MAGIC)) != MAGIC:
            raise CodecError("it is not a value of this form")
        n_bytes = int.from_bytes(stream.read(8), "little")
        tree, described = json.loads(stream.read(n_bytes))
        stream.read(_padding(len(MAGIC) + 8 + n_bytes))
        arrays = [_read_array(stream, np.dtype(kind), shape) for kind, shape in described]
        return _value_of(tree, arrays)
    except CodecError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ImportError) as error:
        raise CodecError(f"{type(error).__name__}: {error}") from error


def _read_array(stream: BinaryIO, dtype: np.dtype[Any], shape: list[int]) -> np.ndarray:
    array = np.empty(shape, dtype)
    n_bytes = stream.readinto(_bytes_of(array))  # type: ignore[attr-defined]
    if n_bytes != array.nbytes:
        raise CodecError("it ends too early")
    stream.read(_padding(n_bytes))
    return array


def settled(value: Any) -> Any:
    """Return a value as `decode` would give it back, without its bytes.

    Arrays are in C order, numbers those of Python, mappings dictionaries.
    """
    arrays: list[np.ndarray] = []
    tree = _tree_of(value, arrays)
    return _value_of(tree, [np.asarray(array, order="C") for array in arrays])


# --- trees ----------------------------------------------------------------------------------------


def _tree_of(value: Any, arrays: list[np.ndarray]) -> Any:
    """Return the tree of a value; its arrays are appended, and stand in it by their numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"an array of {value.dtype} cannot be kept")
        arrays.append(value)
        return {"a": len(arrays) - 1}

    def trees(parts: Iterable[Any]) -> list[Any]:
        return [_tree_of(part, arrays) for part in parts]

    if isinstance(value, Mapping):
        return {"m": [trees(pair) for pair in value.items()]}
    if isinstance(value, list):
        return trees(value)
    kind: Any = type(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"t": trees(value)}
    names = _field_names(kind)
    contents = trees(getattr(value, name) for name in names)
    qualified_name = f"{kind.__module__}:{kind.__qualname__}"
    return {"c": qualified_name, "f": dict(zip(names, contents, strict=True))}


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    if issubclass(kind, tuple):
        return tuple(cast(Any, kind)._fields)
    if not is_dataclass(kind):
        raise TypeError(f"a {kind.__name__} cannot be kept")
    return tuple(field.name for field in fields(kind) if field.init)


def _value_of(tree: Any, arrays: list[np.ndarray]) -> Any:
    """Inverse of `_tree_of`."""

    def values(trees: list[Any]) -> list[Any]:
        return [_value_of(part, arrays) for part in trees]

    if isinstance(tree, list):
        return values(tree)
    if not isinstance(tree, dict):
        return tree
    if "a" in tree:
        return arrays[tree["a"]]
    if "t" in tree:
        return tuple(values(tree["t"]))
    if "m" in tree:
        return dict(values(pair) for pair in tree["m"])
    contents = values(list(tree["f"].values()))
    return _class_named(tree["c"])(**dict(zip(tree["f"], contents, strict=True)))


@cache
def _class_named(name: str) -> Any:
    module, _, qualified_name = name.partition(":")
    if not (module.startswith("distfms.") or module in sys.modules):
        raise CodecError(f"it holds {name}, which is not a class of this package")
    kind: Any = import_module(module)
    for part in qualified_name.split("."):
        kind = getattr(kind, part)
    if not (isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, tuple))):
        raise CodecError(f"{name} is no record")
    return kind
