"""Landmarks under a learned metric beside tuned Nystroem + Ridge, tuned LightGBM and ridge.

Errors on held-out rows, mean and range over random splits of 70/30: unexplained share of the
variance, share of wrong digits, mean absolute error of a wine's levels.
Nystroem and LightGBM are tuned on a quarter of the training rows and fitted again to all of them;
landmarks choose for themselves. Needs the public tables, and LightGBM for its column.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegressionCV, Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from distfms import LandmarkClassifier, LandmarkOrdinalRegressor, LandmarkRegressor

TABLES = ("abalone", "bank8FM", "bodyfat", "cal_housing", "cpu_small", "house_8L", "puma8NH")
#: File, target and estimator of tables of other tasks.
OTHERS: dict[str, tuple[str, str, Any]] = {
    "mnist_3v5": ("mnist_3v5/train", "digit", LandmarkClassifier),
    "wine_red": ("ordinal/wine_red", "quality", LandmarkOrdinalRegressor),
    "wine_white": ("ordinal/wine_white", "quality", LandmarkOrdinalRegressor),
}
TREES = {"num_leaves": (7, 31), "learning_rate": (0.03, 0.1), "n_estimators": (200, 600)}
PENALTIES = tuple(np.logspace(-7, 0, 8))


def table(folder: Path, name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features, categories one-hot, and the target."""
    rng = np.random.default_rng(1)
    if name == "4-of-32":
        X = rng.normal(size=(8000, 32))
        y = np.sin(2 * X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) * X[:, 3]
        return X, y + 0.2 * rng.normal(size=len(y))
    path, target, _ = OTHERS.get(name, (f"regression/{name}", None, None))
    data = pq.read_table(folder / f"{path}.parquet")
    target = target or ("Density" if name == "bodyfat" else data.column_names[-1])
    columns: list[np.ndarray] = []
    for column in data.column_names:
        values = data[column].to_numpy()
        if column != target:
            texts = values.dtype.kind == "O"
            columns += [values == v for v in np.unique(values)] if texts else [values]
    X = np.column_stack(columns).astype(float)
    rows = rng.permutation(len(X))[:most]
    return X[rows], data[target].to_numpy().astype(float)[rows]


def models(name: str, n_landmarks: int, n_columns: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the candidates of each way to learn."""
    form = OTHERS[name][2] if name in OTHERS else LandmarkRegressor
    yield "metric", [form(landmarks=n_landmarks, n_jobs=1, folds=0)]
    yield "none", [form(landmarks=n_landmarks, metric="none", n_jobs=1, folds=0)]
    if form is LandmarkClassifier:
        yield "linear", [make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=5, cv=3))]
    else:
        yield "ridge", [make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17)))]
    if form is LandmarkRegressor:
        yield "Nystroem", list(nystroem(n_landmarks, n_columns))
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor
    except ImportError:
        return
    trees: Any = LGBMClassifier if form is LandmarkClassifier else LGBMRegressor
    points = [dict(zip(TREES, values, strict=True)) for values in product(*TREES.values())]
    yield "LightGBM", [trees(**point, n_jobs=1, verbose=-1) for point in points]


def nystroem(
    n_landmarks: int, n_columns: int, penalties: Sequence[float] = PENALTIES
) -> Iterator[Any]:
    """Yield Nystroem + Ridge over a grid of widths and penalties."""
    grid = product((0.25, 0.5, 1.0, 2.0, 4.0), penalties)
    for g, alpha in grid:
        yield make_pipeline(
            StandardScaler(),
            Nystroem(gamma=g / 2 / n_columns, n_components=n_landmarks, random_state=0),
            Ridge(alpha=alpha),
        )


def tuned(candidates: list[Any], X: np.ndarray, y: np.ndarray, judge: Callable[..., float]) -> Any:
    """Return the best candidate, fitted to all rows."""
    n = len(y) * 3 // 4
    if len(candidates) > 1:
        errors = [judge(model.fit(X[:n], y[:n]), X[n:], y[n:]) for model in candidates]
        return candidates[int(np.argmin(errors))].fit(X, y)
    return candidates[0].fit(X, y)


def error(name: str, model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the mean squared error by the variance, or the error of classes or levels."""
    found = model.predict(X)
    if name not in OTHERS:
        return float(np.mean((found - y) ** 2) / y.var())
    away = np.abs(np.round(found) - y)
    return float(np.mean(away > 0 if OTHERS[name][2] is LandmarkClassifier else away))


def main() -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--most", type=int, default=9000, help="rows of a table")
    parser.add_argument("--only", nargs="*", default=[*TABLES, "4-of-32", *OTHERS])
    args = parser.parse_args()
    for name in args.only:
        X, y = table(args.folder, name, args.most)
        found: dict[str, list[float]] = {}
        judge = partial(error, name)
        spent: dict[str, float] = {}
        kinds = []
        for split in range(args.splits):
            order = np.random.default_rng(split).permutation(len(y))
            train, test = np.split(order, [int(0.7 * len(y))])
            most = min(args.landmarks, len(train))
            for kind, candidates in models(name, most, X.shape[1]):
                start = time.process_time()
                model = tuned(candidates, X[train], y[train], judge)
                spent[kind] = spent.get(kind, 0.0) + time.process_time() - start
                found.setdefault(kind, []).append(judge(model, X[test], y[test]))
                if kind == "metric":
                    kinds.append(model.metric_["kind"])
        cells = [
            f"{kind} {np.mean(e):.4f} ({min(e):.4f}–{max(e):.4f}, {spent[kind] / len(e):.1f} s)"
            for kind, e in found.items()
        ]
        print(f"{name:12}", "; ".join(cells), kinds, flush=True)


if __name__ == "__main__":
    main()
