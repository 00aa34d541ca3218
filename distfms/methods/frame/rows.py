"""From partitions of rows to mergeable statistics: what methods share.

Every reader here is picklable, gives one statistic for each fold and one for the held-out rows,
and says in ``key`` all that its partials depend on beside the partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.batches import Categories, ColumnPlan, RowBatch, read_rows, scan_categories
from distfms.data.rows.columns import probably_finite
from distfms.data.rows.folds import FoldPlan
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.errors import DataError
from distfms.methods.frame.contract import PartialReader
from distfms.methods.frame.read import Sampled, inputs_of
from distfms.spec import DataSection
from distfms.stats.base import Bundle, Folded, Statistic
from distfms.stats.comoments import CoMoments
from distfms.stats.signs import ColumnSigns

if TYPE_CHECKING:
    from distfms.data.files.dataset import PartitionReader

S = TypeVar("S", bound=Statistic)
T = TypeVar("T")

#: Raised whenever a partial's content changes meaning, so that cached ones are not used again.
FORMAT = 7
#: Distinct values of a target that may be classes.
_FEW_VALUES = 10


def section_roles(
    dataset: Dataset, section: DataSection, *, judgments: bool = False, classes: bool = False
) -> Roles:
    """Resolve the roles that a data section names; raises SpecError or DataError."""
    names = ("target", "features", "exclude", "weight", "query", "id", "time")
    named = {name: getattr(section, name) for name in names}
    return resolve_roles(dataset.schema, **named, judgments=judgments, classes=classes)


@dataclass(frozen=True, eq=False)
class RowCounts:
    """What was counted of some rows; a mergeable statistic.

    Attributes
    ----------
    n_rows : int
        Rows read.
    n_dropped : int
        Rows left out for a missing value.
    n_weightless : int
        Rows left out because their weight is 0.
    n_missing : ndarray of int64, shape (d,)
        Missing values of each feature of the block among the rows read.
    values : ndarray of shape (P, 11)
        Distinct values of each target, ascending, then NaN; of more than ten the least eleven.
    signs : ColumnSigns
        What tells of trouble in features and targets; the first part has that of all rows.
    """

    n_rows: int
    n_dropped: int
    n_weightless: int
    n_missing: np.ndarray
    values: np.ndarray
    signs: ColumnSigns

    @classmethod
    def from_block(cls, block: RowBatch, part: int, *, count_missing: bool = True) -> RowCounts:
        """Count the rows of a part; gaps only where the policy leaves any.

        Of a batch whose values are overwritten afterwards the first part comes first.
        """
        rows = block.part_slices[part]
        missing = np.zeros(block.n_features, dtype=np.int64)
        if count_missing:
            for column, values in enumerate(block.features[:, rows]):
                if not probably_finite(values):
                    missing[column] = np.count_nonzero(np.isnan(values))
        return cls(
            n_rows=rows.stop - rows.start,
            n_dropped=block.dropped[part] if block.dropped else 0,
            n_weightless=block.rows.n_weightless[part] if block.rows.n_weightless else 0,
            n_missing=missing,
            values=distinct_values(block.target[:, rows]),
            signs=ColumnSigns.empty(len(block.values)) if part else block.signs(),
        )

    def all_in(self, *values: float) -> np.ndarray:
        """Return of each target whether it has no other values, shape (P,)."""
        return (np.isnan(self.values) | np.isin(self.values, values)).all(axis=1)

    def missing_by_source(self, plan: ColumnPlan) -> dict[str, int]:
        """Return missing values by feature as the data have them, without zeros."""
        features = plan.columns[: len(plan.roles.features)]
        counts = {column.name: int(self.n_missing[column.start]) for column in features}
        return {name: count for name, count in counts.items() if count}

    def merge(self, later: RowCounts) -> RowCounts:
        """Return the counts of the rows of both."""
        return RowCounts(
            self.n_rows + later.n_rows,
            self.n_dropped + later.n_dropped,
            self.n_weightless + later.n_weightless,
            self.n_missing + later.n_missing,
            distinct_values(np.concatenate((self.values, later.values), axis=1)),
            self.signs.merge(later.signs),
        )


def distinct_values(rows: np.ndarray) -> np.ndarray:
    """Return the distinct values of rows (P, n), as `RowCounts` has them."""
    table = np.full((len(rows), _FEW_VALUES + 1), np.nan)
    for entry, row in zip(table, rows, strict=True):
        values = np.unique(row[:1000])
        # Else so many are clear already.
        if len(row) > 1000 and np.isfinite(values).sum() <= _FEW_VALUES:
            values = np.unique(row)
        values = values[np.isfinite(values)][: len(entry)]
        entry[: len(values)] = values
    return table


def few_whole(values: np.ndarray) -> list[int]:
    """Return distinct values of a target (11,) that may be classes; empty if they may not."""
    distinct = values[np.isfinite(values)]
    are_few = 2 <= len(distinct) <= _FEW_VALUES and (distinct == np.round(distinct)).all()
    return distinct.astype(int).tolist() if are_few else []


@dataclass(frozen=True)
class FoldedSource(ABC):
    """Rows of a dataset that belong to folds and to the held-out part; base of sources.

    `reader` travels to the workers in place of the whole list of partitions; with `held_out` all
    rows are test rows.
    """

    reader: PartitionReader
    section: DataSection
    seed: int
    held_out: bool

    @property
    def n_parts(self) -> int:
        """Number of parts: the folds (at least one) and the held-out rows."""
        return self.folds.n_parts

    @property
    def folds(self) -> FoldPlan:
        """How rows are divided while they are read."""
        test = 1.0 if self.held_out else self.section.test
        return FoldPlan(self.section.folds, test, self.seed)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""

    @abstractmethod
    def read(self, partition: Partition) -> Any:
        """Read a batch, its rows or objects ordered by part."""

    def each_batch(
        self, partition: Partition, function: Callable[[Self, Partition], T]
    ) -> Iterator[T]:
        """Call a function with sources and partitions; of a large one, batch by batch."""
        if not partition.batch_rows:
            return iter([function(self, partition)])
        reader: Any = self.reader

        def call(piece_reader: Any, piece: Partition) -> T:
            return function(replace(self, reader=piece_reader), piece)

        return reader.each_batch(partition, self.columns, call)

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        return {
            "format": FORMAT,
            "missing": self.section.missing,
            "folds": self.section.folds,
            "test": self.section.test,
            "seed": self.seed,
            "held_out": self.held_out,
        }


@dataclass(frozen=True)
class RowSource(FoldedSource):
    """Rows of a dataset with all that is needed to read a partition of them.

    Attributes
    ----------
    plan : ColumnPlan
        What a batch has.
    positive : float, optional
        Value of the target that is read as 1, and all others as −1.
    everything : ColumnPlan, optional
        All columns that decide which rows are left out, where the plan has some of these.
    share : float
        Of the rows of folds that are looked at.
    """

    plan: ColumnPlan
    positive: float | None = None
    everything: ColumnPlan | None = None
    share: float = 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        names = [column.name for column in self.read_plan.columns]
        return self.plan.roles.with_row_columns(names)

    @property
    def read_plan(self) -> ColumnPlan:
        """All columns that decide which rows there are."""
        return self.everything or self.plan

    def read(self, partition: Partition) -> RowBatch:
        """Read a partition, its rows ordered by part."""
        batch = read_rows(
            self.reader,
            partition,
            self.read_plan,
            folds=self.folds,
            missing=self.section.policy,
            share=self.share,
        )
        if self.everything is not None:
            by_name = {column.name: column for column in self.everything.columns}
            rows: list[int] = []
            for kept in self.plan.columns:
                column = by_name[kept.name]
                rows += range(column.start, column.stop)
            batch = batch.restricted(rows, self.plan.n_features)
        if self.positive is not None:
            batch.target[:] = plus_minus(self.positive, batch.target)
        return batch

    def inputs(self, batch: RowBatch, rows: slice) -> np.ndarray:
        """Return features of some rows of a batch as the data have them; see `read.inputs_of`."""
        return inputs_of(batch, self.plan, rows)

    def moments(self, slab: slice | None = None) -> SummaryReader:
        """Return the reader of ``moments`` (`CoMoments` of features and targets) and ``counts``.

        With a `slab`, only these rows of the matrix.
        """
        depends_on = {} if slab is None else {"slab": [slab.start, slab.stop]}
        summarise = partial(_moments, slab, self.section.missing == "mean")
        return SummaryReader(self, "moments", summarise, depends_on)

    def counts(self) -> SummaryReader:
        """Return the reader of ``counts`` alone."""
        return SummaryReader(self, "counts", _counts)

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        roles = self.plan.roles
        everything = self.everything
        return {
            **super().key(),
            "columns": _described(self.plan),
            "read": None if everything is None else _described(everything),
            "target": list(roles.target),
            "positive": self.positive,
            "weight": roles.weight,
            "fold_key": roles.fold_key,
            **({"share": self.share} if self.share < 1.0 else {}),
        }


def _described(plan: ColumnPlan) -> list[list[Any]]:
    return [
        [c.name, c.levels, *([c.knots, c.flag, c.limits] if c.expanded else ())]
        for c in plan.columns
    ]


def plus_minus(positive: float, target: np.ndarray) -> np.ndarray:
    """Return 1 for one value of the target, −1 for others."""
    return np.where(target == positive, 1.0, -1.0)


@contextmanager
def naming(partition: Partition) -> Iterator[None]:
    """Say of an error about data in which partition it was found."""
    try:
        yield
    except DataError as error:
        groups = partition.row_groups
        place = f"row group {groups[0]}" if len(groups) == 1 else f"row groups {list(groups)}"
        raise DataError(f"In {partition.called}, {place}: {error}") from error


@dataclass(frozen=True)
class SummaryReader(PartialReader):
    """Reads statistics of the rows of each part.

    A picklable function makes them, by name, of a batch and the number of the part; `depends_on` is
    what they depend on beside the rows, as plain values; `numbers_rows` says that they depend on
    the numbers of the rows, too.
    """

    source: FoldedSource
    kind: str
    summarise: Callable[[Any, int], Mapping[str, Any]]
    depends_on: Mapping[str, Any] = field(default_factory=dict)
    numbers_rows: bool = False

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise each of its parts."""
        batch = self.source.read(partition)
        with naming(partition):
            by_part = [self.summarise(batch, part) for part in range(self.source.n_parts)]
        members = {}
        for name in by_part[0]:
            statistics = [summaries[name] for summaries in by_part]
            members[name] = Folded(tuple(statistics))
        return Bundle(members)

    def sampled(self, share: float, by_values: bool = True) -> SummaryReader:
        """Return the reader of the same statistics and of a share of the rows, as `SAMPLE`.

        Parameters
        ----------
        share : float
            See `sample_share`; of 0 the reader stays as it is.
        by_values : bool
            Whether values of features may decide which rows of one id are drawn.
        """
        if share <= 0.0:
            return self
        source: Any = self.source
        summarise = Sampled(source.plan, share, source.seed, by_values, self.summarise)
        depends_on = {**self.depends_on, "share": share, "by_values": by_values}
        return SummaryReader(source, self.kind, summarise, depends_on, numbers_rows=True)

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {**self.source.key(), "kind": self.kind, **self.depends_on}

    def partition_key(self, partition: Partition) -> str:
        """Return the fingerprint, and where rows are numbered the number of the first."""
        if not self.numbers_rows:
            return partition.fingerprint
        return f"{partition.fingerprint}:{partition.row_offset}"


