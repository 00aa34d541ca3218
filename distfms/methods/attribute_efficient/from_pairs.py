"""Regression from pairs of attributes: one solve on unbiased moments of what was observed together.

M says what was observed of n rows, c = Σ M their counts by attribute, C = MᵀM by pair. Available
cases give P_ij = Σ (x_i − μ_i)(x_j − μ_j) over rows with both and b̂_i = Σ (x_i − μ_i)(y − ȳ)/c_i.
With E the expected counts of pairs (Hájek) and κ = 1,

    A_ij = P_ij (1 + κ/E_ij) / (C_ij + κ),   V_ij = v_i v_j / E_ij,   A = U Λ Uᵀ,
    ν = max(−λ_min, 2 √(Σ V_ij / d)),        w = U (Uᵀ b̂ / (λ⁺ + c ν)).

λ⁺ is max(λ, 0) or √(λ² − ν²)₊. The constants c compete by held-out loss L = wᵀA_f w − 2 wᵀb̂_f on
folds; all of them, and the zero predictor, are averaged with weights that fall with L + 1.5 se.

References
----------
.. [1] P.-L. Loh and M. J. Wainwright, "High-dimensional regression with noisy and missing data",
   Annals of Statistics 40 (2012).
.. [2] J. Hájek, "Asymptotic theory of rejective sampling", Annals of Mathematical Statistics 35
   (1964).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from distfms.errors import DataError
from distfms.stats.base import merge_tree
from distfms.stats.comoments import CoMoments

#: κ: rows with a pair that count as seen beforehand, without covariance.
PRIOR = 1.0
#: Multiples c of the noise level, for clipped eigenvalues and for those of the semicircle.
CLIPPED = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SEMICIRCLE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
#: Ridges of full rows, relative to the mean variance.
FULL_RIDGES = tuple(10.0**e for e in range(-6, 3))
#: Points of the lasso's path, and its end relative to the smallest λ without any weight.
_N_LASSO, _LEAST_LASSO, _LASSO_STEPS = 30, 1e-2, 200
#: Standard errors over the folds that are added to a held-out loss; candidates then weigh
#: exp(−excess / (TEMPERATURE · standard error of the best)).
DOUBT, TEMPERATURE = 1.5, 0.25

_LEAST, _TINY = 1e-300, 1e-150


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Moments of d attributes that vary and the target, from pairs that were observed.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        A, shrunk towards 0 where a pair was seen less than expected.
    cross : ndarray of shape (d,)
        b̂, with the target.
    variance : ndarray of shape (d,)
        v.
    noise : ndarray of shape (d, d)
        V, the sampling variance of the entries of A.
    """

    gram: np.ndarray
    cross: np.ndarray
    variance: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(cls, moments: CoMoments, varies: np.ndarray) -> Self:
        """Make them of co-moments whose last column is the target, of some attributes (d,)."""
        n, counts = moments.n_samples, moments.observed_weight[:-1]
        expected = expected_pairs(counts / n, n)[np.ix_(varies, varies)]
        expected = np.where(expected > 0, expected, 1.0)  # where there is nothing to divide
        own = moments.take(np.append(varies, moments.n_columns - 1))
        divisor = np.maximum(counts[varies], 1.0)
        variance = np.diagonal(own.comoment)[:-1] / divisor
        variance = np.where(variance > 0, variance, _TINY)
        pairs = own.pair_counts()[:-1, :-1]
        gram = own.comoment[:-1, :-1] * (1.0 + PRIOR / expected) / (pairs + PRIOR)
        np.fill_diagonal(gram, variance)
        noise = np.outer(variance, variance) / expected
        return cls(gram, own.comoment[:-1, -1] / divisor, variance, noise)


def expected_pairs(share: np.ndarray, n_rows: int) -> np.ndarray:
    """Return E, the expected counts of pairs where attributes are seen in shares of n rows (d,)."""
    rest = 1.0 - share
    spread = float(share @ rest)
    factor = 1.0 - np.outer(rest, rest) / spread if spread > 0 else 1.0
    return n_rows * np.outer(share, share) * np.maximum(factor, 0.0)


#: Weights of candidates (n, d) and the noise level, from moments.
Candidates = Callable[[PairMoments], tuple[np.ndarray, float]]


def ridge_candidates(moments: PairMoments) -> tuple[np.ndarray, float]:
    """Return the candidates of the ridge, and the noise level of unit attributes.

    Each is tried for attributes as they come and for those divided by their standard deviations;
    the last is zero.
    """
    plain, unit = _spectra(moments)
    zero = np.zeros_like(moments.cross)
    return np.vstack([*plain.solutions(), *unit.solutions(), zero]), unit.noise


