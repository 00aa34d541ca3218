"""Regression from pairs of attributes: one solve on unbiased moments of what was observed together.

M says what was observed of n rows, c = Σ M their counts by attribute, C = MᵀM by pair. Available
cases give P_ij = Σ (x_i − μ_i)(x_j − μ_j) over rows with both and b̂_i = Σ (x_i − μ_i)(y − ȳ)/c_i.
With E the expected counts of pairs (Hájek) and κ = 1,

    A_ij = P_ij (1 + κ/E_ij) / (C_ij + κ),   V_ij = v_i v_j / E_ij,   A = U Λ Uᵀ,
    ν = max(−λ_min, 2 √(Σ V_ij / d)),        w = U (Uᵀ b̂ / (λ⁺ + c ν)).

All this is in units of the attributes' deviations √v_i, so that the weights follow any change of
units, or in those of the data where these are asked for. λ⁺ is max(λ, 0) or √(λ² − ν²)₊. Further
candidates shrink covariances to the share of values that was observed, as imputing means does. All
compete by their losses in folds f,

    L = max(q, p² / var y) − 2 p,   q = mean of wᵀA_f w,   p = mean of wᵀb̂_f,

and are averaged, with the zero predictor, by weights that fall with L + ¾ se. A q below p² / var y
cannot be (Cauchy and Schwarz): without that bound, those that noise flatters most would win. By
chance wᵀA_f w has a variance of 2 (w²)ᵀV_f w². Half the standard error of q by chance is the least
se, since folds agree where all of them lack the same rare pairs.

References
----------
.. [1] P.-L. Loh and M. J. Wainwright, "High-dimensional regression with noisy and missing data",
   Annals of Statistics 40 (2012).
.. [2] J. Hájek, "Asymptotic theory of rejective sampling", Annals of Mathematical Statistics 35
   (1964).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np

from distfms.errors import DataError
from distfms.methods.attribute_efficient.learner import Penalty
from distfms.methods.attribute_efficient.pairs import Pairs
from distfms.methods.attribute_efficient.predictors import Gaps
from distfms.stats.base import merge_tree
from distfms.stats.comoments import CoMoments

#: κ: rows with a pair that count as seen beforehand, without covariance.
PRIOR = 1.0
#: Multiples c of the noise level, for clipped eigenvalues and for those of the semicircle.
CLIPPED = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SEMICIRCLE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
#: Ridges relative to the mean variance: where covariances are shrunk, and of full rows.
RIDGES = tuple(10.0 ** (e / 2) for e in range(-4, 6))
FULL_RIDGES = tuple(10.0**e for e in range(-6, 3))
#: Points of the lasso's path, and its end relative to the smallest λ without any weight.
_N_LASSO = 30
_LEAST_LASSO = 1e-2
#: Standard errors over the folds that are added to a held-out loss, and τ: candidates then weigh
#: exp(−excess / (τ · standard error of the best)). Of full rows the best is taken.
RIDGE_DOUBT = (0.75, 0.4)
LASSO_DOUBT = (1.5, 0.25)
FULL_DOUBT = (0.0, 0.0)
#: Multiple c of the noise level in A⁺ + c ν I, by which values that a row lacks are expected; and
#: one that outweighs the negative eigenvalues of an A that is not decomposed.
EXPECTED = 0.125
EXPECTED_SAFELY = 2.0

#: Attributes up to which A is decomposed, and dimensions of the Krylov space beyond.
MOST_DECOMPOSED = 1000
KRYLOV_STEPS = 128

_LEAST = 1e-300
_TINY = 1e-150
_RANK = 1e-13


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Moments of d attributes that vary and the target, from pairs that were observed.

    Attributes
    ----------
    gram : ndarray of shape (d, d)
        A, shrunk towards 0 where a pair was seen less than expected.
    cross, variance : ndarray of shape (d,)
        b̂ and v.
    rarity : ndarray of shape (d, d)
        1/E. V_ij = v_i v_j / E_ij is the sampling variance of A_ij.
    """

    gram: np.ndarray
    cross: np.ndarray
    variance: np.ndarray
    rarity: np.ndarray

    @classmethod
    def of(cls, moments: CoMoments, varies: np.ndarray) -> Self:
        """Make them of co-moments whose last column is the target, of some attributes (d,)."""
        n_rows = moments.n_samples
        counts = moments.observed_weight[:-1]
        block = np.ix_(varies, varies)
        expected = expected_pairs(counts / n_rows, n_rows)[varies][:, varies]
        expected[expected <= 0] = 1.0  # where there is nothing to divide
        n_seen = np.maximum(counts[varies], 1.0)
        is_constant = moments.constant_columns()[varies]  # but for rounding
        variance = np.diagonal(moments.comoment)[varies] / n_seen
        variance[is_constant] = _TINY
        cross = moments.comoment[varies, -1] / n_seen
        cross[is_constant] = 0.0
        shrinkage = 1.0 + PRIOR / expected
        n_pairs = moments.pair_counts()[block]
        gram = moments.comoment[block] * shrinkage / (n_pairs + PRIOR)
        np.fill_diagonal(gram, variance)
        return cls(gram, cross, variance, 1.0 / expected)

    def gram_times(self, x: np.ndarray) -> np.ndarray:
        """Return A x, for x of shape (d,) or (d, n)."""
        return self.gram @ x

    def explained_by(self, weights: np.ndarray) -> np.ndarray:
        """Return wᵀ A w of weights (n, d), shape (n,)."""
        explained: np.ndarray = (weights * self.gram_times(weights.T).T).sum(axis=1)
        return explained

    def chance_of(self, weights: np.ndarray) -> np.ndarray:
        """Return the sampling variance of wᵀ A w, 2 (w²)ᵀ V w², of weights (n, d), shape (n,)."""
        squares = weights**2
        variance: np.ndarray = 2.0 * (squares * self.noise_times(squares.T).T).sum(axis=1)
        return variance

    def noise_times(self, x: np.ndarray) -> np.ndarray:
        """Return V x, for x of shape (d,) or (d, n)."""
        by_row = self.variance * x.T
        noise: np.ndarray = (self.variance * (self.rarity @ by_row.T).T).T
        return noise


