"""Processor seconds of a default sequence job beside a plain loop of LightGBM fits.

The target of the table is made by six of its normal columns together, so the folds choose trees.
The loop fits 200 trees to ten prefixes of the columns, with all rows and without each of five
folds, on one thread: sixty fits. The job has models of about as many prefixes on as many folds, of
up to 300 trees; it also chooses kinds, orders and numbers of trees, and judges all
models. Each takes a process of its own; a round does the loop, then the job.

Run with ``python -m benchmarks.sequence_trees [--rows 9000] [--columns 26] [--rounds 3]``.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.record import range_text, record

SPEC = """
name: trees
method: sequence
data: {{path: {path}, target: y, test: 0.2}}
"""


def table(n_rows: int, n_columns: int) -> pd.DataFrame:
    """Return normal columns, of which six make the target together."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) * X[:, 3] + (X[:, 4] > 0) * X[:, 5]
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(n_columns)])
    return frame.assign(y=y + 0.3 * rng.normal(size=n_rows))


def loop(path: str) -> None:
    """Fit sixty models to 80 % of the rows, as many as the job learns from."""
    import lightgbm

    frame = pd.read_parquet(path)
    y, X = frame.pop("y").to_numpy(), frame.to_numpy()
    rows = np.arange(int(0.8 * len(y)))
    parameters = {"num_leaves": 15, "num_threads": 1, "verbosity": -1}
    for k in np.geomspace(1, X.shape[1], 10).round().astype(int):
        for fold in range(-1, 5):
            own = rows[rows % 5 != fold]
            lightgbm.train(parameters, lightgbm.Dataset(X[own, :k], y[own]), 200)


def seconds(*command: str) -> float:
    """Return the processor seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=9000)
    parser.add_argument("--columns", type=int, default=26)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write the result and the README")
    parser.add_argument("--loop", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        return loop(args.loop)
    with tempfile.TemporaryDirectory() as folder:
        path, spec = Path(folder) / "rows.parquet", Path(folder) / "job.yaml"
        table(args.rows, args.columns).to_parquet(path)
        spec.write_text(SPEC.format(path=path))
        ratios = list[float]()
        for number in range(args.rounds):
            plain = seconds("-m", "benchmarks.sequence_trees", "--loop", str(path))
            out = str(Path(folder) / f"run {number}")
            job = seconds("-m", "distfms.cli", "run", str(spec), "--out", out, "-q")
            ratios.append(job / plain)
            print(f"loop {plain:.1f} s, job {job:.1f} s: {ratios[-1]:.2f} x", flush=True)
    print(f"{range_text(ratios)} x")
    if args.record:
        table_row = {
            "rows × columns": f"{args.rows:,} × {args.columns}",
            "rounds": args.rounds,
            "job ÷ loop": range_text(ratios),
        }
        record(
            "cost-sequence-trees",
            title="What a default sequence costs where trees are chosen",
            text="Processor time of a job beside a plain loop of sixty LightGBM fits, one thread.",
            script="python -m benchmarks.sequence_trees",
            seeds=[0],
            rows=[table_row],
        )


if __name__ == "__main__":
    main()
