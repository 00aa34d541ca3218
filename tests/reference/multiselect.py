"""Feature multi-selection exactly as the paper writes it, without regard to speed.

Sabato & Kalai (2013), Algorithm 1. Every function recomputes everything from its arguments.
"""

from __future__ import annotations

import itertools

import numpy as np


def make_psd(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Nearest PSD matrix, judgments in units of their standard deviation."""
    unit = np.diag(np.sqrt(np.maximum(np.diag(matrix), 0) + v))
    values, vectors = np.linalg.eigh(np.linalg.inv(unit) @ matrix @ np.linalg.inv(unit))
    return unit @ vectors @ np.diag(np.maximum(values, 0)) @ vectors.T @ unit


def make_psd_in_data_units(matrix: np.ndarray) -> np.ndarray:
    """MakePSD as printed: A = U D Uᵀ with the negative entries of D zeroed."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(np.maximum(values, 0)) @ vectors.T


def scoring_objective(b, v, external_variance, repeats, ridge=0.0) -> float:
    total = 0.0
    for a in range(len(b)):
        if repeats[a] > 0:
            denominator = external_variance[a] + v[a] / repeats[a]
            if denominator > 0:
                total += b[a] ** 2 / (denominator + np.broadcast_to(ridge, len(b))[a])
    return total


def full_objective(b, v, external_psd, repeats, ridge=0.0) -> float:
    index = [a for a in range(len(b)) if repeats[a] > 0]
    if not index:
        return 0.0
    repeats = np.asarray(repeats, dtype=float)
    own = np.broadcast_to(ridge, len(b))[index]
    matrix = external_psd[np.ix_(index, index)] + np.diag(v[index] / repeats[index] + own)
    unit = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    correlation = b[index] / unit
    inverse = np.linalg.pinv(matrix / np.outer(unit, unit), rcond=1e-12, hermitian=True)
    return float(correlation @ inverse @ correlation)


def same_raters_objective(b, external, noise, repeats, ridge=0.0) -> float:
    """Rater j judges every attribute with r >= j, so that averages have raters in common."""
    index = [a for a in range(len(b)) if repeats[a] > 0]
    if not index:
        return 0.0
    matrix = np.zeros((len(index), len(index)))
    for i, a in enumerate(index):
        for j, c in enumerate(index):
            n_common = min(repeats[a], repeats[c])
            shared = n_common * noise[a, c] / (repeats[a] * repeats[c])
            matrix[i, j] = external[a, c] + shared + np.broadcast_to(ridge, len(b))[a] * (a == c)
    return float(b[index] @ np.linalg.solve(matrix, b[index]))


def greedy(objective, d: int, budget: int) -> list[int]:
    """Steps 14-19; the lowest index among the maximal."""
    repeats = np.zeros(d, dtype=int)
    chosen = []
    for _ in range(budget):
        values = []
        for a in range(d):
            repeats[a] += 1
            values.append(objective(repeats))
            repeats[a] -= 1
        best = int(np.argmax(values))
        repeats[best] += 1
        chosen.append(best)
    return chosen


def brute_force(objective, costs, budget: float) -> float:
    """Largest objective of all repeat vectors that the budget allows."""
    ranges = [range(int(budget / c) + 1) for c in costs]
    affordable = (r for r in itertools.product(*ranges) if np.dot(r, costs) <= budget + 1e-9)
    return max(objective(np.array(r)) for r in affordable)


def residual_variance(columns: np.ndarray, label: np.ndarray) -> float:
    """Mean squared residual of least squares with a free constant; columns of shape (m, n)."""
    design = np.column_stack([np.ones(len(label)), columns])
    return float(np.mean((label - design @ np.linalg.lstsq(design, label, rcond=None)[0]) ** 2))


def forward_selection(columns: np.ndarray, label: np.ndarray, n_steps: int, allowed) -> list[int]:
    """Add the column that most decreases the residual variance; `allowed(chosen, column)`."""
    chosen: list[int] = []
    for _ in range(n_steps):
        rest = [c for c in range(columns.shape[1]) if c not in chosen and allowed(chosen, c)]
        losses = [residual_variance(columns[:, [*chosen, c]], label) for c in rest]
        chosen.append(rest[int(np.argmin(losses))])
    return chosen


def copies(judgments: np.ndarray, label: np.ndarray, budget: int, any_order: bool) -> np.ndarray:
    """Repeats that Copies buys: each judgment (m, d, k) in its place is an attribute of its own.

    In any order as in arXiv:1302.4297, or in fixed order within an attribute as at ICML 2013.
    """
    _, d, k = judgments.shape
    columns = judgments.reshape(len(label), d * k)

    def allowed(chosen: list[int], column: int) -> bool:
        return any_order or column % k == 0 or column - 1 in chosen

    chosen = forward_selection(columns, label, min(budget, d * k), allowed)
    return np.bincount(np.array(chosen) // k, minlength=d)
