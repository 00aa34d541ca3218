"""Linear models on averages of judgments: from the statistics, by least squares; predicting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.dataset import ParquetDataset, Partition, PartitionReader
from distfms.data.judgments import JudgmentLayout, detect_layout, read_judgments
from distfms.data.roles import Roles, resolve_roles
from distfms.errors import DataError, SpecError
from distfms.linalg import symmetric_pinv
from distfms.methods.contract import FinishedRun
from distfms.methods.multiselect.greedy import FullState
from distfms.methods.multiselect.objective import (
    Problem,
    SelectionPath,
    check_repeats,
    full_weights,
)
from distfms.stats.comoments import CoMoments
from distfms.stats.ragged import Ragged

#: Directions with at most this share of the largest variance count as linearly dependent.
RANK_RTOL = 1e-10


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Predictor ``intercept + weights @ averages``.

    Attributes
    ----------
    names : tuple of str, length d
        Attributes, in the order in which judgments are given.
    repeats : ndarray of int, shape (d,)
        Judgments to average of each attribute.
    weights : ndarray of shape (d,)
        Units of the label per unit of the attribute; 0 where `repeats` is.
    intercept : float
        Units of the label.
    means : ndarray of shape (d,)
        Training mean of each attribute; stands in for an attribute without judgments.
    """

    names: tuple[str, ...]
    repeats: np.ndarray
    weights: np.ndarray
    intercept: float
    means: np.ndarray


def projected_model(problem: Problem, repeats: ArrayLike) -> LinearModel:
    """Model with the least projected loss, straight from the statistics.

    The weights are M_r⁺ b; the intercept makes the mean prediction the mean label.
    """
    r = check_repeats(repeats, problem.n_attributes)
    weights = full_weights(problem, r)
    intercept = problem.label_mean - float(weights @ problem.means)
    return LinearModel(problem.names, r, weights, intercept, problem.means)


@dataclass(frozen=True, eq=False)
class PathModels:
    """Models of the same attributes, one a row: those after some steps of a path, or one alone.

    Attributes
    ----------
    repeats : ndarray of int, shape (n_models, d)
    weights : ndarray of shape (n_models, d)
    intercepts : ndarray of shape (n_models,)
    objective : ndarray of shape (n_models,)
        Full objective of the repeats, whatever algorithm chose them.
    spent : ndarray of shape (n_models,)
    """

    repeats: np.ndarray
    weights: np.ndarray
    intercepts: np.ndarray
    objective: np.ndarray
    spent: np.ndarray

    @classmethod
    def single(cls, problem: Problem, model: LinearModel) -> Self:
        """Take a model of the problem's attributes for a path of one."""
        return cls(
            repeats=model.repeats[None, :],
            weights=model.weights[None, :],
            intercepts=np.array([model.intercept]),
            objective=np.array([problem.b @ full_weights(problem, model.repeats)]),
            spent=np.array([model.repeats @ problem.costs]),
        )


def path_models(problem: Problem, path: SelectionPath, steps: np.ndarray) -> PathModels:
    """Projected models after some steps of a path, by one pass of rank-one updates.

    Parameters
    ----------
    problem : Problem
        Of the training data; the path may be a baseline's.
    path : SelectionPath
    steps : ndarray of int, shape (n,)
        Ascending, each from 0 (nothing bought) to ``path.n_steps``.

    Notes
    -----
    Between two of the `steps` an attribute's judgments are bought at once. With s the number of
    attributes on the path and n that of `steps`, time O(min(n_steps, n·s)·s²), memory O(n·d).
    """
    used = np.unique(path.attributes)
    weights = np.zeros((steps.size, problem.n_attributes))
    repeats = np.zeros((steps.size, problem.n_attributes), dtype=np.int64)
    objective = np.zeros(steps.size)
    for row, state in enumerate(_follow(problem, path, used, steps)):
        weights[row, used] = state.weights
        repeats[row, used] = state.repeats
        objective[row] = state.objective
    intercepts = problem.label_mean - weights @ problem.means
    return PathModels(repeats, weights, intercepts, objective, np.append(0.0, path.spent)[steps])