def expected_pairs(share: np.ndarray, n_rows: int) -> np.ndarray:
    """Return E, expected counts of pairs of attributes seen in shares (d,) of n rows."""
    missing = 1.0 - share
    spread = float(share @ missing)
    factor = np.ones((len(share), len(share)))
    if spread > 0:
        factor = np.maximum(1.0 - np.outer(missing, missing) / spread, 0.0)
    expected: np.ndarray = n_rows * np.outer(share, share) * factor
    return expected


class FoldPairs:
    """Moments of the rows of folds; `counts` (d,) were observed of attributes that `varies` lists.

    Parameters
    ----------
    folds : sequence of CoMoments
        The target is the last column.

    Raises
    ------
    DataError
        If there are too few rows, or no attribute varies.
    """

    def __init__(self, folds: Sequence[CoMoments]) -> None:
        self.folds = [moments for moments in folds if moments.n_samples > 1]
        self.n_folds = len(self.folds)
        if self.n_folds < 2:
            raise DataError(
                "Too few rows to choose constants on folds: at least 2 are needed in each of 2 "
                "folds. Add rows."
            )
        whole = merge_tree(self.folds)
        self.n_rows = whole.n_samples
        self.counts = whole.observed_weight[:-1]
        self.target_variance = float(whole.comoment[-1, -1]) / whole.n_samples
        self.varies = np.flatnonzero(~whole.constant_columns()[:-1])
        if not self.varies.size:
            raise DataError(
                "No attribute varies among what was observed: there is nothing to learn."
            )

    def without(self, fold: int | None) -> tuple[PairMoments, PairMoments | None, np.ndarray]:
        """Return moments without a fold, those of the fold about the same means, and these."""
        train = merge_tree([moments for f, moments in enumerate(self.folds) if f != fold])
        held_out = None
        if fold is not None:
            held_out = self.moments(self.folds[fold].about(train.mean))
        return self.moments(train), held_out, train.mean

    def moments(self, rows: CoMoments) -> PairMoments:
        """Return the moments of some rows."""
        return PairMoments.of(rows, self.varies)


