"""How jobs grow: processor seconds of cold commands as one size is doubled twice.

For each axis the same job is run at one, two and four times a size, each in a fresh process with
the default engine on two workers, without the cache. What the smallest job costs is taken off
before ratios are formed, as it is the same at any size; "expected" is that of the mathematics.

Run with ``python benchmarks/growth.py [--only AXIS …] [--scale 0.1] [--data FOLDER]``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from whole_job import distfms


class Case(NamedTuple):
    """One axis: its sizes, the growth expected of a doubling, and a job of a given size."""

    sizes: tuple[int, int, int]
    expected: str
    job: Callable[[int, float], tuple[pa.Table, dict[str, Any]]]


def rows_of(n: int, d: int, n_classes: int = 0) -> pa.Table:
    """Return a table of normal columns and a target that five of them make, or classes."""
    rng = np.random.default_rng(0)
    columns = {f"x{i:04d}": rng.normal(size=n) for i in range(d)}
    scores = np.sum(list(columns.values())[:5], axis=0) + rng.normal(size=n)
    if n_classes:
        edges = np.quantile(scores, np.arange(1, n_classes) / n_classes)
        return pa.table(columns | {"y": np.searchsorted(edges, scores)})
    return pa.table(columns | {"y": scores})


def judgments_of(n: int, d: int) -> pa.Table:
    """Return objects with two judgments of each of `d` attributes."""
    rng = np.random.default_rng(0)
    columns, label = {}, rng.normal(size=n)
    for i in range(d):
        truth = rng.normal(size=n)
        label += truth * (i < d // 4)
        for k in (1, 2):
            columns[f"a{i:04d}__{k}"] = truth + rng.normal(size=n)
    return pa.table(columns | {"y": label})


def spec(method: str, section: dict[str, Any], folds: int = 5, **more: Any) -> dict[str, Any]:
    data = {"target": "y", "folds": folds}
    return {"name": "growth", "method": method, "data": data, method: section} | more


def grouped(d: int, n_groups: int) -> dict[str, list[str]]:
    width = d // n_groups
    return {f"g{g}": [f"x{i:04d}" for i in range(g * width, g * width + width)]
            for g in range(n_groups)}  # fmt: skip


def least(n: int, scale: float) -> int:
    return max(int(n * scale), 1000)


CASES = {
    "rows, sequence of 100 columns": Case(
        (250_000, 500_000, 1_000_000), "2", lambda n, s: (rows_of(least(n, s), 100),
                                                          spec("sequence", {}))
    ),
    "columns, sequence of 100,000 rows": Case(
        (100, 200, 400), "4", lambda d, s: (rows_of(least(100_000, s), d), spec("sequence", {}))
    ),
    "groups, 400 columns, 20,000 rows": Case(
        (50, 100, 200), "2",
        lambda g, s: (
            rows_of(least(20_000, s), 400), spec("sequence", {"groups": grouped(400, g)})
        ),
    ),
    "folds, 500,000 rows of 100 columns": Case(
        (5, 10, 20), "1 (rows), 2 (scores)",
        lambda k, s: (rows_of(least(500_000, s), 100), spec("sequence", {}, k)),
    ),
    "grid points, sequence of 200 columns": Case(
        (5, 10, 20), "2",
        lambda p, s: (
            rows_of(least(20_000, s), 200),
            spec("sequence", {}, tune={"grid": {"ridge": list(np.logspace(-5, 1, p))}}),
        ),
    ),
    "groups, logistic, 20,000 rows of 100 columns": Case(
        (25, 50, 100), "2",
        lambda g, s: (rows_of(least(20_000, s), 100, 2),
                      spec("sequence", {"family": "logistic", "groups": grouped(100, g)})),
    ),
    "classes, softmax, 20,000 rows of 50 columns": Case(
        (3, 6, 12), "2 to 4",
        lambda c, s: (rows_of(least(20_000, s), 50, c), spec("sequence", {"family": "softmax"})),
    ),
    "attributes, multi-selection, budget 200": Case(
        (250, 500, 1000), "4 to 8",
        lambda d, s: (judgments_of(least(10_000, s), d), spec("multiselect", {"budget": 200})),
    ),
    "budget, multi-selection of 500 attributes": Case(
        (250, 500, 1000), "2 to 4",
        lambda b, s: (judgments_of(least(10_000, s), 500), spec("multiselect", {"budget": b})),
    ),
    "landmarks, 100,000 rows of 16 columns": Case(
        (125, 250, 500), "2 to 4",
        lambda k, s: (rows_of(least(100_000, s), 16), spec("landmarks", {"landmarks": k})),
    ),
    "rows, 250 landmarks": Case(
        (50_000, 100_000, 200_000), "2",
        lambda n, s: (rows_of(least(n, s), 16), spec("landmarks", {"landmarks": 250})),
    ),
    "columns, 250 landmarks, 50,000 rows": Case(
        (16, 32, 64), "2",
        lambda d, s: (rows_of(least(50_000, s), d), spec("landmarks", {"landmarks": 250})),
    ),
    "attributes, pairs, 10 of each of 20,000 rows": Case(
        (250, 500, 1000), "8",
        lambda d, s: (rows_of(least(20_000, s), d),
                      spec("attribute_efficient", {"attributes_per_example": 10})),
    ),
    "rows, pairs, 10 of 200 attributes": Case(
        (50_000, 100_000, 200_000), "2",
        lambda n, s: (rows_of(least(n, s), 200),
                      spec("attribute_efficient", {"attributes_per_example": 10})),
    ),
}  # fmt: skip


def seconds(table: pa.Table, content: dict[str, Any], scratch: Path) -> float:
    """Return the processor seconds of a cold run on the table."""
    path, spec_path = scratch / "rows.parquet", scratch / "spec.yaml"
    pq.write_table(table, path, row_group_size=50_000)
    content["data"]["path"] = str(path)
    spec_path.write_text(json.dumps(content | {"engine": {"workers": 2}}))
    return distfms("run", spec_path, scratch / "runs").processor_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="axes that begin with these words")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--data", type=Path, help="folder for scratch files (2 GB)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=args.data) as folder:
        scratch = Path(folder)
        fixed = min(seconds(rows_of(1000, 10), spec("sequence", {}), scratch) for _ in range(3))
        print(f"the smallest job: {fixed:.1f} s of processor time, taken off the ratios\n")
        print("| axis | sizes | processor seconds | growth by doubling | expected |")
        print("|---|---|---|---|---|")
        for axis, case in CASES.items():
            if args.only and not axis.startswith(tuple(args.only)):
                continue
            taken = [seconds(*case.job(size, args.scale), scratch) for size in case.sizes]
            own = [max(s - fixed, 0.01) for s in taken]
            sizes = ", ".join(f"{size:,}" for size in case.sizes)
            times = ", ".join(f"{s:.1f}" for s in taken)
            grown = ", ".join(f"{b / a:.1f}" for a, b in itertools.pairwise(own))
            print(f"| {axis} | {sizes} | {times} | {grown} | {case.expected} |", flush=True)


if __name__ == "__main__":
    main()
