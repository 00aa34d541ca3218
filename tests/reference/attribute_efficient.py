"""GAERR and GAELR as the paper writes them: every step over all d attributes.

The random numbers are given: indices of the attributes of the point, and uniform numbers for those
of the inner product. Plain loops, which numba compiles as they stand.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from distfms.methods.attribute_efficient import kernels
from distfms.methods.attribute_efficient.learner import logarithms


@njit
def observed(x, y, points, uniforms, q, p, w, x_tilde, chosen):
    """Observe one example: add to x̃ = 0 and list what was chosen; return φ̃."""
    d = len(q)
    k = len(points)
    chosen[:] = -1
    for r in range(k):
        chosen[r] = points[r]
        x_tilde[points[r]] += x[points[r]] / q[points[r]] / k
    phi = -y
    norm = p.sum()
    for r in range(len(uniforms) if norm > 0 else 0):
        rest = uniforms[r] * norm
        j = -1
        last = -1
        for i in range(d):
            if p[i] > 0:
                last = i
                if rest < p[i]:
                    j = i
                    break
                rest -= p[i]
        j = last if j < 0 else j
        chosen[k + r] = j
        phi += w[j] / (p[j] / norm) * x[j] / len(uniforms)
    return phi


@njit
def distinct(chosen):
    """Count what was observed, an attribute once however often it was drawn."""
    n_seen = 0
    for r in range(len(chosen)):
        n_seen += chosen[r] >= 0 and not (chosen[:r] == chosen[r]).any()
    return n_seen


@njit
def gaerr(X, y, points, uniforms, q, inner, squares, eta, B, w, total, projected, listed):
    """Algorithm 1, with several draws for the inner product.

    ``inner`` multiplies |w| in the probabilities of the inner product, unless they go by squares.
    Changes ``w`` to the last weights and adds each w_t to ``total``; returns the number of distinct
    attributes observed. ``projected[0]`` counts the projections, ``listed`` takes the attributes.
    """
    d = len(q)
    n_seen = 0
    p = np.zeros(d)
    x_tilde = np.zeros(d)
    chosen = np.empty(points.shape[1] + uniforms.shape[1], dtype=np.int64)
    for t in range(len(points)):
        for i in range(d):
            total[i] += w[i]
            x_tilde[i] = 0.0
            p[i] = w[i] * w[i] if squares else abs(w[i]) * inner[i]
        phi = observed(X[t], y[t], points[t], uniforms[t], q, p, w, x_tilde, chosen)
        n_seen += distinct(chosen)
        listed[t] = chosen
        length = 0.0
        for i in range(d):
            w[i] -= eta * phi * x_tilde[i]
            length += w[i] * w[i]
        if np.sqrt(length) > B:
            projected[0] += 1
            for i in range(d):
                w[i] *= B / np.sqrt(length)
    return n_seen


@njit
def gaelr(X, y, points, uniforms, q, inner, squares, eta, B, z, total, clipped, listed):
    """GAELR; ``z`` holds z⁺ and z⁻, which are divided by their sum after each step.

    ``clipped[0]`` counts the steps at which an entry of the gradient was clipped.
    """
    d = len(q)
    n_seen = 0
    w = np.zeros(d)
    p = np.zeros(d)
    x_tilde = np.zeros(d)
    chosen = np.empty(points.shape[1] + uniforms.shape[1], dtype=np.int64)
    for t in range(len(points)):
        norm = z.sum()
        for i in range(d):
            w[i] = B * (z[0, i] - z[1, i]) / norm
            total[i] += w[i]
            x_tilde[i] = 0.0
            p[i] = abs(w[i]) * inner[i]
        phi = observed(X[t], y[t], points[t], uniforms[t], q, p, w, x_tilde, chosen)
        n_seen += distinct(chosen)
        listed[t] = chosen
        was_clipped = False
        for i in range(d):
            g = phi * x_tilde[i]
            was_clipped |= abs(g) > 1 / eta
            g = min(max(g, -1 / eta), 1 / eta)
            z[0, i] *= np.exp(-eta * g)
            z[1, i] *= np.exp(eta * g)
        z /= z.sum()
        clipped[0] += was_clipped
    return n_seen


def uniforms(key, numbers):
    """Random numbers of a chain."""
    return np.array([kernels.uniform(np.uint64(key), i) for i in numbers])


class Literal:
    """The literal loop on a chain's own random numbers, phase after phase."""

    def __init__(self, design, key):
        self.design = design
        self.key = key
        self.n_seen = 0
        d = design.n_attributes
        self.w = np.zeros(d)
        self.z = np.full((2, d), 0.5 / d)
        self.total = np.zeros(d)
        self.events = np.zeros(1)
        self.squares = np.zeros(d)
        self.counts = np.zeros(d)

    def learn(self, X, y):
        """Learn from all examples, in one phase or two."""
        first = self.design.first_examples
        if not first:
            self.run(X, y, 0, self.design.phase(), self.design.step_factor)
            return
        self.run(X[:first], y[:first], 0, self.design.phase(), self.design.first_step_factor)
        second = self.design.phase(self.squares / self.counts)
        self.begin_at(self.average)
        self.run(X[first:], y[first:], first, second, self.design.step_factor)

    def add_squares(self, X, listed):
        """Add up the squares of what was observed, an attribute once for each example."""
        for x, attributes in zip(X, listed, strict=True):
            seen = np.unique(attributes[attributes >= 0])
            self.squares[seen] += x[seen] ** 2
            self.counts[seen] += 1

    def run(self, X, y, first, phase, factor):
        """Learn from examples, the first of which has a number; return the points."""
        design, (m, d) = self.design, X.shape
        n_draws = design.n_draws
        k = design.n_point
        u = uniforms(self.key, range(first * n_draws, (first + m) * n_draws))
        u = u.reshape(m, n_draws)
        q = phase.probabilities()
        shares = np.cumsum(q)
        points = np.searchsorted(shares, u[:, :k] * shares[-1], side="right")
        improved = design.improved and phase.moments is not None
        inner = np.sqrt(phase.moments) if improved else np.ones(d)
        squares = design.penalty == "ridge" and not improved
        lasso = design.penalty == "lasso"
        listed = np.empty((m, n_draws), dtype=np.int64)
        self.total[:] = 0.0
        self.n_seen += (gaelr if lasso else gaerr)(
            X / design.norm,
            y,
            points,
            u[:, k:].copy(),
            q,
            inner,
            squares,
            factor * phase.step(),
            design.bound,
            self.z if lasso else self.w,
            self.total,
            self.events,
            listed,
        )
        self.add_squares(X, listed)
        self.average = self.total / m
        if lasso:
            self.w = design.bound * (self.z[0] - self.z[1]) / self.z.sum()
        return points

    def begin_at(self, weights):
        """Begin a second phase at weights."""
        self.w = weights.copy()
        if self.design.penalty == "lasso":
            logs = logarithms(self.w, self.design.bound)
            self.z = np.exp([logs, -logs])


