"""Labels of judged objects, from a table of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import number_view
from distfms.data.long_source import Source, as_numbers, list_tables, require_column, whole
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 2**20


@dataclass(frozen=True)
class Labels:
    """Label of each object.

    Attributes
    ----------
    ids : pyarrow.Array, length n
    values : ndarray of float64, shape (n,)
    used : ndarray of bool, shape (n,)
        Which ones have been looked up; the only part that changes.
    """

    ids: pa.Array
    values: np.ndarray
    used: np.ndarray

    @classmethod
    def read(
        cls,
        source: Source,
        object: str,
        label: str,
        object_type: pa.DataType,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Labels:
        """Read the columns `object` and `label`; rows without a label are as good as absent.

        Raises
        ------
        DataError
            If a column is missing or not numeric, an id is null, or an object has two rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        ids, values = [], []
        for file in list_tables(source, storage_options):
            names = file.schema().names
            require_column(names, object, "object", file.path)
            require_column(names, label, "label", file.path)
            first_row = 0
            for table in file.batches([object, label], {object: object_type}, _BATCH_ROWS):
                ids.append(_ids(table.column(object), object, object_type, file.path))
                values.append(as_numbers(table.column(label), label, file.path, first_row))
                first_row += table.num_rows
        found = pa.chunked_array(ids, object_type)
        counts = pc.value_counts(found)
        twice = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            raise DataError(
                f"object {twice[0]['values']} has more than one row in the labels {source}."
            )
        numbers = np.concatenate([np.empty(0), *values])
        known = ~np.isnan(numbers)
        own = whole(found).filter(pa.array(known))
        return cls(own, numbers[known], np.zeros(len(own), dtype=bool))

    def look_up(self, ids: pa.Array) -> np.ndarray:
        """Return the labels of objects, float64 of shape (n,), NaN where there is none."""
        import pyarrow.compute as pc

        at = pc.index_in(ids, self.ids).fill_null(-1)
        found = number_view(at)
        self.used[found[found >= 0]] = True
        return np.append(self.values, np.nan)[found]

    def n_unused(self) -> int:
        """Return how many labels nobody has looked up."""
        return int(np.count_nonzero(~self.used))


def _ids(column: pa.ChunkedArray, name: str, kind: pa.DataType, path: str) -> pa.Array:
    import pyarrow as pa

    if column.null_count:
        raise DataError(f"column {name!r} of {path} has {column.null_count} missing values.")
    try:
        return whole(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column {name!r} of {path} does not hold {kind} as the judgments do: {error}"
        ) from error