class ImputedPairs(FoldPairs):
    """Moments of folds whose missing values are replaced with the means."""

    def moments(self, rows: CoMoments) -> PairMoments:
        """Return the moments of some rows."""
        return super().moments(replace(rows, pair_weight=None, cross=None))


class Tried(NamedTuple):
    """Weights of candidates (n, d), and how their losses count: see `RIDGE_DOUBT`."""

    weights: np.ndarray
    doubt: tuple[float, float]


#: Units of attributes, which ridge and noise are relative to: their deviations, or as they come.
Units = Literal["deviations", "raw"]
#: Candidates from moments, the share of values that was observed, and units.
Candidates = Callable[[PairMoments, float, Units], Tried]


def ridge_candidates(moments: PairMoments, observed: float, units: Units) -> Tried:
    """Return the candidates of the ridge, the zero predictor among them."""
    spectrum = Spectrum.of(moments, units)
    zero = np.zeros_like(moments.cross)
    shrunk = spectrum.ridges(RIDGES, observed)
    return Tried(np.vstack([*spectrum.solutions(), zero, shrunk]), RIDGE_DOUBT)


def lasso_candidates(moments: PairMoments, _: float, units: Units) -> Tried:
    """Return points of the lasso's path on clipped moments, and zero."""
    from sklearn.linear_model import lars_path_gram

    spectrum = Spectrum.of(moments, units)
    least_value = CLIPPED[0] * spectrum.noise
    values = np.maximum(spectrum.values, least_value)
    gram = (spectrum.vectors * values) @ spectrum.vectors.T
    cross = spectrum.vectors @ spectrum.rotated
    largest = float(np.abs(cross).max())
    path = np.zeros((_N_LASSO, len(cross)))
    if largest > 0.0:
        penalties = largest * np.geomspace(1.0, _LEAST_LASSO, _N_LASSO)
        knots, _, corners = lars_path_gram(
            cross, gram, n_samples=1, method="lasso", alpha_min=penalties[-1]
        )
        # `interp` needs knots that rise.
        knots = knots[::-1]
        for column, at_knots in enumerate(corners[:, ::-1]):
            path[:, column] = np.interp(penalties, knots, at_knots)
    return Tried(path / spectrum.scale, LASSO_DOUBT)


