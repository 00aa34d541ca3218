"""Judgments in long form, converted file by file, so that what did not change is not read again.

Each source file becomes a folder of its name. An object is in the first file that names it, with
its judgments from all files, which is converted again when one of these or the label changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import number_view
from distfms.data.convert import CONVERSION, Converter, Part
from distfms.data.long_source import whole
from distfms.data.storage import StoredFile
from distfms.engine.storage import Location, files_below, remove_tree, write_whole
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder with the objects that each file names.
_OBJECTS = "_objects"
_COUNTS = ("n_duplicates", "n_judgments", "n_objects", "n_unlabelled", "n_empty_cells")


def read_counts(folder: Location) -> dict[str, Any]:
    """Return what a conversion wrote of itself; nothing where there is none."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        return dict(json.loads((folder / CONVERSION).read_bytes()))
    return {}


def _converted(out: Location) -> set[str]:
    found = (entry.name.rpartition("/") for entry in files_below(out))
    return {folder for folder, _, file in found if file == CONVERSION and folder}


def is_converted(out: Location, state: str) -> bool:
    """Whether all files have been converted, for a state of the sources and options."""
    report = read_counts(out)
    return report.get("state") == state and report["n_files"] == len(_converted(out))


def convert_files(
    converter: Converter, out: Location, state: str, say: Callable[[str], None]
) -> None:
    """Bring a folder of converted files up to date; `state` is kept with the counts of all files.

    Raises
    ------
    DataError
        As :meth:`distfms.data.convert.Converter.write`; files that are done stay.
    """
    files = {file.name.replace("//", "/"): file for file in converter.long.files}
    found = [_objects_of(converter, file, out / _OBJECTS / name) for name, file in files.items()]
    attributes = tuple(sorted({a for _, facts in found for a in facts["attributes"]}))
    parts, n_spread = _divide(converter, [objects for objects, _ in found], attributes)
    todo = [
        (part, out / name)
        for name, part in zip(files, parts, strict=True)
        if read_counts(out / name).get("state") != part.state
    ]
    if todo:
        say(f"Converting long judgments to {out}: {len(todo)} of {len(files)} files")
    for part, place in todo:
        _write(converter, part, place)
    for name in _converted(out) - files.keys():
        remove_tree(out / name)
        (out / _OBJECTS / name).unlink(missing_ok=True)
    reports = [read_counts(out / name) for name in files]
    totals = {key: sum(report[key] for report in reports) for key in _COUNTS}
    if not totals["n_objects"]:
        raise DataError(f"none of the {totals['n_unlabelled']} objects has a label.")
    for key in ("n_rows", "n_without_value"):
        totals[key] = sum(facts[key] for _, facts in found)
    totals["n_spread"] = n_spread
    if converter.table is not None:
        totals["n_unjudged_labels"] = int(np.count_nonzero(~converter.table.used))
    content = {"state": state, "n_files": len(files), "label": converter.rule.name}
    write_whole(out / CONVERSION, json.dumps(content | totals, indent=1).encode())


def _objects_of(
    converter: Converter, file: StoredFile, place: Location
) -> tuple[pa.Array, dict[str, Any]]:
    """Return the objects that a file names, its attributes and counts; it is read where changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    version = [file.n_bytes, file.stamp, str(converter.long.object_type)]
    with suppress(FileNotFoundError, pa.ArrowInvalid):
        table = pa.ipc.open_file(place.read_bytes()).read_all()
        facts: dict[str, Any] = json.loads(table.schema.metadata[b"facts"])
        if facts["version"] == version:
            return whole(table.column("object")), facts
    objects, attributes = pa.array([], converter.long.object_type), set[str]()
    n_rows = n_judged = 0
    for rows in replace(converter.long, files=(file,)).batches(converter.run_rows):
        judged = rows.filter(pc.is_valid(rows.column("value")))
        objects = pc.unique(pa.concat_arrays([objects, whole(judged.column("object"))]))
        attributes.update(pc.unique(judged.column("attribute")).to_pylist())
        n_rows, n_judged = n_rows + rows.num_rows, n_judged + judged.num_rows
    facts = {"version": version, "attributes": sorted(attributes), "n_rows": n_rows}
    facts["n_without_value"] = n_rows - n_judged
    table = pa.table({"object": objects}).replace_schema_metadata({"facts": json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    write_whole(place, sink.getvalue().to_pybytes())
    return objects, facts


def _divide(
    converter: Converter, objects: Sequence[pa.Array], attributes: tuple[str, ...]
) -> tuple[list[Part], int]:
    """Give each object to the first file that names it; return how many several files name."""
    import pyarrow as pa

    files, n = converter.long.files, len(objects)
    coded = pa.chunked_array(objects).dictionary_encode()
    codes = np.concatenate([number_view(chunk.indices) for chunk in coded.chunks])
    if not codes.size:
        raise DataError("the source holds no judgments.")
    ends = np.cumsum([len(own) for own in objects])
    names = np.repeat(np.arange(n), [len(own) for own in objects])
    first = np.empty(codes.max() + 1, dtype=np.int64)
    first[codes[::-1]] = names[::-1]
    owner, related = first[codes], [{k} for k in range(n)]
    given: list[set[int]] = [{k} for k in range(n)]
    for k, other in {divmod(pair, n) for pair in np.unique(owner * n + names).tolist()}:
        given[k].add(other)
        related[k].add(other)
        related[other].add(k)
    parts = []
    for k, own in enumerate(objects):
        mine = own.filter(pa.array(owner[ends[k] - len(own) : ends[k]] == k))
        versions = [[files[j].name, files[j].n_bytes, files[j].stamp] for j in sorted(related[k])]
        text = json.dumps([versions, attributes, str(converter.long.object_type)])
        labels = b"" if converter.table is None else converter.table.look_up(mine).tobytes()
        state = hashlib.sha256(text.encode() + labels).hexdigest()
        own_files = tuple(files[j] for j in sorted(given[k]))
        parts.append(Part(own_files, mine, attributes, state))
    return parts, int(np.count_nonzero(np.bincount(codes) > 1))


def _write(converter: Converter, part: Part, place: Location) -> None:
    """Convert one file; to remote storage by way of this machine's disk, its counts last."""
    if isinstance(place, Path):
        converter.write(place, overwrite=True, part=part)
        return
    with TemporaryDirectory(prefix="distfms-data-") as scratch:
        made = Path(scratch) / "judgments"
        converter.write(made, part=part)
        remove_tree(place)
        for entry in sorted(files_below(made), key=lambda entry: entry.name == CONVERSION):
            (place / entry.name).put(made / entry.name)