def _counts(batch: RowBatch, part: int) -> dict[str, Any]:
    return {"counts": RowCounts.from_block(batch, part)}


def _moments(
    slab: slice | None, count_missing: bool, batch: RowBatch, part: int
) -> Mapping[str, Any]:
    # Counts first: the moments use the batch as scratch.
    counts = RowCounts.from_block(batch, part, count_missing=count_missing)
    rows = batch.part_slices[part]
    weight = None if batch.weight is None else batch.weight[rows]
    sums = None if batch.part_sums is None else batch.part_sums[part]
    values = batch.values[:, rows]
    moments = CoMoments.from_block(values, weight, rows=slab, overwrite=True, sums=sums)
    return {"moments": moments, "counts": counts}


@dataclass(frozen=True)
class CategoryReader(PartialReader):
    """Reads the levels of categorical columns, of all rows alike: ``categories``."""

    reader: PartitionReader
    columns: tuple[str, ...]
    weight: str | None = None

    def __call__(self, partition: Partition) -> Bundle:
        """Read the levels of a partition."""
        levels = scan_categories(partition, self.reader, self.columns, self.weight)
        return Bundle({"categories": Folded((levels, Categories({})))})

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {
            "format": FORMAT,
            "kind": "categories",
            "columns": list(self.columns),
            "weight": self.weight,
        }


def require_levels(categories: Categories) -> dict[str, list[str]]:
    """Levels by column, once all partitions have been read; a column without values is refused."""
    for name, levels in categories.levels.items():
        if not levels:
            raise DataError(
                f"All values of the categorical column {name!r} are missing: leave it out with "
                f"`exclude: [{name}]`."
            )
    return {name: list(levels) for name, levels in categories.levels.items()}


def identifier_remarks(levels: Mapping[str, Sequence[str]], n_rows: int) -> list[str]:
    """Warn of text columns with a value of its own for 0.9 of the rows or more, 10 at least."""
    return [
        f"The text column {name!r} has {len(texts):,} different values in {n_rows:,} rows: it "
        f"looks like an identifier. Exclude it (`exclude: [{name}]`) or name it `data.id`."
        for name, texts in levels.items()
        if len(texts) >= max(10, 0.9 * n_rows)
    ]