def full_candidates(moments: PairMoments, _: float, units: Units) -> Tried:
    """Return ridges of rows that were observed in full, and the mean of the target."""
    spectrum = Spectrum.of(moments, units)
    mean = np.zeros_like(moments.cross)
    return Tried(np.vstack([spectrum.ridges(FULL_RIDGES), mean]), FULL_DOUBT)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and vectors of A for attributes divided by `scale` (d,); b̂ in these; mean v; ν.

    Of many attributes those in the Krylov space of b̂, which hold what weights are made of.
    """

    values: np.ndarray
    vectors: np.ndarray
    rotated: np.ndarray
    scale: np.ndarray
    level: float
    noise: float

    @classmethod
    def of(cls, moments: PairMoments, units: Units) -> Self:
        """Decompose the moments in some units."""
        scale = np.ones(len(moments.cross))
        if units == "deviations":
            scale = np.sqrt(moments.variance)
        scale[moments.variance <= _TINY] = np.inf  # what does not vary is left out
        scale *= _of_noise(moments, scale)
        cross = moments.cross / scale
        if len(cross) <= MOST_DECOMPOSED:
            gram = moments.gram / np.outer(scale, scale)
            values, vectors = np.linalg.eigh(gram)
        else:

            def times(x: np.ndarray) -> np.ndarray:
                product: np.ndarray = moments.gram_times(x / scale) / scale
                return product

            values, vectors = krylov(times, cross)
        squares = 1.0 / scale**2
        total_noise = squares @ moments.noise_times(squares)
        chance = 2.0 * np.sqrt(total_noise / len(squares))
        noise = float(max(-values[0], chance, _LEAST))
        mean_variance = float(np.mean(moments.variance / scale**2))
        level = max(mean_variance, _LEAST)
        return cls(values, vectors, vectors.T @ cross, scale, level, noise)

    def at(self, spectrum: np.ndarray) -> np.ndarray:
        """Return the weights at a regularised spectrum, for attributes as they come."""
        weights: np.ndarray = self.vectors @ (self.rotated / spectrum) / self.scale
        return weights

    def solutions(self) -> np.ndarray:
        """Return the weights at all multiples of the noise level."""
        clipped = np.maximum(self.values, 0.0)
        semicircle = np.sqrt(np.maximum(self.values**2 - self.noise**2, 0.0))
        spectra = [clipped + c * self.noise for c in CLIPPED]
        spectra += [semicircle + c * self.noise for c in SEMICIRCLE]
        return np.array([self.at(spectrum) for spectrum in spectra])

    def ridges(self, multiples: Sequence[float], share: float = 1.0) -> np.ndarray:
        """Return the weights at multiples of the mean variance, from a share of the covariances."""
        spectrum = share * np.maximum(self.values, 0.0) + (1.0 - share) * self.level
        return np.array([self.at(spectrum + c * self.level) for c in multiples])


def _of_noise(moments: PairMoments, scale: np.ndarray) -> np.ndarray:
    """Return by what attributes in units of `scale` are divided as they are noisier than most."""
    variance = moments.variance / scale**2
    noise = moments.noise_times(1.0 / scale**2) / moments.variance
    total = float(variance.sum())
    mean_noise = float(variance @ noise) / total if total > 0 else 0.0  # 0 where nothing varies
    if mean_noise <= 0:
        return np.ones_like(noise)
    factors: np.ndarray = np.sqrt(np.maximum(1.0, noise / mean_noise))
    return factors


def krylov(
    times: Callable[[np.ndarray], np.ndarray], start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and vectors (d, n) of a symmetric matrix within a Krylov space.

    References
    ----------
    Saad, "Numerical Methods for Large Eigenvalue Problems" (2011), section 6.6: Lanczos with all
    vectors orthogonalised twice.
    """
    n_steps = min(KRYLOV_STEPS, len(start))
    basis = np.zeros((n_steps, len(start)))
    inner = np.zeros((n_steps, n_steps))
    new = start
    length = float(np.linalg.norm(start))
    size = 0
    for step in range(n_steps):
        basis[step] = new / max(length, _LEAST)
        size = step + 1
        so_far = basis[:size]
        new = times(basis[step])
        inner[step, step] = basis[step] @ new
        for _ in range(2):
            new = new - (so_far @ new) @ so_far
        length = float(np.linalg.norm(new))
        largest = np.abs(inner[:size]).max()
        if length <= _RANK * largest or size == n_steps:
            break
        inner[step, size] = length
        inner[size, step] = length
    values, vectors = np.linalg.eigh(inner[:size, :size])
    return values, basis[:size].T @ vectors


@dataclass(frozen=True, eq=False)
class Learned:
    """What some examples taught: weights (d,) for attributes as they come, and what was observed.

    `sampling` (d,) and `step` are those at the end, `norm` is what attributes were divided by.
    `gaps` are what rows with missing values are predicted from. `trees` is the text of a model of
    LightGBM, which has a `share` in the predictions: 0 for the linear model alone, 1 for LightGBM
    alone.
    """

    weights: np.ndarray
    n_examples: int
    n_seen: int
    sampling: np.ndarray | None = None
    step: float = 0.0
    intercept: float = 0.0
    gaps: Gaps | None = None
    norm: float = 1.0
    trees: str = ""
    share: float = 0.0

    def of_mean(self, mean: float) -> Learned:
        """Return the mean of the target as a model that observed the same."""
        weights = np.zeros_like(self.weights)
        return Learned(weights, self.n_examples, self.n_seen, self.sampling, intercept=mean)


