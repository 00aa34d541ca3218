"""Judgments in pandas frames, by the rules that hold for Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from distfms.data.columns import fill_numbers
from distfms.data.judgments import AttributeColumns, detect_layout, lists_as_ragged
from distfms.data.roles import resolve_roles
from distfms.errors import DataError
from distfms.methods.multiselect.objects import ObjectBlock, check_finite, without_missing
from distfms.stats.ragged import Ragged


@dataclass(frozen=True)
class FrameReader:
    """Picklable function from a pandas frame to a block.

    Attributes
    ----------
    exclude : tuple of str
        Names or globs of columns that are no attributes.
    label, weight, id : str or None
        Columns with these roles.
    ignored : tuple of str
        Columns that had a role when the model was fitted, passed over where they are found.
    names : tuple of str, or None
        Attributes that the frame must hold, in this order.
    n_attributes : int or None
        Number of attributes that the frame must hold.
    with_index : bool
        Whether the index identifies the objects where no column does.
    """

    exclude: tuple[str, ...] = ()
    label: str | None = None
    weight: str | None = None
    id: str | None = None
    ignored: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None
    n_attributes: int | None = None
    with_index: bool = True

    def __call__(self, frame: Any) -> ObjectBlock:
        """Read a frame: columns of lists, numbered columns, columns of numbers.

        Raises
        ------
        DataError, SpecError
            If a column holds something else, or one that is needed is not there.
        """
        table = _arrow_table(frame)
        features = self._features(table.column_names)
        _refuse_lists_as_text(table, features)
        roles = resolve_roles(
            table.schema,
            target=self.label,
            features=features,
            weight=self.weight,
            id=self.id,
            judgments=True,
        )
        layout = detect_layout(table.schema, roles)
        named = all(isinstance(label, str) for label in frame.columns)
        self._check(layout.names, named)
        block = ObjectBlock(
            attributes=tuple(_attribute(table, attribute) for attribute in layout.attributes),
            n_objects=table.num_rows,
            names=layout.names if named else None,
            label=_numbers(table, self.label),
            weight=_numbers(table, self.weight),
            ids=self._ids(frame),
        )
        return check_finite(block)

    def check_exclude(self, columns: Sequence[Any]) -> None:
        """Refuse to exclude what is not there: a misspelt name would become an attribute.

        Raises
        ------
        DataError
        """
        for pattern in self.exclude:
            if not any(_matches(str(name), pattern) for name in columns):
                raise DataError(f"`exclude` names {pattern!r}, which matches no column.")

    def _features(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Columns that may hold judgments."""
        taken = {self.label, self.weight, self.id, *self.ignored}
        left = [name for name in columns if name not in taken]
        chosen = tuple(n for n in left if not any(_matches(n, p) for p in self.exclude))
        if not chosen:
            raise DataError(
                "The frame holds no attribute: 0 feature(s) are left once label, weight and "
                "excluded columns are taken out, while a minimum of 1 is required."
            )
        return chosen

    def _ids(self, frame: Any) -> np.ndarray | None:
        """Tell the objects' identifiers, or None."""
        if self.id is not None:
            return frame[self.id].to_numpy()
        return frame.index.to_numpy() if self.with_index else None

    def _check(self, names: tuple[str, ...], named: bool) -> None:
        """Refuse a partition with other attributes than those of the model."""
        if self.names is not None and named and names != self.names:
            raise DataError(
                f"The model was fitted on the attributes {', '.join(self.names)}; a partition "
                f"holds {', '.join(names)}."
            )
        if self.n_attributes is not None and len(names) != self.n_attributes:
            raise DataError(
                f"The model was fitted on {self.n_attributes} attributes; a partition holds "
                f"{len(names)}."
            )


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _arrow_table(frame: Any) -> Any:
    """Return a pandas frame as an Arrow table; columns without a value as numbers."""
    import pyarrow as pa
    import pyarrow.types as pat

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(
            f"A column of the frame is neither of numbers nor of lists of numbers: {error}"
        ) from error
    for position, field in enumerate(table.schema):
        wanted = None
        if pat.is_null(field.type):
            wanted = pa.float64()
        elif pat.is_list(field.type) and pat.is_null(field.type.value_type):
            wanted = pa.list_(pa.float64())
        if wanted is not None:
            column = table.column(position).cast(wanted)
            table = table.set_column(position, field.name, column)
    return table


def _refuse_lists_as_text(table: Any, names: Sequence[str]) -> None:
    """Explain what Dask does to columns of lists."""
    import pyarrow.types as pat

    for name in names:
        column = table.column(name)
        if pat.is_string(column.type) or pat.is_large_string(column.type):
            first = next((v.as_py() for v in column if v.is_valid), "")
            if first.startswith("["):
                raise DataError(
                    f"The column {name!r} holds lists that were turned into text ({first!r}). Dask "
                    "does so unless its option dataframe.convert-string is off when a frame is "
                    "made: dask.config.set({'dataframe.convert-string': False})."
                )


def _numbers(table: Any, name: str | None) -> np.ndarray | None:
    if name is None:
        return None
    values = np.empty(table.num_rows)
    fill_numbers(table.column(name), values)
    return values


def _attribute(table: Any, attribute: AttributeColumns) -> Ragged:
    if attribute.form == "list":
        column = table.column(attribute.columns[0])
        if not column.num_chunks:
            return Ragged.from_lists([])
        return without_missing(lists_as_ragged(column))
    columns = [_numbers(table, name) for name in attribute.columns]
    return Ragged.from_matrix(np.array(columns).T)
