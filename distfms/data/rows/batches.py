"""Row batches: one partition as a C-ordered ``(columns, rows)`` array of float64.

``batch @ batch.T`` of such an array is one BLAS rank-k update, and each part of the rows is a
contiguous run of columns, so per-fold statistics are slices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np

from distfms.data.files.partition import place_of
from distfms.data.rows.columns import LARGEST, ReadRows, batch_buffer, fill_column, number_view
from distfms.data.rows.folds import FoldPlan, PartitionBatch, RowIndex, read_row_index
from distfms.data.rows.roles import Roles
from distfms.errors import DataError, first_of
from distfms.stats.signs import ColumnSigns, sample_of

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.files.dataset import PartitionReader
    from distfms.data.files.partition import Partition

MissingPolicy = Literal["error", "drop", "mean"]
"""What to do about missing features: refuse them, drop the row, or leave NaN for the mean."""

#: Sums that no column with a value beyond `LARGEST` has.
_ORDINARY = LARGEST / 1e10


@dataclass(frozen=True)
class SourceColumn:
    """A Parquet column and the batch rows ``[start, stop)`` it becomes.

    One for a number, one for each level of a category; `levels` are ascending, None for a number.
    A target that is a category is one row, of the positions of its values among the levels. A
    number with `knots` is cut to its `limits` and followed by max(0, x − k) for each knot, and any
    feature with a `flag` by a row that is 1 where it is missing.
    """

    name: str
    start: int
    stop: int
    levels: tuple[str, ...] | None = None
    is_target: bool = False
    knots: tuple[float, ...] = ()
    flag: bool = False
    limits: tuple[float, ...] = ()

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the rows of the batch: ``column`` or ``column=level``, ``column>knot``, …."""
        names = [self.name, *(f"{self.name}>{knot!r}" for knot in self.knots)]
        if self.levels is not None and not self.is_target:
            names = [f"{self.name}={level}" for level in self.levels]
        return (*names, f"{self.name} missing") if self.flag else tuple(names)

    @property
    def expanded(self) -> bool:
        """Whether the column has rows beside those of its values or levels."""
        return bool(self.knots) or self.flag


@dataclass(frozen=True)
class ColumnPlan:
    """How the columns of a dataset become rows of a batch: features first, then targets.

    `unknown` says what to do about a category that is no level: refuse it (while learning, where
    all levels are known), or leave all its columns 0 (while predicting).
    """

    columns: tuple[SourceColumn, ...]
    roles: Roles
    unknown: Literal["error", "zero"] = "error"

    @classmethod
    def of(
        cls,
        roles: Roles,
        levels: Mapping[str, Sequence[str]],
        *,
        unknown: Literal["error", "zero"] = "error",
    ) -> ColumnPlan:
        """Plan the batch of all features and targets; `levels` are of either."""
        categorical = (*roles.text_features, *roles.text_targets)
        return _planned(roles, tuple((name, tuple(levels[name])) for name in categorical), unknown)

    @property
    def n_columns(self) -> int:
        """Number of rows of the batch."""
        return self.columns[-1].stop if self.columns else 0

    @property
    def n_features(self) -> int:
        """Number of rows of the batch that are features; the targets follow."""
        return self.n_columns - len(self.roles.target)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the rows of the batch."""
        return tuple(name for column in self.columns for name in column.value_names)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the rows of the batch that are features."""
        return self.value_names[: self.n_features]

    @property
    def numbers(self) -> np.ndarray:
        """Which rows of the batch are numbers as the data have them, shape (n_columns,)."""
        is_number = np.zeros(self.n_columns, dtype=bool)
        is_number[[column.start for column in self.columns if column.levels is None]] = True
        return is_number

    @property
    def column_groups(self) -> dict[str, tuple[int, ...]]:
        """Batch rows of each source feature; those of a category belong together."""
        features = self.columns[: len(self.roles.features)]
        return {column.name: tuple(range(column.start, column.stop)) for column in features}

    def restricted(self, features: Sequence[str]) -> ColumnPlan:
        """Return the plan of some source features, in the order given, and all targets."""
        by_name = {column.name: column for column in self.columns}
        texts = tuple(name for name in features if name in self.roles.text_features)
        roles = replace(self.roles, features=tuple(features), text_features=texts)
        columns = [by_name[name] for name in (*features, *roles.target)]
        return replace(self, columns=_side_by_side(columns), roles=roles)

    def with_levels(self, name: str, levels: Sequence[str]) -> ColumnPlan:
        """Return the plan with a column as positions among (a target), or indicators of, levels."""
        columns = [replace(c, levels=tuple(levels)) if c.name == name else c for c in self.columns]
        return replace(self, columns=_side_by_side(columns))

    def expanded(
        self,
        knots: Mapping[str, Sequence[float]],
        flagged: Collection[str],
        limits: Mapping[str, Sequence[float]],
    ) -> ColumnPlan:
        """Return the plan with knots and limits of some numbers and flags of missing values."""
        columns = []
        for column in self.columns:
            name = column.name
            inner = tuple(knots.get(name, ()))
            ends = tuple(limits.get(name, ()))
            columns.append(replace(column, knots=inner, limits=ends, flag=name in flagged))
        return replace(self, columns=_side_by_side(columns))