@np.errstate(over="ignore")  # of weights of what hardly varies in a fold
def solve(
    folds: FoldPairs, candidates: Candidates = ridge_candidates, units: Units = "deviations"
) -> Learned:
    """Solve from the moments of two folds or more, with an average of candidates."""
    n_rows = folds.n_rows
    counts = folds.counts
    observed = float(counts[folds.varies].mean()) / n_rows
    loss, error = _on_folds(folds, lambda moments: candidates(moments, observed, units))
    whole, _, mean = folds.without(None)
    tried = candidates(whole, observed, units)
    doubt, temperature = tried.doubt
    doubted = loss + doubt * error
    best = np.argmin(doubted)
    width = max(temperature * float(error[best]), _LEAST)
    shares = np.exp(-(doubted - doubted[best]) / width)  # zero is known without error
    shares /= shares.sum()
    weights = np.zeros(len(mean) - 1)
    weights[folds.varies] = shares @ tried.weights
    return Learned(
        weights,
        n_rows,
        int(counts.sum()),
        sampling=counts / n_rows,
        intercept=float(mean[-1] - mean[:-1] @ weights),
    )


def _on_folds(
    folds: FoldPairs, candidates: Callable[[PairMoments], Tried]
) -> tuple[np.ndarray, np.ndarray]:
    """Return losses (n,) of candidates in the moments of folds, averaged, and how sure they are.

    Candidates of each fold are made from the moments of the others.
    """
    squares = []
    products = []
    variances = []
    for fold in range(folds.n_folds):
        train, held_out, _ = folds.without(fold)
        assert held_out is not None
        weights = candidates(train).weights
        squares.append(held_out.explained_by(weights))
        products.append(weights @ held_out.cross)
        variances.append(held_out.chance_of(weights))
    product = np.mean(products, axis=0)
    least = product**2 / max(folds.target_variance, _LEAST)
    square = np.maximum(np.mean(squares, axis=0), least)
    losses = np.array(squares) - 2.0 * np.array(products)
    error = np.std(losses, axis=0, ddof=1) / np.sqrt(folds.n_folds)
    variance = np.sum(variances, axis=0)
    chance = np.nan_to_num(np.sqrt(variance) / folds.n_folds)
    return square - 2.0 * product, np.maximum(error, chance / 2.0)


def gaps_of(folds: FoldPairs, weights: np.ndarray, units: Units) -> Gaps:
    """Return what rows with gaps are predicted from: by weights (d,) of what is expected of them.

    A row with the values S is expected to have A_MS A_SS⁻¹ (x_S − μ_S) + μ_M where it has none, so
    that its weights are A_SS⁻¹ (A w)_S.
    """
    whole, _, mean = folds.without(None)
    spectrum = Spectrum.of(whole, units)
    scale = spectrum.scale
    if len(scale) <= MOST_DECOMPOSED:
        gram = (spectrum.vectors * np.maximum(spectrum.values, 0.0)) @ spectrum.vectors.T
        multiple = EXPECTED
    else:
        gram = whole.gram / np.outer(scale, scale)
        multiple = EXPECTED_SAFELY
    gram += multiple * spectrum.noise * np.eye(len(gram))
    cross = gram @ (weights[folds.varies] * scale)
    return Gaps(folds.varies, gram, cross, scale, mean[[*folds.varies, -1]])


def learned_from(
    pairs: Pairs, penalty: Penalty, units: Units = "deviations", takes_gaps: bool = False
) -> Learned:
    """Solve from pairs of attributes; with `takes_gaps` also for rows that lack values."""
    candidates = lasso_candidates if penalty == "lasso" else ridge_candidates
    folds = FoldPairs([*pairs.folds.values()])
    learned = solve(folds, candidates, units)
    if not takes_gaps:
        return learned
    return replace(learned, gaps=gaps_of(folds, learned.weights, units))
