"""The selection problem on statistics alone, and the paths that searches find in it.

With standardised columns, C = XᵀX/n + λI and b = XᵀY/n, groups S have the model w = C_S⁻¹ b_S and
explain F(S) = ½ b_Sᵀ C_S⁻¹ b_S. A path keeps the Cholesky factor C_S = UᵀU and r = U⁻ᵀ b, of which
corners belong to its prefixes: F is half the running sum of r². On other rows with moments M and
c their squared error is T − 2 Σ r∘q + rᵀAr, with A = U⁻ᵀ M U⁻¹ and q = U⁻ᵀ c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from distfms.errors import DataError, SpecError
from distfms.stats.comoments import CoMoments


@dataclass(frozen=True)
class FeatureGroups:
    """A partition of feature columns into named groups.

    Attributes
    ----------
    names : tuple of str
        Names of the J groups, all different. The position of a group here is its index: ties
        in a selection go to the lowest.
    columns : tuple of tuple of int
        Positions of each group's columns, ascending; every column is in exactly one group.
    """

    names: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_columns(self) -> int:
        """Number of columns over all groups."""
        return sum(len(columns) for columns in self.columns)

    def restrict(self, kept: Sequence[int]) -> tuple[FeatureGroups, tuple[int, ...]]:
        """Keep a subset of the columns, renumbered; groups left empty disappear."""
        position = {column: new for new, column in enumerate(kept)}
        columns = [tuple(position[c] for c in group if c in position) for group in self.columns]
        surviving = tuple(index for index, group in enumerate(columns) if group)
        groups = FeatureGroups(
            tuple(self.names[i] for i in surviving), tuple(columns[i] for i in surviving)
        )
        return groups, surviving


@dataclass(frozen=True)
class SharedCost:
    """A cost that the first computed group of a set pays for all of the set.

    Attributes
    ----------
    name : str
        What is paid for (``blood sample``).
    groups : tuple of int
        Indices of the groups that need it.
    cost : float
        At least 0, in the unit of the groups' own costs.
    """

    name: str
    groups: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class GroupCosts:
    """Costs of J groups, given what has been paid already.

    The cost of g at S is own(g) plus every shared cost that g needs and no group of S needed.

    Attributes
    ----------
    own : numpy.ndarray of shape (J,)
        What a group costs by itself, at least 0.
    shared : tuple of SharedCost
        Costs paid once by the first group that needs them.
    """

    own: np.ndarray
    shared: tuple[SharedCost, ...] = ()

    @cached_property
    def _needs(self) -> np.ndarray:
        """Which group (row) needs which shared cost (column), as 0 and 1."""
        needs = np.zeros((len(self.own), len(self.shared)))
        for column, item in enumerate(self.shared):
            needs[list(item.groups), column] = 1.0
        return needs

    @cached_property
    def _shared_costs(self) -> np.ndarray:
        return np.array([item.cost for item in self.shared], dtype=np.float64)

    @property
    def alone(self) -> np.ndarray:
        """Cost of each group when it is the first, shape (J,)."""
        return self.marginal(())

    def marginal(self, chosen: Sequence[int]) -> np.ndarray:
        """Cost of each group once `chosen` are computed, shape (J,)."""
        if not self.shared:
            return self.own
        unpaid = ~self._needs[list(chosen)].any(axis=0)
        return self.own + self._needs @ (self._shared_costs * unpaid)

    def of_order(self, order: Sequence[int]) -> np.ndarray:
        """Cost of each step when groups are computed in this order, shape (len(order),)."""
        steps = [self.marginal(order[:step])[group] for step, group in enumerate(order)]
        return np.array(steps, dtype=np.float64)

    def take(self, groups: Sequence[int]) -> GroupCosts:
        """Costs of some of the groups, renumbered; sets left without a group disappear."""
        position = {group: new for new, group in enumerate(groups)}
        shared = (
            SharedCost(s.name, tuple(position[g] for g in s.groups if g in position), s.cost)
            for s in self.shared
        )
        return GroupCosts(self.own[list(groups)], tuple(s for s in shared if s.groups))


@dataclass(frozen=True, eq=False)
class Scaling:
    """How columns of the data became columns of the problem.

    Attributes
    ----------
    feature_names : tuple of str
        The D feature columns as given, constant ones included.
    target_names : tuple of str
        The P target columns.
    feature_columns, target_columns : tuple of int
        Where they are in the co-moments.
    kept : numpy.ndarray of int, shape (d,)
        Positions among the D features of the columns that are not constant.
    mean, scale : numpy.ndarray of shape (D,)
        Training mean and standard deviation; missing values count as the mean.
    target_mean, target_scale : numpy.ndarray of shape (P,)
        The same of the targets.
    """

    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    feature_columns: tuple[int, ...]
    target_columns: tuple[int, ...]
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

    Attributes
    ----------
    groups : FeatureGroups
        Partition of the d columns that are not constant into J groups.
    costs : GroupCosts
        Costs of the J groups.
    ridge : float
        λ ≥ 0.
    scaling : Scaling
        The way back to original units.
    dropped_groups : tuple of str
        Groups all of whose columns are constant; they are in no sequence.
    n_samples : int
        Rows behind the statistics.
    """

    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    scaling: Scaling
    dropped_groups: tuple[str, ...] = ()
    n_samples: int = 0

    @property
    def n_targets(self) -> int:
        """Number of targets P; also YᵀY/n summed over them, as they are standardised."""
        return len(self.scaling.target_names)

    def columns_of(self, groups: Iterable[int]) -> tuple[tuple[str, ...], ...]:
        """Names of the columns of some groups, constant ones left out."""
        names = [self.scaling.feature_names[i] for i in self.scaling.kept]
        return tuple(tuple(names[c] for c in self.groups.columns[g]) for g in groups)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceProblem(SequenceOutline):
    """Groups to put in order, on standardised statistics.

    Columns have zero mean and unit variance; C = `gram` + `ridge` I.

    Attributes
    ----------
    gram : numpy.ndarray of shape (d, d)
        XᵀX/n, without the ridge.
    target : numpy.ndarray of shape (d, P)
        b = XᵀY/n.
    """

    gram: np.ndarray
    target: np.ndarray

    @property
    def outline(self) -> SequenceOutline:
        """The problem without its matrices."""
        own = {member.name: getattr(self, member.name) for member in fields(SequenceOutline)}
        return SequenceOutline(**own)


