"""Which columns hold the judgments that a model asks for, in data it was not trained on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distfms.data.judgments import JudgmentLayout
from distfms.errors import DataError

_NUMBERED = re.compile(r"__[0-9]+$")


@dataclass(frozen=True)
class TrainedColumns:
    """What the columns of some attributes were in the training data.

    Attributes
    ----------
    read : mapping of str to sequence of str
        Attribute → its columns; attributes that are unknown here may come in any form.
    left : frozenset of str
        Columns that are named like a judgment of one of the attributes, but were not read: they
        were excluded, or had another role.
    """

    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    @classmethod
    def of(cls, layout: JudgmentLayout, available: Iterable[str]) -> TrainedColumns:
        """Describe training data.

        Parameters
        ----------
        layout : JudgmentLayout
            Of the attributes in question.
        available : iterable of str
            All columns of the data.
        """
        read, names = set(layout.columns), set(layout.names)
        named = (column for column in available if _attribute_of(column, names) is not None)
        return cls(
            {attribute.name: attribute.columns for attribute in layout.attributes},
            frozenset(column for column in named if column not in read),
        )

    def to_json(self) -> dict[str, Any]:
        """Entries of ``model.json``."""
        return {
            "columns": {name: list(columns) for name, columns in self.read.items()},
            "columns_left": sorted(self.left),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainedColumns:
        """Inverse of :meth:`to_json`; a model that does not say reads what it finds."""
        return cls(content.get("columns", {}), frozenset(content.get("columns_left", ())))

    def find(self, names: Sequence[str], available: Iterable[str]) -> list[str]:
        """Find the columns to read in other data.

        Parameters
        ----------
        names : sequence of str
            Attributes.
        available : iterable of str
            Columns of the data.

        Returns
        -------
        list of str
            In the order of the data. Columns that training left out are left out here too. An
            attribute may come in another form than in training, and with more or fewer numbered
            columns; where both forms are there, that of training counts.

        Raises
        ------
        DataError
            If an attribute has no column.
        """
        wanted = set(names)
        found: dict[str, list[str]] = {name: [] for name in names}
        for column in available:
            attribute = None if column in self.left else _attribute_of(column, wanted)
            if attribute is not None:
                found[attribute].append(column)
        chosen = {c for name, columns in found.items() for c in self._of_one_form(name, columns)}
        lacking = [name for name, columns in found.items() if not columns]
        if lacking:
            left = sorted(c for c in self.left if _attribute_of(c, set(lacking)) is not None)
            hint = f" ({', '.join(left)} was left out in training, too.)" if left else ""
            raise DataError(
                f"The data hold no judgments of {', '.join(map(repr, lacking))}, which the model "
                f"asks for.{hint}"
            )
        return [column for columns in found.values() for column in columns if column in chosen]

    def _of_one_form(self, name: str, columns: Sequence[str]) -> Sequence[str]:
        """Leave out columns of another form than in training, where both are there."""
        trained = self.read.get(name)
        if name not in columns or len(columns) == 1 or not trained:
            return columns
        if list(trained) == [name]:
            return [name]
        return [column for column in columns if column != name]


def _attribute_of(column: str, names: set[str]) -> str | None:
    """Name the attribute that a column would hold judgments of; None if it is none of these."""
    if column in names:
        return column
    base = _NUMBERED.sub("", column)
    return base if base in names else None
