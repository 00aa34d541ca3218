"""Labels of judged objects, from a table of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distfms.data.long_source import TableFile, as_numbers, list_files, require_column
from distfms.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 2**20


@dataclass(frozen=True)
class Labels:
    """Label per object.

    Parameters
    ----------
    name : str
        Column the labels come from.
    ids : ndarray
        (n,) ascending.
    values : ndarray of float64
        (n,)
    used : ndarray of bool
        (n,) which ones have been looked up; the only part that changes.
    """

    name: str
    ids: np.ndarray
    values: np.ndarray
    used: np.ndarray

    @classmethod
    def read(
        cls,
        source: str | os.PathLike[str],
        object: str,
        label: str | None,
        object_type: pa.DataType,
    ) -> Labels:
        """Read the table; rows without a label are as good as absent.

        Parameters
        ----------
        source : path
            Parquet or CSV.
        object : str
            Its id column.
        label : str or None
            Its label column; None where it has only one more.
        object_type : pyarrow.DataType
            Type of the ids among the judgments.

        Raises
        ------
        DataError
            If a column is missing or not numeric, an id is null, or an object has two rows.
        """
        ids, values, name = [], [], label
        for file in list_files(source):
            name = _label_column(file, object, name)
            first_row = 0
            for table in file.batches([object, name], {object: object_type}, _BATCH_ROWS):
                ids.append(_ids(table.column(object), object, object_type, file.path))
                values.append(as_numbers(table.column(name), name, file.path, first_row))
                first_row += table.num_rows
        assert name is not None
        all_ids = np.concatenate(ids) if ids else np.empty(0)
        all_values = np.concatenate(values) if values else np.empty(0)
        order = np.argsort(all_ids, kind="stable")
        all_ids, all_values = all_ids[order], all_values[order]
        repeated = all_ids[1:] == all_ids[:-1]
        if repeated.any():
            first = all_ids[int(np.argmax(repeated))]
            raise DataError(f"object {first!s} has more than one row in the labels {source}.")
        known = ~np.isnan(all_values)
        return cls(name, all_ids[known], all_values[known], np.zeros(known.sum(), dtype=bool))

    def look_up(self, ids: pa.Array) -> np.ndarray:
        """Labels of the objects ``ids``, (n,) float64, NaN where there is none."""
        wanted = ids.to_numpy(zero_copy_only=False)
        if not len(self.ids):
            return np.full(len(wanted), np.nan)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        found = self.ids[at] == wanted
        self.used[at[found]] = True
        return np.where(found, self.values[at], np.nan)

    def n_unused(self) -> int:
        """Labels that nobody has looked up."""
        return int(np.count_nonzero(~self.used))


def _label_column(file: TableFile, object: str, label: str | None) -> str:
    names = file.schema().names
    require_column(names, object, "object", file.path)
    if label is None:
        others = [name for name in names if name != object]
        if len(others) != 1:
            raise DataError(
                f"{file.path} has {len(others)} columns besides {object!r}: say which is the label."
            )
        return others[0]
    require_column(names, label, "label", file.path)
    return label


def _ids(column: pa.ChunkedArray, name: str, kind: pa.DataType, path: str) -> np.ndarray:
    import pyarrow as pa

    if column.null_count:
        raise DataError(f"column {name!r} of {path} has {column.null_count} missing values.")
    try:
        return column.cast(kind).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column {name!r} of {path} does not hold {kind} as the judgments do: {error}"
        ) from error
