"""Feature multi-selection as a scikit-learn estimator, for arrays, frames, Dask and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from distfms.data.judgments import (
    Raters,
)
from distfms.data.raters import OF_ALL, OF_ONE
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.methods.estimator_input import Source, _piece, check_columns, open_source
from distfms.methods.multiselect.greedy import Algorithm, Criterion
from distfms.methods.multiselect.model import (
    LinearModel,
    projected_model,
    refit,
)
from distfms.methods.multiselect.objective import (
    BuyFrom,
    Psd,
    check_budget,
    holdout_loss,
    objective_of,
    projected_loss,
)
from distfms.methods.multiselect.options import Costs, resolve_costs
from distfms.methods.multiselect.predictor import TrainedColumns
from distfms.methods.multiselect.procedure import Rule, SelectionProcedure
from distfms.methods.multiselect.read import ObjectReader
from distfms.methods.multiselect.same_raters import (
    check_buying,
    check_told_apart,
    held_out_estimates,
)
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics

if TYPE_CHECKING:
    import pandas as pd

_CHOICES = {
    "algorithm": ("full", "scoring"),
    "criterion": ("best", "gain_per_cost", "gain"),
    "psd": ("nearest", "none"),
    "model": ("projected", "refit"),
    "buy_from": ("independent", "same"),
}

Variances = float | Sequence[float] | np.ndarray | Mapping[str, float] | None

#: A method runs with one BLAS thread, as a job does, so that it has the same bits.
_as_job = single_threaded_blas()


@dataclass(eq=False, repr=False)
class FeatureMultiSelector(SelectorMixin, RegressorMixin, BaseEstimator):
    """Decide how many noisy judgments of each attribute to buy, and predict from their averages.

    Every attribute of an object is judged by raters who disagree. At prediction time judgments
    may be bought for a fixed budget per object. From a few judgments of labelled objects this
    finds how many to buy of each attribute, and the linear model on their averages.

    Parameters
    ----------
    budget : float
        Total cost of the judgments of one object, positive.
    algorithm : {"full", "scoring"}, default="full"
        Scoring treats attributes as uncorrelated; better only for very small samples.
    criterion : {"best", "gain_per_cost", "gain"}, default="best"
        What a greedy step maximises. ``"best"`` runs both where costs differ and keeps the better.
    costs : float, sequence of length d, or mapping, default=1.0
        Cost of one judgment; a mapping goes from names or globs (and ``"default"``) to costs.
    internal_variance : float, array-like of shape (d,), mapping, or None, default=None
        Known variances of single judgments given the object. Estimated where None, NaN or not
        named, which needs objects with two judgments or more.
    ridge : float, default=0.0
        Added to the variance of each average, at least 0.
    psd : {"nearest", "none"}, default="nearest"
        Whether Full works with the positive semi-definite matrix nearest to the estimated
        covariance, in O(d³), or with the estimate as it is.
    model : {"projected", "refit"}, default="projected"
        Weights straight from the statistics, or least squares on the averages of the objects that
        hold enough judgments of every selected attribute (a second pass over the data).
    refine : bool, default=False
        Try to improve the greedy choice by exchanging judgments.
    buy_from : {"independent", "same"}, default="independent"
        Who will give the judgments to be bought: raters of their own, or the same for all
        attributes (rater j judges those bought j times or more), which needs known raters.
    exclude : sequence of str, default=()
        Names or globs of columns of frames and Parquet files that are no attributes.

    Attributes
    ----------
    repeats_ : ndarray of int, shape (d,)
        Judgments to buy of each attribute.
    coef_ : ndarray of shape (d,)
        Weights of the averages, 0 where `repeats_` is.
    intercept_ : float
    spent_ : float
        Cost of `repeats_`, at most the budget.
    objective_ : float
        What the algorithm maximises: the part of the label's variance it deems explained.
    projected_loss_ : float
        Squared loss to be expected of `repeats_` with the best weights, by the training data.
    label_variance_ : float
        Loss of predicting the mean.
    status_ : {"budget_spent", "no_positive_gain", "unaffordable"}
        Why the search ended.
    path_ : SelectionPath
        The greedy steps in order; it answers every smaller budget, see :meth:`repeats_at`.
    estimates_ : JudgmentEstimates
        Moments that the search worked on.
    problem_ : Problem
        The same, ready for the search (positive semi-definite, with costs and ridge).
    n_features_in_ : int
        Number of attributes d.
    feature_names_in_ : ndarray of str, shape (d,)
        Names of the attributes, where the data name them.

    Notes
    -----
    ``X`` may be, wherever it is asked for:

    - an array of shape (n, d, k), NaN where there is no judgment; or (n, d), one judgment each,
      which can be fitted to only if `internal_variance` is given;
    - nested lists, objects × attributes × judgments, of any lengths, None for no judgment;
    - a frame (pandas, pyarrow, …) with columns of lists, numbered columns ``name__1``,
      ``name__2``, …, or columns of numbers (one judgment each);
    - a Dask array or frame of these forms, which is never computed as a whole; frames with lists
      must be made with Dask's option ``dataframe.convert-string`` off, as Dask otherwise turns
      lists into text;
    - the path of Parquet files with such columns, read partition by partition; the numbers are
      those of a job, bit for bit.

    Labels are an array, or the name of a column of `X`; for a path always the latter. The same
    holds for weights. To apply a model, files and frames need judgments of the selected attributes
    only. What is wrong with data is a
    `DataError`, with a parameter a `SpecError`; both are ``ValueError``.

    References
    ----------
    .. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.

    Examples
    --------
    Two raters judge three attributes of 200 objects. The first two attributes matter alike, but
    raters disagree far more on the second, so most of the budget goes there.

    >>> import numpy as np
    >>> from distfms import FeatureMultiSelector
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(200, 3))
    >>> noise = rng.normal(size=(200, 3, 2)) * np.array([0.3, 2.0, 1.0])[:, None]
    >>> X, y = truth[:, :, None] + noise, truth @ [1.0, 1.0, 0.0]
    >>> selector = FeatureMultiSelector(budget=8).fit(X, y)
    >>> selector.repeats_
    array([2, 6, 0])
    >>> selector.repeats_at(4)
    array([1, 3, 0])
    >>> selector.get_feature_names_out()
    array(['x0', 'x1'], dtype=object)
    >>> selector.predict(X[:2]).shape
    (2,)

    What is still to be collected for a refit:

    >>> plan = selector.acquisition_plan(X[:2])
    >>> plan[["object", "attribute", "have", "want", "more"]]
       object attribute  have  want  more
    0       0        x1     2     6     4
    1       1        x1     2     6     4
    """

    budget: float
    _: KW_ONLY
    algorithm: Algorithm = "full"
    criterion: Criterion = "best"
    costs: Costs = 1.0
    internal_variance: Variances = None
    ridge: float = 0.0
    psd: Psd = "nearest"
    model: str = "projected"
    refine: bool = False
    buy_from: BuyFrom = "independent"
    exclude: Sequence[str] = ()

    # --- fitting ---

    @_as_job
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, raters: Any = None) -> Self:
        """Select and fit in one pass over the data (two with ``model="refit"``).

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
            Judgments of n objects and d attributes; see the notes of the class.
        y : array-like of shape (n,), or str
            Labels, or the name of their column.
        sample_weight : array-like of shape (n,), or str, optional
            Weights of the objects, at least 0, or the name of their column.
        raters : {"auto", "columns", "positions", "ignore"}, or array-like of ids, optional
            Who judged, so that what one rater's judgments of several attributes share is told from
            the attributes. Text as in the spec of a job; by default columns of ids ``raters`` or
            ``name__raters``, where X has them. For X in memory the ids themselves, of shape (n, k)
            for all attributes or (n, d, k), None where one is not known.

        Raises
        ------
        DataError, SpecError, ValueError
            Data or parameters cannot be used; among them: an attribute has no object with two
            judgments and no given internal variance.
        """
        self._check_parameters()
        source = open_source(self, _framed(X), y, sample_weight, reset=True)
        source, how = _with_raters(source, raters)
        exclude = self.exclude if source.named else ()
        reader = ObjectReader.of(source, exclude=exclude, raters=how, buy_from=self.buy_from)
        if self.buy_from == "same":
            check_buying(len(reader.layout.names), reader.layout.knows_raters)
        statistics = source.reduce(reader.statistics)
        self._select(statistics, reader.layout.names if source.named else None)
        self._roles = source.taken
        selected = reader.taken(self.get_support(indices=True))
        self._columns = TrainedColumns.of(selected.layout, source.schema.names)
        if self.model == "refit" and selected.layout.names:
            averages = source.reduce(partial(selected.averages, self._model.repeats))
            self._set_model(refit(averages, self._names, self.repeats_, ridge=self.ridge))
        return self

    @_as_job
    def fit_statistics(
        self, statistics: JudgmentStatistics, names: Sequence[str] | None = None
    ) -> Self:
        """Select and fit from statistics that were computed and merged elsewhere.

        Parameters
        ----------
        statistics : JudgmentStatistics
        names : sequence of str, length d, optional
            Names of the attributes.

        Raises
        ------
        DataError, SpecError, ValueError
            As :meth:`fit`; also for ``model="refit"``, which needs the objects.
        """
        self._check_parameters()
        if self.model == "refit":
            raise SpecError('model="refit" needs the objects themselves; use model="projected".')
        self._select(statistics, None if names is None else tuple(names))
        self._roles, self._columns = (), TrainedColumns()
        return self

    def _check_parameters(self) -> None:
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise SpecError(f"{name} is {value!r}; known are {', '.join(known)}.")

    def _select(self, statistics: JudgmentStatistics, names: tuple[str, ...] | None) -> None:
        """Do what the stages ``select`` and ``model`` of a job do."""
        check_columns(self, names, statistics.n_attributes, reset=True)
        if statistics.n_objects < 2:
            raise DataError(
                f"There are too few objects to fit to (n_samples={statistics.n_objects} with a "
                "weight above zero); at least 2 are needed."
            )
        known = _known_variance(self.internal_variance, self._names)
        procedure = SelectionProcedure(
            names=self._names,
            budget=self.budget,
            costs=resolve_costs(self.costs, self._names),
            ridge=self.ridge,
            psd=self.psd,
            criterion=self.criterion,
            internal_variance=known,
            rules=(Rule(self.algorithm),),
            refine=self.refine,
            buy_from=self.buy_from,
        )
        check_told_apart(statistics)
        statistics.estimates(known, self._names)  # refuses attributes that cannot be estimated
        training = procedure.problem({"judgments": statistics})
        problem = training.problem
        check_budget(self.budget, problem)
        path = procedure.search(training, procedure.rules[0])
        repeats = path.selected
        self.estimates_, self.problem_, self.path_ = training.estimates, problem, path
        self.repeats_, self.status_ = repeats, path.status
        self.spent_ = float(repeats @ problem.costs)
        self.objective_ = objective_of(problem, self.algorithm, repeats)
        self.label_variance_ = problem.label_variance
        self.projected_loss_ = projected_loss(problem, repeats)
        self._set_model(projected_model(problem, repeats))

    def _set_model(self, model: LinearModel) -> None:
        self.coef_, self.intercept_ = model.weights, float(model.intercept)
        support = self.get_support(indices=True)
        self._model = LinearModel(
            tuple(self._names[a] for a in support),
            self.repeats_[support],
            self.coef_[support],
            self.intercept_,
            self.estimates_.means[support],
        )

    # --- applying ---

    @_as_job
    def predict(self, X: Any) -> Any:
        """Predict labels from the averages of the first ``repeats_[a]`` judgments.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
            Judgments of n objects. Where an object has fewer judgments than `repeats_` they are
            averaged; where it has none, the training mean is taken.

        Returns
        -------
        ndarray of shape (n,)
            A lazy Dask array for Dask collections.
        """
        source, reader = self._apply(X)
        return source.stack(partial(reader.predictions, self._model))

    @_as_job
    def transform(self, X: Any) -> Any:
        """Average the first ``repeats_[a]`` judgments of each selected attribute.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path

        Returns
        -------
        ndarray of shape (n, n_selected)
            The training mean where an object has no judgment; a lazy Dask array for Dask
            collections. ``transform(X) @ coef_[get_support()] + intercept_`` is ``predict(X)``.
        """
        source, reader = self._apply(X)
        return source.stack(partial(reader.means, self._model), (len(self._model.names),))

    @_as_job
    def score(self, X: Any, y: Any = None, sample_weight: Any = None, raters: Any = None) -> float:
        """Share of the label's variance that `repeats_` judgments explain of these objects.

        They need not hold as many: it is ``1 - holdout_loss(X, y) / variance``, unbiased. How well
        the judgments at hand predict, whatever their number, is what scikit-learn's
        ``scoring="neg_mean_squared_error"`` or ``"r2"`` measures.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
        y : array-like of shape (n,), or str
        sample_weight : array-like of shape (n,), or str, optional
        raters : optional
            As for :meth:`fit`.

        Returns
        -------
        float
            At most 1 but for chance; negative where the mean predicts better.
        """
        estimates, loss = self._holdout(X, y, sample_weight, raters)
        if estimates.label_variance > 0:
            return 1.0 - loss / estimates.label_variance
        return float(loss <= 0)

    @_as_job
    def holdout_loss(self, X: Any, y: Any, sample_weight: Any = None, raters: Any = None) -> float:
        """Estimate the squared loss at `repeats_` judgments from held-out objects.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
            Held-out objects; they need not have `repeats_` judgments. Where none of them has two
            judgments of an attribute, the internal variance of the training data is taken.
        y : array-like of shape (n,), or str
        sample_weight : array-like of shape (n,), or str, optional
        raters : optional
            As for :meth:`fit`; where they are not known, judgments are taken as independent.

        Returns
        -------
        float
            Unbiased for objects that the model has not seen, so that it may be negative on few.
        """
        return self._holdout(X, y, sample_weight, raters)[1]

    def _holdout(
        self, X: Any, y: Any, sample_weight: Any, raters: Any
    ) -> tuple[JudgmentEstimates, float]:
        source, reader = self._apply(X, y, sample_weight, raters=raters)
        support, model = self.get_support(indices=True), self._model
        held_out = source.reduce(reader.statistics)
        given = _known_variance(self.internal_variance, self._names)[support]
        v, noise = self.estimates_.v[support], self.estimates_.noise_covariance
        noise = None if noise is None else noise[np.ix_(support, support)]
        estimates = held_out_estimates(held_out, given, v, noise, model.names)
        bought = (model.weights, model.intercept, model.repeats)
        loss = holdout_loss(estimates, *bought, self.buy_from)
        return estimates, float(loss)

    @_as_job
    def acquisition_plan(self, X: Any, ids: Any = None, raters: Any = None) -> pd.DataFrame:
        """List the judgments that objects lack of `repeats_`.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
        ids : array-like of shape (n,), or str, optional
            Identifiers of the objects, or the name of their column. By default the index of a
            pandas frame, else the position.
        raters : optional
            As for :meth:`fit`.

        Returns
        -------
        pandas.DataFrame
            Columns ``object, attribute, have, want, more, cost``; one row for each object and
            attribute that lacks some, by object, then by attribute. From the same known raters
            ``object, rater, id, attribute, more, cost``; one row for each judgment that lacks, by
            object, then by rater, with the id of a rater who has judged the object already.
        """
        import pandas as pd

        source, reader = self._apply(X, id=ids if isinstance(ids, str) else None, raters=raters)
        costs, n = self.problem_.costs[self.repeats_ > 0], 0
        plans = []
        for n_rows, plan, own in source.map(partial(reader.plan, self._model, costs)):
            rows = plan["object"]
            plans.append(pd.DataFrame({**plan, "object": rows + n if own is None else own[rows]}))
            n += n_rows
        found = pd.concat(plans, ignore_index=True)
        if ids is None and hasattr(X, "index") and source.kind == "frame":
            ids = X.index
        if ids is not None and not isinstance(ids, str):
            if len(ids) != n:
                raise DataError(f"There are {n} objects but {len(ids)} ids.")
            found["object"] = np.asarray(ids)[found["object"]]
        return found

    # --- the path ---

    @_as_job
    def repeats_at(self, budget: float) -> np.ndarray:
        """Judgments that a smaller budget buys: the greedy steps that it pays for.

        Parameters
        ----------
        budget : float
            At most the estimator's own; more gives the end of the path.

        Returns
        -------
        ndarray of int, shape (d,)
            Before any refinement; see ``path_.repeats_at``.
        """
        check_is_fitted(self)
        return self.path_.repeats_at(budget)

    @_as_job
    def projected_loss(self, repeats: ArrayLike) -> float:
        """Squared loss to be expected with the best weights for any repeats.

        Parameters
        ----------
        repeats : array-like of int, shape (d,)

        Returns
        -------
        float
            By the training data, in squared units of the label.
        """
        check_is_fitted(self)
        return projected_loss(self.problem_, repeats)

    # --- scikit-learn's contract ---

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.repeats_ > 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    # --- input ---

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the attributes; scikit-learn's ``x0, x1, …`` where the data give none."""
        if hasattr(self, "feature_names_in_"):
            return tuple(self.feature_names_in_)
        return tuple(f"x{a}" for a in range(self.n_features_in_))

    def _apply(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        id: str | None = None,
        raters: Any = None,
    ) -> tuple[Source, ObjectReader]:
        """Objects to apply the model to, and what reads their selected attributes."""
        check_is_fitted(self)
        source = open_source(self, _framed(X), y, sample_weight, ignored=self._roles)
        source, how = _with_raters(source, raters)
        own: dict[str, Any] = {"id": id, "raters": how, "buy_from": self.buy_from}
        named, names = hasattr(self, "feature_names_in_"), self._model.names
        available = [c for c in source.schema.names if c not in {*source.taken, id}]
        if source.kind == "parquet" and named:
            columns = self._columns.find(names, available) or ["*"]
            return source, ObjectReader.of(source, columns, **own).named(names)
        exclude = [p for p in self.exclude if any(c == p or fnmatchcase(c, p) for c in available)]
        reader = ObjectReader.of(source, exclude=exclude, **own)
        found = reader.layout.names
        check_columns(self, found if source.named else None, len(found), needed=names)
        if named and source.named:
            return source, reader.named(names)
        return source, reader.taken(self.get_support(indices=True))


