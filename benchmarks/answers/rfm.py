"""Recursive feature machines (``pip install xrfm``) as a peer of landmarks."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

#: Points that are tuned: whether the metric has a weight per column alone, widths, ridges.
_POINTS = [*product((True, False), (3.0, 10.0), (1e-4, 1e-2, 1e-1, 1.0))]


class FeatureMachine(BaseEstimator):
    """xRFM on standardised columns, which stops by a fifth of its rows."""

    def __init__(self, diagonal: bool, width: float, ridge: float, classes: bool) -> None:
        self.diagonal, self.width, self.ridge, self.classes = diagonal, width, ridge, classes

    def fit(self, X: np.ndarray, y: np.ndarray) -> FeatureMachine:
        from xrfm import xRFM

        model = {"kernel": "l2", "exponent": 1.0, "bandwidth": self.width, "diag": self.diagonal}
        fit = {"reg": self.ridge, "iters": 5, "early_stop_rfm": True, "return_best_params": True}
        self.model = xRFM(
            {"model": model | {"bandwidth_mode": "constant"}, "fit": fit | {"verbose": False}},
            device="cpu", n_threads=1, random_state=0, verbose=False,
            tuning_metric="accuracy" if self.classes else "mse",
        )  # fmt: skip
        self.scaler = StandardScaler().fit(X)
        self.mean, self.scale = (0, 1) if self.classes else (y.mean(), y.std())
        Z = self.scaler.transform(X).astype(np.float32)
        target = y.astype(int) if self.classes else ((y - self.mean) / self.scale)[:, np.newaxis]
        target = target if self.classes else target.astype(np.float32)
        some = y if self.classes else None
        Z, V, target, other = train_test_split(
            Z, target, test_size=0.2, random_state=0, stratify=some
        )
        self.model.fit(Z, target, V, other)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        found = np.asarray(self.model.predict(self.scaler.transform(X).astype(np.float32)))
        return found.ravel() * self.scale + self.mean


def machines(classes: bool) -> list[Any]:
    """Return the candidates, none where the package is not installed."""
    if find_spec("xrfm") is None:
        return []
    return [FeatureMachine(*point, classes) for point in _POINTS]