@lru_cache(maxsize=8)
def _planned(
    roles: Roles, levels: tuple[tuple[str, tuple[str, ...]], ...], unknown: Literal["error", "zero"]
) -> ColumnPlan:
    """Return the plan of these columns; a job asks for the same one again and again."""
    levels_of = dict(levels)
    columns = [SourceColumn(name, 0, 0, levels_of.get(name)) for name in roles.features]
    columns += [SourceColumn(name, 0, 0, levels_of.get(name), True) for name in roles.target]
    return ColumnPlan(_side_by_side(columns), roles, unknown)


def _side_by_side(columns: Sequence[SourceColumn]) -> tuple[SourceColumn, ...]:
    stops = list(accumulate(len(column.value_names) for column in columns))
    starts = [0, *stops]
    return tuple(
        replace(column, start=start, stop=stop)
        for column, start, stop in zip(columns, starts, stops, strict=False)
    )


@dataclass(frozen=True)
class RowBatch(PartitionBatch):
    """One partition as numbers.

    Attributes
    ----------
    values : ndarray of float64, shape (n_columns, n_rows)
        C-ordered; features, then targets. NaN where a feature is missing (policy ``mean``).
        A view of the thread's buffer: valid until the next batch is read on the same thread.
        :meth:`copy` keeps it.
    names : tuple of str
        Names of the rows of `values`.
    n_features : int
        Rows of `values` that are features.
    dropped : tuple of int
        Rows left out of each part: because of any missing value (policy ``drop``) or because
        the target is missing (policy ``mean``). Empty where none was.
    part_sums : ndarray of float64, shape (n_parts, n_columns), or None
        Unweighted sums of `values` over the rows of each part, taken while they were in the
        cache; NaN where a value is missing. None where rows were dropped.
    numbers : ndarray of bool, shape (n_columns,), or None
        Which rows of `values` are numbers of the data, not indicators or codes; None for all.
    place : float
        Number of the partition's fingerprint, see `place_of`.
    sample : ndarray of float64, shape (n_columns, m), or None
        Where rows were dropped, what `sample_of` gives of all rows.
    """

    values: np.ndarray
    names: tuple[str, ...]
    n_features: int
    dropped: tuple[int, ...] = ()
    part_sums: np.ndarray | None = None
    numbers: np.ndarray | None = None
    place: float = 0.0
    sample: np.ndarray | None = None

    @property
    def features(self) -> np.ndarray:
        """Features, shape (n_features, n_rows)."""
        return self.values[: self.n_features]

    @property
    def target(self) -> np.ndarray:
        """Targets, shape (n_targets, n_rows)."""
        return self.values[self.n_features :]

    def restricted(self, columns: Sequence[int], n_features: int) -> RowBatch:
        """Return a batch of some rows of `values`, features first; it owns its values."""
        kept = np.asarray(columns, dtype=np.intp)
        return replace(
            self,
            values=self.values[kept],
            names=tuple(self.names[c] for c in kept),
            n_features=n_features,
            part_sums=None if self.part_sums is None else self.part_sums[:, kept],
            numbers=None if self.numbers is None else self.numbers[kept],
            sample=None if self.sample is None else self.sample[kept],
        )

    def kept(self, mask: np.ndarray) -> RowBatch:
        """Return a batch of the rows that are marked; it owns its values."""
        rows = self.rows.keep(mask)
        values = self.values[:, mask]
        return replace(self, rows=rows, values=values, dropped=(), part_sums=None, sample=None)

    def signs(self) -> ColumnSigns:
        """Return what tells of trouble in the columns."""
        values = self.values
        sums = values.sum(axis=1) if self.part_sums is None else self.part_sums.sum(axis=0)
        sample = self.sample
        if sample is None:
            sample = sample_of(values, self.row_ids, not np.isfinite(sums).all())
        numbers = np.ones(len(values), dtype=bool) if self.numbers is None else self.numbers
        return ColumnSigns.of(values, sample, self.n_features, numbers, self.place, sums)

    def copy(self) -> RowBatch:
        """Return a batch that owns its values."""
        return replace(self, values=self.values.copy())


