"""What the sequencing estimators share: input, selection, prediction within a budget."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError
from distfms.methods.estimator_columns import Columns, block_of
from distfms.methods.estimator_input import kind_of, map_dask, map_parquet
from distfms.methods.estimator_rows import Chunk, Rows, open_rows
from distfms.methods.passes import Sums
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession
from distfms.methods.sequence.costs import GroupCosts, resolve_costs
from distfms.methods.sequence.glm import (
    GlmDesign,
    glm_criterion,
    glm_predictor,
    sequence_glm,
)
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.groups import FeatureGroups, resolve_groups
from distfms.methods.sequence.problem import SequenceProblem, problem_from_comoments
from distfms.methods.sequence.timeliness import timeliness
from distfms.stats.comoments import CoMoments


class GroupSequenceBase(SelectorMixin, BaseEstimator):
    """What regression and classification share; see :class:`distfms.GroupSequencer`."""

    def __init__(
        self,
        groups: Any = None,
        costs: Any = None,
        shared_costs: Any = None,
        *,
        criterion: str = "fr",
        cost_aware: bool = True,
        doubling: bool = False,
        ridge: float = 1e-5,
        family: str = "auto",
        budget: float | None = None,
        max_refits: int | None = None,
        missing: Any = "error",
        max_iter: int = 200,
        tol: float = 1e-8,
    ) -> None:
        self.groups = groups
        self.costs = costs
        self.shared_costs = shared_costs
        self.criterion = criterion
        self.cost_aware = cost_aware
        self.doubling = doubling
        self.ridge = ridge
        self.family = family
        self.budget = budget
        self.max_refits = max_refits
        self.missing = missing
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Put the groups in order and fit a model for every prefix.

        Parameters
        ----------
        X : array-like, pandas.DataFrame, Dask array or DataFrame, or path, of n rows
            A frame's strings and categories become indicator columns and are one group. A path
            names Parquet files, as in a job.
        y : array-like of shape (n,) or (n, P), Dask collection, or str or list of str
            Target, divided like `X` where both are Dask collections. With a path, the names of
            its columns; all other columns are features.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional
            Weights ≥ 0; with a path, the name of a column.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data, groups or costs cannot be used. The message names the column or group.
        """
        # One BLAS thread, as in a job: the same bits, and no slower on blocks of this size.
        with single_threaded_blas():
            rows = open_rows(
                self,
                X,
                y,
                sample_weight,
                missing=self.missing,
                numeric_target=self._numeric_target,
            )
            self._learn(rows)
        return self

    def _learn(self, rows: Rows) -> None:
        """Make all fitted attributes."""
        family, n_outputs, classes = self._response(rows)
        moments = rows.reduce(partial(_comoments, classes))
        self._check_moments(moments, len(rows.columns.encoded))
        problem, groups, costs = self._problem(rows, moments)
        if family == "gaussian":
            self.criterion_ = self.criterion
            path = sequence(
                problem, self.criterion, cost_aware=self.cost_aware, doubling=self.doubling
            )
            self.path_: Any = path
            self.predictor_ = AnytimePredictor.from_path(path)
            self.n_iter_ = 1
            explained = path.curve_value
        else:
            explained = self._learn_glm(rows, problem, family, n_outputs, classes)
        self.columns_ = rows.columns
        self.family_ = family
        names = rows.columns.encoded
        self.groups_ = {
            name: tuple(names[c] for c in group)
            for name, group in zip(groups.names, groups.columns, strict=True)
        }
        self.costs_ = dict(zip(groups.names, costs.alone.tolist(), strict=True))
        self.sequence_ = list(self.predictor_.groups)
        self.explained_variance_ = explained
        self.timeliness_ = timeliness(np.append(0.0, self.predictor_.spent), explained)
        self._store_coefficients()

    def _learn_glm(
        self,
        rows: Rows,
        problem: SequenceProblem,
        family: str,
        n_outputs: int,
        classes: np.ndarray | None,
    ) -> np.ndarray:
        """Fit a model that is not gaussian; return the explained deviance by prefix."""
        self.criterion_ = glm_criterion(self.criterion, self.doubling)
        design = GlmDesign(family, n_outputs, problem.scaling)

        def make_pass(weights: np.ndarray) -> Sums:
            return rows.reduce(partial(_glm_sums, design, weights, classes))

        path = sequence_glm(
            make_pass,
            problem,
            design,
            criterion=self.criterion_,
            cost_aware=self.cost_aware,
            max_refits=self.max_refits,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        labels = None if classes is None or n_outputs == 1 else tuple(map(str, classes))
        self.path_ = path
        self.n_iter_ = 1 + int(path.n_passes[-1])
        self.predictor_ = glm_predictor(path, problem, design, labels)
        return path.curve_value

    def _problem(
        self, rows: Rows, moments: CoMoments
    ) -> tuple[SequenceProblem, FeatureGroups, GroupCosts]:
        """Put moments, groups and costs together."""
        groups = _feature_groups(self.groups, rows.columns)
        costs = _group_costs(self.costs, self.shared_costs, groups)
        n_features = len(rows.columns.encoded)
        problem = problem_from_comoments(
            moments,
            features=range(n_features),
            targets=range(n_features, moments.n_columns),
            feature_names=rows.columns.encoded,
            target_names=rows.target_names,
            groups=groups,
            costs=costs,
            ridge=self.ridge,
        )
        return problem, groups, costs

    @property
    def _numeric_target(self) -> bool:
        return True

    @abstractmethod
    def _response(self, rows: Rows) -> tuple[str, int, np.ndarray | None]:
        """Family, number of outputs, and classes if the target is one of them."""

    def _check_moments(self, moments: CoMoments, n_features: int) -> None:
        if not moments.weight > 0:
            raise DataError("The sample weights are zero for all rows: there is nothing to learn.")
        if moments.n_samples < 2:
            raise DataError(
                f"At least 2 rows of positive weight are needed; there are n_samples = "
                f"{moments.n_samples}."
            )

    def _store_coefficients(self) -> None:
        """Set the attributes that hold coefficients in original units."""
        model = self.predictor_
        prefix = model.affordable(self.budget)
        coefficients, intercept = model.coefficients.transpose(0, 2, 1), model.intercept
        if self._flat_coefficients:
            coefficients, intercept = coefficients[:, 0], intercept[:, 0]
        self.coef_path_, self.intercept_path_ = coefficients, intercept
        self.coef_, self.intercept_ = coefficients[prefix], intercept[prefix]

    @property
    def _flat_coefficients(self) -> bool:
        return self.predictor_.coefficients.shape[2] == 1

    # --- prediction ---

    def _means(self, X: Any, budget: float | None) -> Any:
        """Mean response of the longest affordable prefix, (n,) or (n, P)."""
        check_is_fitted(self)
        budget = self.budget if budget is None else budget
        model, kind = self.predictor_, kind_of(X)
        needed = self.columns_.restricted(self._sources(budget) or self.columns_.names[:1])
        apply = partial(_predict_block, model, needed, budget)
        if kind == "parquet":
            return map_parquet(X, needed, apply, self.missing)
        n_outputs = model.coefficients.shape[2]
        tail = (n_outputs,) if n_outputs > 1 else ()
        if kind == "dask-array":
            self._check_width(X)
            predict = partial(_predict_array, model, self.columns_, budget, self.missing)
            return map_dask(X, predict, tail)
        if kind == "array":
            return model.predict(self._validated(X), budget)
        if kind == "dask-frame":
            self._check_frame(X._meta, needed)
            return map_dask(X, partial(_predict_frame, apply, needed, self.missing), tail)
        self._check_frame(X, needed)
        return _predict_frame(apply, needed, self.missing, X)

    def _sources(self, budget: float | None) -> list[str]:
        """Columns of the data that the affordable prefix reads, in the order of the data."""
        within = set(self.predictor_.columns_within(budget))
        columns = self.columns_
        used = {
            source
            for source, name in zip(columns.sources, columns.encoded, strict=True)
            if name in within
        }
        return [name for name in columns.names if name in used]

    def _check_frame(self, frame: Any, needed: Columns) -> None:
        """Hold a frame to the columns of `fit`, or to those of an affordable prefix."""
        names = {str(label) for label in frame.columns}
        whole = set(needed.names) == set(self.columns_.names)
        if whole or names >= set(self.columns_.names) or not names >= set(needed.names):
            validate_data(self, frame, reset=False, skip_check_array=True)

    def _check_width(self, X: Any) -> None:
        if X.ndim != 2 or X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has shape {X.shape}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )

    def _validated(self, X: Any, dtype: Any = np.float64) -> np.ndarray:
        finite = "allow-nan" if self.missing == "mean" else True
        return validate_data(self, X, dtype=dtype, reset=False, ensure_all_finite=finite)

    def anytime(self, *, n_samples: int = 1, deadline_s: float | None = None) -> AnytimeSession:
        """Begin a prediction whose groups come one by one.

        Parameters
        ----------
        n_samples : int
            Rows that are predicted together.
        deadline_s : float, optional
            Seconds from now after which nothing is taken any more.

        Returns
        -------
        AnytimeSession
            ``deliver(group, values)`` takes a group, ``prediction`` is always ready. See
            `group_values` for groups of categories.
        """
        check_is_fitted(self)
        return self.predictor_.start(n_samples=n_samples, deadline_s=deadline_s)

    def group_values(self, group: str, X: Any) -> np.ndarray:
        """Values of a group as `anytime` takes them.

        Parameters
        ----------
        group : str
            A name of ``sequence_``.
        X : pandas.DataFrame of n rows, or array-like of shape (n, n_features)
            A frame needs the columns of the group only.

        Returns
        -------
        ndarray of shape (n, s)
        """
        check_is_fitted(self)
        model = self.predictor_
        if group not in model.groups:
            raise DataError(f"{group!r} is no group of the sequence.")
        wanted = list(model.columns[model.groups.index(group)])
        if kind_of(X) != "frame":
            return self._validated(X)[:, wanted]
        names, sources = self.columns_.encoded, self.columns_.sources
        columns = self.columns_.restricted(list(dict.fromkeys(sources[c] for c in wanted)))
        position = {name: i for i, name in enumerate(columns.encoded)}
        block = columns.encode(X, self.missing, "mean")
        return np.ascontiguousarray(block[[position[names[c]] for c in wanted]].T)

    # --- selection ---

    def _get_support_mask(self, budget: float | None = None) -> np.ndarray:
        check_is_fitted(self)
        chosen = set(self._sources(self.budget if budget is None else budget))
        return np.array([name in chosen for name in self.columns_.names])

    def get_support(self, indices: bool = False, budget: float | None = None) -> np.ndarray:
        """Columns of the data that the affordable prefix reads.

        Parameters
        ----------
        indices : bool
            Return positions instead of a mask.
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray of bool of shape (n_features_in_,), or of int
        """
        mask = self._get_support_mask(budget)
        return np.flatnonzero(mask) if indices else mask

    def transform(self, X: Any, budget: float | None = None) -> Any:
        """Keep the columns that the affordable prefix reads.

        Parameters
        ----------
        X : array-like, pandas.DataFrame, Dask array or DataFrame
        budget : float, optional
            Default: the parameter `budget`, which also decides about the names that
            ``set_output`` gives.

        Returns
        -------
        The same kind of data with fewer columns.
        """
        mask = self._get_support_mask(budget)
        kind = kind_of(X)
        if kind == "parquet":
            raise DataError("Parquet files are not transformed; read the columns of get_support.")
        if kind in ("frame", "dask-frame"):
            frame = X if kind == "frame" else X._meta
            validate_data(self, frame, reset=False, skip_check_array=True)
            return X[[label for label, chosen in zip(X.columns, mask, strict=True) if chosen]]
        if kind == "dask-array":
            self._check_width(X)
            return X[:, np.flatnonzero(mask)]
        return self._validated(X, dtype=None)[:, mask]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


