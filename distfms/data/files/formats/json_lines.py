"""JSON lines: one object a line, whose keys name the columns; a missing key is a missing value."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from distfms.data.files.formats.base import Format, FormatError, MisfitError

#: Bytes of a file that are parsed at once, and the most that a line may have.
_BLOCK_BYTES = 2**24
_LINE_BYTES = 2**28
_SHOWN = 40


def _schema(stream: Any) -> pa.Schema:
    """Return the types by all lines: any of them may be the first to have a key."""
    types: dict[str, pa.DataType] = {}
    large = dict[str, bool]()
    for first, block in _blocks(stream):
        if first == 1 and block.lstrip().startswith(b"["):
            raise FormatError(f"holds a JSON array: {_ADVICE}")
        known_types = dict(types)
        table = _parsed(block, first, known_types)
        for column in table.schema:
            if column.type in (pa.int64(), pa.float64()):
                is_large = _is_large(block, column.name, table.column(column.name))
                if is_large is not None:
                    large[column.name] = is_large and large.get(column.name, True)
            common = _common(known_types.get(column.name, pa.null()), column.type)
            if common is None:
                raise _fault(block, first, known_types, f"{column.name!r} holds {column.type}")
            types[column.name] = common
    for name, is_large in large.items():
        if is_large and types[name] == pa.float64():
            types[name] = pa.uint64()
    return pa.schema(list(types.items()))


def _is_large(block: bytes, name: str, values: pa.ChunkedArray) -> bool | None:
    """Return whether numbers are whole and fit 64 bits without a sign; None for small ones.

    As floats, ids beyond 2^63 could not be told apart.
    """
    if values.type == pa.int64():
        return None if pc.min(values).as_py() >= 0 else False
    low, high = pc.min_max(values).as_py().values()
    if not 0 <= low <= high < 2.0**64:
        return False
    try:
        pj.read_json(
            pa.BufferReader(block),
            pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pj.ParseOptions(
                explicit_schema=pa.schema([(name, pa.uint64())]), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return False
    return True


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type of a column with values of two types; None if it cannot have both."""
    numbers = (pa.int64(), pa.float64())
    texts = (pa.timestamp("s"), pa.string())
    for kinds in (numbers, texts, (pa.bool_(),)):
        chain = (pa.null(), *kinds)
        if first in chain and second in chain:
            return chain[max(chain.index(first), chain.index(second))]
    return None


def _batches(stream: Any, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    selected = pa.schema([schema.field(name) for name in columns])
    types = dict(zip(selected.names, selected.types, strict=True))
    for first, block in _blocks(stream):
        yield from _parsed(block, first, types, selected).to_batches()


def _blocks(stream: Any) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, and the number of the first of them."""
    first = 1
    unfinished = b""
    while piece := stream.read(_BLOCK_BYTES):
        block, newline, unfinished = (unfinished + piece).rpartition(b"\n")
        if len(unfinished) > _LINE_BYTES:
            raise FormatError(
                f"has more than {_LINE_BYTES // 2**20} MiB in one line: write one object a line."
            )
        if block.strip():
            yield first, block
        first += block.count(b"\n") + len(newline)
    if unfinished.strip():
        yield first, unfinished


def _parsed(
    block: bytes, first: int, types: Mapping[str, pa.DataType], schema: pa.Schema | None = None
) -> pa.Table:
    """Parse lines, of which the first has a number, into the columns of a schema or into all."""
    unexpected = "infer" if schema is None else "ignore"
    try:
        table = pj.read_json(
            pa.BufferReader(block),
            pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
        )
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _fault(block, first, types, str(error)) from error
    # The parser takes several objects in a line for rows, and one on several lines for a row.
    if table.num_rows != sum(1 for line in block.split(b"\n") if line.strip()):
        raise _fault(block, first, types, "an object is not on a line of its own")
    return table


def _fault(
    block: bytes, first: int, types: Mapping[str, pa.DataType], otherwise: str
) -> FormatError:
    """Return what is wrong with the first line that cannot be read, given types of columns."""
    typed = {name: kind for name, kind in types.items() if str(kind) != "null"}
    for number, line in enumerate(block.split(b"\n"), first):
        if not line.strip():
            continue
        line_name = f"line {number}"
        try:
            row = json.loads(line, object_pairs_hook=tuple, parse_constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            why = getattr(error, "msg", error)
            return FormatError(f"has no whole JSON object in {line_name} ({why}): {_ADVICE}")
        if not isinstance(row, tuple):
            shown = line.decode().strip()[:_SHOWN]
            return FormatError(f"has {shown} in {line_name}: {_ADVICE}")
        names = [name for name, _ in row]
        for name, value in row:
            if names.count(name) > 1:
                return FormatError(f"has the key {name!r} twice in {line_name}: leave one out.")
            if isinstance(value, tuple | list):
                kind = "a list" if isinstance(value, list) else "an object"
                return FormatError(
                    f"has {kind} in column {name!r}, {line_name}: a column holds numbers, text, or "
                    "true and false. Give each value a key of its own, or leave it out."
                )
            if value is not None and not _fits(value, typed.setdefault(name, _type_of(value))):
                return MisfitError(name, typed[name], line_name, json.dumps(value)[:_SHOWN])
    return FormatError(f"cannot be read as JSON lines, from line {first} on ({otherwise}).")


_ADVICE = 'write one object a line, such as {"x": 1.5, "y": 2}.'


def _type_of(value: Any) -> pa.DataType:
    kinds = {bool: pa.bool_(), str: pa.string()}
    return kinds.get(type(value), pa.float64())


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value can be in a column of a type."""
    if pt.is_timestamp(kind) and isinstance(value, str):
        try:
            pa.scalar(value).cast(kind)
        except pa.ArrowInvalid:
            return False
        return True
    if isinstance(value, bool | str):
        return kind == _type_of(value)
    is_number = pt.is_floating(kind) or pt.is_integer(kind)
    return is_number and abs(value) <= sys.float_info.max


FORMAT = Format("JSON lines", (".jsonl", ".ndjson"), _schema, _batches, sparse=True)
