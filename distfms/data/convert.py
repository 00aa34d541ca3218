"""Judgments from long form (object, attribute, worker, value) to one row per object.

The rows may be far more than memory holds: they are sorted by object by way of files on disk, and
turned into wide rows one range of objects after the other. As the ranges ascend, the result is in
the order of the ids whatever the bound.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import number_view
from distfms.data.long_source import Labels, LongSource, Source, whole
from distfms.data.pivot import (
    Cells,
    Duplicates,
    SortedRuns,
    column_label,
    draw_judgments,
    drop_duplicates,
    list_columns,
    mean_label,
)
from distfms.data.raters import OF_ONE
from distfms.data.storage import StoredFile
from distfms.data.write import ROWS_PER_SHARD, ShardWriter, check_free, working_folder
from distfms.errors import DataError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 2**30
#: Bytes a long row takes at the peak of the pivot, and more with a worker: measured, rounded up.
ROW_BYTES, WORKER_BYTES = 120, 120
_MAX_RUN_ROWS = 2**20

#: Raised with every change of what the same judgments are converted to.
CONVERTER_VERSION = 3

#: File with the counts of a conversion, next to the shards.
CONVERSION = "_conversion.json"


@dataclass
class ConversionReport:
    """What a conversion read, kept and left out.

    Attributes
    ----------
    out : Path
        Folder of the wide dataset.
    id, label : str, str or None
        Its id and label columns.
    attributes : tuple of str
        Its list columns.
    n_rows, n_without_value : int
        Long rows read, and those left out as their value is missing.
    n_duplicates : int
        Second judgments of a worker: dropped with ``duplicates="first"``, kept with ``"keep"``.
    n_judgments, n_objects : int
        Judgments and objects written.
    n_unlabelled, n_unjudged_labels : int
        Objects without a label, and labels of objects that nobody judged; left out.
    n_empty_cells : int
        (object, attribute) pairs without any judgment, among the objects written.
    n_ranges : int
        Parts the data were divided into; 1 when they fit in memory.
    """

    out: Path
    id: str
    label: str | None
    attributes: tuple[str, ...] = ()
    n_rows: int = 0
    n_without_value: int = 0
    n_duplicates: int = 0
    n_judgments: int = 0
    n_objects: int = 0
    n_unlabelled: int = 0
    n_unjudged_labels: int = 0
    n_empty_cells: int = 0
    n_ranges: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return all but where and in how many parts: the same wherever the conversion runs."""
        content = asdict(self)
        del content["out"], content["n_ranges"]
        return content


@dataclass(frozen=True)
class Part:
    """Some objects to convert: the files that name them, all attributes, a digest of the result."""

    files: tuple[StoredFile, ...]
    objects: pa.Array
    attributes: tuple[str, ...]
    state: str