def lasso_candidates(moments: PairMoments) -> tuple[np.ndarray, float]:
    """Return points of the lasso's path on clipped moments of unit attributes, and zero."""
    _, unit = _spectra(moments)
    values = np.maximum(unit.values, CLIPPED[0] * unit.noise)
    gram, cross = (unit.vectors * values) @ unit.vectors.T, unit.vectors @ unit.rotated
    length, weights, path = 1.0 / values[-1], np.zeros_like(cross), [np.zeros_like(cross)]
    for penalty in np.abs(cross).max() * np.geomspace(1.0, _LEAST_LASSO, _N_LASSO)[1:]:
        ahead, pace = weights, 1.0
        for _ in range(_LASSO_STEPS):  # accelerated proximal steps (Beck and Teboulle 2009)
            moved = ahead - length * (gram @ ahead - cross)
            before, weights = weights, np.sign(moved) * np.maximum(abs(moved) - length * penalty, 0)
            last, pace = pace, (1.0 + np.sqrt(1.0 + 4.0 * pace**2)) / 2.0
            ahead = weights + (last - 1.0) / pace * (weights - before)
        path.append(weights / unit.scale)
    return np.array(path), unit.noise


def full_candidates(moments: PairMoments) -> tuple[np.ndarray, float]:
    """Return ridges of rows that were observed in full, for attributes of both scales."""
    found = []
    for spectrum in _spectra(moments):
        level = float(np.mean(np.maximum(spectrum.values, 0.0)))
        found += [spectrum.at(np.maximum(spectrum.values, 0.0) + c * level) for c in FULL_RIDGES]
    return np.vstack(found), 0.0


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenvalues and vectors of A for attributes divided by `scale` (d,); b̂ in these; ν."""

    values: np.ndarray
    vectors: np.ndarray
    rotated: np.ndarray
    scale: np.ndarray
    noise: float

    @classmethod
    def of(cls, moments: PairMoments, scale: np.ndarray) -> Self:
        v = moments.variance / scale**2
        uneven = (moments.noise / np.outer(scale, scale) ** 2).sum(axis=1) / v
        level = float(v @ uneven / v.sum())
        if level > 0:
            scale = scale * np.sqrt(np.maximum(1.0, uneven / level))
        both = np.outer(scale, scale)
        values, vectors = np.linalg.eigh(moments.gram / both)
        chance = 2.0 * np.sqrt((moments.noise / both**2).sum() / len(v))
        noise = float(max(-values[0], chance, _LEAST))
        return cls(values, vectors, vectors.T @ (moments.cross / scale), scale, noise)

    def at(self, spectrum: np.ndarray) -> np.ndarray:
        """Return the weights at a regularised spectrum, for attributes as they come."""
        found: np.ndarray = self.vectors @ (self.rotated / spectrum) / self.scale
        return found

    def solutions(self) -> np.ndarray:
        """Return the weights at all multiples of the noise level."""
        clipped = np.maximum(self.values, 0.0)
        semicircle = np.sqrt(np.maximum(self.values**2 - self.noise**2, 0.0))
        spectra = [clipped + c * self.noise for c in CLIPPED]
        spectra += [semicircle + c * self.noise for c in SEMICIRCLE]
        return np.array([self.at(spectrum) for spectrum in spectra])


def _spectra(moments: PairMoments) -> tuple[_Spectrum, _Spectrum]:
    """Decompose the moments of attributes as they come, and of unit ones."""
    v = moments.variance
    return _Spectrum.of(moments, np.ones_like(v)), _Spectrum.of(moments, np.sqrt(v))


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights (d,) and intercept of a solve.

    `noise_level` is ν of unit attributes, `shares` what each candidate weighs, and
    `held_out_loss` that of the best one, less the variance of the target.
    """

    weights: np.ndarray
    intercept: float
    noise_level: float
    shares: np.ndarray
    held_out_loss: float


def solve(folds: Sequence[CoMoments], candidates: Candidates = ridge_candidates) -> Solution:
    """Solve from the co-moments of two folds or more, whose last column is the target.

    Candidates are averaged, those of full rows excepted, of which the best is taken.
    """
    whole, losses = merge_tree(list(folds)), []
    varies = np.flatnonzero(~whole.constant_columns()[:-1])
    if not varies.size:
        raise DataError("No attribute varies among what was observed: there is nothing to learn.")
    for f, own in enumerate(folds):
        train = merge_tree([part for g, part in enumerate(folds) if g != f])
        tried, _ = candidates(PairMoments.of(train, varies))
        held_out = PairMoments.of(own.about(train.mean), varies)
        squares = np.einsum("ni,ij,nj->n", tried, held_out.gram, tried)
        losses.append(squares - 2.0 * tried @ held_out.cross)
    loss = np.mean(losses, axis=0)
    if candidates is full_candidates:
        shares = (np.arange(len(loss)) == np.argmin(loss)).astype(float)
    else:
        error = np.std(losses, axis=0, ddof=1) / np.sqrt(len(folds))
        doubted = loss + DOUBT * error
        width = max(TEMPERATURE * float(error[np.argmin(doubted)]), _LEAST)
        with np.errstate(over="ignore"):  # zero is known without error
            shares = np.exp(-(doubted - doubted.min()) / width)
        shares /= shares.sum()
    tried, noise = candidates(PairMoments.of(whole, varies))
    weights, mean = np.zeros(whole.n_columns - 1), whole.mean
    weights[varies] = shares @ tried
    intercept = float(mean[-1] - mean[:-1] @ weights)
    return Solution(weights, intercept, noise, shares, float(loss[np.argmax(shares)]))
