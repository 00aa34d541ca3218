"""Judgments of objects, read from wide Parquet in any of its forms.

An attribute is either one column of lists of numbers (its judgments of the object), or columns
``name__1``, ``name__2``, … with one judgment each, or one plain numeric column (one judgment of
each object). The forms may be mixed. Null and NaN stand for a judgment that was not made.

Who judged stands in lists of ids parallel to the judgments, a column ``name__raters`` for each
attribute or one column ``raters`` for all of them; or the j-th judgments are all one rater's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distfms.data.files.partition import place_of
from distfms.data.rows.columns import (
    ReadRows,
    as_floats,
    fill_numbers,
    number_view,
    probably_finite,
)
from distfms.data.rows.folds import FoldPlan, PartitionBatch, read_row_index
from distfms.data.rows.roles import OF_ALL, OF_ONE, Roles, is_number_list, rater_columns
from distfms.errors import DataError, SpecError
from distfms.stats.ragged import Ragged, offsets_of
from distfms.stats.signs import ColumnSigns, sample_of_lists

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.files.dataset import PartitionReader
    from distfms.data.files.partition import Partition

#: How it is known who judged.
Raters = Literal["auto", "columns", "positions", "ignore"]

#: In place of a column: the j-th judgments of all attributes of an object are one rater's.
BY_POSITION = ""

_NUMBERED = re.compile(r"(.+)__([0-9]+)")
#: Names that may be numbered, too, where all columns are: ``trust_1``, ``trust.1``, ``trust 1``.
_LOOSELY_NUMBERED = re.compile(r"(.+?)[_. -]?\(?([0-9]+)\)?")


def loosely_numbered(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of attributes that are numbered alike: ``shy1, shy2, age1, age2``.

    Two attributes or more, all with the same numbers, two or more; otherwise nothing.
    """
    by_attribute: dict[str, dict[str, str]] = {}
    for column in columns:
        match = _LOOSELY_NUMBERED.fullmatch(column)
        if match is None or _NUMBERED.fullmatch(column):
            return {}
        by_attribute.setdefault(match[1], {})[match[2]] = column
    numbers = {tuple(sorted(numbered)) for numbered in by_attribute.values()}
    if len(by_attribute) < 2 or len(numbers) != 1 or len(numbers.pop()) < 2:
        return {}
    return {name: list(numbered.values()) for name, numbered in by_attribute.items()}


def attribute_of(column: str, names: Collection[str]) -> str | None:
    """Name the attribute that a column would hold judgments of; None if it is none of these."""
    if column in names:
        return column
    for pattern in (_NUMBERED, _LOOSELY_NUMBERED):
        match = pattern.fullmatch(column)
        if match is not None and match[1] in names:
            return match[1]
    return None


@dataclass(frozen=True)
class AttributeColumns:
    """The columns of one attribute: one column of lists, or one or more of numbers.

    `raters` is the column with the ids of its raters, BY_POSITION, or None if they are not known.
    Judgments beyond the `limits` count as these.
    """

    name: str
    columns: tuple[str, ...]
    form: Literal["list", "numbers"]
    raters: str | None = None
    limits: tuple[float, float] = (-np.inf, np.inf)

    @property
    def most_judgments(self) -> float:
        """Judgments that one object can hold; of lists there is no limit."""
        return np.inf if self.form == "list" else len(self.columns)


@dataclass(frozen=True)
class JudgmentLayout:
    """Where the judgments of each attribute are, in the order of the features.

    Judgments of the raters `left_out`, by id, are not read.
    """

    attributes: tuple[AttributeColumns, ...]
    left_out: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All columns, those of an attribute together."""
        return tuple(column for attribute in self.attributes for column in attribute.columns)

    @cached_property
    def knows_raters(self) -> bool:
        """Whether it is known who judged."""
        return any(attribute.raters is not None for attribute in self.attributes)

    @cached_property
    def rater_columns(self) -> tuple[str, ...]:
        """Columns of the raters' ids."""
        return tuple(dict.fromkeys(a.raters for a in self.attributes if a.raters))

    @property
    def limits(self) -> np.ndarray:
        """Limits of the judgments of each attribute, shape (2, d)."""
        return np.array([attribute.limits for attribute in self.attributes]).reshape(-1, 2).T

    def within(self, limits: np.ndarray) -> JudgmentLayout:
        """Return the layout with such limits (2, d)."""
        pairs = zip(self.attributes, limits.T.tolist(), strict=True)
        return replace(self, attributes=tuple(replace(a, limits=tuple(p)) for a, p in pairs))

    def restricted(self, names: Sequence[str]) -> JudgmentLayout:
        """Return the layout of some attributes, in the order given."""
        by_name = {attribute.name: attribute for attribute in self.attributes}
        return replace(self, attributes=tuple(by_name[name] for name in names))


