"""Greedy search for Full with the candidates spread over actors.

Each step tells all actors what was bought last, in O(|S|) numbers, and every shard answers with
its best candidate; the driver picks by score, then by index. It holds names, costs and the
selected attributes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from distfms.errors import SpecError
from distfms.methods.multiselect.blocks import TILE_COLUMNS, CandidateBlock, CandidateStatistics
from distfms.methods.multiselect.greedy import (
    BUDGET_TOLERANCE,
    Criterion,
    SelectionPath,
    Status,
    check_choice,
)
from distfms.methods.multiselect.support import Entry, Support
from distfms.methods.pool import Pool


class Shard(Protocol):
    """Small picklable description of a run of attributes, from which actors build their state."""

    def load(self) -> CandidateStatistics:
        """Read or compute the statistics of the attributes."""


@dataclass(frozen=True, eq=False)
class LoadedShard:
    """A shard whose statistics travel with it; for statistics that are in memory anyway.

    Attributes
    ----------
    statistics : CandidateStatistics
    """

    statistics: CandidateStatistics

    def load(self) -> CandidateStatistics:
        """Return the statistics."""
        return self.statistics


@dataclass(frozen=True, eq=False)
class Offer:
    """Best candidate of a shard.

    Attributes
    ----------
    attribute : int
        −1 if none can be bought.
    score : float
        Its gain, per unit of cost if so asked.
    entry : Entry or None
        What the others need to know of it if it is new.
    any_gain : bool
        Whether any attribute of the shard has a positive gain, affordable or not.
    n_candidates : int
        Attributes of the shard that were compared: those that are not constant.
    """

    attribute: int
    score: float
    entry: Entry | None
    any_gain: bool
    n_candidates: int


@dataclass(frozen=True, eq=False)
class Turn:
    """One message to all shards.

    Attributes
    ----------
    bought : int
        Attribute of which a judgment was bought last; −1 to begin with nothing bought.
    entry : Entry or None
        From its shard's offer.
    spent, limit : float
        Cost so far, and what it may come to.
    per_cost : bool
        Whether scores are gains per unit of cost.
    """

    bought: int
    entry: Entry | None
    spent: float
    limit: float
    per_cost: bool


def open_block(shard: Shard, tile_columns: int = TILE_COLUMNS) -> CandidateBlock:
    """Build the state of a shard, on its actor."""
    return CandidateBlock(shard.load(), tile_columns=tile_columns)


def follow(block: CandidateBlock, turn: Turn) -> tuple[CandidateBlock, Offer]:
    """Take the last purchase and answer with the best candidate, on an actor."""
    if turn.bought < 0:
        block.reset()
    else:
        block.take(turn.bought, turn.entry)
    return block, best_offer(block, turn)


def best_offer(block: CandidateBlock, turn: Turn) -> Offer:
    """Find the own attribute that scores most among those still affordable."""
    gains, costs = block.gains(), block.costs
    positive = gains > 0
    usable = positive & (turn.spent + costs <= turn.limit)
    if not usable.any():
        return Offer(-1, -np.inf, None, bool(positive.any()), block.n_candidates)
    score = np.where(usable, gains / costs if turn.per_cost else gains, -np.inf)
    best = int(np.argmax(score))
    attribute = block.start + best
    return Offer(attribute, float(score[best]), block.entry(attribute), True, block.n_candidates)


def select_distributed(
    pool: Pool,
    shards: Sequence[Shard],
    budget: float,
    *,
    names: tuple[str, ...],
    costs: np.ndarray,
    ridge: float,
    label_variance: float,
    criterion: Criterion = "gain_per_cost",
    tile_columns: int = TILE_COLUMNS,
) -> tuple[SelectionPath, Support]:
    """Decide how many judgments of each attribute to buy, for Full, with a pool of actors.

    Parameters
    ----------
    pool : Pool
    shards : sequence of Shard
        Runs of attributes in ascending order that cover each once and begin at multiples of
        `tile_columns`; see :func:`shard_starts`.
    budget : float
        Positive, and at least what the cheapest attribute costs.
    names : tuple of str, length d
    costs : ndarray of shape (d,)
    ridge, label_variance : float
        As in the shards' statistics.
    criterion : {"gain_per_cost", "gain", "best"}, default="gain_per_cost"
        As in :func:`~distfms.methods.multiselect.greedy.select`.
    tile_columns : int
        Columns computed together.

    Returns
    -------
    path : SelectionPath
        The same, to the bit, as that of ``select`` in one process on the same Σ, whatever the
        pool and the number of shards.
    support : Support
        The selected attributes with their covariance.

    Raises
    ------
    SpecError
        The criterion is unknown.

    Notes
    -----
    A step sends O(|S|) numbers to every actor and gets O(|S|) back from each. The driver's memory
    is O(d + |S|²), that of an actor O(d·n + n·|S|) for its n attributes.
    """
    check_choice("criterion", criterion, ("gain_per_cost", "gain", "best"))
    pool.start(partial(open_block, tile_columns=tile_columns), shards)
    per_cost = bool((costs != costs[0]).any())
    search = _Search(pool, budget, names, costs, ridge, label_variance)
    if criterion != "best":
        return search.run(criterion, per_cost and criterion == "gain_per_cost")
    found = search.run("gain_per_cost", per_cost)
    if not per_cost:
        return found
    other = search.run("gain", False)
    path, support = other if other[1].objective > found[1].objective else found
    n_candidates = found[0].n_candidates + other[0].n_candidates
    return replace(path, n_candidates=n_candidates), support


@dataclass(frozen=True, eq=False)
class _Search:
    """One search after the other on the same pool."""

    pool: Pool
    budget: float
    names: tuple[str, ...]
    costs: np.ndarray
    ridge: float
    label_variance: float

    def run(self, criterion: str, per_cost: bool) -> tuple[SelectionPath, Support]:
        """Buy greedily from nothing until the budget or the gains are used up."""
        mirror = self._mirror()
        limit = self.budget * (1.0 + BUDGET_TOLERANCE)
        turn = Turn(-1, None, 0.0, limit, per_cost)
        attributes: list[int] = []
        objective: list[float] = []
        n_candidates = 0
        while True:
            offers = self.pool.step(follow, turn)
            n_candidates += sum(offer.n_candidates for offer in offers)
            # The first of equal scores has the lowest index, as shards are in ascending order.
            best = max(offers, key=lambda offer: offer.score)
            if best.attribute < 0:
                any_gain = any(offer.any_gain for offer in offers)
                status = self._status(turn.spent, any_gain)
                path = self._path(criterion, status, attributes, objective)
                return replace(path, n_candidates=n_candidates), mirror.support
            mirror.take(best.attribute, best.entry)
            attributes.append(best.attribute)
            objective.append(mirror.objective)
            spent = turn.spent + float(self.costs[best.attribute])
            turn = Turn(best.attribute, best.entry, spent, limit, per_cost)

    def _mirror(self) -> CandidateBlock:
        """Block of no candidates, by which the driver follows the purchases."""
        d, none = len(self.names), np.zeros(0)
        nothing = np.zeros((0, d))
        return CandidateBlock(
            CandidateStatistics(
                d, nothing, none, none, none.astype(bool), none,
                self.ridge, self.label_variance, "none",
            )
        )  # fmt: skip

    def _status(self, spent: float, any_gain: bool) -> Status:
        if not any_gain:
            return "no_positive_gain"
        left = self.budget - spent > BUDGET_TOLERANCE * self.budget
        return "unaffordable" if left else "budget_spent"

    def _path(
        self, criterion: str, status: Status, attributes: list[int], objective: list[float]
    ) -> SelectionPath:
        return SelectionPath(
            algorithm="full",
            criterion=criterion,
            status=status,
            budget=float(self.budget),
            names=self.names,
            costs=self.costs,
            attributes=np.array(attributes, dtype=np.int64),
            counts=np.ones(len(attributes), dtype=np.int64),
            objective=np.array(objective, dtype=float),
            label_variance=self.label_variance,
        )


def shard_starts(n_attributes: int, n_shards: int, tile_columns: int = TILE_COLUMNS) -> list[int]:
    """First attribute of each shard, and d: whole tiles, spread evenly.

    Parameters
    ----------
    n_attributes : int
        d, at least 1.
    n_shards : int
        At most so many; there are no empty ones.
    tile_columns : int

    Returns
    -------
    list of int
        Ascending, from 0 to d; one more than there are shards.

    Raises
    ------
    SpecError
        If less than one shard is asked for.
    """
    if n_shards < 1:
        raise SpecError(f"There must be at least 1 shard, not {n_shards}.")
    n_tiles = -(-n_attributes // tile_columns)
    edges = np.linspace(0, n_tiles, min(n_shards, n_tiles) + 1).round().astype(int)
    return [min(int(edge) * tile_columns, n_attributes) for edge in edges]