def problem_from_comoments(
    statistics: CoMoments,
    *,
    features: Sequence[int],
    targets: Sequence[int],
    feature_names: Sequence[str],
    target_names: Sequence[str],
    groups: FeatureGroups,
    costs: GroupCosts | None = None,
    ridge: float = 0.0,
) -> SequenceProblem:
    """Standardise co-moments into a selection problem.

    Missing values count as the mean of their column (mean imputation from the same pass).

    Parameters
    ----------
    statistics : CoMoments
        Of the training rows, features and targets together.
    features, targets : sequence of int
        Their positions in `statistics`: D and P of them.
    feature_names, target_names : sequence of str
        Their names.
    groups : FeatureGroups
        Partition of 0..D-1, positions within `features`.
    costs : GroupCosts, optional
        Default: every group costs 1.
    ridge : float
        λ ≥ 0, in units of the standardised columns.

    Returns
    -------
    SequenceProblem

    Raises
    ------
    SpecError
        If the ridge is negative or the groups do not partition the features.
    DataError
        If there are no rows, a target is constant or missing in some rows, or every feature is
        constant.
    """
    _check(groups, len(features), ridge)
    if not statistics.weight > 0:
        raise DataError("There are no training rows to select on.")
    check_targets_observed(statistics, targets, target_names)
    columns = [*features, *targets]
    covariance = np.asarray(statistics.covariance(pairwise=False))[np.ix_(columns, columns)]
    outline = outline_from_columns(
        np.asarray(statistics.mean, dtype=np.float64)[columns],
        np.diagonal(covariance),
        statistics.constant_columns()[columns],
        feature_names=feature_names,
        target_names=target_names,
        groups=groups,
        costs=costs,
        ridge=ridge,
        n_samples=int(statistics.n_samples),
    )
    scaling = replace(
        outline.scaling,
        feature_columns=tuple(int(c) for c in features),
        target_columns=tuple(int(c) for c in targets),
    )
    kept, scale = scaling.kept, scaling.scale[scaling.kept]
    gram = covariance[np.ix_(kept, kept)] / np.outer(scale, scale)
    np.fill_diagonal(gram, 1.0)
    target = covariance[kept, len(features) :] / np.outer(scale, scaling.target_scale)
    known = {**vars(outline), "scaling": scaling}
    return SequenceProblem(gram=gram, target=np.ascontiguousarray(target), **known)


