"""Paths of linear regressions, whose errors on other rows are known from the moments of these.

A path keeps the Cholesky factor C_S = UᵀU and r = U⁻ᵀb, of which corners belong to its prefixes: F
is half the running sum of r². On other rows with moments M, c and T their squared error is
T − 2 Σ r∘q + rᵀAr, with A = U⁻ᵀMU⁻¹ and q = U⁻ᵀc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distfms.errors import DataError
from distfms.methods.sequence.problem import LinearModels, Path, Scaling
from distfms.stats.comoments import CoMoments

#: Columns of a prefix, on average, from which the errors of few prefixes come from their weights:
#: in O(K r²) rather than O(r³).
_FEW = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class SequencePath(Path):
    """A path of linear regressions.

    Attributes
    ----------
    gain : numpy.ndarray of shape (K,)
        Growth of F = ½ b_Sᵀ C_S⁻¹ b_S.
    ranks : numpy.ndarray of int, shape (K,)
        Linearly independent columns of each prefix.
    support : numpy.ndarray of int, shape (r,)
        Columns of the problem that entered, in order.
    upper : numpy.ndarray of shape (r, r)
        Upper Cholesky factor of C at `support`.
    response : numpy.ndarray of shape (r, P)
        U⁻ᵀ b at `support`.
    """

    gain: np.ndarray
    ranks: np.ndarray
    support: np.ndarray
    upper: np.ndarray
    response: np.ndarray

    @property
    def curve_value(self) -> np.ndarray:
        """Share of the label variance explained by the prefixes 0..K, 2F / P.

        It is the training R² when the ridge is 0, and below it by λ‖w‖² / P otherwise.
        """
        objective = np.concatenate(([0.0], np.cumsum(self.gain)))
        return 2.0 * objective / self.response.shape[1]

    def prefix_models(self) -> LinearModels:
        """Return the models of all prefixes.

        Coefficients are 0 of groups not in the prefix, of constant columns, and of those that
        depend linearly on earlier ones. One triangular solve for all prefixes: the factor of a
        prefix is a corner of the factor of the whole. Cost O(K P r²).
        """
        scaling = self.scaling
        n_targets = self.response.shape[1]
        ends = np.append(0, self.ranks)
        weights = self._weights(ends).transpose(1, 0, 2)
        columns = scaling.kept[self.support]
        units = scaling.target_scale / scaling.scale[columns, np.newaxis]
        coefficients = np.zeros((len(ends), len(scaling.feature_names), n_targets))
        coefficients[:, columns] = weights * units
        at_mean = np.einsum("kdp,d->kp", coefficients, scaling.mean)
        return LinearModels(coefficients, scaling.target_mean - at_mean, scaling.mean)

    def step_details(self) -> dict[str, np.ndarray]:
        """Return the number of columns of each step that are linearly independent."""
        return {"n_independent": np.diff(self.ranks, prepend=0), "gain": self.gain}

    def held_out(self, statistics: CoMoments) -> dict[str, np.ndarray]:
        """Errors of every prefix 0..K on rows that only their statistics are known of; exact.

        Missing features of those rows count as the training mean, as they did in training.

        Returns
        -------
        dict of str to numpy.ndarray of shape (K + 1,)
            Means over the targets: ``mse``, the mean squared error; ``explained_variance``,
            1 − mse / (mse of the empty prefix, which predicts the training mean); ``r2``,
            1 − mse / (variance of the held-out target). NaN where there is nothing to explain.
        """
        moments = standardised_moments(self.scaling, self.support, statistics)
        fall = self._fall(moments.gram, moments.cross)
        risk = np.maximum(moments.total - fall, 0.0)
        variance = np.maximum(moments.total - moments.offset**2, 0.0)
        in_units = risk * self.scaling.target_scale**2
        return {
            "r2": _mean_share(risk, variance),
            "mse": np.mean(in_units, axis=1),
            "explained_variance": _mean_share(risk, risk[0]),
        }

    def _fall(self, gram: np.ndarray, cross: np.ndarray) -> np.ndarray:
        """Return 2wᵀc − wᵀMw of all prefixes, (K + 1, P), from M (r, r) and c (r, P)."""
        ends = np.append(0, self.ranks)
        response = self.response
        if _FEW * len(ends) <= len(gram):
            weights = self._weights(ends)
            products = np.tensordot(gram, weights, axes=1)
            slopes = 2.0 * cross[:, np.newaxis] - products
            fall: np.ndarray = np.sum(weights * slopes, axis=0)
            return fall
        half_white = _whitened(self.upper, gram)
        A = _whitened(self.upper, half_white.T)
        q = _whitened(self.upper, cross)
        # wᵀMw of k columns is rᵀAr over the first k entries of r: each entry adds a border.
        below = np.tril(A, -1)
        off_diagonal = below @ response
        diagonal = np.diagonal(A)[:, np.newaxis]
        border = 2 * off_diagonal + diagonal * response
        of_columns = response * (2 * q - border)
        nothing = np.zeros((1, cross.shape[1]))
        falls = np.cumsum(of_columns, axis=0)
        of_prefixes = np.concatenate((nothing, falls))
        return of_prefixes[ends]

    def _weights(self, ends: np.ndarray) -> np.ndarray:
        """Return U⁻¹ of the first so many entries of the response, (r, K + 1, P)."""
        from scipy.linalg import solve_triangular

        rank, n_targets = self.response.shape
        right = np.zeros((rank, len(ends), n_targets))
        for prefix, end in enumerate(ends):
            right[:end, prefix] = self.response[:end]
        if not rank:
            return right
        flat = solve_triangular(self.upper, right.reshape(rank, -1), check_finite=False)
        return np.asarray(flat.reshape(right.shape))


def _whitened(upper: np.ndarray, right: np.ndarray) -> np.ndarray:
    """U⁻ᵀ right."""
    from scipy.linalg import solve_triangular

    if not len(upper):
        return right
    solved: np.ndarray = solve_triangular(upper, right, trans=1, check_finite=False)
    return solved


def _mean_share(risk: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Mean over targets of 1 − risk / whole; NaN where there is nothing to explain."""
    if np.any(whole <= 0):
        return np.full(len(risk), np.nan)
    return 1.0 - np.mean(risk / whole, axis=1)


