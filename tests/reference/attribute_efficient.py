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


def online_ridge(X, y, eta, B, w, total):
    """Gradient descent on all attributes, projected on the ball."""
    for t in range(len(X)):
        total += w
        w -= eta * (w @ X[t] - y[t]) * X[t]
        length = np.sqrt(w @ w)
        if length > B:
            w *= B / length


def online_lasso(X, y, eta, B, z, total):
    """Exponentiated gradient on all attributes."""
    for t in range(len(X)):
        w = B * (z[0] - z[1]) / z.sum()
        total += w
        g = np.minimum(np.maximum((w @ X[t] - y[t]) * X[t], -1 / eta), 1 / eta)
        z[0] *= np.exp(-eta * g)
        z[1] *= np.exp(eta * g)
        z /= z.sum()


@cache
def compiled(function):
    """The same function, compiled."""
    from numba import njit

    return njit(function)
