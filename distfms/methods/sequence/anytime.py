"""Anytime prediction: the longest prefix that a budget, a deadline or the data so far allow."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from typing import Any

import numpy as np

from distfms.errors import DataError, SpecError, checked_budget
from distfms.methods.frame.contract import FinishedRun, RowStop
from distfms.methods.sequence.evaluate import advised, best_model, steps_of
from distfms.methods.sequence.linear_path import moments_about
from distfms.methods.sequence.problem import LinearModels, Path, PrefixModels
from distfms.methods.sequence.stopping import RowRule, Stopping
from distfms.methods.sequence.trees import TreeModels
from distfms.solve.costs import longest_affordable
from distfms.solve.losses import mean_response
from distfms.stats.comoments import CoMoments

MODELS: dict[str, type[PrefixModels]] = {
    models.kind: models for models in (LinearModels, TreeModels)
}
_ARRAYS = ("spent", "set_spent", "values", "prior")


@dataclass(frozen=True, eq=False)
class AnytimePredictor:
    """Models of the prefixes of a group sequence, and of sets for a budget.

    Models are numbered: 0..K the prefixes, then the B sets.

    Attributes
    ----------
    groups : sequence of str
        Names of the K groups in the order in which they are computed.
    columns : sequence of sequence of int
        Positions of each group's columns among the features.
    feature_names : sequence of str
        All D feature columns.
    target_names : sequence of str
        The P targets (classes for ``softmax``).
    spent : numpy.ndarray of shape (K,)
        Cost of each prefix.
    fitted : sequence of int
        Prefixes that have models, 0 and K among them; others have that of the one before.
    models : LinearModels or TreeModels
        Of these prefixes, then of the sets.
    family : {"gaussian", "logistic", "softmax", "poisson"}
        How the score becomes a prediction, ∇φ of Appendix B of the paper.
    sets : sequence of sequence of int
        Positions of the columns of each set among the features.
    set_spent : numpy.ndarray of shape (B,)
        Cost of each set.
    values : numpy.ndarray of shape (K + 1 + B,)
        What decides between a prefix and sets that a budget affords: what models explain.
    prior : numpy.ndarray of shape (P,) or (1,)
        What weights of classes have added to scores; see `read.prior_of`.
    stopping : Stopping, optional
        Where each row stops, if that was learned.
    """

    groups: Sequence[str]
    columns: Sequence[Sequence[int]]
    feature_names: Sequence[str]
    target_names: Sequence[str]
    spent: np.ndarray
    fitted: Sequence[int]
    models: PrefixModels
    family: str = "gaussian"
    sets: Sequence[Sequence[int]] = ()
    set_spent: np.ndarray = field(default_factory=lambda: np.zeros(0))
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    prior: np.ndarray = field(default_factory=lambda: np.zeros(1))
    stopping: Stopping | None = None

    @classmethod
    def from_path(
        cls,
        path: Path,
        family: str = "gaussian",
        target_names: Sequence[str] | None = None,
        sets: Sequence[Path] = (),
        values: np.ndarray | None = None,
    ) -> AnytimePredictor:
        """Return the predictor of a sequence and of paths for budgets; outputs may have names."""
        models = path.prefix_models().joined([of_set.prefix_models().only([-1]) for of_set in sets])
        scaling = path.scaling
        position = {name: i for i, name in enumerate(scaling.feature_names)}

        def placed(columns: Iterable[str]) -> list[int]:
            return [position[column] for column in columns]

        return cls(
            groups=path.groups,
            columns=[placed(columns) for columns in path.columns],
            feature_names=scaling.feature_names,
            target_names=target_names or scaling.target_names,
            spent=path.spent,
            fitted=path.fitted.tolist(),
            models=models,
            family=family,
            sets=[placed(chain(*of_set.columns)) for of_set in sets],
            set_spent=np.array([of_set.curve_cost[-1] for of_set in sets]),
            values=path.curve_value if values is None else values,
        )

    def model_of(self, number: int) -> int:
        """Return the position of a model among `models`."""
        if number > len(self.spent):
            return len(self.fitted) + number - len(self.spent) - 1
        return bisect_right(self.fitted, number) - 1

    def best(self, budget: float) -> int:
        """Return the number of the best model that a budget buys."""
        number = best_model(self.spent, self.set_spent, self.values, budget)
        return number if number > len(self.spent) else self.fitted[self.model_of(number)]

    def predict(self, number: int, values: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
        """Return predictions (n_rows, P) of a model from the values of at least its columns.

        NaN is a missing value, which the models take as their `gaps` say.
        """
        used = self._used(number)
        block = np.empty((n_rows, len(used)), order="F")  # filled column by column
        for position, column in enumerate(used):
            block[:, position] = values[self.feature_names[column]]
        scores = self.models.score(self.model_of(number), used, block) - self.prior
        return mean_response(self.family, scores)

    def row_rule(self, budget: float | None, stop: RowStop) -> RowRule:
        """Return where each row stops; see `Stopping.rule`."""
        if self.stopping is None:
            raise SpecError(
                "This model does not say where single rows should stop. A job learns it of classes "
                "with `data.folds` of 2 or more; numbers and counts have one prefix for all."
            )
        return self.stopping.rule(budget, **vars(stop))

    def predict_rows(
        self, rule: RowRule, values: Mapping[str, np.ndarray], n_rows: int
    ) -> np.ndarray:
        """Return predictions of rows that stop by a rule, with numbers of groups, and costs."""

        def predict(n_groups: int, rows: np.ndarray) -> np.ndarray:
            read = [self.feature_names[column] for column in self._used(n_groups)]
            return self.predict(n_groups, {name: values[name][rows] for name in read}, len(rows))

        return rule.walk(n_rows, predict, self.models.n_outputs)

    def errors_on(
        self, statistics: CoMoments, feature_names: Sequence[str], model: int
    ) -> dict[str, float]:
        """Errors of a linear regression on rows that only their statistics are known of.

        Parameters
        ----------
        statistics : CoMoments
            Of features, then the targets.
        feature_names : sequence of str
            In any order; columns of categories may be others than those of the predictor.
        model : int
            Its number.

        Returns
        -------
        dict of str to float
            Means over the targets: ``mse``, and ``r2``, which is NaN for a constant target.
        """
        position = {name: i for i, name in enumerate(feature_names)}
        # A level of a category that no row has is 0 in all of them.
        used = [c for c in self._used(model) if self.feature_names[c] in position]
        models = self.models
        assert isinstance(models, LinearModels)
        number = self.model_of(model)
        weights = models.coefficients[number][used]
        intercept = models.intercept[number]
        n_features = len(feature_names)
        n_targets = len(intercept)
        columns = [position[self.feature_names[c]] for c in used]
        columns += range(n_features, n_features + n_targets)
        fill = models.fill[used]
        means = np.concatenate((fill, intercept + fill @ weights))
        moments, _ = moments_about(means, columns, statistics)
        contrast = np.concatenate((-weights, np.eye(n_targets)))
        mse = np.diagonal(contrast.T @ moments @ contrast) / statistics.weight
        variance = statistics.variance()[n_features:]
        r2 = float("nan")
        if np.all(variance > 0):
            r2 = float(1 - np.mean(mse / variance))
        return {"mse": float(np.mean(mse)), "r2": r2}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Numbers of the predictor; with `to_dict` all there is to store."""
        return {name: getattr(self, name) for name in _ARRAYS} | self.models.to_arrays()

    def to_dict(self) -> dict[str, Any]:
        """Names of the predictor, as JSON can hold them."""
        names = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _ARRAYS}
        stopping = names.pop("stopping")
        if stopping is not None:
            names["stopping"] = asdict(stopping)
        return names | {"models": self.models.kind}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], names: Mapping[str, Any]
    ) -> AnytimePredictor:
        """Inverse of `to_arrays` and `to_dict`."""
        content = {f.name: names[f.name] for f in fields(cls) if f.name in names}
        content |= {name: arrays[name] for name in _ARRAYS if name in arrays}
        content["models"] = MODELS[names["models"]].from_arrays(arrays)
        if content.get("stopping") is not None:
            content["stopping"] = Stopping.from_dict(content["stopping"])
        return cls(**content)

    def _used(self, model: int) -> list[int]:
        if model > len(self.spent):
            return list(self.sets[model - len(self.spent) - 1])
        return [c for group in self.columns[:model] for c in group]