def detect_layout(
    schema: pa.Schema, roles: Roles, raters: Raters = "ignore", known_names: Collection[str] = ()
) -> JudgmentLayout:
    """Find the attributes among the feature columns, whose roles allow judgments.

    Columns ``trust: list<double>``, ``age__1``, ``age__2``, ``size`` of numbers are the three
    attributes ``trust``, ``age`` and ``size``, in the order of their first columns. Two forms of
    one attribute, or a number that occurs twice (``a__1, a__01``), are refused. One underscore, a
    point or a blank will do where all columns are numbered alike, or the names of the attributes
    are known. `raters` says how it is known who judged: by the columns of ids, which have to be
    there (``columns``) or may be (``auto``), or by the positions of the judgments.
    """
    plain = [name for name in roles.features if not is_number_list(schema.field(name).type)]
    is_loose = len(plain) == len(roles.features) and bool(loosely_numbered(plain))
    lists: dict[str, str] = {}
    numbered: dict[str, dict[int, str]] = {}
    order: dict[str, None] = {}
    for column in roles.features:
        match = _NUMBERED.fullmatch(column)
        if match is None and column not in known_names:
            loose = _LOOSELY_NUMBERED.fullmatch(column)
            if loose is not None and (is_loose or loose[1] in known_names):
                match = loose
        is_list = is_number_list(schema.field(column).type)
        name = match.group(1) if match and not is_list else column
        position = int(match.group(2)) if match and not is_list else -1
        order[name] = None
        if is_list:
            lists[name] = column
        elif position in numbered.setdefault(name, {}):
            raise SpecError(
                f"The columns {numbered[name][position]!r} and {column!r} hold the same "
                "judgment: exclude one."
            )
        else:
            numbered[name][position] = column
    attributes = (_attribute(name, lists, numbered) for name in order)
    ids = rater_columns(schema) if raters in ("auto", "columns") else {}
    if raters == "columns" and not ids:
        raise SpecError(
            "`raters: columns` needs lists of rater ids, as long as the lists of judgments: a "
            f"column `NAME{OF_ONE}` for each attribute, or one column `{OF_ALL}` for all. The data "
            "have neither."
        )
    common = BY_POSITION if raters == "positions" else ids.get(OF_ALL)
    return JudgmentLayout(tuple(replace(a, raters=ids.get(a.name, common)) for a in attributes))


def _attribute(
    name: str, lists: dict[str, str], numbered: dict[str, dict[int, str]]
) -> AttributeColumns:
    """Return the columns of one attribute, refusing two forms at once."""
    columns = numbered.get(name, {})
    if (name in lists and columns) or (-1 in columns and len(columns) > 1):
        listed = ", ".join(map(repr, columns.values()))
        raise SpecError(
            f"The attribute {name!r} has judgments in two forms (column {name!r} and {listed}): "
            "exclude one."
        )
    if name in lists:
        return AttributeColumns(name, (lists[name],), "list")
    return AttributeColumns(name, tuple(columns[k] for k in sorted(columns)), "numbers")


