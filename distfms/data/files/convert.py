"""Judgments in long form (object, attribute, worker, value) to one row per object.

Each source file becomes a Parquet file of its name. An object is in the first file that names it,
with its judgments from all files. Rows are sorted by DuckDB, on disk where they are more than
memory holds. The result is in the order of the ids, whatever the bound.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distfms.data.files.formats.copies import Copies, state_of
from distfms.data.files.long_form import LongSource, whole
from distfms.data.files.write import GroupedFile
from distfms.data.rows.columns import number_view
from distfms.data.rows.roles import OF_ONE
from distfms.errors import DataError, nearest
from distfms.spec import LongForm
from distfms.store.kept import kept_files, prune
from distfms.store.places import File, Location, writing

#: What DuckDB holds in memory.
_MEMORY = "1GiB"
#: Rows that are read, and about those that are written, at a time: a row takes up to 240 bytes at
#: the peak of the pivot.
_PIECE_ROWS = 2**20

#: Raised with every change of what the same judgments are converted to.
_VERSION = 1

#: Folder with the converted files, and file with the counts, of a conversion.
_FOLDER = "judgments"
_COUNTS = "counts.json"


def converted(
    files: Sequence[File],
    form: LongForm,
    *,
    labels: Sequence[File] = (),
    seed: int = 0,
    copies: Copies | None = None,
    labelled: bool = True,
) -> tuple[Location, dict[str, Any]]:
    """Convert files, unless that was done before.

    Parameters
    ----------
    files : sequence of File
        The first one's object column decides about its type (a CSV column of digits is read as
        integers).
    form : LongForm
    labels : sequence of File
        The table of labels, if the form names one.
    seed : int
        Draws judgments.
    copies : Copies, optional
        Where files that are not Parquet, and what is converted, are kept; told what is converted.
    labelled : bool
        Whether to add labels, and leave out objects without one.

    Returns
    -------
    folder : Path or RemotePath
        Of the converted files.
    counts : dict
        The name of the `label`, and counts: rows read (`n_rows`), and left out as their value is
        missing (`n_without_value`); objects written (`n_objects`), without a label
        (`n_unlabelled`), and of several files (`n_spread`); labels of objects that nobody judged
        (`n_unjudged_labels`); second judgments of a worker, left out (`n_duplicates`).

    Raises
    ------
    DataError
        If a column or attribute is missing, an object or attribute is null, a value is not a finite
        number, an object has two labels, a worker judged twice, or no object has a label.
    """
    copies = copies or Copies()
    rule = _LabelRule.of(form) if labelled else _LabelRule("")
    # The seed only draws judgments.
    drawn_by = None if form.max_judgments is None else seed
    versions = [[file.name, *state_of(file)] for file in (*files, *labels)]
    dependencies = [_VERSION, form.model_dump(), drawn_by, labelled, len(labels), versions]

    def make(folder: Path) -> None:
        with TemporaryDirectory(prefix="distfms-") as scratch:
            rows = _Rows.of(files, form, rule, copies, Path(scratch))
            with closing(rows.db):
                rows.read(files)
                rows.settle(seed)
                rows.label(labels, copies)
                copies.say("Converting judgments in long form")
                for number, file in enumerate(files):
                    # The name of a sheet would make a workbook of it.
                    name = file.name.replace("//", "/").replace("#", " ")
                    name = f"{name.removesuffix('.parquet')}.parquet"
                    rows.write(number, folder / _FOLDER / name)
        (folder / _COUNTS).write_text(json.dumps(rows.counts, indent=1))

    with writing(copies.folder):
        folder = kept_files(copies.folder, "judgments", dependencies, make)
        prune(copies.folder, copies.max_bytes)
        return folder / _FOLDER, json.loads((folder / _COUNTS).read_bytes())


def file_version(file: File) -> str:
    """Return text that changes when the content of a file does."""
    return f"{file.name}:{file.n_bytes}:{file.stamp}"


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
        if form.labels is not None:
            return cls(form.target)
        if form.label_from == "mean":
            return cls(form.target, attribute=form.label)
        if form.label_from == "column":
            return cls(form.target, column=form.label)
        return cls(form.target, attribute=form.label, column=form.label_from)

    def attributes_besides(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the attributes of the result, by name."""
        if self.attribute is not None and self.attribute not in names:
            raise DataError(
                f"There is no judgment of the attribute {self.attribute!r}, the label."
                f"{nearest(self.attribute, names)}"
            )
        attributes = [name for name in names if self.column is not None or name != self.attribute]
        if not attributes:
            raise DataError("No attribute is left besides the label: add judgments of others.")
        return tuple(attributes)


