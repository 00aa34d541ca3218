"""Which attributes are drawn, how often, and how long the steps are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

Penalty = Literal["ridge", "lasso"]
#: How the attributes of the point are drawn: alike, by known second moments, or by those that a
#: first phase with equal probabilities has estimated.
Sampling = Literal["uniform", "moments", "two_phase"]

#: What ε is multiplied with in the upper bounds on estimated moments (Algorithm 2).
_SMOOTHING = 13.0 / 6.0


def point_probabilities(penalty: Penalty, moments: np.ndarray) -> np.ndarray:
    """Return the probabilities q that minimise the bound on the gradient's size.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}
    moments : ndarray of shape (d,)
        Second moments E[x²], at least 0, not all 0.

    Returns
    -------
    ndarray of shape (d,)
        Proportional to √E[x²] for ridge (equation 2), to E[x²] for lasso (Lemma 4.3).
    """
    weights = np.sqrt(moments) if penalty == "ridge" else np.asarray(moments, dtype=np.float64)
    return weights / weights.sum()


def improvement_ratio(penalty: Penalty, moments: np.ndarray) -> float:
    """Return ρ in (0, 1]: drawing by the moments can save a factor of up to 1/ρ of the attributes.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}
    moments : ndarray of shape (d,)

    References
    ----------
    Section 5 of the paper: ‖s‖_½ / (d Σ s) for ridge, Σ s / (d max s) for lasso.
    """
    if penalty == "ridge":
        return float(np.sqrt(moments).sum() ** 2 / (len(moments) * moments.sum()))
    return float(moments.sum() / (len(moments) * moments.max()))


def alias_table(probabilities: np.ndarray) -> np.ndarray:
    """Prepare draws in O(1): for each cell, the share that is its own, and one other, shape (d, 2).

    References
    ----------
    Vose, "A linear algorithm for generating random numbers with a given distribution" (1991).
    """
    n = len(probabilities)
    table = np.column_stack((np.ones(n), np.arange(n, dtype=np.float64)))
    rest = probabilities * n
    # What is left at the end, 1 but for rounding, has its cell for itself.
    small = [i for i in range(n) if rest[i] < 1.0]
    large = [i for i in range(n) if rest[i] >= 1.0]
    while small and large:
        own, other = small.pop(), large[-1]
        table[own] = rest[own], other
        rest[other] -= 1.0 - rest[own]
        if rest[other] < 1.0:
            small.append(large.pop())
    return table


@dataclass(frozen=True)
class Phase:
    """One phase of learning: how many examples, and what is known of the second moments.

    `n_point` attributes are drawn for the point (k); `moments` (d,) are those of scaled attributes,
    None where all are drawn alike. Where a first phase has estimated them, `doubt` is ε.
    """

    penalty: Penalty
    n_attributes: int
    n_examples: int
    n_point: float
    bound: float
    moments: np.ndarray | None = None
    doubt: float | None = None

    def probabilities(self) -> np.ndarray:
        """Return q, shape (d,)."""
        if self.moments is None:
            return np.full(self.n_attributes, 1.0 / self.n_attributes)
        return point_probabilities(self.penalty, self.moments + _SMOOTHING * (self.doubt or 0.0))

    def step(self) -> float:
        """Return the step η that minimises the bound on the risk."""
        return self._ridge_step() if self.penalty == "ridge" else self._lasso_step()

    def _ridge_step(self) -> float:
        d, k, m = self.n_attributes, self.n_point, self.n_examples
        uniform = math.sqrt(k / (2.0 * d * m))  # 2B/(G√m), G² = 8B²d/k
        if self.moments is None:
            return uniform
        if self.doubt is None:
            norm = float(np.sqrt(self.moments).sum() ** 2)
            return 1.0 / math.sqrt(m * (norm / k + 1.0))  # Theorem 3.3
        norm = float(np.sqrt(2.0 * self.moments + 10.0 / 3.0 * self.doubt).sum() ** 2)
        norm += d * math.sqrt(5.0 / 3.0 * self.doubt * norm)
        own = math.sqrt(k / m / (2.0 * norm + k))
        return max(math.sqrt(k / (6.0 * d * m)), own)  # Theorem 3.4

    def _lasso_step(self) -> float:
        d, k, m = self.n_attributes, self.n_point, self.n_examples
        log = math.log(2.0 * d)
        if self.moments is None:
            # The minimum of Theorem 4.1 at G² = 8B²d/k, as Hazan and Koren have it.
            return math.sqrt(k * log / (40.0 * d * m)) / self.bound
        norm = float(self.moments.sum())
        if self.doubt is None:
            return math.sqrt(log / (20.0 * m * (norm / k + 1.0))) / self.bound  # Theorem 4.4
        norm = 8.0 * norm + 20.0 * d * min(self.doubt, 1.0)
        return math.sqrt(k * log / (20.0 * m * (norm + k))) / self.bound  # Theorem 4.5
