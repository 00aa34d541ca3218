"""Columns of frames as numbers, for estimators: strings and categories become indicators.

They are named ``column=level``, as they are in a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from distfms.data.categories import MAX_LEVELS, check_levels, level_codes
from distfms.data.columns import fill_numbers
from distfms.data.roles import is_categorical, is_number
from distfms.errors import DataError

MissingRule = Literal["error", "mean"]


@dataclass(frozen=True)
class Columns:
    """How the columns of a frame become columns of numbers.

    Attributes
    ----------
    names : tuple of str
        Columns of the frame.
    levels : mapping of str to tuple of str
        Levels of those that are categories, ascending.
    """

    names: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the columns of numbers: ``column`` or ``column=level``."""
        return tuple(e for name in self.names for e in self._encoded(name))

    @property
    def sources(self) -> tuple[str, ...]:
        """For each column of numbers the column that it comes from."""
        return tuple(name for name in self.names for _ in self._encoded(name))

    def _encoded(self, name: str) -> tuple[str, ...]:
        levels = self.levels.get(name)
        return (name,) if levels is None else tuple(f"{name}={level}" for level in levels)

    def restricted(self, names: Sequence[str]) -> Columns:
        """Keep some of the columns, in the order given."""
        return Columns(tuple(names), {n: v for n, v in self.levels.items() if n in set(names)})

    def encode(
        self, frame: Any, missing: MissingRule, unknown: Literal["error", "mean"] = "error"
    ) -> np.ndarray:
        """Columns of a frame as numbers.

        Parameters
        ----------
        frame : pandas.DataFrame of n rows
            Its other columns do not matter.
        missing : {"error", "mean"}
            Refuse missing values, or leave NaN for them.
        unknown : {"error", "mean"}
            Refuse a category that is no level, or leave NaN for it, whatever `missing` says.

        Returns
        -------
        ndarray of shape (d, n), C-ordered

        Raises
        ------
        DataError
            Naming the column, if it is not there or holds what cannot be used.
        """
        labels = {str(label): label for label in frame.columns}
        absent = [name for name in self.names if name not in labels]
        if absent:
            raise DataError(f"The data lack the columns {', '.join(absent)}.")
        values = np.empty((len(self.encoded), len(frame)))
        start = 0
        for name in self.names:
            stop = start + len(self._encoded(name))
            odd = self._fill(name, frame[labels[name]], values[start:stop], unknown)
            _check_finite(name, values[start:stop], missing)
            if odd is not None:
                values[start:stop, odd] = np.nan
            start = stop
        return values

    def _fill(self, name: str, series: Any, out: np.ndarray, unknown: str) -> np.ndarray | None:
        """Fill the rows of one column; mark the values that are no level, if there are any."""
        if name not in self.levels:
            fill_numeric(name, series, out[0])
            return None
        codes, others = level_codes(_arrow(name, series), self.levels[name])
        if others and unknown == "error":
            raise DataError(f"Column {name!r} holds {others[0]!r}, which is not among its levels.")
        for level, row in enumerate(out):
            np.equal(codes, level, out=row, casting="unsafe")
        out[:, codes == -1] = np.nan
        return codes == -2 if others else None


def fill_numeric(name: str, series: Any, out: np.ndarray) -> None:
    """Copy a pandas column of numbers into an array; missing values become NaN.

    Raises
    ------
    DataError
        If it holds anything else.
    """
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
        out[:] = series.to_numpy()
        return
    column = _arrow(name, series)
    if not is_number(column.type) and column.null_count < len(column):
        raise DataError(
            f"Column {name!r} holds {column.type}, which is neither a number nor a category: "
            f"convert it or leave it out."
        )
    fill_numbers(column.cast("float64"), out)


def _arrow(name: str, series: Any) -> Any:
    """Return a pandas column as a chunked Arrow array."""
    import pyarrow as pa

    try:
        array = pa.Array.from_pandas(series)
    except pa.ArrowException as error:
        raise DataError(f"Column {name!r} holds values of several kinds: {error}") from error
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _check_finite(name: str, values: np.ndarray, missing: MissingRule) -> None:
    if np.isfinite(values).all():
        return
    if np.isinf(values).any():
        raise DataError(f"Column {name!r} contains infinity: replace or drop these values.")
    if missing == "error":
        raise DataError(
            f"Column {name!r} contains NaN (missing values): fill them, or set missing='mean'."
        )


def _is_category(name: str, series: Any) -> bool:
    """Tell whether a pandas column (of no rows, for Dask) holds categories."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
        return False
    if series.dtype == object and not len(series):
        return True
    return is_categorical(_arrow(name, series).type)


def category_names(frame: Any) -> list[str]:
    """Names of the columns of a pandas frame (of no rows, for Dask) that hold categories."""
    return [str(label) for label in frame.columns if _is_category(str(label), frame[label])]


def frame_levels(frame: Any, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Levels that occur in the categories of a pandas frame, ascending."""
    labels = {str(label): label for label in frame.columns}
    return {name: tuple(level_codes(_arrow(name, frame[labels[name]]), ())[1]) for name in names}


def united_levels(found: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Unite the levels that chunks of a frame hold.

    Raises
    ------
    DataError
        If a column has none, or too many.
    """
    united: dict[str, tuple[str, ...]] = {}
    for name in found[0]:
        united[name] = tuple(sorted({level for part in found for level in part[name]}))
        if not united[name]:
            raise DataError(f"All values of column {name!r} are missing: leave it out.")
        check_levels(name, len(united[name]), MAX_LEVELS)
    return united


def block_of(
    features: Any,
    columns: Columns,
    missing: MissingRule,
    unknown: Literal["error", "mean"] = "error",
) -> np.ndarray:
    """Frame or array of n rows in memory as a block (d, n)."""
    if hasattr(features, "columns"):
        return columns.encode(features, missing, unknown)
    values = np.ascontiguousarray(np.asarray(features, dtype=np.float64).T)
    if not np.isfinite(values).all():
        for name, row in zip(columns.names, values, strict=True):
            _check_finite(name, row, missing)
    return values


def checked_weight(weight: Any, n_samples: int) -> np.ndarray:
    """Sample weights as an array.

    Raises
    ------
    DataError
        If they are not one finite number ≥ 0 for each row.
    """
    values = np.asarray(weight, dtype=np.float64)
    if values.shape != (n_samples,):
        raise DataError(f"sample_weight.shape == {values.shape}, expected {(n_samples,)}!")
    if not np.isfinite(values).all() or (values < 0).any():
        raise DataError("Sample weights must be finite and at least 0.")
    return values


def column_names(frame: Any) -> tuple[str, ...]:
    """Column names of a frame, as text.

    Raises
    ------
    DataError
        If two are the same.
    """
    names = tuple(str(label) for label in frame.columns)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"The frame has several columns named {', '.join(map(repr, twice))}.")
    return names
