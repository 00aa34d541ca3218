"""Judgments from long form (object, attribute, worker, value) to one row per object.

The rows may be far more than memory holds: when they are, one pass looks at the objects, a second
deals the rows out to temporary files by ranges of the object's id, and each file is then turned
into wide rows by itself. As the ranges ascend, the result is in id order whatever the bound.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distfms.data.labels import Labels
from distfms.data.long_source import Judgments, LongColumns, LongSource, Source
from distfms.data.pivot import (
    Cells,
    Choose,
    CodedJudgments,
    Duplicates,
    column_label,
    drop_duplicates,
    limit_judgments,
    mean_label,
    wide_columns,
)
from distfms.data.spill import Spill, bucket_borders
from distfms.data.write import ROWS_PER_SHARD, ShardWriter, check_free, working_folder
from distfms.errors import DataError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 2**30
#: Bytes a long row takes at the peak of the pivot, and more with a worker: measured, rounded up.
ROW_BYTES, WORKER_BYTES = 120, 120
_MAX_BUCKETS = 512
_MAX_BATCH_ROWS = 2**20


#: File with the counts of a conversion, next to the shards.
CONVERSION = "_conversion.json"


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion read, kept and left out.

    Parameters
    ----------
    out : Path
        Folder of the wide dataset.
    id, label : str, str or None
        Its id and label columns.
    attributes : tuple of str
        Its list columns.
    n_rows : int
        Long rows read.
    n_without_value : int
        Rows whose value is missing; left out.
    n_not_wanted : int
        Rows of attributes that were not asked for; left out.
    n_duplicates : int
        Second judgments of a worker: dropped with ``duplicates="first"``, kept with ``"keep"``.
    n_judgments : int
        Judgments written.
    n_objects : int
        Objects written, one row each.
    n_unlabelled : int
        Objects without a label; left out.
    n_unjudged_labels : int
        Labels of objects that nobody judged; left out.
    n_empty_cells : int
        (object, attribute) pairs without any judgment, among the objects written.
    n_buckets : int
        Parts the data were dealt out to; 1 when they fit in memory.
    """

    out: Path
    id: str
    label: str | None
    attributes: tuple[str, ...]
    n_rows: int = 0
    n_without_value: int = 0
    n_not_wanted: int = 0
    n_duplicates: int = 0
    n_judgments: int = 0
    n_objects: int = 0
    n_unlabelled: int = 0
    n_unjudged_labels: int = 0
    n_empty_cells: int = 0
    n_buckets: int = 1

    def to_dict(self) -> dict[str, Any]:
        """All but where and in how many parts: the same wherever the conversion runs."""
        content = asdict(self)
        del content["out"], content["n_buckets"]
        return content


