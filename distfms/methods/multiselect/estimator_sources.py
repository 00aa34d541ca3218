"""Where an estimator's objects are: in memory, in a Dask collection, in Parquet files.

A :class:`Source` gives :class:`~distfms.methods.multiselect.objects.ObjectBlock`. One in memory is
a single block; Dask collections and Parquet files are read block by block, and what is computed of
the blocks is merged along the tree that the engine uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from distfms.data.dataset import ParquetDataset, Partition, PartitionReader, open_dataset
from distfms.data.judgments import JudgmentLayout, detect_layout, read_judgments
from distfms.data.roles import Roles, resolve_roles
from distfms.engine.executors import LocalExecutor, n_processors
from distfms.engine.graph import Unit
from distfms.engine.mapreduce import map_reduce
from distfms.errors import DataError, SpecError
from distfms.methods.estimator_input import map_dask
from distfms.methods.multiselect.objects import (
    ObjectBlock,
    Summarise,
    Summary,
    check_finite,
    from_array,
)
from distfms.methods.multiselect.read_columns import TrainedColumns
from distfms.stats.base import merge_tree

T = TypeVar("T")
BlockFunction = Callable[[ObjectBlock], Any]


class Source(ABC):
    """Objects with judgments, wherever they are."""

    @abstractmethod
    def reduce(self, statistic: BlockFunction, attributes: np.ndarray | None = None) -> Summary:
        """Summarise every block and merge; one pass over the data.

        Parameters
        ----------
        statistic : callable
            Picklable, from a block to a statistic.
        attributes : ndarray of int, optional
            Positions of the attributes wanted.
        """

    @abstractmethod
    def collect(self, function: BlockFunction, attributes: np.ndarray) -> list[Any]:
        """Apply a function to some attributes of every block; results in order."""

    @abstractmethod
    def stack(self, function: BlockFunction, attributes: np.ndarray, tail: tuple[int, ...]) -> Any:
        """Join the arrays that a function gives for the blocks; `tail` is the shape of a row.

        Returns
        -------
        ndarray or dask.array.Array
            Lazy where the input is.
        """


@dataclass(frozen=True, eq=False)
class MemorySource(Source):
    """Objects in memory.

    Attributes
    ----------
    block : ObjectBlock
    """

    block: ObjectBlock

    def reduce(self, statistic: BlockFunction, attributes: np.ndarray | None = None) -> Summary:
        """See :class:`Source`."""
        return Summarise(statistic, attributes)(self.block)

    def collect(self, function: BlockFunction, attributes: np.ndarray) -> list[Any]:
        """See :class:`Source`."""
        return [function(self.block.take(attributes))]

    def stack(self, function: BlockFunction, attributes: np.ndarray, tail: tuple[int, ...]) -> Any:
        """See :class:`Source`."""
        return function(self.block.take(attributes))


# --- Dask ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DaskSource(Source):
    """Objects of a Dask collection; work runs on whatever scheduler Dask is set to.

    Attributes
    ----------
    collection : dask.array.Array or dask.dataframe.DataFrame
    read : callable
        Picklable, from a chunk in memory to a block.
    parts, label, weight : list of Delayed
        One of each per chunk; the latter may be None.
    """

    collection: Any
    read: Callable[[Any], ObjectBlock]
    parts: list[Any]
    label: list[Any] | None
    weight: list[Any] | None

    def reduce(self, statistic: BlockFunction, attributes: np.ndarray | None = None) -> Summary:
        """See :class:`Source`."""
        # Delayed values have `merge` too, lazily: the tree becomes part of the graph.
        return merge_tree(self._apply(Summarise(statistic, attributes))).compute()

    def collect(self, function: BlockFunction, attributes: np.ndarray) -> list[Any]:
        """See :class:`Source`."""
        import dask

        return list(dask.compute(*self._apply(partial(_of_taken, function, attributes))))

    def stack(self, function: BlockFunction, attributes: np.ndarray, tail: tuple[int, ...]) -> Any:
        """See :class:`Source`."""
        applied = partial(_of_chunk, partial(_of_taken, function, attributes), self.read)
        return map_dask(self.collection, applied, tail)

    def _apply(self, function: BlockFunction) -> list[Any]:
        """One delayed result for each chunk."""
        import dask

        work = dask.delayed(partial(_of_chunk, function, self.read))
        nothing = [None] * len(self.parts)
        labels, weights = self.label or nothing, self.weight or nothing
        return [work(*chunk) for chunk in zip(self.parts, labels, weights, strict=True)]


def _of_taken(function: BlockFunction, attributes: np.ndarray, block: ObjectBlock) -> Any:
    return function(block.take(attributes))


def _of_chunk(
    function: BlockFunction,
    read: Callable[[Any], ObjectBlock],
    chunk: Any,
    label: Any = None,
    weight: Any = None,
) -> Any:
    """Read one chunk of a Dask collection and apply a function to it, on a worker."""
    block = read(chunk)
    if label is not None:
        block = replace(block, label=_chunk_of(label, block.n_objects))
    if weight is not None:
        block = replace(block, weight=_chunk_of(weight, block.n_objects))
    return function(block)


def _chunk_of(values: Any, n_objects: int) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size != n_objects:
        raise DataError(
            f"A chunk of X has {n_objects} objects and its chunk of y (or the weights) "
            f"{array.size}: divide them alike."
        )
    return array


def read_array(chunk: Any) -> ObjectBlock:
    """Read an array of judgments; see :func:`~distfms.methods.multiselect.objects.from_array`."""
    return check_finite(from_array(np.asarray(chunk, dtype=np.float64)))


def dask_source(
    X: Any, read: Callable[[Any], ObjectBlock], label: Any = None, weight: Any = None
) -> DaskSource:
    """Objects of a Dask array or frame.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame
        An array may be divided along the attributes and judgments too; it is put together there.
    read : callable
        Picklable, from a chunk in memory to a block.
    label, weight : Dask collection, or array where `X` knows the sizes of its chunks; optional

    Raises
    ------
    DataError
        If these cannot be divided like `X`.
    """
    if hasattr(X, "columns"):
        parts, sizes = list(X.to_delayed()), None
    else:
        X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
        parts = list(X.to_delayed().ravel())
        sizes = None if np.isnan(X.chunks[0]).any() else X.chunks[0]
    chunks = [None if v is None else _divided(v, sizes, len(parts)) for v in (label, weight)]
    return DaskSource(X, read, parts, *chunks)


def _divided(values: Any, sizes: Sequence[int] | None, n_parts: int) -> list[Any]:
    """Divide labels or weights like the chunks of X."""
    import dask
    import dask.array as da

    if not dask.is_dask_collection(values):
        if sizes is None:
            raise DataError(
                "X does not know how many objects its chunks hold: give y and sample_weight as "
                "Dask collections divided like X, or as names of columns of X."
            )
        values = da.from_array(np.asarray(values), chunks=-1)
    if sizes is not None and hasattr(values, "rechunk") and not np.isnan(values.shape[0]):
        if values.shape[0] != sum(sizes):
            raise DataError(f"X has {sum(sizes)} objects, y (or the weights) {values.shape[0]}.")
        values = values.rechunk({0: tuple(sizes)})
    parts = list(np.ravel(values.to_delayed()))
    if len(parts) != n_parts:
        raise DataError(
            f"X comes in {n_parts} chunks and y (or the weights) in {len(parts)}: divide them "
            "alike."
        )
    return parts


# --- Parquet ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ParquetSource(Source):
    """Objects of Parquet files, read anew in every pass.

    Attributes
    ----------
    dataset : ParquetDataset
    layout : JudgmentLayout
        Of attributes in the order of the model, without those that nothing is asked of.
    positions : ndarray of int
        Position of each of them among the attributes of the model.
    roles : Roles
    n_jobs : int or None
        Partitions read side by side, as scikit-learn counts.
    """

    dataset: ParquetDataset
    layout: JudgmentLayout
    positions: np.ndarray
    roles: Roles
    n_jobs: int | None

    def reduce(self, statistic: BlockFunction, attributes: np.ndarray | None = None) -> Summary:
        """See :class:`Source`."""
        read = self._reader(Summarise(statistic), attributes)
        units = [Unit(p.fingerprint, p, p.n_bytes) for p in self.dataset.partitions]
        with self._executor() as executor:
            return map_reduce(units, read, Summary.merge, executor).value

    def collect(self, function: BlockFunction, attributes: np.ndarray) -> list[Any]:
        """See :class:`Source`."""
        with self._executor() as executor:
            return executor.map(self._reader(function, attributes), self.dataset.partitions)

    def stack(self, function: BlockFunction, attributes: np.ndarray, tail: tuple[int, ...]) -> Any:
        """See :class:`Source`."""
        return np.concatenate(self.collect(function, attributes))

    def _executor(self) -> LocalExecutor:
        """Threads for as many partitions side by side as `n_jobs` says."""
        if self.n_jobs == 0:
            raise SpecError("n_jobs is 0; it is a number of workers, None for one, or -1 for all.")
        workers = 1 if self.n_jobs is None else self.n_jobs
        return LocalExecutor(workers if workers > 0 else max(1, n_processors() + 1 + workers))

    def _reader(
        self, function: BlockFunction, attributes: np.ndarray | None
    ) -> Callable[[Partition], Any]:
        """Make the function from a partition to its result; it reads no other attribute."""
        layout = self.layout
        if attributes is not None:
            held = dict(zip(self.positions.tolist(), layout.attributes, strict=True))
            layout = JudgmentLayout(tuple(held[int(a)] for a in attributes))
        return partial(_of_partition, function, self.dataset.reader, layout, self.roles)


def _of_partition(
    function: Callable[[ObjectBlock], T],
    reader: PartitionReader,
    layout: JudgmentLayout,
    roles: Roles,
    partition: Partition,
) -> T:
    block = read_judgments(reader, partition, layout, roles)
    ids = None if roles.id is None else block.rows.id
    return function(
        ObjectBlock(block.attributes, block.n_rows, block.names, block.label, block.weight, ids)
    )


def parquet_source(
    path: Any,
    *,
    label: Any = None,
    weight: Any = None,
    id: str | None = None,
    exclude: Sequence[str] = (),
    n_jobs: int | None = None,
) -> ParquetSource:
    """Objects of Parquet files to fit to: every column without another role is an attribute.

    Parameters
    ----------
    path : path
        File, folder, glob or URL.
    label, weight, id : str, optional
        Column names.
    exclude : sequence of str
        Names or globs of columns that are no attributes.
    n_jobs : int, optional

    Raises
    ------
    SpecError, DataError
    """
    dataset = open_dataset(path)
    _check_column_names(label, weight)
    roles = resolve_roles(
        dataset.schema, target=label, exclude=exclude, weight=weight, id=id, judgments=True
    )
    layout = detect_layout(dataset.schema, roles)
    return ParquetSource(dataset, layout, np.arange(len(layout.names)), roles, n_jobs)


def parquet_source_of(
    path: Any,
    names: Sequence[str],
    positions: np.ndarray,
    trained: TrainedColumns,
    *,
    label: Any = None,
    weight: Any = None,
    id: str | None = None,
    n_jobs: int | None = None,
) -> ParquetSource:
    """Objects of Parquet files to apply a model to; only its selected attributes need be there.

    Parameters
    ----------
    path : path
    names : sequence of str
        Of the selected attributes.
    positions : ndarray of int
        Of the selected attributes among those of the model.
    trained : TrainedColumns
        What is known of the training data.
    label, weight, id : str, optional
        Column names.
    n_jobs : int, optional

    Raises
    ------
    DataError
        If the files hold no judgments of one of them.
    """
    dataset = open_dataset(path)
    _check_column_names(label, weight)
    taken = {label, weight, id}
    available = [column for column in dataset.schema.names if column not in taken]
    columns = trained.find(names, available)
    roles = resolve_roles(
        dataset.schema,
        target=label,
        features=columns or ("*",),
        weight=weight,
        id=id,
        judgments=True,
    )
    layout = detect_layout(dataset.schema, roles).restricted(names)
    return ParquetSource(dataset, layout, positions, roles, n_jobs)


def trained_columns(source: Source, attributes: np.ndarray) -> TrainedColumns:
    """Say which columns some attributes were read from.

    Parameters
    ----------
    source : Source
        That was fitted to.
    attributes : ndarray of int

    Returns
    -------
    TrainedColumns
        Empty unless the objects are in files: frames are always read as they come.
    """
    if not isinstance(source, ParquetSource):
        return TrainedColumns()
    layout = JudgmentLayout(tuple(source.layout.attributes[a] for a in attributes))
    return TrainedColumns.of(layout, source.dataset.schema.names)


def _check_column_names(*values: Any) -> None:
    if not all(value is None or isinstance(value, str) for value in values):
        raise DataError("With the path of Parquet files y and sample_weight name columns of them.")
