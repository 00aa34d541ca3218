"""Squared loss on similarities, from their co-moments alone.

The model is f(x) = Σ u_l K(x, l) + b; in the paper's terms w = √k·u for k landmarks. The intercept
is what centring makes of it: b = mean(y) − uᵀ mean(K).

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", Algorithms 1 and 2.
Shalev-Shwartz, Srebro, Zhang, "Trading Accuracy for Sparsity", SIAM J. Optimization 20 (2010):
forward greedy selection, with the refit of all chosen weights after each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distfms.linalg import symmetric_pinv
from distfms.methods.newton import Domain
from distfms.stats.comoments import CoMoments

#: Share of a landmark's variance that others must leave unexplained for it to be chosen.
_INDEPENDENT = 1e-10
#: Scores that differ by no more than this part are tied, and the first of them is chosen.
_TIED = 1e-10
#: Steps of Algorithm 2 before it is given up.
_MOST_STEPS = 100_000


@dataclass(frozen=True, eq=False)
class SquaredProblem:
    """Squared loss of a target on L similarities.

    Attributes
    ----------
    mean : ndarray of shape (L + 1,)
        Of the similarities, then of the target.
    covariance : ndarray of shape (L + 1, L + 1)
    n_rows : int
    """

    mean: np.ndarray
    covariance: np.ndarray
    n_rows: int = 0

    @classmethod
    def of(cls, moments: CoMoments, n_landmarks: int | None = None) -> SquaredProblem:
        """Read similarities and target from their co-moments; by default to all landmarks."""
        return cls(*_first(moments, n_landmarks), int(moments.n_samples))

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks L."""
        return len(self.mean) - 1

    @property
    def target_variance(self) -> float:
        """Variance of the target."""
        return float(self.covariance[-1, -1])

    @property
    def mean_variance(self) -> float:
        """Mean variance of a similarity, the unit of a ridge."""
        return float(np.mean(np.diagonal(self.covariance)[:-1])) if self.n_landmarks else 0.0

    def penalised(self, ridge: float) -> np.ndarray:
        """Return the Gram (L, L) with a ridge on its diagonal."""
        gram = self.covariance[:-1, :-1].copy()
        gram[np.diag_indices_from(gram)] += ridge * self.mean_variance
        return gram

    def cross_validated_ridge(self) -> float:
        """Return the ridge of least generalised cross-validation of squared loss on all columns.

        References
        ----------
        Golub, Heath, Wahba, "Generalized cross-validation as a method for choosing a good ridge
        parameter", Technometrics 21 (1979).
        """
        from scipy.linalg import eigh

        if not self.n_landmarks:
            return 0.0
        values, vectors = eigh(self.covariance[:-1, :-1])
        fitted = (vectors.T @ self.covariance[:-1, -1]) ** 2
        ridges = np.logspace(-6.0, 2.0, 17)
        added = ridges[:, np.newaxis] * self.mean_variance
        kept = np.maximum(values, 0.0) + added
        mse = self.target_variance - np.sum(fitted * (kept + added) / kept**2, axis=1)
        degrees = 1.0 + np.sum((kept - added) / kept, axis=1)
        left = np.maximum(1.0 - degrees / self.n_rows, 1e-9)
        return float(ridges[np.argmin(mse / left**2)])

    def intercept(self, weights: np.ndarray) -> np.ndarray:
        """Return b of models with weights (..., L)."""
        return np.asarray(self.mean[-1] - weights @ self.mean[:-1])


