"""The selection problem on statistics alone, and the paths that searches find in it.

With standardised columns, C = XᵀX/n + λI and b = XᵀY/n, groups S have the model w = C_S⁻¹ b_S and
explain F(S) = ½ b_Sᵀ C_S⁻¹ b_S.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from distfms.errors import DataError
from distfms.solve.costs import GroupCosts, longest_affordable
from distfms.solve.forward import ForwardProblem
from distfms.solve.gram import standardised_gram
from distfms.stats.base import Fields
from distfms.stats.comoments import CoMoments

#: A fold, or two, whose rows a model does not learn from; −1 for none.
LeftOut = int | tuple[int, int]

#: Names in a note.
_NAMES_SAID = 12


@dataclass(frozen=True)
class FeatureGroups:
    """A partition of feature columns into named groups, by ascending positions.

    A group's position is its index: ties in a selection go to the lowest.
    """

    names: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    def restrict(self, kept: Sequence[int]) -> tuple[FeatureGroups, tuple[int, ...]]:
        """Keep a subset of the columns, renumbered; groups left empty disappear."""
        position = {column: new for new, column in enumerate(kept)}
        names = []
        columns = []
        surviving = []
        for index, group in enumerate(self.columns):
            remaining = tuple(position[column] for column in group if column in position)
            if remaining:
                surviving.append(index)
                names.append(self.names[index])
                columns.append(remaining)
        return FeatureGroups(tuple(names), tuple(columns)), tuple(surviving)


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns of the data became columns of the problem.

    Attributes
    ----------
    feature_names, target_names : tuple of str
        The D feature columns as given, constant ones included, and the P target columns.
    kept : numpy.ndarray of int, shape (d,)
        Positions among the D features of the columns that are not constant.
    mean, scale : numpy.ndarray of shape (D,)
        Training mean and standard deviation; missing values count as the mean.
    target_mean, target_scale : numpy.ndarray of shape (P,)
    """

    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    kept: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    target_mean: np.ndarray
    target_scale: np.ndarray

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of the constant columns, which no selection sees."""
        kept = set(self.kept.tolist())
        return tuple(name for i, name in enumerate(self.feature_names) if i not in kept)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceOutline:
    """A selection problem without its matrices, which may be too large for one process.

    `groups` partition the d columns that are not constant, `dropped_groups` have no other column.
    """

    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    scaling: Scaling
    dropped_groups: tuple[str, ...] = ()

    @property
    def outline(self) -> SequenceOutline:
        """The problem without its matrices."""
        content = {field.name: getattr(self, field.name) for field in fields(SequenceOutline)}
        return SequenceOutline(**content)

    def notes(self) -> list[str]:
        """Return what of the problem itself a reader of the result should know."""
        kinds = {self.scaling.dropped: "constant columns"}
        kinds.setdefault(self.dropped_groups, "groups of constant columns")
        return [_note_left_out(kind, names) for names, kind in kinds.items() if names]


def _note_left_out(kind: str, names: Sequence[str]) -> str:
    """Say what was left out; ``constant`` in ``selection.json`` has all names of columns."""
    n_more = len(names) - _NAMES_SAID
    if n_more <= 0:
        return f"{kind.capitalize()} left out: {', '.join(names)}."
    listed = ", ".join(names[:_NAMES_SAID])
    return f"{len(names)} {kind} left out: {listed} and {n_more} more."


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceProblem(SequenceOutline):
    """Groups to put in order, on standardised statistics.

    `gram` (d, d) is XᵀX/n, without the ridge, `target` (d, P) is XᵀY/n.
    """

    gram: np.ndarray
    target: np.ndarray

    @property
    def n_targets(self) -> int:
        """Number of columns of `target`."""
        return self.target.shape[1]

    @property
    def forward(self) -> ForwardProblem:
        """The problem as `solve.forward` takes it."""
        return ForwardProblem(
            gram=self.gram,
            target=self.target,
            groups=self.groups.columns,
            costs=self.costs,
            ridge=self.ridge,
            variance=float(self.n_targets),
        )


def problem_from_comoments(statistics: CoMoments, **posed: Any) -> SequenceProblem:
    """Standardise co-moments of training rows, D features and then P targets, into a problem.

    `posed` is what `outline_from_comoments` takes. Missing values count as the mean of their
    column; what leaves nothing to select is a DataError.
    """
    outline = outline_from_comoments(statistics, **posed)
    scaling = outline.scaling
    kept = scaling.kept
    scale = scaling.scale[kept]
    gram = standardised_gram(statistics.comoment, statistics.weight, kept, scale)
    with_targets = statistics.comoment[kept, len(scaling.feature_names) :]
    target = np.asarray(with_targets) / statistics.weight
    target /= np.outer(scale, scaling.target_scale)
    return SequenceProblem(gram=gram, target=np.ascontiguousarray(target), **vars(outline))


def outline_from_comoments(
    statistics: CoMoments,
    *,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    groups: FeatureGroups,
    costs: GroupCosts,
    ridge: float = 0.0,
    least_scale: np.ndarray | None = None,
) -> SequenceOutline:
    """Find the outline of the problem of co-moments; see `problem_from_comoments`.

    A column that deviates by less than its `least_scale` (D,) counts as constant.
    """
    if not statistics.weight > 0:
        raise DataError("There are no training rows to select on.")
    mean = np.asarray(statistics.mean, dtype=np.float64)
    variance = np.diagonal(statistics.comoment) / statistics.weight
    constant = statistics.constant_columns()
    n = len(feature_names)
    require_varying_targets(constant[n:], target_names)
    scale = np.sqrt(np.clip(variance, 0.0, None))
    is_constant = constant[:n]
    if least_scale is not None:
        is_constant = is_constant | (scale[:n] < least_scale)
    kept = np.flatnonzero(~is_constant)
    if not len(kept):
        raise DataError("Every feature column is constant: there is nothing to select from.")
    kept_groups, surviving = groups.restrict(kept.tolist())
    dropped = sorted(set(range(len(groups))) - set(surviving))
    return SequenceOutline(
        groups=kept_groups,
        costs=costs.take(surviving),
        ridge=float(ridge),
        scaling=Scaling(
            tuple(feature_names), tuple(target_names), kept, mean[:n], scale[:n], mean[n:],
            scale[n:],
        ),
        dropped_groups=tuple(groups.names[index] for index in dropped),
    )  # fmt: skip


def require_varying_targets(constant: np.ndarray, names: Sequence[str]) -> None:
    """Raise `DataError` if a target is constant."""
    if constant.any():
        listed = [name for name, c in zip(names, constant, strict=True) if c]
        raise DataError(
            f"Target {', '.join(map(repr, listed))} is constant in the rows to train on: there is "
            "nothing to explain. Check `data.target`."
        )


# --- models of prefixes, and paths ---------------------------------------------------------------

#: Number of groups up to which every prefix is one, and what each is multiplied by for the next.
_EACH, _STEP = 10, 1.125
#: Most prefixes where fits are expensive.
_FEW = 12


@dataclass(frozen=True)
class Ladder:
    """Prefixes with models of their own; `to_end`, the whole sequence is always one of them.

    `prefixes` are numbers of groups, ``auto``: 1 to 12, 14, 16, 18, 20, 22, …, each 1.125 times
    the one before; or ``few``: all of 12, of more about ten that grow by the same factor, and what
    each of `budgets` affords. With `costs` they are what each of these affords.
    """

    prefixes: Literal["auto", "few"] | tuple[int, ...] = "auto"
    costs: tuple[float, ...] | None = None
    budgets: tuple[float, ...] = ()
    to_end: bool = True

    def ends_at(self, length: int, n_groups: int, spent: float, cost: float) -> bool:
        """Return whether a prefix of so many groups, with its cost and that of the next, is one."""
        if self.costs is None and length in self.numbers(n_groups):
            return True
        budgets = self.budgets if self.prefixes == "few" else self.costs
        limits = np.array(budgets or ()) * (1 + 1e-12)
        ends = (limits >= spent) & (limits < spent + cost)
        return bool(ends.any())

    def of_path(self, spent: np.ndarray) -> list[int]:
        """Return the numbers of groups of the prefixes of a sequence, from their costs (K,)."""
        n_groups = len(spent)
        next_costs = np.diff(spent, append=np.inf)
        lengths = []
        for length, (total, cost) in enumerate(zip(spent, next_costs, strict=True), 1):
            is_end = self.to_end and length == n_groups
            if is_end or self.ends_at(length, n_groups, total, cost):
                lengths.append(length)
        return lengths

    def numbers(self, n_groups: int) -> list[int]:
        """Return the numbers of groups, of so many in all."""
        if self.prefixes == "few" and n_groups > _FEW:
            rungs = np.geomspace(1, n_groups, _FEW).round()
            return np.unique(rungs.astype(int)).tolist()
        if self.prefixes == "few":
            return list(range(1, n_groups + 1))
        if not isinstance(self.prefixes, str):
            return sorted({n for n in self.prefixes if n < n_groups} | {n_groups})
        numbers = []
        rung = 1
        while rung < n_groups:
            numbers.append(rung)
            rung = rung + 1 if rung < _EACH else round(_STEP * rung)
        return [*numbers, n_groups]


class PrefixModels(Protocol):
    """Models of some prefixes of one sequence, M of them, the first that of no group.

    What they return are scores: what the family's mean response makes a prediction of.
    """

    kind: ClassVar[str]
    #: What missing values are taken for.
    gaps: ClassVar[str]

    def __len__(self) -> int: ...

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row."""

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the scores (n, M, P) of rows by all models, from all their features (D, n)."""

    def score(self, number: int, columns: Sequence[int], values: np.ndarray) -> np.ndarray:
        """Return the scores (n, P) by one model, from values (n, u) of the columns it reads."""

    def only(self, numbers: Sequence[int] | np.ndarray) -> Self:
        """Return some of the models."""

    def joined(self, others: Sequence[Any]) -> Self:
        """Return these models and then those of others of the same data."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return all there is to store, as named arrays."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of `to_arrays`."""


@dataclass(frozen=True, eq=False)
class LinearModels(Fields):
    """Linear models; a missing value is taken for the training mean.

    Attributes
    ----------
    coefficients : numpy.ndarray of shape (M, D, P)
        In original units.
    intercept : numpy.ndarray of shape (M, P)
    fill : numpy.ndarray of shape (D,)
        The training means.
    """

    kind: ClassVar[str] = "linear"
    gaps: ClassVar[str] = "replaced with the training mean"
    coefficients: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray

    def __len__(self) -> int:
        return len(self.intercept)

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row."""
        return int(self.intercept.shape[1])

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the scores (n, M, P) of rows, from their features (D, n)."""
        n_models, n_features, n_outputs = self.coefficients.shape
        flat = self.coefficients.transpose(1, 0, 2).reshape(n_features, -1)
        filled = np.where(np.isnan(features), self.fill[:, np.newaxis], features)
        return np.asarray((filled.T @ flat).reshape(-1, n_models, n_outputs) + self.intercept)

    def score(self, number: int, columns: Sequence[int], values: np.ndarray) -> np.ndarray:
        """Return the scores (n, P) by one model, from values (n, u) of the columns it reads."""
        read = list(columns)
        is_missing = np.isnan(values)
        if is_missing.any():
            values = np.where(is_missing, self.fill[read], values)
        return np.asarray(values @ self.coefficients[number][read] + self.intercept[number])

    def only(self, numbers: Sequence[int] | np.ndarray) -> LinearModels:
        """Return some of the models."""
        return LinearModels(self.coefficients[numbers], self.intercept[numbers], self.fill)

    def joined(self, others: Sequence[LinearModels]) -> LinearModels:
        """Return these models and then those of others of the same data."""
        everything = (self, *others)
        coefficients = np.concatenate([models.coefficients for models in everything])
        intercept = np.concatenate([models.intercept for models in everything])
        return LinearModels(coefficients, intercept, self.fill)


@dataclass(frozen=True, eq=False, kw_only=True)
class Path(ABC):
    """Groups in the order in which to compute them, K of them.

    Attributes
    ----------
    outline : SequenceOutline
        The problem that it answers.
    order : numpy.ndarray of int, shape (K,)
        Group indices of the problem.
    cost : numpy.ndarray of shape (K,)
        Cost of each step, given what shared costs were paid before.
    notes : tuple of str
        What a reader of the result should know.
    n_candidates : int
        Values of groups computed by the steps that chose, those included that doubling does not
        allow; 0 for a given or random order.
    refit_at : numpy.ndarray of int, shape (R,), optional
        Prefixes with models of their own, the last among them; by default all of them.
    """

    outline: SequenceOutline
    order: np.ndarray
    cost: np.ndarray
    notes: Sequence[str] = ()
    n_candidates: int = 0
    refit_at: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.order)

    @property
    def scaling(self) -> Scaling:
        """The way back to original units."""
        return self.outline.scaling

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(self.outline.groups.names[g] for g in self.order)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Names of the columns of each group, constant ones left out."""
        scaling = self.scaling
        names = [scaling.feature_names[i] for i in scaling.kept]
        by_group = []
        for group in self.order:
            columns = self.outline.groups.columns[group]
            by_group.append(tuple(names[column] for column in columns))
        return tuple(by_group)

    @property
    def spent(self) -> np.ndarray:
        """Cost of the prefixes 1..K."""
        return np.cumsum(self.cost)

    @property
    def curve_cost(self) -> np.ndarray:
        """Cost of the prefixes 0..K, starting at 0."""
        return np.concatenate(([0.0], self.spent))

    @property
    def fitted(self) -> np.ndarray:
        """Prefixes with models of their own, 0 and K among them; others have that before them."""
        return np.arange(len(self) + 1) if self.refit_at is None else np.append(0, self.refit_at)

    def fitted_within(self, n_groups: int) -> int:
        """Return the longest of these prefixes that has no more groups."""
        return int(self.fitted[np.searchsorted(self.fitted, n_groups, side="right") - 1])

    def of_prefixes(self, known: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the values of the prefixes 0..K, from those of some, 0 among them."""
        return np.asarray(values[np.searchsorted(known, np.arange(len(self) + 1), "right") - 1])

    @property
    @abstractmethod
    def curve_value(self) -> np.ndarray:
        """Share explained on the training rows by the prefixes 0..K, starting at 0."""

    @abstractmethod
    def prefix_models(self) -> PrefixModels:
        """Return the models of the `fitted` prefixes."""

    def models_at(self, prefixes: Sequence[int] | np.ndarray) -> PrefixModels:
        """Return the models that some prefixes use."""
        return self.prefix_models().only(np.searchsorted(self.fitted, prefixes, "right") - 1)

    def step_details(self) -> dict[str, np.ndarray]:
        """Return further numbers of each step, each of shape (K,), for ``selection.json``."""
        return {}

    def affordable(self, budget: float) -> int:
        """Count the groups of the longest prefix that costs at most `budget`."""
        return longest_affordable(self.spent, budget)
