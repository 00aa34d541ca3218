"""Estimators of numbers and of classes, and what they take from tables of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from distfms.estimators.base import JobEstimator
from distfms.methods.contract import FinishedRun


@dataclass(frozen=True)
class Column:
    """Picklable function that takes a column of predictions, or those with a prefix."""

    name: str = ""
    prefix: str = ""
    dtype: Any = np.float64

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Return an array (n,), or (n, P)."""
        if self.name:
            return np.asarray(table.column(self.name)).astype(self.dtype)
        names = [name for name in table.column_names if name.startswith(self.prefix)]
        found = np.stack([np.asarray(table.column(name)) for name in names], axis=1)
        return found if len(names) > 1 else found[:, 0]


class JobRegressor(RegressorMixin, JobEstimator):
    """An estimator of numbers."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R² of the predictions.

        Parameters
        ----------
        X : see `predict`
        y : array-like, Dask collection, or names of columns of X
            With a path it may be left out: the names are those of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        return self._scored(r2_score, X, y, sample_weight)


class JobClassifier(ClassifierMixin, JobEstimator):
    """An estimator of classes."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted.

        Parameters
        ----------
        X : see `predict`
        y : array-like, Dask collection, or name of a column of X
            With a path it may be left out: the name is that of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        return self._scored(accuracy_score, X, y, sample_weight)

    def _read(self, run: FinishedRun) -> None:
        super()._read(run)
        classes = np.array(run.model["classes"])
        if classes.dtype.kind == "f" and (classes == np.round(classes)).all():
            classes = classes.astype(np.int64)
        if self._class_type is not None and classes.dtype.kind != "U":
            classes = classes.astype(self._class_type)
        self.classes_ = classes

    def _predicted_classes(self, X: Any, budget: float | None = None) -> Any:
        """Return the classes that the run predicts."""
        check_is_fitted(self)
        name, dtype = f"predicted_{self._target[0]}", self.classes_.dtype
        return self._predicted(X, Column(name, dtype=dtype), budget=budget, dtype=dtype)
