"""What to learn from a few attributes of each row: unexplained share of the variance.

``drawn``: a third of the attributes of each training row, at least 3, drawn alike, and other rows
in full. ``gaps``: half of all values are missing at random, in training rows and in others. Peers
learn from the same cells or, where cells are drawn, from so many full rows that they cost as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.answers.tables import exists, numbers_of, parts_of
from distfms import AttributeEfficientRidge
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.lessons import stream

TABLES = (
    *("diabetes", "friedman1", "friedman3", "2dplanes", "borehole", "piston", "waveform"),
    *("breast_cancer", "cpu_small", "house_8L"),
)
KINDS = ("drawn", "gaps")


def tables() -> list[str]:
    names = filter(exists, TABLES)
    return [f"{name}, {kind}" for kind, name in product(KINDS, names)]


def ridge(*first: Any) -> Any:
    return make_pipeline(StandardScaler(), *first, RidgeCV(np.logspace(-4, 4, 17)))


def trees() -> Any:
    return LGBMRegressor(n_jobs=1, verbose=-1)


#: Of rows with gaps.
ON_CELLS: dict[str, Callable[[], Any]] = {
    "LightGBM, cells": trees,
    "HistGradientBoosting, cells": lambda: HistGradientBoostingRegressor(random_state=0),
    "mean + indicator + ridge": lambda: ridge(SimpleImputer(add_indicator=True)),
    "iterative imputation + ridge": lambda: ridge(IterativeImputer(random_state=0)),
}
ON_ROWS: dict[str, Callable[[], Any]] = {"ridge, full rows": ridge, "LightGBM, full rows": trees}

#: A model, and the rows and targets that it learns from.
Lesson = tuple[Any, np.ndarray, np.ndarray]


def cells(name: str, split: int, most: int) -> Iterator[tuple[str, float, float]]:
    """Yield each way's loss, and its processor seconds."""
    table, _, kind = name.rpartition(", ")
    X, y = numbers_of(table, most)
    train, test = parts_of(len(y), split)
    others = X[test]
    truth = y[test]
    X = X[train]
    y = y[train]
    lessons: dict[str, Lesson] = {}
    if kind == "gaps":
        rng = np.random.default_rng([split, 3])
        seen = with_gaps(X, rng)
        others = with_gaps(others, rng)
        lessons["ours"] = (AttributeEfficientRidge(missing="pairs", n_jobs=1), seen, y)
    else:
        d = X.shape[1]
        k = max(3, d // 3)
        # The cells that the job draws by itself: by the numbers of the rows, and its seed.
        numbers = np.arange(len(y), dtype=np.uint64)
        seen = Draws(k, stream(split, 0)).observe(X.T.copy(), numbers).T
        lessons["ours"] = (AttributeEfficientRidge(k, random_state=split, n_jobs=1), X, y)
        n = max(10, len(y) * k // d)
        for way, make in ON_ROWS.items():
            lessons[way] = (make(), X[:n], y[:n])
    for way, make in ON_CELLS.items():
        lessons[way] = (make(), seen, y)
    of_mean = np.mean((truth - y.mean()) ** 2)
    for way, (model, rows, target) in lessons.items():
        start = time.process_time()
        model.fit(rows, target)
        spent = time.process_time() - start
        predicted = np.clip(np.asarray(model.predict(others)), y.min(), y.max())
        yield way, float(np.mean((predicted - truth) ** 2) / of_mean), spent


def with_gaps(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return rows of which half of the values are missing."""
    return np.where(rng.random(rows.shape) < 0.5, rows, np.nan)
