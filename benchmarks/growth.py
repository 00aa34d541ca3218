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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from whole_job import distfms


@dataclass(frozen=True)
class Axis:
    """What grows: a small size and four, and the exponent of the mathematics.

    `table` makes the rows of a size, `section` the options of the method.
    """

    method: str
    sizes: tuple[int, ...]
    expected: float
    table: Callable[[int], pa.Table]
    section: Callable[[int], dict[str, Any]] = lambda size: {}


def rows_of(n: int, d: int, n_classes: int = 0) -> pa.Table:
    """Return a table of normal columns and a target that five of them make, or classes."""
    rng = np.random.default_rng(0)
    columns = {f"x{number:04d}": rng.normal(size=n) for number in range(d)}
    target = rng.normal(size=n) + sum(list(columns.values())[:5])
    if n_classes:
        edges = np.quantile(target, np.arange(1, n_classes) / n_classes)
        target = np.searchsorted(edges, target)
    return pa.table({**columns, "y": target})


def judgments_of(n: int, d: int) -> pa.Table:
    """Return objects with two judgments of each of `d` attributes."""
    rng = np.random.default_rng(0)
    label = rng.normal(size=n)
    columns = {}
    for number in range(d):
        truth = rng.normal(size=n)
        if number < d // 4:
            label += truth
        for judgment in (1, 2):
            columns[f"a{number:04d}__{judgment}"] = truth + rng.normal(size=n)
    return pa.table({**columns, "y": label})


def grouped(n_columns: int, n_groups: int) -> dict[str, list[str]]:
    """Return groups of columns that are next to each other."""
    width = n_columns // n_groups
    names = [f"x{number:04d}" for number in range(n_columns)]
    starts = range(0, width * n_groups, width)
    return {f"g{start // width}": names[start : start + width] for start in starts}


def pairs(n_drawn: int) -> dict[str, Any]:
    return {"attributes_per_example": n_drawn, "solver": "pairs"}


SCALE = 1.0


def scaled(n_rows: int) -> int:
    """Return a number of rows as `--scale` has it, but not too few."""
    return max(int(n_rows * SCALE), 500)


HUNDRED_THOUSANDS = (50_000, 100_000, 200_000, 400_000)
HUNDREDS = (125, 250, 500, 1_000)
AXES = {
    "rows, sequence of 100 columns": Axis(
        "sequence",
        (8_000, 125_000, 250_000, 500_000, 1_000_000),
        1.0,
        lambda n: rows_of(scaled(n), 100),
    ),
    "columns, sequence of 50,000 rows": Axis(
        "sequence", (8, 100, 200, 400, 800), 2.0, lambda d: rows_of(scaled(50_000), d)
    ),
    "groups, sequence of 480 columns, 20,000 rows": Axis(
        "sequence",
        (2, 30, 60, 120, 240),
        1.0,
        lambda size: rows_of(scaled(20_000), 480),
        lambda size: {"groups": grouped(480, size)},
    ),
    "groups, logistic, 120 columns, 20,000 rows": Axis(
        "sequence",
        (2, 15, 30, 60, 120),
        1.0,
        lambda size: rows_of(scaled(20_000), 120, 2),
        lambda size: {"family": "logistic", "groups": grouped(120, size)},
    ),
    "classes, softmax, 20,000 rows of 50 columns": Axis(
        "sequence",
        (2, 3, 6, 12, 24),
        2.0,
        lambda size: rows_of(scaled(20_000), 50, size),
        lambda size: {"family": "softmax"},
    ),
    "objects, multi-selection of 100 attributes": Axis(
        "multiselect",
        (4_000, *HUNDRED_THOUSANDS),
        1.0,
        lambda n: judgments_of(scaled(n), 100),
        lambda n: {"budget": 100},
    ),
    "attributes, multi-selection, budget 200": Axis(
        "multiselect",
        (8, *HUNDREDS),
        2.0,
        lambda d: judgments_of(scaled(10_000), d),
        lambda d: {"budget": 200},
    ),
    "budget, multi-selection of 500 attributes": Axis(
        "multiselect",
        (4, *HUNDREDS),
        1.0,
        lambda budget: judgments_of(scaled(10_000), 500),
        lambda budget: {"budget": budget},
    ),
    "rows, 250 landmarks of 16 columns": Axis(
        "landmarks",
        (10_000, 100_000, 200_000, 400_000, 800_000),
        1.0,
        lambda n: rows_of(scaled(n), 16),
        lambda n: {"landmarks": 250},
    ),
    "landmarks, 200,000 rows of 16 columns": Axis(
        "landmarks",
        (16, *HUNDREDS),
        2.0,
        lambda size: rows_of(scaled(200_000), 16),
        lambda size: {"landmarks": size},
    ),
    "rows, pairs, 10 of 100 attributes": Axis(
        "attribute_efficient",
        (4_000, *HUNDRED_THOUSANDS),
        1.0,
        lambda n: rows_of(scaled(n), 100),
        lambda n: pairs(10),
    ),
    "attributes, pairs, 10 of each of 20,000 rows": Axis(
        "attribute_efficient",
        (12, *HUNDREDS),
        3.0,
        lambda d: rows_of(scaled(20_000), d),
        lambda d: pairs(10),
    ),
}


def seconds(axis: Axis, size: int, scratch: Path) -> float:
    """Return the processor seconds of a cold run at a size."""
    path = scratch / "rows.parquet"
    pq.write_table(axis.table(size), path, row_group_size=50_000)
    spec = {
        "name": "growth",
        "method": axis.method,
        "data": {"path": str(path), "target": "y", "folds": 5},
        axis.method: axis.section(size),
        "engine": {"workers": 2},
    }
    spec_path = scratch / "spec.yaml"
    spec_path.write_text(json.dumps(spec))
    return distfms("run", spec_path, scratch / "runs").processor_s


def exponent(axis: Axis, taken: list[float]) -> float:
    """Return the power of the size that fits what is above the seconds of the small job."""
    above = np.maximum(np.array(taken[1:]) - taken[0], 0.01)
    return float(np.polyfit(np.log(axis.sizes[1:]), np.log(above), 1)[0])


def main() -> None:
    global SCALE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="axes that begin with these words")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--data", type=Path, help="folder for scratch files (2 GB)")
    args = parser.parse_args()
    SCALE = args.scale
    print("| axis | sizes | processor seconds | exponent | of the mathematics |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="distfms-bench-", dir=args.data) as folder:
        for name, axis in AXES.items():
            if not name.startswith(tuple(args.only)):
                continue
            taken = [seconds(axis, size, Path(folder)) for size in axis.sizes]
            power = exponent(axis, taken)
            sizes = ", ".join(f"{size:,}" for size in axis.sizes)
            times = ", ".join(f"{one:.1f}" for one in taken)
            remark = ": above" if power > axis.expected + 0.15 else ""
            print(f"| {name} | {sizes} | {times} | {power:.2f}{remark} | {axis.expected:g} |")


if __name__ == "__main__":
    main()
