"""Landmarks under a learned metric beside tuned Nystroem + Ridge, tuned LightGBM and ridge.

Unexplained share of the variance on held-out rows, mean and range over random splits of 70/30.
Nystroem and LightGBM are tuned on a quarter of the training rows and fitted again to all of them;
landmarks choose for themselves. Needs the public tables, and LightGBM for its column.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from distfms import LandmarkRegressor

TABLES = ("abalone", "bank8FM", "bodyfat", "cal_housing", "cpu_small", "house_8L", "puma8NH")
TREES = {"num_leaves": (7, 31), "learning_rate": (0.03, 0.1), "n_estimators": (200, 600)}


def table(folder: Path, name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features, categories one-hot, and the target."""
    rng = np.random.default_rng(1)
    if name == "4-of-32":
        X = rng.normal(size=(8000, 32))
        y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) * X[:, 3]
        return X, y + 0.2 * rng.normal(size=len(y))
    data = pq.read_table(folder / "regression" / f"{name}.parquet")
    target = "Density" if name == "bodyfat" else data.column_names[-1]
    columns: list[np.ndarray] = []
    for column in data.column_names:
        values = data[column].to_numpy()
        if column != target:
            texts = values.dtype.kind == "O"
            columns += [values == v for v in np.unique(values)] if texts else [values]
    X = np.column_stack(columns).astype(float)
    rows = rng.permutation(len(X))[:most]
    return X[rows], data[target].to_numpy().astype(float)[rows]


def models(n_landmarks: int, n_columns: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the candidates of each way to learn."""
    yield "metric", [LandmarkRegressor(landmarks=n_landmarks, n_jobs=1)]
    yield "none", [LandmarkRegressor(landmarks=n_landmarks, metric="none", n_jobs=1)]
    grid = product((0.25, 0.5, 1.0, 2.0, 4.0), np.logspace(-7, 0, 8))
    yield (
        "Nystroem",
        [
            make_pipeline(
                StandardScaler(),
                Nystroem(gamma=g / 2 / n_columns, n_components=n_landmarks, random_state=0),
                Ridge(alpha=alpha),
            )
            for g, alpha in grid
        ],
    )
    yield "ridge", [make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17)))]
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        return
    form: Any = partial(LGBMRegressor, n_jobs=1, verbose=-1)
    points = product(*TREES.values())
    yield "LightGBM", [form(**dict(zip(TREES, values, strict=True))) for values in points]


def tuned(candidates: list[Any], X: np.ndarray, y: np.ndarray, judge: Callable[..., float]) -> Any:
    """Return the best candidate, fitted to all rows."""
    n = len(y) * 3 // 4
    if len(candidates) > 1:
        errors = [judge(model.fit(X[:n], y[:n]), X[n:], y[n:]) for model in candidates]
        return candidates[int(np.argmin(errors))].fit(X, y)
    return candidates[0].fit(X, y)


def unexplained(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the mean squared error by the variance."""
    return float(np.mean((model.predict(X) - y) ** 2) / y.var())


def main() -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--most", type=int, default=9000, help="rows of a table")
    parser.add_argument("--only", nargs="*", default=[*TABLES, "4-of-32"])
    args = parser.parse_args()
    for name in args.only:
        X, y = table(args.folder, name, args.most)
        found: dict[str, list[float]] = {}
        spent: dict[str, float] = {}
        kinds = []
        for split in range(args.splits):
            order = np.random.default_rng(split).permutation(len(y))
            train, test = np.split(order, [int(0.7 * len(y))])
            most = min(args.landmarks, len(train))
            for kind, candidates in models(most, X.shape[1]):
                start = time.process_time()
                model = tuned(candidates, X[train], y[train], unexplained)
                spent[kind] = spent.get(kind, 0.0) + time.process_time() - start
                found.setdefault(kind, []).append(unexplained(model, X[test], y[test]))
                if kind == "metric":
                    kinds.append(model.metric_["kind"])
        cells = [
            f"{kind} {np.mean(e):.4f} ({min(e):.4f}–{max(e):.4f}, {spent[kind] / len(e):.1f} s)"
            for kind, e in found.items()
        ]
        print(f"{name:12}", "; ".join(cells), kinds, flush=True)


if __name__ == "__main__":
    main()
