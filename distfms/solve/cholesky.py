"""Block Cholesky of C_S with the residuals of every column not in S.

Everything here lives on the Gram matrix G, with C = G + λI. After the groups of S are appended
there are

- the rows L⁻¹C_{S,·} for all columns of a state (L the Cholesky factor of C_S),
- the residual target b̃ = b − C_{·S} C_S⁻¹ b_S, the gradient of the explained variance,
- for ``fr`` the residual blocks C̃_gg = C_gg − C_gS C_S⁻¹ C_Sg of the groups,

all updated in O(|g| |S| d) per step (Golub, Van Loan, "Matrix Computations", section 4.2.9). A
state may have only some of the columns: what one step has to send to the others is a `Pivot`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from distfms.solve.shards import block_edges, shard_edges

#: Rows of the factor that there is room for at first.
_FIRST_ROWS = 64


@dataclass(frozen=True, eq=False)
class Shard:
    """Groups from number `first` on, whole blocks of them, with their rows of the Gram matrix.

    Attributes
    ----------
    first : int
    groups : sequence of sequence of int
        Columns of each group, of the d of the whole problem.
    gram : ndarray of shape (m, d)
        G, without the ridge: an array or a mapped file, with the rows of these columns at least.
    places : ndarray of int, shape (n,)
        Rows of `gram` of these columns, in the order of their groups.
    target : ndarray of shape (n, P)
        b of these columns.
    ridge : float
        λ.
    block_edges : sequence of int
        First group of each block, from 0 on, and the number of groups.
    """

    first: int
    groups: Sequence[Sequence[int]]
    gram: np.ndarray
    places: np.ndarray
    target: np.ndarray
    ridge: float
    block_edges: Sequence[int]

    @classmethod
    def whole(
        cls,
        gram: np.ndarray,
        target: np.ndarray,
        groups: Sequence[Sequence[int]],
        ridge: float = 0.0,
    ) -> Shard:
        """Return all groups of a problem as one."""
        columns = _joined(groups)
        edges = block_edges(len(group) for group in groups)
        return cls(0, groups, gram, columns, target[columns], ridge, edges)

    def load(self) -> Shard:
        """Return the shard itself, which is in memory."""
        return self

    @property
    def columns(self) -> np.ndarray:
        """Columns (n,) of the whole problem, in the order of their groups."""
        return _joined(self.groups)

    @property
    def n_bytes(self) -> int:
        """Memory that its rows of the matrix take."""
        if isinstance(self.gram, np.memmap):
            return 0
        return int(self.gram.itemsize * len(self.places) * self.gram.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        """Return what an actor needs: the name of a mapped file, or rows of a matrix in memory."""
        if isinstance(self.gram, np.memmap):
            return {**vars(self), "gram": (str(self.gram.filename), self.gram.shape)}
        rows = np.arange(len(self.places))
        return {**vars(self), "gram": self.gram[self.places], "places": rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the mapped file, if there is one."""
        if isinstance(state["gram"], tuple):
            name, shape = state["gram"]
            state["gram"] = np.memmap(name, dtype=np.float64, mode="r", shape=shape)
        self.__dict__.update(state)

    def cut(self) -> list[Shard]:
        """Cut into runs of blocks."""
        edges = self.block_edges
        column_edges = _column_edges(self.groups)
        shards = []
        for first_block, last_block in pairwise(shard_edges(len(edges) - 1)):
            first = edges[first_block]
            last = edges[last_block]
            columns = slice(column_edges[first], column_edges[last])
            shard = Shard(
                first=self.first + first,
                groups=self.groups[first:last],
                gram=self.gram,
                places=self.places[columns],
                target=self.target[columns],
                ridge=self.ridge,
                block_edges=[edge - first for edge in edges[first_block : last_block + 1]],
            )
            shards.append(shard)
        return shards


