"""Accuracy at a number of features on the synthetic data of AFABench (arXiv 2508.14734).

CUBE has 20 features. Three of the first ten tell the class of a row, and the class says which
three. CUBE-NM has 55 features in 51 groups: a context of five features, which are one group, says
in which of five such blocks of ten to look; CUBE-NM-3 has three contexts in three columns. The
policies of that benchmark choose the next feature of each row by what they saw of it; ours is one
order for all rows, of linear models, splines or LightGBM. It is compared with features by mutual
information and with all features. Splits of 60/20/20 as published; the 20 % of validation rows are
not used.

Run with ``python benchmarks/afa.py [--rows 20000] [--splits 3] [--data CUBE-NM] [--ours linear]``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_selection import mutual_info_classif
from sklearn.linear_model import LogisticRegression

from distfms import GroupSequenceClassifier

TREES = {"num_iterations": 200, "learning_rate": 0.05}
OURS: Mapping[str, Mapping[str, Any]] = {
    "linear": {"folds": 5, "model": "linear"},
    "splines": {"folds": 5, "model": "linear", "expand": {"splines": 5}},
    "LightGBM": {"folds": 5, "model": "lightgbm", "lightgbm": TREES},
}
#: Deviation of the informative features, as in the configuration of the benchmark.
INFORMATIVE, NOISE, CONTEXT = 0.3, 0.3, 0.1
N_CLASSES, BLOCK = 8, 10


def block_of(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    """Return ten features, three of which, from the class on, hold the bits of the class."""
    block = rng.normal(0.5, NOISE, (len(labels), BLOCK))
    rows = np.arange(len(labels))
    for bit in range(3):
        block[rows, (labels + bit) % BLOCK] = rng.normal((labels >> bit) & 1, INFORMATIVE)
    return block


def cube(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(N_CLASSES, size=n)
    return np.hstack([block_of(rng, labels), rng.normal(0.5, NOISE, (n, BLOCK))]), labels


def non_myopic(n_contexts: int, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    labels, contexts = rng.integers(N_CLASSES, size=n), rng.integers(n_contexts, size=n)
    blocks = rng.normal(0.5, NOISE, (n, n_contexts, BLOCK))
    blocks[np.arange(n), contexts] = block_of(rng, labels)
    context = rng.normal(np.eye(n_contexts)[contexts], CONTEXT)
    return np.hstack([context, blocks.reshape(n, -1)]), labels


#: What makes each set, and how many of its first columns are one group.
DATA: Mapping[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], int]] = {
    "CUBE": (cube, 0),
    "CUBE-NM": (partial(non_myopic, 5), 5),
    "CUBE-NM-3": (partial(non_myopic, 3), 3),
}


def forest() -> Any:
    """Return LightGBM with its defaults and one thread."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_jobs=1, verbose=-1, random_state=0)


def one_split(name: str, n: int, seed: int, at: list[int], kinds: list[str]) -> dict[str, Any]:
    """Return accuracies at numbers of features by what chose them and what predicts."""
    make, n_context = DATA[name]
    rng = np.random.default_rng(seed)
    rows, labels = make(rng, n)
    frame = pd.DataFrame(rows, columns=[f"x{j:02d}" for j in range(rows.shape[1])])
    order = rng.permutation(n)
    train, test = order[: int(0.6 * n)], order[int(0.8 * n) :]
    X, y, held, truth = frame.iloc[train], labels[train], frame.iloc[test], labels[test]
    found: dict[str, list[float]] = {}
    groups = {"context": list(frame.columns[:n_context])} if n_context else {}
    for kind in kinds:
        ours = GroupSequenceClassifier(groups, prefixes=tuple(at), random_state=seed, **OURS[kind])
        ours.fit(X, y)
        shares = [float(np.mean(ours.predict(held, budget=k) == truth)) for k in at]
        found[f"ours, {kind}"] = shares
        print(
            f"{name}, split {seed}: {kind}, {'a tree' if ours.tree_ else 'one order'}", flush=True
        )
    informative = mutual_info_classif(X, y, random_state=seed)
    names = list(frame.columns[np.argsort(-informative, kind="stable")])
    for kind, model in (("linear", LogisticRegression(max_iter=1000)), ("LightGBM", forest())):
        shares = [model.fit(X[names[:k]], y).score(held[names[:k]], truth) for k in at]
        found[f"mutual information, {kind}"] = shares
    everything = forest().fit(X, y).score(held, truth)
    return found | {"all features, LightGBM": [everything] * len(at)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="rows of a data set, as published")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--at", type=int, nargs="+", default=[3, 5, 7, 10, 14], help="features")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--ours", nargs="+", default=list(OURS), choices=OURS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    head = " | ".join(f"{k} features" for k in args.at)
    for name in args.data:
        print(f"\n| {name}, accuracy | {head} |\n|---|" + "---|" * len(args.at))
        splits = [
            one_split(name, args.rows, seed, args.at, args.ours) for seed in range(args.splits)
        ]
        for policy in splits[0]:
            values = np.array([split[policy] for split in splits])
            cells = [
                f"{m:.3f} ± {s:.3f}" for m, s in zip(values.mean(0), values.std(0), strict=True)
            ]
            print(f"| {policy} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
