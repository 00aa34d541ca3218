"""What a sample of rows says about the columns of a file that nobody has described."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distfms.data.files.partition import Dataset
from distfms.data.files.texts import nearly_numbers, read_numbers
from distfms.data.rows.roles import is_categorical, is_number, is_number_list

#: Most rows and values that are looked at.
_ROWS, _CELLS = 20_000, 4_000_000
#: Fewest rows from which order and distinct values mean something.
_MANY = 20
#: Most levels of a target that is read as classes.
_LEVELS = 12
_TARGETS = ("target", "label", "y", "class", "outcome", "response", "diagnosis")
_ID = re.compile(r"(.*[_ ])?id", re.IGNORECASE)
_OBJECT = re.compile(r"(.*[_ ])?(id|object|item|subject|image|document|product)", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"(.*[_ ])?(attribute|feature|question|criterion|measure|aspect|variable)s?", re.IGNORECASE
)
_VALUE = re.compile(r"(.*[_ ])?(value|rating|score|judge?ment|answer|response)s?", re.IGNORECASE)
_RATER = re.compile(
    r"((rater|worker|annotator|judge|coder|reviewer|labell?er|user)s?)([_ ]?(id|name))?",
    re.IGNORECASE,
)
#: What the part before a separator must leave: groups of several columns.
_SEPARATORS = ("__", ".", ":", "/", "_")

Kind = Literal["number", "text", "time", "judgments", "other"]


@dataclass(frozen=True)
class Column:
    """One column in the sample.

    `levels` are its distinct values where there are few, `excluded` says why it should not be a
    feature, `as_numbers` that it is text which is read as numbers, `nearly` that few values are
    none.
    """

    name: str
    kind: Kind
    n_levels: int
    n_missing: int
    levels: tuple[Any, ...] = ()
    whole: bool = False
    excluded: str = ""
    suspect: str = ""
    as_numbers: bool = False
    nearly: str = ""

    @property
    def has_classes(self) -> bool:
        """Whether values are classes rather than numbers, as far as one can see."""
        if self.kind == "text":
            return True
        return self.kind == "number" and (self.n_levels == 2 or (self.whole and bool(self.levels)))


@dataclass(frozen=True)
class Look:
    """The columns of a file, the roles that they seem to have, and the judgments in long form."""

    columns: dict[str, Column] = field(default_factory=dict)
    n_rows: int = 0
    id: str | None = None
    rater: str | None = None
    target: Column | None = None
    long: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()

    @property
    def features(self) -> list[Column]:
        """Columns to learn from."""
        roles = {self.id, self.rater, self.target and self.target.name}
        return [c for c in self.columns.values() if c.name not in roles and not c.excluded]

    @property
    def separator(self) -> str | None:
        """What separates the common beginnings of names of most features."""
        for separator in _SEPARATORS:
            parts = Counter(c.name.partition(separator)[0] for c in self.features)
            together = sum(n for n in parts.values() if n > 1)
            if len(parts) > 1 and together > len(self.features) / 2:
                return separator
        return None


def look_at(dataset: Dataset) -> Look:
    """Look at the first rows of a dataset."""
    schema, partition = dataset.schema, dataset.partitions[0]
    most = max(_MANY, min(_ROWS, _CELLS // max(1, len(schema))))
    table = dataset.reader.read(partition, schema.names).slice(0, most)
    columns = {name: _column(name, table.column(name).combine_chunks()) for name in schema.names}
    if long := _long_form(table, columns):
        labels = table.column(long["attribute"]).unique().to_pylist()
        return Look(columns, dataset.n_rows, long=long, labels=tuple(map(str, labels)))
    ids = [name for name, c in columns.items() if _ID.fullmatch(name) and c.kind != "judgments"]
    raters = [name for name in columns if _RATER.fullmatch(name)]
    id, rater = next(iter(ids), None), next(iter(raters), None)
    able = [c for n, c in columns.items() if n not in (id, rater) and c.kind in ("number", "text")]
    able = [c for c in able if not c.excluded]
    named = [c for c in able if c.name.lower() in _TARGETS]
    numbers = [c for c in able if c.kind == "number"][::-1]
    target = next(iter([*named, *able[:-2:-1], *numbers]), None)
    return Look(columns, dataset.n_rows, id, rater, target)


def nearly_numbers_in(dataset: Dataset, names: Sequence[str]) -> list[str]:
    """Return what users should know of columns whose first rows are numbers but for a few."""
    if not names:
        return []
    reader, partition = dataset.reader, dataset.partitions[0]
    first = reader.each_batch(partition, names, lambda own, piece: own.read(piece, names))
    with closing(first):
        table = next(first).slice(0, _ROWS)
    columns = [table.column(name).combine_chunks() for name in names]
    return [text for text in map(nearly_numbers, names, columns) if text]


def _column(name: str, values: pa.Array) -> Column:
    n = len(values)
    if is_number_list(values.type):
        return Column(name, "judgments", n, values.null_count)
    if pt.is_temporal(values.type):
        return Column(name, "time", n, values.null_count, excluded="holds dates or times")
    if not (is_number(values.type) or is_categorical(values.type) or pt.is_null(values.type)):
        return Column(name, "other", n, values.null_count, excluded=f"holds {values.type}")
    is_text, as_numbers, nearly = is_categorical(values.type), False, ""
    if is_text:
        values = values.cast(pa.string())
        numbers, wrong = read_numbers(values)
        codes = pc.any(pc.match_substring_regex(values, r"^0\d+$")).as_py()
        if not wrong.true_count and 2 * numbers.null_count < n and not codes:
            values, is_text, as_numbers = numbers, False, True
        else:
            nearly = nearly_numbers(name, values)
    found = values.drop_null()
    distinct = found.unique()
    levels = sorted(distinct.to_pylist()) if len(distinct) <= _LEVELS else []
    column = Column(
        name,
        "text" if is_text else "number",
        len(distinct),
        values.null_count,
        tuple(levels),
        as_numbers=as_numbers,
        nearly=nearly,
    )
    return _doubts(column, found, n)


def _doubts(column: Column, found: pa.Array, n: int) -> Column:
    """Return a column with what speaks against using it."""
    if not column.n_levels:
        return replace(column, excluded="has no value")
    if column.n_levels == 1:
        return replace(column, excluded="has the same value in every row")
    if column.kind == "text":
        differ = column.n_levels > max(_MANY, n / 2)
        why = f"holds text that differs in {column.n_levels:,} of {n:,} rows"
        return replace(column, excluded=why) if differ else column
    numbers = np.asarray(found.cast(pa.float64(), safe=False))
    whole = bool((numbers == np.round(numbers)).all())
    column = replace(column, whole=whole)
    if n < _MANY or column.n_missing:
        return column
    steps = np.diff(numbers)
    if (steps > 0).all() or (steps < 0).all():
        how = "rises" if steps[0] > 0 else "falls"
        return replace(column, excluded=f"{how} with every row, like a row number or a time")
    if whole and column.n_levels == n:
        return replace(column, suspect="holds whole numbers that all differ, like an id")
    return column


def _long_form(table: pa.Table, columns: dict[str, Column]) -> dict[str, str]:
    """Return the roles of columns where each row is one judgment; nothing where it is not."""
    roles: dict[str, str] = {}
    named = {"attribute": _ATTRIBUTE, "value": _VALUE, "worker": _RATER, "object": _OBJECT}
    for role, pattern in named.items():
        for name in columns:
            if name not in roles.values() and pattern.fullmatch(name):
                roles.setdefault(role, name)
    needed = {"object", "attribute", "value"}
    if not needed <= roles.keys() or columns[roles["value"]].kind != "number":
        return {}
    objects, attributes = (columns[roles[role]] for role in ("object", "attribute"))
    repeated = objects.n_levels < table.num_rows and attributes.n_levels < table.num_rows / 2
    return roles if repeated else {}


def reasons(columns: Sequence[Column]) -> list[str]:
    """Return why columns are excluded, a line for those of one reason."""
    by_reason: dict[str, list[str]] = {}
    for column in columns:
        if column.excluded:
            by_reason.setdefault(column.excluded, []).append(column.name)
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
