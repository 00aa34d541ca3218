"""The lasso path of a covariance, as the supports that follow one another along it.

References
----------
.. [1] B. Efron, T. Hastie, I. Johnstone and R. Tibshirani, "Least Angle Regression", Annals of
   Statistics 32, 2004, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Added to the unit diagonal, so that columns that are combinations of others share their weight.
JITTER = 1e-9

#: Supports of the path for each column; more, and the path is taken to go in circles.
MOST_KNOTS = 8


def lasso_supports(gram: np.ndarray, target: np.ndarray, most: int) -> Iterator[list[int]]:
    """Follow min ½ wᵀGw − wᵀt + λ‖w‖₁ down from the largest λ with a weight.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        Symmetric, positive semi-definite, of unit diagonal.
    target : ndarray of shape (d,)
    most : int
        Size of a support at which to stop.

    Yields
    ------
    list of int
        Columns with a weight between two knots, in the order in which they entered.
    """
    if not np.any(target):
        return
    gram = gram + JITTER * np.eye(target.size)
    weights, residual = np.zeros_like(target), target.copy()
    active, left = [int(np.argmax(np.abs(target)))], -1
    for _ in range(MOST_KNOTS * target.size):
        yield list(active)
        level, sign = float(np.abs(residual[active]).min()), np.sign(residual[active])
        direction = np.linalg.solve(gram[np.ix_(active, active)], sign)
        along = gram[:, active] @ direction
        steps = np.full(target.size, level)
        # A column enters where its residual comes up to the level of the active ones ...
        for side in (1.0, -1.0):
            room = 1.0 - side * along
            reached = np.full(target.size, np.inf)
            np.divide(level - side * residual, room, out=reached, where=room > JITTER)
            if left >= 0 and side * residual[left] > 0:
                reached[left] = np.inf
            steps = np.minimum(steps, np.maximum(reached, 0.0))
        # ... and leaves where its weight falls to 0; one that has just left is still at the level.
        falls = weights[active] * direction < 0
        steps[active] = np.where(falls, np.abs(weights[active] / direction), np.inf)
        knot = int(np.argmin(steps))
        left = knot if knot in active else -1
        if steps[knot] >= level or (left < 0 and len(active) == most):
            return
        weights[active] += steps[knot] * direction
        residual -= steps[knot] * along
        if left >= 0:
            active.remove(knot)
            weights[knot] = 0.0
        else:
            active.append(knot)
