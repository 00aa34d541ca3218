"""Judgments with heavy tails, raters who answer at random: errors on objects that chose nothing.

Twelve correlated attributes, three judgments of each; an object's label is a sparse sum of them.
Noise is Student's t with 2.5 degrees of freedom, and 5% of the raters answer at random; or it is
normal.
Errors are mean squared errors over the variance of the label, of 4,000 other objects.

``--raters``: none, 5% or 20% of 40 raters with ids answer at random, or all differ in their noise
(deviations of a log-normal distribution), with normal noise and with t. Errors of jobs that keep
all raters, and of those that leave out who stands out: of predictions from as many
judgments as are bought, given by any raters. ``--raters FILE``: of the crowd's judgments of
headlines (see raters.py), as they are and with 20% of the workers' judgments shuffled among their
headlines; 60 headlines to learn from, 40 for the error.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from distfms import FeatureMultiSelector

D, K, OTHERS, RATERS = 12, 3, 4000, 40


def judged(
    rng: np.random.Generator, n: int, k: int, mixing: np.ndarray, weights: np.ndarray, tails: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return k judgments of each attribute of n objects, and labels."""
    truth = rng.normal(size=(n, D)) @ mixing
    noise = rng.standard_t(2.5, (n, D, k)) if tails else 1.5 * rng.normal(size=(n, D, k))
    judgments = truth[:, :, None] + noise
    at_random = tails & (rng.random((n, 1, k)) < 0.05)
    judgments = np.where(at_random, rng.uniform(-6, 6, judgments.shape), judgments)
    return judgments, truth @ weights + 0.3 * rng.normal(size=n)