def convert_long_judgments(
    source: Source,
    out: str | os.PathLike[str],
    *,
    object: str,
    attribute: str,
    value: str,
    worker: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    label: str | None = None,
    label_from: str = "mean",
    attributes: Sequence[str] | None = None,
    max_judgments: int | None = None,
    choose: Choose = "random",
    seed: int = 0,
    duplicates: Duplicates = "error",
    rows_per_shard: int = ROWS_PER_SHARD,
    memory_bytes: int = MEMORY_BYTES,
    overwrite: bool = False,
) -> ConversionReport:
    """Convert judgments in long form to the wide form that jobs read.

    Parameters
    ----------
    source : path or sequence of paths
        Parquet or CSV files, folders, globs or URLs. The first file's object column decides about
        its type (a CSV column of digits is read as integers).
    out : path
        Folder to write; has one row per object, ascending by id: the id (named ``object``), the
        label (float64), and one list of float64 per attribute with its judgments in source order.
        ``_conversion.json`` there holds the counts of the report.
    object, attribute, value : str
        Column names.
    worker : str, optional
        Column that tells workers apart; with it, duplicates are looked for.
    labels : path, optional
        Table (Parquet or CSV) with an ``object`` column and the label; held in memory.
    label : str, optional
        With ``labels`` the column there (may be left out where there is only one more). Without,
        an attribute, which then is not among the attributes of the result; see ``label_from``.
        If neither is given the result has no label.
    label_from : str
        ``"mean"``: the label is the mean of all judgments of attribute ``label``. ``"column"``:
        ``label`` is a column of the long table, one value per object. Any other: a column of the
        long table, read where the attribute is ``label`` (an expert's value next to the workers');
        the attribute then stays and the label column is named ``<label>_<label_from>``.
    attributes : sequence of str, optional
        Those wanted, in this order; default all, by name.
    max_judgments : int, optional
        At most so many judgments of a cell are kept. The label's mean takes all of them.
    choose : {"random", "first"}
        Which: drawn by ``seed``, or the first ones.
    seed : int
        Non-negative.
    duplicates : {"error", "keep", "first"}
        What to do with a worker's second judgment of one cell.
    rows_per_shard : int
        Objects in a file.
    memory_bytes : int
        About what the conversion may hold, apart from ``labels``. Does not change the result.
    overwrite : bool
        Replace a dataset at ``out``.

    Returns
    -------
    ConversionReport

    Raises
    ------
    DataError
        If a file, column or attribute is missing, an object or attribute is null, a value is not
        a finite number, an object has two labels, a worker judged twice, no object has a label,
        or the folder cannot be written.
    """
    target = Path(out)
    if memory_bytes < 1:
        raise DataError(f"memory_bytes is {memory_bytes}; it has to be at least 1.")
    plan = _Plan.make(labels, label, label_from, max_judgments, choose, seed, duplicates)
    columns = LongColumns(object, attribute, value, worker, plan.label_column)
    long = LongSource.open(source, columns)
    table = None if labels is None else Labels.read(labels, object, label, long.object_type)
    plan = replace(plan, label=table.name if table is not None else plan.label)
    check_free(target, overwrite=overwrite)
    row_bytes = ROW_BYTES + (WORKER_BYTES if worker else 0)
    borders = bucket_borders(long, row_bytes, memory_bytes, _MAX_BUCKETS)
    working = working_folder(target, "spill")
    try:
        reader = _Reader(None if attributes is None else plan.needed(attributes))
        spill = Spill(working, borders, has_worker=worker is not None, has_label=plan.has_column)
        batch_rows = int(np.clip(memory_bytes // (4 * row_bytes), 1, _MAX_BATCH_ROWS))
        for rows in reader.coded(long.batches(batch_rows)):
            spill.add(rows)
        names = reader.checked_attributes(attributes, plan)
        report = ConversionReport(
            target,
            object,
            plan.output_label,
            names,
            n_rows=reader.n_rows,
            n_without_value=reader.n_without_value,
            n_not_wanted=reader.n_not_wanted,
            n_buckets=spill.n_buckets,
        )
        return _write(report, spill, reader.codes, plan, table, rows_per_shard, overwrite)
    finally:
        shutil.rmtree(working, ignore_errors=True)


@dataclass(frozen=True)
class _Plan:
    """Where the label comes from, and what happens within a bucket."""

    label: str | None
    label_source: Literal["none", "table", "mean", "column", "attribute_column"]
    label_column: str | None
    max_judgments: int | None
    choose: Choose
    seed: int
    duplicates: Duplicates

    @classmethod
    def make(
        cls,
        labels: Any,
        label: str | None,
        label_from: str,
        max_judgments: int | None,
        choose: Choose,
        seed: int,
        duplicates: Duplicates,
    ) -> _Plan:
        if max_judgments is not None and max_judgments < 1:
            raise DataError(f"max_judgments is {max_judgments}; it has to be at least 1.")
        if duplicates not in ("error", "keep", "first"):
            raise DataError(f"duplicates is {duplicates!r}; choose error, keep or first.")
        if choose not in ("random", "first"):
            raise DataError(f"choose is {choose!r}; choose random or first.")
        if seed < 0:
            raise DataError(f"seed is {seed}; it has to be 0 or more.")
        source: Any = "attribute_column"
        column: str | None = label_from
        if labels is not None:
            source, column = "table", None
        elif label is None:
            source, column = "none", None
        elif label_from == "mean":
            source, column = "mean", None
        elif label_from == "column":
            source, column = "column", label
        return cls(label, source, column, max_judgments, choose, seed, duplicates)

    @property
    def has_column(self) -> bool:
        return self.label_column is not None

    @property
    def output_label(self) -> str | None:
        if self.label_source == "attribute_column":
            return f"{self.label}_{self.label_column}"
        return self.label

    @property
    def label_attribute(self) -> str | None:
        """The attribute whose rows give the label."""
        return self.label if self.label_source in ("mean", "attribute_column") else None

    def needed(self, attributes: Sequence[str]) -> set[str]:
        extra = {self.label_attribute} if self.label_attribute is not None else set()
        return set(attributes) | extra

    def labels_of(self, cells: Cells, codes: dict[str, int], table: Labels | None) -> np.ndarray:
        """Label per object, NaN where there is none."""
        if table is not None:
            return table.look_up(cells.ids)
        code = None if self.label_attribute is None else codes[self.label_attribute]
        if self.label_source == "mean":
            assert code is not None
            return mean_label(cells, code)
        return column_label(cells, code, str(self.label_column))


class _Reader:
    """Give attributes codes in order of appearance, and count what is left out."""

    def __init__(self, wanted: set[str] | None) -> None:
        self.wanted = wanted
        self.codes: dict[str, int] = {}
        self.others: dict[str, None] = {}
        self.n_rows = 0
        self.n_without_value = 0
        self.n_not_wanted = 0

    def coded(self, batches: Iterator[Judgments]) -> Iterator[CodedJudgments]:
        for batch in batches:
            self.n_rows += batch.n_read
            self.n_without_value += batch.n_without_value
            codes = np.array([self._code(n) for n in batch.attribute_names], dtype=np.int32)
            attributes = codes[batch.attributes] if len(codes) else batch.attributes
            rows = CodedJudgments(
                batch.objects, attributes, batch.values, batch.workers, batch.labels
            )
            kept = attributes >= 0
            if not kept.all():
                self.n_not_wanted += int(np.count_nonzero(~kept))
                rows = rows.where(kept)
            yield rows

    def checked_attributes(self, attributes: Sequence[str] | None, plan: _Plan) -> tuple[str, ...]:
        """Attributes of the result; all that were asked for have to be there."""
        found = sorted([*self.codes, *self.others])
        if not found or self.n_without_value == self.n_rows:
            raise DataError("the source holds no judgments.")
        own = plan.label_attribute
        for name in [*(attributes or ()), *([own] if own is not None else [])]:
            if name not in self.codes:
                raise DataError(f"no judgment of attribute {name!r}.{nearest(name, found)}")
        names = list(sorted(self.codes) if attributes is None else dict.fromkeys(attributes))
        if plan.label_source == "mean":
            names = [name for name in names if name != plan.label]
        if not names:
            raise DataError("no attribute is left besides the label.")
        return tuple(names)

    def _code(self, name: str) -> int:
        if self.wanted is not None and name not in self.wanted:
            self.others[name] = None
            return -1
        return self.codes.setdefault(name, len(self.codes))


def _write(
    report: ConversionReport,
    spill: Spill,
    codes: dict[str, int],
    plan: _Plan,
    table: Labels | None,
    rows_per_shard: int,
    overwrite: bool,
) -> ConversionReport:
    """Pivot one bucket after the other into the shards."""
    schema = _schema(report, spill.object_type)
    by_code = list(codes)
    with ShardWriter(report.out, schema, rows_per_shard, overwrite=overwrite) as writer:
        for rows in spill.buckets():
            cells, n_duplicates = drop_duplicates(Cells.from_coded(rows), by_code, plan.duplicates)
            labels = None
            if plan.label_source != "none":
                labels = plan.labels_of(cells, codes, table)
            if plan.max_judgments is not None:
                cells = limit_judgments(cells, by_code, plan.max_judgments, plan.choose, plan.seed)
            wide, n_unlabelled = _wide(cells, labels, [codes[n] for n in report.attributes], schema)
            report = _counted(report, wide, n_unlabelled, n_duplicates)
            writer.write(wide)
        if report.n_objects == 0:
            raise DataError(f"none of the {report.n_unlabelled} objects has a label.")
        if table is not None:
            report = replace(report, n_unjudged_labels=table.n_unused())
        content = json.dumps(report.to_dict(), indent=1) + "\n"
        writer.add_file(CONVERSION, content.encode())
    return report


def _schema(report: ConversionReport, object_type: pa.DataType) -> pa.Schema:
    import pyarrow as pa

    taken = [report.id] + ([report.label] if report.label is not None else [])
    clash = [name for name in taken if taken.count(name) > 1 or name in report.attributes]
    if clash:
        raise DataError(
            f"{clash[0]!r} would name two columns of the result (id {report.id!r}, label "
            f"{report.label!r}, attributes); rename one or leave the attribute out."
        )
    fields = [pa.field(report.id, object_type)]
    if report.label is not None:
        fields.append(pa.field(report.label, pa.float64()))
    lists = [pa.field(name, pa.list_(pa.float64())) for name in report.attributes]
    return pa.schema(fields + lists)


def _wide(
    cells: Cells, labels: np.ndarray | None, codes: Sequence[int], schema: pa.Schema
) -> tuple[pa.Table, int]:
    """Rows of the result, and how many objects had no label."""
    import pyarrow as pa

    columns: list[pa.Array] = [cells.ids]
    if labels is not None:
        columns.append(pa.array(labels))
    table = pa.Table.from_arrays([*columns, *wide_columns(cells, codes)], schema=schema)
    if labels is None or not np.isnan(labels).any():
        return table, 0
    labelled = ~np.isnan(labels)
    return table.filter(pa.array(labelled)), int(np.count_nonzero(~labelled))


def _counted(
    report: ConversionReport, wide: pa.Table, n_unlabelled: int, n_duplicates: int
) -> ConversionReport:
    import pyarrow.compute as pc

    n_judgments = n_empty = 0
    for name in report.attributes:
        lengths = pc.list_value_length(wide.column(name)).to_numpy()
        n_judgments += int(lengths.sum())
        n_empty += int(np.count_nonzero(lengths == 0))
    return replace(
        report,
        n_judgments=report.n_judgments + n_judgments,
        n_empty_cells=report.n_empty_cells + n_empty,
        n_objects=report.n_objects + wide.num_rows,
        n_unlabelled=report.n_unlabelled + n_unlabelled,
        n_duplicates=report.n_duplicates + n_duplicates,
    )
