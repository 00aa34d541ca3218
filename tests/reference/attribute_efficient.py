"""GAERR and GAELR as the paper writes them: every step over all d attributes.

The random numbers are given: indices of the attributes of the point, and uniform numbers for those
of the inner product. Plain loops, so that numba compiles them as they stand (`compiled`).
"""

from __future__ import annotations

from functools import cache

import numpy as np


def gaerr(X, y, points, uniforms, q, inner, squares, eta, B, w, total, projected):
    """Algorithm 1, with several draws for the inner product.

    ``inner`` multiplies |w| in the probabilities of the inner product, unless they go by squares.
    Changes ``w`` to the last weights and adds each w_t to ``total``; returns the number of distinct
    attributes observed. ``projected[0]`` counts the projections.
    """
    m, d = len(points), len(q)
    k, n_inner = points.shape[1], uniforms.shape[1]
    p, x_tilde = np.zeros(d), np.zeros(d)
    chosen, n_seen = np.empty(k + n_inner, dtype=np.int64), 0
    for t in range(m):
        chosen[:] = -1
        for i in range(d):
            total[i] += w[i]
            x_tilde[i] = 0.0
            p[i] = w[i] * w[i] if squares else abs(w[i]) * inner[i]
        for r in range(k):
            i = points[t, r]
            chosen[r] = i
            x_tilde[i] += X[t, i] / q[i] / k
        phi = -y[t]
        norm = p.sum()
        if norm > 0:
            for r in range(n_inner):
                rest, j, last = uniforms[t, r] * norm, -1, -1
                for i in range(d):
                    if p[i] > 0:
                        last = i
                        if rest < p[i]:
                            j = i
                            break
                        rest -= p[i]
                j = last if j < 0 else j
                chosen[k + r] = j
                phi += w[j] / (p[j] / norm) * X[t, j] / n_inner
        length = 0.0
        for i in range(d):
            w[i] -= eta * phi * x_tilde[i]
            length += w[i] * w[i]
        if np.sqrt(length) > B:
            projected[0] += 1
            for i in range(d):
                w[i] *= B / np.sqrt(length)
        for r in range(k + n_inner):
            n_seen += chosen[r] >= 0 and not (chosen[:r] == chosen[r]).any()
    return n_seen


def gaelr(X, y, points, uniforms, q, inner, squares, eta, B, z, total, clipped):
    """GAELR; ``z`` holds z⁺ and z⁻, which are divided by their sum after each step.

    ``clipped[0]`` counts the steps at which an entry of the gradient was clipped.
    """
    m, d = len(points), len(q)
    k, n_inner = points.shape[1], uniforms.shape[1]
    w, p, x_tilde = np.zeros(d), np.zeros(d), np.zeros(d)
    chosen, n_seen = np.empty(k + n_inner, dtype=np.int64), 0
    for t in range(m):
        chosen[:] = -1
        norm = z.sum()
        for i in range(d):
            w[i] = B * (z[0, i] - z[1, i]) / norm
            total[i] += w[i]
            x_tilde[i] = 0.0
            p[i] = abs(w[i]) * inner[i]
        for r in range(k):
            i = points[t, r]
            chosen[r] = i
            x_tilde[i] += X[t, i] / q[i] / k
        phi = -y[t]
        norm = p.sum()
        if norm > 0:
            for r in range(n_inner):
                rest, j, last = uniforms[t, r] * norm, -1, -1
                for i in range(d):
                    if p[i] > 0:
                        last = i
                        if rest < p[i]:
                            j = i
                            break
                        rest -= p[i]
                j = last if j < 0 else j
                chosen[k + r] = j
                phi += w[j] / (p[j] / norm) * X[t, j] / n_inner
        was_clipped = False
        for i in range(d):
            g = phi * x_tilde[i]
            was_clipped |= abs(g) > 1 / eta
            g = min(max(g, -1 / eta), 1 / eta)
            z[0, i] *= np.exp(-eta * g)
            z[1, i] *= np.exp(eta * g)
        z /= z.sum()
        clipped[0] += was_clipped
        for r in range(k + n_inner):
            n_seen += chosen[r] >= 0 and not (chosen[:r] == chosen[r]).any()
    return n_seen


@cache
def compiled(function):
    """The same function, compiled."""
    from numba import njit

    return njit(function)


def pair_moments(rows, y, mean=None):
    """A, b̂, v and V from sums over rows (n, d), NaN where not observed; about `mean` (d + 1,)."""
    M = (~np.isnan(rows)).astype(float)
    Z = np.where(M > 0, rows, 0.0)
    n, c, s, q = len(y), M.sum(axis=0), Z.sum(axis=0), (Z**2).sum(axis=0)
    h, b, C, S, T = M.T @ y, Z.T @ y, M.T @ M, Z.T @ Z, Z.T @ M
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


def pair_candidates(A, cross, v, V, unit):
    """Weights at all constants, for attributes as they come or divided by their deviations."""
    scale = np.sqrt(v) if unit else np.ones_like(v)
    eta = (V / np.outer(scale, scale) ** 2).sum(axis=1) / (v / scale**2)
    eta0 = (v / scale**2 * eta).sum() / (v / scale**2).sum()
    scale = scale * np.sqrt(np.maximum(1.0, eta / eta0))
    values, U = np.linalg.eigh(A / np.outer(scale, scale))
    nu = max(-values[0], 2.0 * np.sqrt((V / np.outer(scale, scale) ** 2).sum() / len(v)))
    semicircle = np.sqrt(np.maximum(values**2 - nu**2, 0.0))
    spectra = [np.maximum(values, 0.0) + c * nu for c in (0.25, 0.5, 1, 2, 4, 8, 16, 32)]
    spectra += [semicircle + c * nu for c in (0.5, 1, 2, 4, 8, 16, 32)]
    return [U @ ((U.T @ (cross / scale)) / spectrum) / scale for spectrum in spectra]


def solve_pairs(rows, y, fold):
    """Weights and intercept from rows with NaN, constants averaged by their losses on folds."""

    def candidates(own):
        moments = pair_moments(rows[own], y[own])
        of_both = [w for unit in (False, True) for w in pair_candidates(*moments, unit)]
        return [*of_both, np.zeros(rows.shape[1])]

    def means(own):
        return np.append(np.nanmean(rows[own], axis=0), y[own].mean())

    losses = []
    for f in np.unique(fold):
        A, cross, *_ = pair_moments(rows[fold == f], y[fold == f], means(fold != f))
        losses.append([w @ A @ w - 2 * w @ cross for w in candidates(fold != f)])
    error = np.std(losses, axis=0, ddof=1) / np.sqrt(len(losses))
    doubted = np.mean(losses, axis=0) + 1.5 * error
    shares = np.exp(-(doubted - doubted.min()) / (0.25 * error[doubted.argmin()]))
    weights = shares / shares.sum() @ np.array(candidates(fold > -1))
    mean = means(fold > -1)
    return weights, mean[-1] - mean[:-1] @ weights
