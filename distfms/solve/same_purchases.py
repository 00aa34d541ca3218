"""Purchases of judgments by the same raters for several attributes.

Rater j judges every attribute that is bought j times or more, so that averages of r[a] and r[b]
judgments have min(r[a], r[b]) raters in common, and with N the noise covariance of one rater's
judgments the averages have the covariance

    C[a, b] = Σ[a, b] + N[a, b] / max(r[a], r[b]),    N[a, a] = v[a].
"""

from __future__ import annotations

import numpy as np

from distfms.solve.buying import RANK_TOLERANCE, Problem, Purse, covariance_of_averages, inverse_of
from distfms.stats.base import ratio

#: Gains below this share of the objective are rounding.
NOISE_TOLERANCE = 1e-12


class SameState:
    """P = C⁻¹ and w = P b of the attributes S that have judgments by the same raters.

    It buys like :class:`distfms.solve.purchases.FullState`. Another judgment of a ∈ S
    changes its whole row c of C: with R the others, C_RR⁻¹ = P_RR − P_Ra P_aR / P_aa, so that

        gain = (b[a] − c C_RR⁻¹ b_R)² / (C′[a, a] − c C_RR⁻¹ c) − w[a]² / P[a, a].
    """

    def __init__(self, problem: Problem, repeats: np.ndarray | None = None) -> None:
        self.problem = problem
        self.costs = problem.costs
        n = problem.n_attributes
        self.repeats = np.zeros(n, np.int64) if repeats is None else repeats.copy()
        self._refresh()

    def _refresh(self) -> None:
        """Compute P = C⁻¹ and w = P b from the repeats."""
        problem = self.problem
        self.support = np.flatnonzero((self.repeats > 0) & problem.candidates)
        self._inverse = inverse_of(covariance_of_averages(problem, self.repeats, self.support))
        self.w = self._inverse @ problem.b[self.support]
        self.objective = float(self.w @ problem.b[self.support])

    def buy(self, attribute: int, count: int = 1) -> None:
        """Add `count` judgments of one attribute."""
        self.repeats[attribute] += count
        self._refresh()

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best purchase that can be afforded, and whether any judgment has a positive gain."""
        return purse.choice(self.gains(), self.costs, self.repeats)

    def gains(self) -> np.ndarray:
        """Gain of one more judgment, shape (d,); −inf for constant attributes."""
        problem = self.problem
        rows, diagonal = self._after_another()
        projected = rows @ self._inverse
        explained = np.einsum("ij,ij->i", projected, rows)
        expected = rows @ self.w
        # What is bought already gives up its part first.
        bought = self.support
        inverse = np.diagonal(self._inverse)
        share = ratio(1.0, inverse)
        onto_itself = projected[bought, np.arange(bought.size)]
        explained[bought] -= onto_itself**2 * share
        expected[bought] -= onto_itself * self.w * share
        lost = np.zeros(self.repeats.size)
        lost[bought] = self.w**2 * share
        unexplained = diagonal - explained
        is_independent = unexplained > RANK_TOLERANCE * diagonal
        usable = np.flatnonzero(problem.candidates & is_independent)
        squares = (problem.b - expected)[usable] ** 2
        gains = np.where(problem.candidates, 0.0, -np.inf)
        gains[usable] = squares / unexplained[usable] - lost[usable]
        is_noise = np.abs(gains) <= NOISE_TOLERANCE * self.objective
        return np.where(is_noise, 0.0, gains)

    def _after_another(self) -> tuple[np.ndarray, np.ndarray]:
        """Return c (d, |S|) of each attribute judged once more, 0 at itself, and C′[a, a] (d,)."""
        problem = self.problem
        bought = self.support
        n_after = self.repeats + 1
        noise = np.asarray(problem.noise_covariance)
        most = np.maximum.outer(n_after, self.repeats[bought])
        rows = problem.external[:, bought] + noise[:, bought] / most
        rows[bought, np.arange(bought.size)] = 0.0
        variance = np.diagonal(problem.external) + np.diagonal(noise) / n_after
        return rows, variance + problem.ridge
