"""The warm Gram pass over files, against the time of its two unavoidable parts.

This is the inner loop alone: one process that has made the pass before. What users wait for is
measured by ``whole_job.py``.

The pass is the product's own: partitions of ``open_dataset``, each read by ``read_rows`` into the
thread's block and summarised by ``CoMoments``, merged by ``map_reduce`` on two threads; no cache.
The files are 32 that distfms wrote or, with ``--pandas``, one as pandas writes it, whose row groups
of a million rows are read in batches.

The pass is compared with decoding the same files and doing nothing with them plus multiplying as
much data, all of it in memory, ``block @ block.T`` with one BLAS thread in each of two threads.
Decoding is measured with one call for all columns of a partition and, as the pass does it, a few
columns at a time. Of a row group of pandas each thread decodes half of the columns: in one call or,
which takes the least memory and time of all ways that were found, one column after the other.

All are measured in turn, several times, so that the ratio does not suffer from what else the
machine does. Also shown: the pass with 5 folds and a held-out part, the Gram matrix by Dask arrays
over the 32 files, and the processor time of each, which load changes less.

Run with ``python benchmarks/statistics_pass.py [--rows N] [--data FOLDER] [--repeats N]
[--pandas]``. ``--rows`` is the number of the tall data (1 M × 100); the wide ones (500 columns)
have a fifth. With ``--pandas`` these are 1 M × 100 of float64 and of float32, and 2 M × 200.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from generators import GRAM

from benchmarks.synthetic import generate
from distfms.data.files.dataset import open_dataset
from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch, read_rows
from distfms.data.rows.folds import FoldPlan
from distfms.data.rows.roles import resolve_roles
from distfms.engine.base import map_reduce
from distfms.engine.graph import Unit
from distfms.engine.local import LocalExecutor
from distfms.stats.base import Folded
from distfms.stats.comoments import CoMoments

WORKERS = 2
FILES = 32
FOLDS = FoldPlan(n_folds=5, test=0.2, seed=0)
TALL, WIDE = 100, 500

PASS, DECODE, BATCHES, BLAS = "pass", "decode", "decode, in batches", "BLAS"
FOLDED, DASK = "pass, 5 folds + test", "Dask arrays"

Measurement = tuple[float, float]
"""Seconds of wall time and of processor time."""


def plan_of(dataset: Dataset) -> ColumnPlan:
    """All columns, the target last."""
    return ColumnPlan.of(resolve_roles(dataset.schema, target="target"))


def summarise(block: RowBatch, part: int) -> CoMoments:
    """Co-moments of one part of a block, whose memory is used as scratch."""
    sums = None if block.part_sums is None else block.part_sums[part]
    rows = block.part_slices[part]
    return CoMoments.from_block(block.values[:, rows], overwrite=True, sums=sums)


def gram(dataset: Dataset, plan: ColumnPlan, partition: Partition) -> CoMoments:
    def read(reader: Any, piece: Partition) -> CoMoments:
        return summarise(read_rows(reader, piece, plan), 0)

    each = dataset.reader.each_batch(partition, dataset.schema.names, read)
    return reduce(CoMoments.merge, each)


def folded_gram(dataset: Dataset, plan: ColumnPlan, partition: Partition) -> Folded[CoMoments]:
    def read(reader: Any, piece: Partition) -> Folded[CoMoments]:
        block = read_rows(reader, piece, plan, folds=FOLDS)
        return Folded(tuple(summarise(block, part) for part in range(FOLDS.n_parts)))

    each = dataset.reader.each_batch(partition, dataset.schema.names, read)
    return reduce(Folded.merge, each)


Share = tuple[Partition, list[str]]
"""Columns of a partition that one thread decodes."""


def shares(dataset: Dataset) -> list[Share]:
    """Divide what there is to decode: the columns of a partition that is read in batches."""
    names, found = dataset.schema.names, []
    for partition in dataset.partitions:
        n_shares = WORKERS if partition.batch_rows else 1
        found += [(partition, names[first::n_shares]) for first in range(n_shares)]
    return found


def decode(dataset: Dataset, share: Share) -> None:
    partition, names = share
    with dataset.reader.open(partition) as file:
        file.read_row_groups(list(partition.row_groups), columns=names, use_threads=False)


def decode_batches(dataset: Dataset, share: Share) -> None:
    for _ in dataset.reader.column_tables(*share):
        pass


def dask_gram(folder: Path, n_rows: int) -> np.ndarray:
    """Centred Gram matrix as one would write it with Dask arrays, a chunk for each file."""
    import dask
    import dask.array as da

    def read(file: Path) -> np.ndarray:
        table = pq.read_table(file, use_threads=False)
        return np.column_stack([column.to_numpy() for column in table.columns])

    files = sorted(folder.glob("part-*.parquet"))
    shapes = [pq.read_metadata(file) for file in files]
    chunks = [
        da.from_delayed(dask.delayed(read)(file), (meta.num_rows, meta.num_columns), float)
        for file, meta in zip(files, shapes, strict=True)
    ]
    x = da.concatenate(chunks)
    product, total = dask.compute(x.T @ x, x.sum(axis=0), scheduler="threads", num_workers=WORKERS)
    return product - np.outer(total, total) / n_rows


def nothing(*_: Any) -> None:
    """Merge results that nobody wants."""


@contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """Scratch folder inside the given one, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=given) as folder:
        yield Path(folder)


