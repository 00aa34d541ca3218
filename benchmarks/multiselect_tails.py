"""Judgments with heavy tails, raters who answer at random: errors on objects that chose nothing.

Twelve correlated attributes, three judgments of each by some of 40 raters; an object's label is a
sparse sum of the attributes. Noise is normal, or Student's t with 2.5 degrees of freedom; some
raters answer at random. Errors are mean squared errors over the variance of the label, of 4,000
other objects whose judgments are given by any raters: of jobs that take all judgments as they are
(``robust: false``), and of jobs by default, with how many raters these left out.

Run with ``python -m benchmarks.multiselect_tails [--seeds N]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from distfms import FeatureMultiSelector

N_ATTRIBUTES = 12
N_JUDGMENTS = 3
N_RATERS = 40
N_OTHERS = 4_000
SHARES_AT_RANDOM = (0.0, 0.05, 0.2)


@dataclass(frozen=True)
class Crowd:
    """Raters and attributes as they are drawn for one table."""

    rng: np.random.Generator
    mixing: np.ndarray
    weights: np.ndarray
    is_at_random: np.ndarray
    has_tails: bool

    @classmethod
    def drawn(cls, seed: int, share_at_random: float, *, has_tails: bool) -> Crowd:
        """Draw what all objects share."""
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=N_ATTRIBUTES) * (rng.random(N_ATTRIBUTES) < 0.6)
        weights /= np.linalg.norm(weights) + 1e-9
        mixing = np.eye(N_ATTRIBUTES) + 0.3 * rng.normal(size=(N_ATTRIBUTES, N_ATTRIBUTES))
        is_at_random = np.arange(N_RATERS) < share_at_random * N_RATERS
        return cls(rng, mixing, weights, is_at_random, has_tails)

    def judged(self, n: int, n_judgments: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return judgments (n, attributes, judgments), their raters (n, judgments), and labels."""
        rng = self.rng
        truth = rng.normal(size=(n, N_ATTRIBUTES)) @ self.mixing
        everybody = np.tile(np.arange(N_RATERS), (n, 1))
        raters = rng.permuted(everybody, axis=1)[:, :n_judgments]
        shape = (n, N_ATTRIBUTES, n_judgments)
        noise = rng.standard_t(2.5, shape) if self.has_tails else 1.5 * rng.normal(size=shape)
        answers = rng.uniform(-6, 6, shape)
        is_answer = self.is_at_random[raters][:, None]
        judgments = np.where(is_answer, answers, truth[:, :, None] + noise)
        return judgments, raters, truth @ self.weights + 0.3 * rng.normal(size=n)


def frame_of(judgments: np.ndarray, raters: np.ndarray, repeats: np.ndarray) -> pd.DataFrame:
    """Return lists of the first judgments of each attribute, as many as `repeats` says."""
    columns = {"raters": list(raters.astype(str))}
    for attribute, n_judgments in enumerate(repeats):
        columns[f"x{attribute}"] = list(judgments[:, attribute, :n_judgments])
    return pd.DataFrame(columns)


def errors(crowd: Crowd, n: int, budget: int) -> tuple[float, float, int]:
    """Return the errors of a job that keeps all and of one by default, and the raters left out."""
    judgments, raters, label = crowd.judged(n, N_JUDGMENTS)
    rows = frame_of(judgments, raters, np.full(N_ATTRIBUTES, N_JUDGMENTS))
    others, their_raters, truth = crowd.judged(N_OTHERS, budget)
    losses = []
    for robust in (False, True):
        model = FeatureMultiSelector(budget=budget, robust=robust).fit(rows, label)
        bought = frame_of(others, their_raters, model.repeats_)
        predicted = model.predict(bought)
        losses.append(float(np.mean((predicted - truth) ** 2) / truth.var()))
    left_out = model.model_.run.model.get("raters_left_out", ())
    return losses[0], losses[1], len(left_out)


def lines(n_seeds: int, objects: list[int], budgets: list[int]) -> Iterator[str]:
    """Yield a line for each kind of crowd, number of objects and budget."""
    yield "noise   at random  objects  budget  all kept  by default less it; raters left out"
    for has_tails, share, n, budget in product((False, True), SHARES_AT_RANDOM, objects, budgets):
        measured = []
        for seed in range(n_seeds):
            crowd = Crowd.drawn(100 + seed, share, has_tails=has_tails)
            measured.append(errors(crowd, n, budget))
        kept, by_default, left_out = np.array(measured).T
        change = by_default - kept
        yield (
            f"{'t' if has_tails else 'normal':8}{share:9.0%}{n:9}{budget:8}{kept.mean():10.3f}"
            f"{change.mean():10.3f} ({change.min():.3f}, {change.max():.3f}); {left_out.mean():.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--objects", type=int, nargs="*", default=[200, 600, 2000])
    parser.add_argument("--budgets", type=int, nargs="*", default=[5, 10, 20])
    args = parser.parse_args()
    for line in lines(args.seeds, args.objects, args.budgets):
        print(line, flush=True)


if __name__ == "__main__":
    main()