def model_for(
    run: FinishedRun, budget: float | None, stop: RowStop | None = None
) -> tuple[AnytimePredictor, int, RowRule | None]:
    """Return a run's predictor, the number of the model that is used at most, and where rows stop.

    `stop` says that each row stops where it needs no more.
    """
    predictor = AnytimePredictor.from_arrays(run.weights, run.model)
    if stop is not None:
        rule = predictor.row_rule(budget, stop)
        return predictor, rule.stopping.stages[rule.last], rule
    number = advised(run.model) if budget is None else predictor.best(budget)
    return predictor, number, None


def columns_of(run: FinishedRun, number: int) -> list[str]:
    """Return the columns that a model reads."""
    return [name for step in steps_of(run.selection, number) for name in step["columns"]]


class AnytimeSession:
    """One prediction in the making: take groups as they come, always have an answer.

    The answer is that of the longest prefix of the sequence all of whose groups are there: each
    prefix has its own best coefficients, and none were fitted for other sets. Groups may come in
    any order; one that is ahead of its turn is kept until the gap before it is closed. The
    prediction is made when a group is taken, so that reading it takes no time.

    Parameters
    ----------
    predictor : AnytimePredictor
    n_samples : int
        Rows predicted together.
    deadline_s : float or None
        Seconds after the start from which on nothing is taken.
    rule : RowRule, optional
        Where rows stop; several of them together, when all do.
    sources : mapping, optional
        What the rows of a batch come from; see `RowForm.sources`.
    """

    def __init__(
        self,
        predictor: AnytimePredictor,
        n_samples: int = 1,
        deadline_s: float | None = None,
        rule: RowRule | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> None:
        self._predictor = predictor
        self._rule = rule
        self._sources = sources or {}
        seconds = checked_budget(deadline_s, "deadline_s")
        self._end = None if seconds is None else time.monotonic() + seconds
        self._columns = dict[str, list[str]]()
        for group, columns in zip(predictor.groups, predictor.columns, strict=True):
            self._columns[group] = [predictor.feature_names[c] for c in columns]
        self._arrived: set[str] = set()
        self._n_samples = n_samples
        self._values: dict[str, np.ndarray] = {}
        self.n_groups = 0
        """Groups behind the present prediction."""
        self.prediction = np.zeros(0)
        """Prediction so far, shape (n,) or (n, P); that of the empty prefix at first."""
        self._update()

    @property
    def spent(self) -> float:
        """Cost of the prefix behind the present prediction."""
        return float(self._predictor.spent[self.n_groups - 1]) if self.n_groups else 0.0

    @property
    def expired(self) -> bool:
        """Whether the deadline is over."""
        return self._end is not None and time.monotonic() >= self._end

    def __repr__(self) -> str:
        return f"<AnytimeSession: {self.n_groups} groups, spent {self.spent:g}>"

    def next_group(self) -> str | None:
        """Return the group that the prediction waits for.

        None when all are there, or it does not pay to go on.
        """
        groups = self._predictor.groups
        rule = self._rule
        if rule is not None and self.n_groups in rule.stopping.stages:
            stage = rule.stopping.stages.index(self.n_groups)
            if not rule.goes(stage, self._predicted).any():
                return None
        return groups[self.n_groups] if self.n_groups < len(groups) else None

    def deliver(self, group: str, values: np.ndarray | Sequence[float] | float) -> bool:
        """Take the values of a group.

        Parameters
        ----------
        group : str
        values : array_like of shape (n, s), (s,) for one row, or a number for one row and column
            The group's columns in the order of the predictor; NaN is a missing value. Splines
            need not be there, but the numbers that they are of.

        Returns
        -------
        bool
            False if the deadline was over and the values were ignored.

        Raises
        ------
        SpecError
            If there is no such group or it was already delivered.
        DataError
            If the values have another shape or are infinite.
        """
        if self.expired:
            return False
        if group not in self._columns:
            raise SpecError(f"{group!r} is not a group of this predictor.")
        if group in self._arrived:
            raise SpecError(f"Group {group!r} was already delivered.")
        names = self._columns[group]
        block = np.asarray(values, dtype=np.float64)
        if block.size != self._n_samples * len(names):
            derived = expanded_numbers(self._sources, dict.fromkeys(names, np.zeros(0)))
            names = [name for name in names if name in self._sources or name not in derived]
        shape = (self._n_samples, len(names))
        has_shape = block.ndim != 2 or block.shape == shape
        if block.size != math.prod(shape) or not has_shape:
            raise DataError(f"Group {group!r} needs values of shape {shape}, not {block.shape}.")
        if np.isinf(block).any():
            raise DataError(f"Group {group!r} has infinite values.")
        by_column = dict(zip(names, block.reshape(shape).T, strict=True))
        if len(names) < len(self._columns[group]):
            by_column |= expanded_numbers(self._sources, by_column)
        self._values |= by_column
        self._arrived.add(group)
        self._update()
        return True

    def run(
        self, compute: Mapping[str, Callable[[], np.ndarray]], *, budget: float | None = None
    ) -> np.ndarray:
        """Compute groups in the order of the sequence until the deadline or the budget.

        Parameters
        ----------
        compute : mapping of str to callable
            For each group a function that returns its values. The run ends at the first group
            without one, because no longer prefix can be completed.
        budget : float, optional
            Cost of the longest prefix to compute.

        Returns
        -------
        ndarray
            The prediction at the end. A group whose computation ends after the deadline does not
            count.
        """
        within = checked_budget(budget, "budget")
        limit = math.inf if within is None else within
        most = longest_affordable(self._predictor.spent, limit)
        while self.n_groups < most and not self.expired:
            group = self.next_group()
            if group is None or group not in compute:
                break
            self.deliver(group, compute[group]())
        return self.prediction

    def _update(self) -> None:
        """Extend the prefix over all groups that are there, and predict."""
        before = self.n_groups
        model = self._predictor
        while self.n_groups < len(model.groups) and model.groups[self.n_groups] in self._arrived:
            self.n_groups += 1
        if self.n_groups == before and before > 0:
            return
        self._predicted = model.predict(self.n_groups, self._values, self._n_samples)
        is_one = self._predicted.shape[1] == 1
        self.prediction = self._predicted[:, 0] if is_one else self._predicted


def expanded_numbers(
    sources: Mapping[str, Any], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the rows of a batch that come from numbers with knots or flags, by their names."""
    rows = dict[str, np.ndarray]()
    for name, source in sources.items():
        if name in values and isinstance(source, Mapping):
            x = values[name]
            if source.get("limits"):
                x = np.clip(x, *source["limits"])
            rows[name] = x
            rows[f"{name} missing"] = np.isnan(x).astype(float)
            for knot in source["knots"]:
                rows[f"{name}>{knot!r}"] = np.maximum(x - knot, 0.0)
    return rows