def observed_norm(X, points, lasso):
    """What to divide attributes by, from the points (m, k) that are drawn alike."""
    squares = [X[t, i] ** 2 for t in range(len(points)) for i in points[t]]
    if lasso:
        return max(squares) ** 0.5
    return 1.5 * (X.shape[1] * sum(squares) / len(squares)) ** 0.5


def ridge_within(X, y, B):
    """The least squared loss over ‖w‖₂ ≤ B: the multiplier by bisection, each time with a solve."""
    G = X.T @ X / len(y)
    c = y @ X / len(y)
    w = np.linalg.pinv(G, rcond=1e-12, hermitian=True) @ c
    low = 0.0
    high = np.linalg.norm(c) / B
    while np.linalg.norm(w) > B and low < (middle := (low + high) / 2) < high:
        tried = np.linalg.solve(G + middle * np.eye(len(c)), c)
        if np.linalg.norm(tried) > B:
            low = middle
            w = tried
        else:
            high = middle
    return w


def pair_moments(rows, y, mean=None):
    """A, b̂, v and V from sums over rows (n, d), NaN where not observed; about `mean` (d + 1,)."""
    M = (~np.isnan(rows)).astype(float)
    Z = np.where(M > 0, rows, 0.0)
    n = len(y)
    c = M.sum(axis=0)
    s = Z.sum(axis=0)
    q = (Z**2).sum(axis=0)
    h = M.T @ y
    b = Z.T @ y
    C = M.T @ M
    S = Z.T @ Z
    T = Z.T @ M
    mu, level = (s / c, y.mean()) if mean is None else (mean[:-1], mean[-1])
    P = S - T * mu - (T * mu).T + C * np.outer(mu, mu)
    cross = (b - mu * h - level * s + mu * level * c) / c
    v = (q - 2 * mu * s + mu**2 * c) / c
    pi = c / n
    rest = 1.0 - pi
    spread = (pi * rest).sum()
    E = n * np.outer(pi, pi) * (1.0 - np.outer(rest, rest) / spread)
    A = P * (1.0 + 1.0 / E) / (C + 1.0)
    A[np.diag_indices_from(A)] = v
    return A, cross, v, np.outer(v, v) / E


