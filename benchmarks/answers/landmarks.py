"""Which rows to compare with: unexplained share of the variance, or share of wrong classes.

Peers with constants are tuned on a quarter of the training rows and fitted again to all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegressionCV, Ridge, RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.answers.tables import CLASSES, exists, parts_of, rows_of
from distfms import LandmarkClassifier, LandmarkRegressor

TABLES = (
    *("friedman1", "friedman2", "friedman3", "2dplanes", "borehole", "piston", "diabetes"),
    *("beijing_air", "wine", "breast_cancer", "waveform", "twonorm", "threenorm", "ringnorm"),
)
#: Rows by which a Gaussian process chooses its widths; it learns from all.
GP_ROWS, GP_MOST = 400, 2000
NEIGHBOURS = (3, 10, 30)
PENALTIES = (1e-5, 1e-3, 1e-1)
TREES = {"num_leaves": (7, 31), "learning_rate": (0.03, 0.1), "n_estimators": (200, 600)}


def tables() -> list[str]:
    return [name for name in TABLES if exists(name)]


class Process(GaussianProcessRegressor):
    """A Gaussian process with a width for each column, chosen by the likelihood of some rows."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Process:
        some = min(len(y), GP_ROWS)
        chosen = GaussianProcessRegressor(self.kernel, normalize_y=True).fit(X[:some], y[:some])
        self.kernel = chosen.kernel_
        self.optimizer = None
        super().fit(X, y)
        return self


def process(n_columns: int) -> Any:
    wide = RBF(np.full(n_columns, np.sqrt(n_columns)), (0.05, 1e4))
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * wide + WhiteKernel(0.1, (1e-6, 1e1))
    return make_pipeline(StandardScaler(), Process(kernel, normalize_y=True))


def ways(classes: bool, shape: tuple[int, int]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the candidates of each way to learn."""
    n, d = shape
    points = [dict(zip(TREES, values, strict=True)) for values in product(*TREES.values())]
    most = min(500, n // 2)
    if classes:
        linear = partial(LogisticRegressionCV, Cs=5, cv=3, max_iter=1000)
        yield "ours", [LandmarkClassifier(n_jobs=1)]
        yield "linear", [make_pipeline(StandardScaler(), linear())]
        yield "LightGBM", [LGBMClassifier(n_jobs=1, verbose=-1, **p) for p in points[1::4]]
        kernels = [Nystroem(gamma=g / 2 / d, n_components=most) for g in (0.25, 1.0, 4.0)]
        yield "Nystroem", [make_pipeline(StandardScaler(), kernel, linear()) for kernel in kernels]
        neighbours = [KNeighborsClassifier(k, weights="distance") for k in NEIGHBOURS]
    else:
        yield "ours", [LandmarkRegressor(n_jobs=1)]
        yield "linear", [make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 17)))]
        yield "LightGBM", [LGBMRegressor(n_jobs=1, verbose=-1, **p) for p in points]
        yield "Nystroem", list(nystroem(most, d))
        neighbours = [KNeighborsRegressor(k, weights="distance") for k in NEIGHBOURS]
    yield "k nearest", [make_pipeline(StandardScaler(), model) for model in neighbours]
    if not classes and n <= GP_MOST:
        yield "Gaussian process", [process(d)]


def error(classes: bool, model: Any, X: np.ndarray, y: np.ndarray) -> float:
    predicted = model.predict(X)
    if classes:
        return float(np.mean(predicted != y))
    return float(np.mean((predicted - y) ** 2) / y.var())


def cells(name: str, split: int, most: int) -> Iterator[tuple[str, float, float]]:
    """Yield each way's error, and its processor seconds."""
    frame, y = rows_of(name, most)
    frame = frame.select_dtypes("number")
    X = frame.fillna(frame.median()).to_numpy(float)
    classes = name in CLASSES
    train, test = parts_of(len(y), split)
    judge = partial(error, classes)
    for way, candidates in ways(classes, X[train].shape):
        start = time.process_time()
        model = tuned(candidates, X[train], y[train], judge)
        spent = time.process_time() - start
        yield way, judge(model, X[test], y[test]), spent


def nystroem(n_landmarks: int, n_columns: int) -> Iterator[Any]:
    """Yield Nystroem + Ridge over a grid of widths and penalties."""
    grid = product((0.25, 0.5, 1.0, 2.0, 4.0), PENALTIES)
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
