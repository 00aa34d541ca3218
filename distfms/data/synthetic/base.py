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

from distfms.data.write import ROWS_PER_SHARD, ShardWriter
from distfms.errors import SpecError, nearest

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


@dataclass(frozen=True)
class Generator:
    """A kind of synthetic data.

    Parameters
    ----------
    name, description : str
    target : str
        Column to predict.
    id : str or None
        Column that names the rows.
    parameters : mapping
        Defaults by name; a given value is converted to the default's type.
    prepare : callable
        ``prepare(rng, **parameters) -> Recipe``.
    """

    name: str
    description: str
    target: str
    id: str | None
    parameters: Mapping[str, Any]
    prepare: Callable[..., Recipe]

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters, those given in place of the defaults.

        Parameters
        ----------
        given : mapping
            Values, or their text as on a command line.

        Raises
        ------
        SpecError
            If a name is unknown (with the nearest known one) or a value has the wrong type.
        """
        for name in given:
            if name not in self.parameters:
                raise SpecError(
                    f"generator {self.name!r} has no parameter {name!r}."
                    + nearest(name, list(self.parameters))
                )
        return {
            name: _converted(name, given.get(name, default), default)
            for name, default in self.parameters.items()
        }


def generate(
    generator: Generator,
    out: str | os.PathLike[str],
    rows: int,
    *,
    seed: int = 0,
    shards: int | None = None,
    rows_per_shard: int | None = None,
    workers: int = 1,
    overwrite: bool = False,
    parameters: Mapping[str, Any] | None = None,
) -> Path:
    """Write a synthetic dataset.

    Parameters
    ----------
    generator : Generator
    out : path
        Folder; gets ``part-*.parquet``, ``_metadata.json`` (parameters and truth), and what else
        the generator has to say.
    rows : int
        At least 1.
    seed : int
        Non-negative.
    shards, rows_per_shard : int, optional
        Number of files, or rows of each; not both.
    workers : int
        Threads that draw rows. Does not change them.
    overwrite : bool
        Replace a dataset at ``out``.
    parameters : mapping, optional
        Of the generator.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    SpecError
        On a wrong parameter.
    DataError
        If the folder is taken or cannot be written.
    """
    for name, number in {"rows": rows, "workers": workers, "seed": seed + 1}.items():
        require(number >= 1, f"{name} is too small: {number if name != 'seed' else seed}")
    resolved = generator.resolve(parameters or {})
    recipe = generator.prepare(random_stream(seed, _WHOLE), **resolved)
    metadata = {
        "generator": generator.name,
        "parameters": resolved,
        "seed": seed,
        "rows": rows,
        "target": generator.target,
        "id": generator.id,
        "truth": recipe.truth,
    }
    size = _shard_rows(rows, shards, rows_per_shard)
    with ShardWriter(out, recipe.schema, size, overwrite=overwrite) as writer:
        for table in _tables(recipe, rows, seed, workers):
            writer.write(table)
        writer.add_file("_metadata.json", (json.dumps(metadata, indent=1) + "\n").encode())
        for name, content in recipe.files.items():
            writer.add_file(name, content)
    return Path(out)


def random_stream(seed: int, *key: int) -> np.random.Generator:
    """Random numbers of one purpose.

    Parameters
    ----------
    seed : int
    *key : int
        Say what for; streams of different keys are independent.

    Returns
    -------
    numpy.random.Generator
    """
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


def _shard_rows(rows: int, shards: int | None, rows_per_shard: int | None) -> int:
    require(shards is None or rows_per_shard is None, "give `shards` or `rows_per_shard`, not both")
    if shards is not None:
        require(shards >= 1, f"shards is {shards}, not at least 1")
        return -(-rows // shards)
    size = ROWS_PER_SHARD if rows_per_shard is None else rows_per_shard
    require(size >= 1, f"rows_per_shard is {size}, not at least 1")
    return size


def require(holds: bool, message: str) -> None:
    """Refuse parameters that make no dataset.

    Parameters
    ----------
    holds : bool
    message : str
        What is wrong otherwise, without a full stop.

    Raises
    ------
    SpecError
        If it does not hold.
    """
    if not holds:
        raise SpecError(message + ".")


def _converted(name: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    if isinstance(value, (str, int)) and not isinstance(value, bool) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    raise SpecError(f"parameter {name!r} is {value!r}; it has to be of type {kind.__name__}.")


def list_column(values: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Judgments of one attribute as Arrow lists.

    Parameters
    ----------
    values : ndarray of float64
        (Σ counts,) object by object.
    counts : ndarray of int
        (n_objects,)

    Returns
    -------
    pyarrow.ListArray
        (n_objects,)
    """
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def column_names(prefix: str, n: int) -> list[str]:
    """Names that sort in column order.

    Parameters
    ----------
    prefix : str
    n : int

    Returns
    -------
    list of str
        ``x00`` … with as many digits as needed, at least two.
    """
    digits = max(2, len(str(n - 1)))
    return [f"{prefix}{j:0{digits}d}" for j in range(n)]
