"""Learning with similarities to landmarks as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from distfms.data.files.partition import collected
from distfms.data.rows.batches import RowBatch
from distfms.data.rows.folds import hash_keys
from distfms.errors import DataError
from distfms.estimators.base import JobEstimator
from distfms.estimators.inputs import column_names, in_memory, kind_of, taken, without
from distfms.estimators.predicting import JobClassifier, JobRegressor, PredictingEstimator
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.frame.ranking import WHOLE, RankingScores
from distfms.methods.landmarks.method import LandmarkModel
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import PRECOMPUTED, LandmarkMap

_REGRESSION = ("epsilon", "clip", "selection")
_LEVELS = ("gamma", "spacing")


class LandmarkBase(ClassNamePrefixFeaturesOutMixin, TransformerMixin, JobEstimator):
    """Base of these estimators; see :class:`distfms.LandmarkRegressor`."""

    _method = "landmarks"
    _Options = LandmarksOptions
    _first = ("similarity",)
    _defaults: ClassVar[Mapping[str, Any]] = {"baselines": ()}

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, unlabelled: Any = None
    ) -> Any:
        """Take landmarks from the rows and fit a model on the similarities to them.

        Parameters
        ----------
        X : array-like, frame (pandas, polars, Arrow), Dask array or frame, or path, of n rows
            A path names Parquet files, as in a job.
        y : array-like of shape (n,), Dask collection, or str
            Target, or the name of its column.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional
        groups : array-like of shape (n,), Dask collection, or str, optional
            What each row is of, such as a person, or the name of its column: rows of one stay in
            one fold.
        unlabelled : rows as `X`, optional
            Rows to take landmarks from instead of `X`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        roles = {"weight": sample_weight, "id": groups}
        return self._fit(X, y, roles=roles, unlabelled=unlabelled)

    def _read(self, run: FinishedRun) -> None:
        super()._read(run)
        self._model = LandmarkModel.of(run.model, run.weights, None)
        self.map_: LandmarkMap = self._model.mapping
        weights = self._model.weights
        offset = self._model.intercept
        flat = weights.shape[1] == 1
        self.weights_ = weights[:, 0] if flat else weights.T
        self.intercept_ = float(offset[0]) if flat else offset
        is_precomputed = self.map_.similarity.name == PRECOMPUTED
        self.landmarks_ = np.array(run.selection["order" if is_precomputed else "landmarks"])
        self.thresholds_ = self._model.thresholds
        self.metric_ = run.selection["metric"]

    @property
    def _n_features_out(self) -> int:
        return self._model.n_landmarks

    def _known_columns(self) -> list[str]:
        return list(self.model_.run.model.get("columns", self._levels))

    def _similar(self, X: Any, function: Any, tail: tuple[int, ...]) -> Any:
        """Apply a function to the features of rows, in the order of the model."""
        features = partial(_of_features, self._model.names, function)
        return self._from_batches(X, list(self._levels), features, tail)

    def _scores(self, X: Any) -> Any:
        """Linear scores (n, P)."""
        check_is_fitted(self)
        weights = self._model.weights
        offset = self._model.intercept
        scores = partial(self.map_.scores, weights=weights, intercept=offset)
        return self._similar(X, scores, (weights.shape[1],))

    def transform(self, X: Any) -> Any:
        """Similarities of rows to the landmarks of the model.

        Parameters
        ----------
        X : see `fit`
            On Dask arrays, uses the kernels of dask-ml (``metrics.pairwise``) where available.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, k)
        """
        check_is_fitted(self)
        if kind_of(X) == "dask-array" and self.missing == "error":
            similarities = _by_dask_ml(self.map_, X)
            if similarities is not None:
                return similarities
        return self._similar(X, partial(_similarities, self.map_), (self._model.n_landmarks,))


def _of_features(names: tuple[str, ...], function: Any, batch: RowBatch) -> np.ndarray:
    place = {name: i for i, name in enumerate(batch.names)}
    result: np.ndarray = function(batch.values[[place[name] for name in names]])
    return result


def _similarities(mapping: LandmarkMap, features: np.ndarray) -> np.ndarray:
    return mapping(features).T


