"""Estimators that predict a target: numbers, or classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from distfms.estimators.base import JobEstimator
from distfms.estimators.inputs import in_memory, kind_of
from distfms.estimators.parameters import as_stored
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.frame.row_predictor import label_array


class PredictingEstimator(JobEstimator):
    """An estimator that predicts the target."""

    #: Name of a function of `sklearn.metrics`, which takes a tenth of a second to import.
    _measure: str

    def predict(self, X: Any, budget: float | None = None, **stop: Any) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame, or path of Parquet files
            A frame or file needs only the columns that the model reads. An unknown category counts
            as the column's mean.
        budget : float, optional
            Largest cost of a prediction, for models with prefixes. Default: as in `distfms
            predict`.
        **stop
            ``stop="rows"``, for sequences of classes, with ``mean_budget`` or
            ``confidence``: see `distfms.runs.serve.Model.predict`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,) or (n, P)
        """
        check_is_fitted(self)
        tail = (len(self._target),) if len(self._target) > 1 else ()
        dtype = self.classes_.dtype if hasattr(self, "classes_") else np.float64
        return self._predicted(X, "predicted_", budget, tail, dtype, **stop)

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

        if y is None and kind_of(X) == "parquet":
            y = self._target if len(self._target) > 1 else self._target[0]
        truth = in_memory(X, as_stored(y))
        predicted = in_memory(X, self.predict(X))
        weight = in_memory(X, sample_weight)
        return float(getattr(metrics, self._measure)(truth, predicted, sample_weight=weight))


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
        classes = label_array(run.model["classes"])
        if self._class_type is not None and classes.dtype.kind != "U":
            classes = classes.astype(self._class_type)
        self.classes_ = classes

    @available_if(lambda self: self._has_shares())
    def predict_proba(self, X: Any, budget: float | None = None, **stop: Any) -> Any:
        """Probabilities of the classes.

        Parameters
        ----------
        X, budget, **stop : see `predict`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
        """
        check_is_fitted(self)
        return self._predicted(X, "probability_", budget, (len(self.classes_),), **stop)

    def _has_shares(self) -> bool:
        """Return whether the model gives probabilities."""
        return True
