"""Attribute-efficient regression: pairs of attributes beside online learning, and its speed.

``pairs`` prints, for each number of examples of ``synthetic``, ``mnist`` or a table, the test loss
relative to predicting the mean: of one solve from pairs (attributes drawn alike, by second moments,
in two phases; `units: raw`, predictions not cut), of ridge on as many attributes in rows observed
in full, of ridge after imputing means for what was not drawn, and of the online learner, drawn
alike and by moments, whose bound and step are chosen at each number.

``speed`` prints what a row costs through the estimator, without a warm-up, against the compiled
literal loop over all d attributes; and the seconds in which pairs are added up and solved, against
the literal accumulation.

Run with ``OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/attribute_efficient.py pairs mnist``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from distfms import AttributeEfficientRidge
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    ImputedPairs,
    full_candidates,
    solve,
)
from distfms.methods.attribute_efficient.learner import Design
from distfms.methods.attribute_efficient.lessons import Lesson, Ordered, learn, stream
from distfms.methods.attribute_efficient.options import ALGORITHMS
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, Pairs
from tests.reference.attribute_efficient import gaerr

N_FOLDS = 10
SOLVES = ("uniform", "moments", "two_phase", "rows", "imputed")
FACTORS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
BOUNDS = (1.0, 3.0, 10.0)  # times the largest target


@dataclass(frozen=True, eq=False)
class InMemory:
    """Training examples in an order that a key decides."""

    rows: np.ndarray
    target: np.ndarray
    fold: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        folds = np.random.default_rng(0).permutation(len(self.rows)) % N_FOLDS
        object.__setattr__(self, "fold", folds)

    def ordered(self, key: int, fold: int) -> Iterator[Ordered]:
        order = np.random.default_rng(key).permutation(len(self.rows))
        yield self.rows, self.target, order[self.fold[order] != fold]


def relative_loss(weights: np.ndarray, rows: np.ndarray, target: np.ndarray) -> float:
    return float(np.sum((rows @ weights - target) ** 2) / np.sum(target**2))


@dataclass(frozen=True, eq=False)
class Experiment:
    """Training and test rows, and how many attributes are drawn of a row."""

    penalty: Any
    train: InMemory
    test: tuple[np.ndarray, np.ndarray]
    n_draws: int

    @cached_property
    def known(self) -> tuple[float, float, np.ndarray]:
        """Largest target, largest norm of a row or of an attribute, and second moments."""
        rows = self.train.rows
        norms = np.linalg.norm(rows, axis=1) if self.penalty == "ridge" else np.abs(rows)
        largest = float(np.abs(self.train.target).max())
        return largest, float(norms.max()), (rows**2).mean(axis=0)

    @cached_property
    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rows and targets of each fold."""
        own = [self.train.fold == fold for fold in range(N_FOLDS)]
        return [(self.train.rows[rows], self.train.target[rows]) for rows in own]

    def lesson(self, name: str, size: int, bound: float, repeat: int, **more: Any) -> Lesson:
        largest, norm, moments = self.known
        fold = more.pop("fold", -1)
        design = Design(
            self.penalty,
            ALGORITHMS[self.penalty][name],
            len(moments),
            self.n_draws,
            size,
            bound * largest,
            norm,
            moments,
            **more,
        )
        return Lesson(design, stream(7, repeat), size, fold=fold)

    def choose(self, name: str, **fixed: float) -> tuple[float, dict[str, float], float]:
        """Choose bound and factor by cross-validation; also return the loss."""
        best = (np.inf, 0.0, 0.0)
        for bound, factor in itertools.product(BOUNDS, FACTORS):
            losses = []
            for fold, held_out in enumerate(self.folds):
                size = len(self.train.rows) - len(held_out[0])
                more = {**fixed, "fold": fold, "step_factor": factor}
                weights = learn(self.lesson(name, size, bound, 0, **more), self.train).weights
                losses.append(relative_loss(weights, *held_out))
            best = min(best, (float(np.mean(losses)), bound, factor))
        return best[1], {**fixed, "step_factor": best[2]}, best[0]


