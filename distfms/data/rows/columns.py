"""Arrow columns as float64 rows of a batch, without pandas and with as few copies as can be."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.errors import DataError

if TYPE_CHECKING:
    from distfms.data.files.partition import Partition

_NUMPY_NAMES = {"double": "float64", "float": "float32", "halffloat": "float16"}

#: Values beyond have squares whose sum over many rows may overflow.
LARGEST = 1e150

_thread = threading.local()


def batch_buffer(n_columns: int, n_rows: int) -> np.ndarray:
    """Return this thread's batch buffer, uninitialised; valid until the next call on the thread."""
    return _buffer("batch", n_columns * n_rows).reshape(n_columns, n_rows)


def _buffer(name: str, size: int) -> np.ndarray:
    """Return `size` floats of a buffer of this thread."""
    held = getattr(_thread, name, None)
    if held is None or held.size < size:
        held = None
        setattr(_thread, name, None)  # free the old one before the larger one is taken
        held = np.empty(size, dtype=np.float64)
        setattr(_thread, name, held)
    return held[:size]


def fill_numbers(column: Any, out: np.ndarray, order: np.ndarray | None = None) -> bool:
    """Fill a row of a batch with a numeric column; return whether all values can be summed."""
    fill_column(column, out, order)
    return probably_finite(out)


def fill_column(column: Any, out: np.ndarray, order: np.ndarray | None = None) -> None:
    """Copy a numeric column into a row of a batch, null as NaN.

    ``out[i] = column[order[i]]`` where there is an order; `out` is contiguous.
    """
    chunks = [_numbers(chunk) for chunk in column.chunks]
    if order is None:
        np.concatenate(chunks, out=out)
        return
    whole = chunks[0]
    if len(chunks) > 1:
        whole = np.concatenate(chunks, out=_buffer("column", len(column)))
    # The mode "raise" would buffer the output, and "clip" takes nearly twice as long.
    if whole.dtype == np.float64:
        whole.take(order, out=out, mode="wrap")
    else:  # as narrow as it is stored
        out[:] = whole.take(order, mode="wrap")


def _numbers(array: Any) -> np.ndarray:
    """Return numbers of an Arrow array as they are stored; as float64 where nulls become NaN."""
    import pyarrow.types as pat

    stored = pat.is_floating(array.type) or pat.is_integer(array.type)
    return number_view(array) if stored and not array.null_count else as_floats(array)


def as_floats(array: Any) -> np.ndarray:
    """Return an Arrow array of numbers as float64, nulls as NaN; a view where nothing changes."""
    import pyarrow as pa

    if array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    values = number_view(array)
    if array.null_count:
        valid = number_view(array.is_valid().cast(pa.uint8()))
        values = np.where(valid, values, np.nan)
    return values


def number_view(array: Any) -> np.ndarray:
    """Return integers or floats of an Arrow array as a read-only view; at nulls it is arbitrary.

    Unlike ``to_numpy`` it does not import pandas.
    """
    dtype = np.dtype(_NUMPY_NAMES.get(str(array.type), str(array.type)))
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.empty(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def as_arrow(values: np.ndarray) -> Any:
    """Return an array as one of Arrow; of numbers and texts without pandas, as by `pa.array`."""
    import pyarrow as pa

    if values.dtype.kind in "iuf" and values.dtype.isnative:
        numbers = np.ascontiguousarray(values)
        dtype = pa.from_numpy_dtype(numbers.dtype)
        return pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(numbers)])
    if values.dtype.kind == "U":
        texts = [text.encode() for text in values.tolist()]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        joined = b"".join(texts)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(joined)]
        strings = pa.Array.from_buffers(pa.large_string(), len(texts), buffers)
        return strings.cast(pa.string())
    return pa.array(values)


def in_numpy(column: Any) -> np.ndarray:
    """Return a column of Arrow without missing values; numbers without pandas."""
    if str(column.type) not in ("double", "int64"):
        return np.asarray(column)
    return np.concatenate([number_view(chunk) for chunk in column.chunks])


def n_positive(counts: Any) -> int:
    """Return how many of the counts of an Arrow column are positive."""
    return sum(int(np.count_nonzero(number_view(chunk) > 0)) for chunk in counts.chunks)


def probably_finite(values: np.ndarray) -> bool:
    """Return False for NaN and infinity, and also where the sum of squares overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(values.dot(values))


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Rows of a partition in the order of a batch, None for that of the file; for messages."""

    reader: Any
    partition: Partition
    order: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.partition.n_rows if self.order is None else len(self.order)

    def tables(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield columns of the rows, some at a time."""
        for table in self.reader.column_tables(self.partition, columns):
            yield table if self.order is None else table.take(self.order)

    def require_summable(
        self, column: str, values: np.ndarray, offsets: np.ndarray | None = None
    ) -> None:
        """Refuse values that are infinite, or whose squares sum up to more than a float.

        Row ``i`` of the batch has ``values[i]`` or, for lists, those from ``offsets[i]`` on.
        """
        bad = np.abs(values) > LARGEST
        if not bad.any():
            return
        kind = "infinite"
        remedy = "replace them by finite numbers or by null, or exclude the column."
        if not np.isinf(values).any():
            kind = "too large"
            remedy = (
                "their squares overflow; look for damaged values, divide the column by a constant, "
                "or exclude it."
            )
        if offsets is not None:
            rows = np.searchsorted(offsets, np.flatnonzero(bad), side="right") - 1
            bad = np.bincount(rows, minlength=len(offsets) - 1) > 0
        place, count = self.describe(bad)
        noun = "value" if count == 1 else "values"
        raise DataError(
            f"The column {column!r} of {self.partition.called} has {count} {kind} {noun} "
            f"({place}): {remedy}"
        )

    def lacks(self, column: str, missing: np.ndarray, advice: str) -> DataError:
        """Return the error for missing values of a column."""
        place, count = self.describe(missing)
        quantity = f"all {count} values missing" if count == len(missing) else f"{count} missing"
        noun = "" if count == len(missing) else " value" if count == 1 else " values"
        return DataError(
            f"The column {column!r} of {self.partition.called} has {quantity}{noun} ({place}): "
            f"{advice}"
        )

    def describe(self, mask: np.ndarray) -> tuple[str, int]:
        """Return where the first marked row is, as text, and how many are marked."""
        marked = np.flatnonzero(mask)
        first = int(marked[0] if self.order is None else self.order[marked].min())
        return self.reader.locate_row(self.partition, first), len(marked)
