"""Block Cholesky of C_S with the residuals of every column not in S, and the path it leaves.

Everything here lives on the Gram matrix. After the groups of S are appended there are

- the rows L⁻¹C_{S,·} for all own columns (L the Cholesky factor of C_S),
- the residual target b − C_{·S} C_S⁻¹ b_S, the gradient of the explained variance,
- for ``fr`` the residual blocks C_gg − C_gS C_S⁻¹ C_Sg of the own groups,

all updated in O(|g| |S| d) per step. A state may own only some of the columns: what one step has
to send to the others is a `Pivot`, of O(|g| |S|) numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distfms.errors import DataError
from distfms.methods.sequence.problem import LinearModels, Path, Scaling
from distfms.stats.comoments import CoMoments


@dataclass(frozen=True, eq=False)
class Pivot:
    """What appending one group changes, enough for every holder of columns to follow.

    `columns` (k,) of the whole problem enter with `group`: those that depend linearly on none
    before. `border` (|S|, k) is L⁻¹C_{S,columns}, `upper` (k, k) the Cholesky factor of the
    residual block, `response` (k, P) the new rows of L⁻¹b; half their squared norm is the gain in
    explained variance.
    """

    group: int
    columns: np.ndarray
    border: np.ndarray
    upper: np.ndarray
    response: np.ndarray

    @property
    def gain(self) -> float:
        """F(S ∪ g) − F(S), in the convention F = ½ bᵀC⁻¹b."""
        return 0.5 * float(np.sum(self.response * self.response))


class ResidualGram:
    """Growing block Cholesky over d of a problem's D columns, by default all.

    `rows` (D, d) are those columns of the Gram matrix without ridge, kept and not copied; `target`
    (d, P) is b; `groups` divide 0..d-1, and `first` is the number of their first in the problem. A
    column whose residual variance is at most `dependence_rtol` of its own is linearly dependent and
    never enters. `criterion` is one of `CRITERIA`.
    """

    def __init__(
        self,
        rows: np.ndarray,
        target: np.ndarray,
        groups: Sequence[Sequence[int]],
        criterion: str = "omp-no-whiten",
        *,
        columns: Sequence[int] | None = None,
        first: int = 0,
        ridge: float = 0.0,
    ) -> None:
        n_total, n_own = rows.shape
        self.rank = 0
        self.ridge = ridge
        self.groups = {first + g: np.asarray(own, np.intp) for g, own in enumerate(groups)}
        self.columns = np.arange(n_own) if columns is None else np.asarray(columns, dtype=np.intp)
        self.rows = rows
        self.residual = np.array(target, dtype=np.float64, order="C")
        self._factor_rows = np.empty((min(n_total, 64), n_own))
        self.floor = dependence_rtol(n_total) * (rows[self.columns, np.arange(n_own)] + ridge)
        sizes = {len(own): None for own in self.groups.values()}
        self._values = [_VALUES[criterion](self, size) for size in sorted(sizes)]

    def values(self) -> np.ndarray:
        """Return the value of every own group at the present S, in units of F, shape (m,)."""
        first, found = next(iter(self.groups)), np.zeros(len(self.groups))
        for part in self._values:
            found[part.groups - first] = part.of(self.residual)
        return found

    def values_without(self, new: np.ndarray, response: np.ndarray) -> np.ndarray:
        """Return the values by ``fr`` if rows (k, d) of the factor, the last, were not there."""
        found, residual = np.zeros(len(self.groups)), self.residual + new.T @ response
        for part in self._values:
            assert isinstance(part, _Gain)
            found[part.groups] = part.of(residual, part.blocks + part.squares(new))
        return found

    def append(self, pivot: Pivot) -> None:
        """Take into S a group, own or not: new rows of the factor, new residuals."""
        k = len(pivot.columns)
        new = np.ascontiguousarray(self.rows[pivot.columns])
        if self.rank:
            new -= pivot.border.T @ self._factor_rows[: self.rank]
        new = _solve_rows(pivot.upper, new)
        self._reserve(self.rank + k)
        self._factor_rows[self.rank : self.rank + k] = new
        self.rank += k
        self.residual -= new.T @ pivot.response
        for part in self._values:
            part.follow(pivot.group, new)

    def pivot(self, group: int) -> Pivot | None:
        """Work out what appending a group means; None if it is not an own one. Changes nothing."""
        if group not in self.groups:
            return None
        own = self.groups[group]
        border = self._factor_rows[: self.rank, own]
        block = self.rows[self.columns[own][:, None], own] - border.T @ border
        block.flat[:: len(own) + 1] += self.ridge
        upper, kept = _factor(block, self.floor[own])
        return Pivot(
            group=group,
            columns=self.columns[own[kept]],
            border=border[:, kept],
            upper=upper,
            response=_solve_rows(upper, self.residual[own[kept]]),
        )

    @property
    def factor_rows(self) -> np.ndarray:
        """L⁻¹C_{S,·} of all own columns, shape (|S|, d)."""
        return self._factor_rows[: self.rank]

    def _reserve(self, rank: int) -> None:
        """Grow the store of factor rows by doubling."""
        if rank > len(self._factor_rows):
            larger = np.empty((max(rank, 2 * len(self._factor_rows)), self.rows.shape[1]))
            larger[: self.rank] = self._factor_rows[: self.rank]
            self._factor_rows = larger


# --- what a step maximises -----------------------------------------------------------------------


class _Length:
    """½ ‖b_g‖² of own groups of one size s, so that one operation serves all m of them.

    `groups` (m,) are their numbers, ascending; `positions` (m, s) where their columns are.
    """

    def __init__(self, state: ResidualGram, size: int) -> None:
        own = {g: columns for g, columns in state.groups.items() if len(columns) == size}
        self.groups, self.positions = np.array(list(own)), np.stack(list(own.values()))

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values, shape (m,); `residual` (d, P) is that of all own columns."""
        gradient = residual[self.positions]
        return 0.5 * np.einsum("msp,msp->m", gradient, gradient)

    def follow(self, group: int, new: np.ndarray) -> None:
        """Take a group into S, own or not, with its new rows (k, d) of the factor."""


