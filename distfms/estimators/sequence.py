"""Feature-group sequencing as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.data.files.partition import collected
from distfms.data.rows.batches import RowBatch
from distfms.errors import DataError, SpecError, checked_budget
from distfms.estimators.base import JobEstimator
from distfms.estimators.inputs import (
    Given,
    are_named,
    array_names,
    column_names,
    kind_of,
    picked,
    without,
)
from distfms.estimators.parameters import check_columns, plain
from distfms.estimators.predicting import JobClassifier, JobRegressor
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.frame.row_predictor import COST
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession, columns_of, model_for
from distfms.methods.sequence.evaluate import advised
from distfms.methods.sequence.options import SequenceOptions, resolve_groups
from distfms.methods.sequence.problem import LinearModels


class GroupSequenceBase(SelectorMixin, JobEstimator):
    """Base of regression and classification; see :class:`distfms.GroupSequencer`."""

    _method = "sequence"
    _Options = SequenceOptions
    _first = ("groups", "costs", "shared_costs")
    _defaults: ClassVar[Mapping[str, Any]] = {"baselines": (), "model": "linear"}
    family: str
    groups: Any
    costs: Any

    def _options(
        self, names: Sequence[str], opened: Given, target: Sequence[str]
    ) -> dict[str, Any]:
        if self.family not in ("auto", *self._takes["family"]):
            raise SpecError(
                f"family is {self.family!r}; GroupSequencer takes 'gaussian' and 'poisson', "
                "GroupSequenceClassifier 'auto', 'logistic' and 'softmax'."
            )
        section = super()._options(names, opened, target)
        groups = section["groups"] = _named_groups(self.groups, names)
        costs = plain(self.costs)
        if isinstance(costs, int | float):
            costs = [costs] * len(resolve_groups(names, groups).names)
        if isinstance(costs, list):
            group_names = resolve_groups(names, groups).names
            if len(costs) != len(group_names):
                raise DataError(
                    f"costs has {len(costs)} values; give one for each of the "
                    f"{len(group_names)} groups."
                )
            section["costs"] = dict(zip(group_names, costs, strict=True))
        return section

    def _read(self, run: FinishedRun) -> None:
        super()._read(run)
        selection = run.selection
        self.predictor_ = model = AnytimePredictor.from_arrays(run.weights, run.model)
        self.family_ = selection["family"]
        self.criterion_ = selection["criterion"]
        self.sequence_ = list(model.groups)
        self.groups_ = {}
        for group, columns in zip(model.groups, model.columns, strict=True):
            self.groups_[group] = tuple(model.feature_names[c] for c in columns)
        self.costs_ = selection["costs"]
        values = [step["explained_variance"] for step in selection["sequence"]]
        self.explained_variance_ = np.array([0.0, *values])
        self.timeliness_ = selection["timeliness"]
        self.n_iter_ = 1 + selection.get("n_passes", 0)
        if not isinstance(model.models, LinearModels):
            return
        coefficients = model.models.coefficients.transpose(0, 2, 1)
        intercept = model.models.intercept - model.prior
        if coefficients.shape[1] == 1 and run.model["classes"] is None:
            coefficients = coefficients[:, 0]
            intercept = intercept[:, 0]
        advised_model = model.model_of(advised(run.model))
        self.intercept_ = intercept[advised_model]
        if list(model.feature_names) == list(self._levels):  # one coefficient a column
            self.coef_ = coefficients[advised_model]
        prefixes = [model.model_of(number) for number in range(len(model.groups) + 1)]
        self.coef_path_ = coefficients[prefixes]
        self.intercept_path_ = intercept[prefixes]

    @property
    def feature_importances_(self) -> np.ndarray:
        """What each column adds, where every group is one column and every prefix a model."""
        check_is_fitted(self)
        steps = self.model_.run.selection["sequence"]
        gains = np.diff(self.explained_variance_)
        if any(len(step["columns"]) > 1 for step in steps) or not np.isfinite(gains).all():
            raise AttributeError("Gains are of groups of several columns here; see `sequence_`.")
        by_column = {step["columns"][0]: gain for step, gain in zip(steps, gains, strict=True)}
        return np.array([by_column.get(name, 0.0) for name in self._input_names])

    # --- prediction ---

    def _needed(self, budget: float | None, **stop: Any) -> Sequence[str]:
        from distfms.runs.finished import checked_stop

        budget = checked_budget(budget, "budget")
        _, number, _ = model_for(self.model_.run, budget, checked_stop(**stop))
        return columns_of(self.model_.run, number)

    def row_costs(self, X: Any, budget: float | None = None, **stop: Any) -> Any:
        """Costs of predictions that stop row by row.

        Parameters
        ----------
        X, budget, **stop : see `predict`

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        return self._predicted(X, COST, budget, **{"stop": "rows", **stop})

    def anytime(
        self, *, n_samples: int = 1, deadline_s: float | None = None, **stop: Any
    ) -> AnytimeSession:
        """Start a prediction whose groups arrive one by one.

        Parameters
        ----------
        n_samples : int
            Rows to predict together.
        deadline_s : float, optional
            Seconds from now after which no group is accepted.
        **stop
            ``stop="rows"`` and what `predict` takes beside it: ``next_group()`` is None when it
            does not pay to go on.

        Returns
        -------
        AnytimeSession
            ``deliver(group, values)`` adds a group, ``run(compute)`` computes groups in order;
            ``prediction`` is always ready. See `group_values` for groups of categories.
        """
        check_is_fitted(self)
        session: AnytimeSession = self.model_.anytime(
            n_samples=n_samples, deadline_s=deadline_s, **stop
        )
        return session

    def group_values(self, group: str, X: Any) -> np.ndarray:
        """Values of a group as `anytime` takes them.

        Parameters
        ----------
        group : str
            A name of ``sequence_``.
        X : frame of n rows, or array-like of shape (n, n_features)
            A frame needs only the columns of the group.

        Returns
        -------
        ndarray of shape (n, s)
        """
        check_is_fitted(self)
        if group not in self.groups_:
            raise DataError(f"{group!r} is not a group of the sequence.")
        place = self.sequence_.index(group)
        needed = self.model_.run.selection["sequence"][place]["columns"]
        names = self.groups_[group]
        return self._from_batches(X, needed, partial(_values, names), (len(names),))

    # --- selection ---

    def _get_support_mask(self, budget: float | None = None) -> np.ndarray:
        check_is_fitted(self)
        chosen = set(self._needed(budget))
        return np.array([name in chosen for name in self._input_names])

    def get_support(self, indices: bool = False, budget: float | None = None) -> np.ndarray:
        """Columns of the data that a prediction reads.

        Parameters
        ----------
        indices : bool
            Return positions instead of a mask.
        budget : float, optional
            Largest cost of a prediction. Default: the model that predictions use.

        Returns
        -------
        ndarray of bool of shape (n_features_in_,), or of int
        """
        mask = self._get_support_mask(budget)
        return np.flatnonzero(mask) if indices else mask

    def transform(self, X: Any, budget: float | None = None) -> Any:
        """Keep the columns that a prediction reads.

        Parameters
        ----------
        X : array-like, frame, Dask array or frame
        budget : float, optional
            As for `get_support`.

        Returns
        -------
        The same kind of data with fewer columns.
        """
        X = collected(X)
        kind = kind_of(X)
        mask = self._get_support_mask(budget)
        if kind == "parquet":
            raise DataError(
                "transform takes no Parquet files: read the columns of `get_support` from them."
            )
        if "frame" in kind:
            frame = without(X, self._taken) if are_named(X) else X
            check_columns(self, column_names(frame), are_named(frame))
            return picked(frame, mask)
        if kind == "dask-array":
            check_columns(self, array_names(X.shape[:2]), False)
            return X[:, np.flatnonzero(mask)]
        finite = "allow-nan" if self.missing != "error" else True
        return validate_data(self, X, dtype=None, reset=False, ensure_all_finite=finite)[:, mask]


