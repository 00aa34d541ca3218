"""The weights of rows with gaps: the moments of pairs that they are solved from.

A row that has the attributes S, and lacks others, is predicted with weights of its own,

    w_S = (A⁺_SS + c ν I)⁻¹ b̂_S,

in units of the attributes' scales (see `from_pairs`). A⁺ is A without its negative eigenvalues. c
has the least loss in held-out moments, plus ¾ of its standard error, over patterns of gaps drawn
with the shares of values that were observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from distfms.methods.attribute_efficient.from_pairs import (
    CLIPPED,
    MOST_DECOMPOSED,
    RIDGE_DOUBT,
    FoldPairs,
    PairMoments,
    Spectrum,
    Units,
    krylov,
)
from distfms.methods.attribute_efficient.predictors import Gaps

#: Multiples c of the noise level, and those of attributes too many for all eigenvalues of A.
MULTIPLES = (0.125, *CLIPPED)
SAFE_MULTIPLES = CLIPPED[3:]
#: Patterns of gaps that c is chosen for.
N_PATTERNS = 16


@dataclass(frozen=True, eq=False)
class _Standard:
    """A⁺ and b̂ of attributes divided by `scale`; ν."""

    gram: np.ndarray
    cross: np.ndarray
    scale: np.ndarray
    noise: float

    @classmethod
    def of(cls, moments: PairMoments, units: Units) -> Self:
        spectrum = Spectrum.of(moments, units)
        scale = spectrum.scale
        if len(scale) <= MOST_DECOMPOSED:
            gram = (spectrum.vectors * np.maximum(spectrum.values, 0.0)) @ spectrum.vectors.T
        else:
            gram = moments.gram / np.outer(scale, scale)
        return cls(gram, moments.cross / scale, scale, spectrum.noise)

    def weights(self, seen: np.ndarray, multiples: tuple[float, ...]) -> np.ndarray:
        """Return the weights of patterns (n, v) at multiples of ν, shape (n_multiples · n, v)."""
        weights = np.zeros((len(multiples), *seen.shape))
        for number, pattern in enumerate(seen):
            columns = np.flatnonzero(pattern)
            gram = self.gram[np.ix_(columns, columns)]
            cross = self.cross[columns]
            if len(columns) <= MOST_DECOMPOSED:
                values, vectors = np.linalg.eigh(gram)
            else:
                values, vectors = krylov(gram.__matmul__, cross)
            values = np.maximum(values, 0.0)
            rotated = vectors.T @ cross
            for place, multiple in enumerate(multiples):
                solved = vectors @ (rotated / (values + multiple * self.noise))
                weights[place, number, columns] = solved / self.scale[columns]
        return weights.reshape(-1, seen.shape[1])


@np.errstate(over="ignore", invalid="ignore")  # of weights of what hardly varies in a fold
def solve_gaps(folds: FoldPairs, units: Units) -> Gaps:
    """Return what rows with gaps are predicted from, of folds.

    Where no c is better than the mean, all weights are 0.
    """
    share = folds.counts[folds.varies] / folds.n_rows
    uniform = np.random.default_rng(0).random((N_PATTERNS, len(share)))
    patterns = uniform < share
    multiples: tuple[float, ...] = MULTIPLES
    if len(share) > MOST_DECOMPOSED:
        multiples = SAFE_MULTIPLES
    doubted = _doubted_losses(folds, units, patterns, multiples)
    best = int(np.argmin(doubted))
    whole, _, mean = folds.without(None)
    moments = _Standard.of(whole, units)
    ridge = multiples[best] * moments.noise
    gram = moments.gram + ridge * np.eye(len(share))
    cross = moments.cross
    if doubted[best] >= 0.0:
        cross = np.zeros_like(cross)
    columns = [*folds.varies, -1]
    return Gaps(folds.varies, gram, cross, moments.scale, mean[columns])


def _doubted_losses(
    folds: FoldPairs, units: Units, patterns: np.ndarray, multiples: tuple[float, ...]
) -> np.ndarray:
    """Return the losses of multiples in held-out moments, plus a share of their standard errors."""
    squares = []
    products = []
    for fold in range(folds.n_folds):
        train, held_out, _ = folds.without(fold)
        assert held_out is not None
        weights = _Standard.of(train, units).weights(patterns, multiples)
        squares.append(held_out.explained_by(weights))
        products.append(weights @ held_out.cross)
    product = np.mean(products, axis=0)
    least = product**2 / folds.target_variance
    losses = np.maximum(np.mean(squares, axis=0), least) - 2.0 * product
    of_folds = np.array(squares) - 2.0 * np.array(products)
    by_multiple = of_folds.reshape(folds.n_folds, -1, N_PATTERNS)
    means = by_multiple.mean(axis=2)
    error = means.std(axis=0, ddof=1) / np.sqrt(folds.n_folds)
    loss = losses.reshape(-1, N_PATTERNS).mean(axis=1)
    doubt, _ = RIDGE_DOUBT
    return np.nan_to_num(loss + doubt * error, nan=np.inf)
