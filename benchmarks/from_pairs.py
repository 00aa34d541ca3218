"""Regression from pairs of attributes on public tables whose columns keep their units.

``rows`` prints, for each table and number of rows, the test loss relative to predicting the mean:
of one solve from pairs of 3 attributes a row, drawn alike, in units of the attributes' deviations
and with raw values; and of ridge on as many attributes in rows observed in full.

``gaps`` does so for tables of which half of the values are missing at random, in training rows and
in those to predict: of pairs, each row predicted from the values that it has; of the weights of
pairs for rows without gaps, with means for what is missing; and of ridge on imputed means.

Run with ``OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/from_pairs.py rows`` and the folder of
public data in DISTFMS_REALDATA.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    ImputedPairs,
    Learned,
    full_candidates,
    solve,
)
from distfms.methods.attribute_efficient.lessons import learned_from
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, Pairs
from distfms.methods.attribute_efficient.predictors import ByPattern, CutLinear, limits_between

TABLES = (
    "regression/abalone",
    "regression/bank8FM",
    "regression/beijing_air",
    "regression/bodyfat",
    "regression/cal_housing",
    "regression/cpu_small",
    "regression/house_8L",
    "regression/puma8NH",
    "ordinal/wine_red",
    "ordinal/wine_white",
)
ROWS = (100, 200, 400, 1000, 2000, 4000)
N_DRAWN, REPEATS, MOST_ROWS, MOST_TEST = 3, 3, 20_000, 4000

#: Relative test losses from rows (n, d), targets, rows and targets of the test, and a seed.
Losses = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], list[float]]


def table(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Attributes and the target of a table: rows with a value for each, in random order."""
    frame = pq.read_table(folder / f"{name}.parquet").to_pandas()
    if "PM2.5" in frame:
        frame["PM2.5"] = frame.pop("PM2.5")  # last, as the targets of the others are
    values = frame.select_dtypes("number").dropna().to_numpy(dtype=float)
    values = values[np.random.default_rng(0).permutation(len(values))[:MOST_ROWS]]
    return values[:, :-1], values[:, -1]


def pairs_of(observed: np.ndarray, y: np.ndarray) -> Pairs:
    return Pairs.of(np.vstack([observed.T, y]), np.arange(len(y)) % INNER_FOLDS)


def loss(
    found: Learned, observed: np.ndarray, y: np.ndarray, X: np.ndarray, z: np.ndarray
) -> float:
    """Test loss of a model of rows (n, d) and targets, as it is used."""
    both = np.column_stack([observed, y])
    limits = limits_between(np.fmin.reduce(both), np.fmax.reduce(both), is_label=False)
    fill = np.nanmean(observed, axis=0)
    whole = CutLinear(found.weights[None], np.array([found.intercept]), fill, limits)
    model = whole if found.gaps is None else ByPattern(whole, found.gaps)
    return float(((model(X.T)[0] - z) ** 2).sum() / ((z - y.mean()) ** 2).sum())


def with_few_drawn(
    X: np.ndarray, y: np.ndarray, others: np.ndarray, z: np.ndarray, repeat: int
) -> list[float]:
    drawn = Draws(N_DRAWN, repeat).observe(X.T.copy(), np.arange(len(y), dtype=np.uint64)).T
    pairs, n = pairs_of(drawn, y), max(10, len(y) * N_DRAWN // X.shape[1])
    found = [learned_from(pairs, "ridge", units) for units in ("deviations", "raw")]
    full = solve(FoldPairs([*pairs_of(X[:n], y[:n]).folds.values()]), full_candidates)
    rows = [(drawn, y), (drawn, y), (X[:n], y[:n])]
    return [loss(one, *own, others, z) for one, own in zip([*found, full], rows, strict=True)]


def with_gaps(
    X: np.ndarray, y: np.ndarray, others: np.ndarray, z: np.ndarray, repeat: int
) -> list[float]:
    rng = np.random.default_rng(repeat)
    X, others = (np.where(rng.random(rows.shape) < 0.5, rows, np.nan) for rows in (X, others))
    pairs = pairs_of(X, y)
    imputed = solve(ImputedPairs([*pairs.folds.values()]), full_candidates)
    found = [learned_from(pairs, "ridge", takes_gaps=takes) for takes in (True, False)]
    return [loss(one, X, y, others, z) for one in (*found, imputed)]


def measured(
    losses: Losses, tables: Sequence[str], rows: Sequence[int], folder: Path
) -> Iterator[tuple[str, int, np.ndarray]]:
    """Losses of all repeats by table and number of rows; a third of a table is for the test."""
    for name in tables:
        X, y = table(name, folder)
        cut = 2 * len(X) // 3
        for n in (n for n in rows if n <= cut):
            found = []
            for repeat in range(REPEATS):
                order = np.random.default_rng(100 + repeat).permutation(len(X))
                own, test = order[:n], order[cut:][:MOST_TEST]
                found.append(losses(X[own], y[own], X[test], y[test], repeat))
            yield name, n, np.array(found)


KINDS: dict[str, tuple[Losses, Sequence[str], Sequence[int], str]] = {
    "rows": (with_few_drawn, TABLES, ROWS, "pairs | pairs, raw | full rows"),
    "gaps": (
        with_gaps,
        [name for name in TABLES if "beijing" not in name],
        (160, 1000, 4000),
        "pairs | pairs, means for gaps | means imputed, ridge",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=KINDS)
    parser.add_argument("--folder", type=Path, default=os.environ.get("DISTFMS_REALDATA", "."))
    given = parser.parse_args()
    losses, tables, rows, title = KINDS[given.what]
    print(f"| table | rows | {title} |")
    everything = []
    with threadpool_limits(1):
        for name, n, found in measured(losses, tables, rows, Path(given.folder)):
            everything.append(found)
            mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
            cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, spread, strict=True)]
            print(f"| {name} | {n} | {' | '.join(cells)} |", flush=True)
    whole = np.concatenate(everything)
    means = np.exp(np.log(whole).mean(axis=0)).round(3)
    print(
        f"geometric means of {len(whole)}: {means}; above 1: {(whole > 1).sum(axis=0)}, the worst"
    )
    print(whole.max(axis=0).round(2))


if __name__ == "__main__":
    main()
