"""How jobs grow: processor seconds of cold commands as one size is doubled three times.

For each axis the same job is run at a small size and at four sizes, each in a fresh process with
the default engine on two workers, without the cache. What the small job takes is taken off the
others, as most of it is the same at any size; the exponent is that of the power of the size which
fits the rest best. Beside it is the exponent of the mathematics, that of the term that is greatest
for large sizes.

Run with ``python benchmarks/growth.py [--only AXIS …] [--scale 0.1] [--data FOLDER]``.
"""

from __future__ import annotations

import argparse
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
    """One axis: a small size and four, the exponent of the mathematics, and a job of a size."""

    sizes: tuple[int, ...]
    expected: float
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


def pairs(n_drawn: int) -> dict[str, Any]:
    return spec("attribute_efficient", {"attributes_per_example": n_drawn, "solver": "pairs"})


def least(n: int, scale: float) -> int:
    return max(int(n * scale), 500)


CASES = {
    "rows, sequence of 100 columns": Case(
        (8_000, 125_000, 250_000, 500_000, 1_000_000), 1.0,
        lambda n, s: (rows_of(least(n, s), 100), spec("sequence", {})),
    ),
    "columns, sequence of 50,000 rows": Case(
        (8, 100, 200, 400, 800), 2.0,
        lambda d, s: (rows_of(least(50_000, s), d), spec("sequence", {})),
    ),
    "groups, sequence of 480 columns, 20,000 rows": Case(
        (2, 30, 60, 120, 240), 1.0,
        lambda g, s: (
            rows_of(least(20_000, s), 480), spec("sequence", {"groups": grouped(480, g)})
        ),
    ),
    "folds, sequence of 100 columns, 200,000 rows": Case(
        (2, 5, 10, 20, 40), 1.0,
        lambda k, s: (rows_of(least(200_000, s), 100), spec("sequence", {}, k)),
    ),
    "grid points, sequence of 200 columns": Case(
        (1, 5, 10, 20, 40), 1.0,
        lambda p, s: (
            rows_of(least(20_000, s), 200),
            spec("sequence", {}, tune={"grid": {"ridge": list(np.logspace(-5, 1, p))}}),
        ),
    ),
    "rows, logistic, 50 columns": Case(
        (2_000, 25_000, 50_000, 100_000, 200_000), 1.0,
        lambda n, s: (rows_of(least(n, s), 50, 2), spec("sequence", {"family": "logistic"})),
    ),
    "groups, logistic, 120 columns, 20,000 rows": Case(
        (2, 15, 30, 60, 120), 1.0,
        lambda g, s: (rows_of(least(20_000, s), 120, 2),
                      spec("sequence", {"family": "logistic", "groups": grouped(120, g)})),
    ),
    "classes, softmax, 20,000 rows of 50 columns": Case(
        (2, 3, 6, 12, 24), 2.0,
        lambda c, s: (rows_of(least(20_000, s), 50, c), spec("sequence", {"family": "softmax"})),
    ),
    "objects, multi-selection of 100 attributes": Case(
        (4_000, 50_000, 100_000, 200_000, 400_000), 1.0,
        lambda n, s: (judgments_of(least(n, s), 100), spec("multiselect", {"budget": 100})),
    ),
    "attributes, multi-selection, budget 200": Case(
        (8, 125, 250, 500, 1_000), 2.0,
        lambda d, s: (judgments_of(least(10_000, s), d), spec("multiselect", {"budget": 200})),
    ),
    "budget, multi-selection of 500 attributes": Case(
        (4, 125, 250, 500, 1_000), 1.0,
        lambda b, s: (judgments_of(least(10_000, s), 500), spec("multiselect", {"budget": b})),
    ),
    "rows, 250 landmarks of 16 columns": Case(
        (10_000, 100_000, 200_000, 400_000, 800_000), 1.0,
        lambda n, s: (rows_of(least(n, s), 16), spec("landmarks", {"landmarks": 250})),
    ),
    "landmarks, 200,000 rows of 16 columns": Case(
        (16, 125, 250, 500, 1_000), 2.0,
        lambda k, s: (rows_of(least(200_000, s), 16), spec("landmarks", {"landmarks": k})),
    ),
    "columns, 250 landmarks, 50,000 rows": Case(
        (2, 16, 32, 64, 128), 1.0,
        lambda d, s: (rows_of(least(50_000, s), d), spec("landmarks", {"landmarks": 250})),
    ),
    "rows, pairs, 10 of 100 attributes": Case(
        (4_000, 50_000, 100_000, 200_000, 400_000), 1.0,
        lambda n, s: (rows_of(least(n, s), 100),
                      pairs(10)),
    ),
    "attributes, pairs, 10 of each of 20,000 rows": Case(
        (12, 125, 250, 500, 1_000), 3.0,
        lambda d, s: (rows_of(least(20_000, s), d),
                      pairs(10)),
    ),
    "attributes of a row, pairs, of 200": Case(
        (3, 8, 16, 32, 64), 2.0,
        lambda k, s: (rows_of(least(50_000, s), 200),
                      pairs(k)),
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
        print("| axis | sizes | processor seconds | exponent | of the mathematics |")
        print("|---|---|---|---|---|")
        for axis, case in CASES.items():
            if args.only and not axis.startswith(tuple(args.only)):
                continue
            scratch = Path(folder)
            taken = [seconds(*case.job(size, args.scale), scratch) for size in case.sizes]
            grown = np.maximum(np.array(taken[1:]) - taken[0], 0.01)
            found = np.polyfit(np.log(case.sizes[1:]), np.log(grown), 1)[0]
            sizes = ", ".join(f"{size:,}" for size in case.sizes)
            times = ", ".join(f"{s:.1f}" for s in taken)
            told = f"{found:.2f}" + ": above" * bool(found > case.expected + 0.15)
            print(f"| {axis} | {sizes} | {times} | {told} | {case.expected:g} |", flush=True)


if __name__ == "__main__":
    main()
