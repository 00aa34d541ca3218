"""Learning with similarity functions by its formulas, one row and one landmark at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from scipy.optimize import linprog
from sklearn.metrics import ndcg_score

Vector = Sequence[float]


def dot(x: Vector, y: Vector) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def manhattan(x: Vector, y: Vector) -> float:
    return -sum(abs(a - b) for a, b in zip(x, y, strict=True))


def euclidean(x: Vector, y: Vector) -> float:
    return -sum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def similarity(name: str, x: Vector, y: Vector, p: dict[str, float]) -> float:
    """K(x, y)."""
    formulas: dict[str, Callable[[], float]] = {
        "sigmoid": lambda: math.tanh(p["a"] * dot(x, y) + p["r"]),
        "manhattan": lambda: manhattan(x, y),
        "gaussian": lambda: math.exp(euclidean(x, y) / (2 * p["sigma"] ** 2)),
        "laplace": lambda: math.exp(-math.sqrt(-euclidean(x, y)) / p["sigma"]),
        "euclidean": lambda: euclidean(x, y),
        "linear": lambda: dot(x, y),
    }
    return formulas[name]()


def embedding(name: str, rows: np.ndarray, landmarks: np.ndarray, p: dict[str, float]):
    """Similarities of rows (n, d) to landmarks (L, d), shape (n, L)."""
    return np.array([[similarity(name, x, y, p) for y in landmarks] for x in rows])


def kernel_regression(K: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ y_i K(x, x_i) / Σ K(x, x_i) for each row of K."""
    return np.array([sum(k * t for k, t in zip(row, y, strict=True)) / sum(row) for row in K])


def best_next(K: np.ndarray, y: np.ndarray, chosen: list[int]) -> int:
    """Landmark that lowers the squared loss most when all weights are fitted again."""

    def loss(columns: list[int]) -> float:
        X = np.column_stack([np.ones(len(y)), K[:, columns]])
        residual = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
        return float(residual @ residual)

    excluded = [j for j in range(K.shape[1]) if j not in chosen]
    return min(excluded, key=lambda j: loss([*chosen, j]))


def least_squares(K: np.ndarray, y: np.ndarray, chosen: list[int]) -> np.ndarray:
    """Weights of the chosen similarities, without an intercept; 0 elsewhere."""
    w = np.zeros(K.shape[1])
    w[chosen] = np.linalg.lstsq(K[:, chosen], y, rcond=None)[0]
    return w


def steepest_next(K: np.ndarray, y: np.ndarray, chosen: list[int]) -> int:
    """Line 4 of Algorithm 2 for the squared loss, at the least squares of the chosen ones."""
    w = least_squares(K, y, chosen)
    slopes = [2 * (dot(row, w) - t) / len(y) for row, t in zip(K, y, strict=True)]
    return max(range(K.shape[1]), key=lambda j: abs(dot(slopes, K[:, j])))


Corners = list[tuple[float, float]]
"""Signs s and offsets c of the terms max(c + s·f, 0) of a row's loss."""


def insensitive(y: float, epsilon: float) -> Corners:
    """max(|f − y| − ε, 0)."""
    return [(1.0, -y - epsilon), (-1.0, y - epsilon)]


def all_margins(level: int, thresholds: Vector, gamma: float) -> Corners:
    """IMC: Σ_{j ≤ y} [f − b_j]_γ + Σ_{j > y} [b_j − f]_γ with [x]_γ = max(γ − x, 0), y from 0."""
    below = [(-1.0, gamma + b) for b in thresholds[:level]]
    return below + [(1.0, gamma - b) for b in thresholds[level:]]


def margin(level: int, thresholds: Vector, gamma: float) -> Corners:
    """EXC: the same of the thresholds beside the level alone."""
    return all_margins(min(level, 1), thresholds[max(level - 1, 0) : level + 1], gamma)


def hinge(is_class: bool) -> Corners:
    """max(1 ∓ f, 0)."""
    return [(-1.0 if is_class else 1.0, 1.0)]


def loss(f: float, corners: Corners, corner: Callable[[float], float]) -> float:
    """Loss of a score."""
    return sum(corner(c + sign * f) for sign, c in corners)


def least_corners(K: np.ndarray, corners: Sequence[Corners]) -> np.ndarray:
    """Weights w of the least sum of losses of the scores Kw, by linear programming."""
    terms = [(sign * row, c) for row, own in zip(K, corners, strict=True) for sign, c in own]
    signed, offsets = map(np.array, zip(*terms, strict=True))
    free = K.shape[1]
    costs = np.repeat([0.0, 1.0], [free, len(terms)])
    above = np.hstack([signed, -np.eye(len(terms))])
    bounds = [(None, None)] * free + [(0.0, None)] * len(terms)
    return linprog(costs, above, -offsets, bounds=bounds).x[:free]


