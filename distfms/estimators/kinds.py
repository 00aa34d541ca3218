"""Estimators of numbers and of classes, and what they take from tables of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
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


class NumberEstimator(JobEstimator):
    """An estimator whose predictions are numbers."""

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame, or path of Parquet files
            A frame or file needs the columns that the model reads only. A category that was in no
            training row counts as the column's mean.
        budget : float, optional
            What a prediction may cost, for models with prefixes. Default: that of
            `distfms predict`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,) or (n, P)
        """
        check_is_fitted(self)
        tail = (len(self._target),) if len(self._target) > 1 else ()
        return self._predicted(X, Column(prefix="predicted_"), budget=budget, tail=tail)


class JobRegressor(RegressorMixin, NumberEstimator):
    """An estimator of numbers, with their score."""

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

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predict classes.

        Parameters
        ----------
        X, budget : see :meth:`NumberEstimator.predict`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        check_is_fitted(self)
        name, dtype = f"predicted_{self._target[0]}", self.classes_.dtype
        return self._predicted(X, Column(name, dtype=dtype), budget=budget, dtype=dtype)

    @available_if(lambda self: self._has_shares())
    def predict_proba(self, X: Any, budget: float | None = None) -> Any:
        """Probabilities of the classes.

        Parameters
        ----------
        X, budget : see :meth:`NumberEstimator.predict`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
        """
        check_is_fitted(self)
        pick = Column(prefix="probability_")
        return self._predicted(X, pick, budget=budget, tail=(len(self.classes_),))

    def _has_shares(self) -> bool:
        """Return whether the model gives probabilities."""
        return True
