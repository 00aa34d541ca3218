"""The selection problem on statistics alone: standardised Gram matrix, groups, costs, ridge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.sequence.groups import FeatureGroups, GroupCosts
from distfms.stats.comoments import CoMoments


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

    def restricted(self, features: np.ndarray) -> Scaling:
        """Scaling of some of the features alone, followed by the targets.

        Parameters
        ----------
        features : numpy.ndarray of int, shape (m,)
            Their positions among the D, ascending; in the result they are 0 … m − 1.
        """
        n = len(features)
        return replace(
            self,
            feature_names=tuple(self.feature_names[int(f)] for f in features),
            feature_columns=tuple(range(n)),
            target_columns=tuple(range(n, n + len(self.target_names))),
            kept=np.flatnonzero(np.isin(features, self.kept)),
            mean=self.mean[features],
            scale=self.scale[features],
        )


@dataclass(frozen=True, eq=False)
class SequenceOutline:
    """A selection problem without its matrices, which may be too large for one process.

    Attributes
    ----------
    groups, costs, ridge, scaling, dropped_groups, n_samples
        As in :class:`SequenceProblem`.
    n_targets : int
        P.
    """

    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    scaling: Scaling
    n_targets: int
    dropped_groups: tuple[str, ...] = field(default=())
    n_samples: int = 0

    @property
    def label_variance(self) -> float:
        """YᵀY/n summed over the standardised targets, which is P; F is at most half of it."""
        return float(self.n_targets)

    def columns_of(self, groups: Iterable[int]) -> tuple[tuple[str, ...], ...]:
        """Names of the columns of some groups, constant ones left out."""
        names = [self.scaling.feature_names[i] for i in self.scaling.kept]
        return tuple(tuple(names[c] for c in self.groups.columns[g]) for g in groups)


@dataclass(frozen=True, eq=False)
class SequenceProblem:
    """Groups to put in order, on standardised statistics.

    Columns have zero mean and unit variance; C = `gram` + `ridge` I.

    Attributes
    ----------
    gram : numpy.ndarray of shape (d, d)
        XᵀX/n, without the ridge.
    target : numpy.ndarray of shape (d, P)
        b = XᵀY/n.
    groups : FeatureGroups
        Partition of the d columns into J groups.
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

    gram: np.ndarray
    target: np.ndarray
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    scaling: Scaling
    dropped_groups: tuple[str, ...] = field(default=())
    n_samples: int = 0

    @property
    def n_targets(self) -> int:
        """Number of targets P."""
        return self.target.shape[1]

    @property
    def outline(self) -> SequenceOutline:
        """The problem without its matrices."""
        return SequenceOutline(
            self.groups,
            self.costs,
            self.ridge,
            self.scaling,
            self.n_targets,
            self.dropped_groups,
            self.n_samples,
        )

    @property
    def label_variance(self) -> float:
        """YᵀY/n summed over the standardised targets, which is P; F is at most half of it."""
        return float(self.n_targets)


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
    return SequenceProblem(
        gram=gram,
        target=np.ascontiguousarray(target),
        groups=outline.groups,
        costs=outline.costs,
        ridge=outline.ridge,
        scaling=scaling,
        dropped_groups=outline.dropped_groups,
        n_samples=outline.n_samples,
    )


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
    """Find the outline of a problem from what is known of single columns.

    Parameters
    ----------
    mean, variance : numpy.ndarray of shape (D + P,)
        Of the features, then the targets; missing values count as the mean.
    constant : numpy.ndarray of bool, shape (D + P,)
    feature_names, target_names, groups, costs, ridge
        As for :func:`problem_from_comoments`.
    n_samples : int
        Rows behind the statistics.

    Raises
    ------
    SpecError
        If the ridge is negative or the groups do not partition the features.
    DataError
        If a target is constant, or every feature is.
    """
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
        n_targets=n_targets,
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