@dataclass(frozen=True)
class JudgmentBatch(PartitionBatch):
    """The judgments of one partition's objects, ordered by part.

    Attributes
    ----------
    attributes : tuple of Ragged
        Judgments of each attribute, one row an object; only those that were made.
    names : tuple of str
        Names of the attributes.
    label : ndarray of float64, shape (n,), or None
        What is to be predicted; None if no target was named.
    raters : tuple of Ragged, or None
        In the place of each judgment a whole number that tells its rater from the others of the
        object, −1 where that is not known; None where nothing is known of raters.
    rater_names : tuple of str
        What their ids are in the data; empty where positions tell them.
    place : float
        Number of the partition's fingerprint, see `place_of`.
    """

    attributes: tuple[Ragged, ...]
    names: tuple[str, ...]
    label: np.ndarray | None
    raters: tuple[Ragged, ...] | None = None
    rater_names: tuple[str, ...] = ()
    place: float = 0.0

    def signs(self) -> ColumnSigns:
        """Return which judgments and labels are far from the others of their attribute."""
        values = [ragged.content() for ragged in self.attributes]
        values += [] if self.label is None else [self.label]
        numbers = np.ones(len(values), dtype=bool)
        sums = np.array([column.sum() for column in values])
        return ColumnSigns.of(values, sample_of_lists(values), 0, numbers, self.place, sums)

    def part_view(self, part: int) -> tuple[tuple[Ragged, ...], Any, Any]:
        """Return the judgments, labels and weights of one part; views, nothing is copied."""
        return self.view(self.part_slices[part])

    def view(self, rows: slice) -> tuple[tuple[Ragged, ...], Any, Any]:
        """Return the judgments, labels and weights of a run of rows; nothing is copied."""
        attributes = tuple(ragged.rows(rows.start, rows.stop) for ragged in self.attributes)
        label = None if self.label is None else self.label[rows]
        weight = None if self.weight is None else self.weight[rows]
        return attributes, label, weight

    def raters_of(self, rows: slice) -> tuple[Ragged, ...] | None:
        """Return the raters of a run of rows."""
        if self.raters is None:
            return None
        # Attributes often share one value, which the statistics see at once while it is one.
        views = {id(codes): codes.rows(rows.start, rows.stop) for codes in self.raters}
        return tuple(views[id(codes)] for codes in self.raters)


def read_judgments(
    reader: PartitionReader,
    partition: Partition,
    layout: JudgmentLayout,
    roles: Roles,
    *,
    folds: FoldPlan | None = None,
    missing: Literal["error", "drop", "mean"] = "error",
) -> JudgmentBatch:
    """Read the judgments of one partition, objects ordered by part.

    Parameters
    ----------
    reader : PartitionReader or RowsReader
    partition : Partition
    layout : JudgmentLayout
    roles : Roles
        At most one target: the label.
    folds : FoldPlan, optional
        Without one all objects are part 0.
    missing : {'error', 'drop', 'mean'}
        Policy for missing labels: refused unless ``drop``, which leaves the object out. A missing
        judgment is no error: objects may have any number of judgments.

    Returns
    -------
    JudgmentBatch
        Owns its arrays, or shares them with immutable Arrow buffers.

    Raises
    ------
    DataError
        If a judgment or label is infinite, a label missing, or a weight negative or missing.
    """
    partition = partition.loaded()
    rows = read_row_index(reader, partition, roles, folds)
    label, unlabelled = _read_label(ReadRows(reader, partition, rows.order), roles, missing)
    if unlabelled is not None and label is not None:
        rows = rows.keep(~unlabelled)
        label = label[~unlabelled]
    attributes = list[Ragged]()
    raters = list[Ragged]()
    order = rows.order
    stored = ReadRows(reader, partition)
    if order is not None and len(order) < partition.n_rows:
        stored = ReadRows(reader, partition, np.sort(order))
        order = np.searchsorted(np.asarray(stored.order), order)
    ids = RaterCodes(stored, layout.rater_columns)
    for ragged, codes in _read_attributes(stored, layout, ids):
        attributes.append(ragged if order is None else _take(ragged, order))
        if codes is not None:
            raters.append(codes)
    if order is not None:
        taken = {id(codes): codes for codes in raters}
        taken = {key: _take(codes, order) for key, codes in taken.items()}
        raters = [taken[id(codes)] for codes in raters]
    return JudgmentBatch(
        rows,
        tuple(attributes),
        layout.names,
        label,
        tuple(raters) if layout.knows_raters else None,
        ids.names,
        place_of(partition.fingerprint),
    )


