"""Feature multi-selection as a scikit-learn estimator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from distfms.data.rows.judgments import detect_layout, read_judgments
from distfms.data.rows.roles import OF_ALL, OF_ONE, resolve_roles
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError, checked_budget
from distfms.estimators.base import JobEstimator
from distfms.estimators.inputs import Given, array_names, column_names, kind_of
from distfms.estimators.parameters import in_words_of_python, plain
from distfms.estimators.predicting import JobRegressor
from distfms.methods.frame.contract import FinishedRun, Job
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.multiselect.model import LinearModel, averages
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.predictor import JudgmentPredictor, loss_on, trained_model
from distfms.methods.multiselect.read import JudgmentSource, judgment_reader
from distfms.methods.multiselect.read_plan import object_column, plan_of
from distfms.solve.buying import BUDGET_TOLERANCE
from distfms.spec import DataSection
from distfms.stats.base import Bundle, merge_tree

if TYPE_CHECKING:
    import pandas as pd


class FeatureMultiSelector(SelectorMixin, JobRegressor, JobEstimator):
    """Decide how many noisy judgments of each attribute to buy, and predict from their averages.

    Raters judge every attribute of an object, and disagree. Predictions may use judgments bought
    for a fixed budget per object. From a few judgments of labelled objects, finds how many to buy
    of each attribute, and the linear model on their averages.

    ``costs`` and ``internal_variance`` may also be one number, or an array with one per attribute.

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
        Value that the algorithm maximises: its estimate of the label's variance explained.
    projected_loss_ : float
        Squared loss that the training data project for `repeats_` with the best weights. The search
        minimised it, so expect a larger loss on new objects, and a much larger one after training
        on few.
    validation_loss_ : float or None
        Cross-validated squared loss: what to expect on new objects; None without `folds`.
    label_variance_ : float
        Loss of predicting the mean.
    status_ : {"budget_spent", "no_positive_gain", "unaffordable"}
        Why the search ended.
    model_ : distfms.runs.serve.Model
        The finished run.
    n_features_in_ : int
        Number of attributes d.
    feature_names_in_ : ndarray of str, shape (d,)
        Names of the attributes, if the data have names.

    Notes
    -----
    ``X`` may be:

    - an array of shape (n, d, k), NaN where there is no judgment; or (n, d), one judgment each,
      which `fit` takes only with `internal_variance`;
    - nested lists, objects × attributes × judgments, of any lengths, None for no judgment;
    - a frame (pandas, polars, Arrow) with columns of lists, numbered columns ``name__1``,
      ``name__2``, …, or columns of numbers (one judgment each);
    - a Dask array or frame of these forms, which is never computed as a whole; make frames with
      lists with Dask's option ``dataframe.convert-string`` off, or Dask turns lists into text;
    - the path of Parquet files with such columns, read partition by partition.

    Labels and weights are arrays or names of columns of `X`; with a path, always names. To predict,
    files and frames need only judgments of the selected attributes. Wrong data raise `DataError`,
    wrong parameters `SpecError`; both are ``ValueError``.

    References
    ----------
    .. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.

    Examples
    --------
    Two raters judge three attributes of 200 objects. The first two attributes matter equally, but
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

    Judgments still to collect for a refit:

    >>> plan = selector.acquisition_plan(X[:2])
    >>> plan[["object", "attribute", "have", "want", "more"]]
       object attribute  have  want  more
    0       0        x1     2     6     4
    1       1        x1     2     6     4
    """

    _method = "multiselect"
    _Options = MultiselectOptions
    _first = ("budget",)
    _defaults: ClassVar[Mapping[str, Any]] = {"baselines": ()}
    _left_out = ("raters", "plan")
    _how: str = "auto"
    costs: Any
    internal_variance: Any
    buy_from: Any

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        raters: Any = None,
    ) -> Self:
        """Select and fit in one pass over the data (two with ``model="refit"``).

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
            Judgments of n objects and d attributes; see the notes of the class.
        y : array-like of shape (n,), or str
            Labels, or the name of their column.
        sample_weight : array-like of shape (n,), or str, optional
            Weights of the objects, at least 0, or the name of their column.
        groups : array-like of shape (n,), or str, optional
            What each object is of, such as a person, or the name of its column: objects of one
            stay in one fold.
        raters : {"auto", "columns", "positions", "ignore"}, or array-like of ids, optional
            Raters, to separate the errors that one rater's judgments share from the attributes. A
            string as in the spec of a job; by default, the columns of ids ``raters`` or
            ``name__raters`` if X has them. For X in memory, the ids themselves, of shape (n, k) for
            all attributes or (n, d, k), None where unknown; nothing is then ``robust``, as X
            of a prediction does not have them.

        Raises
        ------
        DataError, SpecError, ValueError
            If data or parameters cannot be used, for example if an attribute has no object with two
            judgments and no given internal variance.
        """
        X = _as_array(X)
        self._how = how_known(raters)
        self._apart = raters is not None and not isinstance(raters, str)
        beside = self._rater_columns(X, raters)
        return self._fit(X, y, roles={"weight": sample_weight, "id": groups}, beside=beside)

    def _options(
        self, names: Sequence[str], opened: Given, target: Sequence[str]
    ) -> dict[str, Any]:
        not_judged = set(opened.schema.names).difference(names, target)
        excluded = (*plain(list(self.exclude)), *not_judged)
        roles = resolve_roles(opened.schema, target=target, exclude=excluded, judgments=True)
        attributes = detect_layout(opened.schema, roles).names
        section = {**super()._options(names, opened, target), "raters": self._how}
        if self._apart:  # predictions do not know who judged
            section["robust"] = False
        for name in ("costs", "internal_variance"):
            section[name] = _by_name(getattr(self, name), attributes, name)
        return section

    def _rater_columns(self, X: Any, raters: Any) -> dict[str, Any]:
        """Return ids of raters as columns beside the judgments."""
        if raters is None or isinstance(raters, str):
            return {}
        kind = kind_of(X)
        if kind not in ("array", "frame"):
            raise DataError(
                "For files and Dask collections, raters must be columns of X or `positions`."
            )
        rows = [list(row) for row in raters]
        cells = itertools.chain.from_iterable(rows)
        if not any(isinstance(ids, list | tuple | np.ndarray) for ids in cells):
            return {OF_ALL: _lists(rows)}
        names = column_names(X) if kind == "frame" else array_names(X.shape[:2])
        if {len(row) for row in rows} != {len(names)}:
            raise DataError(f"raters must have ids for {len(names)} attributes.")
        columns = zip(*rows, strict=True)
        beside = {}
        for name, ids in zip(names, columns, strict=True):
            beside[name + OF_ONE] = _lists(ids)
        return beside

    def _names_seen(self, names: Sequence[str], job: Job) -> Sequence[str]:
        """Return the attributes that are judged."""
        return job.features

    def _names_of(self, X: Any) -> Sequence[str]:
        """Return the attributes of a frame that judges them."""
        names = column_names(X)
        attributes = set(self._known_columns())
        judged = []
        for name in names:
            base = name if name in attributes else name.rpartition("__")[0]
            if base in attributes:
                judged.append(base)
        return list(dict.fromkeys(judged)) or names

    # --- the finished run ---

    def _read(self, run: FinishedRun) -> None:
        super()._read(run)
        selection = run.selection
        repeats = [selection["repeats"].get(name, 0) for name in self._known_columns()]
        self.repeats_ = np.array(repeats)
        self._model: LinearModel = trained_model(run)
        self.coef_ = np.zeros(len(repeats))
        self.coef_[self.repeats_ > 0] = self._model.weights
        self.intercept_ = self._model.intercept
        self.spent_ = selection["spent"]
        self.objective_ = selection["objective"]
        self.status_ = selection["status"]
        self.projected_loss_ = selection["projected_loss"]
        self.validation_loss_ = run.metrics["chosen"].get("validation", {}).get("projected_loss")
        self.label_variance_ = selection["label_variance"]

    def _known_columns(self) -> list[str]:
        return [attribute["name"] for attribute in self.model_.run.selection["attributes"]]

    def _needed(self, budget: float | None, **stop: Any) -> Sequence[str]:
        return self._model.names

    def repeats_at(self, budget: float | None) -> np.ndarray:
        """Judgments that a smaller budget buys: the greedy steps within it.

        Parameters
        ----------
        budget : float
            At most the estimator's budget, which None stands for; larger values give the end of
            the path.

        Returns
        -------
        ndarray of int, shape (d,)
        """
        check_is_fitted(self)
        within = checked_budget(budget, "budget")
        if within is None:
            return self.repeats_
        selection = self.model_.run.selection
        unspent = min(within, selection["budget"]) * (1.0 + BUDGET_TOLERANCE)
        names = self._known_columns()
        repeats = np.zeros(len(names), dtype=np.int64)
        for step in selection["path"]:
            price = step["cost"] / step["count"]
            n_bought = min(step["count"], int(unspent // price))
            repeats[names.index(step["attribute"])] += n_bought
            unspent -= n_bought * price
            if n_bought < step["count"]:
                break
        return repeats

    # --- applying ---

    def _apply(
        self, X: Any, needed: Sequence[str], beside: Mapping[str, Any] | None = None
    ) -> Given:
        return super()._apply(_as_array(X), needed, beside)

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
        opened, predictor = self._reads(X)
        return opened.stack(partial(_means, predictor, self._model), (len(self._model.names),))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, raters: Any = None) -> float:
        """Share of the label's variance on these objects that `repeats_` judgments explain.

        The objects may hold fewer: the score is ``1 - holdout_loss(X, y) / variance``, unbiased but
        for the 1 that it cannot exceed. To
        score predictions from the judgments at hand, use scikit-learn's
        ``scoring="neg_mean_squared_error"`` or ``"r2"``.

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
            At most 1; negative if the mean predicts better.
        """
        variance, loss = self._held_out(X, y, sample_weight, raters)
        return min(1.0 - loss / variance, 1.0) if variance > 0 else float(loss <= 0)

    def holdout_loss(self, X: Any, y: Any, sample_weight: Any = None, raters: Any = None) -> float:
        """Estimate the squared loss at `repeats_` judgments from held-out objects.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
            Held-out objects; they may have fewer than `repeats_` judgments. If none has two
            judgments of an attribute, uses the internal variance of the training data.
        y : array-like of shape (n,), or str
        sample_weight : array-like of shape (n,), or str, optional
        raters : optional
            As for :meth:`fit`; if unknown, judgments count as independent.

        Returns
        -------
        float
            Unbiased for objects that the model has not seen, so it may be negative on few.
        """
        return self._held_out(X, y, sample_weight, raters)[1]

    def _held_out(self, X: Any, y: Any, sample_weight: Any, raters: Any) -> tuple[float, float]:
        """Return the variance of the label, and the loss."""
        check_is_fitted(self)
        X = _as_array(X)
        if y is None and kind_of(X) == "parquet":
            (y,) = self._target
        beside = self._rater_columns(X, raters)
        with in_words_of_python(self._method), single_threaded_blas():
            opened, named = self._given(X, y, {"weight": sample_weight}, beside, reset=False)
            predictor = self._reader_of(opened, how_known(raters))
            target = tuple(named["target"])
            roles = replace(predictor.roles, target=target, weight=named.get("weight"))
            section = DataSection.model_construct(folds=0)
            source = JudgmentSource(predictor.reader, section, 0, False, predictor.layout, roles)
            statistics = _summed(judgment_reader(source), opened.dataset.partitions)
            names = self._known_columns()
            set_by_name = _by_name(self.internal_variance, names, "internal_variance")
            internal = np.array([set_by_name.get(name, np.nan) for name in self._model.names])
            loss = loss_on(self.model_.run, statistics, internal, self.buy_from)
            variance = float(statistics.means.variance()[-1])
            return variance, loss

    def acquisition_plan(self, X: Any, raters: Any = None) -> pd.DataFrame:
        """List the judgments that objects lack to reach `repeats_`.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
        raters : optional
            As for :meth:`fit`.

        Returns
        -------
        pandas.DataFrame
            Columns ``object, attribute, have, want, more, cost``; one row for each object and
            attribute that lacks some, by object, then by attribute. From the same known raters
            ``object, rater_slot, rater_id, attribute, more, cost``; one row for each missing
            judgment, by object, then by rater, with the id of a rater who has judged the object
            before. Objects are positions or, of a pandas frame, what its index has, by whose name
            the column goes if it has one.
        """
        import pandas as pd

        X = _as_array(X)
        opened, predictor = self._reads(X, how_known(raters), self._rater_columns(X, raters))
        cost_of = {a["name"]: a["cost"] for a in self.model_.run.selection["attributes"]}
        costs = np.array([cost_of[name] for name in self._model.names])
        plans = []
        for partition in opened.dataset.partitions:
            batch = read_judgments(predictor.reader, partition, predictor.layout, predictor.roles)
            rows = np.arange(batch.n_rows)
            repeats = self._model.repeats
            columns = plan_of(batch, rows, repeats, costs, batch.row_ids, self.buy_from)
            plans.append(pd.DataFrame(columns))
        plan = pd.concat(plans, ignore_index=True)
        if not isinstance(X, pd.DataFrame):
            return plan
        index: Any = X.index
        plan["object"] = np.asarray(index)[plan["object"]]
        return plan.rename(columns={"object": object_column(index.name)})

    def _reads(
        self, X: Any, source: Any = "ignore", beside: Mapping[str, Any] | None = None
    ) -> tuple[Given, JudgmentPredictor]:
        """Open objects to apply the model to, and find the columns of its attributes."""
        check_is_fitted(self)
        opened = self._apply(X, self._model.names, beside)
        return opened, self._reader_of(opened, source)

    def _reader_of(self, opened: Given, source: Any) -> JudgmentPredictor:
        predictor: JudgmentPredictor = self.model_.predictor(opened.head)
        learned = predictor.layout
        if source == "ignore" or not learned.names:
            return predictor
        layout = detect_layout(opened.schema, predictor.roles, source, learned.names)
        layout = layout.restricted(learned.names).within(learned.limits)
        layout = replace(layout, left_out=learned.left_out)
        return replace(predictor, layout=layout)

    # --- scikit-learn's contract ---

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self.repeats_ > 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


def _means(predictor: JudgmentPredictor, model: LinearModel, partition: Any) -> np.ndarray:
    """Average the first judgments, shape (n, d); the training mean where there is none."""
    batch = read_judgments(predictor.reader, partition, predictor.layout, predictor.roles)
    columns = [*averages(model, batch.attributes)]
    return np.stack(columns, axis=1) if columns else np.empty((batch.n_rows, 0))


def _summed(reader: SummaryReader, partitions: Sequence[Any]) -> Any:
    if partitions[0].is_lazy:
        from distfms.runs.context import reduce_lazily

        return reduce_lazily(reader, partitions, Bundle.merge, None)["judgments"].train()
    parts: Any = [reader.in_batches(partition)["judgments"] for partition in partitions]
    return merge_tree(parts).train()


def how_known(raters: Any) -> str:
    """Return how it is known who judged: text as options have it, ids as columns."""
    if raters is not None and not isinstance(raters, str):
        return "columns"
    return raters or "auto"


def _lists(rows: Sequence[Any]) -> pa.Array:
    return pa.array([list(map(_id_of, row)) for row in rows], pa.list_(pa.string()))


def _id_of(rater: Any) -> str | None:
    """Return an id as text, the same for 7 and 7.0; None for none."""
    if rater is None or rater != rater:
        return None
    is_whole = isinstance(rater, float | np.floating) and float(rater).is_integer()
    return str(int(rater)) if is_whole else str(rater)


def _as_array(X: Any) -> Any:
    """Return nested lists of judgments as an array (n, d, k); anything else as it is."""
    lists = (list, tuple, np.ndarray)
    if not isinstance(X, lists) or getattr(X, "dtype", np.dtype(object)).kind != "O":
        return X
    rows = [list(row) for row in X if isinstance(row, lists)]
    cells = list(itertools.chain.from_iterable(rows))
    if not any(isinstance(cell, lists) for cell in cells):
        return X
    n_attributes = len(rows[0])
    for i, row in enumerate(rows):
        if len(row) != n_attributes:
            raise DataError(
                f"Object {i} has {len(row)} attributes, but object 0 has {n_attributes}."
            )
    most = max(len(cell or ()) for cell in cells)
    array = np.full((len(rows), n_attributes, max(most, 1)), np.nan)
    for i, row in enumerate(rows):
        for a, cell in enumerate(row):
            try:
                judgments = np.array(cell or (), dtype=float)
                array[i, a, : len(judgments)] = judgments
            except (TypeError, ValueError) as error:
                raise DataError(f"Object {i} holds {cell!r}: judgments are numbers.") from error
    return array


def _by_name(opened: Any, names: Sequence[str], what: str) -> dict[str, float]:
    """Return values by attribute; of one number for all of them, or one for each."""
    value = plain(opened)
    if value is None or isinstance(value, dict):
        return dict(value or {})
    if not isinstance(value, list):
        value = [value] * len(names)
    if len(value) != len(names):
        raise SpecError(f"There are {len(names)} attributes but {len(value)} values of {what}.")
    return {name: v for name, v in zip(names, value, strict=True) if v is None or v == v}