class Converter:
    """Judgments in long form, to be written in the wide form that jobs read.

    Parameters
    ----------
    source : path or sequence of paths
        Parquet or CSV files, folders, globs or URLs. The first file's object column decides about
        its type (a CSV column of digits is read as integers).
    label : str, optional
        If neither it nor ``labels`` is given, the result has no label. With ``label_from`` the name
        of a column, the label column is named ``<label>_<label_from>``.
    seed, storage_options, memory_bytes
        What draws judgments, goes to fsspec, and bounds what the conversion may hold apart from
        ``labels``, which does not change the result. The other options are those of
        :class:`distfms.spec.LongForm`.

    Raises
    ------
    DataError
        If a file, column or attribute is missing, an object or attribute is null, a value is not
        a finite number, an object has two labels, a worker judged twice, no object has a label,
        or the folder cannot be written.
    """

    def __init__(
        self,
        source: Source,
        *,
        object: str,
        attribute: str,
        value: str,
        worker: str | None = None,
        labels: str | os.PathLike[str] | None = None,
        label: str | None = None,
        label_from: str = "mean",
        max_judgments: int | None = None,
        seed: int = 0,
        duplicates: Duplicates = "error",
        memory_bytes: int = MEMORY_BYTES,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the options, find the files, and read the labels."""
        bounds = {"memory_bytes": (memory_bytes, 1), "seed": (seed, 0)}
        for name, (number, least) in {**bounds, "max_judgments": (max_judgments, 1)}.items():
            if number is not None and number < least:
                raise DataError(f"{name} is {number}; it must be at least {least}.")
        if duplicates not in ("error", "keep", "first"):
            raise DataError(f"duplicates is {duplicates!r}; choose error, keep or first.")
        self.id, self.duplicates = object, duplicates
        self.draw = None if max_judgments is None else (max_judgments, seed)
        self.rule = _LabelRule.of(label, label_from, labels is not None)
        roles: dict[str, str | None] = {"object": object, "attribute": attribute, "value": value}
        roles |= {"worker": worker, "label": self.rule.column}
        self.long, self.table = LongSource.open(source, roles, storage_options), None
        if labels is not None and label is not None:
            kind = self.long.object_type
            self.table = Labels.read(labels, object, label, kind, storage_options)
        #: Rows of which so many fit in memory.
        self.rows = memory_bytes // (ROW_BYTES + (WORKER_BYTES if worker else 0))
        #: Rows that are sorted together: that takes them twice beside what is being read.
        self.run_rows = int(np.clip(self.rows // 4, 1, _MAX_RUN_ROWS))

    def write(
        self,
        out: Path,
        *,
        rows_per_shard: int = ROWS_PER_SHARD,
        overwrite: bool = False,
        part: Part | None = None,
    ) -> ConversionReport:
        """Convert all rows, or those of some objects."""
        import pyarrow.compute as pc

        report = ConversionReport(out, self.id, self.rule.name)
        check_free(out, overwrite=overwrite)
        working, codes, long = working_folder(out, "runs"), dict[str, int](), self.long
        if part is not None:
            long = replace(long, files=part.files)
            codes = {name: code for code, name in enumerate(part.attributes)}
        try:
            runs = SortedRuns(working, "object", self.run_rows)
            for rows in long.batches(self.run_rows):
                if part is not None:
                    rows = rows.filter(pc.is_in(rows.column("object"), part.objects))
                report.n_rows += rows.num_rows
                runs.add(_coded(rows, codes).filter(pc.is_valid(rows.column("value"))))
            if runs.n_rows == 0 and part is None:
                raise DataError("the source holds no judgments.")
            report.n_without_value = report.n_rows - runs.n_rows
            report.attributes = self.rule.attributes_besides(codes)
            schema = _schema(report, long.object_type, "worker" in long.roles)
            # Ranges differ in size.
            most = max(1, 2 * self.rows // 3)
            with ShardWriter(out, schema, rows_per_shard, overwrite=overwrite) as writer:
                for rows in runs.ranges(most) if runs.n_rows else ():
                    writer.write(self._pivot(rows, codes, schema, report))
                if report.n_objects == 0 and part is None:
                    raise DataError(f"none of the {report.n_unlabelled} objects has a label.")
                if self.table is not None:
                    report.n_unjudged_labels = int(np.count_nonzero(~self.table.used))
                content = report.to_dict() | ({} if part is None else {"state": part.state})
                writer.add_file(CONVERSION, (json.dumps(content, indent=1) + "\n").encode())
        finally:
            shutil.rmtree(working, ignore_errors=True)
        return report

    def _pivot(
        self, rows: pa.Table, codes: Mapping[str, int], schema: pa.Schema, report: ConversionReport
    ) -> pa.Table:
        """Turn long rows of whole objects into rows of the result; counts in the report."""
        import pyarrow as pa

        names = list(codes)
        cells, n_duplicates = drop_duplicates(Cells.from_table(rows), names, self.duplicates)
        labels = self._labels(cells, codes)
        if self.draw is not None:
            cells = draw_judgments(cells, names, *self.draw)
        judged, judges = list_columns(cells, [codes[name] for name in report.attributes])
        columns = [cells.ids, *([] if labels is None else [pa.array(labels)]), *judged, *judges]
        wide = pa.Table.from_arrays(columns, schema=schema)
        if labels is not None:
            wide = wide.filter(pa.array(~np.isnan(labels)))
        chunks = (chunk for name in report.attributes for chunk in wide.column(name).chunks)
        lengths = np.concatenate([np.empty(0), *(np.diff(number_view(c.offsets)) for c in chunks)])
        report.n_ranges += 1
        report.n_judgments += int(lengths.sum())
        report.n_empty_cells += int(np.count_nonzero(lengths == 0))
        report.n_objects += wide.num_rows
        report.n_unlabelled += len(cells.ids) - wide.num_rows
        report.n_duplicates += n_duplicates
        return wide

    def _labels(self, cells: Cells, codes: Mapping[str, int]) -> np.ndarray | None:
        if self.table is not None:
            return self.table.look_up(cells.ids)
        code = None if self.rule.attribute is None else codes[self.rule.attribute]
        if self.rule.column is not None:
            return column_label(cells, code, self.rule.column)
        return None if code is None else mean_label(cells, code)


@dataclass(frozen=True)
class _LabelRule:
    """The label column of the result, and the attribute and the column of the source it is from."""

    name: str | None
    attribute: str | None = None
    column: str | None = None

    @classmethod
    def of(cls, label: str | None, label_from: str, has_table: bool) -> _LabelRule:
        if has_table or label is None:
            return cls(label)
        if label_from == "mean":
            return cls(label, attribute=label)
        if label_from == "column":
            return cls(label, column=label)
        return cls(f"{label}_{label_from}", attribute=label, column=label_from)

    def attributes_besides(self, codes: Mapping[str, int]) -> tuple[str, ...]:
        """Return the attributes of the result, by name."""
        names = sorted(codes)
        if self.attribute is not None and self.attribute not in names:
            raise DataError(
                f"no judgment of attribute {self.attribute!r}.{nearest(self.attribute, names)}"
            )
        if self.column is None:
            names = [name for name in names if name != self.attribute]
        if not names:
            raise DataError("no attribute is left besides the label.")
        return tuple(names)


def _coded(rows: pa.Table, codes: dict[str, int]) -> pa.Table:
    """Replace the names of attributes by codes in order of appearance, adding new ones."""
    import pyarrow as pa

    found = whole(rows.column("attribute")).dictionary_encode()
    own = [codes.setdefault(name, len(codes)) for name in found.dictionary.to_pylist()]
    column = pa.array(np.array(own, dtype=np.int64)[number_view(found.indices)])
    return rows.set_column(rows.schema.get_field_index("attribute"), "attribute", column)


def _schema(report: ConversionReport, object_type: pa.DataType, workers: bool) -> pa.Schema:
    import pyarrow as pa

    fields = [(report.id, object_type)]
    if report.label is not None:
        fields.append((report.label, pa.float64()))
    fields += [(name, pa.list_(pa.float64())) for name in report.attributes]
    if workers:
        fields += [(name + OF_ONE, pa.list_(pa.string())) for name in report.attributes]
    names = [name for name, _ in fields]
    clash = next((name for name in names if names.count(name) > 1), None)
    if clash is not None:
        raise DataError(
            f"two columns of the result would be named {clash!r} (id {report.id!r}, label "
            f"{report.label!r}, attributes); rename one or leave the attribute out."
        )
    return pa.schema(fields)