class _Single(_Length):
    """½ max_j b_gj²."""

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values."""
        gradient = residual[self.positions]
        largest: np.ndarray = np.einsum("msp,msp->ms", gradient, gradient).max(axis=1)
        return 0.5 * largest


class _Whitened(_Length):
    """½ b_gᵀ(X_gᵀX_g/n)⁺b_g, the whitened gradient."""

    def __init__(self, state: ResidualGram, size: int) -> None:
        super().__init__(state, size)
        self.whitener = _whiteners(_raw_blocks(state, self.positions))

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values."""
        white = self.whitener @ residual[self.positions]
        return 0.5 * np.einsum("msp,msp->m", white, white)


class _Gain(_Length):
    """F(S ∪ g) − F(S) = ½ b_gᵀ C̃_gg⁻¹ b_g with the residual blocks of groups not in S.

    Columns that depend linearly on S, or on earlier columns of their group, add nothing.
    """

    def __init__(self, state: ResidualGram, size: int) -> None:
        super().__init__(state, size)
        self.blocks = _raw_blocks(state, self.positions)
        self.blocks[:, np.arange(size), np.arange(size)] += state.ridge
        self.floor = state.floor[self.positions]

    def of(self, residual: np.ndarray, blocks: np.ndarray | None = None) -> np.ndarray:
        """Return the values, with other residual blocks if there are any."""
        gradient = residual.take(self.positions, axis=0)
        blocks = self.blocks if blocks is None else blocks
        regular = _cholesky_gain(blocks, gradient, self.floor)
        if regular is None:
            return _elimination_gain(blocks, gradient, self.floor)
        return regular

    def squares(self, new: np.ndarray) -> np.ndarray:
        """Return what rows (k, d) of the factor take off the residual blocks, (m, s, s)."""
        part = new.take(self.positions, axis=1).transpose(1, 2, 0)
        taken: np.ndarray = part @ part.transpose(0, 2, 1)
        return taken

    def follow(self, group: int, new: np.ndarray) -> None:
        """Forget the group, and take the new rows off the blocks of the others."""
        others = np.flatnonzero(self.groups != group)
        if len(others) < len(self.groups):
            for name in ("groups", "positions", "blocks", "floor"):
                setattr(self, name, getattr(self, name).take(others, axis=0))
        self.blocks -= self.squares(new)


