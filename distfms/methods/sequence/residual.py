"""Block Cholesky of C_S with the residuals of every column that is not in S yet.

Everything here lives on the Gram matrix. After the groups of S are appended there are

- the rows L⁻¹C_{S,·} for all own columns (L the Cholesky factor of C_S),
- the residual target b − C_{·S} C_S⁻¹ b_S, the gradient of the explained variance,
- on request the residual blocks C_gg − C_gS C_S⁻¹ C_Sg of the own groups,

all updated in O(|g| |S| d) per step. A state may own only some of the columns: what one step has
to send to the others is a `Pivot`, of O(|g| |S|) numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from distfms.errors import SpecError


@dataclass(frozen=True, eq=False)
class SizeClass:
    """Own groups of one size s, so that one array operation serves all m of them.

    `groups` (m,) are their indices, ascending; `positions` (m, s) where their columns are.
    """

    size: int
    groups: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True, eq=False)
class Pivot:
    """What appending one group changes, enough for every holder of columns to follow.

    `columns` (k,) of the whole problem enter: those that depend linearly on none before. `border`
    (|S|, k) is L⁻¹C_{S,columns}, `upper` (k, k) the Cholesky factor of the residual block,
    `response` (k, P) the new rows of L⁻¹b; half their squared norm is the gain in explained
    variance.
    """

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
    (d, P) is b; `groups` divide 0..d-1. A column whose residual variance is at most a share `rtol`
    of its own is linearly dependent and never enters. `blocks` keeps what `group_gains` needs.
    """

    def __init__(
        self,
        rows: np.ndarray,
        target: np.ndarray,
        groups: Sequence[Sequence[int]],
        *,
        columns: Sequence[int] | None = None,
        ridge: float = 0.0,
        rtol: float | None = None,
        blocks: bool = False,
    ) -> None:
        n_total, n_own = rows.shape
        self.rank = 0
        self.ridge = ridge
        self.groups = [np.asarray(group, dtype=np.intp) for group in groups]
        self.classes = _size_classes(self.groups)
        self._columns = np.arange(n_own) if columns is None else np.asarray(columns, dtype=np.intp)
        self._rows = rows
        self.residual = np.array(target, dtype=np.float64, order="C")
        self._factor_rows = np.empty((min(n_total, 64), n_own))
        rtol = dependence_rtol(n_total) if rtol is None else rtol
        self._floor = rtol * (self._rows[self._columns, np.arange(n_own)] + ridge)
        self._blocks = [self._residual_blocks(c) for c in self.classes] if blocks else None

    @property
    def n_groups(self) -> int:
        """Number of own groups."""
        return len(self.groups)

    def gradient(self, size_class: SizeClass) -> np.ndarray:
        """Residual targets of a class of groups, shape (m, s, P)."""
        return self.residual[size_class.positions]

    def raw_blocks(self, size_class: SizeClass) -> np.ndarray:
        """Gram blocks of a class of groups without ridge, shape (m, s, s)."""
        positions = size_class.positions
        return self._rows[self._columns[positions][:, :, None], positions[:, None, :]]

    def group_gains(self) -> np.ndarray:
        """F(S ∪ g) − F(S) for every own group, shape (n_groups,); 0 for the selected ones.

        Columns that depend linearly on S, or on earlier columns of their group, add nothing.
        """
        if self._blocks is None:
            raise ValueError("residual blocks are not kept; pass blocks=True")
        gains = np.zeros(self.n_groups)
        for blocks in self._blocks:
            gains[blocks.groups] = blocks.gains(self.residual)
        return gains

    def select(self, group: int) -> Pivot:
        """Append an own group to S; return what holders of other columns `append`."""
        pivot = self.pivot(group)
        self.close(group)
        self.append(pivot)
        return pivot

    def close(self, group: int) -> None:
        """Drop the residual block of an own group that is to be appended."""
        for blocks in self._blocks or ():
            blocks.close(group)

    def append(self, pivot: Pivot) -> None:
        """Take into S a group, own or not: new rows of the factor, new residuals."""
        k = len(pivot.columns)
        if k == 0:
            return
        new = np.ascontiguousarray(self._rows[pivot.columns])
        if self.rank:
            new -= pivot.border.T @ self._factor_rows[: self.rank]
        new = _solve_rows(pivot.upper, new)
        self._reserve(self.rank + k)
        self._factor_rows[self.rank : self.rank + k] = new
        self.rank += k
        self.residual -= new.T @ pivot.response
        for blocks in self._blocks or ():
            blocks.subtract(new)

    def pivot(self, group: int) -> Pivot:
        """Work out what appending an own group means; changes nothing."""
        cols = self.groups[group]
        border = self._factor_rows[: self.rank, cols]
        block = self._rows[self._columns[cols][:, None], cols] - border.T @ border
        block.flat[:: len(cols) + 1] += self.ridge
        upper, kept = _factor(block, self._floor[cols])
        return Pivot(
            columns=self._columns[cols[kept]],
            border=border[:, kept],
            upper=upper,
            response=_solve_rows(upper, self.residual[cols[kept]]),
        )

    def _reserve(self, rank: int) -> None:
        """Grow the store of factor rows by doubling."""
        if rank > len(self._factor_rows):
            larger = np.empty((max(rank, 2 * len(self._factor_rows)), self._rows.shape[1]))
            larger[: self.rank] = self._factor_rows[: self.rank]
            self._factor_rows = larger

    def _residual_blocks(self, size_class: SizeClass) -> _ResidualBlocks:
        """Blocks C_gg of a class, before any group is selected."""
        blocks = self.raw_blocks(size_class)
        diagonal = np.arange(size_class.size)
        blocks[:, diagonal, diagonal] += self.ridge
        floor = self._floor[size_class.positions]
        return _ResidualBlocks(size_class.groups, size_class.positions, blocks, floor)


