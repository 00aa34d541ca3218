"""How often the intervals of headlines cover the truth.

Simulated tables whose truth is known: what the model of a job explains of many other rows. A
headline's ``65 ± 2 %`` is a share with its standard error, by the spread over folds; printed is how
often the truth is within Student's 95 % of it, of cross-validation and of held-out rows. Of
sequences that also goes for all groups, and for what rows that stop one by one cost and lose.

Run with ``OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/intervals.py``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
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


def classes(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Two classes of which the first two numbers tell much."""
    frame = linear(rng, n)
    score = 3.0 * frame["a"] + 2.0 * frame["b"] + 0.5 * frame["c"]
    frame["y"] = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    return frame


def finished(own: dict[str, Any], method: str, rows: pd.DataFrame, seed: int, folder: Path) -> Path:
    """Run a job and return its folder."""
    rows.to_parquet(folder / "rows.parquet")
    data = {"path": str(folder / "rows.parquet"), "target": "y", "folds": FOLDS, "test": 0.2}
    job = {"name": "interval", "method": method, "data": data, method: own, "seed": seed}
    return Path(run_job(build_spec({**job, "output": str(folder / "out")})).folder)


def explained(folder: Path, others: pd.DataFrame, **how: Any) -> float:
    """Return what a model explains of other rows."""
    predicted = distfms.load(folder).predict(others, **how)
    rest = others["y"].to_numpy() - np.asarray(predicted["predicted_y"])
    return float(1 - np.mean(rest**2) / others["y"].var())


def covered(method: str, draw: Draw, seed: int, folder: Path) -> dict[str, bool]:
    """Return by rows whether intervals of a job on a simulated table cover the truth."""
    own, measure = JOBS[method]
    rng = np.random.default_rng(seed)
    run = finished(own, method, draw(rng, 600), seed, folder)
    metrics, others = read_run(str(run)).open()[1].metrics, draw(rng, OTHERS)
    claims = {"": (metrics.get("folds_at_stop", metrics["folds"]), of_test(metrics, measure), {})}
    if method == "sequence":
        all_groups = {"budget": metrics["curves"][0]["points"][-1]["budget"]}
        claims["all, "] = (metrics["folds"], metrics["test"][measure], all_groups)
    found = dict[str, bool]()
    for which, (folds, of_held_out, how) in claims.items():
        truth = explained(run, others, **how)
        weights = [own["n_rows"] for own in metrics["folds"]]
        mean = np.average([own[measure] for own in folds], weights=weights)
        for rows, share in (("validation", mean), ("test", of_held_out)):
            error = error_of(metrics, rows, folds, measure) or 0.0
            share = 1 - share if measure == "relative_loss" else share
            found[which + rows] = within(share - truth, error)
    return found


def stopped(seed: int, folder: Path) -> dict[str, bool]:
    """Return whether the claimed cost and loss of rows that stop one by one cover the truth."""
    rng = np.random.default_rng(seed)
    own = {**JOBS["sequence"][0], "family": "logistic", "stopping": "rows"}
    run = finished(own, "sequence", classes(rng, 600), seed, folder)
    claim = read_run(str(run)).open()[1].metrics["stop"]["rows"]["validation"]
    others = classes(rng, OTHERS)
    found = distfms.load(run).predict(others, stop="rows")
    right = np.where(others["y"] == "yes", *(found[f"probability_{c}"] for c in ("yes", "no")))
    truth = {"mean_cost": np.mean(found["cost"]), "log_loss": -np.mean(np.log(right))}
    return {n: within(claim[n] - own, claim[f"error_of_{n}"]) for n, own in truth.items()}


def within(difference: float, error: float) -> bool:
    return bool(abs(difference) <= student_t(0.95, FOLDS - 1) * error)


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
    cases: dict[str, Callable[[int, Path], dict[str, bool]]] = {
        f"{method}, {draw.__name__}": partial(covered, method, draw)
        for method in JOBS
        for draw in (linear, bent)
    }
    for name, check in {**cases, "stopping row by row": stopped}.items():
        found = []
        for seed in range(n):
            with tempfile.TemporaryDirectory() as folder:
                found.append(check(seed, Path(folder)))
        shares = {which: np.mean([own[which] for own in found]) for which in found[0]}
        print(f"{name}:", *(f"{which} {share:.0%};" for which, share in shares.items()), flush=True)


if __name__ == "__main__":
    main()
