"""Learning with similarities to landmarks as scikit-learn estimators."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from distfms.data.batches import RowBatch
from distfms.data.folds import hash_keys
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.methods.cross_validation import Members
from distfms.methods.estimator_input import Source, in_memory, kind_of
from distfms.methods.landmarks.fit import PassProcedure
from distfms.methods.landmarks.losses import loss_of, probabilities
from distfms.methods.landmarks.options import DEFAULT_LANDMARKS, LandmarksOptions
from distfms.methods.landmarks.procedure import LandmarkProcedure
from distfms.methods.landmarks.read import SampleReader, SimilarityReader, embedded_rows
from distfms.methods.landmarks.similarity import (
    PRECOMPUTED,
    LandmarkMap,
    landmark_arrays,
    landmark_maps,
)
from distfms.methods.ranking import QueryCounts, RankingScores
from distfms.methods.row_estimator import (
    PieceSource,
    RowClassifier,
    RowEstimator,
    RowRegressor,
    by_chunks,
)

#: Rows that are sampled beside the landmarks.
_SAMPLE = 1000


def _embedded(label: str, mapping: LandmarkMap, batch: RowBatch) -> Any:
    return [embedded_rows(0, batch, slice(0, batch.n_rows), {label: mapping}, None)]


def _similarities(mapping: LandmarkMap, batch: RowBatch) -> np.ndarray:
    return mapping(batch.features).T


def _scores(mapping: LandmarkMap, weights: Any, intercept: Any, batch: RowBatch) -> np.ndarray:
    return mapping.scores(batch.features, weights, intercept)


@dataclass(eq=False, repr=False)
class LandmarkBase(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RowEstimator):
    """What the estimators share; see :class:`distfms.LandmarkRegressor`."""

    #: Of an estimator that does not have the task as a parameter.
    _task: ClassVar[str] = ""

    similarity: Any = "gaussian"
    _: KW_ONLY
    landmarks: int | None = None
    choice: str = "random"
    keep: int | None = None
    ridge: float = 1e-6
    bound: float | None = None
    scaling: str = "standard"
    precision: str = "float64"
    missing: Any = "error"
    seed: int = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Take landmarks from the rows and fit a model on the similarities to them.

        Parameters
        ----------
        X : array-like, frame (pandas, pyarrow, …), Dask array or frame, or path, of n rows
            A path names Parquet files, as in a job.
        y : array-like of shape (n,), Dask collection, or str
            Target, or the name of its column.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: Any, query: Any = None, gains: Any = None) -> Any:
        """Fit the model; of files that are ranked `gains` are normalised by query."""
        options = self._checked(LandmarksOptions, task=getattr(self, "task", self._task))
        if len(options.similarity) > 1:
            raise SpecError(
                "`similarity` is a list: an estimator takes one; compare them by folds."
            )
        with single_threaded_blas():
            source, rows = self._open(X, y, sample_weight, query=query)
            self._choose(options, source, replace(rows, seed=self.seed))
            self._learn(options, source, rows, gains)
        return self

    def _choose(self, options: LandmarksOptions, source: Source, rows: PieceSource) -> None:
        """Take landmarks from the rows."""
        n_features = rows.plan.n_features
        size = max(_SAMPLE, options.landmarks or DEFAULT_LANDMARKS)
        found = source.reduce(rows.by(SampleReader, size))
        sample, moments = found["sample"].train(), found["moments"].train()
        wanted = max(2, options.landmarks or 2)
        if not sample.n_rows:
            raise DataError("The sample weights are zero for all rows: nothing can be learned.")
        if sample.n_rows < wanted:
            raise DataError(
                f"There are n_samples = {sample.n_rows} rows of positive weight to take landmarks "
                f"from; at least {wanted} are needed."
            )
        n_landmarks = options.landmarks or DEFAULT_LANDMARKS
        chosen, arrays = landmark_arrays(sample, moments, n_features, options, n_landmarks)
        (self._map,) = landmark_maps([options.similarity[0].similarity], arrays, sample).values()
        self.candidates_ = np.arange(n_features) if options.is_precomputed else chosen.row_ids

    def _learn(
        self, options: LandmarksOptions, source: Source, rows: PieceSource, gains: Any
    ) -> None:
        """Fit the model."""
        mapping, label = self._map, options.similarity[0].similarity.label
        own = LandmarkProcedure.of(options, (label,), mapping.n_landmarks)
        read_moments = rows.by(SimilarityReader, {label: mapping}, gains)
        moments = {label: source.reduce(read_moments)[label].train()}
        if options.chosen_loss == "squared":
            self._search(own, moments)
            return
        deviation = float(np.sqrt(own.problem(moments)[label].target_variance))
        n_classes = 0 if source.codes is None else len(source.codes)
        self._fitted_loss = loss_of(options, n_classes, deviation)
        procedure = PassProcedure(**vars(own), loss=self._fitted_loss, only_last=True)
        # Rows stay in memory between the passes if they fit.
        read, n_values = rows.then(_embedded, label, mapping), mapping.n_landmarks + 1
        run = source.passes(read, lambda kept, message: message.sums(kept), n_values)
        path = self._search(procedure, {**moments, "make_pass": run})
        self.n_iter_ = int(path.arrays["n_passes"].sum())

    def _search(self, procedure: LandmarkProcedure, members: Members) -> Any:
        """Find the model and set its attributes; return its path."""
        problem = procedure.problem(members)
        path = procedure.search(problem, procedure.rules[0])
        model = procedure.models(problem, path, [len(path.order)])[-1]
        self.map_ = self._map.restricted(path.order)
        self.landmarks_ = self.candidates_[path.order]
        self._model, flat = model, model.weights.shape[1] == 1
        self.coef_ = model.weights[:, 0] if flat else model.weights.T
        self.intercept_ = float(model.offset[0]) if flat else model.offset
        return path

    @property
    def _n_features_out(self) -> int:
        return self.map_.n_landmarks

    def _rows(self, X: Any) -> tuple[Source, PieceSource]:
        """Open rows to predict; of similarities, those to the model's landmarks."""
        check_is_fitted(self)
        if self.map_.similarity.name != PRECOMPUTED:
            return self._opened(X)
        return self._opened(X, [self.columns_.roles.features[i] for i in self.landmarks_])

    def _scores(self, X: Any) -> Any:
        """Linear scores (n, P)."""
        source, rows = self._rows(X)
        weights = self._model.weights
        find = rows.then(_scores, self.map_, weights, self._model.offset)
        return source.stack(find, (weights.shape[1],))

    def transform(self, X: Any) -> Any:
        """Similarities of rows to the landmarks of the model.

        Parameters
        ----------
        X : see `fit`
            On Dask arrays, kernels that dask-ml has are computed by its ``metrics.pairwise``.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, k)
        """
        check_is_fitted(self)
        if kind_of(X) == "dask-array" and self.missing == "error":
            found = _by_dask_ml(self.map_, X)
            if found is not None:
                return found
        source, rows = self._rows(X)
        return source.stack(rows.then(_similarities, self.map_), (self.map_.n_landmarks,))


