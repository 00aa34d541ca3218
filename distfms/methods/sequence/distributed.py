"""Greedy sequencing with the columns spread over actors.

Each step tells all actors what the last group changes, in O(|g|·|S|) numbers, and every shard
answers with its best groups; the driver picks by score, then by index. It holds names, costs and
the factor of the selected columns only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from distfms.errors import SpecError
from distfms.methods.pool import Pool
from distfms.methods.sequence.blocks import TILE_COLUMNS, GroupBlock, GroupStatistics
from distfms.methods.sequence.greedy import fixed_order, is_best, scores, value_floor
from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.problem import SequenceOutline
from distfms.methods.sequence.residual import Pivot
from distfms.methods.sequence.trail import Cap, Trail


class Shard(Protocol):
    """Small picklable description of a run of groups, from which actors build their state."""

    def load(self) -> GroupStatistics:
        """Read or compute the statistics of the groups."""


@dataclass(frozen=True, eq=False)
class LoadedShard:
    """A shard whose statistics travel with it; for statistics that are in memory anyway.

    Attributes
    ----------
    statistics : GroupStatistics
    """

    statistics: GroupStatistics

    def load(self) -> GroupStatistics:
        """Return the statistics."""
        return self.statistics


@dataclass(eq=False)
class BlockState:
    """What an actor keeps of one shard.

    Attributes
    ----------
    block : GroupBlock
    open : ndarray of bool
        Which own groups are not selected.
    order : list of int
        Groups selected, own or not.
    """

    block: GroupBlock
    open: np.ndarray
    order: list[int]


@dataclass(frozen=True, eq=False)
class Turn:
    """One message to all shards.

    Attributes
    ----------
    group : int
        Selected last; −1 in the first turn.
    pivot : Pivot or None
        What that means, from its shard's offer.
    cap : Cap
        What the next step may choose from.
    cost_aware : bool
        Whether scores are values per cost.
    smallest : float
        Value that cannot be told from 0.
    """

    group: int
    pivot: Pivot | None
    cap: Cap
    cost_aware: bool
    smallest: float


@dataclass(frozen=True, eq=False)
class Offer:
    """A group that may be the best of all.

    Attributes
    ----------
    group : int
    score : float
    pivot : Pivot
    """

    group: int
    score: float
    pivot: Pivot


def open_block(shard: Shard, criterion: str, rtol: float | None, tile_columns: int) -> BlockState:
    """Build the state of a shard, on its actor."""
    block = GroupBlock(shard.load(), criterion, rtol=rtol, tile_columns=tile_columns)
    return BlockState(block, np.ones(block.last - block.first, dtype=bool), [])


def follow(state: BlockState, turn: Turn) -> tuple[BlockState, list[Offer]]:
    """Take the last step and answer with the best groups, on an actor."""
    if turn.pivot is not None:
        state.block.take(turn.group, turn.pivot)
        state.order.append(turn.group)
        if state.block.first <= turn.group < state.block.last:
            state.open[turn.group - state.block.first] = False
    return state, best_offers(state, turn)


def best_offers(state: BlockState, turn: Turn) -> list[Offer]:
    """Find the own groups one of which is the best of all if any own group is.

    That is the first of the groups whose score cannot be told from the best of all, which is not
    known here. It is among those that score more than all before them.
    """
    block = state.block
    own = slice(block.first, block.last)
    costs = block.costs.marginal(state.order)[own]
    allowed = state.open & turn.cap.allows(costs, block.first)
    score = scores(block.values(), costs if turn.cost_aware else None, allowed, turn.smallest)
    best = float(score.max())
    if best < 0:
        return []
    found: list[Offer] = []
    highest = -1.0
    for at in np.flatnonzero(is_best(score, best)).tolist():
        if score[at] > highest:
            highest = float(score[at])
            group = block.first + at
            found.append(Offer(group, highest, block.pivot(group)))
    return found


def sequence_distributed(
    pool: Pool,
    shards: Sequence[Shard],
    outline: SequenceOutline,
    criterion: str = "fr",
    *,
    cost_aware: bool = True,
    doubling: bool = False,
    order: Sequence[int] | None = None,
    seed: int = 0,
    max_groups: int | None = None,
    rtol: float | None = None,
    tile_columns: int = TILE_COLUMNS,
) -> SequencePath:
    """Put the groups of a problem in order with a pool of actors.

    Parameters
    ----------
    pool : Pool
    shards : sequence of Shard
        Runs of groups that cover each once and are made of whole tiles, see `block_starts`.
    outline : SequenceOutline
    criterion, cost_aware, doubling, order, seed, max_groups, rtol, tile_columns
        As for :func:`~distfms.methods.sequence.greedy.sequence`.

    Returns
    -------
    SequencePath
        The same, to the bit, as that of ``sequence`` in one process on the same statistics,
        whatever the pool and the number of shards.

    Raises
    ------
    SpecError
        As ``sequence``.

    Notes
    -----
    A step sends O(|g|·|S|) numbers to every actor and gets as many back. The driver's memory is
    O(D + |S|²), that of an actor O(n·D + n·|S|) for its n columns.
    """
    fixed = fixed_order(len(outline.groups), criterion, order, seed)
    if fixed is not None and doubling:
        raise SpecError(f"doubling chooses among groups; criterion {criterion!r} has no choice.")
    rule = "omp-no-whiten" if fixed is not None else criterion
    pool.start(partial(open_block, criterion=rule, rtol=rtol, tile_columns=tile_columns), shards)
    trail = Trail(outline)
    n_steps = len(outline.groups) if fixed is None else len(fixed)
    group, pivot, smallest = -1, None, value_floor(outline)
    for step in range(n_steps if max_groups is None else min(max_groups, n_steps)):
        costs = outline.costs.marginal(trail.order)
        cap = Cap(only=fixed[step]) if fixed is not None else trail.cap(costs, doubling)
        turn = Turn(group, pivot, cap, cost_aware, smallest)
        offers = [offer for found in pool.step(follow, turn) for offer in found]
        best = max(offer.score for offer in offers)
        chosen = min((o for o in offers if is_best(np.array(o.score), best)), key=lambda o: o.group)
        group, pivot = chosen.group, chosen.pivot
        trail.add(group, float(costs[group]), pivot)
    return trail.path(criterion, cost_aware, doubling)
