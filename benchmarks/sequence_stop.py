"""Whether the advised prefix of a sequence is as good as the best one on rows that chose neither.

For each ``FILE.parquet:TARGET`` a job learns from a random 70 % of the rows with five folds. On the
others the share explained at the advised prefix stands beside that of the prefix which is best
there, with its standard error (over 300 bootstrap samples of the rows).

    python benchmarks/sequence_stop.py abalone.parquet:Class_Rings bank8FM.parquet:rej
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file


def compare(path: Path, target: str, folder: Path) -> list[float]:
    """Count groups: all, advised, best on other rows; add what both explain, and its error."""
    table = pq.read_table(path)
    table = table.filter(table.column(target).is_valid())
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = int(0.7 * len(order))
    for name, rows in (("train", order[:cut]), ("test", order[cut:])):
        pq.write_table(table.take(np.sort(rows)), folder / f"{name}.parquet")
    data = {"path": str(folder / "train.parquet"), "test_path": str(folder / "test.parquet")}
    spec = build_spec(
        {
            "name": "stop",
            "method": "sequence",
            "data": {**data, "target": target, "folds": 5, "missing": "mean"},
            "sequence": {"baselines": []},
            "output": str(folder.parent / "runs"),
        }
    )
    run = run_job(spec).folder
    metrics = json.loads((run / "metrics.json").read_text())
    points = metrics["curves"][0]["points"]
    advised = metrics["stop"]["n_groups"]
    best = max(range(len(points)), key=lambda k: points[k]["test"]["explained_variance"])
    out, errors = folder / "predicted.parquet", {}
    truth = pq.read_table(folder / "test.parquet").column(target).to_numpy().astype(float)
    for k in {0, advised, best}:
        predict_file(run, data["test_path"], out, budget=points[k]["budget"])
        found = pq.read_table(out).column(f"predicted_{target}").to_numpy()
        errors[k] = (truth - found) ** 2
    rng, shares = np.random.default_rng(1), []
    for _ in range(300):
        rows = rng.integers(0, len(truth), len(truth))
        shares.append(1 - errors[advised][rows].mean() / errors[0][rows].mean())
    at = [points[k]["test"]["explained_variance"] for k in (advised, best)]
    return [len(points) - 1, advised, best, *at, float(np.std(shares))]


def main() -> None:
    print(f"{'set':16}{'groups':>8}{'advised':>8}{'best':>8}{'share':>9}{'best':>9}{'error':>9}")
    for argument in sys.argv[1:]:
        path, target = argument.rsplit(":", 1)
        with tempfile.TemporaryDirectory() as folder:
            # Folds go by the names of a file and its folder.
            (inside := Path(folder) / "rows").mkdir()
            *counts, share, best, error = compare(Path(path), target, inside)
        row = "".join(f"{count:8d}" for count in counts)
        print(f"{Path(path).stem:16}{row}{share:9.4f}{best:9.4f}{error:9.4f}", flush=True)


if __name__ == "__main__":
    main()