def _first(moments: CoMoments, n: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the first n similarities and the target."""
    mean, covariance = moments.mean, moments.covariance(pairwise=False)
    if n is None or n == len(mean) - 1:
        return mean, covariance
    own = np.append(np.arange(n), len(mean) - 1)
    return mean[own], covariance[np.ix_(own, own)]


def errors(problem: SquaredProblem, weights: np.ndarray, held_out: CoMoments) -> np.ndarray:
    """Return the mean squared errors of models (m, L) on rows that co-moments sum up."""
    mean, covariance = _first(held_out, problem.n_landmarks)
    contrast = np.hstack((-weights, np.ones((len(weights), 1))))
    bias = contrast @ (mean - problem.mean)
    spread = np.einsum("mi,mi->m", contrast @ covariance, contrast)
    return np.maximum(spread, 0.0) + bias**2


def greedy(
    problem: SquaredProblem, n_steps: int, ridge: float, by_gradient: bool = False
) -> np.ndarray:
    """Choose landmarks one by one, all weights refitted after each step.

    Parameters
    ----------
    problem : SquaredProblem
    n_steps : int
        Most landmarks to choose.
    ridge : float
    by_gradient : bool
        Choose the landmark of the largest gradient, as Algorithm 2 does, rather than the one that
        lowers the squared loss most.

    Returns
    -------
    ndarray of int
        In order of choice; ends early where no landmark would lower the loss.

    Notes
    -----
    A Cholesky factorisation of the Gram that is built row by row: step t costs t·L.
    """
    gram, residual = problem.penalised(ridge), problem.covariance[:-1, -1].copy()
    scale = np.diagonal(gram).copy()
    variance, n_steps = scale.copy(), min(n_steps, len(scale))
    factor = np.empty((n_steps, len(scale)))
    order: list[int] = []
    for step in range(n_steps):
        possible = variance > _INDEPENDENT * scale
        possible[order] = False
        gain = np.zeros(len(scale))
        np.divide(residual**2, variance, out=gain, where=possible)
        if not gain.max() > np.finfo(float).eps * problem.target_variance:
            break
        score = np.where(possible, np.abs(residual), 0.0) if by_gradient else gain
        own = int(np.argmax(score >= score.max() * (1.0 - _TIED)))
        row = factor[step]
        np.subtract(gram[own], factor[:step, own] @ factor[:step], out=row)
        row /= np.sqrt(variance[own])
        residual -= row * (residual[own] / row[own])
        variance -= row**2
        order.append(own)
    return np.array(order, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Steps:
    """Models that steps of Algorithm 2 led to.

    Attributes
    ----------
    order : ndarray of int, shape (k,)
        Landmarks in the order of their first step.
    weights : ndarray of shape (k, k)
        The last models of no more than 1 … k landmarks, which have that order.
    n_steps : int
    gap : float
        δ of the last step: no model within the bound has a loss that is lower by more.
    """

    order: np.ndarray
    weights: np.ndarray
    n_steps: int
    gap: float


def stepwise(
    problem: SquaredProblem, n_kept: int, ridge: float, bound: float, tolerance: float
) -> Steps:
    """Take steps of Algorithm 2 towards one landmark after another, with Σ|u| ≤ C_W.

    Parameters
    ----------
    problem : SquaredProblem
    n_kept : int
        Most landmarks of a model: the step that would take another is not done.
    ridge : float
    bound : float
        C_W.
    tolerance : float
        ε, as a part of the variance of the target: the steps end where δ is no greater.

    Notes
    -----
    β bounds the curvature along a step, 2·max Var K(x, l); the paper's is for similarities up to 1.
    """
    gram, target = problem.penalised(ridge), problem.covariance[:-1, -1]
    smoothness = 2.0 * float(np.diagonal(gram).max())
    least = tolerance * problem.target_variance
    most = min(np.ceil(8 * smoothness * bound**2 / max(least, 1e-300)), _MOST_STEPS)
    order: list[int] = []
    weights, kept, gap, n_steps = np.zeros(n_kept), np.zeros((n_kept, n_kept)), np.inf, 0
    while n_steps < most:
        own = weights[: len(order)]
        slope = 2.0 * (own @ gram[order] - target)
        landmark = int(np.argmax(np.abs(slope)))
        gap = float(slope[order] @ own + bound * abs(slope[landmark]))
        if gap <= least or (landmark not in order and len(order) == n_kept):
            break
        if landmark not in order:
            order.append(landmark)
        share = min(1.0, gap / (4.0 * bound**2 * smoothness))
        weights *= 1.0 - share
        weights[order.index(landmark)] -= share * bound * np.sign(slope[landmark])
        kept[len(order) - 1] = weights
        n_steps += 1
    k = len(order)
    return Steps(np.array(order, dtype=np.intp), kept[:k, :k], n_steps, gap)


def refitted(
    problem: SquaredProblem,
    order: np.ndarray,
    sizes: Sequence[int],
    ridge: float,
    bound: float | None = None,
) -> np.ndarray:
    """Return the models of the first k landmarks of an order for each size k, (n_sizes, L).

    The bound B is that of the paper's w, so that of u is B/√k.
    """
    from scipy.linalg import solve_triangular

    gram = problem.penalised(ridge)[np.ix_(order, order)]
    target = problem.covariance[order, -1]
    weights = np.zeros((len(sizes), problem.n_landmarks))
    factor = _factor(gram)
    for row, k in zip(weights, sizes, strict=True):
        chosen = order[:k]
        if not k:
            continue
        if bound is not None:
            domain = Domain(k, bound / np.sqrt(k))
            row[chosen] = domain.best(gram[np.newaxis, :k, :k], target[:k, np.newaxis])[:, 0]
        elif factor is None:
            row[chosen] = symmetric_pinv(gram[:k, :k]) @ target[:k]
        else:
            white = solve_triangular(factor[:k, :k], target[:k], trans=1)
            row[chosen] = solve_triangular(factor[:k, :k], white)
    return weights


def _factor(gram: np.ndarray) -> np.ndarray | None:
    """Return the upper Cholesky factor, whose leading blocks are those of the leading blocks."""
    try:
        return np.linalg.cholesky(gram).T
    except np.linalg.LinAlgError:
        return None
