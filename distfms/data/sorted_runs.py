"""Tables larger than memory, sorted by way of files on disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.write import writing_to

if TYPE_CHECKING:
    import pyarrow as pa

#: Values of a run that are remembered, to cut the whole into ranges.
_SAMPLES = 64


class SortedRuns:
    """Rows in sorted files below `folder`, read back in ranges of their key.

    Rows of equal key stay in the order in which they came, whatever the number `run_rows` of rows
    that are held before they are sorted and written. The key has no nulls.
    """

    def __init__(self, folder: Path, key: str, run_rows: int) -> None:
        self.n_rows = 0
        self._folder = folder
        self._key = key
        self._run_rows = run_rows
        self._pending: list[pa.Table] = []
        self._n_pending = 0
        self._files: list[Path] = []
        self._sample: list[Any] = []

    def add(self, table: pa.Table) -> None:
        """Append rows."""
        self.n_rows += table.num_rows
        self._pending.append(table)
        self._n_pending += table.num_rows
        if self._n_pending >= self._run_rows:
            self._end_run()

    def ranges(self, rows: int) -> Iterator[pa.Table]:
        """Yield all rows by ascending ranges of the key, about `rows` at a time.

        A key is in one range only, and the rows of a range are not sorted.
        """
        if self._pending:
            self._end_run()
        n_ranges = -(-self.n_rows // rows)
        sample = sorted(self._sample)
        cuts = dict.fromkeys(sample[k * len(sample) // n_ranges] for k in range(1, n_ranges))
        starts = [0] * len(self._files)
        for cut in (*cuts, None):
            yield self._range(starts, cut)

    def _end_run(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.concat_tables(self._pending)
        self._pending, self._n_pending = [], 0
        table = table.take(pc.sort_indices(table.column(self._key)))
        # As many rows stand for each value of the sample, also where the last run is short.
        every = np.arange(0, table.num_rows, max(1, self._run_rows // _SAMPLES))
        self._sample += table.column(self._key).take(pa.array(every)).to_pylist()
        path = self._folder / f"{len(self._files):05d}.arrow"
        with writing_to(self._folder), pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
        self._files.append(path)

    def _range(self, starts: list[int], cut: Any) -> pa.Table:
        """Read the rows of each run from its start to the cut, which becomes its start."""
        import pyarrow as pa

        pieces = []
        for number, path in enumerate(self._files):
            with pa.memory_map(str(path)) as handle:
                table = pa.ipc.open_file(handle).read_all()
                keys = table.column(self._key)
                stop = table.num_rows
                if cut is not None:
                    stop = bisect_left(keys, cut, key=lambda value: value.as_py())
                pieces.append(table.slice(starts[number], stop - starts[number]))
                starts[number] = stop
        return pa.concat_tables(pieces)
