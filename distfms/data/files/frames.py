"""How columns of frames in memory are read: as those of a model's training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from distfms.data.files.formats.base import Forms
from distfms.data.files.texts import NumberForm, as_numbers
from distfms.data.rows.roles import is_categorical


@dataclass(frozen=True)
class FrameForms:
    """How columns are read whose types in a frame are others than in files.

    Attributes
    ----------
    kinds : mapping of str to pyarrow.DataType
        Types of columns, for those without a value.
    numbers : mapping of str to NumberForm
        Columns of text that is read as numbers.
    texts : frozenset of str
        Columns of whole numbers that are read as text.
    """

    kinds: Mapping[str, pa.DataType] = field(default_factory=dict)
    numbers: Mapping[str, NumberForm] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, levels: Mapping[str, Any], forms: Forms, texts: frozenset[str]) -> FrameForms:
        """Return how frames are read for a model.

        Parameters
        ----------
        levels : mapping of str to sequence of str or None
            Levels of the model's columns, None for numbers.
        forms : Forms
            How text of the training data was read.
        texts : frozenset of str
            Columns that the job has read as text.
        """
        kinds = {
            name: pa.float64() if column_levels is None else pa.string()
            for name, column_levels in levels.items()
        }
        plain = NumberForm(forms.decimal or ".")
        numbers = {
            name: forms.numbers.get(name, plain)
            for name, column_levels in levels.items()
            if column_levels is None and (name in forms.numbers or name in forms.types)
        }
        of_files = {
            name
            for name, column_levels in levels.items()
            if column_levels is not None
            and forms.types.get(name) == "string"
            and _say_all(column_levels)
        }
        return cls(kinds, numbers, texts | of_files)

    def __call__(self, table: pa.Table, called: str) -> pa.Table:
        """Return a table, `called` so in messages, whose columns are read so."""
        for place, name in enumerate(table.column_names):
            column = table.column(place)
            read = None
            if name in self.numbers and is_categorical(column.type):
                read = as_numbers(column.cast(pa.string()), name, called, self.numbers[name])
            elif name in self.texts:
                read = _as_texts(column)
            if read is not None:
                table = table.set_column(place, name, read)
        return table


#: Of frames that are read as they are.
AS_THEY_ARE = FrameForms()


def _say_all(levels: Any) -> bool:
    """Return whether no level is lost where it is read as a number, as 01 is."""
    return all(not level.isdigit() or str(int(level)) == level for level in levels)


def _as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return whole numbers, also those of pandas with gaps, as text; None of anything else."""
    if pat.is_floating(column.type):
        whole = pc.all(pc.equal(pc.round(column), column)).as_py()
        column = column.cast(pa.int64()) if whole else column
    return column.cast(pa.string()) if pat.is_integer(column.type) else None