def synthetic(penalty: Any, alpha: float, m: int, d: int = 500, n_test: int = 2000) -> Experiment:
    """Binary attributes of expectations i^α scaled to the unit ball (Section 5.1)."""
    rng = np.random.default_rng(int(-100 * alpha) + 1)
    u = np.arange(1, d + 1) ** alpha
    u /= np.linalg.norm(u) if penalty == "ridge" else u.max()
    shares = [0.5, 0.0, 0.5] if penalty == "ridge" else [0.15, 0.7, 0.15]
    weights = rng.choice([-1.0, 0.0, 1.0], size=d, p=shares)
    rows = (rng.random((m + n_test, d)) < u).astype(float)
    target = rows @ weights
    return Experiment(penalty, InMemory(rows[:m], target[:m]), (rows[m:], target[m:]), 5)


def mnist(penalty: Any, folder: Path) -> Experiment:
    """Three (−1) or five (1); 57 attributes for ridge, 5 for lasso (Section 5.2)."""
    found = []
    for part in ("train", "test"):
        frame = pq.read_table(folder / "mnist_3v5" / f"{part}.parquet").to_pandas()
        target = np.where(frame.pop("digit").to_numpy() == 5, 1.0, -1.0)
        found.append((frame.to_numpy(dtype=float), target))
    return Experiment(penalty, InMemory(*found[0]), found[1], 57 if penalty == "ridge" else 5)


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


# --- pairs --------------------------------------------------------------------------------------


def some(experiment: Experiment, n: int, repeat: int) -> Experiment:
    rng, whole = np.random.default_rng(100 + repeat), experiment.train
    own = rng.permutation(len(whole.rows))[:n]
    return replace(experiment, train=InMemory(whole.rows[own], whole.target[own]))


def loss(weights: np.ndarray, intercept: float, experiment: Experiment) -> float:
    rows, target = experiment.test
    null = np.sum((target - experiment.train.target.mean()) ** 2)
    return float(np.sum((rows @ weights + intercept - target) ** 2) / null)


