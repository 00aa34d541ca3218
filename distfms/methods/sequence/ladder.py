"""At which prefixes of a sequence models are fitted that need the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

#: Number of groups up to which every prefix is one, and what each is multiplied by for the next.
_EACH, _STEP = 10, 1.125


@dataclass(frozen=True)
class Ladder:
    """Prefixes with models of their own; the whole sequence is always one of them.

    `prefixes` are numbers of groups, ``all``, or ``auto``: 1 to 12, 14, 16, 18, 20, 22, …, each
    1.125 times the one before. With `costs` they are the longest that each of these affords.
    """

    prefixes: Literal["auto", "all"] | tuple[int, ...] = "auto"
    costs: tuple[float, ...] | None = None

    def ends_at(self, length: int, n_groups: int, spent: float, cost: float) -> bool:
        """Return whether a prefix of so many groups, with its cost and that of the next, is one."""
        if self.costs is None:
            return length in self.numbers(n_groups)
        within = np.array(self.costs) * (1 + 1e-12)
        return bool(((within >= spent) & (within < spent + cost)).any())

    def of_path(self, spent: np.ndarray) -> list[int]:
        """Return the numbers of groups of the prefixes of a sequence, from their costs (K,)."""
        n_groups, costs = len(spent), np.diff(spent, append=np.inf)
        steps = enumerate(zip(spent, costs, strict=True), 1)
        return [k for k, (s, c) in steps if k == n_groups or self.ends_at(k, n_groups, s, c)]

    def numbers(self, n_groups: int) -> list[int]:
        """Return the numbers of groups, of so many in all."""
        if self.prefixes == "all":
            return list(range(1, n_groups + 1))
        if self.prefixes != "auto":
            return sorted({n for n in self.prefixes if n < n_groups} | {n_groups})
        found, rung = [], 1
        while rung < n_groups:
            found.append(rung)
            rung = rung + 1 if rung < _EACH else round(_STEP * rung)
        return [*found, n_groups]
