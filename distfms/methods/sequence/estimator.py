"""Feature-group sequencing as scikit-learn estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.data.batches import RowBatch
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.methods.estimator_input import Source, as_frame, check_columns, kind_of
from distfms.methods.row_estimator import (
    PieceSource,
    RowClassifier,
    RowEstimator,
    RowRegressor,
    by_chunks,
    plain,
)
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession
from distfms.methods.sequence.glm import GlmDesign, GlmRows
from distfms.methods.sequence.options import SequenceOptions, resolve_costs, resolve_groups
from distfms.methods.sequence.procedure import Rule, SequenceProcedure
from distfms.methods.sequence.timeliness import timeliness
from distfms.stats.comoments import CoMoments


@dataclass(eq=False, repr=False)
class GroupSequenceBase(SelectorMixin, RowEstimator):
    """What regression and classification share; see :class:`distfms.GroupSequencer`."""

    groups: Any = None
    costs: Any = None
    shared_costs: Any = None
    _: KW_ONLY
    criterion: str = "fr"
    cost_aware: bool = True
    doubling: bool = False
    ridge: float = 1e-5
    family: str = "auto"
    budget: float | None = None
    max_groups: int | None = None
    max_refits: int | None = None
    missing: Any = "error"
    max_iter: int = 200
    tol: float = 1e-8

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Put the groups in order and fit a model for every prefix.

        Parameters
        ----------
        X : array-like, frame (pandas, pyarrow, …), Dask array or frame, or path, of n rows
            A frame's strings and categories become indicator columns and are one group. A path
            names Parquet files, as in a job.
        y : array-like of shape (n,) or (n, P), Dask collection, or str or list of str
            Target, divided like `X` where both are Dask collections; or the names of columns of a
            frame or of files, whose other columns are the features.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional
            Weights ≥ 0, or the name of their column.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data, groups or costs cannot be used. The message names the column or group.
        """
        # One BLAS thread, as in a job: the same bits, and no slower on batches of this size.
        with single_threaded_blas():
            self._learn(*self._open(X, y, sample_weight))
        return self

    def _learn(self, source: Source, rows: PieceSource) -> None:
        """Make all fitted attributes."""
        family, n_outputs = self._response(source)
        plan, moments = rows.plan, source.reduce(rows.then(_comoments))
        self._check_moments(moments, plan.n_features)
        gaussian = family == "gaussian"
        self.criterion_ = "omp" if self.criterion == "fr" and not gaussian else self.criterion
        features = plan.roles.features
        groups = resolve_groups(features, _named_groups(self.groups, features))
        # What a prediction may cost does not decide about the order.
        options = self._checked(
            SequenceOptions,
            groups={},
            family=family,
            costs=_named_costs(self.costs, groups.names),
            shared_costs=self.shared_costs or {},
            budget=None,
        )
        costs = resolve_costs(groups.names, options.costs, shared=options.shared_costs)
        rule = Rule(self.criterion_, self.cost_aware, self.doubling)
        procedure = SequenceProcedure.of(
            options, (rule,), plan, groups, costs,
            n_outputs=n_outputs, max_iter=self.max_iter, tol=self.tol,
        )  # fmt: skip
        problem = procedure.problem({"moments": moments})
        if not gaussian:
            design = procedure.design(problem.scaling)
            read = rows.then(_glm_rows, design)
            make_pass = source.passes(read, design.sums, len(problem.gram))
            problem = replace(problem, make_pass=make_pass)
        path: Any = procedure.search(problem, rule)
        self.path_ = path
        self.n_iter_ = 1 if gaussian else 1 + int(path.n_passes[-1])
        labels = None if family != "softmax" else tuple(map(str, source.classes))
        self.predictor_ = AnytimePredictor.from_path(self.path_, family, labels)
        self.family_ = family
        self.groups_ = {
            name: tuple(plan.feature_names[c] for c in group)
            for name, group in zip(groups.names, procedure.groups.columns, strict=True)
        }
        self.costs_ = dict(zip(groups.names, costs.alone.tolist(), strict=True))
        self.sequence_ = list(self.predictor_.groups)
        self.explained_variance_ = self.path_.curve_value
        self.timeliness_ = timeliness(self.path_.curve_cost, self.explained_variance_)
        self._store_coefficients()

    @abstractmethod
    def _response(self, source: Source) -> tuple[str, int]:
        """Family and number of outputs."""

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
        if coefficients.shape[1] == 1 and not hasattr(self, "classes_"):
            coefficients, intercept = coefficients[:, 0], intercept[:, 0]
        self.coef_path_, self.intercept_path_ = coefficients, intercept
        self.coef_, self.intercept_ = coefficients[prefix], intercept[prefix]

    # --- prediction ---

    def _means(self, X: Any, budget: float | None) -> Any:
        """Mean response of the longest affordable prefix, (n,) or (n, P)."""
        check_is_fitted(self)
        budget = self.budget if budget is None else budget
        source, rows = self._opened(X, self._sources(budget) or self.columns_.roles.features[:1])
        n_outputs = self.predictor_.coefficients.shape[2]
        predict = rows.then(_predictions, self.predictor_, budget)
        return source.stack(predict, (n_outputs,) if n_outputs > 1 else ())

    def _sources(self, budget: float | None) -> list[str]:
        """Columns of the data that the affordable prefix reads, in the order of the data."""
        within = set(self.predictor_.columns_within(budget))
        columns = self.columns_.columns
        return [column.name for column in columns if within.intersection(column.value_names)]

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
        wanted = {model.feature_names[c]: c for c in model.columns[model.groups.index(group)]}
        columns = self.columns_.columns
        needed = [c.name for c in columns if set(wanted).intersection(c.value_names)]
        source, rows = self._opened(X, needed)
        return source.stack(rows.then(_values, tuple(wanted)), (len(wanted),))

    # --- selection ---

    def _get_support_mask(self, budget: float | None = None) -> np.ndarray:
        check_is_fitted(self)
        chosen = set(self._sources(self.budget if budget is None else budget))
        return np.array([name in chosen for name in self.columns_.roles.features])

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
        if "frame" in kind:
            frame = as_frame(X)
            frame = frame[[label for label in frame.columns if label not in self._taken]]
            head = frame if kind == "frame" else frame._meta
            validate_data(self, head, reset=False, skip_check_array=True)
            return frame[frame.columns[mask]]
        if kind == "dask-array":
            check_columns(self, None, X.shape[1])
            return X[:, np.flatnonzero(mask)]
        finite = "allow-nan" if self.missing == "mean" else True
        return validate_data(self, X, dtype=None, reset=False, ensure_all_finite=finite)[:, mask]