def errors(seed: int, n: int, budget: int, tails: bool) -> list[float]:
    """Return the errors by default and without clipping."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=D) * (rng.random(D) < 0.6)
    weights /= np.linalg.norm(weights) + 1e-9
    mixing = np.eye(D) + 0.3 * rng.normal(size=(D, D))
    X, y = judged(rng, n, K, mixing, weights, tails)
    others, truth = judged(rng, OTHERS, budget, mixing, weights, tails)
    found = []
    for robust in (True, False):
        model = FeatureMultiSelector(budget=budget, robust=robust).fit(X, y)
        found.append(float(np.mean((model.predict(others) - truth) ** 2) / truth.var()))
    return found


# --- raters with ids ------------------------------------------------------------------------------


def crowd(rng, n, k, mixing, weights, tails: bool, bad, deviations):
    """Return k judgments (n, D, k) of n objects, their raters (n, k), and labels."""
    truth = rng.normal(size=(n, D)) @ mixing
    who = rng.permuted(np.tile(np.arange(RATERS), (n, 1)), axis=1)[:, :k]
    noise = rng.standard_t(2.5, (n, D, k)) if tails else 1.5 * rng.normal(size=(n, D, k))
    judgments = truth[:, :, None] + noise * deviations[who][:, None]
    judgments = np.where(bad[who][:, None], rng.uniform(-6, 6, judgments.shape), judgments)
    return judgments, who, truth @ weights + 0.3 * rng.normal(size=n)


def rows_of(judgments: np.ndarray, who: np.ndarray) -> pd.DataFrame:
    lists = {f"x{a}": list(judgments[:, a]) for a in range(judgments.shape[1])}
    return pd.DataFrame({**lists, "raters": list(who.astype(str))})


def screened(X, who, y, others, others_who, truth, budget: int) -> list[float]:
    """Return the error with all raters, by default, and how many raters that left out."""
    found, variance = list[float](), np.var(truth)
    for screen in (False, True):
        model = FeatureMultiSelector(budget=budget, robust=screen).fit(rows_of(X, who), y)
        bought = rows_of(others, others_who)
        for a, r in enumerate(model.repeats_):  # the first, whoever gave them
            bought[f"x{a}"] = [own[:r] for own in bought[f"x{a}"]]
        found.append(float(np.mean((model.predict(bought) - truth) ** 2) / variance))
    return [*found, len(model.model_.run.model.get("raters_left_out", ()))]


def simulated(seed: int, kind: str, tails: bool, n: int, budget: int) -> list[float]:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=D) * (rng.random(D) < 0.6)
    weights /= np.linalg.norm(weights) + 1e-9
    mixing = np.eye(D) + 0.3 * rng.normal(size=(D, D))
    bad = np.arange(RATERS) < {"5%": 2, "20%": 8}.get(kind, 0)
    spread = 0.5 if kind == "various" else 0.0
    raters = mixing, weights, tails, bad, np.exp(spread * rng.normal(size=RATERS))
    return screened(*crowd(rng, n, K, *raters), *crowd(rng, OTHERS, budget, *raters), budget)


def headlines(seed: int, path: Path, share: float, budget: int) -> list[float]:
    rng, table = np.random.default_rng(seed), pd.read_parquet(path)
    y = table[table.attribute == "valence"].groupby("headline_id").gold.first().to_numpy(float)
    cells = table[table.attribute != "valence"].sort_values(["headline_id", "attribute", "worker"])
    judgments = cells.response.to_numpy(float).reshape(y.size, -1, 10)
    who = cells.worker.to_numpy().reshape(judgments.shape)[:, 0]
    workers = np.unique(who)
    for worker in rng.permutation(workers)[: round(share * workers.size)]:
        own, at = np.nonzero(who == worker)
        judgments[own, :, at] = judgments[own, :, at][rng.permutation(own.size)]
    order = rng.permuted(np.tile(np.arange(10), (y.size, 1)), axis=1)
    judgments = np.take_along_axis(judgments, order[:, None], axis=2)
    who, (train, rest) = (
        np.take_along_axis(who, order, axis=1),
        np.split(rng.permutation(y.size), [60]),
    )
    return screened(*(own[rows] for rows in (train, rest) for own in (judgments, who, y)), budget)


def print_raters(args: argparse.Namespace) -> None:
    print("raters, noise      objects  budget   all raters  by default less it; raters left out")
    if args.raters.exists():
        cells = [
            (f"shuffled {s:.0%}", 60, b, partial(headlines, path=args.raters, share=s, budget=b))
            for s in (0.0, 0.2)
            for b in args.budgets
        ]
    else:
        cells = [
            (
                f"{kind}, {'t' if tails else 'normal'}",
                n,
                budget,
                partial(simulated, kind=kind, tails=tails, n=n, budget=budget),
            )
            for kind in ("none", "5%", "20%", "various")
            for tails in (False, True)
            for n in args.objects
            for budget in args.budgets
        ]
    for name, n, budget, measured in cells:
        found = np.array([measured(100 + seed) for seed in range(args.seeds)])
        change = found[:, 1] - found[:, 0]
        print(
            f"{name:<18}{n:8}{budget:8}{found[:, 0].mean():13.3f}{change.mean():12.3f} "
            f"({change.min():.3f}, {change.max():.3f}); {found[:, 2].mean():.1f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--objects", type=int, nargs="*", default=[200, 600, 2000])
    parser.add_argument("--budgets", type=int, nargs="*", default=[5, 10, 20])
    parser.add_argument("--raters", type=Path, nargs="?", const=Path("simulated"), help="see above")
    args = parser.parse_args()
    if args.raters:
        print_raters(args)
        return
    print("noise   objects  budget  not clipped   by default less it, mean (least, greatest)")
    for tails in (True, False):
        for n in args.objects:
            for budget in args.budgets:
                found = np.array([errors(100 + s, n, budget, tails) for s in range(args.seeds)])
                gain = found[:, 0] - found[:, 1]
                print(
                    f"{'t' if tails else 'normal':<8}{n:7}{budget:8}{found[:, 1].mean():12.3f}"
                    f"{gain.mean():14.3f} ({gain.min():.3f}, {gain.max():.3f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