def outline_from_columns(
    mean: np.ndarray,
    variance: np.ndarray,
    constant: np.ndarray,
    *,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    groups: FeatureGroups,
    costs: GroupCosts | None = None,
    ridge: float = 0.0,
    n_samples: int = 0,
) -> SequenceOutline:
    """Find the outline of a problem from what is known of single columns."""
    n, n_targets = len(feature_names), len(target_names)
    _check(groups, n, ridge)
    require_varying_targets(constant[n:], target_names)
    kept = np.flatnonzero(~constant[:n])
    if not len(kept):
        raise DataError("Every feature column is constant: there is nothing to select from.")
    scale = np.sqrt(np.clip(variance, 0.0, None))
    kept_groups, surviving = groups.restrict(kept.tolist())
    all_costs = costs if costs is not None else GroupCosts(np.ones(len(groups)))
    known = set(surviving)
    return SequenceOutline(
        groups=kept_groups,
        costs=all_costs.take(surviving),
        ridge=float(ridge),
        scaling=Scaling(
            feature_names=tuple(feature_names),
            target_names=tuple(target_names),
            feature_columns=tuple(range(n)),
            target_columns=tuple(range(n, n + n_targets)),
            kept=kept,
            mean=mean[:n],
            scale=scale[:n],
            target_mean=mean[n:],
            target_scale=scale[n:],
        ),
        dropped_groups=tuple(name for index, name in enumerate(groups.names) if index not in known),
        n_samples=n_samples,
    )


def _check(groups: FeatureGroups, n_features: int, ridge: float) -> None:
    """Refuse what cannot be a selection problem."""
    if not (np.isfinite(ridge) and ridge >= 0):
        raise SpecError(f"ridge is {ridge!r}; it must be finite and at least 0.")
    if sorted(c for group in groups.columns for c in group) != list(range(n_features)):
        raise SpecError(f"The groups do not partition the {n_features} feature columns.")


def require_varying_targets(constant: np.ndarray, names: Sequence[str]) -> None:
    """Raise `DataError` if a target is constant."""
    if constant.any():
        listed = [name for name, c in zip(names, constant, strict=True) if c]
        raise DataError(
            f"Target {', '.join(map(repr, listed))} is constant in the rows to train on: there is "
            "nothing to explain. Check `data.target`."
        )


def check_targets_observed(
    statistics: CoMoments, targets: Sequence[int], names: Sequence[str]
) -> None:
    """Raise `DataError` if a target has missing values: an imputed label is no label."""
    if statistics.pair_weight is None:
        return
    observed = np.asarray(statistics.observed_weight)
    for position, name in zip(targets, names, strict=True):
        if observed[position] < statistics.weight * (1 - 1e-12):
            raise DataError(
                f"Target {name!r} has missing values; drop those rows (data.missing: drop)."
            )


@dataclass(frozen=True, eq=False)
class PrefixModels:
    """Linear models of the prefixes 0..K of a sequence, in original units.

    Attributes
    ----------
    coefficients : numpy.ndarray of shape (K + 1, D, P)
        Zero for groups not in the prefix, constant columns, and columns that depend linearly on
        earlier ones. Row 0 is the empty prefix.
    intercept : numpy.ndarray of shape (K + 1, P)
        For row 0 the mean of the targets.
    """

    coefficients: np.ndarray
    intercept: np.ndarray


@dataclass(frozen=True, eq=False)
class HeldOutCurve:
    """Errors of every prefix 0..K on held-out rows.

    Attributes
    ----------
    mse : numpy.ndarray of shape (K + 1, P)
        Mean squared error in squared units of the targets.
    explained_variance : numpy.ndarray of shape (K + 1,)
        1 − mse / (mse of the empty prefix, which predicts the training mean); mean over targets.
    r2 : numpy.ndarray of shape (K + 1,)
        1 − mse / (variance of the held-out target); mean over targets. NaN where a held-out
        target does not vary.
    """

    mse: np.ndarray
    explained_variance: np.ndarray
    r2: np.ndarray