def _read_label(
    rows: ReadRows, roles: Roles, missing: str
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the labels, and a mask of objects without one if they are to be dropped."""
    if not roles.target:
        return None, None
    name = roles.target[0]
    label = np.empty(rows.n_rows)
    column = rows.reader.read(rows.partition, [name]).column(name)
    if fill_numbers(column, label, rows.order):
        return label, None
    rows.require_summable(name, label)
    absent = np.isnan(label)
    if missing != "drop":
        advice = "give every object a label, or choose `missing: drop` in the data section."
        raise rows.lacks(name, absent, advice)
    return label, absent


def _read_attributes(
    rows: ReadRows, layout: JudgmentLayout, raters: RaterCodes
) -> Iterator[tuple[Ragged, Ragged | None]]:
    """Decode the attributes and their raters a few columns at a time, as the layout has them."""
    columns = (
        (name, table.column(name))
        for table in rows.tables(layout.columns)
        for name in table.column_names
    )
    for attribute in layout.attributes:
        held = [next(columns) for _ in attribute.columns]
        read = _lists if attribute.form == "list" else _numbers
        ragged, finite = read(rows, held)
        codes = None
        if layout.knows_raters:
            codes = raters.of(ragged, attribute.raters, attribute.name)
        ragged = ragged.clipped(*attribute.limits)
        absent = None if finite else np.isnan(ragged.values)
        if layout.left_out and codes is not None:
            is_left_out = raters.are(layout.left_out, codes)
            absent = is_left_out if absent is None else is_left_out | absent
        if absent is None or not absent.any():
            yield ragged, codes
        else:
            yield _without(ragged, absent), codes and _without(codes, absent)


def _lists(rows: ReadRows, held: Sequence[tuple[str, Any]]) -> tuple[Ragged, bool]:
    """Return a column of lists, in the order of the file, and whether none is missing in them."""
    ((name, column),) = held
    ragged = lists_as_ragged(column)
    finite = probably_finite(ragged.values)
    if not finite:
        rows.require_summable(name, ragged.values, ragged.offsets)
    return ragged, finite


def lists_as_ragged(column: Any) -> Ragged:
    """Return a column of lists of numbers; null lists are empty, nulls inside lists become NaN."""
    chunks = [_list_chunk(chunk) for chunk in column.chunks]
    if len(chunks) == 1:
        return chunks[0]
    counts = np.concatenate([np.zeros(1, dtype=np.int64), *(c.counts() for c in chunks)])
    values = np.concatenate([np.empty(0), *(c.content() for c in chunks)])
    return Ragged(values, np.cumsum(counts))


def _list_chunk(chunk: Any) -> Ragged:
    """Return one Arrow array of lists; its buffers are shared where it has no null."""
    import pyarrow.compute as pc
    import pyarrow.types as pat

    if pat.is_fixed_size_list(chunk.type) or chunk.null_count:
        # A null list may cover values, which flatten leaves out; lengths say how many are left.
        lengths = np.nan_to_num(as_floats(pc.list_value_length(chunk))).astype(np.int64)
        return Ragged(as_floats(chunk.flatten()), np.concatenate([[0], np.cumsum(lengths)]))
    offsets = number_view(chunk.offsets).astype(np.int64)
    first = int(offsets[0])
    last = int(offsets[-1])
    offsets -= first
    return Ragged(as_floats(chunk.values.slice(first, last - first)), offsets)


def _without(ragged: Ragged, absent: np.ndarray) -> Ragged:
    present_before = np.zeros(len(absent) + 1, dtype=np.int64)
    np.cumsum(~absent, out=present_before[1:])
    return Ragged(ragged.values[~absent], present_before[ragged.offsets])


def _numbers(rows: ReadRows, held: Sequence[tuple[str, Any]]) -> tuple[Ragged, bool]:
    """Return numbered columns as lists, in the order of the file, and whether none is missing."""
    judgments = np.empty((len(held), rows.n_rows))
    finite = True
    for (name, column), out in zip(held, judgments, strict=True):
        if not fill_numbers(column, out):
            finite = False
            rows.require_summable(name, out)
    k, n = judgments.shape
    offsets = np.arange(0, k * n + 1, k, dtype=np.int64)
    return Ragged(np.ascontiguousarray(judgments.T).reshape(-1), offsets), finite


def _take(ragged: Ragged, order: np.ndarray) -> Ragged:
    """Return rows in another order; lists of one length are rows of a matrix."""
    counts = ragged.counts()
    k = int(counts[0]) if len(counts) else 0
    if k == 0 or (counts != k).any():
        return ragged.take(order)
    values = ragged.content().reshape(-1, k).take(order, axis=0).reshape(-1)
    return Ragged(values, np.arange(0, len(order) * k + 1, k, dtype=np.int64))


class RaterCodes:
    """The raters of one partition's judgments as whole numbers, −1 where one is not known."""

    def __init__(self, rows: ReadRows, columns: Any) -> None:
        self._rows = rows
        self._codes: dict[str, int] = {}
        self._lists: dict[str, Ragged] = {
            name: self._encoded(table.column(name), name)
            for table in (rows.tables(columns) if columns else ())
            for name in table.column_names
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the raters by code; of raters that are told by position there are none."""
        return tuple(self._codes)

    def of(self, judgments: Ragged, column: str | None, attribute: str) -> Ragged:
        """Return the raters of an attribute's judgments, which are in the order of the file.

        Raises
        ------
        DataError
            If there are not as many ids as judgments; a column for all attributes may have more.
        """
        codes = self._lists.get(column) if column is not None else None
        if codes is not None and np.array_equal(codes.offsets, judgments.offsets):
            return codes
        counts = judgments.counts()
        if column is None:
            return Ragged(np.full(counts.sum(), -1), judgments.offsets)
        places = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
        if column == BY_POSITION:
            self._lists[column] = Ragged(places, judgments.offsets)
            return self._lists[column]
        ids = self._lists[column]
        bad = (counts > 0) & (counts != ids.counts())
        if column == OF_ALL:
            bad = counts > ids.counts()
        if bad.any():
            place, _ = self._rows.describe(bad)
            row = int(np.argmax(bad))
            raise DataError(
                f"{self._rows.partition.called} has {counts[row]} judgments of {attribute!r} but "
                f"{ids.counts()[row]} ids in the column {column!r} ({place}): give every judgment "
                "the id of its rater (null if unknown), or set `multiselect.raters: ignore`."
            )
        return Ragged(ids.values[np.repeat(ids.offsets[:-1], counts) + places], judgments.offsets)

    def are(self, ids: Sequence[str], codes: Ragged) -> np.ndarray:
        """Mark the judgments of some raters."""
        return np.isin(codes.values, [code for code, name in enumerate(self.names) if name in ids])

    def _code_of(self, rater: Any, column: str) -> int:
        """Return the number of an id, the same for 7 and 7.0; −1 for none."""
        if rater is None or rater != rater:
            return -1
        if isinstance(rater, float | Decimal):
            if not math.isfinite(rater) or rater != int(rater):
                raise DataError(
                    f"{self._rows.partition.called} has {rater} in the column {column!r}: ids of "
                    "raters are whole numbers or text. If it holds judgments, rename it."
                )
            rater = int(rater)
        return self._codes.setdefault(str(rater), len(self._codes))

    def _encoded(self, column: pa.ChunkedArray, name: str) -> Ragged:
        import pyarrow.compute as pc

        lengths = [np.zeros(0)]
        values = [np.zeros(0, dtype=np.int64)]
        for chunk in column.chunks:
            lengths.append(np.nan_to_num(as_floats(pc.list_value_length(chunk))))
            raters = chunk.flatten().dictionary_encode()
            codes = [self._code_of(rater, name) for rater in raters.dictionary.to_pylist()]
            places = number_view(raters.indices.fill_null(-1))
            values.append(np.array([*codes, -1], dtype=np.int64)[places])
        return Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths).astype(np.int64)))
