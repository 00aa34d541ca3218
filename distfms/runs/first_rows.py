"""What schema and first rows of a job's data say of its columns, before all rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from fnmatch import fnmatchcase

import pyarrow as pa

from distfms.data.files.texts import nearly_numbers
from distfms.data.rows.roles import index_columns, is_categorical
from distfms.errors import SpecError
from distfms.methods.frame.contract import Inputs
from distfms.spec import DataSection

_ROWS = 20_000
#: Classes from which texts may be none.
_MANY_CLASSES = 20


def remarks(inputs: Inputs, columns: Sequence[str]) -> list[str]:
    """Return what users should know of columns that a job reads, or might have been meant to read.

    Raises
    ------
    SpecError
        If hardly two texts of a target are the same: they are no classes.
    """
    section = inputs.section
    texts = _texts(section, inputs.train.schema, columns)
    notes = []
    for name in index_columns(inputs.train.schema):
        is_excluded = any(fnmatchcase(name, glob) for glob in section.exclude)
        if name not in columns and not is_excluded:
            notes.append(
                f"The column {name!r} is the index of a pandas frame and is not used. To use it, "
                "name it in `features`."
            )
    if not texts:
        return notes
    batches = inputs.train.reader.each_batch(
        inputs.train.partitions[0], texts, lambda reader, piece: reader.read(piece, texts)
    )
    with closing(batches):
        table = next(batches).slice(0, _ROWS)
    nearly = {name: nearly_numbers(name, table.column(name).combine_chunks()) for name in texts}
    for name in filter(texts.count, section.target):
        values = table.column(name).drop_null()
        n_levels = len(values.unique())
        if n_levels > max(_MANY_CLASSES, len(values) / 2):
            advice = nearly[name] or "Name a column of classes or of numbers."
            raise SpecError(
                f"The target {name!r} holds texts of which {n_levels:,} of the first "
                f"{len(values):,} differ, so they are no classes. {advice}"
            )
    return notes + [text for text in nearly.values() if text]


def _texts(section: DataSection, schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Return which of these columns, and of the targets, hold text that is to mean something."""
    roles = {section.id, section.query, section.weight, *section.text} - {*section.target}
    return [
        name
        for name in dict.fromkeys((*columns, *section.target))
        if name in schema.names and name not in roles and is_categorical(schema.field(name).type)
    ]