@dataclass(frozen=True, eq=False)
class SequencePath:
    """Groups in the order in which to compute them, K of them.

    Attributes
    ----------
    order : numpy.ndarray of int, shape (K,)
        Group indices of the problem.
    groups : tuple of str
        Their names.
    columns : tuple of tuple of str
        Their columns, constant ones left out.
    cost : numpy.ndarray of shape (K,)
        Cost of each step, given what shared costs were paid before.
    gain : numpy.ndarray of shape (K,)
        Growth of F = ½ b_Sᵀ C_S⁻¹ b_S.
    ranks : numpy.ndarray of int, shape (K,)
        Linearly independent columns of each prefix.
    doubling_capable : bool
        False if a doubling run had to exceed its cap (Definition 4.2). True otherwise.
    notes : tuple of str
        What a reader of the result should know.
    scaling : Scaling
        The way back to original units.
    support : numpy.ndarray of int, shape (r,)
        Columns of the problem that entered, in order.
    upper : numpy.ndarray of shape (r, r)
        Upper Cholesky factor of C at `support`.
    response : numpy.ndarray of shape (r, P)
        U⁻ᵀ b at `support`.
    n_candidates : int
        Values of groups computed by the steps that chose, those included that doubling does not
        allow; 0 for a given or random order.
    """

    order: np.ndarray
    groups: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    cost: np.ndarray
    gain: np.ndarray
    ranks: np.ndarray
    doubling_capable: bool
    notes: tuple[str, ...]
    scaling: Scaling
    support: np.ndarray
    upper: np.ndarray
    response: np.ndarray
    n_candidates: int = 0

    def __len__(self) -> int:
        return len(self.order)

    @property
    def spent(self) -> np.ndarray:
        """Cost of the prefixes 1..K."""
        return np.cumsum(self.cost)

    @property
    def objective(self) -> np.ndarray:
        """F after each step, shape (K,); at most P / 2."""
        return np.cumsum(self.gain)

    @property
    def explained_variance(self) -> np.ndarray:
        """Share of the label variance explained, 2F / P, in [0, 1], shape (K,).

        It is the training R² when the ridge is 0, and below it by λ‖w‖² / P otherwise.
        """
        return 2.0 * self.objective / self.response.shape[1]

    @property
    def curve_cost(self) -> np.ndarray:
        """Cost of the prefixes 0..K, starting at 0."""
        return np.concatenate(([0.0], self.spent))

    @property
    def curve_value(self) -> np.ndarray:
        """Explained variance of the prefixes 0..K, starting at 0."""
        return np.concatenate(([0.0], self.explained_variance))

    def affordable(self, budget: float | None) -> int:
        """Count the groups of the longest prefix that costs at most `budget` (None: all)."""
        return longest_affordable(self.spent, budget)

    def standardised_coefficients(self) -> np.ndarray:
        """w(S) of the prefixes 0..K on standardised columns, shape (K + 1, r, P), by `support`.

        One triangular solve for all prefixes: the factor of a prefix is a corner of the factor
        of the whole. Cost O(K P r²).
        """
        rank, n_targets = self.response.shape
        ends = np.concatenate(([0], self.ranks))
        right = np.zeros((rank, len(ends), n_targets))
        for prefix, end in enumerate(ends):
            right[:end, prefix] = self.response[:end]
        if rank == 0:
            return right.transpose(1, 0, 2)
        flat = solve_triangular(self.upper, right.reshape(rank, -1), check_finite=False)
        return flat.reshape(right.shape).transpose(1, 0, 2)

    def models(self) -> PrefixModels:
        """Coefficients and intercepts of the prefixes 0..K in original units."""
        scaling = self.scaling
        standard = self.standardised_coefficients()
        columns = scaling.kept[self.support]
        shape = (len(standard), len(scaling.feature_names), standard.shape[2])
        coefficients = np.zeros(shape)
        coefficients[:, columns] = standard * scaling.target_scale / scaling.scale[columns][:, None]
        moved = np.einsum("kdp,d->kp", coefficients, scaling.mean)
        return PrefixModels(coefficients, scaling.target_mean - moved)

    def held_out(self, statistics: CoMoments) -> HeldOutCurve:
        """Errors of every prefix on rows that only their statistics are known of; exact.

        Missing features of those rows count as the training mean, as they did in training.
        """
        scaling, rank = self.scaling, len(self.support)
        if not statistics.weight > 0:
            raise DataError("There are no held-out rows.")
        check_targets_observed(statistics, scaling.target_columns, scaling.target_names)
        features = scaling.kept[self.support]
        columns = [*np.array(scaling.feature_columns)[features], *scaling.target_columns]
        means = np.concatenate((scaling.mean[features], scaling.target_mean))
        scales = np.concatenate((scaling.scale[features], scaling.target_scale))
        moments, sums = _moments_about(means, columns, statistics)
        # On the scale of the training data, so that columns of any unit lose no digits.
        moments = moments / np.outer(scales, scales) / float(statistics.weight)
        offset = sums[rank:] / scales[rank:] / float(statistics.weight)
        total = np.diagonal(moments)[rank:]
        A = _whitened(self.upper, _whitened(self.upper, moments[:rank, :rank]).T)
        q = _whitened(self.upper, moments[:rank, rank:])
        # wᵀMw of k columns is rᵀAr over the first k entries of r: each entry adds a border.
        border = 2 * (np.tril(A, -1) @ self.response) + np.diagonal(A)[:, None] * self.response
        fall = np.cumsum(self.response * (2 * q - border), axis=0)
        fall = np.concatenate((np.zeros((1, len(total))), fall))[np.concatenate(([0], self.ranks))]
        risk = np.maximum(total - fall, 0.0)
        return HeldOutCurve(
            mse=risk * scaling.target_scale**2,
            explained_variance=_mean_share(risk, risk[0]),
            r2=_mean_share(risk, np.maximum(total - offset**2, 0.0)),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return what is not known from the problem's outline, as named arrays."""
        arrays = {name: np.asarray(getattr(self, name)) for name in (*_ARRAYS, *_NUMBERS)}
        return arrays | {"notes": np.array(self.notes, dtype=np.str_)}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], outline: SequenceOutline
    ) -> SequencePath:
        """Inverse of `to_arrays`, for a path of the problem with this outline."""
        order = arrays["order"]
        content: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        content |= {name: arrays[name].item() for name in _NUMBERS}
        return cls(
            **content,
            groups=tuple(outline.groups.names[g] for g in order),
            columns=outline.columns_of(order),
            notes=tuple(arrays["notes"].tolist()),
            scaling=outline.scaling,
        )