RIDGES = 10.0 ** np.arange(-2, 2.6, 0.5)


def scaled(A, v, V, unit):
    """A in units of the attributes' scales, these, and the noise level."""
    scale = np.sqrt(v) if unit else np.ones_like(v)
    eta = (V / np.outer(scale, scale) ** 2).sum(axis=1) / (v / scale**2)
    eta0 = (v / scale**2 * eta).sum() / (v / scale**2).sum()
    scale = scale * np.sqrt(np.maximum(1.0, eta / eta0))
    A = A / np.outer(scale, scale)
    chance = 2.0 * np.sqrt((V / np.outer(scale, scale) ** 2).sum() / len(v))
    return A, scale, max(-np.linalg.eigvalsh(A)[0], chance)


def pair_candidates(A, cross, v, V, unit, observed):
    """Weights at all constants, the mean, and ridges with shrunk covariances.

    For attributes divided by their deviations, or as they come.
    """
    A, scale, nu = scaled(A, v, V, unit)
    values, U = np.linalg.eigh(A)
    semicircle = np.sqrt(np.maximum(values**2 - nu**2, 0.0))
    spectra = [np.maximum(values, 0.0) + c * nu for c in (0.25, 0.5, 1, 2, 4, 8, 16, 32)]
    spectra += [semicircle + c * nu for c in (0.5, 1, 2, 4, 8, 16, 32)]
    level = np.mean(v / scale**2)
    shrunk = observed * np.maximum(values, 0.0) + (1 - observed) * level
    spectra += [shrunk + c * level for c in RIDGES]
    results = [U @ ((U.T @ (cross / scale)) / spectrum) / scale for spectrum in spectra]
    return np.array([*results, np.zeros_like(cross)])


def solve_pairs(rows, y, fold, unit=True):
    """Weights and intercept from rows with NaN, constants averaged by their losses on folds."""

    observed = (~np.isnan(rows)).mean()

    def candidates(own):
        return pair_candidates(*pair_moments(rows[own], y[own]), unit, observed)

    def means(own):
        return np.append(np.nanmean(rows[own], axis=0), y[own].mean())

    squares = []
    products = []
    chance = 0.0
    for f in np.unique(fold):
        A, cross, _, V = pair_moments(rows[fold == f], y[fold == f], means(fold != f))
        tried = candidates(fold != f)
        squares.append([w @ A @ w for w in tried])
        products.append([w @ cross for w in tried])
        chance += np.array([2 * w**2 @ V @ w**2 for w in tried])
    losses = np.array(squares) - 2 * np.array(products)
    error = np.std(losses, axis=0, ddof=1) / np.sqrt(len(losses))
    error = np.maximum(error, np.sqrt(chance) / len(losses) / 2)
    product = np.mean(products, axis=0)
    loss = np.maximum(np.mean(squares, axis=0), product**2 / y.var()) - 2 * product
    doubted = loss + 0.75 * error
    shares = np.exp(-(doubted - doubted.min()) / (0.4 * error[doubted.argmin()]))
    weights = shares / shares.sum() @ candidates(fold > -1)
    mean = means(fold > -1)
    return weights, mean[-1] - mean[:-1] @ weights


