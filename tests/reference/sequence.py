"""Group sequencing as the paper writes it: every candidate refitted on the rows, every time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distfms.methods.sequence.options import parse_rule
from distfms.methods.sequence.problem import (
    FeatureGroups,
    Path,
    SequenceProblem,
    problem_from_comoments,
)
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.solve.costs import GroupCosts
from distfms.stats.comoments import CoMoments


def standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def fitted(X: np.ndarray, Y: np.ndarray, columns: Sequence[int], ridge: float) -> np.ndarray:
    """w(S), from the rows: least squares, with √(nλ) I below X for the ridge."""
    design = X[:, list(columns)]
    if ridge:
        extra = np.sqrt(len(X) * ridge) * np.eye(design.shape[1])
        design = np.vstack((design, extra))
        Y = np.vstack((Y, np.zeros((design.shape[1], Y.shape[1]))))
    return np.linalg.lstsq(design, Y, rcond=1e-10)[0]


def risk(X: np.ndarray, Y: np.ndarray, columns: Sequence[int], ridge: float) -> float:
    """Equation 1."""
    w = fitted(X, Y, columns, ridge)
    residual = Y - X[:, list(columns)] @ w
    return float((residual**2).sum() / (2 * len(X)) + ridge / 2 * (w**2).sum())


def explained(X: np.ndarray, Y: np.ndarray, columns: Sequence[int], ridge: float) -> float:
    """F(S) = YᵀY/2n − R(S)."""
    return float((Y**2).sum() / (2 * len(X))) - risk(X, Y, columns, ridge)


def gradient(
    X: np.ndarray, Y: np.ndarray, columns: Sequence[int], group: Sequence[int], ridge: float
) -> np.ndarray:
    """b_g at S, for g outside S."""
    residual = Y
    if len(columns):
        residual = Y - X[:, list(columns)] @ fitted(X, Y, columns, ridge)
    return X[:, list(group)].T @ residual / len(X)


def value(
    rule: str,
    X: np.ndarray,
    Y: np.ndarray,
    columns: Sequence[int],
    group: Sequence[int],
    ridge: float,
) -> float:
    """What a rule maximises (before the cost), in units of F."""
    if rule == "fr":
        both = [*columns, *group]
        return explained(X, Y, both, ridge) - explained(X, Y, columns, ridge)
    b = gradient(X, Y, columns, group, ridge)
    if rule == "omp":
        raw = X[:, list(group)].T @ X[:, list(group)] / len(X)
        return 0.5 * float(np.trace(b.T @ np.linalg.pinv(raw, rcond=1e-10, hermitian=True) @ b))
    if rule == "omp-single":
        return 0.5 * float((b**2).sum(axis=1).max())
    assert rule == "omp-no-whiten"
    return 0.5 * float((b**2).sum())


@dataclass
class LiteralSequence:
    order: list[int]
    values: list[float]
    gains: list[float]
    costs: list[float]


def literal_sequence(
    rule: str,
    X: np.ndarray,
    Y: np.ndarray,
    groups: Sequence[Sequence[int]],
    cost: Callable[[Sequence[int], int], float],
    ridge: float = 0.0,
    *,
    cost_aware: bool = True,
    doubling: bool = False,
) -> LiteralSequence:
    """Algorithms 1 and 2; `cost(chosen, g)` is what g costs after the chosen ones."""
    result = LiteralSequence([], [], [], [])
    while len(result.order) < len(groups):
        excluded = [g for g in range(len(groups)) if g not in result.order]
        costs = {g: cost(result.order, g) for g in excluded}
        allowed = excluded
        if doubling:
            cap = sum(result.costs) if result.order else min(costs.values())
            allowed = [g for g in excluded if costs[g] <= cap]
            allowed = allowed or [min(excluded, key=lambda g: (costs[g], g))]
        columns = [c for g in result.order for c in groups[g]]
        scores = {g: value(rule, X, Y, columns, groups[g], ridge) for g in allowed}
        per_cost = {g: scores[g] / (costs[g] if cost_aware else 1.0) for g in allowed}
        best = max(allowed, key=lambda g: (per_cost[g], -g))
        result.order.append(best)
        result.values.append(scores[best])
        result.gains.append(value("fr", X, Y, columns, groups[best], ridge))
        result.costs.append(costs[best])
    return result


def correlated(
    rng: np.random.Generator,
    n: int,
    sizes: Sequence[int],
    *,
    n_targets: int = 1,
    near_duplicates: float | None = None,
) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Rows with correlated groups, on odd scales and offsets.

    With `near_duplicates` the last group repeats columns of the first but for that much noise.
    """
    d = sum(sizes)
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.4 * rng.standard_normal((d, d)))
    ends = np.cumsum([0, *sizes]).tolist()
    groups = [list(range(a, b)) for a, b in itertools.pairwise(ends)]
    if near_duplicates is not None:
        for a, b in zip(groups[0], groups[-1], strict=False):
            X[:, b] = X[:, a] + near_duplicates * rng.standard_normal(n)
    weights = rng.standard_normal((d, n_targets)) * (rng.random((d, 1)) < 0.6)
    Y = X @ weights + 2.0 * rng.standard_normal((n, n_targets))
    return X * rng.uniform(0.1, 50, d) + rng.normal(0, 30, d), Y * 3.0 + 7.0, groups


