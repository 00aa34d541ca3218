"""Long rows dealt out to temporary files by ranges of the object's id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.long_source import LongSource
from distfms.data.pivot import CodedJudgments
from distfms.data.write import writing_to
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLE = 2**16
_BATCH_ROWS = 2**18


def bucket_borders(
    source: LongSource, row_bytes: int, memory_bytes: int, max_buckets: int
) -> np.ndarray:
    """Ids that cut the objects into ranges of about equally many rows.

    Parameters
    ----------
    source : LongSource
    row_bytes : int
        Memory that a row takes when its range is worked on.
    memory_bytes : int
        What a range may take.
    max_buckets : int
        Bound of the open files.

    Returns
    -------
    ndarray
        (n_buckets − 1,) ascending; empty when everything fits, which mostly takes no pass.

    Raises
    ------
    DataError
        If the memory is too small for ``max_buckets`` ranges.
    """
    nothing = np.empty(0, dtype=np.int64)
    if source.rows_bound() * row_bytes <= memory_bytes:
        return nothing
    sample, n_rows = _sample_ids(source)
    # Ranges differ in size, as objects do: aim at two thirds of the memory.
    n_buckets = -(-3 * n_rows * row_bytes // (2 * memory_bytes))
    if n_rows * row_bytes <= memory_bytes or n_buckets <= 1:
        return nothing
    if n_buckets > max_buckets:
        least = 3 * n_rows * row_bytes // (2 * max_buckets)
        raise DataError(
            f"{n_rows} judgments do not fit in {max_buckets} temporary files of {memory_bytes} "
            f"bytes of memory each; allow at least {least} bytes."
        )
    sample = np.sort(sample)
    return np.unique(sample[np.arange(1, n_buckets) * len(sample) // n_buckets])


def _sample_ids(source: LongSource) -> tuple[np.ndarray, int]:
    """Every so-manieth id, and the number of rows."""
    kept: list[Any] = []
    n_rows, step, kind = 0, 1, np.dtype(np.int64)
    for batch in source.object_batches(_BATCH_ROWS):
        ids = batch.to_numpy(zero_copy_only=False)
        kept.extend(ids[-n_rows % step :: step])
        n_rows, kind = n_rows + len(ids), ids.dtype
        while len(kept) > 2 * _SAMPLE:
            kept, step = kept[::2], step * 2
    return np.array(kept, dtype=kind), n_rows


class Spill:
    """Rows by bucket: in memory where there is one bucket, else in one file each.

    Parameters
    ----------
    folder : Path
        For the files.
    borders : ndarray
        (n_buckets − 1,) smallest id of each bucket but the first.
    has_worker, has_label : bool
        Which optional columns the rows have.
    """

    def __init__(
        self, folder: Path, borders: np.ndarray, *, has_worker: bool, has_label: bool
    ) -> None:
        self.n_buckets = len(borders) + 1
        self.object_type: Any = None
        self._folder = folder
        self._borders = borders
        self._has_worker = has_worker
        self._has_label = has_label
        self._memory: list[pa.Table] = []
        self._files: list[Any] = []

    def add(self, rows: CodedJudgments) -> None:
        """Append rows, each to its bucket.

        Raises
        ------
        DataError
            If the disk is full.
        """
        table = self._to_table(rows)
        self.object_type = rows.objects.type
        if self.n_buckets == 1:
            self._memory.append(table)
            return
        bucket = self._bucket_of(rows.objects)
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self.n_buckets + 1))
        table = table.take(order)
        with writing_to(self._folder):
            for j, file in enumerate(self._open(table.schema)):
                if ends[j] < ends[j + 1]:
                    file.write_table(table.slice(ends[j], ends[j + 1] - ends[j]))

    def buckets(self) -> Iterator[CodedJudgments]:
        """Rows of one bucket after the other, in source order; each can be had once."""
        if self.n_buckets == 1:
            import pyarrow as pa

            tables, self._memory = self._memory, []
            yield self._from_table(pa.concat_tables(tables))
            return
        with writing_to(self._folder):
            for file in self._files:
                file.close()
        for j in range(len(self._files)):
            rows = self._read(self._path(j))
            if len(rows.values):
                yield rows

    def _read(self, path: Path) -> CodedJudgments:
        import pyarrow as pa

        with pa.OSFile(str(path)) as handle:
            rows = self._from_table(pa.ipc.open_stream(handle).read_all())
        path.unlink()
        return rows

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{bucket:05d}.arrow"

    def _open(self, schema: pa.Schema) -> list[Any]:
        if not self._files:
            import pyarrow as pa

            paths = [str(self._path(j)) for j in range(self.n_buckets)]
            self._files = [pa.ipc.new_stream(path, schema) for path in paths]
        return self._files

    def _bucket_of(self, objects: pa.Array) -> np.ndarray:
        encoded = objects.dictionary_encode()
        ids = encoded.dictionary.to_numpy(zero_copy_only=False)
        return np.searchsorted(self._borders, ids, side="right")[encoded.indices.to_numpy()]

    def _to_table(self, rows: CodedJudgments) -> pa.Table:
        import pyarrow as pa

        columns = {
            "object": rows.objects,
            "attribute": pa.array(rows.attributes),
            "value": pa.array(rows.values),
        }
        if self._has_worker:
            columns["worker"] = rows.workers
        if self._has_label:
            columns["label"] = pa.array(rows.labels)
        return pa.table(columns)

    def _from_table(self, table: pa.Table) -> CodedJudgments:
        import pyarrow as pa

        def single(name: str) -> pa.Array:
            chunks = table.column(name).chunks
            return (
                pa.concat_arrays(chunks) if chunks else pa.array([], table.schema.field(name).type)
            )

        return CodedJudgments(
            single("object"),
            single("attribute").to_numpy(),
            single("value").to_numpy(),
            single("worker") if self._has_worker else None,
            single("label").to_numpy() if self._has_label else None,
        )