class Pivot(NamedTuple):
    """What appending one group changes, enough for every holder of columns to follow.

    Attributes
    ----------
    group : int
    columns : ndarray of int, shape (k,)
        Those of the whole problem that enter: they depend linearly on none before.
    gram : ndarray of shape (k, d)
        Their rows of G.
    border : ndarray of shape (|S|, k)
        L⁻¹C_{S,columns}.
    upper : ndarray of shape (k, k)
        Upper Cholesky factor U of the residual block.
    response : ndarray of shape (k, P)
        U⁻ᵀb̃, the new rows of L⁻¹b.
    """

    group: int
    columns: np.ndarray
    gram: np.ndarray
    border: np.ndarray
    upper: np.ndarray
    response: np.ndarray

    @property
    def gain(self) -> float:
        """F(S ∪ g) − F(S) = ½ ‖U⁻ᵀb̃‖², in the convention F = ½ bᵀC⁻¹b."""
        return 0.5 * float(np.sum(self.response * self.response))

    def without_gram(self) -> Pivot:
        """Return what is kept of it once all have followed."""
        return self._replace(gram=self.gram[:, :0])


class ForwardState:
    """Growing block Cholesky over the columns of a shard.

    A column whose residual variance is at most `dependence_rtol` of its own is linearly dependent
    and never enters. `criterion` is one of `CRITERIA`.
    """

    def __init__(self, shard: Shard, criterion: str = "omp-no-whiten") -> None:
        self.rank = 0
        self.ridge = shard.ridge
        self.gram = shard.gram
        self.places = shard.places
        self.columns = shard.columns
        self.residual = np.array(shard.target, dtype=np.float64, order="C")
        self.positions = _positions(shard)
        n_total = self.gram.shape[1]
        column_edges = _column_edges(shard.groups)
        #: The columns of each block.
        self._blocks = [
            slice(column_edges[first], column_edges[last])
            for first, last in pairwise(shard.block_edges)
        ]
        #: L⁻¹C_{S,·} of each block, in memory of its own: strides decide about bits, too.
        self._factor_rows = [
            np.empty((min(n_total, _FIRST_ROWS), block.stop - block.start))
            for block in self._blocks
        ]
        variances = np.asarray(self.gram[self.places, self.columns])
        self.floor = dependence_rtol(n_total) * (variances + self.ridge)
        self._column_starts = np.array([block.start for block in self._blocks])
        #: First group of each block.
        self.block_starts = shard.first + np.array(shard.block_edges[:-1])
        sizes = sorted({len(group) for group in shard.groups})
        self._values = [_VALUES[criterion](self, size) for size in sizes]

    def values(self) -> np.ndarray:
        """Return the value of every group at the present S, in units of F, shape (m,)."""
        values = np.zeros(len(self.positions))
        first = next(iter(self.positions))
        for of_size in self._values:
            values[of_size.groups - first] = of_size.of(self.residual)
        return values

    def values_without(self, new: np.ndarray, response: np.ndarray) -> np.ndarray:
        """Return the values by ``fr`` if rows (k, n) of the factor, the last, were not there.

        b̃ + newᵀ·response and C̃_gg + new_gᵀnew_g are the residuals without them.
        """
        values = np.zeros(len(self.positions))
        residual = self.residual + new.T @ response
        for of_size in self._values:
            assert isinstance(of_size, _Gain)
            blocks = of_size.blocks + of_size.squares(new)
            values[of_size.groups] = of_size.of(residual, blocks)
        return values

    def append(self, pivot: Pivot) -> None:
        """Take into S a group, of this state or not.

        New rows U⁻ᵀ(C_{g,·} − borderᵀ L⁻¹C_{S,·}) of the factor, and b̃ less newᵀ·response.
        """
        k = len(pivot.columns)
        self._reserve(self.rank + k)
        new = pivot.gram[:, self.columns]
        if self.rank:
            new -= self._projected(pivot.border)
        if k == 1:
            new *= 1.0 / pivot.upper[0, 0]
            self.residual -= new.T * pivot.response
        else:
            self._solve_by_block(pivot, new)
        for block, rows in zip(self._blocks, self._factor_rows, strict=True):
            rows[self.rank : self.rank + k] = new[:, block]
        self.rank += k
        for of_size in self._values:
            of_size.follow(pivot.group, new)

    def _projected(self, border: np.ndarray) -> np.ndarray:
        """Return borderᵀ L⁻¹C_{S,·}, block by block: products of other sizes have other bits."""
        projected = np.empty((border.shape[1], len(self.columns)))
        for block, rows in zip(self._blocks, self._factor_rows, strict=True):
            projected[:, block] = border.T @ rows[: self.rank]
        return projected

    def _solve_by_block(self, pivot: Pivot, new: np.ndarray) -> None:
        """Overwrite new rows (k, n) with U⁻ᵀnew, and take newᵀ·response off b̃."""
        for block in self._blocks:
            rows = _solve_rows(pivot.upper, np.ascontiguousarray(new[:, block]))
            new[:, block] = rows
            self.residual[block] -= rows.T @ pivot.response

    def pivot(self, group: int) -> Pivot | None:
        """Work out what appending a group means; None if it is of another state."""
        if group not in self.positions:
            return None
        positions = self.positions[group]
        columns = self.columns[positions]
        rows = np.array(self.gram[self.places[positions]])
        border = self._border(positions)
        block = rows[:, columns] - border.T @ border
        block.flat[:: len(block) + 1] += self.ridge
        upper, kept = _factor(block, self.floor[positions])
        return Pivot(
            group=group,
            columns=columns[kept],
            gram=rows[kept],
            border=border[:, kept],
            upper=upper,
            response=_solve_rows(upper, self.residual[positions[kept]]),
        )

    @property
    def factor_rows(self) -> np.ndarray:
        """L⁻¹C_{S,·} of all columns of the state, shape (|S|, n)."""
        rows = [rows[: self.rank] for rows in self._factor_rows]
        return np.concatenate(rows, axis=1)

    def turn_to(self, gradient: np.ndarray) -> None:
        """Take another b̃, from that of all columns of the problem (d, P)."""
        self.residual = gradient[self.columns]

    def gradient_norms(self) -> np.ndarray:
        """Return ‖b̃_g‖ of each group."""
        sizes = [len(positions) for positions in self.positions.values()]
        group_of = np.repeat(np.arange(len(sizes)), sizes)
        squares = np.square(self.residual).sum(axis=1)
        return np.sqrt(np.bincount(group_of, squares, len(sizes)))

    def _border(self, positions: np.ndarray) -> np.ndarray:
        """Return L⁻¹C_{S,g} of a group, whose columns are in one block."""
        number = int(np.searchsorted(self._column_starts, positions[0], side="right")) - 1
        places = positions - self._column_starts[number]
        return self._factor_rows[number][: self.rank, places]

    def _reserve(self, rank: int) -> None:
        """Grow the stores of factor rows by doubling."""
        n_rows = len(self._factor_rows[0])
        if rank > n_rows:
            n_more = max(rank, 2 * n_rows) - n_rows
            self._factor_rows = [
                np.concatenate((rows, np.empty((n_more, rows.shape[1]))))
                for rows in self._factor_rows
            ]