def path_objective(problem: Problem, path: SelectionPath, steps: np.ndarray) -> np.ndarray:
    """Full objective after some steps of a path, at least 1, whatever the algorithm maximises."""
    if path.algorithm == "full":
        return path.objective[steps - 1]
    states = _follow(problem, path, np.unique(path.attributes), steps)
    return np.array([state.objective for state in states])


def _follow(
    problem: Problem, path: SelectionPath, used: np.ndarray, steps: np.ndarray
) -> Iterator[FullState]:
    """Buy along a path; yield the state on the attributes used after each of `steps`."""
    state, taken = FullState(problem.take(used)), 0
    attributes = np.searchsorted(used, path.attributes)
    for step in steps.tolist():
        bought = attributes[taken:step]
        counts = np.bincount(bought, weights=path.counts[taken:step])
        # In the order of first purchase: the same for a single step as step by step.
        for attribute in dict.fromkeys(bought.tolist()):
            state.buy(attribute, int(counts[attribute]))
        taken = step
        yield state


@dataclass(frozen=True, eq=False)
class RefitStatistics:
    """Mergeable statistics for least squares on averages of the first r[a] judgments.

    Attributes
    ----------
    comoments : CoMoments
        Over the averages of the selected attributes, in index order, and the label; objects that
        hold fewer than r[a] judgments of any of them are left out.
    n_dropped : int
        Objects left out for that, of those with a positive weight.
    """

    comoments: CoMoments
    n_dropped: int

    def merge(self, other: RefitStatistics) -> RefitStatistics:
        """Return the statistics of both sets of objects."""
        return RefitStatistics(
            self.comoments.merge(other.comoments), self.n_dropped + other.n_dropped
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the statistics as named arrays."""
        return {**self.comoments.to_arrays(), "n_dropped": np.array(self.n_dropped)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of :meth:`to_arrays`."""
        rest = {name: array for name, array in arrays.items() if name != "n_dropped"}
        return cls(CoMoments.from_arrays(rest), int(arrays["n_dropped"]))


def refit_statistics(
    judgments: Sequence[Ragged],
    label: np.ndarray,
    repeats: ArrayLike,
    weight: np.ndarray | None = None,
) -> RefitStatistics:
    """Summarise the averages of the first r[a] judgments of each attribute of some objects."""
    r = np.asarray(repeats)
    support = np.flatnonzero(r > 0)
    complete = np.ones(label.size, dtype=bool)
    for a in support.tolist():
        complete &= judgments[a].counts() >= r[a]
    columns = np.empty((support.size + 1, int(complete.sum())))
    for row, a in enumerate(support.tolist()):
        columns[row] = judgments[a].first(int(r[a])).means()[complete]
    columns[-1] = label[complete]
    kept_weight = None if weight is None else weight[complete]
    comoments = CoMoments.from_block(columns, kept_weight)
    n_objects = label.size if weight is None else int(np.count_nonzero(weight))
    return RefitStatistics(comoments, n_objects - comoments.n_samples)


def refit(
    statistics: RefitStatistics,
    names: Sequence[str],
    repeats: ArrayLike,
    *,
    ridge: float = 0.0,
) -> LinearModel:
    """Least squares on the averages of the first r[a] judgments (step 4 of the paper).

    The ridge is added to the variance of each average. Linearly dependent averages get the
    smallest weights on them standardised. Raises DataError if no object holds enough judgments.
    """
    r, comoments = np.asarray(repeats), statistics.comoments
    support = np.flatnonzero(r > 0)
    if comoments.n_samples == 0:
        raise DataError(
            f"None of the {statistics.n_dropped} objects holds as many judgments of every "
            f"selected attribute as the selection asks for. Use `model: projected`; with "
            f"`plan: true` the run then lists the judgments to collect for a refit."
        )
    covariance = comoments.covariance(pairwise=False)
    varying = np.flatnonzero(~comoments.constant_columns()[:-1])
    gram = covariance[np.ix_(varying, varying)] + ridge * np.eye(varying.size)
    weights, means = np.zeros(len(names)), np.zeros(len(names))
    weights[support[varying]] = symmetric_pinv(gram, RANK_RTOL) @ covariance[varying, -1]
    means[support] = comoments.mean[:-1]
    intercept = float(comoments.mean[-1] - weights @ means)
    return LinearModel(tuple(names), r, weights, intercept, means)


def plain_loss(model: LinearModel, averages: RefitStatistics) -> float | None:
    """Mean squared error over the objects that hold enough judgments; None if none does."""
    comoments = averages.comoments
    if comoments.n_samples == 0:
        return None
    contrast = np.append(-model.weights[model.repeats > 0], 1.0)
    variance = contrast @ comoments.covariance(pairwise=False) @ contrast
    offset = contrast @ comoments.mean - model.intercept
    return float(variance + offset**2)


def predict(model: LinearModel, judgments: Sequence[Ragged]) -> np.ndarray:
    """Predict labels, shape (n,), from the first r[a] judgments of each attribute (at least one).

    The training mean stands in for an attribute without judgments.

    Raises
    ------
    DataError
        A judgment is infinite.
    """
    values = np.full(judgments[0].n_rows, model.intercept)
    for a in np.flatnonzero(model.repeats > 0).tolist():
        column = judgments[a].first(int(model.repeats[a])).means()
        if np.isinf(column).any():
            raise DataError(f"A judgment of attribute {model.names[a]!r} is infinite.")
        values += model.weights[a] * np.where(np.isnan(column), model.means[a], column)
    return values


_NUMBERED = re.compile(r"__[0-9]+$")


@dataclass(frozen=True, eq=False)
class JudgmentPredictor:
    """Picklable function from a partition to its predictions."""

    reader: PartitionReader
    layout: JudgmentLayout
    roles: Roles
    model: LinearModel
    column: str

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""
        return [*self.layout.columns, *([self.roles.id] if self.roles.id else [])]

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), prediction, judgments that were lacking."""
        import pyarrow as pa

        batch = read_judgments(self.reader, partition, self.layout, self.roles)
        values, short = np.full(batch.n_rows, self.model.intercept), np.zeros(batch.n_rows, int)
        if batch.attributes:
            values = predict(self.model, batch.attributes)
            counts = np.array([ragged.counts() for ragged in batch.attributes])
            short = np.maximum(self.model.repeats[:, None] - counts, 0).sum(axis=0)
        if self.roles.id:
            ids = self.reader.read(partition, [self.roles.id]).column(self.roles.id)
        else:
            ids = pa.array(batch.row_ids)
        names = [self.roles.id or "row", self.column, "judgments_lacking"]
        return pa.table([ids, pa.array(values), pa.array(short)], names=names)

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows with fewer judgments than the model asks for."""
        lacking = table.column("judgments_lacking").to_numpy()
        return {"Rows with fewer judgments than the model asks for": int((lacking > 0).sum())}