# --- what a pass computes, and what workers call ------------------------------------------------


def _response_of(target: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    """Target of a chunk as numbers: class numbers, or values (P, n)."""
    if classes is not None:
        return np.searchsorted(classes, target).astype(np.float64)
    values = np.asarray(target, dtype=np.float64)
    return values[np.newaxis] if values.ndim == 1 else np.ascontiguousarray(values.T)


def _comoments(classes: np.ndarray | None, chunk: Chunk) -> CoMoments:
    response = np.atleast_2d(_response_of(chunk.target, classes))
    block = np.concatenate([chunk.values, response])
    return CoMoments.from_block(block, chunk.weight, overwrite=True)


def _glm_sums(
    design: GlmDesign, weights: np.ndarray, classes: np.ndarray | None, chunk: Chunk
) -> Sums:
    response = _response_of(chunk.target, classes)
    if design.family != "softmax":
        response = np.atleast_2d(response)
    return design.sums(design.rows(chunk.values, response, chunk.weight), weights)


def _predict_block(
    model: AnytimePredictor, columns: Columns, budget: float | None, block: np.ndarray
) -> np.ndarray:
    """Predictions for a block (d, n) of some columns."""
    return model.predict(dict(zip(columns.encoded, block, strict=True)), budget)


def _predict_frame(apply: Any, columns: Columns, missing: Any, frame: Any) -> np.ndarray:
    return apply(columns.encode(frame, missing, "mean"))


def _predict_array(
    model: AnytimePredictor, columns: Columns, budget: float | None, missing: Any, X: Any
) -> np.ndarray:
    return model.predict(block_of(X, columns, missing).T, budget)


# --- groups and costs as parameters -------------------------------------------------------------


def _feature_groups(groups: Any, columns: Columns) -> FeatureGroups:
    """Resolve the parameter `groups`."""
    if groups is None or isinstance(groups, Mapping):
        named = {str(name): _patterns(value, columns) for name, value in (groups or {}).items()}
    else:
        ids = np.asarray(groups)
        if ids.shape != (len(columns.names),):
            raise DataError(
                f"groups has shape {ids.shape}; one id for each of the {len(columns.names)} "
                f"columns is wanted."
            )
        named = {
            str(group): [columns.names[c] for c in np.flatnonzero(ids == group)]
            for group in np.unique(ids)
        }
    return resolve_groups(columns.encoded, named, sources=columns.sources)


def _patterns(value: Any, columns: Columns) -> list[str]:
    """Names and globs of one group; positions become names."""
    listed: Sequence[Any] = [value] if isinstance(value, str | int | np.integer) else list(value)
    n = len(columns.names)
    for item in listed:
        if isinstance(item, int | np.integer) and not 0 <= item < n:
            raise DataError(f"groups names column {item}; there are {n}, from 0.")
    return [i if isinstance(i, str) else columns.names[int(i)] for i in listed]


def _group_costs(costs: Any, shared: Any, groups: FeatureGroups) -> GroupCosts:
    """Costs of the parameters `costs` and `shared_costs`."""
    if costs is not None and not isinstance(costs, Mapping):
        values = np.asarray(costs)
        if values.shape != (len(groups),):
            raise DataError(
                f"costs has shape {values.shape}; one for each of the {len(groups)} groups is "
                f"wanted."
            )
        costs = dict(zip(groups.names, values.tolist(), strict=True))
    named = None if costs is None else {str(name): value for name, value in costs.items()}
    return resolve_costs(groups.names, named, shared=shared)