_VALUES = {"omp": _Whitened, "fr": _Gain, "omp-single": _Single, "omp-no-whiten": _Length}

CRITERIA = tuple(_VALUES)
"""Rules that give groups a value (Hu et al., Algorithm 1 and Section 2). With several targets
squares are summed over them; only ``fr`` knows of the ridge."""


def _raw_blocks(state: ResidualGram, positions: np.ndarray) -> np.ndarray:
    """Gram blocks of groups without ridge, shape (m, s, s)."""
    return state.rows[state.columns[positions][:, :, None], positions[:, None, :]]


def _whiteners(blocks: np.ndarray) -> np.ndarray:
    """Λ^{-1/2}Uᵀ of each block (m, s, s), rows of negligible eigenvalues set to 0."""
    eigenvalues, vectors = np.linalg.eigh(blocks)
    size = blocks.shape[1]
    floor = eigenvalues[:, -1:] * (8 * np.finfo(np.float64).eps * max(size, 16))
    kept = eigenvalues > floor
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return np.ascontiguousarray(scale[:, :, None] * vectors.transpose(0, 2, 1))


def group_norms(values: np.ndarray, columns: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ‖values_g‖ of each group, from values (d, P)."""
    group_of = np.repeat(np.arange(len(columns)), [len(group) for group in columns])
    squares = np.square(values[[c for group in columns for c in group]]).sum(axis=1)
    return np.sqrt(np.bincount(group_of, squares, len(columns)))


def dependence_rtol(n_columns: int) -> float:
    """Share of a column's variance below which its residual is taken for rounding."""
    return 32 * float(np.finfo(np.float64).eps) * max(n_columns, 16)


def _cholesky_gain(
    blocks: np.ndarray, gradient: np.ndarray, floor: np.ndarray
) -> np.ndarray | None:
    """½ bᵀC⁻¹b for m systems (m, s, s), or None if one of them is singular."""
    if blocks.shape[1] == 1:
        pivots, right = blocks[:, 0, 0], gradient[:, 0]
        if np.any(pivots <= floor[:, 0]):
            return None
        return 0.5 * np.einsum("mp,mp->m", right, right) / pivots
    try:
        factor = np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        return None
    if (np.einsum("mss->ms", factor) ** 2 <= floor).any():
        return None
    solved = np.linalg.solve(factor, gradient)
    return 0.5 * np.einsum("msp,msp->m", solved, solved)


def _elimination_gain(blocks: np.ndarray, gradient: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """½ bᵀC⁻¹b for m systems that may be singular.

    A column whose pivot is at most its floor depends on earlier ones and is skipped.
    """
    size = blocks.shape[1]
    # Systems last: each elimination step is one operation on contiguous rows of them.
    work = np.concatenate((blocks, gradient), axis=2).transpose(1, 2, 0).copy()
    gain = np.zeros(len(blocks))
    for j in range(size):
        pivot, row = work[j, j], work[j, j + 1 :]
        independent = pivot > floor[:, j]
        scaled = row * np.divide(1.0, pivot, out=np.zeros_like(pivot), where=independent)
        right = size - j - 1
        gain += np.einsum("pm,pm->m", row[right:], scaled[right:])
        work[j + 1 :, j + 1 :] -= scaled[:right, None] * row[None]
    return 0.5 * gain


def _factor(block: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Upper Cholesky factor of the independent columns of a block, and which they are."""
    from scipy.linalg.lapack import dpotrf

    upper, info = dpotrf(block, lower=0, clean=1)
    if info == 0 and np.all(np.diagonal(upper) ** 2 > floor):
        return upper, np.arange(len(block))
    rest = block.copy()
    factor = np.zeros_like(block)
    kept = []
    for j in range(len(block)):
        if rest[j, j] > floor[j]:
            kept.append(j)
            factor[j, j:] = rest[j, j:] / np.sqrt(rest[j, j])
            rest[j + 1 :, j + 1 :] -= np.outer(factor[j, j + 1 :], factor[j, j + 1 :])
    return factor[np.ix_(kept, kept)], np.array(kept, dtype=np.intp)


def _solve_rows(upper: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Overwrite `right` (k, d), C-ordered, with U⁻ᵀ `right`."""
    from scipy.linalg.blas import dtrsm

    if not right.size:
        return right
    # BLAS is column-major: seen from there it is the transpose, so X U = rightᵀ from the right.
    return dtrsm(1.0, upper, right.T, side=1, lower=0, overwrite_b=1).T


# --- what a search leaves ------------------------------------------------------------------------


#: Columns of a prefix, on average, from which the errors of few prefixes come from their weights:
#: in O(K r²) rather than O(r³).
_FEW = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class SequencePath(Path):
    """A path of linear regressions.

    Attributes
    ----------
    gain : numpy.ndarray of shape (K,)
        Growth of F = ½ b_Sᵀ C_S⁻¹ b_S.
    ranks : numpy.ndarray of int, shape (K,)
        Linearly independent columns of each prefix.
    support : numpy.ndarray of int, shape (r,)
        Columns of the problem that entered, in order.
    upper : numpy.ndarray of shape (r, r)
        Upper Cholesky factor of C at `support`.
    response : numpy.ndarray of shape (r, P)
        U⁻ᵀ b at `support`.
    """

    gain: np.ndarray
    ranks: np.ndarray
    support: np.ndarray
    upper: np.ndarray
    response: np.ndarray

    @property
    def curve_value(self) -> np.ndarray:
        """Share of the label variance explained by the prefixes 0..K, 2F / P.

        It is the training R² when the ridge is 0, and below it by λ‖w‖² / P otherwise.
        """
        objective = np.concatenate(([0.0], np.cumsum(self.gain)))
        return 2.0 * objective / self.response.shape[1]

    def prefix_models(self) -> LinearModels:
        """Return the models of all prefixes.

        Coefficients are 0 of groups not in the prefix, of constant columns, and of those that
        depend linearly on earlier ones. One triangular solve for all prefixes: the factor of a
        prefix is a corner of the factor of the whole. Cost O(K P r²).
        """
        scaling, n_targets = self.scaling, self.response.shape[1]
        ends = np.concatenate(([0], self.ranks))
        right = self._weights(ends)
        columns = scaling.kept[self.support]
        coefficients = np.zeros((len(ends), len(scaling.feature_names), n_targets))
        units = scaling.target_scale / scaling.scale[columns][:, None]
        coefficients[:, columns] = right.transpose(1, 0, 2) * units
        moved = np.einsum("kdp,d->kp", coefficients, scaling.mean)
        return LinearModels(coefficients, scaling.target_mean - moved, scaling.mean)

    def step_details(self) -> dict[str, np.ndarray]:
        """Return the number of columns of each step that are linearly independent."""
        return {"n_independent": np.diff(self.ranks, prepend=0), "gain": self.gain}

    def held_out(self, statistics: CoMoments) -> dict[str, np.ndarray]:
        """Errors of every prefix 0..K on rows that only their statistics are known of; exact.

        Missing features of those rows count as the training mean, as they did in training.

        Returns
        -------
        dict of str to numpy.ndarray of shape (K + 1,)
            Means over the targets: ``mse``, the mean squared error; ``explained_variance``,
            1 − mse / (mse of the empty prefix, which predicts the training mean); ``r2``,
            1 − mse / (variance of the held-out target). NaN where there is nothing to explain.
        """
        moments = standardised_moments(self.scaling, self.support, statistics)
        risk = np.maximum(moments.total - self._fall(moments.gram, moments.cross), 0.0)
        return {
            "r2": _mean_share(risk, np.maximum(moments.total - moments.offset**2, 0.0)),
            "mse": np.mean(risk * self.scaling.target_scale**2, axis=1),
            "explained_variance": _mean_share(risk, risk[0]),
        }

    def _fall(self, gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
        """Return 2wᵀc − wᵀMw of all prefixes, (K + 1, P), from M (r, r) and c (r, P)."""
        ends = np.concatenate(([0], self.ranks))
        if _FEW * len(ends) <= len(gram):
            w = self._weights(ends)
            products = (gram @ w.reshape(len(gram), -1)).reshape(w.shape)
            return np.asarray((w * (2.0 * cross[:, np.newaxis] - products)).sum(axis=0))
        A = _whitened(self.upper, _whitened(self.upper, gram).T)
        q = _whitened(self.upper, cross)
        # wᵀMw of k columns is rᵀAr over the first k entries of r: each entry adds a border.
        border = 2 * (np.tril(A, -1) @ self.response) + np.diagonal(A)[:, None] * self.response
        fall = np.cumsum(self.response * (2 * q - border), axis=0)
        return np.concatenate((np.zeros((1, cross.shape[1])), fall))[ends]

    def _weights(self, ends: np.ndarray) -> np.ndarray:
        """Return U⁻¹ of the first so many entries of the response, (r, K + 1, P)."""
        from scipy.linalg import solve_triangular

        rank, n_targets = self.response.shape
        right = np.zeros((rank, len(ends), n_targets))
        for prefix, end in enumerate(ends):
            right[:end, prefix] = self.response[:end]
        if not rank:
            return right
        flat = solve_triangular(self.upper, right.reshape(rank, -1), check_finite=False)
        return np.asarray(flat.reshape(right.shape))


def _whitened(upper: np.ndarray, right: np.ndarray) -> np.ndarray:
    """U⁻ᵀ right."""
    from scipy.linalg import solve_triangular

    if not len(upper):
        return right
    solved: np.ndarray = solve_triangular(upper, right, trans=1, check_finite=False)
    return solved


def _mean_share(risk: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Mean over targets of 1 − risk / whole; NaN where there is nothing to explain."""
    if np.any(whole <= 0):
        return np.full(len(risk), np.nan)
    return 1.0 - np.mean(risk / whole, axis=1)


class HeldOut(NamedTuple):
    """Moments of other rows about the training means, in units of the training deviations.

    Of r columns and P targets: `gram` (r, r), `cross` (r, P), `total` (P,) of the squared targets,
    `offset` (P,) their means.
    """

    gram: np.ndarray
    cross: np.ndarray
    total: np.ndarray
    offset: np.ndarray


def standardised_moments(scaling: Scaling, support: np.ndarray, statistics: CoMoments) -> HeldOut:
    """Return the moments of some columns of a problem and of its targets on other rows."""
    if not statistics.weight > 0:
        raise DataError("There are no held-out rows.")
    n_features, rank = len(scaling.feature_names), len(support)
    features = scaling.kept[support]
    columns = [*features, *range(n_features, n_features + len(scaling.target_names))]
    means = np.concatenate((scaling.mean[features], scaling.target_mean))
    scales = np.concatenate((scaling.scale[features], scaling.target_scale))
    moments, sums = moments_about(means, columns, statistics)
    # On the scale of the training data, so that columns of any unit lose no digits.
    moments = moments / np.outer(scales, scales) / float(statistics.weight)
    offset = sums[rank:] / scales[rank:] / float(statistics.weight)
    total = np.diagonal(moments)[rank:]
    return HeldOut(moments[:rank, :rank], moments[:rank, rank:], total, offset)


def moments_about(
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