# --- rows in a database ---------------------------------------------------------------------------

#: Judgments that are not a rater's first of an attribute of an object.
_SECOND = """
    SELECT * FROM judged WHERE worker IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY object, attribute, worker ORDER BY place) > 1
"""
#: Judgments of a cell beyond so many, in an order that the seed, the cell and the place in it draw.
_BEYOND = """
    SELECT place FROM (
        SELECT *, row_number() OVER (PARTITION BY object, attribute ORDER BY place) AS nth
        FROM judged
    )
    QUALIFY row_number() OVER (
        PARTITION BY object, attribute ORDER BY md5(concat_ws('|', $seed, nth, attribute, object))
    ) > $most
"""
#: Label of each object that has one, by what decides about it.
_LABELS = {
    "mean": """
        SELECT object, list_sum(list(value ORDER BY place)) / count(*) AS label, false AS differs
        FROM judged WHERE attribute = $attribute GROUP BY object
    """,
    "column": """
        SELECT object, min(label) AS label, min(label) < max(label) AS differs, max(label) AS other
        FROM judged WHERE label IS NOT NULL AND attribute = coalesce($attribute, attribute)
        GROUP BY object
    """,
}
#: Objects with the file that each is in, and the place of those with a label in that file.
_OBJECTS = """
    CREATE TABLE objects AS
    SELECT
        *,
        row_number() OVER (PARTITION BY owner, is_kept ORDER BY object) - 1 AS number,
    FROM (
        SELECT object, min(file) AS owner, count(DISTINCT file) > 1 AS is_spread,
        FROM judged GROUP BY object
    )
    LEFT JOIN (SELECT object, label, true AS is_kept FROM labelled) USING (object)
"""