def within(observed, X):
    """Values cut to the range of what was observed of their columns."""
    return np.clip(X, np.nanmin(observed, axis=0), np.nanmax(observed, axis=0))


def predict_cut(weights, intercept, observed, y, X):
    """Predictions of whole rows, within the range of the targets."""
    found = within(observed, X) @ weights + intercept
    return np.clip(found, y.min(), y.max())


def predict_gaps(observed, y, fold, X, unit=True):
    """Predictions of rows with gaps: of all values, those that are missing as they are expected."""
    weights, _ = solve_pairs(observed, y, fold, unit)
    A, _, v, V = pair_moments(observed, y)
    A, scale, nu = scaled(A, v, V, unit)
    values, U = np.linalg.eigh(A)
    A = U @ np.diag(np.maximum(values, 0.0)) @ U.T + nu / 8 * np.eye(len(v))
    results = []
    for row in (within(observed, X) - np.nanmean(observed, axis=0)) / scale:
        S = np.flatnonzero(~np.isnan(row))
        R = np.flatnonzero(np.isnan(row))
        row[R] = A[np.ix_(R, S)] @ np.linalg.solve(A[np.ix_(S, S)], row[S])
        results.append(y.mean() + row @ (weights * scale))
    return np.clip(results, y.min(), y.max())


def predict_normal(observed, y, X):
    """Predictions of a normal model of rows with gaps and the target, row by row."""
    rows = np.column_stack([observed, y])
    mean = np.nanmean(rows, axis=0)
    scale = np.nanstd(rows, axis=0)
    Z, (n, d) = (rows - mean) / scale, observed.shape
    square = weight = 0.0
    for i in range(d):
        for j in range(d):
            both = ~np.isnan(Z[:, i] * Z[:, j])
            if i != j and both.any():
                square += both.sum() * np.mean(Z[both, i] * Z[both, j]) ** 2 - 1.0
                weight += both.sum()
    prior = 1.0 / min(max(square / weight, 1.0 / n), 1.0)
    ridge = 10.0
    f = 1.0 - np.isnan(observed).mean()
    m = np.zeros(d + 1)
    C = np.eye(d + 1)
    w = np.zeros(d)
    for _ in range(100):
        whole = np.zeros_like(Z)
        spread = np.zeros_like(C)
        for t in range(n):
            S = np.flatnonzero(~np.isnan(Z[t]))
            R = np.flatnonzero(np.isnan(Z[t]))
            G = C[np.ix_(R, S)] @ np.linalg.inv(C[np.ix_(S, S)])
            whole[t, S], whole[t, R] = Z[t, S], m[R] + G @ (Z[t, S] - m[S])
            spread[np.ix_(R, R)] += C[np.ix_(R, R)] - G @ C[np.ix_(S, R)]
        m = whole.mean(axis=0)
        sums = (whole - m).T @ (whole - m) + spread
        xx = sums[:d, :d]
        xy = sums[:d, d]
        before = w
        w = np.linalg.solve(xx + ridge * np.eye(d), xy)
        noise = max((sums[d, d] - w @ xy) / n, 1e-6)
        doubt = noise * np.trace(np.linalg.inv(f * xx + ridge * np.eye(d)))
        ridge = min(max(d * noise / (w @ w + doubt), 1.0), 1e4)
        xx = (xx + prior * np.eye(d)) / (n + prior)
        C = np.block([[xx, (xx @ w)[:, None]], [xx @ w, w @ xx @ w + noise]])
        if np.abs(w - before).max() <= 3e-4:
            break
    results = []
    for row in (X - mean[:d]) / scale[:d]:
        S = np.flatnonzero(~np.isnan(row))
        results.append(m[d] + np.linalg.solve(C[np.ix_(S, S)], C[S, d]) @ (row[S] - m[S]))
    return mean[d] + scale[d] * np.array(results)
