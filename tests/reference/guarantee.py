"""How near to the best a sequence is at least: the factors of Hu et al., Theorems 3.2 and 4.3.

The paper has groups that are whitened, and γ = (λ* + λ) / (1 + λ) with the smallest eigenvalue λ*
of the covariance and the ridge λ. Other groups are whitened with the ridge, C_gg = I, which changes
nothing of what they explain; γ is then the smallest eigenvalue of C. Of single columns, and of
groups that are white already, both are the same. As ``omp`` whitens without the ridge, its γ is
less by what this may change of a value. Where up to m groups share a cost, the prices of the groups
of a set add up to at most m times what they cost together, so γ / m takes the place of γ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import Path, SequenceProblem
from distfms.solve.cholesky import dependence_rtol


def smallest_eigenvalue(matrix: np.ndarray) -> float:
    """Return the smallest eigenvalue, 0 where it cannot be told from that."""
    from scipy.linalg import eigvalsh

    found = float(eigvalsh(matrix, subset_by_index=[0, 0])[0])
    return found if found > dependence_rtol(len(matrix)) else 0.0


def gamma_of(problem: SequenceProblem, criterion: str = "fr") -> float:
    """Return γ, in [0, 1]: the smallest eigenvalue of C with every group whitened.

    Columns that depend linearly on others of their group are left out.
    """
    matrix, kept = problem.gram.copy(), np.ones(len(problem.gram), dtype=bool)
    matrix.flat[:: len(matrix) + 1] += problem.ridge
    raw = np.ones(len(matrix))
    floor = dependence_rtol(len(matrix))
    for own in (list(group) for group in problem.groups.columns):
        values, vectors = np.linalg.eigh(matrix[np.ix_(own, own)])
        kept[own] = values > floor * values[-1]
        raw[own] = 1 - problem.ridge / np.where(kept[own], values, np.inf)
        whitener = vectors / np.sqrt(np.where(kept[own], values, 1.0))
        matrix[own] = whitener.T @ matrix[own]
        matrix[:, own] = matrix[:, own] @ whitener
    found = min(smallest_eigenvalue(matrix[np.ix_(kept, kept)]), 1.0)
    raw = raw[kept & (raw > floor)]
    return found * float(raw.min() / raw.max()) if criterion == "omp" else found


def factor_of_cost(gamma: float, spent: float, cost: float) -> float:
    """Theorem 3.2: the greedy groups for `spent` explain this share of what any for `cost` do."""
    return float(-np.expm1(-gamma * spent / cost))


def factor_of_quarter(gamma: float) -> float:
    """Theorem 4.3: the groups by doubling within B explain this share of what any for B/4 do."""
    return float(-np.expm1(-(gamma**2) / (1 + gamma)))


def guarantee(problem: SequenceProblem, path: Path, rule: OrderRule) -> dict[str, Any]:
    """Return what a theorem promises of each step, empty where none applies.

    Theorem 3.2 is about `fr` and `omp` by gain per cost, 4.3 about doubling with costs that are not
    shared; both about what is explained of the training rows. Theorem 4.3 needs that no groups
    multiply what another adds by more than 1/γ, which the γ above does not ensure.
    """
    costs, is_doubling = problem.costs, rule.doubling
    blind = not rule.cost_aware and (costs.shared or np.ptp(costs.own))
    if rule.criterion not in ("fr", "omp") or blind or costs.requires:
        return {}
    if is_doubling and (costs.shared or path.notes):
        return {}  # notes: it is not doubling capable
    shared_by = max((len(item.groups) for item in costs.shared), default=1)
    found, total = gamma_of(problem, rule.criterion), costs.total(range(len(problem.groups)))
    gamma, least = found / shared_by, float(costs.alone.min())

    def factors(spent: float) -> dict[str, float | None]:
        if is_doubling:
            return {"of_quarter_cost": factor_of_quarter(gamma) if spent > least else None}
        same, every = (spent, total) if spent else (np.inf, np.inf)
        return {
            "of_same_cost": factor_of_cost(gamma, spent, same),
            "of_all_groups": factor_of_cost(gamma, spent, every),
        }

    return {
        "theorem": "4.3" if is_doubling else "3.2",
        "smallest_eigenvalue": smallest_eigenvalue(problem.gram),
        "gamma": found,
        "shared_by": shared_by,
        "steps": [{"spent": spent, **factors(spent)} for spent in path.spent.tolist()],
    }
