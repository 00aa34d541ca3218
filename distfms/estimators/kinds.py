"""Estimators of numbers and of classes, and what they take from tables of predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from distfms.estimators.base import JobEstimator
from distfms.methods.contract import FinishedRun


@dataclass(frozen=True)
class Columns:
    """Picklable function that takes the columns of predictions with a prefix."""

    prefix: str
    dtype: Any = np.float64

    def __call__(self, table: pa.Table) -> np.ndarray:
        """Return an array (n,), or (n, P)."""
        names = [name for name in table.column_names if name.startswith(self.prefix)]
        found = np.stack([np.asarray(table.column(name)) for name in names], axis=1)
        return (found if len(names) > 1 else found[:, 0]).astype(self.dtype, copy=False)


class PredictingEstimator(JobEstimator):
    """An estimator that predicts the target."""

    #: Name of a function of `sklearn.metrics`, which takes a tenth of a second to import.
    _measure: str

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame, or path of Parquet files
            A frame or file needs only the columns that the model reads. An unknown category counts
            as the column's mean.
        budget : float, optional
            Largest cost of a prediction, for models with prefixes. Default: as in `distfms
            predict`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,) or (n, P)
        """
        check_is_fitted(self)
        tail = (len(self._target),) if len(self._target) > 1 else ()
        dtype = self.classes_.dtype if hasattr(self, "classes_") else np.float64
        pick = Columns("predicted_", dtype)
        return self._predicted(X, pick, budget=budget, tail=tail, dtype=dtype)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score predictions: R² of numbers, the share of rows whose class is predicted.

        Parameters
        ----------
        X : see `predict`
        y : array-like, Dask collection, or names of columns of X
            May be left out with a path: the names are those of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        from sklearn import metrics

        return self._scored(getattr(metrics, self._measure), X, y, sample_weight)


class JobRegressor(RegressorMixin, PredictingEstimator):
    """An estimator of numbers."""

    _measure = "r2_score"
    score = PredictingEstimator.score


class JobClassifier(ClassifierMixin, PredictingEstimator):
    """An estimator of classes."""

    _measure = "accuracy_score"
    score = PredictingEstimator.score

    def _read(self, run: FinishedRun) -> None:
        super()._read(run)
        classes = np.array(run.model["classes"])
        if classes.dtype.kind == "f" and (classes == np.round(classes)).all():
            classes = classes.astype(np.int64)
        if self._class_type is not None and classes.dtype.kind != "U":
            classes = classes.astype(self._class_type)
        self.classes_ = classes

    @available_if(lambda self: self._has_shares())
    def predict_proba(self, X: Any, budget: float | None = None) -> Any:
        """Probabilities of the classes.

        Parameters
        ----------
        X, budget : see `predict`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
        """
        check_is_fitted(self)
        pick = Columns("probability_")
        return self._predicted(X, pick, budget=budget, tail=(len(self.classes_),))

    def _has_shares(self) -> bool:
        """Return whether the model gives probabilities."""
        return True