def _by_dask_ml(mapping: LandmarkMap, X: Any) -> Any:
    """Return similarities of a Dask array by dask-ml, None where it does not have the kernel."""
    name = mapping.similarity.name
    parameters = dict(mapping.similarity.parameters)
    if name not in ("linear", "gaussian", "sigmoid"):
        return None
    from dask_ml.metrics import pairwise

    used = np.flatnonzero(mapping.scale > 0)
    rows = (X[:, used] - mapping.shift[used]) / mapping.scale[used]
    rows = rows.rechunk({1: -1})
    transform = mapping.transform
    if transform.size:
        rows = rows * transform if transform.ndim == 1 else rows @ transform.T
    landmarks = mapping.scaled(mapping.landmarks.T).T
    landmarks = np.ascontiguousarray(landmarks)
    if name == "gaussian":
        variance = max(parameters["sigma"] ** 2, 1e-300)
        return pairwise.rbf_kernel(rows, landmarks, gamma=0.5 / variance)
    names = {"a": "gamma", "r": "coef0"}
    kernel = getattr(pairwise, f"{name}_kernel")
    options = {names[key]: value for key, value in parameters.items()}
    return kernel(rows, landmarks, **options)


class LandmarkRegressor(JobRegressor, LandmarkBase):
    """Linear regression on similarities to landmarks, by default ``gaussian`` ones.

    ``task`` is ``regression`` or ``sparse``. A similarity need not be a kernel.

    Attributes
    ----------
    landmarks_ : ndarray of int, shape (k,)
        Training rows that are landmarks of the model, in order of choice, by their groups where
        `fit` was given any; columns if similarities are ``precomputed``.
    weights_ : ndarray of shape (k,)
        Weights of the similarities to the landmarks.
    intercept_ : float
    map_ : LandmarkMap
        From features to similarities.
    metric_ : dict
        Metric that was learned: ``kind``, and ``weights`` of columns, largest first.
    model_ : distfms.runs.serve.Model
        The finished run.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from distfms import LandmarkRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = LandmarkRegressor(task="sparse", keep=20).fit(X, np.sin(X).sum(axis=1))
    >>> len(model.landmarks_)
    20
    """

    _left_out = _LEVELS
    _classifier = "LandmarkClassifier"
    _defaults: ClassVar[Mapping[str, Any]] = {**LandmarkBase._defaults, "task": "regression"}
    _takes: ClassVar[Mapping[str, Sequence[str]]] = {"task": ("regression", "sparse")}


class LandmarkClasses(JobClassifier, LandmarkBase):
    """Base of estimators of classes and of levels."""

    def decision_function(self, X: Any) -> Any:
        """Return scores (n,) of levels or of the second of two classes, or (n, n_classes)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores


class LandmarkClassifier(LandmarkClasses):
    """Classification by a linear model on similarities to landmarks, one class against the others.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weights_ : ndarray of shape (k,) or (n_classes, k)
    intercept_ : float or ndarray of shape (n_classes,)
    landmarks_, map_, metric_, model_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor`.

    References
    ----------
    Balcan, Blum, Srebro, "A theory of learning with similarity functions", Machine Learning 72
    (2008); a special case of the model of Kar and Jain.
    """

    loss: str | None
    _fixed: ClassVar[Mapping[str, Any]] = {"task": "classification"}
    _left_out = (*_REGRESSION, *_LEVELS)

    def _has_shares(self) -> bool:
        return self.loss in (None, "logistic")


class LandmarkOrdinalRegressor(LandmarkClasses):
    """Prediction of levels in order by a linear score of similarities to landmarks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_levels,)
        Levels of the target, ascending; the categories of an ordered categorical of pandas that
        occur, as texts.
    thresholds_ : ndarray of shape (n_levels - 1,)
        Between the scores of neighbouring levels.
    landmarks_, weights_, intercept_, map_, metric_, model_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor`.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, section 3.3.
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"task": "ordinal"}
    _left_out = _REGRESSION
    #: Categories of an ordered categorical, whose positions are the levels of the model.
    _grades: np.ndarray | None = None

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, unlabelled: Any = None
    ) -> Any:
        """Take landmarks from the rows and fit a score on the similarities to them.

        Parameters
        ----------
        X, sample_weight, groups, unlabelled : see :class:`LandmarkRegressor`
        y : array-like of shape (n,), Dask collection, or str
            Levels as numbers, an ordered categorical of pandas, or the name of its column.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        X = collected(X)
        is_column = isinstance(y, str) and kind_of(X) == "frame" and y in column_names(X)
        values = X[y] if is_column else y
        self._grades = _grades_of(values)
        if self._grades is None:
            _refuse_texts(values)
            return super().fit(X, y, sample_weight, groups, unlabelled)
        rows = without(X, [y]) if is_column else X
        super().fit(rows, _codes_of(values), sample_weight, groups, unlabelled)
        self.classes_ = self._grades[self.classes_.astype(int)]
        if is_column:
            self._taken.append(y)
        return self

    def predict(self, X: Any, budget: float | None = None, **stop: Any) -> Any:
        """Predict levels; see :class:`LandmarkRegressor`."""
        grades = self._grades
        if grades is None:
            return super().predict(X, budget, **stop)
        check_is_fitted(self)
        levels = self._predicted(X, "predicted_", budget, (), np.intp, **stop)
        if kind_of(levels).startswith("dask"):
            return levels.map_blocks(grades.take, dtype=grades.dtype)
        return grades[levels]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score predictions by the share of rows whose level is predicted."""
        X = collected(X)
        if isinstance(y, str) and kind_of(X) == "frame" and y in column_names(X):
            y = X[y]
        grades = _grades_of(y)
        if grades is not None:
            y = grades[_codes_of(y)]
        return super().score(X, y, sample_weight)

    def _has_shares(self) -> bool:
        return False


