"""What a selection returns: the sequence, its curve, and a linear model for every prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from distfms.errors import DataError
from distfms.methods.sequence.problem import (
    Scaling,
    SequenceOutline,
    check_targets_observed,
)
from distfms.stats.comoments import CoMoments


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
    criterion : str
        ``omp``, ``fr``, ``omp-single``, ``omp-no-whiten``, ``given`` or ``random``.
    cost_aware, doubling : bool
        How it was found.
    ridge : float
        λ of the objective.
    order : numpy.ndarray of int, shape (K,)
        Group indices of the problem.
    groups : tuple of str
        Their names.
    columns : tuple of tuple of str
        Their columns, constant ones left out.
    cost, spent : numpy.ndarray of shape (K,)
        Cost of each step, given what shared costs were paid before, and its running sum.
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
        Candidates evaluated: values of groups computed by the steps that chose, each of which
        values all groups that are not selected yet, those that doubling does not allow included.
        0 for a given or random order.
    """

    criterion: str
    cost_aware: bool
    doubling: bool
    ridge: float
    order: np.ndarray
    groups: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    cost: np.ndarray
    spent: np.ndarray
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

        Parameters
        ----------
        statistics : CoMoments
            Of the held-out rows, with the columns of the training statistics.

        Raises
        ------
        DataError
            If there are no held-out rows or a target is missing in some.
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

    def restricted(self, features: np.ndarray) -> SequencePath:
        """Write the path as one on data with some of the features only.

        Parameters
        ----------
        features : numpy.ndarray of int, shape (m,)
            Positions among the D features, ascending; all columns of the path's groups.

        Returns
        -------
        SequencePath
            Its `order` still counts among all groups, everything else knows these features only.
        """
        scaling = self.scaling.restricted(features)
        support = np.searchsorted(features[scaling.kept], self.scaling.kept[self.support])
        return replace(self, scaling=scaling, support=support)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Give what is not known from the problem's outline, as named arrays."""
        arrays = {name: np.asarray(getattr(self, name)) for name in _STORED}
        return arrays | {"notes": np.array(self.notes, dtype=np.str_)}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], outline: SequenceOutline
    ) -> SequencePath:
        """Inverse of `to_arrays`.

        Parameters
        ----------
        arrays : mapping of str to numpy.ndarray
        outline : SequenceOutline
            Of the problem that the path is of.
        """
        order, cost = arrays["order"], arrays["cost"]
        return cls(
            criterion=str(arrays["criterion"]),
            cost_aware=bool(arrays["cost_aware"]),
            doubling=bool(arrays["doubling"]),
            ridge=outline.ridge,
            order=order,
            groups=tuple(outline.groups.names[g] for g in order),
            columns=outline.columns_of(order),
            cost=cost,
            spent=np.cumsum(cost),
            gain=arrays["gain"],
            ranks=arrays["ranks"],
            doubling_capable=bool(arrays["doubling_capable"]),
            notes=tuple(arrays["notes"].tolist()),
            scaling=outline.scaling,
            support=arrays["support"],
            upper=arrays["upper"],
            response=arrays["response"],
            n_candidates=int(arrays["n_candidates"]),
        )


_STORED = (
    "criterion", "cost_aware", "doubling", "order", "cost", "gain", "ranks", "doubling_capable",
    "support", "upper", "response", "n_candidates",
)  # fmt: skip
"""Members of a path that `SequencePath.to_arrays` gives as they are."""


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
