"""Judgments in long form (object, attribute, worker, value) to one row per object, file by file.

Each source file becomes a Parquet file of its name. An object is in the first file that names it,
with its judgments from all files; a file is converted again when one of these or a label changes.
Where its rows are more than memory holds, they are divided into ranges of objects by way of files
on disk. The result is in the order of the ids, whatever the bound.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distfms.data.files.formats.copies import Copies
from distfms.data.files.long_form import (
    Cells,
    Labels,
    LongSource,
    column_label,
    draw_judgments,
    drop_duplicates,
    list_columns,
    mean_label,
    whole,
)
from distfms.data.files.partition import digest
from distfms.data.files.write import GroupedFile, write_table
from distfms.data.rows.columns import number_view
from distfms.data.rows.folds import hash_keys
from distfms.data.rows.roles import OF_ONE
from distfms.engine.storage import File, Location, files_below, whole_file, write_whole
from distfms.errors import DataError, nearest
from distfms.spec import LongForm

MEMORY_BYTES = 2**30
#: Bytes a long row takes at the peak of the pivot, and more with a worker: measured, rounded up.
ROW_BYTES, WORKER_BYTES = 120, 120
_MOST_BATCH_ROWS = 2**20
#: Files that are open at once.
_MOST_RANGES = 256

#: Raised with every change of what the same judgments are converted to.
CONVERTER_VERSION = 4

#: File with the states and counts of a conversion, next to the converted files.
CONVERSION = "_conversion.json"
#: Folder with the objects that each file names.
_OBJECTS = "_objects"


def convert(
    files: Sequence[File],
    form: LongForm,
    out: Location,
    *,
    labels: Sequence[File] = (),
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    copies: Copies | None = None,
    labelled: bool = True,
) -> dict[str, Any]:
    """Bring a folder of converted files up to date.

    Parameters
    ----------
    files : sequence of File
        The first one's object column decides about its type (a CSV column of digits is read as
        integers).
    form : LongForm
    out : Path or RemotePath
    labels : sequence of File
        The table of labels, if the form names one.
    seed : int
        Draws judgments.
    memory_bytes : int
        Bounds what is held apart from ids and labels; does not change the result.
    copies : Copies, optional
        Where files that are not Parquet are kept as such; told what is converted.
    labelled : bool
        Whether to add labels, and leave out objects without one.

    Returns
    -------
    dict
        The name of the `label`, and counts: rows read (`n_rows`), and left out as their value is
        missing (`n_without_value`); objects written (`n_objects`), without a label
        (`n_unlabelled`), and of several files (`n_spread`); labels of objects that nobody judged
        (`n_unjudged_labels`); second judgments of a worker (`n_duplicates`).

    Raises
    ------
    DataError
        If a column or attribute is missing, an object or attribute is null, a value is not a finite
        number, an object has two labels, a worker judged twice, or no object has a label. Files
        that are done stay.
    """
    own = {f"{file.name.replace('//', '/')}.parquet": file for file in files}
    state = digest(*map(file_version, (*files, *labels)))
    there, before = {entry.name for entry in files_below(out)}, dict[str, Any]()
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        before = json.loads((out / CONVERSION).read_bytes())
    if before.get("state") == state and there.issuperset(own):
        return before
    copies = copies or Copies()
    rule = _LabelRule.of(form) if labelled else _LabelRule("")
    converter = _Converter.of(files, form, rule, labels, seed, memory_bytes, copies)
    known, facts = before.get("files", {}), dict[str, dict[str, Any]]()
    objects = []
    for name, file in own.items():
        ids, facts[name] = converter.scan(file, out / _OBJECTS / name, known.get(name, {}))
        objects.append(ids)
    names = {name for fact in facts.values() for name in fact["attributes"]}
    converter = replace(converter, attributes=tuple(sorted(names)))
    parts, n_spread = _divide(objects)
    todo = {}
    for name, (ids, numbers) in zip(own, parts, strict=True):
        n_rows = sum(facts[list(own)[k]]["scanned"]["n_rows"] for k in numbers)
        part = _Part(ids, tuple(files[k] for k in numbers), n_rows)
        new = converter.state(part)
        if facts[name].get("state") != new or name not in there:
            todo[name] = part, new
    if todo:
        copies.say(f"Converting judgments in long form to {out}: {len(todo)} of {len(own)} files")
    for name, (part, new) in todo.items():
        facts[name] |= {"counts": converter.write(part, out / name), "state": new}
        write_whole(out / CONVERSION, json.dumps({"files": facts}).encode())
    for name in there - {CONVERSION, *own, *(f"{_OBJECTS}/{name}" for name in own)}:
        (out / name).unlink(missing_ok=True)
    of_files = (fact[key] for fact in facts.values() for key in ("scanned", "counts"))
    counts = sum(map(Counter, of_files), Counter[str]())
    if not counts["n_objects"]:
        raise DataError(f"none of the {counts['n_unlabelled']} objects has a label.")
    if converter.labels is not None:
        counts["n_unjudged_labels"] = converter.labels.n_others(objects)
    note = {"state": state, "label": converter.label.name, "n_spread": n_spread, **counts}
    write_whole(out / CONVERSION, json.dumps(note | {"files": facts}, indent=1).encode())
    return note


def file_version(file: File) -> str:
    """Return text that changes when the content of a file does."""
    return f"{file.name}:{file.n_bytes}:{file.stamp}"


@dataclass(frozen=True)
class _Part:
    """Objects of a converted file, by id, and the files that name them, with their rows in all."""

    objects: pa.Array
    files: tuple[File, ...]
    n_rows: int


def _divide(objects: Sequence[pa.Array]) -> tuple[list[tuple[pa.Array, list[int]]], int]:
    """Give each object to the first file that names it.

    Returns the objects of each file with the numbers of the files that name them, and how many
    objects several files name.
    """
    if not any(map(len, objects)):
        raise DataError("the source holds no judgments.")
    n = len(objects)
    found = pa.chunked_array(objects).dictionary_encode()
    codes = np.concatenate([number_view(chunk.indices) for chunk in found.chunks])
    ends = np.cumsum([len(own) for own in objects])
    names = np.repeat(np.arange(n), [len(own) for own in objects])
    first = np.full(codes.max() + 1, n)
    np.minimum.at(first, codes, names)
    owner = first[codes]
    named_in: list[list[int]] = [[] for _ in objects]
    for pair in np.unique(owner * n + names).tolist():
        named_in[pair // n].append(pair % n)
    mine = (
        own.filter(pa.array(owner[end - len(own) : end] == k)).sort()
        for k, (own, end) in enumerate(zip(objects, ends, strict=True))
    )
    n_spread = int(np.count_nonzero(np.bincount(codes) > 1))
    return list(zip(mine, named_in, strict=True)), n_spread


@dataclass(frozen=True)
class _Converter:
    """Judgments in long form, and what some of them become.

    `memory_rows` fit in memory; `attributes` are those of all files, ascending.
    """

    source: LongSource
    form: LongForm
    label: _LabelRule
    labels: Labels | None
    seed: int
    memory_rows: int
    attributes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        files: Sequence[File],
        form: LongForm,
        label: _LabelRule,
        labels: Sequence[File],
        seed: int,
        memory_bytes: int,
        copies: Copies,
    ) -> _Converter:
        """Check the columns of files, and read the labels."""
        roles = {role: getattr(form, role) for role in ("object", "attribute", "value", "worker")}
        source = LongSource.open(files, {**roles, "label": label.column}, copies)
        table = Labels.read(labels, form, copies, source.object_type) if labels else None
        row_bytes = ROW_BYTES + (WORKER_BYTES if form.worker else 0)
        return cls(source, form, label, table, seed, memory_bytes // row_bytes)

    def batches(self, files: Sequence[File]) -> Iterator[pa.Table]:
        """Yield the rows of files; when they are sorted, they are held twice."""
        rows = int(np.clip(self.memory_rows // 4, 1, _MOST_BATCH_ROWS))
        yield from replace(self.source, files=tuple(files)).batches(rows)

    def scan(
        self, file: File, place: Location, known: Mapping[str, Any]
    ) -> tuple[pa.Array, dict[str, Any]]:
        """Return the objects that a file names, its attributes and counts; read where changed."""
        kind = self.source.object_type
        version = [file_version(file), str(kind)]
        if known.get("version") == version:
            with suppress(FileNotFoundError, pa.ArrowInvalid):
                table = pq.read_table(pa.BufferReader(place.read_bytes()))
                return whole(table.column("object")).cast(kind), dict(known)
        objects, attributes = pa.array([], kind), set[str]()
        counts = Counter[str]()
        for rows in self.batches([file]):
            judged = rows.filter(pc.is_valid(rows.column("value")))
            objects = pc.unique(pa.concat_arrays([objects, whole(judged.column("object"))]))
            attributes.update(pc.unique(judged.column("attribute")).to_pylist())
            counts["n_rows"] += rows.num_rows
            counts["n_without_value"] += rows.num_rows - judged.num_rows
        write_table(place, pa.table({"object": objects}))
        return objects, {"version": version, "attributes": sorted(attributes), "scanned": counts}

    def state(self, part: _Part) -> str:
        """Return a digest of all that the result depends on."""
        files = json.dumps([[file_version(file) for file in part.files], self.attributes])
        labels = "" if self.labels is None else self.labels.look_up(part.objects).tobytes().hex()
        return digest(files, hash_keys(part.objects).tobytes().hex(), labels)

    def write(self, part: _Part, place: Location) -> dict[str, int]:
        """Convert some objects, and count."""
        counts, schema = Counter[str](), self._schema()
        with whole_file(place) as temporary, GroupedFile(temporary) as out:
            out.write(schema.empty_table())
            for ids, rows in self._ranges(part, temporary.parent):
                wide, n_duplicates = self._pivot(ids, rows, schema)
                out.write(wide)
                counts["n_objects"] += wide.num_rows
                counts["n_unlabelled"] += len(ids) - wide.num_rows
                counts["n_duplicates"] += n_duplicates
        return counts

    def _schema(self) -> pa.Schema:
        names = self.label.attributes_besides(self.attributes)
        fields = [(self.form.object, self.source.object_type)]
        fields += [(self.label.name, pa.float64())] if self.label.name else []
        fields += [(name, pa.list_(pa.float64())) for name in names]
        if self.form.worker:
            fields += [(name + OF_ONE, pa.list_(pa.string())) for name in names]
        schema = pa.schema(fields)
        clash = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if clash is not None:
            raise DataError(
                f"two columns of the result would be named {clash!r} (id {self.form.object!r}, "
                f"label {self.label.name!r}, attributes); rename one or leave the attribute out."
            )
        return schema

    def _ranges(self, part: _Part, folder: Path) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield ranges of objects with their rows, at most about as many as memory holds."""
        # Objects differ in their numbers of rows.
        n_ranges = -(-part.n_rows // max(1, 2 * self.memory_rows // 3))
        step = max(1, -(-len(part.objects) // min(max(1, n_ranges), _MOST_RANGES)))
        starts = range(0, len(part.objects), step)
        if len(starts) < 2:
            yield from ((part.objects, pa.concat_tables(self._coded(part))) for _ in starts)
            return
        with TemporaryDirectory(prefix=".distfms-", dir=folder) as scratch:
            runs = [Path(scratch) / f"{start}.arrow" for start in starts]
            with ExitStack() as stack:
                files: list[Any] = []
                for rows in self._coded(part):
                    files = files or [
                        stack.enter_context(pa.ipc.new_file(str(run), rows.schema)) for run in runs
                    ]
                    for start, file in zip(starts, files, strict=True):
                        at = rows.column("object")
                        own = pc.and_(pc.greater_equal(at, start), pc.less(at, start + step))
                        file.write_table(rows.filter(own))
            for start, run in zip(starts, runs, strict=True):
                with pa.memory_map(str(run)) as handle:
                    rows = pa.ipc.open_file(handle).read_all()
                    at = pc.subtract(rows.column("object"), pa.scalar(start, pa.int32()))
                    yield part.objects.slice(start, step), rows.set_column(0, "object", at)

    def _coded(self, part: _Part) -> Iterator[pa.Table]:
        """Yield the judgments of a part's objects: objects and attributes as their positions."""
        for rows in self.batches(part.files):
            rows = rows.filter(rows.column("value").is_valid())
            for number, names in enumerate((part.objects, pa.array(self.attributes))):
                role = rows.column_names[number]
                rows = rows.set_column(number, role, pc.index_in(rows.column(role), names))
            yield rows.filter(rows.column("object").is_valid())

    def _pivot(self, ids: pa.Array, rows: pa.Table, schema: pa.Schema) -> tuple[pa.Table, int]:
        """Return the rows of objects that have a label, and the number of second judgments."""
        names, form, rule = list(self.attributes), self.form, self.label
        cells, n_duplicates = drop_duplicates(Cells.from_table(rows, ids), names, form.duplicates)
        label = None
        if self.labels is not None:
            label = self.labels.look_up(ids)
        elif rule.column is not None:
            code = None if rule.attribute is None else names.index(rule.attribute)
            label = column_label(cells, code, rule.column)
        elif rule.name:
            label = mean_label(cells, names.index(rule.name))
        if form.max_judgments is not None:
            cells = draw_judgments(cells, names, form.max_judgments, self.seed)
        codes = [names.index(name) for name in rule.attributes_besides(self.attributes)]
        columns = [ids, *([] if label is None else [pa.array(label)]), *list_columns(cells, codes)]
        wide = pa.Table.from_arrays(columns, schema=schema)
        if label is None:
            return wide, n_duplicates
        return wide.filter(pa.array(~np.isnan(label))), n_duplicates


@dataclass(frozen=True)
class _LabelRule:
    """The label column of the result, and the attribute and the column of the source it is from.

    Without a name there is none.
    """

    name: str
    attribute: str | None = None
    column: str | None = None

    @classmethod
    def of(cls, form: LongForm) -> _LabelRule:
        label, column = form.label, form.label_from
        if form.labels is not None:
            return cls(label)
        if column == "mean":
            return cls(label, attribute=label)
        if column == "column":
            return cls(label, column=label)
        return cls(f"{label}_{column}", attribute=label, column=column)

    def attributes_besides(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the attributes of the result, by name."""
        if self.attribute is not None and self.attribute not in names:
            raise DataError(
                f"no judgment of attribute {self.attribute!r}.{nearest(self.attribute, names)}"
            )
        left = [name for name in names if self.column is not None or name != self.attribute]
        if not left:
            raise DataError("no attribute is left besides the label.")
        return tuple(left)