def _framed(X: Any) -> Any:
    """Nested lists of judgments as a frame without names; anything else as it is."""
    lists = (list, tuple, np.ndarray)
    of_objects = isinstance(X, lists) and getattr(X, "dtype", np.dtype(object)).kind == "O"
    rows = (row for row in X if isinstance(row, lists)) if of_objects else ()
    if not any(isinstance(cell, lists) for row in rows for cell in row):
        return X
    import pandas as pd

    for i, row in enumerate(X):
        if len(row) != len(X[0]):
            raise DataError(f"Object {i} has {len(row)} attributes, but object 0 has {len(X[0])}.")
    columns = enumerate(zip(*X, strict=True))
    return pd.DataFrame({a: pd.Series(cells, dtype=object) for a, cells in columns})


def _with_raters(source: Source, raters: Any) -> tuple[Source, Raters]:
    """Put ids of raters beside the judgments in memory; return how it is known who judged."""
    if raters is None or isinstance(raters, str):
        how: Any = raters or "auto"
        if how not in get_args(Raters):
            raise SpecError(f"raters is {how!r}; known are {', '.join(get_args(Raters))}, or ids.")
        return source, how
    if source.lazy or source.kind == "parquet":
        raise DataError("raters of files and Dask collections are columns of X, or positions.")
    import pyarrow as pa

    rows = [list(row) for row in raters]
    if len(rows) != sum(partition.n_rows for _, partition in source.pieces):
        raise DataError(f"raters has {len(rows)} rows, but X another number.")
    columns: dict[str, Any] = {OF_ALL: rows}
    if any(isinstance(ids, list | tuple | np.ndarray) for row in rows for ids in row):
        names = ObjectReader.of(source).layout.names
        if {len(row) for row in rows} != {len(names)}:
            raise DataError(f"raters has ids of another number of attributes than {len(names)}.")
        columns = {n + OF_ONE: own for n, own in zip(names, zip(*rows, strict=True), strict=True)}
    pieces, start = [], 0
    for _, partition in source.pieces:
        table, stop = partition.rows.table, start + partition.n_rows
        for name, own in columns.items():
            ids = [[None if r is None else str(r) for r in row] for row in own[start:stop]]
            table = table.append_column(name, pa.array(ids, pa.list_(pa.string())))
        pieces.append(_piece(table, start))
        start = stop
    return replace(source, pieces=pieces, schema=table.schema), "columns"


def _known_variance(given: Variances, names: Sequence[str]) -> np.ndarray:
    """Known internal variances of all attributes, NaN where they are to be estimated."""
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise SpecError(
                f"internal_variance names {unknown[0]!r}, which is not an attribute of the data: "
                f"{', '.join(names[:12])}."
            )
        given = [given.get(name, np.nan) for name in names]
    values = np.asarray(np.nan if given is None else given, dtype=float)
    if values.shape not in ((), (len(names),)):
        raise SpecError(f"There are {len(names)} attributes but {values.size} internal variances.")
    return np.array(np.broadcast_to(values, len(names)))