def make_predictor(
    run: FinishedRun, dataset: ParquetDataset, budget: float | None
) -> JudgmentPredictor:
    """Find a model's attributes in a dataset; see :class:`distfms.methods.contract.Method`."""
    model = LinearModel(
        names=tuple(run.model["attributes"]),
        intercept=float(run.model["intercept"]),
        **{name: run.weights[name] for name in ("repeats", "weights", "means")},
    )
    if budget is not None:
        model = _model_within(run, model, budget)
    id_ = run.model["id"] if run.model["id"] in dataset.schema.names else None
    roles, layout = Roles((), (), id=id_), JudgmentLayout(())
    if model.names:
        columns = TrainedColumns.from_json(run.model).find(model.names, dataset.schema.names)
        roles = resolve_roles(
            dataset.schema, target=None, features=columns, globs=False, id=id_, judgments=True
        )
        layout = detect_layout(dataset.schema, roles).restricted(model.names)
    column = f"predicted_{run.model['target']}"
    return JudgmentPredictor(dataset.reader, layout, roles, model, column)


def _model_within(run: FinishedRun, model: LinearModel, budget: float) -> LinearModel:
    """Return the model of what a smaller budget buys."""
    own = run.selection["budget"]
    if budget > own or "path/attributes" not in run.weights:
        why = (
            "a refit is made for one budget"
            if run.model["kind"] == "refit"
            else (
                f"this run bought for {own:g}"
                if budget > own
                else "a selection that was refined is made for one budget"
            )
        )
        raise SpecError(
            f"This model cannot predict within a budget of {budget:g}: {why}. Run the job again "
            f"with --set multiselect.budget={budget:g}."
        )
    problem = Problem.from_arrays(_below("problem/", run.weights), model.names)
    path = SelectionPath.from_arrays(_below("path/", run.weights), problem)
    bought = path.repeats_at(budget)
    smaller, kept = projected_model(problem, bought), np.flatnonzero(bought)
    return LinearModel(
        tuple(model.names[a] for a in kept.tolist()),
        bought[kept],
        smaller.weights[kept],
        smaller.intercept,
        smaller.means[kept],
    )


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


