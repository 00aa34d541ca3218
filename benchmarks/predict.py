"""Predictions of whole datasets against decoding the columns they need and nothing else.

A model of a registry predicts 100 columns of Parquet, of which it reads 20, into a folder (a file
for each partition) and into one file. The limit decodes these columns of the same partitions on the
same threads. All are run in turn, and ratios are taken within each round.

Run with ``python benchmarks/predict.py [--rows N] [--rounds N] [--data FOLDER]``.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms import GroupSequencer, LandmarkRegressor, load
from distfms.data.files.dataset import PartitionReader, open_dataset
from distfms.data.files.partition import Partition
from distfms.engine.local import LocalExecutor
from distfms.engine.memory import n_processors
from distfms.registry import Registry
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file

COLUMNS, USED, FILE_ROWS = 100, 20, 250_000


def write_data(folder: Path, n_rows: int) -> list[str]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"x{i:02d}" for i in range(COLUMNS)]
    for number in range(-(-n_rows // FILE_ROWS)):
        x = rng.normal(size=(COLUMNS, FILE_ROWS))
        y = x[:USED].sum(axis=0) + rng.normal(size=FILE_ROWS)
        table = pa.table([*x, y, np.arange(FILE_ROWS)], names=[*names, "y", "id"])
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=FILE_ROWS // 2)
    return names


def decode(reader: PartitionReader, columns: list[str], partition: Partition) -> int:
    return reader.read(partition, columns).num_rows


def one_row(d: int, folder: Path, rounds: int) -> None:
    """Processor time of a row that a service predicts, and of taking its values and multiplying."""
    rng = np.random.default_rng(d)
    rows = {f"x{i}": column for i, column in enumerate(rng.normal(size=(d, 300)))}
    data, row = pa.table(rows), {name: [float(own[0])] for name, own in rows.items()}
    y, weights = data.column("x0").to_numpy() + rng.normal(size=300), rng.normal(size=d)
    sequencer = GroupSequencer(groups={"all": ["x*"]}, folds=0).fit(data, y)
    landmarks = LandmarkRegressor(landmarks=30, metric="none", folds=0).fit(data, y)
    names = list(rows)
    works = {"product": lambda: np.array([row[name] for name in names]).T @ weights}
    for name, fitted in (("sequence", sequencer), ("landmarks", landmarks)):
        model = load(fitted.save(folder / f"{name}-{d}"), budget=100)
        works[name] = partial(model.predict, row)
    calls, found = 20_000 // d + 2, {}
    for _ in range(rounds):
        for name, work in works.items():
            work()
            used = seconds(lambda work=work: [work() for _ in range(calls)])[1]
            found.setdefault(name, []).append(1e3 * used / calls)
    said = ", ".join(f"{name} {median(own):.3f} ms" for name, own in found.items())
    print(f"one row of {d} columns: {said}")


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor time of a call."""
    start, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="Folder for scratch files.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.data) as scratch:
        place = Path(scratch)
        names = write_data(place / "rows", arguments.rows)
        first = str(place / "rows/part-000.parquet")
        spec = {"name": "m", "method": "sequence", "output": str(place / "runs")}
        spec["data"] = {"path": first, "target": "y", "id": "id", "folds": 0}
        spec["data"]["features"] = names[:USED]
        spec["sequence"] = {"baselines": []}
        registry = Registry(place / "registry")
        files = [path for path in run_job(build_spec(spec)).folder.iterdir() if path.suffix]
        registry.add("m", {path.name: path.read_bytes() for path in files}, {})
        registry.promote("m", 1)
        measure(place, arguments.rounds)
        for d in (20, 500, 5_000):
            one_row(d, place, arguments.rounds)


def measure(place: Path, rounds: int) -> None:
    rows, columns = str(place / "rows"), [f"x{i:02d}" for i in range(USED)]
    dataset = open_dataset(rows)

    def limit() -> None:
        with LocalExecutor() as executor:
            executor.map(partial(decode, dataset.reader, [*columns, "id"]), dataset.partitions)

    def predict(out: str) -> None:
        predict_file("registry:m", rows, out, budget=USED, registry=str(place / "registry"))

    works = {
        "decode": limit,
        "folder": partial(predict, f"{place}/predicted/"),
        "file": partial(predict, f"{place}/predicted.parquet"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        shutil.rmtree(place / "predicted", ignore_errors=True)
        for name, work in works.items():
            found[name].append(seconds(work))
    print(f"{dataset.n_rows:,} rows, {USED} of {COLUMNS} columns, {n_processors()} processors")
    for name, all_times in found.items():
        times = all_times[1:]  # the first round warms up
        ratios = [
            wall / base[0] for (wall, _), base in zip(times, found["decode"][1:], strict=True)
        ]
        cpu = [used / base[1] for (_, used), base in zip(times, found["decode"][1:], strict=True)]
        per_s = dataset.n_rows / median(wall for wall, _ in times)
        print(
            f"{name}: {per_s / 1e6:.2f} M rows a second; {median(ratios):.2f} × decoding "
            f"({min(ratios):.2f} to {max(ratios):.2f}), cpu {median(cpu):.2f} ×"
        )


if __name__ == "__main__":
    main()
