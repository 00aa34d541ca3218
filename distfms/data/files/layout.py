"""How files are divided into partitions.

The layout depends on the files and the two limits alone, never on the machine or the number of
workers: another layout would mean other rounding, and a result must have the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from distfms.data.files.folder_keys import keys_of
from distfms.data.files.footers import describe_schema
from distfms.data.files.partition import Partition, digest
from distfms.store.places import File

# A row group beyond this many times the limits of a partition is read in batches of rows.
_LARGE = 2

# Rows of a page as pyarrow writes them. Of thirteen sizes of batches that were measured, those of
# one, two, four, … pages are decoded fastest, others in up to a third more time: probably as the
# decoder takes memory for the next power of two of the values, a page that it has begun included.
_PAGE_ROWS = 20_000

# Pages of a column that are read so: as they are stored, decompressed, and their dictionary.
_PAGES_BYTES = 3 * 2**20


def layout(
    files: Sequence[File], schema: pa.Schema, max_rows: int, max_bytes: int
) -> tuple[Partition, ...]:
    """Divide files into partitions: runs of row groups that keep to the limits."""
    partitions: list[Partition] = []
    row_offset = 0
    n_columns = len(schema)
    described = describe_schema(schema)
    for file in files:
        file_row_offset = 0
        for groups in _pack(file, max_rows, max_bytes):
            n_rows, n_bytes, encoded = file.row_groups[list(groups)].sum(axis=0).tolist()
            if n_rows:
                # The columns decoded and the batch filled from them.
                batch_rows = 0
                held_bytes = 2 * n_bytes
                if n_rows > _LARGE * max_rows or n_bytes > _LARGE * max_bytes:
                    batch_rows = _whole_pages(min(max_rows, max_bytes * n_rows // (2 * n_bytes)))
                    # Two batches as they were decoded, one filled; pages of all columns.
                    pages = min(2 * encoded, n_columns * _PAGES_BYTES)
                    held_bytes = 3 * n_bytes * batch_rows // n_rows + pages
                content = (file.key, file.version, repr(groups), described)
                partitions.append(
                    Partition(
                        index=len(partitions),
                        path=file.path,
                        name=file.name,
                        key=file.key,
                        source=file.source,
                        folder_keys=keys_of(file),
                        row_groups=groups,
                        n_rows=n_rows,
                        n_bytes=n_bytes,
                        row_offset=row_offset + file_row_offset,
                        file_row_offset=file_row_offset,
                        fingerprint=digest(*content, *([str(batch_rows)] if batch_rows else [])),
                        file_version=file.version,
                        batch_rows=batch_rows,
                        held_bytes=held_bytes,
                    )
                )
            file_row_offset += n_rows
        row_offset += file_row_offset
    return tuple(partitions)


def _whole_pages(most: int) -> int:
    """Return the rows of a batch of at most so many: as those of 1, 2, 4, … pages if possible."""
    doublings = (most // _PAGE_ROWS).bit_length() - 1
    return max(1, most) if doublings < 0 else _PAGE_ROWS << doublings


def _pack(file: File, max_rows: int, max_bytes: int) -> Iterator[tuple[int, ...]]:
    """Pack consecutive row groups greedily while both limits hold."""
    groups: list[int] = []
    rows = size = 0
    for group, (r, b, _) in enumerate(file.row_groups.tolist()):
        if groups and (rows + r > max_rows or size + b > max_bytes):
            yield tuple(groups)
            groups = []
            rows = 0
            size = 0
        groups.append(group)
        rows += r
        size += b
    if groups:
        yield tuple(groups)
