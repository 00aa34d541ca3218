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
    penalty : ndarray of shape (L, L), or None
        A of a ridge λ·uᵀAu; by default the identity, times the mean variance of a similarity.
    ridge : float
        λ where the spec does not say.
    """

    mean: np.ndarray
    covariance: np.ndarray
    n_rows: int = 0
    penalty: np.ndarray | None = None
    ridge: float = 0.0

    @classmethod
    def of(
        cls,
        moments: CoMoments,
        n_landmarks: int | None = None,
        penalty: np.ndarray | None = None,
        ridge: float = 0.0,
    ) -> SquaredProblem:
        """Read similarities and target from their co-moments; by default to all landmarks."""
        if penalty is not None:
            penalty = regular(penalty[:n_landmarks, :n_landmarks])
        return cls(*_first(moments, n_landmarks), int(moments.n_samples), penalty, ridge)

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
        """Mean variance of a similarity."""
        return float(np.mean(np.diagonal(self.covariance)[:-1])) if self.n_landmarks else 0.0

    def added(self, ridge: float) -> np.ndarray:
        """Return what a ridge adds to the Gram (L, L)."""
        if self.penalty is not None:
            return ridge * self.penalty
        return np.diag(np.full(self.n_landmarks, ridge * self.mean_variance))

    def penalised(self, ridge: float) -> np.ndarray:
        """Return the Gram (L, L) with a ridge."""
        return self.covariance[:-1, :-1] + self.added(ridge)

    def cross_validated_ridge(self) -> float:
        """Return the ridge of least generalised cross-validation of squared loss on all columns."""
        if not self.n_landmarks:
            return 0.0
        grid = np.logspace(-6.0, 2.0, 17)
        ridges = Ridges.of(self.covariance[:-1, :-1], self.covariance[:-1, -1:], self.added(1.0))
        return ridges.cross_validated(grid, self.target_variance, self.n_rows)

    def intercept(self, weights: np.ndarray) -> np.ndarray:
        """Return b of models with weights (..., L)."""
        return np.asarray(self.mean[-1] - weights @ self.mean[:-1])


@dataclass(frozen=True, eq=False)
class Ridges:
    """Models of squared loss with a penalty λ·uᵀAu, of all λ by one decomposition.

    Attributes
    ----------
    basis : ndarray of shape (L, L)
        B with BᵀAB = I, in which the covariance is diagonal.
    values : ndarray of shape (L,)
        That diagonal.
    fitted : ndarray of shape (L, P)
        Covariance of the basis with the targets.
    """

    basis: np.ndarray
    values: np.ndarray
    fitted: np.ndarray

    @classmethod
    def of(cls, covariance: np.ndarray, target: np.ndarray, penalty: np.ndarray) -> Ridges:
        """Decompose the covariance (L, L) of similarities, whose covariance with targets is (L, P).

        The penalty A (L, L) is positive semi-definite; a millionth of its mean diagonal is added.
        """
        from scipy.linalg import cholesky, eigh, solve_triangular

        factor = cholesky(regular(penalty))
        white = solve_triangular(factor, covariance, trans=1)
        white = solve_triangular(factor, white.T, trans=1)
        values, vectors = eigh((white + white.T) / 2, driver="evd")
        basis = solve_triangular(factor, vectors)
        return cls(basis, np.maximum(values, 0.0), basis.T @ target)

    def weights(self, ridge: float) -> np.ndarray:
        """Return the weights (L, P) of one ridge."""
        return np.asarray(self.basis @ (self.fitted / (self.values + ridge)[:, np.newaxis]))

    def errors(self, grid: np.ndarray, rows: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Return squared errors (n_ridges, m), summed over targets, of centred rows (L, m)."""
        moved = self.basis.T @ rows
        shrunk = self.fitted / (self.values + grid[:, np.newaxis])[..., np.newaxis]
        found = np.zeros((len(grid), rows.shape[1]))
        for own, truth in zip(np.moveaxis(shrunk, 2, 0), target, strict=True):
            found += (own @ moved - truth) ** 2
        return found

    def cross_validated(self, grid: np.ndarray, variance: float, n_rows: int) -> float:
        """Return the ridge of least generalised cross-validation for targets of this variance.

        References
        ----------
        Golub, Heath, Wahba, "Generalized cross-validation as a method for choosing a good ridge
        parameter", Technometrics 21 (1979).
        """
        added = grid[:, np.newaxis]
        kept = self.values + added
        squares = np.sum(self.fitted**2, axis=1)
        mse = variance - np.sum(squares * (kept + added) / kept**2, axis=1)
        degrees = 1.0 + np.sum(self.values / kept, axis=1)
        left = np.maximum(1.0 - degrees / n_rows, 1e-9)
        return float(grid[np.argmin(mse / left**2)])


def regular(penalty: np.ndarray) -> np.ndarray:
    """Return a penalty with a millionth of its mean diagonal added to that."""
    return np.asarray(penalty + 1e-6 * np.trace(penalty) / len(penalty) * np.eye(len(penalty)))


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


def greedy(problem: SquaredProblem, n_steps: int, ridge: float) -> np.ndarray:
    """Choose landmarks one by one, all weights refitted after each step.

    Parameters
    ----------
    problem : SquaredProblem
    n_steps : int
        Most landmarks to choose.
    ridge : float

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
        own = int(np.argmax(gain >= gain.max() * (1.0 - _TIED)))
        row = factor[step]
        np.subtract(gram[own], factor[:step, own] @ factor[:step], out=row)
        row /= np.sqrt(variance[own])
        residual -= row * (residual[own] / row[own])
        variance -= row**2
        order.append(own)
    return np.array(order, dtype=np.intp)


def stepwise(
    problem: SquaredProblem, n_kept: int, ridge: float, bound: float, tolerance: float
) -> dict[str, np.ndarray]:
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

    Returns
    -------
    dict
        ``order`` (k,) of landmarks by their first step; ``weights`` (k, k), the last models of no
        more than 1 … k landmarks, which have that order; ``n_steps``; ``gap``, δ of the last step:
        no model within the bound has a loss that is lower by more.

    Notes
    -----
    β bounds the curvature along a step, 2·max Var K(x, l); the paper's is for similarities up to 1.
    """
    gram, target = problem.penalised(ridge), problem.covariance[:-1, -1]
    smoothness = 2.0 * float(np.diagonal(gram).max())
    least = tolerance * problem.target_variance
    order: list[int] = []
    weights, kept, gap, n_steps = np.zeros(n_kept), np.zeros((n_kept, n_kept)), np.inf, 0
    while n_steps < _MOST_STEPS:
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
    found = {"order": np.array(order, dtype=np.intp), "weights": kept[:k, :k]}
    return {**found, "n_steps": np.array(n_steps), "gap": np.array(gap)}


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