class GroupSequencer(RowRegressor, GroupSequenceBase):
    """Linear regression by groups of features that have costs, ready at any budget.

    Parameters
    ----------
    groups : mapping, array-like of shape (n_features,), or None
        For each group the names, globs or positions of its columns, every other column being a
        group of its own; or for each column the id of its group; or None for groups of one
        column. A category is always in a group as a whole.
    costs : mapping or array-like of shape (n_groups,), optional
        By name or glob of the group, with ``default`` for the rest; or in the order of
        ``groups_``. Default: 1 each.
    shared_costs : mapping, optional
        Costs that several groups share and that are paid once, by a name of their own:
        ``{"blood sample": {"groups": ["glucose", "iron"], "cost": 2.1}}``.
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten"}
        What a step maximises: the gain in explained variance (``fr``), or of the gradient at the
        present model ½ bᵀ(XᵀX/n)⁺b, ½ max b² or ½ ‖b‖² over the group's columns. Models that are
        not gaussian take ``omp`` for ``fr``.
    cost_aware : bool
        Maximise it per cost.
    doubling : bool
        Choose only among groups that cost at most what was spent so far.
    ridge : float
        λ ≥ 0, in units of the standardised columns.
    family : {"auto", "gaussian", "poisson"}
        ``auto``: gaussian.
    budget : float, optional
        What a prediction may cost. Default: all groups. May be changed after `fit`, except for
        ``coef_`` and ``intercept_``.
    max_groups : int, optional
        End the sequence after so many groups.
    max_refits : int, optional
        Poisson: number of refits along the sequence, at most.
    missing : {"error", "mean"}
        Refuse missing features, or take the training mean for them.
    max_iter, tol : int, float
        Poisson: limits of each refit.

    Attributes
    ----------
    sequence_ : list of str
        Groups in the order in which to compute them; those of constant columns are left out.
    groups_ : dict of str to tuple of str
        Columns of each group, after categories became indicators ``column=level``.
    costs_ : dict of str to float
        Cost of each group when it is the first.
    path_ : SequencePath or GlmPath
        What the selection returned.
    predictor_ : AnytimePredictor
        Models of all prefixes.
    explained_variance_ : ndarray of shape (K + 1,)
        Of the prefixes 0..K on the training rows; share of the deviance if not gaussian.
    coef_path_ : ndarray of shape (K + 1, D) or (K + 1, P, D)
        In original units; the D columns of ``columns_.feature_names``.
    intercept_path_ : ndarray of shape (K + 1,) or (K + 1, P)
    coef_, intercept_ : ndarray
        Of the prefix that `budget` affords.
    timeliness_ : float
        Area under explained variance against cost, as a share of the whole.
    n_iter_ : int
        Passes over the rows.
    criterion_, family_ : str
        What was used.
    columns_ : ColumnPlan
        Columns of the data and what they became: numbers, or indicators of categories.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Algorithms 1 to 3.

    Examples
    --------
    >>> import numpy as np
    >>> from distfms import GroupSequencer
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = GroupSequencer(groups=[0, 0, 1, 1], costs=[1.0, 5.0]).fit(X, X @ [1, 0, 0, 2])
    >>> model.sequence_
    ['0', '1']
    >>> model.get_support(budget=1.0)
    array([ True,  True, False, False])
    """

    def _response(self, source: Source) -> tuple[str, int]:
        if self.family not in ("auto", "gaussian", "poisson"):
            raise SpecError(
                f"family {self.family!r} is none of 'auto', 'gaussian', 'poisson'; for classes use "
                f"GroupSequenceClassifier."
            )
        return "gaussian" if self.family == "auto" else self.family, len(source.target)

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predictions of the longest affordable prefix.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame, or path of Parquet files
            A frame or file needs the columns of the prefix only, and no others are read. A category
            that was in no training row counts as the column's mean: it says nothing.
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,) or (n, P)
        """
        return self._means(X, budget)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = self.family == "poisson"
        return tags


class GroupSequenceClassifier(RowClassifier, GroupSequenceBase):
    """Logistic regression by groups of features that have costs, ready at any budget.

    Parameters
    ----------
    groups, costs, shared_costs, criterion, cost_aware, doubling, ridge, budget, max_groups
    max_refits, missing, max_iter, tol
        See :class:`GroupSequencer`. Each step of each refit is a pass over the data: with many
        groups and data that do not fit into memory, set `max_refits`.
    family : {"auto", "logistic", "softmax"}
        ``auto``: logistic for two classes, softmax for more.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_path_ : ndarray of shape (K + 1, 1 or n_classes, D)
    intercept_path_ : ndarray of shape (K + 1, 1 or n_classes)
    explained_variance_ : ndarray of shape (K + 1,)
        Share of the deviance of the training rows that the prefixes 0..K explain.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.
    sequence_, groups_, costs_, path_, predictor_, coef_, intercept_, timeliness_, columns_, n_iter_
        See :class:`GroupSequencer`.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Appendix B.
    """

    def _response(self, source: Source) -> tuple[str, int]:
        if self.family not in ("auto", "logistic", "softmax"):
            raise SpecError(f"family {self.family!r} is none of 'auto', 'logistic', 'softmax'.")
        classes = source.classes
        if self.family == "logistic" and len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported by family 'logistic'. The target holds "
                f"{len(classes)} classes; use 'auto' or 'softmax'."
            )
        binary = len(classes) == 2 and self.family != "softmax"
        return ("logistic", 1) if binary else ("softmax", len(classes))

    def _check_moments(self, moments: CoMoments, n_features: int) -> None:
        super()._check_moments(moments, n_features)
        if moments.constant_columns()[n_features]:
            raise DataError("Only one class has rows of positive weight; 2 classes are needed.")

    def predict_proba(self, X: Any, budget: float | None = None) -> Any:
        """Probabilities of the classes by the longest affordable prefix.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame, or path of Parquet files
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
        """
        means = self._means(X, budget)
        if self.family_ == "softmax":
            return means
        if kind_of(means) == "dask-array":
            return means.map_blocks(_both, new_axis=1, chunks=(*means.chunks, 2), dtype=float)
        return _both(means)

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Return the most probable classes by the longest affordable prefix.

        Parameters
        ----------
        X : see `predict_proba`
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        numbers = self.predict_proba(X, budget).argmax(axis=1)
        return by_chunks(self.classes_.take, numbers, dtype=self.classes_.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.family != "logistic"
        return tags


def _both(share: np.ndarray) -> np.ndarray:
    """Probabilities of two classes from that of the second, shape (n, 2)."""
    return np.stack([1.0 - share, share], axis=1)


# --- what is read of the rows -------------------------------------------------------------------


def _comoments(batch: RowBatch) -> CoMoments:
    return CoMoments.from_block(batch.values, batch.weight, overwrite=True)


def _glm_rows(design: GlmDesign, batch: RowBatch) -> GlmRows:
    response = batch.target[0] if design.family == "softmax" else batch.target
    return design.rows(batch.features, response, batch.weight)


def _predictions(model: AnytimePredictor, budget: float | None, batch: RowBatch) -> np.ndarray:
    return model.predict(dict(zip(batch.names, batch.values, strict=True)), budget)


def _values(names: Sequence[str], batch: RowBatch) -> np.ndarray:
    return np.ascontiguousarray(batch.values[[batch.names.index(name) for name in names]].T)


# --- groups and costs as parameters -------------------------------------------------------------


def _named_groups(groups: Any, columns: Sequence[str]) -> dict[str, list[str]]:
    """Names and globs by group, from the parameter `groups`; positions become names."""
    if groups is None or isinstance(groups, Mapping):
        return {str(name): _patterns(value, columns) for name, value in (groups or {}).items()}
    ids = np.asarray(groups)
    if ids.shape != (len(columns),):
        raise DataError(
            f"groups has shape {ids.shape}; one id for each of the {len(columns)} columns is "
            "wanted."
        )
    return {str(g): [columns[c] for c in np.flatnonzero(ids == g).tolist()] for g in np.unique(ids)}


def _patterns(value: Any, columns: Sequence[str]) -> list[str]:
    """Names and globs of one group; positions become names."""
    listed: Sequence[Any] = [value] if isinstance(value, str | int | np.integer) else list(value)
    for item in listed:
        if isinstance(item, int | np.integer) and not 0 <= item < len(columns):
            raise DataError(f"groups names column {item}; there are {len(columns)}, from 0.")
    return [i if isinstance(i, str) else columns[int(i)] for i in listed]


def _named_costs(costs: Any, names: Sequence[str]) -> dict[str, Any]:
    """Costs by name or glob, from the parameter `costs`."""
    if costs is not None and not isinstance(costs, Mapping):
        values = np.asarray(costs)
        if values.shape != (len(names),):
            raise DataError(
                f"costs has shape {values.shape}; one for each of the {len(names)} groups is "
                f"wanted."
            )
        costs = dict(zip(names, values, strict=True))
    return {str(name): plain(value) for name, value in (costs or {}).items()}
