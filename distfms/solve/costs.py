"""What groups cost, given what has been paid already, and what a budget pays for.

The cost of a group g at S is c(g) plus every shared cost that g needs and no group of S needed (Hu,
Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear Prediction", section
3; costs that groups share are ours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

#: Share of a budget by which a sum that rounding has made larger may exceed it.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class SharedCost:
    """A cost that the first computed group of a set pays for all of the set, by group indices."""

    name: str
    groups: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class GroupCosts:
    """Costs of J groups.

    `own` (J,) are what groups cost themselves. `requires` are the groups that others are computed
    from, in the order in which to compute them; what they cost is shared with those others.
    """

    own: np.ndarray
    shared: tuple[SharedCost, ...] = ()
    requires: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def ones(cls, n_groups: int) -> GroupCosts:
        """Return costs of 1 each."""
        return cls(np.ones(n_groups))

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
    def differ(self) -> bool:
        """Whether one group may cost more than another."""
        return bool(self.shared or self.requires or np.ptp(self.own))

    @property
    def alone(self) -> np.ndarray:
        """Cost of each group when it is the first, shape (J,)."""
        return self.marginal(())

    def marginal(self, chosen: Sequence[int]) -> np.ndarray:
        """Cost of each group once `chosen` are computed, shape (J,)."""
        if not self.shared:
            return self.own
        is_paid = self._needs[list(chosen)].any(axis=0)
        unpaid_costs = np.where(is_paid, 0.0, self._shared_costs)
        return self.own + self._needs @ unpaid_costs

    def total(self, chosen: Sequence[int]) -> float:
        """Cost of some groups together."""
        is_paid = self._needs[list(chosen)].any(axis=0)
        return float(self.own[list(chosen)].sum() + self._shared_costs @ is_paid)

    def take(self, groups: Sequence[int]) -> GroupCosts:
        """Costs of some of the groups, renumbered; sets left without a group disappear."""
        position = {group: new for new, group in enumerate(groups)}

        def renumbered(members: Sequence[int]) -> tuple[int, ...]:
            return tuple(position[group] for group in members if group in position)

        shared = [SharedCost(s.name, renumbered(s.groups), s.cost) for s in self.shared]
        requires = {
            position[group]: renumbered(needed)
            for group, needed in self.requires.items()
            if group in position
        }
        still_shared = tuple(item for item in shared if item.groups)
        return GroupCosts(self.own[list(groups)], still_shared, requires)


def within(costs: np.ndarray, unspent: float, budget: float) -> np.ndarray:
    """Return which costs the rest of a budget pays for, but for rounding."""
    return costs <= unspent + _ROUNDING * budget


def longest_affordable(spent: ArrayLike, budget: float) -> int:
    """Count the leading steps whose running cost is at most `budget`.

    A budget that equals a running cost but for rounding (1e-12 of it) affords it.
    """
    return int(np.searchsorted(spent, budget + _ROUNDING * abs(budget), side="right"))