#: Judgments that are written, in the order of their objects.
_CELLS = """
    CREATE TABLE cells AS
    SELECT judged.*, owner, number,
    FROM judged JOIN objects USING (object) ANTI JOIN left_out USING (place)
    WHERE is_kept
    ORDER BY owner, number
"""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Judgments of all files, as table ``judged`` of a database.

    Once labels are known there are ``objects``, and ``cells`` in their order.

    `counts` are those of `convert`.
    """

    db: Any
    source: LongSource
    form: LongForm
    rule: _LabelRule
    counts: Counter[str]

    @classmethod
    def of(
        cls, files: Sequence[File], form: LongForm, rule: _LabelRule, copies: Copies, scratch: Path
    ) -> _Rows:
        """Check the columns of files."""
        import duckdb

        roles = {role: getattr(form, role) for role in ("object", "attribute", "value", "worker")}
        source = LongSource.open(files, {**roles, "label": rule.column}, copies)
        db = duckdb.connect(str(scratch / "rows.duckdb"), config={"memory_limit": _MEMORY})
        return cls(db, source, form, rule, Counter())

    def found(self, query: str, **parameters: Any) -> list[Any]:
        """Return the rows of a query."""
        rows: list[Any] = self.db.execute(query, parameters).fetchall()
        return rows

    def insert(self, name: str, table: pa.Table) -> None:
        """Add rows to a table, which the first ones make."""
        self.db.register("incoming", table)
        self.db.execute(f"CREATE TABLE IF NOT EXISTS {name} AS FROM incoming LIMIT 0")
        self.db.execute(f"INSERT INTO {name} FROM incoming")
        self.db.unregister("incoming")

    def read(self, files: Sequence[File]) -> None:
        """Read the rows of files that have a value."""
        counts = self.counts
        place = 0
        for number, file in enumerate(files):
            for rows in self.source.batches(file, _PIECE_ROWS):
                judged = rows.filter(pc.is_valid(rows.column("value")))
                counts["n_rows"] += rows.num_rows
                counts["n_without_value"] += rows.num_rows - judged.num_rows
                n = judged.num_rows
                judged = judged.append_column("file", pa.array(np.full(n, number)))
                judged = judged.append_column("place", pa.array(np.arange(place, place + n)))
                self.insert("judged", judged)
                place += n
        if not place:
            raise DataError("The files hold no judgments: check `data.path` and `data.long.value`.")

    @property
    def attributes(self) -> list[str]:
        """Names of all attributes, ascending."""
        return [name for (name,) in self.found("SELECT DISTINCT attribute FROM judged ORDER BY 1")]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result."""
        names = self.rule.attributes_besides(self.attributes)
        fields = [(self.form.object, self.source.object_type)]
        fields += [(self.rule.name, pa.float64())] if self.rule.name else []
        fields += [(name, pa.list_(pa.float64())) for name in names]
        if self.form.worker:
            fields += [(name + OF_ONE, pa.list_(pa.string())) for name in names]
        schema = pa.schema(fields)
        clash = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if clash is not None:
            raise DataError(
                f"Two columns would be named {clash!r}: the id is {self.form.object!r}, the label "
                f"{self.rule.name!r}, and each attribute has a column. Rename one in the files."
            )
        return schema

    def settle(self, seed: int) -> None:
        """Deal with second judgments of a rater, and mark which judgments of a cell are drawn."""
        policy = self.form.duplicates
        if self.form.worker:
            ((n,),) = self.found(f"SELECT count(*) FROM ({_SECOND})")
            if n and policy == "error":
                first = f"SELECT worker, attribute, object FROM ({_SECOND})"
                ((worker, attribute, object_id),) = self.found(
                    f"{first} ORDER BY 3, 2, place LIMIT 1"
                )
                raise DataError(
                    f"Rater {worker!r} judged attribute {attribute!r} of object {object_id!r} more "
                    "than once: set `data.long.duplicates` to `first` to keep the first, or to "
                    "`keep` for all."
                )
            if n and policy == "first":
                self.counts["n_duplicates"] = n
                self.found(f"DELETE FROM judged WHERE place IN (SELECT place FROM ({_SECOND}))")
        self.found("CREATE TABLE left_out (place BIGINT)")
        if (most := self.form.max_judgments) is not None:
            self.found(f"INSERT INTO left_out {_BEYOND}", seed=seed, most=most)

    def label(self, labels: Sequence[File], copies: Copies) -> None:
        """Find the label of each object, and the file and place where it is written."""
        rule = self.rule
        _ = self.schema  # refuses attributes that do not fit
        if labels:
            self._read_labels(labels, copies)
        elif rule.name:
            query = _LABELS["mean" if rule.column is None else "column"]
            self.found(f"CREATE TABLE labelled AS {query}", attribute=rule.attribute)
            if rule.column is not None:
                two = "SELECT object, label, other FROM labelled WHERE differs ORDER BY 1 LIMIT 1"
                for thing, one, other in self.found(two):
                    raise DataError(
                        f"The object {thing!r} has two labels in the column {rule.column!r}, "
                        f"{one:g} and {other:g}: correct one of them."
                    )
        else:
            self.found("CREATE TABLE labelled AS SELECT DISTINCT object, NULL AS label FROM judged")
        self.found(_OBJECTS)
        self.found(_CELLS)
        counted = "count(*), count(is_kept), count_if(is_spread)"
        ((n, n_kept, n_spread),) = self.found(f"SELECT {counted} FROM objects")
        if not n_kept:
            raise DataError(f"None of the {n} objects has a label: check `data.long.label`.")
        self.counts.update(n_objects=n_kept, n_unlabelled=n - n_kept, n_spread=n_spread)
        if labels:
            lone = "SELECT count(*) FROM labelled ANTI JOIN objects USING (object)"
            ((self.counts["n_unjudged_labels"],),) = self.found(lone)

    def _read_labels(self, files: Sequence[File], copies: Copies) -> None:
        """Read labels from a table of their own; rows without a label are as good as absent."""
        roles = {"object": self.form.object, "label": self.form.label}
        source = LongSource.open(files, roles, copies, self.source.object_type)
        for file in files:
            for rows in source.batches(file, _PIECE_ROWS):
                self.insert("labelled", rows)
        twice = "SELECT object FROM labelled GROUP BY 1 HAVING count(*) > 1 ORDER BY 1 LIMIT 1"
        for (object_id,) in self.found(twice):
            raise DataError(
                f"The object {object_id} has several rows in the labels {self.form.labels}: keep "
                "one."
            )
        self.found("DELETE FROM labelled WHERE label IS NULL")

    # --- writing ---

    def write(self, owner: int, place: Path) -> None:
        """Write the objects of a file, some at a time."""
        schema = self.schema
        place.parent.mkdir(parents=True, exist_ok=True)
        with GroupedFile(place) as out:
            out.write(schema.empty_table())
            for start, stop in self._ranges(owner):
                out.write(self._wide(schema, owner=owner, start=start, stop=stop))
        # What is converted to the same again is the same version of the data.
        with place.open("rb") as stream:
            stamp = int(hashlib.file_digest(stream, "sha256").hexdigest()[:15], 16)
        os.utime(place, ns=(stamp, stamp))

    def _ranges(self, owner: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of objects, whose rows are about as many as memory holds."""
        counted = "count(DISTINCT number), count(*)"
        query = f"SELECT {counted} FROM cells WHERE owner = $owner"
        ((n_objects, n_rows),) = self.found(query, owner=owner)
        n_ranges = max(1, -(-n_rows // _PIECE_ROWS))
        step = max(1, -(-n_objects // n_ranges))
        yield from ((start, start + step) for start in range(0, n_objects, step))

    def _wide(self, schema: pa.Schema, **objects_range: int) -> pa.Table:
        """Return the rows of some objects of a file; lists are empty where nothing was judged."""
        in_range = "owner = $owner AND number >= $start AND number < $stop"
        query = f"SELECT object, label FROM objects WHERE {in_range} AND is_kept ORDER BY number"
        objects = self.db.sql(query, params=objects_range).to_arrow_table()
        worker = ", worker" if self.form.worker else ""
        query = (
            f"SELECT attribute, number - $start AS number, value{worker} FROM cells "
            f"WHERE {in_range} ORDER BY attribute, number, place"
        )
        cells = self.db.sql(query, params=objects_range).to_arrow_table()
        columns = {
            self.form.object: whole(objects.column("object")),
            self.rule.name: objects.column("label"),
        }
        rows = {name: whole(cells.column(name)) for name in cells.column_names}
        names = self.attributes
        codes = number_view(pc.index_in(rows["attribute"], pa.array(names)))
        numbers = number_view(rows["number"])
        n = objects.num_rows
        lists = {"": rows["value"]} | ({OF_ONE: rows["worker"]} if worker else {})
        for name in self.rule.attributes_besides(names):
            code = names.index(name)
            first, last = np.searchsorted(codes, [code, code + 1]).tolist()
            ends = np.cumsum(np.bincount(numbers[first:last], minlength=n))
            offsets = pa.array(np.append(0, ends).astype(np.int32))
            for ending, values in lists.items():
                items = values.slice(first, last - first)
                columns[name + ending] = pa.ListArray.from_arrays(offsets, items)
        return pa.table([columns[name] for name in schema.names], schema=schema)
