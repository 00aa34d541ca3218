"""How often the intervals of headlines cover the truth.

Simulated tables whose truth is known: what the model of a job explains of many other rows. A
headline's ``65 ± 2 %`` is a share with its standard error, by the spread over folds; printed is how
often the truth is within Student's 95 % of it, of cross-validation and of held-out rows.

Run with ``OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/intervals.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import distfms
from distfms.report.metrics import error_of
from distfms.runs.driver import run_job
from distfms.runs.finished import read_run
from distfms.runs.job_spec import build_spec
from distfms.stats.base import student_t

FOLDS, OTHERS = 5, 200_000
#: Section and share of what a headline says, by method.
JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "sequence": ({"model": "linear", "baselines": [], "expand": None}, "explained_variance"),
    "landmarks": ({"landmarks": 40, "metric": "none"}, "r2"),
    "attribute_efficient": ({"attributes_per_example": 4}, "relative_loss"),
}

Draw = Callable[[np.random.Generator, int], pd.DataFrame]


def linear(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Eight numbers, of which four matter."""
    frame = pd.DataFrame(rng.normal(size=(n, 8)), columns=list("abcdefgh"))
    frame["y"] = frame["a"] + 0.7 * frame["b"] + 0.5 * frame["c"] + 0.3 * frame["d"]
    frame["y"] += rng.normal(size=n)
    return frame


def bent(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Targets that bend, with noise of heavy tails."""
    frame = linear(rng, n)
    frame["y"] += np.square(frame["e"]) + rng.standard_t(4, size=n)
    return frame


def explained(folder: Path, others: pd.DataFrame) -> float:
    """Return what a model explains of other rows."""
    predicted = distfms.load(folder).predict(others)
    rest = others["y"].to_numpy() - np.asarray(predicted["predicted_y"])
    return float(1 - np.mean(rest**2) / others["y"].var())


def covered(method: str, draw: Draw, seed: int, folder: Path) -> dict[str, bool]:
    """Return by rows whether the interval of a job on a simulated table covers the truth."""
    own, measure = JOBS[method]
    rng = np.random.default_rng(seed)
    draw(rng, 600).to_parquet(folder / "rows.parquet")
    data = {"path": str(folder / "rows.parquet"), "target": "y", "folds": FOLDS, "test": 0.2}
    job = {"name": "interval", "method": method, "data": data, method: own, "seed": seed}
    spec = build_spec({**job, "output": str(folder / "out")})
    run = run_job(spec).folder
    metrics = read_run(run).open()[1].metrics
    truth, found = explained(Path(run), draw(rng, OTHERS)), dict[str, bool]()
    folds = metrics.get("stop", {}).get("folds") or metrics["folds"]
    values, weights = [own[measure] for own in folds], [own["n_rows"] for own in metrics["folds"]]
    said = {"validation": np.average(values, weights=weights), "test": of_test(metrics, measure)}
    for rows, share in said.items():
        error = error_of(metrics, rows, folds, measure) or 0.0
        share = 1 - share if measure == "relative_loss" else share
        found[rows] = abs(share - truth) <= student_t(0.95, FOLDS - 1) * error
    return found


def of_test(metrics: dict[str, Any], measure: str) -> float:
    """Return the share of the held-out rows that a headline says."""
    stop = metrics.get("stop")
    if stop is None:
        return float(metrics["test"][measure])
    points = {point["n_groups"]: point for point in metrics["curves"][0]["points"]}
    return float(points[stop["n_groups"]]["test"][measure])


def main() -> None:
    """Print coverage by method and table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    n = parser.parse_args().tables
    print("method, table: cross-validation, held-out rows")
    for method in JOBS:
        for draw in (linear, bent):
            found = []
            for seed in range(n):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(covered(method, draw, seed, Path(folder)))
            shares = [np.mean([own[rows] for own in found]) for rows in ("validation", "test")]
            print(f"{method}, {draw.__name__}:", *(f"{share:.0%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
