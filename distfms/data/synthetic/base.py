"""What a generator of synthetic data is, and how its rows get into shards."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.catalog import CatalogEntry, require
from distfms.data.write import ROWS_PER_SHARD, ShardWriter

if TYPE_CHECKING:
    import pyarrow as pa

#: Random numbers of one chunk (32 MiB as float64), and the most rows it has.
_CHUNK_NUMBERS = 2**22
_CHUNK_ROWS = 2**14

#: First word of the spawn key: what holds for the whole dataset, or one chunk of rows.
_WHOLE, _CHUNK = 0, 1


@dataclass(frozen=True)
class Recipe:
    """A generator with its parameters filled in and all that rows share drawn.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the dataset.
    rows : callable
        ``rows(rng, first_row, n_rows) -> list of pyarrow.Array`` draws a chunk's columns. It uses
        no BLAS, whose last bits depend on the number of threads.
    numbers_per_row : int
        About how many random numbers a row takes.
    truth : dict
        What the rows were drawn from, as plain values; goes to ``_metadata.json``.
    files : mapping of str to bytes
        Further files to put next to the shards.
    """

    schema: pa.Schema
    rows: Callable[[np.random.Generator, int, int], list[pa.Array]]
    numbers_per_row: int
    truth: dict[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def chunk_rows(self) -> int:
        """Rows drawn at once; depends on the width only."""
        return max(1, min(_CHUNK_ROWS, _CHUNK_NUMBERS // self.numbers_per_row))


def generate(
    generator: CatalogEntry,
    out: str | os.PathLike[str],
    rows: int,
    *,
    seed: int = 0,
    rows_per_shard: int = ROWS_PER_SHARD,
    workers: int = 1,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Write a synthetic dataset.

    Parameters
    ----------
    generator : CatalogEntry
        Its ``make(rng, **options)`` returns a :class:`Recipe`.
    out : path
        Folder; gets ``part-*.parquet``, ``_metadata.json`` (options and truth), and the further
        files of the recipe.
    rows : int
        At least 1.
    seed : int
        Non-negative.
    rows_per_shard : int
    workers : int
        Threads that draw rows. Does not change them.
    overwrite : bool
        Replace a dataset at ``out``.
    **options
        Of the generator.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    SpecError
        On a wrong option.
    DataError
        If the folder is taken or cannot be written.
    """
    for name, number, least in (("rows", rows, 1), ("workers", workers, 1), ("seed", seed, 0)):
        require(number >= least, f"{name} is too small: {number}")
    resolved = generator.resolve(options)
    recipe = generator.make(random_stream(seed, _WHOLE), **resolved)
    metadata = {
        "generator": generator.name,
        "parameters": resolved,
        "seed": seed,
        "rows": rows,
        "target": generator.target,
        "id": generator.id,
        "truth": recipe.truth,
    }
    with ShardWriter(out, recipe.schema, rows_per_shard, overwrite=overwrite) as writer:
        for table in _tables(recipe, rows, seed, workers):
            writer.write(table)
        writer.add_file("_metadata.json", (json.dumps(metadata, indent=1) + "\n").encode())
        for name, content in recipe.files.items():
            writer.add_file(name, content)
    return Path(out)


def random_stream(seed: int, *key: int) -> np.random.Generator:
    """Return random numbers of one purpose; streams of different keys are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _tables(recipe: Recipe, rows: int, seed: int, workers: int) -> Iterator[pa.Table]:
    """Chunks in order; threads run at most one chunk each ahead of the writer."""
    starts = range(0, rows, recipe.chunk_rows)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[pa.Table]] = deque()
        for number, start in enumerate(starts):
            waiting.append(pool.submit(_chunk, recipe, seed, number, start, rows))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _chunk(recipe: Recipe, seed: int, number: int, start: int, rows: int) -> pa.Table:
    import pyarrow as pa

    # Always drawn in full, so that a longer dataset begins with the rows of a shorter one.
    columns = recipe.rows(random_stream(seed, _CHUNK, number), start, recipe.chunk_rows)
    return pa.Table.from_arrays(columns, schema=recipe.schema).slice(0, rows - start)


def list_column(values: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Return the judgments of one attribute as Arrow lists, `counts` of them for each object."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def column_names(prefix: str, n: int) -> list[str]:
    """Return names that sort in column order: ``x00`` … with as many digits as needed."""
    digits = max(2, len(str(n - 1)))
    return [f"{prefix}{j:0{digits}d}" for j in range(n)]


def judged_schema(id_name: str, target: str, attributes: list[str]) -> pa.Schema:
    """Return the schema of objects with a numeric target and lists of judgments."""
    import pyarrow as pa

    lists = [(name, pa.list_(pa.float64())) for name in attributes]
    return pa.schema([(id_name, pa.int64()), (target, pa.float64()), *lists])