def read_rows(
    reader: PartitionReader,
    partition: Partition,
    plan: ColumnPlan,
    *,
    folds: FoldPlan | None = None,
    missing: MissingPolicy = "error",
    share: float = 1.0,
) -> RowBatch:
    """Read one partition as a batch, rows ordered by part.

    Parameters
    ----------
    reader : PartitionReader or RowsReader
    partition : Partition
    plan : ColumnPlan
    folds : FoldPlan, optional
        Without one all rows are part 0.
    missing : {'error', 'drop', 'mean'}
        Policy for null and NaN in features. A missing target is refused by ``error``; under
        ``drop`` and ``mean`` it drops the row, for a label that was made up teaches nothing.
    share : float
        Of the rows of folds; the others are decoded and not looked at. See `RowIndex.drawn`.

    Returns
    -------
    RowBatch
        Its values are valid until the next batch is read on the same thread.

    Raises
    ------
    DataError
        If a value is infinite (the message names column, file and row group), or missing where
        the policy refuses it, if a weight is negative or missing, or a category is unknown.

    Notes
    -----
    Rows of weight 0 are left out, whatever their values. Columns are decoded about 4 MiB at a time
    on the calling thread and copied straight into a buffer that the thread reuses, so memory is one
    batch plus these.
    """
    partition = partition.loaded()
    folds = folds or FoldPlan()
    rows = read_row_index(reader, partition, plan.roles, folds)
    if share < 1.0:
        rows = rows.drawn(share, folds.seed)
    values = batch_buffer(plan.n_columns, len(rows.part))
    filler = _Filler(ReadRows(reader, partition, rows.order), plan, rows, missing, values)
    columns: Sequence[SourceColumn] = plan.columns
    features = plan.roles.features
    matrix = reader.matrix(partition, features) if features else None
    if matrix is not None:
        filler.fill_numbers(columns[: len(features)], matrix)
        columns = columns[len(features) :]
    by_name = {column.name: column for column in columns}
    for table in reader.column_tables(partition, list(by_name)):
        filler.fill([by_name[name] for name in table.column_names], table)
    incomplete = filler.incomplete
    batch = RowBatch(
        rows,
        values,
        plan.value_names,
        plan.n_features,
        part_sums=filler.part_sums,
        numbers=plan.numbers,
        place=place_of(partition.fingerprint),
    )
    if incomplete is None or not incomplete.any():
        return batch
    return replace(
        batch,
        dropped=tuple(int(np.count_nonzero(incomplete[part])) for part in rows.part_slices),
        part_sums=None,
        sample=sample_of(values, rows.row_ids, True),
        rows=rows.keep(~incomplete),
        values=_compact(values, ~incomplete),
    )