@dataclass(frozen=True)
class TrainedColumns:
    """What the columns of some attributes were in the training data.

    Attributes
    ----------
    read : mapping of str to sequence of str
        Attribute → its columns; attributes that are unknown here may come in any form.
    left : frozenset of str
        Columns that are named like a judgment of one of the attributes, but were not read: they
        were excluded, or had another role.
    """

    read: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left: frozenset[str] = frozenset()

    @classmethod
    def of(cls, layout: JudgmentLayout, available: Iterable[str]) -> TrainedColumns:
        """Describe the columns of some attributes, of all that are available."""
        read, names = set(layout.columns), set(layout.names)
        named = (column for column in available if _attribute_of(column, names) is not None)
        return cls(
            {attribute.name: attribute.columns for attribute in layout.attributes},
            frozenset(column for column in named if column not in read),
        )

    def to_json(self) -> dict[str, Any]:
        """Entries of ``model.json``."""
        return {
            "columns": {name: list(columns) for name, columns in self.read.items()},
            "columns_left": sorted(self.left),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainedColumns:
        """Inverse of :meth:`to_json`; a model that does not say reads what it finds."""
        return cls(content.get("columns", {}), frozenset(content.get("columns_left", ())))

    def find(self, names: Sequence[str], available: Iterable[str]) -> list[str]:
        """Find the columns of some attributes in other data, in the order of the data.

        Columns that training left out are left out here too. An attribute may come in another
        form than in training, and with more or fewer numbered columns; where both forms are there,
        that of training counts.
        """
        wanted = set(names)
        found: dict[str, list[str]] = {name: [] for name in names}
        for column in available:
            attribute = None if column in self.left else _attribute_of(column, wanted)
            if attribute is not None:
                found[attribute].append(column)
        chosen = {c for name, columns in found.items() for c in self._of_one_form(name, columns)}
        lacking = [name for name, columns in found.items() if not columns]
        if lacking:
            left = sorted(c for c in self.left if _attribute_of(c, set(lacking)) is not None)
            hint = f" ({', '.join(left)} was left out in training, too.)" if left else ""
            raise DataError(
                f"The data hold no judgments of {', '.join(map(repr, lacking))}, which the model "
                f"asks for.{hint}"
            )
        return [column for columns in found.values() for column in columns if column in chosen]

    def _of_one_form(self, name: str, columns: Sequence[str]) -> Sequence[str]:
        """Leave out columns of another form than in training, where both are there."""
        trained = self.read.get(name)
        if name not in columns or len(columns) == 1 or not trained:
            return columns
        if list(trained) == [name]:
            return [name]
        return [column for column in columns if column != name]


def _attribute_of(column: str, names: set[str]) -> str | None:
    """Name the attribute that a column would hold judgments of; None if it is none of these."""
    if column in names:
        return column
    base = _NUMBERED.sub("", column)
    return base if base in names else None
