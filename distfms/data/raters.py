"""Who judged: columns of rater ids beside those of judgments, as whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.columns import as_floats, describe_rows, number_view
from distfms.errors import DataError
from distfms.stats.ragged import Ragged, offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.dataset import Partition, PartitionReader

#: Lists of ids of the raters of all attributes, and of one attribute by its name.
OF_ALL, OF_ONE = "raters", "__raters"

#: In place of a column: the j-th judgments of all attributes of an object are one rater's.
BY_POSITION = ""


def rater_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of rater ids by attribute; that of all attributes under its own name."""
    import pyarrow.types as pat

    ids = (pat.is_integer, pat.is_string, pat.is_large_string, pat.is_dictionary)
    bases = {name.rpartition("__")[0] for name in schema.names if not name.endswith(OF_ONE)}
    found = {}
    for name in schema.names:
        dtype, attribute = schema.field(name).type, name.removesuffix(OF_ONE)
        is_list = pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype)
        named = name == OF_ALL or (name != attribute and attribute in {*schema.names, *bases})
        if named and is_list and any(holds(dtype.value_type) for holds in ids):
            found[attribute] = name
    return found


class RaterCodes:
    """The raters of one partition's judgments as whole numbers, −1 where one is not known."""

    def __init__(self, reader: PartitionReader, partition: Partition, columns: Any) -> None:
        self._reader, self._partition = reader, partition
        self._codes: dict[Any, int] = {}
        self._lists: dict[str, Ragged] = {
            name: self._encoded(table.column(name))
            for table in (reader.column_tables(partition, columns) if columns else ())
            for name in table.column_names
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the raters by code; of raters that are told by position there are none."""
        return tuple(map(str, self._codes))

    def of(self, judgments: Ragged, column: str | None, attribute: str) -> Ragged:
        """Return the raters of an attribute's judgments, which are in the order of the file.

        Raises
        ------
        DataError
            If there are not as many ids as judgments; a column for all attributes may have more.
        """
        known = self._lists.get(column) if column is not None else None
        if known is not None and np.array_equal(known.offsets, judgments.offsets):
            return known
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
            where, _ = describe_rows(self._reader, self._partition, bad, None)
            row = int(np.argmax(bad))
            raise DataError(
                f"{self._partition.path} has {counts[row]} judgments of {attribute!r} but "
                f"{ids.counts()[row]} ids in the column {column!r} ({where}): give every judgment "
                "the id of its rater (null if unknown), or set `multiselect.raters: ignore`."
            )
        return Ragged(ids.values[np.repeat(ids.offsets[:-1], counts) + places], judgments.offsets)

    def _encoded(self, column: pa.ChunkedArray) -> Ragged:
        import pyarrow.compute as pc

        lengths, values = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
        for chunk in column.chunks:
            lengths.append(np.nan_to_num(as_floats(pc.list_value_length(chunk))))
            found = chunk.flatten().dictionary_encode()
            names = found.dictionary.to_pylist()
            codes = self._codes
            own = [-1 if n is None else codes.setdefault(n, len(codes)) for n in names]
            at = number_view(found.indices.fill_null(-1))
            values.append(np.array([*own, -1], dtype=np.int64)[at])
        return Ragged(np.concatenate(values), offsets_of(np.concatenate(lengths).astype(np.int64)))