def discounted_norm(gains: Vector) -> float:
    """‖G‖_D: the largest Σ G_i / F(π(i)), F(t) = log(1 + t)."""
    return max(
        sum(g / math.log(2 + place) for place, g in enumerate(order))
        for order in permutations(gains)
    )


def eta(relevance: Vector) -> list[float]:
    """η(r) = G(r)/‖G(r)‖_D of one query, G(r) = 2^r − 1."""
    gains = [2.0**r - 1 for r in relevance]
    norm = discounted_norm(gains)
    return [g / norm if norm > 0 else 0.0 for g in gains]


def mean_ndcg(scores: np.ndarray, relevance: np.ndarray, query: np.ndarray, k: int | None) -> float:
    """Mean NDCG of the queries that have a relevant row; of whole lists without k."""
    results = []
    for own in (query == q for q in np.unique(query)):
        if relevance[own].max() > 0:
            gains = 2.0 ** relevance[own] - 1
            results.append(ndcg_score([gains], [scores[own]], k=k) if own.sum() > 1 else 1.0)
    return np.mean(results)


def smoothed_slope(t: float, epsilon: float, beta: float) -> float:
    """Derivative of the smoothed ε-insensitive loss (appendix D.1)."""
    size = 0.0 if abs(t) <= epsilon else min(beta * (abs(t) - epsilon), 1.0)
    return math.copysign(size, t)


def sparse_steps(K, y, bound, epsilon, smoothness, most, derivative=lambda t: 2 * t):
    """Algorithm 2, by default for the squared loss; returns the weights after every step."""
    w = [0.0] * K.shape[1]
    results = []
    for _ in range(most):
        slopes = [derivative(dot(row, w) - t) for row, t in zip(K, y, strict=True)]
        theta = [dot(slopes, column) / len(y) for column in K.T]
        r = max(range(len(w)), key=lambda j: abs(theta[j]))
        delta = dot(theta, w) + bound * abs(theta[r])
        if delta <= epsilon:
            break
        eta = min(1.0, delta / (4 * bound**2 * smoothness))
        w = [(1 - eta) * value for value in w]
        w[r] -= eta * math.copysign(bound, theta[r])
        results.append(w)
    return results


def steepest(K: np.ndarray, y: np.ndarray, f: np.ndarray, epsilon: float, beta: float) -> list:
    """Sizes of the slopes of the smoothed ε-insensitive loss along centred similarities."""
    slopes = [smoothed_slope(a - b, epsilon, beta) for a, b in zip(f, y, strict=True)]
    return [abs(dot(slopes, column)) for column in (K - K.mean(axis=0)).T]


def metric_similarity(name: str, x: Vector, z: Vector, T: np.ndarray, sigma: float) -> float:
    """k(‖T(x − z)‖) for a matrix T."""
    r = math.sqrt(sum(v * v for v in T @ (np.asarray(x) - np.asarray(z))))
    return math.exp(-(r**2) / (2 * sigma**2)) if name == "gaussian" else math.exp(-r / sigma)


def ridge_weights(K: np.ndarray, Y: np.ndarray, norm: np.ndarray, ridge: float) -> np.ndarray:
    """Weights (L, P) that minimise mean ‖y − Kw‖² + ridge·wᵀAw of centred rows (n, L)."""
    A = K - K.mean(axis=0)
    left = A.T @ A / len(K) + ridge * (norm + 1e-6 * np.mean(np.diag(norm)) * np.eye(len(norm)))
    return np.linalg.solve(left, A.T @ (Y - Y.mean(axis=0)) / len(K))


def mean_gradient_product(name, rows, landmarks, T, sigma, weights, step=1e-5):
    """Mean over rows of Σ ∇f ∇fᵀ, by differences of f(x) = Σ w_l K(x, z_l)."""
    n_columns = rows.shape[1]
    total = np.zeros((n_columns, n_columns))

    def f(x, p):
        return sum(
            w * metric_similarity(name, x, z, T, sigma)
            for w, z in zip(weights[:, p], landmarks, strict=True)
        )

    for x in rows:
        for p in range(weights.shape[1]):
            moved = [step * e for e in np.eye(n_columns)]
            g = np.array([(f(x + e, p) - f(x - e, p)) / (2 * step) for e in moved])
            total += np.outer(g, g)
    return total / len(rows)