class HeldOut(NamedTuple):
    """Moments of other rows about the training means, in units of the training deviations.

    Of r columns and P targets: `gram` (r, r), `cross` (r, P), `total` (P,) of the squared targets,
    `offset` (P,) their means.
    """

    gram: np.ndarray
    cross: np.ndarray
    total: np.ndarray
    offset: np.ndarray


def standardised_moments(scaling: Scaling, support: np.ndarray, statistics: CoMoments) -> HeldOut:
    """Return the moments of some columns of a problem and of its targets on other rows."""
    if not statistics.weight > 0:
        raise DataError("There are no held-out rows.")
    rank = len(support)
    weight = float(statistics.weight)
    features = scaling.kept[support]
    targets = len(scaling.feature_names) + np.arange(len(scaling.target_names))
    columns = np.append(features, targets)
    means = np.append(scaling.mean[features], scaling.target_mean)
    scales = np.append(scaling.scale[features], scaling.target_scale)
    moments, sums = moments_about(means, columns, statistics)
    # On the scale of the training data, so that columns of any unit lose no digits.
    moments = moments / np.outer(scales, scales) / weight
    offsets = sums / scales / weight
    return HeldOut(
        gram=moments[:rank, :rank],
        cross=moments[:rank, rank:],
        total=np.diagonal(moments)[rank:],
        offset=offsets[rank:],
    )


def moments_about(
    means: np.ndarray, columns: Sequence[int] | np.ndarray, statistics: CoMoments
) -> tuple[np.ndarray, np.ndarray]:
    """Σ w x̃ᵢx̃ⱼ and Σ w x̃ᵢ of some columns about given means, missing entries counting as 0."""
    numbers = np.asarray(columns)
    grid = np.ix_(numbers, numbers)
    shift = statistics.mean[numbers] - means
    squares = np.outer(shift, shift)
    moments = np.array(statistics.comoment[grid])
    if statistics.pair_weight is None or statistics.cross is None:
        moments += statistics.weight * squares
        return moments, statistics.weight * shift
    shifted = np.asarray(statistics.cross[grid]) * shift
    moments += shifted + shifted.T
    pair_weight = np.asarray(statistics.pair_weight[grid])
    moments += pair_weight * squares
    return moments, np.diagonal(pair_weight) * shift