def _by_dask_ml(mapping: LandmarkMap, X: Any) -> Any:
    """Return similarities of a Dask array by dask-ml, None where it does not have the kernel."""
    name, p = mapping.similarity.name, dict(mapping.similarity.parameters)
    if name not in ("linear", "polynomial", "gaussian", "sigmoid"):
        return None
    from dask_ml.metrics import pairwise

    used = np.flatnonzero(mapping.scale > 0)
    rows = ((X[:, used] - mapping.shift[used]) / mapping.scale[used]).rechunk({1: -1})
    landmarks = np.ascontiguousarray(mapping.scaled(mapping.landmarks.T).T)
    if name == "gaussian":
        return pairwise.rbf_kernel(rows, landmarks, gamma=0.5 / p["sigma"] ** 2)
    names = {"a": "gamma", "r": "coef0", "degree": "degree"}
    return getattr(pairwise, f"{name}_kernel")(
        rows, landmarks, **{names[key]: value for key, value in p.items()}
    )


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkRegressor(RowRegressor, LandmarkBase):
    """Linear regression on similarities to landmarks.

    Parameters
    ----------
    similarity : str or mapping
        ``sigmoid``, ``manhattan``, ``gaussian``, ``euclidean``, ``linear``, ``polynomial``,
        ``cosine``, ``precomputed`` (the columns of X are similarities), ``module:function``; or a
        mapping of its ``name`` and parameters, such as ``{"name": "gaussian", "sigma": 2.0}``. It
        need not be a kernel.
    landmarks : int, optional
        Rows that others are compared with. Default: 500, or all rows where there are fewer.
    choice : {"random", "spread"}
        With ``spread`` they are taken far from one another, as by k-means++, from 1000 rows or as
        many as there are landmarks.
    task : {"regression", "sparse"}
        With ``sparse`` the model keeps the landmarks that lower the loss most, chosen one by one;
        all weights are fitted again after each choice.
    keep : int, optional
        Landmarks of the model. Default: 50 chosen ones, or all random ones.
    criterion : {"gain", "gradient"}
        What a choice maximises.
    refit : bool
        Fit all weights again after each choice of ``sparse``; otherwise take the steps of Algorithm
        2 within a `bound` on the sum of their sizes.
    tolerance : float
        Part of the target's variance within which those steps come to the best model.
    loss : {"squared", "epsilon_insensitive"}, optional
        Default: squared. The other is fitted by passes over the rows, which stay in memory where
        they fit.
    epsilon : float, optional
        Error that costs nothing. Default: a tenth of the target's standard deviation.
    smoothing : float
        Width over which corners of the loss are rounded, in the target's standard deviations.
    ridge : float
        Penalty on squared weights, in units of the mean variance of a similarity.
    bound : float, optional
        Largest Euclidean norm B of the weights where similarities are divided by √landmarks.
    scaling : {"standard", "unit", "none"}
        How features are scaled before they are compared.
    precision : {"float64", "float32"}
        Of similarities; what is summed up of them is float64.
    missing : {"error", "mean"}
        Refuse missing features, or take the training mean for them.
    seed : int
        Of the random choice.

    Attributes
    ----------
    landmarks_ : ndarray of int, shape (k,)
        Rows of the training data that are landmarks of the model, in order of choice; of
        similarities that are ``precomputed``, columns.
    coef_ : ndarray of shape (k,)
        Weights of the similarities to them.
    intercept_ : float
    map_ : LandmarkMap
        From features to similarities.
    columns_ : ColumnPlan
        Columns of the data and what they became.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from distfms import LandmarkRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = LandmarkRegressor(task="sparse", keep=20).fit(X, np.sin(X).sum(axis=1))
    >>> len(model.landmarks_)
    20
    """

    task: str = "regression"
    criterion: str = "gain"
    refit: bool = True
    tolerance: float = 1e-3
    loss: str | None = None
    epsilon: float | None = None
    smoothing: float = 0.01

    def predict(self, X: Any) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : see `fit`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        return self._scores(X)[:, 0]