class GroupSequencer(JobRegressor, GroupSequenceBase):
    """Linear regression by groups of features that have costs, ready at any budget.

    ``groups`` may also hold positions of columns, be a list of lists of columns, or an array of
    shape (n_features,) with the id of each column's group. ``costs`` may be an array in the order
    of the groups. All indicators of a category are in the same group. ``family`` is ``gaussian`` or
    ``poisson``.

    Attributes
    ----------
    sequence_ : list of str
        Groups in the order in which to compute them, without those of constant columns.
    groups_ : dict of str to tuple of str
        Columns of each group, with categories as indicators ``column=level``.
    costs_ : dict of str to float
        Cost of each group if it comes first.
    predictor_ : AnytimePredictor
        Models of all prefixes, and of the sets for `budgets`.
    explained_variance_ : ndarray of shape (K + 1,)
        Share explained by the prefixes 0..K on the training rows: of the variance, or of the
        deviance if not gaussian.
    coef_path_ : ndarray of shape (K + 1, D) or (K + 1, P, D)
        In original units, for the D columns of ``predictor_.feature_names``.
    intercept_path_ : ndarray of shape (K + 1,) or (K + 1, P)
    coef_, intercept_ : ndarray
        Model that `predict` uses by default: the prefix after which more groups explain little more
        (by cross-validation, with `folds`). ``coef_`` where each column has one coefficient: no
        categories, splines or trees.
    feature_importances_ : ndarray of shape (n_features_in_,)
        What each column adds to what is explained of the training rows when its turn comes; where
        every group is one column.
    timeliness_ : float
        Area under explained variance against cost, as a share of the whole.
    n_iter_ : int
        Passes over the rows.
    criterion_, family_ : str
        Criterion and family that were used.
    model_ : distfms.runs.serve.Model
        The finished run.
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

    _left_out = ("class_weights",)
    _classifier = "GroupSequenceClassifier"
    _defaults: ClassVar[Mapping[str, Any]] = {**GroupSequenceBase._defaults, "family": "gaussian"}
    _takes: ClassVar[Mapping[str, Sequence[str]]] = {"family": ("gaussian", "poisson")}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = self.family == "poisson"
        return tags


class GroupSequenceClassifier(JobClassifier, GroupSequenceBase):
    """Logistic regression by groups of features that have costs, ready at any budget.

    The parameters are those of :class:`GroupSequencer`, but for ``family`` and ``class_weights``.
    Each step of a fit is a pass over the data, which the folds share.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_path_ : ndarray of shape (K + 1, 1 or n_classes, D)
    intercept_path_ : ndarray of shape (K + 1, 1 or n_classes)
    explained_variance_ : ndarray of shape (K + 1,)
        Share of the deviance of the training rows that the prefixes 0..K explain.
    sequence_, groups_, costs_, predictor_, coef_, intercept_, timeliness_, n_iter_, model_
    n_features_in_, feature_names_in_
        See :class:`GroupSequencer`.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Appendix B.
    """

    _defaults: ClassVar[Mapping[str, Any]] = {**GroupSequenceBase._defaults, "family": "auto"}
    _meanings: ClassVar[Mapping[str, str]] = {
        "family": "``logistic`` for two classes, ``softmax`` for more; ``auto``: by their number."
    }
    _takes: ClassVar[Mapping[str, Sequence[str]]] = {"family": ("logistic", "softmax")}

    def _options(
        self, names: Sequence[str], opened: Given, target: Sequence[str]
    ) -> dict[str, Any]:
        section = super()._options(names, opened, target)
        if self.family == "auto":
            section["family"] = "softmax"  # which is logistic for two classes
        return section

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.family != "logistic"
        return tags


def _values(names: Sequence[str], batch: RowBatch) -> np.ndarray:
    return np.ascontiguousarray(batch.values[[batch.names.index(name) for name in names]].T)


# --- groups as a parameter ----------------------------------------------------------------------


def _named_groups(groups: Any, columns: Sequence[str]) -> dict[str, list[str]] | str:
    """Names and globs by group, from the parameter `groups`; positions become names."""
    if isinstance(groups, str):
        return groups
    if groups is None:
        return {}
    if isinstance(groups, Mapping):
        return {str(name): _patterns(listed, columns) for name, listed in groups.items()}
    if isinstance(groups, list | tuple) and any(map(_is_listing, groups)):
        return {str(number): _patterns(listed, columns) for number, listed in enumerate(groups)}
    ids = np.asarray(groups)
    if ids.shape != (len(columns),):
        raise DataError(
            f"groups has the shape {ids.shape}: give an id for each of the {len(columns)} columns, "
            "a list of columns for each group, or a mapping of names to columns."
        )
    named = {}
    for group in np.unique(ids):
        places = np.flatnonzero(ids == group)
        named[str(group)] = [columns[place] for place in places.tolist()]
    return named


def _is_listing(group: Any) -> bool:
    return isinstance(group, Collection) and not isinstance(group, str)


def _patterns(value: Any, columns: Sequence[str]) -> list[str]:
    """Names and globs of one group; positions become names."""
    listed: Sequence[Any] = [value] if isinstance(value, str | int | np.integer) else list(value)
    for item in listed:
        if isinstance(item, int | np.integer) and not 0 <= item < len(columns):
            raise DataError(
                f"groups names column {item}, but X has {len(columns)}, counted from 0."
            )
    return [i if isinstance(i, str) else columns[int(i)] for i in listed]