def _joined(groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the columns of groups in their order."""
    return np.array([column for group in groups for column in group], dtype=np.intp)


def _column_edges(groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the first column of each group, in the order of groups, and the number of columns."""
    return np.append(0, np.cumsum([len(group) for group in groups], dtype=np.intp))


def _positions(shard: Shard) -> dict[int, np.ndarray]:
    """Return where the columns of each group are among those of its shard."""
    edges = pairwise(_column_edges(shard.groups).tolist())
    return {number: np.arange(*pair) for number, pair in enumerate(edges, shard.first)}


# --- what a step maximises -----------------------------------------------------------------------


class _Length:
    """½ ‖b̃_g‖² of groups of one size s, so that one operation serves all m of them.

    `groups` (m,) are their numbers, ascending; `positions` (m, s) where their columns are.
    """

    def __init__(self, state: ForwardState, size: int) -> None:
        of_size = {g: columns for g, columns in state.positions.items() if len(columns) == size}
        self.groups = np.array(list(of_size))
        self.positions = np.stack(list(of_size.values()))

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values, shape (m,), from b̃ (n, P) of all columns of the state."""
        gradient = residual[self.positions]
        return 0.5 * np.einsum("msp,msp->m", gradient, gradient)

    def follow(self, group: int, new: np.ndarray) -> None:
        """Take a group into S with its new rows (k, n) of the factor."""


class _Single(_Length):
    """½ max_j b̃_gj²."""

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values."""
        gradient = residual[self.positions]
        largest: np.ndarray = np.einsum("msp,msp->ms", gradient, gradient).max(axis=1)
        return 0.5 * largest


class _Whitened(_Length):
    """½ b̃_gᵀ (G_gg)⁺ b̃_g, the whitened gradient."""

    def __init__(self, state: ForwardState, size: int) -> None:
        super().__init__(state, size)
        self.whitener = _whiteners(_gram_blocks(state, self.positions))

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the values."""
        white = self.whitener @ residual[self.positions]
        return 0.5 * np.einsum("msp,msp->m", white, white)


class _Gain(_Length):
    """F(S ∪ g) − F(S) = ½ b̃_gᵀ C̃_gg⁻¹ b̃_g with the residual blocks of groups not in S.

    Columns that depend linearly on S, or on earlier columns of their group, add nothing.
    """

    def __init__(self, state: ForwardState, size: int) -> None:
        super().__init__(state, size)
        self.blocks = _gram_blocks(state, self.positions)
        self.blocks[:, np.arange(size), np.arange(size)] += state.ridge
        self.floor = state.floor[self.positions]
        self.block_of = np.searchsorted(state.block_starts, self.groups, side="right")

    def of(self, residual: np.ndarray, blocks: np.ndarray | None = None) -> np.ndarray:
        """Return the values, with other residual blocks if there are any.

        Whether systems of a block of candidates are regular is decided block by block.
        """
        gradient = residual.take(self.positions, axis=0)
        blocks = self.blocks if blocks is None else blocks
        regular = _cholesky_gain(blocks, gradient, self.floor)
        if regular is not None:
            return regular
        gains = np.zeros(len(self.groups))
        for number in np.unique(self.block_of):
            of_block = self.block_of == number
            systems = blocks[of_block], gradient[of_block], self.floor[of_block]
            regular = _cholesky_gain(*systems)
            gains[of_block] = _elimination_gain(*systems) if regular is None else regular
        return gains

    def squares(self, new: np.ndarray) -> np.ndarray:
        """Return new_gᵀnew_g (m, s, s), which rows (k, n) of the factor take off C̃_gg."""
        of_groups = new.take(self.positions, axis=1).transpose(1, 2, 0)
        squares: np.ndarray = of_groups @ of_groups.transpose(0, 2, 1)
        return squares

    def follow(self, group: int, new: np.ndarray) -> None:
        """Forget the group, and take the new rows off the blocks of the others."""
        remaining = np.flatnonzero(self.groups != group)
        if len(remaining) < len(self.groups):
            for name in ("groups", "positions", "blocks", "floor", "block_of"):
                setattr(self, name, getattr(self, name).take(remaining, axis=0))
        self.blocks -= self.squares(new)


_VALUES = {"omp": _Whitened, "fr": _Gain, "omp-single": _Single, "omp-no-whiten": _Length}

CRITERIA = tuple(_VALUES)
"""Rules that give groups a value (Hu et al., Algorithm 1 and Section 2). With several targets
squares are summed over them; only ``fr`` knows of the ridge."""


def _gram_blocks(state: ForwardState, positions: np.ndarray) -> np.ndarray:
    """Return G_gg of groups, without ridge, shape (m, s, s)."""
    rows = state.places[positions][:, :, np.newaxis]
    columns = state.columns[positions][:, np.newaxis, :]
    return np.array(state.gram[rows, columns])


def _whiteners(blocks: np.ndarray) -> np.ndarray:
    """Λ^{-1/2}Uᵀ of each block UΛUᵀ (m, s, s), rows of negligible eigenvalues set to 0."""
    eigenvalues, vectors = np.linalg.eigh(blocks)
    size = blocks.shape[1]
    floor = eigenvalues[:, -1:] * (8 * np.finfo(np.float64).eps * max(size, 16))
    is_kept = eigenvalues > floor
    scale = np.where(is_kept, 1.0 / np.sqrt(np.where(is_kept, eigenvalues, 1.0)), 0.0)
    return np.ascontiguousarray(scale[:, :, None] * vectors.transpose(0, 2, 1))


def dependence_rtol(n_columns: int) -> float:
    """Share of a column's variance below which its residual is taken for rounding."""
    return 32 * float(np.finfo(np.float64).eps) * max(n_columns, 16)


def _cholesky_gain(
    blocks: np.ndarray, gradient: np.ndarray, floor: np.ndarray
) -> np.ndarray | None:
    """½ bᵀC⁻¹b for m systems (m, s, s), or None if one of them is singular."""
    if blocks.shape[1] == 1:
        pivots = blocks[:, 0, 0]
        right = gradient[:, 0]
        if np.any(pivots <= floor[:, 0]):
            return None
        return 0.5 * np.einsum("mp,mp->m", right, right) / pivots
    try:
        factor = np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        return None
    pivots = np.einsum("mss->ms", factor) ** 2
    if (pivots <= floor).any():
        return None
    solved = np.linalg.solve(factor, gradient)
    return 0.5 * np.einsum("msp,msp->m", solved, solved)


def _elimination_gain(blocks: np.ndarray, gradient: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """½ bᵀC⁻¹b for m systems that may be singular.

    A column whose pivot is at most its floor depends on earlier ones and is skipped.
    """
    size = blocks.shape[1]
    # Systems last: each elimination step is one operation on contiguous rows of them.
    systems = np.concatenate((blocks, gradient), axis=2)
    work = systems.transpose(1, 2, 0).copy()
    gain = np.zeros(len(blocks))
    for j, least in enumerate(floor.T):
        pivot = work[j, j]
        row = work[j, j + 1 :]
        is_independent = pivot > least
        inverse = np.divide(1.0, pivot, out=np.zeros_like(pivot), where=is_independent)
        scaled = row * inverse
        n_left = size - j - 1
        right = row[n_left:]
        solved = scaled[n_left:]
        gain += np.einsum("pm,pm->m", right, solved)
        later = work[j + 1 :, j + 1 :]
        later -= scaled[:n_left, np.newaxis] * row
    return 0.5 * gain


def _factor(block: np.ndarray, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Upper Cholesky factor of the independent columns of a block, and which they are."""
    from scipy.linalg.lapack import dpotrf

    upper, info = dpotrf(block, lower=0, clean=1)
    if info == 0 and np.all(np.diagonal(upper) ** 2 > floor):
        return upper, np.arange(len(block))
    schur = block.copy()
    factor = np.zeros_like(block)
    kept = []
    for j in range(len(block)):
        row = schur[j, j:]
        pivot = row[0]
        if pivot > floor[j]:
            kept.append(j)
            row = row / np.sqrt(pivot)
            factor[j, j:] = row
            schur[j:, j:] -= np.outer(row, row)
    independent = np.array(kept, dtype=np.intp)
    return factor[np.ix_(independent, independent)], independent


def _solve_rows(upper: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Overwrite `right` (k, d), C-ordered, with U⁻ᵀ `right`."""
    from scipy.linalg.blas import dtrsm

    if not right.size:
        return right
    # BLAS is column-major: seen from there it is the transpose, so X U = rightᵀ from the right.
    return dtrsm(1.0, upper, right.T, side=1, lower=0, overwrite_b=1).T