def timed(work: Callable[[], Any]) -> Measurement:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def contenders(
    dataset: Dataset, folder: Path, executor: LocalExecutor
) -> dict[str, Callable[[], Any]]:
    """Name everything that is measured."""
    plan = plan_of(dataset)
    units = [Unit(p.fingerprint, p, p.n_bytes) for p in dataset.partitions]
    parts = [Unit(f"{p.fingerprint} {names[0]}", (p, names)) for p, names in shares(dataset)]
    rng = np.random.default_rng(0)
    # As much data as the files hold: a block that is multiplied over and over stays in the cache.
    sizes = [
        min(p.batch_rows or p.n_rows, p.n_rows - first)
        for p in dataset.partitions
        for first in range(0, p.n_rows, p.batch_rows or p.n_rows)
    ]
    blocks = [rng.standard_normal((plan.n_columns, size)) for size in sizes]
    products = [Unit(str(i), i) for i in range(len(blocks))]

    def run(
        map_fn: Callable[[Any], Any],
        merge_fn: Callable[[Any, Any], Any] = nothing,
        units: list[Any] = parts,
    ) -> Any:
        return map_reduce(units, map_fn, merge_fn, executor).value

    work: dict[str, Callable[[], Any]] = {
        PASS: lambda: run(partial(gram, dataset, plan), CoMoments.merge, units),
        DECODE: lambda: run(partial(decode, dataset)),
        BATCHES: lambda: run(partial(decode_batches, dataset)),
        BLAS: lambda: run(lambda i: blocks[i] @ blocks[i].T, nothing, products),
        FOLDED: lambda: run(partial(folded_gram, dataset, plan), Folded.merge, units),
        DASK: lambda: in_one_blas_thread(lambda: dask_gram(folder, dataset.n_rows)),
    }
    if len(dataset.files) == 1:  # a chunk of Dask would be all rows, several times in memory
        del work[DASK]
    return work


def in_one_blas_thread(work: Callable[[], Any]) -> Any:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return work()


def measure(folder: Path, repeats: int) -> dict[str, list[Measurement]]:
    """Measure all in turn, `repeats` times, after one round that warms up."""
    dataset = open_dataset(folder)
    with LocalExecutor(WORKERS) as executor:
        work = contenders(dataset, folder, executor)
        check(work[PASS](), work[FOLDED](), *(work[name]() for name in work if name == DASK))
        for name in work:
            work[name]()
        rounds = [{name: timed(run) for name, run in work.items()} for _ in range(repeats)]
    return {name: [r[name] for r in rounds] for name in work}


def check(moments: CoMoments, folded: Folded[CoMoments], *products: np.ndarray) -> None:
    """Refuse to time what does not agree."""
    merged = folded.train().merge(folded.test)
    for other in (merged.comoment, *products):
        np.testing.assert_allclose(
            moments.comoment, other, atol=1e-9 * moments.comoment.max(), rtol=1e-9
        )


def write_as_pandas(folder: Path, n_rows: int, n_columns: int, dtype: str) -> None:
    """Write a file as ``DataFrame.to_parquet`` does."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.standard_normal(n_rows, dtype=dtype) for i in range(n_columns - 1)}
    columns["target"] = columns["x0"] + rng.standard_normal(n_rows, dtype=dtype)
    pq.write_table(pa.table(columns), folder / "rows.parquet")


def report(title: str, measured: dict[str, list[Measurement]], target: float) -> None:
    """Print one line for each contender, and the ratios round by round."""
    print(f"\n{title}; load average {os.getloadavg()[0]:.1f}")
    print(f"{'':24}{'wall s':>10}{'lowest':>9}{'highest':>9}{'cpu s':>9}")
    for name, rounds in measured.items():
        walls, cpus = zip(*rounds, strict=True)
        figures = (median(walls), min(walls), max(walls), median(cpus))
        print(f"{name:24}" + f"{figures[0]:10.3f}" + "".join(f"{f:9.3f}" for f in figures[1:]))
    cpu = zip(*([m[1] for m in measured[name]] for name in (PASS, FOLDED)), strict=True)
    print(f"{'cpu added by folds':24}{median(100 * (f / p - 1) for p, f in cpu):+9.0f} %")
    print(f"{'ratio to':24}{'wall':>10}{'lowest':>9}{'highest':>9}{'cpu':>9}{'target':>9}")
    for base in (DECODE, BATCHES):
        names = (PASS, base, BLAS)
        wall, cpu = (
            [
                p[kind] / (d[kind] + b[kind])
                for p, d, b in zip(*map(measured.get, names), strict=True)
            ]
            for kind in (0, 1)
        )
        print(
            f"{base + ' + BLAS':24}{median(wall):10.2f}{min(wall):9.2f}{max(wall):9.2f}"
            f"{median(cpu):9.2f}{target:9.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the tall data")
    parser.add_argument("--data", type=Path, help="folder for scratch files (1.5 GB)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pandas", action="store_true", help="one file as pandas writes it")
    args = parser.parse_args()
    of_us = ((TALL, args.rows), (WIDE, max(args.rows // 5, FILES)))
    shapes = [(*shape, "float64", 1.15) for shape in of_us]
    if args.pandas:
        shapes = [(TALL, args.rows, dtype, 1.25) for dtype in ("float64", "float32")]
        shapes.append((2 * TALL, 2 * args.rows, "float64", 1.35))
    for n_columns, n_rows, dtype, target in shapes:
        with data_folder(args.data) as scratch:
            folder = scratch / "gram"
            if args.pandas:
                write_as_pandas(folder, n_rows, n_columns, dtype)
            else:
                rows_per_shard = -(-n_rows // FILES)
                options = {"rows_per_shard": rows_per_shard, "n_features": n_columns - 1}
                generate(GRAM, folder, n_rows, **options)
            measured = measure(folder, args.repeats)
            report(f"{n_rows} × {n_columns} {dtype}", measured, target)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
