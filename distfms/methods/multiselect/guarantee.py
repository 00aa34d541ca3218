"""What Theorem 3.1 of [1]_ says of a run's own problem, where one process holds its covariance.

Its constants are not known and count as 1. It is stated for judgments and labels in [−1, 1]. In
units of their standard deviations, used here, some lie outside, so that in its own units λ is at
most the one given, and the error and the number of objects are at least those given.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distfms.methods.multiselect.greedy import Algorithm
from distfms.methods.multiselect.objective import BUDGET_TOLERANCE, Problem
from distfms.stats.judgments import JudgmentEstimates

#: Most attributes that eigenvalues are computed of; so many take a tenth of a second.
MOST_EIGEN = 1000


def guarantee(
    problem: Problem,
    estimates: JudgmentEstimates,
    repeats: np.ndarray,
    budget: float,
    delta: float,
    algorithm: Algorithm,
) -> dict[str, Any]:
    """Return the entry of ``selection.json``, for B judgments of d attributes and m objects.

    Full's objective is within O(B̄³ ln(Bd/δ) / (λ² √m)) of the truth, B̄ = min(B, d), for
    m ≥ Ω̃(B̄ ln(B̄d/δ) / λ²); Scoring's, where Σ is diagonal, within O(ln(Bd/δ) / (λ² √m)) for
    m ≥ Ω̃(ln(d/δ) / λ²). λ is the least eigenvalue of the external covariance of any attributes
    that the budget pays for.
    """
    limit = budget * (1.0 + BUDGET_TOLERANCE)
    own = np.flatnonzero(problem.candidates & (problem.costs <= limit))
    d, m = own.size, estimates.n_objects
    n_bought = int(limit / problem.costs[own].min()) if d else 0
    entry: dict[str, Any] = {"delta": delta, "budget": n_bought, "attributes": d, "objects": m}
    least = most = 0.0
    if d:
        unit = problem.deviation[own]
        if algorithm == "scoring":
            least = most = float((problem.external_variance[own] / unit**2).min())
        else:
            scaled = estimates.external[np.ix_(own, own)] / np.outer(unit, unit)
            bought = np.flatnonzero(repeats[own])
            least, most = least_eigenvalue(scaled, problem.costs[own], limit, bought)
    entry |= {"lambda_least": least if math.isfinite(least) else None, "lambda_most": most}
    if not most > 0:
        return entry | {"error": None, "objects_needed": None}
    size, factor = (1, 1) if algorithm == "scoring" else (min(n_bought, d), min(n_bought, d) ** 3)
    error = factor * math.log(n_bought * d / delta) / (most**2 * math.sqrt(m))
    return entry | {
        "error": problem.label_variance * error,
        "objects_needed": size * math.log(size * d / delta) / most**2,
    }


def least_eigenvalue(
    matrix: np.ndarray, costs: np.ndarray, limit: float, bought: np.ndarray
) -> tuple[float, float]:
    """Bound the least eigenvalue of any affordable principal submatrix, from below and above.

    It is that of the whole matrix where all is affordable. Else finding it is NP-hard: it is at
    most that of what is `bought`, and of where the eigenvector of the whole has its largest
    entries. Of a matrix too large there is no lower bound (−∞).
    """
    import scipy.linalg

    def least_of(index: np.ndarray) -> float:
        sub = matrix[np.ix_(index, index)]
        return float(scipy.linalg.eigvalsh(sub, subset_by_index=(0, 0))[0])

    supports, least = [bought[:MOST_EIGEN]], -math.inf
    if len(matrix) <= MOST_EIGEN:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(0, 0))
        least = float(values[0])
        if costs.sum() <= limit:
            return least, least
        order = np.argsort(-np.abs(vectors[:, 0]), kind="stable")
        supports.append(order[np.cumsum(costs[order]) <= limit])
    # A single attribute is affordable too.
    most = min(float(np.diagonal(matrix).min()), *(least_of(s) for s in supports if s.size))
    return least, most
