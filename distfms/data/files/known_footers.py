"""What the footers of a dataset's files said, kept beside the partial statistics."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ArrowException, ipc

from distfms.data.files.footers import read_footers
from distfms.engine.cache import SUFFIX
from distfms.engine.storage import File, Limits, Location, write_whole

#: Files of which a dataset needs as many, or reading their footers takes no longer.
_FEW = 32
#: Packs of a dataset from which on they are written anew, as one.
_MANY = 8
#: Form of the packs.
_FORM = "1"

Footer = tuple[File, pa.Schema]


class KnownFooters:
    """Footers in packs below a folder, one for each run that met new files; None for no folder.

    A file is known by path, size, stamp and state.
    """

    def __init__(self, folder: Location | None) -> None:
        self._folder = folder
        self._packs: list[Location] = []
        self._all: list[Footer] = []
        self._new: list[Footer] = []

    def read(self, filesystem: Any, files: Sequence[File]) -> list[Footer]:
        """Return the footers of files, in their order; read are those that are not known."""
        if self._folder is None or len(files) < _FEW:
            return read_footers(filesystem, files)
        known = self._kept()
        found = {file.path: known.get(_key(file)) for file in files}
        self._new = read_footers(filesystem, [f for f in files if found[f.path] is None])
        of_new = {file.path: (file, schema) for file, schema in self._new}
        for file in files:
            read, schema = found[file.path] or of_new[file.path]
            groups, footer, limits = read.row_groups, read.footer, read.limits
            whole = replace(file, row_groups=groups, footer=footer, limits=limits)
            self._all.append((whole, schema))
        return self._all

    def keep(self) -> None:
        """Write down what is new. They can be read again, so that failing is no error."""
        few = len(self._packs) < _MANY
        fresh = [(f, schema) for f, schema in (self._new if few else self._all) if f.state]
        if self._folder is None or not self._new or not fresh:
            return
        with suppress(OSError):
            content = _packed(fresh)
            name = hashlib.sha256(content).hexdigest()[:32] + SUFFIX
            write_whole(self._folder / name, content, durable=False)
            for place in () if few else self._packs:
                place.unlink(missing_ok=True)

    def _kept(self) -> dict[tuple[str, ...], Footer]:
        found: dict[tuple[str, ...], Footer] = {}
        assert self._folder is not None
        shared: dict[Any, Any] = {}
        with suppress(OSError):
            self._packs = [p for p in self._folder.iterdir() if p.name.endswith(SUFFIX)]
        for place in self._packs:
            # A pack that is damaged, or deleted meanwhile, holds nothing.
            with suppress(OSError, ArrowException, ValueError, KeyError, TypeError):
                found |= _unpacked(place.read_bytes(), place.name, shared)
                if isinstance(place, Path):
                    os.utime(place)  # what was used least recently is deleted first
        return found


def _key(file: File) -> tuple[str, ...]:
    return (file.path, str(file.n_bytes), file.stamp, file.state)


def _packed(footers: Sequence[Footer]) -> bytes:
    """Write footers as an Arrow file, with each schema and each tuple of names once."""
    schemas: dict[int, tuple[int, pa.Schema]] = {}
    names: dict[int, tuple[int, tuple[str, ...]]] = {}
    rows = []
    for file, schema in footers:
        own = file.limits
        rows.append(
            {
                "key": list(_key(file)),
                "footer": file.footer,
                "schema": schemas.setdefault(id(schema), (len(schemas), schema))[0],
                "groups": file.row_groups.ravel(),
                "names": -1
                if own is None
                else names.setdefault(id(own.names), (len(names), own.names))[0],
                "limits": None if own is None else own.values.ravel(),
                "whole": b"" if own is None else own.whole.tobytes(),
            }
        )
    table = pa.Table.from_pylist(rows, schema=_COLUMNS)
    about = {
        "form": _FORM,
        "schemas": json.dumps([s.serialize().to_pybytes().hex() for _, s in schemas.values()]),
        "names": json.dumps([own for _, own in names.values()]),
    }
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema.with_metadata(about)) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


_COLUMNS = pa.schema(
    {
        "key": pa.list_(pa.string()),
        "footer": pa.string(),
        "schema": pa.int32(),
        "groups": pa.list_(pa.int64()),
        "names": pa.int32(),
        "limits": pa.list_(pa.float64()),
        "whole": pa.binary(),
    }
)


def _unpacked(content: bytes, name: str, shared: dict[Any, Any]) -> dict[tuple[str, ...], Footer]:
    if hashlib.sha256(content).hexdigest()[:32] + SUFFIX != name:
        return {}
    table = ipc.open_file(content).read_all()
    about = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if about["form"] != _FORM:
        return {}
    schemas = [
        shared.setdefault(text, ipc.read_schema(pa.py_buffer(bytes.fromhex(text))))
        for text in json.loads(about["schemas"])
    ]
    tuples = [tuple(own) for own in json.loads(about["names"])]
    tuples = [shared.setdefault(own, own) for own in tuples]
    batch = table.combine_chunks().to_batches()[0]
    groups, limits = _slices(batch.column("groups")), _slices(batch.column("limits"))
    columns = [batch.column(n).to_pylist() for n in ("key", "footer", "schema", "names", "whole")]
    found = {}
    for at, (key, footer, schema, number, whole) in enumerate(zip(*columns, strict=True)):
        own = None
        if number >= 0:
            shape = (len(tuples[number]), -1, 2)
            flags = np.frombuffer(whole, dtype=bool)
            own = Limits(tuples[number], limits[at].reshape(shape), flags)
        file = File("", 0, 0.0, "", Path(), row_groups=groups[at].reshape(-1, 3), footer=footer)
        found[tuple(key)] = (replace(file, limits=own), schemas[schema])
    return found


def _slices(column: pa.ListArray) -> list[np.ndarray]:
    ends = column.offsets.to_numpy()
    return np.split(column.values.to_numpy(), ends[1:-1])
