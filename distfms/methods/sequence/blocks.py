"""Groups in blocks: residuals and values of a run of groups, for one process or one actor.

Everything is computed in tiles: runs of groups with up to a fixed number of columns, cut the same
way whoever holds them. A block holds whole tiles; so one process with all of them and actors with
some each do the very same operations, and come to the same bits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from distfms.methods.sequence.costs import GroupCosts
from distfms.methods.sequence.criteria import make_criterion
from distfms.methods.sequence.groups import FeatureGroups
from distfms.methods.sequence.problem import SequenceOutline, SequenceProblem
from distfms.methods.sequence.residual import Pivot, ResidualGram
from distfms.stats.comoments import CoMoments

#: Columns up to which groups share a tile; a larger group is a tile of its own.
TILE_COLUMNS = 1024

#: Rows of a block that are standardised at a time: what they take beside it is little.
_ROWS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """Standardised statistics of a run of groups ``[first, last)`` of a problem.

    Attributes
    ----------
    first, last : int
        Groups of the block.
    columns : numpy.ndarray of int, shape (n,)
        Columns of these groups, ascending.
    gram : numpy.ndarray of shape (n, D)
        Their rows of XᵀX/n, without the ridge.
    target : numpy.ndarray of shape (n, P)
        Their rows of XᵀY/n.
    groups : FeatureGroups
        All groups.
    costs : GroupCosts
        Of all groups.
    ridge : float
        λ.
    """

    first: int
    last: int
    columns: np.ndarray
    gram: np.ndarray
    target: np.ndarray
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float

    @classmethod
    def of(
        cls, problem: SequenceProblem, first: int = 0, last: int | None = None
    ) -> GroupStatistics:
        """Cut a run of groups out of a problem; views where their columns are a run too.

        Parameters
        ----------
        problem : SequenceProblem
        first, last : int
            By default all groups.
        """
        last = len(problem.groups) if last is None else last
        columns = group_columns(problem.groups, first, last)
        own = _run(columns)
        return cls(
            first,
            last,
            columns,
            problem.gram[own],
            problem.target[own],
            problem.groups,
            problem.costs,
            problem.ridge,
        )

    @classmethod
    def from_comoments(
        cls, block: CoMoments, outline: SequenceOutline, first: int, last: int
    ) -> GroupStatistics:
        """Standardise rows of co-moments, in their memory, which are lost.

        Parameters
        ----------
        block : CoMoments
            Of data whose columns are the features, then the targets; holds the columns of the
            groups, and as rows nothing but them and constant ones. Missing values count as the
            mean.
        outline : SequenceOutline
            Of all groups.
        first, last : int
            Groups of the block, at least one.
        """
        scaling, weight, matrix = outline.scaling, block.weight, block.comoment
        kept, n_features = scaling.kept, len(scaling.feature_names)
        columns, scale = group_columns(outline.groups, first, last), scaling.scale[kept]
        own = kept[columns] - block.start
        target = matrix[own, n_features:] / weight
        target /= np.outer(scale[columns], scaling.target_scale)
        # Rows only move up and columns to the left, so that nothing is lost that is yet to come.
        for low in range(0, len(columns), _ROWS_AT_ONCE):
            rows = slice(low, low + _ROWS_AT_ONCE)
            part = matrix[own[rows]][:, kept]
            part /= weight
            part /= np.outer(scale[columns[rows]], scale)
            part[np.arange(len(part)), columns[rows]] = 1.0
            matrix[low : low + len(part), : len(kept)] = part
        gram = matrix[: len(columns), : len(kept)]
        return cls(first, last, columns, gram, target, outline.groups, outline.costs, outline.ridge)


class GroupBlock:
    """Block Cholesky and values of a run of groups, in tiles.

    Parameters
    ----------
    statistics : GroupStatistics
        Whole tiles, see `tile_starts`. Kept, not copied, if the columns of every tile are a run.
    criterion : str
        See `make_criterion`.
    rtol : float, optional
        See :class:`ResidualGram`.
    tile_columns : int

    Notes
    -----
    Memory beside the statistics is O(n·|S|), at most once more their size. A step costs
    O(n·|S|·|g|).
    """

    def __init__(
        self,
        statistics: GroupStatistics,
        criterion: str,
        *,
        rtol: float | None = None,
        tile_columns: int = TILE_COLUMNS,
    ) -> None:
        self.first, self.last = statistics.first, statistics.last
        self.costs = statistics.costs
        starts = tile_starts(statistics.groups, tile_columns, self.first, self.last)
        self._tiles = [
            _tile(statistics, low, high, rtol, criterion == "fr")
            for low, high in itertools.pairwise(starts)
        ]
        self._values = [make_criterion(criterion, tile) for tile in self._tiles]
        self._starts = np.array(starts[:-1], dtype=np.intp)

    def values(self) -> np.ndarray:
        """Value of every own group at the present S, shape (last − first,), in units of F."""
        return np.concatenate([value() for value in self._values])

    def pivot(self, group: int) -> Pivot:
        """Work out what appending an own group means to those who hold other columns."""
        at = self._tile_of(group)
        return self._tiles[at].pivot(group - int(self._starts[at]))

    def take(self, group: int, pivot: Pivot) -> None:
        """Append any group to S."""
        if self.first <= group < self.last:
            at = self._tile_of(group)
            self._tiles[at].close(group - int(self._starts[at]))
        for tile in self._tiles:
            tile.append(pivot)

    def select(self, group: int) -> Pivot:
        """Append an own group to S."""
        pivot = self.pivot(group)
        self.take(group, pivot)
        return pivot

    def _tile_of(self, group: int) -> int:
        return int(np.searchsorted(self._starts, group, side="right")) - 1


def tile_starts(
    groups: FeatureGroups, tile_columns: int = TILE_COLUMNS, first: int = 0, last: int | None = None
) -> list[int]:
    """First group of each tile, and the last one's end.

    Parameters
    ----------
    groups : FeatureGroups
    tile_columns : int
    first, last : int
        Only tiles of these groups; they must be tiles' bounds.

    Returns
    -------
    list of int
        From `first` to `last`. A tile takes groups in order until another would exceed
        `tile_columns`.
    """
    last = len(groups) if last is None else last
    starts, size = [first], 0
    for group in range(first, last):
        n = len(groups.columns[group])
        if size and size + n > tile_columns:
            starts.append(group)
            size = 0
        size += n
    return [*starts, last]


def block_starts(
    groups: FeatureGroups, n_blocks: int, tile_columns: int = TILE_COLUMNS
) -> list[int]:
    """First group of each block, and the number of groups: whole tiles of about equal columns.

    Parameters
    ----------
    groups : FeatureGroups
    n_blocks : int
        At most so many; there are no empty ones.
    tile_columns : int

    Returns
    -------
    list of int
        Ascending, from 0.
    """
    tiles = tile_starts(groups, tile_columns)
    columns = np.cumsum([0, *(len(group) for group in groups.columns)])[tiles]
    wanted = np.linspace(0, columns[-1], n_blocks + 1)[1:-1]
    middle = [tiles[int(np.argmin(np.abs(columns - w)))] for w in wanted]
    return sorted({0, *middle, len(groups)})


def group_columns(groups: FeatureGroups, first: int, last: int) -> np.ndarray:
    """Columns of a run of groups, ascending."""
    columns = [c for group in groups.columns[first:last] for c in group]
    return np.array(sorted(columns), dtype=np.intp)


def _tile(
    statistics: GroupStatistics, low: int, high: int, rtol: float | None, blocks: bool
) -> ResidualGram:
    columns = group_columns(statistics.groups, low, high)
    own = np.searchsorted(statistics.columns, columns)
    members = statistics.groups.columns[low:high]
    gram = statistics.gram[_run(own)]
    whole = len(columns) == gram.shape[1]
    return ResidualGram(
        # The Gram matrix is symmetric; rows of contiguous memory are read faster.
        gram if whole else gram.T,
        statistics.target[own],
        [np.searchsorted(columns, group).tolist() for group in members],
        columns=columns.tolist(),
        ridge=statistics.ridge,
        rtol=rtol,
        blocks=blocks,
    )


def _run(index: np.ndarray) -> slice | np.ndarray:
    """Write an ascending index as a slice where it is a run, so that no copy is made."""
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
