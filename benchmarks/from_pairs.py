"""Solving from pairs of attributes against learning online and against rows observed in full.

Each line is one number of examples: the test loss relative to predicting the mean, mean ± standard
deviation over repeats with other examples and draws, for one solve from pairs (attributes drawn
alike, by second moments, in two phases), for ridge on as many attributes in rows observed in full,
and for the online learner, whose bound and step are chosen by 10-fold cross-validation.

Run with ``OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/from_pairs.py mnist --draws 57``.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks.attribute_efficient import Experiment, InMemory, mnist, synthetic
from distfms.methods.attribute_efficient.learner import Design
from distfms.methods.attribute_efficient.lessons import Lesson, learn

SOLVES = ("uniform", "moments", "two_phase", "rows")


def table(name: str, folder: Path, draws: int) -> Experiment:
    """One of the regression tables, standardized, a third of its rows for the test."""
    frame = pq.read_table(folder / "regression" / f"{name}.parquet").to_pandas()
    values = frame.select_dtypes("number").dropna().to_numpy(dtype=float)
    values = values[np.random.default_rng(0).permutation(len(values))]
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    cut = 2 * len(values) // 3
    train, test = values[:cut], values[cut:]
    return Experiment(
        "ridge", InMemory(train[:, :-1], train[:, -1]), (test[:, :-1], test[:, -1]), draws
    )


def some(experiment: Experiment, n: int, repeat: int) -> Experiment:
    rng, whole = np.random.default_rng(100 + repeat), experiment.train
    own = rng.permutation(len(whole.rows))[:n]
    return replace(experiment, train=InMemory(whole.rows[own], whole.target[own]))


def loss(weights: np.ndarray, intercept: float, experiment: Experiment) -> float:
    rows, target = experiment.test
    null = np.sum((target - experiment.train.target.mean()) ** 2)
    return float(np.sum((rows @ weights + intercept - target) ** 2) / null)


def solved(experiment: Experiment, how: str, repeat: int) -> float:
    n, d = experiment.train.rows.shape
    moments = (experiment.train.rows**2).mean(axis=0)
    sampling: Any = "uniform" if how == "rows" else how
    design = Design("ridge", sampling, d, experiment.n_draws, n, 1.0, 1.0, moments)
    size, full = (max(10, n * experiment.n_draws // d), "rows") if how == "rows" else (n, "pairs")
    found = learn(Lesson(design, repeat, size, full=full), experiment.train)
    return loss(found.weights, found.intercept, experiment)


def online(experiment: Experiment, name: str, repeat: int) -> float:
    mean = float(experiment.train.target.mean())
    centred = replace(
        experiment, train=InMemory(experiment.train.rows, experiment.train.target - mean)
    )
    bound, more, _ = centred.choose(name)
    lesson = centred.lesson(name, len(centred.train.rows), bound, repeat, **more)
    return loss(learn(lesson, centred.train).weights, mean, experiment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", help="mnist, synthetic, or the name of a table")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--alpha", type=float, default=-1.0)
    parser.add_argument("--rows", type=int, nargs="+", default=[1444, 5776, 11552])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTFMS_REALDATA"))
    given = parser.parse_args()
    folder = Path(given.data or ".")
    if given.what == "mnist":
        experiment = replace(mnist("ridge", folder), n_draws=given.draws)
    elif given.what == "synthetic":
        experiment = synthetic("ridge", given.alpha, max(given.rows))
    else:
        experiment = table(given.what, folder, given.draws)
    print(f"| {given.what}, {given.draws} drawn | {' | '.join(SOLVES)} | aerr | ddaerr |")
    with threadpool_limits(1):
        for n in given.rows:
            cells = []
            for how in (*SOLVES, "aerr", "ddaerr"):
                function = solved if how in SOLVES else online
                found = [function(some(experiment, n, r), how, r) for r in range(given.repeats)]
                cells.append(f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}")
            print(f"| {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