def require_observed(names: Sequence[str], weight: np.ndarray) -> None:
    """Refuse columns without a single value, once all partitions have been read."""
    empty = [name for name, observed in zip(names, weight, strict=True) if observed == 0]
    if empty:
        raise DataError(
            f"All values of {first_of([repr(name) for name in empty])} are missing in every "
            "file: leave these columns out with `exclude`."
        )


@dataclass(eq=False)
class _Filler:
    """Fills a batch some columns at a time and applies the policy on what is not finite."""

    read: ReadRows
    plan: ColumnPlan
    rows: RowIndex
    missing: MissingPolicy
    values: np.ndarray
    incomplete: np.ndarray | None = None

    def __post_init__(self) -> None:
        cuts = self.rows.part_slices
        self.order = self.rows.order
        self.parts = [(part, cut) for part, cut in enumerate(cuts) if cut.stop > cut.start]
        self.part_sums = np.zeros((len(cuts), len(self.values)))

    def fill(self, columns: Sequence[SourceColumn], table: pa.Table) -> None:
        """Fill the rows of the batch of some source columns that follow one another."""
        for column, stored in zip(columns, table.columns, strict=True):
            if column.levels is None:
                fill_column(stored, self.values[column.start], self.order)
            else:
                self._fill_category(column, stored)
            self._expand(column)
        self._sum(columns)

    def fill_numbers(self, columns: Sequence[SourceColumn], matrix: np.ndarray) -> None:
        """Fill the rows of the batch of columns of numbers from an array (n, k) of them."""
        matrix = matrix if self.order is None else matrix[self.order]
        if any(column.expanded for column in columns):
            for column, values in zip(columns, matrix.T, strict=True):
                self.values[column.start] = values
                self._expand(column)
        else:
            self.values[columns[0].start : columns[-1].stop] = matrix.T
        self._sum(columns)

    def _expand(self, column: SourceColumn) -> None:
        """Fill the rows of a column that follow its values."""
        values = self.values[column.start]
        if column.limits:  # what is infinite stays so, and is refused
            np.clip(values, *column.limits, out=values, where=np.isfinite(values))
        for row, knot in enumerate(column.knots, start=column.start + 1):
            np.subtract(values, knot, out=self.values[row])
            np.maximum(self.values[row], 0.0, out=self.values[row])
        if column.flag:
            np.isnan(values, out=self.values[column.stop - 1], casting="unsafe")

    def _sum(self, columns: Sequence[SourceColumn]) -> None:
        """Add up what was filled, and look at what the sums raise a doubt about."""
        rows = slice(columns[0].start, columns[-1].stop)
        with np.errstate(over="ignore", invalid="ignore"):
            for part, cut in self.parts:
                self.part_sums[part, rows] = self.values[rows, cut].sum(axis=1)
        # What has too large values has, but for a rare chance, too large a sum.
        if not (np.abs(self.part_sums[:, rows]) < _ORDINARY).all():
            doubtful = np.any(~(np.abs(self.part_sums) < _ORDINARY), axis=0)
            for column in columns:
                if doubtful[column.start : column.stop].any():
                    self.read.require_summable(column.name, self.values[column.start])
                    self._apply_policy(column.name, np.isnan(self.values[column.start]))

    def _fill_category(self, column: SourceColumn, stored: pa.ChunkedArray) -> None:
        """Fill the indicator rows of a category, or the codes of a target."""
        levels = column.levels or ()
        codes = level_codes(stored, levels)
        if self.order is not None:
            codes = codes[self.order]
        if self.plan.unknown == "error" and (codes == -2).any():
            first = np.argmax(codes == -2)
            place = first if self.order is None else self.order[first]
            raise DataError(
                f"The categorical column {column.name!r} of {self.read.partition.called} holds "
                f"{stored[int(place)].as_py()!r}, which is not among its listed levels."
            )
        if column.is_target:
            self.values[column.start] = codes
        else:
            for level, row in enumerate(range(column.start, column.stop)):
                np.equal(codes, level, out=self.values[row], casting="unsafe")
        self.values[column.start : column.stop, codes == -1] = np.nan

    def _apply_policy(self, name: str, absent: np.ndarray) -> None:
        """Refuse missing values or note them, as the policy says."""
        if not absent.any():  # also where a sum of finite values has overflown
            return
        is_target = name in self.plan.roles.target
        if self.missing == "drop" or (self.missing == "mean" and is_target):
            self.incomplete = absent if self.incomplete is None else self.incomplete | absent
            return
        if self.missing == "mean":
            return
        choices = "`missing: drop`" if is_target else "`missing: drop` or `mean`"
        advice = f"fill them, or choose {choices} in the data section."
        raise self.read.lacks(name, absent, advice)


