"""The experiments of Kukliansky and Shamir (ICML 2015), and the speed of a step.

``synthetic`` and ``mnist`` print, for each algorithm, the test loss relative to predicting 0
against the number of attributes drawn: the mean over repeats with other orders and draws, ± one
standard deviation. Bound and factor of the step (in the second of two phases too; the first has
those of uniform drawing) are chosen for each algorithm by 10-fold cross-validation at the largest
number of attributes; for fewer the step is longer, in the proportion of the theory.

``speed`` prints examples a second by processor time at k + 1 = 5, rows in memory, against the
compiled literal loop over all d attributes, for a bound that is never reached and one that nearly
always is.

Run with ``OMP_NUM_THREADS=1 python benchmarks/attribute_efficient.py synthetic --penalty lasso``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from distfms.methods.attribute_efficient.kernels import online_rows, uniforms
from distfms.methods.attribute_efficient.learner import Chain, Design
from distfms.methods.attribute_efficient.lessons import Lesson, Ordered, learn, stream
from distfms.methods.attribute_efficient.options import ALGORITHMS
from distfms.methods.attribute_efficient.sampling import improvement_ratio
from tests.reference.attribute_efficient import compiled, gaelr, gaerr

N_FOLDS = 10
FULL = ("online", "offline")
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

    def ordered(self, key: int, chain: int, n_chains: int, fold: int) -> Iterator[Ordered]:
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
        sampling = "uniform" if name in FULL else ALGORITHMS[self.penalty][name]
        design = Design(
            self.penalty,
            sampling,
            len(moments),
            self.n_draws,
            size,
            bound * largest,
            norm,
            moments,
            **more,
        )
        full = name if name in FULL else ""
        return Lesson(design, stream(7, repeat), size, full=full, fold=fold)

    def choose(self, name: str, **fixed: float) -> tuple[float, dict[str, float], float]:
        """Choose bound and factor by cross-validation; also return the loss."""
        best = (np.inf, 0.0, 0.0)
        factors = (1.0,) if name == "offline" else FACTORS
        for bound, factor in itertools.product(BOUNDS, factors):
            losses = []
            for fold, held_out in enumerate(self.folds):
                size = len(self.train.rows) - len(held_out[0])
                if name in FULL:
                    size = max(2, size * self.n_draws // self.train.rows.shape[1])
                more = {**fixed, "fold": fold, "step_factor": factor}
                weights = learn(self.lesson(name, size, bound, 0, **more), self.train).weights
                losses.append(relative_loss(weights, *held_out))
            best = min(best, (float(np.mean(losses)), bound, factor))
        return best[1], {**fixed, "step_factor": best[2]}, best[0]

    def curve(
        self, name: str, sizes: Sequence[int], repeats: int, bound: float, **more: float
    ) -> None:
        for size in sizes:
            n_repeats = min(repeats, 5) if name == "offline" else repeats
            found = [
                learn(self.lesson(name, size, bound, repeat, **more), self.train)
                for repeat in range(n_repeats)
            ]
            losses = [relative_loss(one.weights, *self.test) for one in found]
            d = self.train.rows.shape[1]
            drawn = size * (d if name in FULL else self.n_draws)
            print(
                f"| {name} | {size} | {drawn} | {np.mean([one.n_seen for one in found]):.0f} "
                f"| {np.mean(losses):.4f} ± {np.std(losses, ddof=1):.4f} |",
                flush=True,
            )

    def run(self, repeats: int, n_sizes: int) -> None:
        n, d = self.train.rows.shape
        ratio = improvement_ratio(self.penalty, self.known[2])
        print(f"\nρ = {ratio:.3f}, d = {d}, m = {n}, {repeats} repeats")
        print("| algorithm | examples | attributes drawn | observed | relative test loss |")
        sizes = [n >> i for i in reversed(range(n_sizes))]
        full = sorted({size * self.n_draws // d for size in sizes} - {0, 1})
        _, two_phase, uniform = ALGORITHMS[self.penalty]
        chosen: dict[str, Any] = {}
        for name in (*reversed(ALGORITHMS[self.penalty]), *FULL):
            fixed = {}
            if name == two_phase:
                fixed = {"first_step_factor": chosen[uniform][1]["step_factor"]}
            chosen[name] = self.choose(name, **fixed)
            bound, more, loss = chosen[name]
            print(f"{name}: bound {bound:g} × max |y|, {more}; cross-validated {loss:.4f}")
            self.curve(name, full if name in FULL else sizes, repeats, bound, **more)


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


# --- speed --------------------------------------------------------------------------------------


def processor_time(function: Any, *args: Any) -> float:
    start = time.process_time()
    function(*args)
    return time.process_time() - start


def literal_speed(
    chain: Chain, rows: np.ndarray, target: np.ndarray, m: int
) -> tuple[float, float]:
    """Examples a second, and the share of steps that were projected (ridge) or clipped (lasso)."""
    design, d = chain.design, rows.shape[1]
    lasso = design.penalty == "lasso"
    u = uniforms(np.uint64(1), 0, m * 5).reshape(m, 5)
    points = np.minimum((u[:, :4] * d).astype(np.int64), d - 1)
    start = np.full((2, d), 0.5 / d) if lasso else np.zeros(d)
    q, inner = chain.probabilities, np.sqrt(design.moments)
    rest = (u[:, 4:].copy(), q, inner, False, chain.step, design.bound, start)
    function = compiled(gaelr if lasso else gaerr)
    function(rows[:2], target, points[:2], *rest, np.zeros(d), np.zeros(1))
    events = np.zeros(1)
    taken = processor_time(function, rows, target, points, *rest, np.zeros(d), events)
    return m / taken, float(events[0]) / m


def speed(d: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    n = max(2000, 40_000_000 // d)
    rows = (rng.random((n, d)) * np.arange(1, d + 1) ** -0.5).copy()
    moments, target = (rows**2).mean(axis=0), rng.normal(size=n)
    m = 400_000
    order = np.arange(m) % n
    for penalty, (regime, bound) in itertools.product(
        ("ridge", "lasso"), (("never", 1e6), ("always", 1e-2))
    ):
        norm = 1.0 if regime == "always" else float(np.linalg.norm(rows, axis=1).max())
        design = Design(penalty, "moments", d, 5, m, bound, norm, moments, even_split=False)
        if penalty == "ridge" and regime == "always":
            design = replace(design, step_factor=10.0)
        ratios, ours = [], 0.0
        for _ in range(rounds):
            Chain(design, 1).learn(rows, target, order[:1000])
            chain = Chain(design, 1)
            ours = m / processor_time(chain.learn, rows, target, order)
            literal, events = literal_speed(chain, rows, target, max(300, min(n, 5_000_000 // d)))
            ratios.append(ours / literal)
        print(
            f"d = {d:6} {penalty} bound {bound:g} ({events:.2f} projected or clipped): "
            f"{ours / 1e6:.2f} M examples/s, literal {literal / 1e3:.1f} k; ratios "
            f"{', '.join(f'{ratio:.1f}' for ratio in sorted(ratios))}",
            flush=True,
        )
    weights, total, some = np.zeros(d), np.zeros(d), np.arange(min(n, 5_000_000 // d))
    args = (rows, target, some, np.ones(d), weights, total, False, 1e-6, 1.0)
    online_rows(rows, target, some[:2], *args[3:])
    taken = processor_time(online_rows, *args) / len(some)
    print(f"d = {d:6} all attributes, online ridge: {1e6 * taken:.2f} µs an example")


def decoding(d: int) -> None:
    """Share of the time from Parquet that is reading rather than learning."""
    from distfms.methods.attribute_efficient.job import AttributeEfficientJob
    from distfms.runs.driver import prepare
    from distfms.runs.job_spec import build_spec

    n = 10_000_000 // d
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        columns = {f"x{j}": rng.random(n) for j in range(d)} | {"y": rng.normal(size=n)}
        pq.write_table(pa.table(columns), f"{folder}/rows.parquet")
        content = {"name": "speed", "method": "attribute_efficient", "output": folder}
        content["data"] = {"path": f"{folder}/rows.parquet", "target": "y"}
        content["attribute_efficient"] = {"attributes_per_example": 5, "solver": "online"}
        job = prepare(build_spec(content)).job
        assert isinstance(job, AttributeEfficientJob)
        rows = replace(job._rows(), keep=True)
        read = processor_time(lambda: list(rows.ordered(1, 0, 1, -1)))
        values, target, order = next(rows.ordered(1, 0, 1, -1))
        design = Design("ridge", "uniform", d, 5, n, 10.0, float(d) ** 0.5)
        Chain(design, 1).learn(values, target, order[:100])
        learned = processor_time(Chain(design, 1).learn, values, target, order)
    share = read / (read + learned)
    print(f"d = {d:6} from Parquet, {n} rows: {100 * share:.0f} % of the processor time is reading")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("synthetic", "mnist", "speed"))
    parser.add_argument("--penalty", choices=("ridge", "lasso"), default="ridge")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, -0.5, -1.0, -2.0])
    parser.add_argument("--rows", type=int, default=16_000)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--sizes", type=int, default=6)
    parser.add_argument("--d", type=int, nargs="+", default=[500, 5_000, 50_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTFMS_REALDATA"))
    given = parser.parse_args()
    with threadpool_limits(1):
        if given.what == "speed":
            for d in given.d:
                speed(d, given.rounds)
                decoding(d)
        elif given.what == "mnist":
            mnist(given.penalty, Path(given.data)).run(given.repeats, given.sizes)
        else:
            for alpha in given.alpha:
                print(f"\n## α = {alpha:g}, {given.penalty}")
                synthetic(given.penalty, alpha, given.rows).run(given.repeats, given.sizes)


if __name__ == "__main__":
    main()
