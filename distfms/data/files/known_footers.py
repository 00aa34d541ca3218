"""What the footers of a dataset's files said, kept among the partial statistics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from distfms.data.files.footers import read_footers
from distfms.stats.codec import decode, encode
from distfms.store.kept import PartialCache
from distfms.store.places import File, Location

#: A dataset of fewer files is read as quickly without.
_FEW = 32
#: What is kept, and its form.
_KIND = "footers-2"


def known_footers(
    folder: Location | None, name: str, filesystem: Any, files: Sequence[File]
) -> list[tuple[File, pa.Schema]]:
    """Return the footers of files, in their order; read are those that are not known.

    They are kept below a folder under a name, and can be read again, so that failing is no error. A
    file is known by `File.state`.
    """
    if folder is None or len(files) < _FEW:
        return read_footers(filesystem, files)
    cache = PartialCache(folder, encode, decode, _KIND)
    packed, _ = cache.lookup(name)
    kept = _unpacked(packed)
    new_files = [file for file in files if _key(file) not in kept]
    for file, schema in read_footers(filesystem, new_files):
        kept[_key(file)] = (file.footer, schema, file.row_groups)
    footers = []
    for file in files:
        footer, schema, groups = kept[_key(file)]
        footers.append((replace(file, footer=footer, row_groups=groups), schema))
    if new_files:
        with suppress(OSError):
            cache.put(name, _packed(footers))
    return footers


def _key(file: File) -> tuple[Any, ...]:
    return (file.path, file.n_bytes, file.stamp, file.state)


def _packed(footers: Sequence[tuple[File, pa.Schema]]) -> dict[str, Any]:
    """Return footers as a value for the codec, with each schema once."""
    schemas: dict[int, tuple[int, pa.Schema]] = {}
    rows = []
    for file, schema in footers:
        if file.state:  # else nothing would tell another content
            number, _ = schemas.setdefault(id(schema), (len(schemas), schema))
            rows.append((_key(file), file.footer, number, file.row_groups))
    each = [schema.serialize().to_pybytes().hex() for _, schema in schemas.values()]
    return {"schemas": each, "files": rows}


def _unpacked(packed: dict[str, Any] | None) -> dict[tuple[Any, ...], Any]:
    if packed is None:
        return {}
    schemas = [ipc.read_schema(pa.py_buffer(bytes.fromhex(text))) for text in packed["schemas"]]
    return {key: (footer, schemas[n], groups) for key, footer, n, groups in packed["files"]}
