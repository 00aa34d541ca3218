"""L-BFGS on functions that are evaluated elsewhere, such as by passes over rows.

A search is a generator: it yields where it wants the function, and is sent value and gradient.
`side_by_side` advances many of them together, so that one pass answers all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from distfms.solve.newton import Status

_MEMORY = 10  # steps that L-BFGS remembers
_ARMIJO = 1e-4
_ROUNDING = 1e-12  # relative rise of a value that may be rounding
_MAX_TRIALS = 25  # lengths of one step

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")
#: A function that may ask on the way, such as for a pass over the rows, and what it returns.
Asking = Generator[Any, Any, T]
Function = Callable[[np.ndarray], Asking[tuple[float, np.ndarray]]]
#: A step s, the difference y of the gradients at its ends, and sᵀy > 0.
_Step = tuple[np.ndarray, np.ndarray, float]


def side_by_side(
    searches: Iterable[Generator[Q, A, T]],
    answer: Callable[[list[Q]], Iterable[A]],
    width: int | None = None,
) -> list[T]:
    """Advance searches whose questions are answered together, such as by one pass over the rows.

    Parameters
    ----------
    searches : iterable of generator
        Each yields its questions, one at a time, and is sent the answers.
    answer : callable
        From the questions that all searches under way wait with, in their order, to the answers.
    width : int, optional
        Most searches under way. The next one begins when one ends; by default all do at once.

    Returns
    -------
    list
        What the searches return.
    """
    results = dict[int, T]()
    questions = dict[int, Q]()
    running = dict[int, Generator[Q, A, T]]()
    not_begun = enumerate(searches)

    def advance(number: int, reply: Any) -> None:
        try:
            questions[number] = running[number].send(reply)
        except StopIteration as ended:
            results[number] = ended.value
            del running[number]

    while True:
        n_free = None if width is None else width - len(running)
        for number, search in islice(not_begun, n_free):
            running[number] = search
            advance(number, None)
        if not questions:
            return [results[number] for number in sorted(results)]
        asking = list(questions)
        replies = answer(list(questions.values()))
        questions.clear()
        for number, reply in zip(asking, replies, strict=True):
            advance(number, reply)


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a search ended: weights in the shape of the start, value, and norm of the gradient.

    ``stalled``: no step along the last direction lowered the value.
    """

    weights: np.ndarray
    value: float
    gradient_norm: float
    n_iterations: int
    status: Status


def minimise(
    function: Function,
    start: np.ndarray,
    *,
    at_start: tuple[float, np.ndarray] | None = None,
    factor: np.ndarray | None = None,
    tol: float,
    max_iter: int = 200,
) -> Asking[Minimum]:
    """Minimise a smooth convex function by L-BFGS.

    Parameters
    ----------
    function : callable
        Weights → value and gradient; a generator, whose questions are passed on.
    start : numpy.ndarray of shape (m, P)
    at_start : tuple, optional
        Value and gradient at the start.
    factor : numpy.ndarray of shape (m, m), optional
        Upper Cholesky factor U of a guess UᵀU of the Hessian of each of the P columns, such as the
        Gram matrix. The search is done on U · weights, where the Hessian is near the identity, so
        that the number of passes does not grow with the condition of the columns.
    tol : float
        Norm of the gradient at which the search has converged.
    max_iter : int

    References
    ----------
    Nocedal, Wright, "Numerical Optimization", Algorithms 7.4 and 7.5.
    """
    from scipy.linalg import solve_triangular

    factor = np.eye(len(start)) if factor is None else factor
    solved = partial(solve_triangular, np.asfortranarray(factor), check_finite=False)
    weights = np.array(start, dtype=np.float64)
    value, gradient = at_start or (yield from function(weights))
    steps: deque[_Step] = deque(maxlen=_MEMORY)
    status: Status = "max_iter"
    n_iterations = 0
    while True:
        norm = float(np.linalg.norm(gradient))
        if norm <= tol:
            status = "converged"
            break
        if n_iterations == max_iter:
            break
        white = solved(gradient, trans=1)
        direction = solved(_direction(white, steps))
        slope = float(np.sum(gradient * direction))
        lower = yield from _line_search(function, weights, value, direction, slope)
        if lower is None:
            status = "stalled"
            break
        moved = factor @ (lower[0] - weights)
        turned = solved(lower[2] - gradient, trans=1)
        curvature = np.sum(moved * turned)
        if curvature > 0:
            steps.append((moved, turned, curvature))
        weights, value, gradient = lower
        n_iterations += 1
    return Minimum(weights, value, norm, n_iterations, status)


def _direction(gradient: np.ndarray, steps: Sequence[_Step]) -> np.ndarray:
    """Return −H⁻¹ gradient, with the inverse Hessian that the last steps suggest: Algorithm 7.4."""
    direction = -gradient
    shares = []
    for moved, turned, curvature in reversed(steps):
        share = np.sum(moved * direction) / curvature
        shares.append(share)
        direction = direction - share * turned
    if steps:
        _, turned, curvature = steps[-1]
        direction = direction * (curvature / np.sum(turned * turned))
    for step, share in zip(steps, reversed(shares), strict=True):
        moved, turned, curvature = step
        correction = np.sum(turned * direction) / curvature
        direction += (share - correction) * moved
    return direction


def _line_search(
    function: Function, weights: np.ndarray, value: float, direction: np.ndarray, slope: float
) -> Asking[tuple[np.ndarray, float, np.ndarray] | None]:
    """Shorten a step until the value falls enough; None if no length will do."""
    length = 1.0
    rounding = _ROUNDING * abs(value)
    for _ in range(_MAX_TRIALS):
        trial = weights + length * direction
        trial_value, gradient = yield from function(trial)
        if trial_value <= value + _ARMIJO * length * slope + rounding:
            return trial, trial_value, gradient
        length *= _shortening(trial_value - value, -length * slope)
    return None


def _shortening(rise: float, predicted_fall: float) -> float:
    """Return where the parabola through a trial is least, between 1/16 and 1/2 of its length."""
    share = 0.0
    if np.isfinite(rise):
        share = 0.5 * predicted_fall / (rise + predicted_fall)
    return min(max(share, 1.0 / 16.0), 0.5)