_ARRAYS = ("order", "cost", "gain", "ranks", "support", "upper", "response")
_NUMBERS = ("doubling_capable", "n_candidates")


def _whitened(upper: np.ndarray, right: np.ndarray) -> np.ndarray:
    """U⁻ᵀ right."""
    if not len(upper):
        return right
    solved: np.ndarray = solve_triangular(upper, right, trans=1, check_finite=False)
    return solved


def _mean_share(risk: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Mean over targets of 1 − risk / whole; NaN where there is nothing to explain."""
    if np.any(whole <= 0):
        return np.full(len(risk), np.nan)
    return 1.0 - np.mean(risk / whole, axis=1)


def _moments_about(
    means: np.ndarray, columns: Sequence[int], statistics: CoMoments
) -> tuple[np.ndarray, np.ndarray]:
    """Σ w x̃ᵢx̃ⱼ and Σ w x̃ᵢ of some columns about given means, missing entries counting as 0."""
    pick = np.ix_(columns, columns)
    shift = np.asarray(statistics.mean)[columns] - means
    moments = np.asarray(statistics.comoment)[pick].copy()
    if statistics.pair_weight is None or statistics.cross is None:
        moments += statistics.weight * np.outer(shift, shift)
        return moments, statistics.weight * shift
    cross = np.asarray(statistics.cross)[pick]
    moments += cross * shift + (cross * shift).T
    pair_weight = np.asarray(statistics.pair_weight)[pick]
    moments += pair_weight * np.outer(shift, shift)
    return moments, np.diagonal(pair_weight) * shift


def longest_affordable(spent: Sequence[float] | np.ndarray, budget: float | None) -> int:
    """Count the leading steps whose running cost is at most `budget`.

    A budget that equals a running cost but for rounding (1e-12 of it) affords it.
    """
    if budget is None:
        return len(spent)
    return int(np.searchsorted(spent, budget + 1e-12 * abs(budget), side="right"))
