"""Whether the advised prefix of a sequence is as good as the best one on rows that chose neither.

For each ``FILE.parquet:TARGET`` a job learns from a random 70 % of the rows with five folds. On the
others the share explained at the advised prefix stands beside that of the prefix which is best
there, with its standard error (over 300 bootstrap samples of the rows).

    python benchmarks/sequence_stop.py abalone.parquet:Class_Rings bank8FM.parquet:rej

With ``--rows`` each row stops on its own: on the breast cancer set that comes with the package, at
the prices of ``jobs/sequence-breast-cancer.yaml``, with ``--heart FOLDER`` on UCI heart disease
(see heart_data.py), and with ``--thyroid FOLDER`` on UCI thyroid disease (``ann-train.data`` and
``ann-test.data`` of its folder for neural networks, 7,200 patients) at the prices that Turney gave
for it: four blood tests cost 11.41 to 22.78, an answer or the index that is computed from two of
them 1. Jobs learn from a random 60 % of the rows. At a mean cost on the folds of at most 60 % of
that of all tests, the log loss row by row, as folds claim it and on the other rows, stands beside
those of all tests and of the best prefix within that cost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from heart_data import read_patients, read_prices

from distfms.data.files.builtin import builtin_dataset
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file

JOBS = Path(__file__).resolve().parents[1] / "jobs"


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


THYROID = (
    *("age", "sex", "on_thyroxine", "query_on_thyroxine", "on_antithyroid_medication", "sick"),
    *("pregnant", "surgery", "i131_treatment", "query_hypothyroid", "query_hyperthyroid"),
    *("lithium", "goitre", "tumor", "hypopituitary", "psych", "tsh", "t3", "tt4", "t4u", "fti"),
)
PRICES = {"default": 1.0, "tsh": 22.78, "t3": 11.41, "tt4": 14.51, "t4u": 11.41}


def read_thyroid(folder: Path) -> pa.Table:
    """All patients: 21 answers and tests, and one of three classes."""
    files = (folder / f"ann-{name}.data" for name in ("train", "test"))
    rows = [line.replace(",", " ").split() for file in files for line in file.open()]
    columns = np.array(rows, dtype=float).T
    return pa.table(dict(zip((*THYROID, "class"), columns, strict=True)))


def tables(heart: Path | None, thyroid: Path | None) -> Iterator[tuple[str, pa.Table, str, dict]]:
    """Yield name, rows, target and options of medical tables with prices."""
    job = yaml.safe_load((JOBS / "sequence-breast-cancer.yaml").read_text())
    table = pq.read_table(builtin_dataset("breast-cancer"))
    yield "breast cancer", table, "malignant", job["sequence"]
    if heart is not None:
        costs, shared = read_prices(heart)
        options = {"family": "logistic", "costs": costs, "shared_costs": shared}
        yield "heart disease", read_patients(heart).drop_columns("patient"), "disease", options
    if thyroid is not None:
        options = {"family": "softmax", "costs": PRICES, "requires": {"fti": ["tt4", "t4u"]}}
        yield "thyroid", read_thyroid(thyroid), "class", options


def by_rows(table: pa.Table, target: str, options: dict, folder: Path, seed: int) -> list[float]:
    """Return costs and losses, as shares of what all tests cost, and as numbers."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = int(0.6 * len(order))
    (folder / "rows").mkdir()
    for name, rows in (("train", order[:cut]), ("test", order[cut:])):
        pq.write_table(table.take(np.sort(rows)), folder / "rows" / f"{name}.parquet")
    paths = {
        "path": str(folder / "rows/train.parquet"),
        "test_path": str(folder / "rows/test.parquet"),
    }
    spec = build_spec(
        {
            "name": "rows",
            "method": "sequence",
            "seed": seed,
            "data": {**paths, "target": target, "folds": 5, "missing": "mean"},
            "sequence": {**options, "baselines": []},
            "output": str(folder / "runs"),
        }
    )
    metrics = json.loads((run_job(spec).folder / "metrics.json").read_text())
    prefixes, total = metrics["stopping_prefixes"], metrics["stopping_prefixes"][-1]["budget"]
    within = [p for p in metrics["stopping"] if p["mean_cost"] <= 0.6 * total]
    prefix = min(
        (p for p in prefixes if p["budget"] <= 0.6 * total),
        key=lambda p: p["validation"]["log_loss"],
    )
    claim, truth = within[-1]["validation"], within[-1]["test"]
    whole = prefixes[-1]
    return [
        *(own["mean_cost"] / total for own in (claim, truth)),
        *(own["log_loss"] for own in (claim, whole["validation"], prefix["validation"])),
        *(own["log_loss"] for own in (truth, whole["test"], prefix["test"])),
    ]


def main_by_rows(heart: Path | None, thyroid: Path | None, n_seeds: int = 10) -> None:
    """Print means over splits, with standard errors of the difference to all tests."""
    names = ("cost", "rows", "all", "prefix")  # as folds claim it, then on other rows
    print(f"{'set':16}" + "".join(f"{n:>9}" for n in (*names, *names)) + "  difference to all")
    for name, table, target, options in tables(heart, thyroid):
        found = []
        for seed in range(n_seeds):
            with tempfile.TemporaryDirectory() as folder:
                found.append(by_rows(table, target, options, Path(folder), seed))
        each = np.array(found)
        claim, truth = each.mean(axis=0)[[0, 2, 3, 4]], each.mean(axis=0)[[1, 5, 6, 7]]
        more = each[:, 5] - each[:, 6]
        error = more.std(ddof=1) / np.sqrt(n_seeds)
        row = "".join(f"{value:9.3f}" for value in (*claim, *truth))
        print(f"{name:16}{row}  {more.mean():+.4f} ± {error:.4f}", flush=True)


def main() -> None:
    if "--rows" in sys.argv:
        given = [
            Path(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else None
            for name in ("--heart", "--thyroid")
        ]
        return main_by_rows(*given)
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