def _grades_of(y: Any) -> np.ndarray | None:
    """Return the categories of an ordered categorical, also of polars, as texts or numbers.

    None of anything else, and where they are numbers that rise: these are their own levels.
    """
    dtype: Any = getattr(y, "dtype", None)
    if type(dtype).__name__ not in ("CategoricalDtype", "Enum"):
        return None
    if not getattr(dtype, "ordered", True):
        return None
    categories = np.asarray(dtype.categories)
    if categories.dtype.kind not in "iuf":
        return np.array([str(category) for category in dtype.categories], dtype=object)
    return None if (np.diff(categories) > 0).all() else categories


def _refuse_texts(y: Any) -> None:
    """Refuse levels whose order nothing tells."""
    values = np.asarray(y) if kind_of(y) == "array" else np.empty(0)
    texts = {value for value in values.ravel()[:100].tolist() if isinstance(value, str)}
    if len(texts) > 1:
        raise DataError(
            "The target holds texts without an order: give numbers, or an ordered categorical "
            "of pandas."
        )


def _codes_of(y: Any) -> np.ndarray:
    """Return the positions of the categories of an ordered categorical."""
    if hasattr(y, "to_physical"):  # of polars
        codes = y.to_physical().cast(int).fill_null(-1).to_numpy()
    else:
        codes = np.asarray(getattr(y, "cat", y).codes, dtype=np.int64)
    if (codes < 0).any():
        raise DataError(
            f"y has {(codes < 0).sum()} missing values (first at row {int(np.argmin(codes))}): "
            "leave these rows out."
        )
    return codes


class LandmarkRanker(PredictingEstimator, LandmarkBase):
    """Ranking of the rows of queries by a linear score of similarities to landmarks.

    `predict` returns scores; rank the rows of a query from the highest score down.

    Attributes
    ----------
    landmarks_, weights_, intercept_, map_, metric_, model_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor`.

    Notes
    -----
    The squared loss is against gains 2^relevance − 1, normalised within each query by the total of
    its best order.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, appendix F.
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"task": "ranking"}
    _left_out = (*_REGRESSION, *_LEVELS)

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, query: Any, sample_weight: Any = None, unlabelled: Any = None
    ) -> Any:
        """Take landmarks from the rows and fit a score on the similarities to them.

        Parameters
        ----------
        X, sample_weight, unlabelled : see :class:`LandmarkRegressor`
        y : array-like of shape (n,), Dask collection, or str
            Relevance, a whole number from 0 to 30, or the name of its column.
        query : array-like of shape (n,), Dask collection, or str
            Query that each row belongs to, or the name of its column; rows in any order.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        order = None
        if kind_of(X) in ("array", "frame"):
            # The job wants the rows of a query to follow one another.
            keys = np.unique(in_memory(X, query), return_inverse=True)[1]
            order = np.argsort(keys, kind="stable")
            if len(order) != len(in_memory(X, y)):
                raise DataError(f"query has {len(order)} rows, but y has a different number.")
            X = taken(X, order)
            y, query, sample_weight = (
                v if v is None or isinstance(v, str) else np.asarray(v)[order]
                for v in (y, query, sample_weight)
            )
        roles = {"weight": sample_weight, "query": query}
        self._fit(X, y, roles=roles, unlabelled=unlabelled)
        if order is not None and unlabelled is None and self.landmarks_.dtype.kind == "i":
            self.landmarks_ = order[self.landmarks_]
        return self

    def score(  # type: ignore[override]
        self, X: Any, y: Any, query: Any, cutoff: int | None = 5
    ) -> float:
        """Mean NDCG of the first `cutoff` positions, or of whole lists (None).

        Over the queries that have a relevant row.
        """
        keys = hash_keys(in_memory(X, query))
        relevance = np.asarray(in_memory(X, y), dtype=float)
        if keys.shape != relevance.shape:
            raise DataError(f"There are {len(relevance)} relevances and {len(keys)} queries.")
        predicted = np.asarray(self.predict(X))
        order = np.argsort(keys, kind="stable")
        rows = (keys[order], relevance[order], predicted[order, np.newaxis])
        return float(RankingScores.from_rows(*rows, (cutoff or WHOLE,)).mean[0, 0])