@dataclass(eq=False)
class _ResidualBlocks:
    """Residual blocks of the groups of one size that are not selected yet."""

    groups: np.ndarray
    positions: np.ndarray
    blocks: np.ndarray
    floor: np.ndarray

    def subtract(self, new: np.ndarray) -> None:
        """Take new factor rows (k, d) off the blocks."""
        part = new.take(self.positions, axis=1).transpose(1, 2, 0)
        self.blocks -= part @ part.transpose(0, 2, 1)

    def close(self, group: int) -> None:
        """Forget a group that is selected now."""
        others = np.flatnonzero(self.groups != group)
        if len(others) < len(self.groups):
            for name in ("groups", "positions", "blocks", "floor"):
                setattr(self, name, getattr(self, name).take(others, axis=0))

    def gains(self, residual: np.ndarray) -> np.ndarray:
        """½ bᵀC⁻¹b of each group, shape (m,)."""
        gradient = residual.take(self.positions, axis=0)
        regular = _cholesky_gain(self.blocks, gradient, self.floor)
        if regular is None:
            return _elimination_gain(self.blocks, gradient, self.floor)
        return regular


def dependence_rtol(n_columns: int) -> float:
    """Share of a column's variance below which its residual is taken for rounding."""
    return 32 * float(np.finfo(np.float64).eps) * max(n_columns, 16)


def _size_classes(groups: Sequence[np.ndarray]) -> list[SizeClass]:
    """Put groups of equal size together."""
    sizes = np.array([len(group) for group in groups])
    classes = []
    for size in np.unique(sizes).tolist():
        members = np.flatnonzero(sizes == size)
        positions = np.stack([groups[g] for g in members.tolist()])
        classes.append(SizeClass(size, members, positions))
    return classes


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


Criterion = Callable[[], np.ndarray]
"""Value of every own group at the present S, in units of explained variance F."""

CRITERIA = ("omp", "fr", "omp-single", "omp-no-whiten")
"""Rules that score groups; see `make_criterion`."""


def make_criterion(rule: str, state: ResidualGram) -> Criterion:
    """Return a function that scores all own groups of a state as it is when called.

    Parameters
    ----------
    rule : {"omp", "fr", "omp-single", "omp-no-whiten"}
        ``fr``: F(S ∪ g) − F(S). ``omp``: ½ b_gᵀ(X_gᵀX_g/n)⁺b_g, the whitened gradient, without
        the ridge. ``omp-single``: ½ max_j b_gj². ``omp-no-whiten``: ½ ‖b_g‖². With several
        targets squares are summed over them (Frobenius norms).
    state : ResidualGram
        With ``blocks=True`` for ``fr``.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, Algorithm 1 and Section 2.
    """
    if rule == "fr":
        return state.group_gains
    if rule == "omp":
        return _whitened(state)
    if rule == "omp-single":
        return _from_squares(state, lambda squares: squares.max(axis=1))
    if rule == "omp-no-whiten":
        return _from_squares(state, lambda squares: squares.sum(axis=1))
    raise SpecError(f"criterion {rule!r} is none of {', '.join(CRITERIA)}.")


def _from_squares(state: ResidualGram, reduce: Callable[[np.ndarray], np.ndarray]) -> Criterion:
    """Rule on the squared gradient of each column, shape (m, s) for a class of groups."""

    def values() -> np.ndarray:
        result = np.empty(state.n_groups)
        for size_class in state.classes:
            gradient = state.gradient(size_class)
            squares = np.einsum("msp,msp->ms", gradient, gradient)
            result[size_class.groups] = 0.5 * reduce(squares)
        return result

    return values


def _whitened(state: ResidualGram) -> Criterion:
    """Rule ½ ‖W_g b_g‖² with W_gᵀW_g the pseudo-inverse of the raw block, found once."""
    whiteners = [_whiteners(state.raw_blocks(size_class)) for size_class in state.classes]

    def values() -> np.ndarray:
        result = np.empty(state.n_groups)
        for size_class, whitener in zip(state.classes, whiteners, strict=True):
            white = whitener @ state.gradient(size_class)
            result[size_class.groups] = 0.5 * np.einsum("msp,msp->m", white, white)
        return result

    return values


def _whiteners(blocks: np.ndarray) -> np.ndarray:
    """Λ^{-1/2}Uᵀ of each block (m, s, s), rows of negligible eigenvalues set to 0."""
    eigenvalues, vectors = np.linalg.eigh(blocks)
    size = blocks.shape[1]
    floor = eigenvalues[:, -1:] * (8 * np.finfo(np.float64).eps * max(size, 16))
    kept = eigenvalues > floor
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return np.ascontiguousarray(scale[:, :, None] * vectors.transpose(0, 2, 1))