def _compact(values: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Drop columns of a batch in place, giving a C-ordered view of the same memory."""
    n_kept = int(np.count_nonzero(keep))
    flat = values.reshape(-1)
    for row in range(len(values)):  # ascending, so a row is read before it is overwritten
        flat[row * n_kept : (row + 1) * n_kept] = values[row, keep]
    return flat[: len(values) * n_kept].reshape(len(values), n_kept)


# --- levels of categories -------------------------------------------------------------------------

MAX_LEVELS = 1000
"""Most levels that a column may have."""


@dataclass(frozen=True)
class Categories:
    """Sorted levels (by code points) of each categorical column; a mergeable statistic."""

    levels: Mapping[str, tuple[str, ...]]

    def merge(self, later: Categories) -> Categories:
        """Unite the levels of two parts of the data; too many of a column are refused."""
        names = dict.fromkeys((*self.levels, *later.levels))
        united = {
            name: tuple(sorted({*self.levels.get(name, ()), *later.levels.get(name, ())}))
            for name in names
        }
        for name, levels in united.items():
            _check_levels(name, levels)
        return Categories(united)


def scan_categories(
    partition: Partition, reader: PartitionReader, columns: Sequence[str], weight: str | None = None
) -> Categories:
    """Find the levels of columns in one partition; too many of a column are refused.

    Rows whose `weight` is 0 have no say.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    levels: dict[str, tuple[str, ...]] = {}
    partition = partition.loaded()
    rows = read_row_index(reader, partition, Roles((), (), weight))
    for table in ReadRows(reader, partition, rows.order).tables(columns):
        for name in table.column_names:
            texts = pc.unique(table.column(name).cast(pa.string())).to_pylist()
            levels[name] = tuple(sorted(text for text in texts if text is not None))
            _check_levels(name, levels[name])
    return Categories(levels)


def _check_levels(name: str, levels: Sequence[str]) -> None:
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"The categorical column {name!r} has more than {MAX_LEVELS} levels: it looks like an "
            f"identifier or free text. Leave it out with `exclude: [{name}]`, or make it a number "
            "or a coarser category."
        )


def level_codes(column: pa.ChunkedArray, levels: Sequence[str]) -> np.ndarray:
    """Return the position of each value of a column of strings among ascending levels.

    As int64 (n,): −1 for missing, −2 for values that are no level.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.string()).combine_chunks()
    positions = pc.index_in(texts, pa.array(levels, pa.string()))
    strange = pc.and_not(positions.is_null(), texts.is_null())
    return number_view(pc.if_else(strange, -2, positions.fill_null(-1)))