class LandmarkClasses(RowClassifier, LandmarkBase):
    """What estimators of classes and of levels share."""

    def predict(self, X: Any) -> Any:
        """Predict classes or levels.

        Parameters
        ----------
        X : see `fit`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        return by_chunks(self._named, self._scores(X), drop_axis=1, dtype=self.classes_.dtype)

    def _named(self, scores: np.ndarray) -> np.ndarray:
        numbers = self._fitted_loss.decoded(scores.T, self._model.extra)
        return np.asarray(self.classes_[numbers.astype(np.intp)])


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkClassifier(LandmarkClasses):
    """Classification by a linear model on similarities to landmarks, one class against the others.

    Parameters
    ----------
    similarity, landmarks, choice, keep, ridge, bound, scaling, precision, missing, seed
        See :class:`LandmarkRegressor`.
    loss : {"logistic", "hinge"}
        Of the margin.
    smoothing : float
        Width over which the corner of ``hinge`` is rounded, in margins.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    landmarks_ : ndarray of int, shape (k,)
    coef_ : ndarray of shape (k,) or (n_classes, k)
    intercept_ : float or ndarray of shape (n_classes,)
    n_iter_ : int
        Passes over the rows.
    map_, columns_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor`.

    References
    ----------
    Balcan, Blum, Srebro, "A theory of learning with similarity functions", Machine Learning 72
    (2008), which the model of Kar and Jain contains.
    """

    _task = "classification"

    loss: str = "logistic"
    smoothing: float = 0.01

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, with logistic loss.

        Parameters
        ----------
        X : see `fit`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
            Of more than two classes, each against the others, divided by their sum.
        """
        scores = self._scores(X)
        if kind_of(scores) == "dask-array":
            chunks = (scores.chunks[0], (len(self.classes_),))
            return scores.map_blocks(probabilities, chunks=chunks, dtype=float)
        return probabilities(scores)

    def decision_function(self, X: Any) -> Any:
        """Return scores (n,) of the second of two classes, or (n, n_classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkOrdinalRegressor(LandmarkClasses):
    """Prediction of levels in order by a linear score of similarities to landmarks.

    Parameters
    ----------
    similarity, landmarks, choice, keep, ridge, bound, scaling, precision, missing, seed
        See :class:`LandmarkRegressor`.
    gamma : float
        Margin γ that scores keep from thresholds; levels are 1 apart.
    spacing : float, optional
        Learn the thresholds, at least so far apart. Default: fixed, half-way between the levels.
    smoothing : float
        Width over which the corners of the loss are rounded.

    Attributes
    ----------
    classes_ : ndarray of shape (n_levels,)
        Levels of the target, ascending.
    thresholds_ : ndarray of shape (n_levels - 1,)
        Between the scores of neighbouring levels.
    landmarks_, coef_, intercept_, n_iter_, map_, columns_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor` and :class:`LandmarkClassifier`.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, section 3.3.
    """

    _task = "ordinal"

    gamma: float = 0.5
    spacing: float | None = None
    smoothing: float = 0.01

    @property
    def thresholds_(self) -> np.ndarray:
        """Thresholds between the scores of neighbouring levels."""
        loss: Any = self._fitted_loss
        return np.asarray(loss.thresholds(self._model.extra))

    def decision_function(self, X: Any) -> Any:
        """Return scores (n,), which the thresholds cut into levels."""
        return self._scores(X)[:, 0]


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkRanker(LandmarkBase):
    """Ranking of the rows of queries by a linear score of similarities to landmarks.

    Parameters
    ----------
    similarity, landmarks, choice, keep, ridge, bound, scaling, precision, missing, seed
        See :class:`LandmarkRegressor`.

    Attributes
    ----------
    landmarks_, coef_, intercept_, map_, columns_, n_features_in_, feature_names_in_
        See :class:`LandmarkRegressor`.

    Notes
    -----
    The squared loss is to gains 2^relevance − 1 that are normalised within each query, by what its
    best order adds up to.

    References
    ----------
    Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012, appendix F.
    """

    _task = "ranking"

    ridge: float = 1e-2

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, query: Any, sample_weight: Any = None
    ) -> Any:
        """Take landmarks from the rows and fit a score on the similarities to them.

        Parameters
        ----------
        X : see :class:`LandmarkRegressor`
        y : array-like of shape (n,), Dask collection, or str
            Relevance, a whole number from 0 to 30, or the name of its column.
        query : array-like of shape (n,), Dask collection, or str
            Query that each row belongs to, or the name of its column; rows in any order.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        keys, relevance = _ranked_rows(X, y, query)
        gains = QueryCounts.from_rows(keys, relevance).gains()
        named = [name for name in (y, query) if isinstance(name, str)]
        if kind_of(X) == "parquet":
            self._fit(X, y, sample_weight, query, (gains, gains))
        else:
            rows = X.drop(columns=named) if named else X
            self._fit(rows, gains(keys, relevance), sample_weight)
        self._taken = (*self._taken, *named)
        return self

    def predict(self, X: Any) -> Any:
        """Score rows: those of a query are ranked from the highest score down.

        Parameters
        ----------
        X : see `fit`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any, query: Any, cutoff: int = 5) -> float:
        """Mean NDCG of so many positions, over the queries that have a relevant row."""
        keys, relevance = _ranked_rows(X, y, query)
        found, order = in_memory(X, self.predict(X)), np.argsort(keys, kind="stable")
        rows = (keys[order], relevance[order], np.asarray(found)[order, np.newaxis])
        return float(RankingScores.from_rows(*rows, (cutoff,)).mean[0, 0])


def _ranked_rows(X: Any, y: Any, query: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return hashes of the queries, and relevances, of all rows."""
    keys, relevance = hash_keys(in_memory(X, query)), np.asarray(in_memory(X, y), dtype=float)
    if keys.shape != relevance.shape:
        raise DataError(f"There are {len(relevance)} relevances and {len(keys)} queries of rows.")
    return keys, relevance