def solved(experiment: Experiment, how: str, repeat: int) -> float:
    train, (n, d) = experiment.train, experiment.train.rows.shape
    moments = (train.rows**2).mean(axis=0)
    sampling: Any = "uniform" if how in ("rows", "imputed") else how
    if how == "imputed":
        keys = np.arange(n, dtype=np.uint64)
        observed = Draws(experiment.n_draws, repeat).observe(train.rows.T.copy(), keys)
        pairs = Pairs.of(np.vstack([observed, train.target]), (keys % INNER_FOLDS).astype(int))
        found = solve(ImputedPairs([*pairs.folds.values()]), full_candidates, "raw")
        return loss(found.weights, found.intercept, experiment)
    design = Design("ridge", sampling, d, experiment.n_draws, n, 1.0, 1.0, moments)
    size = max(10, n * experiment.n_draws // d) if how == "rows" else n
    what = "rows" if how == "rows" else "pairs"
    found = learn(Lesson(design, repeat, size, name=what, units="raw"), train)
    return loss(found.weights, found.intercept, experiment)


def online(experiment: Experiment, name: str, repeat: int) -> float:
    mean = float(experiment.train.target.mean())
    centred = replace(
        experiment, train=InMemory(experiment.train.rows, experiment.train.target - mean)
    )
    bound, more, _ = centred.choose(name)
    lesson = centred.lesson(name, len(centred.train.rows), bound, repeat, **more)
    return loss(learn(lesson, centred.train).weights, mean, experiment)


def compare(name: str, experiment: Experiment, rows: Sequence[int], repeats: int) -> None:
    print(f"| {name}, {experiment.n_draws} drawn | {' | '.join(SOLVES)} | aerr | ddaerr |")
    for n in rows:
        cells = []
        for how in (*SOLVES, "aerr", "ddaerr"):
            function = solved if how in SOLVES else online
            found = [function(some(experiment, n, r), how, r) for r in range(repeats)]
            cells.append(f"{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}")
        print(f"| {n} | {' | '.join(cells)} |", flush=True)


# --- speed --------------------------------------------------------------------------------------


def seconds(function: Any, *args: Any) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def speed(d: int, n: int, rounds: int) -> None:
    """Rows through `partial_fit`, in the order of a first use, and through the literal loop."""
    rng = np.random.default_rng(0)
    rows, target = rng.random((n, d)), rng.normal(size=n)
    rows /= np.linalg.norm(rows, axis=1).max()
    model = AttributeEfficientRidge(5, algorithm="aerr", split="one", bound=10.0, n_examples=n)
    first = seconds(model.partial_fit, rows[:1], target[:1])
    one = [seconds(model.partial_fit, rows[i : i + 1], target[i : i + 1]) for i in range(1, 50)]
    many = [seconds(model.partial_fit, rows, target) / n for _ in range(rounds)]
    m = min(n, 5_000_000 // d)
    points, uniforms = rng.integers(0, d, size=(m, 4)), rng.random((m, 1))
    rest = (np.full(d, 1 / d), np.ones(d), True, model.session_.learner.step, 10.0)
    drawn = np.zeros((m, 5), dtype=np.int64)
    args = (rows, target, points, uniforms, *rest, np.zeros(d), np.zeros(d), np.zeros(1), drawn)
    gaerr(rows, target, points[:2], uniforms[:2], *args[4:])
    literal = [seconds(gaerr, *args) / m for _ in range(rounds)]
    print(
        f"d = {d:6}: first row {first:.2f} s, then {1e6 * np.median(one):.0f} µs a call; "
        f"{n} rows at a time {1e6 * np.median(many):.2f} µs a row, literal loop "
        f"{1e6 * np.median(literal):.2f}: {np.median(literal) / np.median(many):.1f} ×",
        flush=True,
    )


def pairs_speed(d: int, k: int, n: int) -> None:
    """Pairs of n rows added up and solved, and the literal sums of products of all attributes."""
    rng = np.random.default_rng(0)
    rows, keys = rng.normal(size=(d, n)), np.arange(n, dtype=np.uint64)
    observed = np.vstack([Draws(k, 0).observe(rows, keys), rows[:3].sum(axis=0)])
    fold = (keys % np.uint64(INNER_FOLDS)).astype(int)

    def literal() -> None:
        for f in range(INNER_FOLDS):
            own = observed[:, fold == f]
            M = (~np.isnan(own)).astype(float)
            Z = np.where(M > 0, own, 0.0)
            M @ M.T, Z @ Z.T, Z @ M.T

    taken = [seconds(Pairs.of, observed, fold) for _ in range(2)]
    moments = FoldPairs([*Pairs.of(observed, fold).folds.values()])
    print(
        f"pairs, d = {d}, {k} drawn, {n} rows: first {taken[0]:.2f} s, then {taken[1]:.2f} s, "
        f"literal {seconds(literal):.2f} s; solved in {seconds(solve, moments):.2f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pairs", "speed"))
    parser.add_argument("data", nargs="?", default="mnist", help="mnist, synthetic, or a table")
    parser.add_argument("--penalty", choices=("ridge", "lasso"), default="ridge")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, -0.5, -1.0, -2.0])
    parser.add_argument("--rows", type=int, nargs="+", default=[])
    parser.add_argument("--draws", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--d", type=int, nargs="+", default=[500, 5_000, 50_000])
    parser.add_argument("--folder", type=Path, default=os.environ.get("DISTFMS_REALDATA", "."))
    given = parser.parse_args()
    with threadpool_limits(1):
        if given.what == "speed":
            for d in given.d:
                speed(d, 900, 5)
            pairs_speed(784, 57, 11_552)
            pairs_speed(5_000, 57, 5_000)
            return
        tried = {given.data: lambda: table(given.data, Path(given.folder), 3)}
        if given.data == "mnist":
            tried = {"mnist": lambda: mnist(given.penalty, Path(given.folder))}
        elif given.data == "synthetic":
            size = max(given.rows or [16_000])
            tried = {
                f"synthetic, α = {alpha:g}": lambda alpha=alpha: synthetic(
                    given.penalty, alpha, size
                )
                for alpha in given.alpha
            }
        for name, make in tried.items():
            experiment = make()
            if given.draws:
                experiment = replace(experiment, n_draws=given.draws)
            rows = given.rows or [len(experiment.train.rows)]
            compare(name, experiment, rows, given.repeats)


if __name__ == "__main__":
    main()
