"""Damped Newton for generalised linear models whose rows are somewhere else.

The fit sees the data only through a callable that answers with :class:`GlmStatistics` at given
coefficients: one call is one pass over the data. Every trial point is evaluated in full, so an
accepted step (the usual case) costs one pass, not two.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, helmert

from distfms.errors import NumericalError
from distfms.methods.sequence.families import Array, Family, get_family
from distfms.methods.sequence.glm_statistics import GlmStatistics

#: One pass over the data: coefficients (d + 1, P), support (s,) → merged statistics.
PassFunction = Callable[[Array, NDArray[np.int64]], GlmStatistics]
GlmStatus = Literal["converged", "max_iter", "separated", "clipped", "stalled"]

_MAX_TRIALS = 25  # lengths of one step
_MIN_SHRINK = 1.0 / 16.0
_MEMORY = 10  # steps remembered when the Hessian is only bounded
_ARMIJO = 1e-4
_ROUNDING = 1e-12  # relative size of a change of the objective that may be rounding
_RANK_TOLERANCE = 1e-11  # smallest pivot or eigenvalue kept, relative to a unit diagonal
_SEPARATED_STEP = 1e-2  # a Newton step this long, with no gradient left, is going to infinity
_SEPARATED_LOSS = 1e-6  # mean loss at which coefficients of separated classes are large enough


@dataclass(frozen=True, eq=False)
class GlmFit:
    """Coefficients at which the penalised risk is least, and how they were reached.

    Attributes
    ----------
    weights : (d + 1, P)
        Coefficients of the standardised columns, intercept last; zero off the support.
    support : (s,) int
        Columns used.
    status : str
        "converged": the gradient on the support is small, or a step would change the risk by
        rounding only. "max_iter": too few iterations. "separated": without a ridge there is no
        finite minimum (separable classes, a group without counts); the weights predict well but
        their size is arbitrary. "clipped": some Poisson predictors lie beyond the overflow guard.
        "stalled": no step lowered the risk.
    loss : float
        Mean loss Σ w (φ(η) − yᵀη − saturated) / Σ w, without the ridge.
    objective : float
        loss + λ/2 ‖W‖² (intercept left out).
    gradient_norm : float
        Frobenius norm of the gradient of the objective on support and intercept.
    n_iter : int
        Newton steps taken.
    n_passes : int
        Passes over the data.
    rank_deficient : bool
        Some columns of the support are redundant; the least-norm step was taken.
    objectives : tuple of float
        Objective at the start and after each step; never rises by more than 1e-12 of itself.
    statistics : GlmStatistics
        At the final weights; its gradient covers all columns.
    """

    weights: Array
    support: NDArray[np.int64]
    status: GlmStatus
    loss: float
    objective: float
    gradient_norm: float
    n_iter: int
    n_passes: int
    rank_deficient: bool
    objectives: tuple[float, ...]
    statistics: GlmStatistics


@dataclass(frozen=True, eq=False)
class _Point:
    """Coefficients and what one pass told about them; the gradient is on support and intercept."""

    weights: Array
    statistics: GlmStatistics
    ridge: float
    objective: float
    gradient: Array

    @property
    def active(self) -> NDArray[np.int64]:
        """Rows of the weights that may change."""
        return np.append(self.statistics.support, len(self.weights) - 1)


def fit_glm(
    pass_fn: PassFunction,
    family: str | Family,
    support: ArrayLike,
    start: Array,
    ridge: float = 0.0,
    max_iter: int = 50,
    tol: float = 1e-8,
) -> GlmFit:
    """Minimise mean(φ(η) − yᵀη) + λ/2 ‖W‖² over the coefficients of a support.

    Parameters
    ----------
    pass_fn : callable
        ``pass_fn(weights (d + 1, P), support (s,)) -> GlmStatistics`` of all rows.
    family : str or Family
        Response family, the one that the passes compute with.
    support : (s,) int
        Columns that may have coefficients.
    start : (d + 1, P)
        Where to start (warm start); off the support it is set to zero.
    ridge : float
        λ ≥ 0; the intercept is not penalised.
    max_iter : int
        Most Newton steps.
    tol : float
        Converged when the Frobenius norm of the gradient is at most ``tol`` times the root of
        the response's total variance.

    Returns
    -------
    GlmFit

    Raises
    ------
    NumericalError
        For statistics that are not finite at the start, a negative ridge, or no rows.

    Notes
    -----
    Damped Newton: the step is shortened (at least halved) until the objective falls. A Hessian
    without full rank gives the least-norm step; one that is only bounded ("bound") starts an
    L-BFGS recursion.
    One pass for the start, one for each step and each shortening.

    References
    ----------
    Hu et al., Appendix B, equations 21 and 22.
    """
    family = get_family(family)
    columns = np.asarray(support, dtype=np.int64)
    if not ridge >= 0.0:
        raise NumericalError(f"The ridge must not be negative, it is {ridge!r}.")
    point = _evaluate(pass_fn, _restricted(family, start, columns), columns, ridge)
    if not (np.isfinite(point.objective) and point.statistics.weight > 0.0):
        raise NumericalError(
            "A generalised linear model cannot start here: the loss is not finite or no row has "
            "a positive weight."
        )
    return _descend(pass_fn, family, point, max_iter, tol)


def gradient_scale(statistics: GlmStatistics) -> float:
    """Return what gradients are compared with: the root of the responses' total variance.

    By Cauchy and Schwarz no entry of the gradient at the null model exceeds it; for a constant
    response the rounding error of its mean is used.
    """
    spread = np.sqrt(statistics.response_m2.sum() / statistics.weight)
    rounding = np.finfo(np.float64).eps * np.abs(statistics.response_mean).max(initial=1.0)
    return float(max(spread, rounding))


def _restricted(family: Family, weights: Array, support: NDArray[np.int64]) -> Array:
    """Make a starting point: centred, zero off the support."""
    active = np.append(support, len(weights) - 1)
    restricted = np.zeros_like(weights, dtype=np.float64)
    restricted[active] = family.centre(weights[active])
    return restricted


def _evaluate(
    pass_fn: PassFunction, weights: Array, support: NDArray[np.int64], ridge: float
) -> _Point:
    """One pass at the given weights."""
    statistics = pass_fn(weights, support)
    total = statistics.weight if statistics.weight > 0.0 else np.nan
    gradient = statistics.gradient[np.append(support, len(weights) - 1)] / total
    gradient[:-1] += ridge * weights[support]
    penalty = 0.5 * ridge * float(np.square(weights[support]).sum())
    return _Point(weights, statistics, ridge, statistics.loss / total + penalty, gradient)


def _descend(
    pass_fn: PassFunction, family: Family, point: _Point, max_iter: int, tol: float
) -> GlmFit:
    """Newton steps from an evaluated point until one of the statuses holds."""
    threshold = tol * gradient_scale(point.statistics)
    objectives, n_passes, deficient = [point.objective], 1, False
    memory = deque[tuple[Array, Array]](maxlen=_MEMORY)
    status: GlmStatus = "max_iter"
    while True:
        step, singular = _step(point, memory)
        deficient = deficient or singular
        done = _stop(family, point, step, threshold)
        if done is not None or len(objectives) > max_iter:
            status = done or status
            break
        trial, tried = _line_search(pass_fn, point, step)
        n_passes += tried
        if trial is None:
            status = "stalled"
            break
        memory.append((_moved(trial, point), trial.gradient - point.gradient))
        point = trial
        objectives.append(point.objective)
    return _fit(point, _verdict(point, status), objectives, n_passes, deficient)


def _stop(family: Family, point: _Point, step: Array, threshold: float) -> GlmStatus | None:
    """Whether to stop before taking the step, and as what."""
    statistics = point.statistics
    unbounded = point.ridge == 0.0 and family.curvature != "shared"
    if unbounded and statistics.min_margin > 0.0:
        small = statistics.loss <= _SEPARATED_LOSS * statistics.weight
        return "separated" if small else None
    small_gradient = float(np.linalg.norm(point.gradient)) <= threshold
    decrease = -float(np.sum(point.gradient * step))
    if not small_gradient and decrease > 1e-3 * _ROUNDING * abs(point.objective):
        return None
    # At a minimum Newton steps vanish with the gradient; on the way to infinity they do not.
    far = np.linalg.norm(step) > _SEPARATED_STEP * np.linalg.norm(point.weights)
    runaway = far and unbounded and statistics.curvature != "bound"
    return "separated" if runaway and np.abs(point.weights).max() > 1.0 else "converged"


def _verdict(point: _Point, status: GlmStatus) -> GlmStatus:
    """Correct the status by what the final point shows."""
    if point.statistics.n_clipped:
        return "clipped"
    proven = point.ridge == 0.0 and 0.0 < point.statistics.min_margin < np.inf
    return "separated" if proven else status


def _line_search(pass_fn: PassFunction, point: _Point, step: Array) -> tuple[_Point | None, int]:
    """Shorten the step until the objective falls enough; also the passes that took."""
    slope = float(np.sum(point.gradient * step))
    slack, size = _ROUNDING * abs(point.objective), 1.0
    for tried in range(1, _MAX_TRIALS + 1):
        weights = point.weights.copy()
        weights[point.active] += size * step
        trial = _evaluate(pass_fn, weights, point.statistics.support, point.ridge)
        rise = trial.objective - point.objective
        if rise <= _ARMIJO * size * slope + slack:
            return trial, tried
        size *= _shrink(rise, size * slope)
    return None, _MAX_TRIALS


def _shrink(rise: float, slope: float) -> float:
    """Return where the parabola through a failed trial is least, between 1/16 and 1/2.

    Plain halving would spend a pass on each of the many factors of two by which a Poisson step
    can be too long.
    """
    if not np.isfinite(rise) or rise <= slope:
        return 0.5
    return float(np.clip(-0.5 * slope / (rise - slope), _MIN_SHRINK, 0.5))


def _moved(point: _Point, before: _Point) -> Array:
    """Return the step between two points, on support and intercept."""
    return point.weights[point.active] - before.weights[point.active]


def _step(point: _Point, memory: Sequence[tuple[Array, Array]]) -> tuple[Array, bool]:
    """Return a Newton step, or with a bounded Hessian one corrected by the steps remembered.

    The correction is the two-loop recursion of L-BFGS with the bound as its first Hessian: tens
    of passes where steps of the bound alone take hundreds.
    """
    if point.statistics.curvature != "bound":
        return _newton_step(point, point.gradient)
    direction, shares = point.gradient.copy(), []
    usable = [(moved, turned) for moved, turned in memory if np.sum(moved * turned) > 0.0]
    for moved, turned in reversed(usable):
        shares.append(np.sum(moved * direction) / np.sum(moved * turned))
        direction -= shares[-1] * turned
    step, singular = _newton_step(point, direction)
    for (moved, turned), share in zip(usable, reversed(shares), strict=True):
        step -= (share + np.sum(turned * step) / np.sum(moved * turned)) * moved
    return step, singular


def _newton_step(point: _Point, gradient: Array) -> tuple[Array, bool]:
    """−H⁻¹ gradient, shape (s + 1, P), and whether H lacks full rank."""
    statistics = point.statistics
    hessian = statistics.hessian / statistics.weight
    if statistics.curvature == "full":
        return _coupled_step(hessian[0], gradient, point.ridge)
    blocks = [_penalised(block, point.ridge, 1) for block in hessian]
    if statistics.curvature == "separate":
        solved = [_solve(block, gradient[:, p]) for p, block in enumerate(blocks)]
        return -np.stack([x for x, _ in solved], axis=1), any(bad for _, bad in solved)
    solution, singular = _solve(blocks[0], gradient)
    return -solution, singular


def _coupled_step(hessian: Array, gradient: Array, ridge: float) -> tuple[Array, bool]:
    """Softmax step over orthonormal contrasts of the classes, where the Hessian has full rank.

    The ridge is the same in these coordinates, as it would not be over all classes but one.
    """
    contrasts = helmert(gradient.shape[1]).T
    n_contrasts = contrasts.shape[1]
    turn = contrasts[:-1] - contrasts[-1]  # the last class is minus the sum of the others
    blocks = hessian.reshape(n_contrasts, len(gradient), n_contrasts, len(gradient))
    turned = np.einsum("qirj,qu,rv->uivj", blocks, turn, turn, optimize=True)
    reduced = (gradient @ contrasts).T.ravel()
    matrix = _penalised(turned.reshape(hessian.shape), ridge, n_contrasts)
    solution, singular = _solve(matrix, reduced)
    return -solution.reshape(n_contrasts, -1).T @ contrasts.T, singular


def _penalised(hessian: Array, ridge: float, n_blocks: int) -> Array:
    """Add the ridge to the diagonal but for the intercept, the last of each block."""
    diagonal = np.full(len(hessian) // n_blocks, ridge)
    diagonal[-1] = 0.0
    penalised = hessian.copy()
    penalised[np.diag_indices_from(penalised)] += np.tile(diagonal, n_blocks)
    return penalised


def _solve(matrix: Array, rhs: Array) -> tuple[Array, bool]:
    """Solve a symmetric positive semidefinite system, least norm when rank is missing."""
    diagonal = np.diag(matrix)
    used = diagonal > 0.0  # a constant column without ridge gets exactly nothing
    unit = np.where(used, 1.0 / np.sqrt(np.where(used, diagonal, 1.0)), 0.0)
    scaled = matrix * unit * unit[:, np.newaxis]
    side = rhs * (unit if rhs.ndim == 1 else unit[:, np.newaxis])
    try:
        factor = cho_factor(scaled, lower=True)
        if np.square(np.diag(factor[0])).min() > _RANK_TOLERANCE:
            return _rescale(cho_solve(factor, side), unit), False
    except LinAlgError:
        pass  # not positive definite to rounding: the eigenvalues decide
    values, vectors = eigh(scaled)
    kept = values > _RANK_TOLERANCE * max(values[-1], 1.0)
    basis = vectors[:, kept]
    projected = basis.T @ side
    projected /= values[kept] if rhs.ndim == 1 else values[kept][:, np.newaxis]
    return _rescale(basis @ projected, unit), True


def _rescale(solution: Array, unit: Array) -> Array:
    """Undo the scaling to a unit diagonal."""
    return solution * (unit if solution.ndim == 1 else unit[:, np.newaxis])


def _fit(
    point: _Point, status: GlmStatus, objectives: list[float], n_passes: int, deficient: bool
) -> GlmFit:
    """Put the result together."""
    return GlmFit(
        weights=point.weights,
        support=point.statistics.support,
        status=status,
        loss=point.statistics.loss / point.statistics.weight,
        objective=point.objective,
        gradient_norm=float(np.linalg.norm(point.gradient)),
        n_iter=len(objectives) - 1,
        n_passes=n_passes,
        rank_deficient=deficient,
        objectives=tuple(objectives),
        statistics=point.statistics,
    )
