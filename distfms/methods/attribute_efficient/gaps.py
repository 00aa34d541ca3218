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
MULTIPLES, SAFE_MULTIPLES = (0.125, *CLIPPED), CLIPPED[3:]
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
        own = Spectrum.of(moments, units)
        gram = moments.gram / np.outer(own.scale, own.scale)
        if len(gram) <= MOST_DECOMPOSED:
            gram = (own.vectors * np.maximum(own.values, 0.0)) @ own.vectors.T
        return cls(gram, moments.cross / own.scale, own.scale, own.noise)

    def weights(self, seen: np.ndarray, multiples: tuple[float, ...]) -> np.ndarray:
        """Return the weights of patterns (n, v) at multiples of ν, shape (n_multiples · n, v)."""
        found = np.zeros((len(multiples), *seen.shape))
        for number, own in enumerate(seen):
            at = np.flatnonzero(own)
            gram, cross = self.gram[np.ix_(at, at)], self.cross[at]
            if len(at) <= MOST_DECOMPOSED:
                values, vectors = np.linalg.eigh(gram)
            else:
                values, vectors = krylov(gram.__matmul__, cross)
            rotated = vectors.T @ cross
            for place, multiple in enumerate(multiples):
                spectrum = np.maximum(values, 0.0) + multiple * self.noise
                found[place, number, at] = vectors @ (rotated / spectrum) / self.scale[at]
        return found.reshape(-1, seen.shape[1])


@np.errstate(over="ignore", invalid="ignore")  # of weights of what hardly varies in a fold
def solve_gaps(folds: FoldPairs, units: Units) -> Gaps:
    """Return what rows with gaps are predicted from, of folds.

    Where no c is better than the mean, all weights are 0.
    """
    share = (folds.counts / folds.n_rows)[folds.varies]
    seen = np.random.default_rng(0).random((N_PATTERNS, len(share))) < share
    multiples = MULTIPLES if len(share) <= MOST_DECOMPOSED else SAFE_MULTIPLES
    squares, products = [], []
    for fold in range(folds.n_folds):
        train, held_out, _ = folds.without(fold)
        assert held_out is not None
        w = _Standard.of(train, units).weights(seen, multiples)
        squares.append((w * held_out.gram_times(w.T).T).sum(axis=1))
        products.append(w @ held_out.cross)
    product, shape = np.mean(products, axis=0), (-1, N_PATTERNS)
    square = np.maximum(np.mean(squares, axis=0), product**2 / folds.target_variance)
    losses = (np.array(squares) - 2.0 * np.array(products)).reshape(len(squares), *shape)
    error = losses.mean(axis=2).std(axis=0, ddof=1) / np.sqrt(folds.n_folds)
    doubted = (square - 2.0 * product).reshape(shape).mean(axis=1) + RIDGE_DOUBT[0] * error
    doubted = np.nan_to_num(doubted, nan=np.inf)
    whole, _, mean = folds.without(None)
    own, best = _Standard.of(whole, units), int(np.argmin(doubted))
    gram = own.gram + multiples[best] * own.noise * np.eye(len(share))
    cross = own.cross * (doubted[best] < 0.0)
    return Gaps(folds.varies, gram, cross, own.scale, mean[[*folds.varies, -1]])