def make_problem(
    X: np.ndarray,
    Y: np.ndarray,
    groups: Sequence[Sequence[int]],
    costs: GroupCosts | Sequence[float] | None = None,
    ridge: float = 0.0,
) -> SequenceProblem:
    """Problem from rows by way of their statistics."""
    if not isinstance(costs, GroupCosts):
        costs = np.ones(len(groups)) if costs is None else np.asarray(costs, dtype=np.float64)
        costs = GroupCosts(costs)
    d = X.shape[1]
    p = Y.shape[1]
    return problem_from_comoments(
        comoments(X, Y),
        feature_names=[f"x{i}" for i in range(d)],
        target_names=[f"y{i}" for i in range(p)],
        groups=FeatureGroups(
            tuple(f"g{i}" for i in range(len(groups))), tuple(tuple(g) for g in groups)
        ),
        costs=costs,
        ridge=ridge,
    )


def search(
    problem: SequenceProblem,
    name: str,
    *,
    seed: int = 0,
    max_groups: int | None = None,
    budget: float | None = None,
) -> Path:
    """Path of a rule of this name."""
    rule = replace(parse_rule(name), budget=budget)
    scaling = problem.scaling
    procedure = SequenceProcedure(
        (rule,), scaling.feature_names, scaling.target_names, problem.groups, problem.costs,
        problem.ridge, max_groups, seed,
    )  # fmt: skip
    return procedure.search(problem, rule)


def comoments(X: np.ndarray, Y: np.ndarray) -> CoMoments:
    return CoMoments.from_block(np.ascontiguousarray(np.column_stack((X, Y)).T))


# --- group lasso ----------------------------------------------------------------------------------


def lasso_violation(
    X: np.ndarray,
    Y: np.ndarray,
    groups: Sequence[Sequence[int]],
    costs: Sequence[float],
    penalty: float,
    w: np.ndarray,
) -> float:
    """How far 0 is from the subdifferential of ‖Y − Xw‖² + λ Σ c(g) ‖w_g‖, in units of XᵀY/n.

    The baseline Sparse of Section 5.2, which is convex: at 0, w is a solution.
    """
    found = 0.0
    residual = Y - X @ w
    for cost, group in zip(costs, groups, strict=True):
        pull = 2 * X[:, list(group)].T @ residual
        own = w[list(group)]
        if own.any():
            off = np.linalg.norm(pull - penalty * cost * own / np.linalg.norm(own))
        else:
            off = max(np.linalg.norm(pull) - penalty * cost, 0.0)
        found = max(found, float(off))
    return found / (2 * len(X))
