"""Rows in memory behind a pass function, and small data sets for every response family."""

from itertools import pairwise

import numpy as np

from distfms.methods.sequence.glm import GlmDesign, GlmLosses, GlmStatistics, get_family

ALL = ("gaussian", "logistic", "softmax", "poisson")


class Rows:
    """Rows in memory behind a pass function that counts its calls."""

    def __init__(self, X, y, family, *, weight=None, cuts=(), mean=None, scale=None, **design):
        self.X, self.y, self.weight, self.cuts = X, np.asarray(y), weight, cuts
        self.design = GlmDesign(
            get_family(family),
            X.mean(axis=0) if mean is None else mean,
            X.std(axis=0) if scale is None else scale,
            **design,
        )
        self.n_passes = 0

    def parts(self):
        edges = [0, *self.cuts, len(self.X)]
        for lo, hi in pairwise(edges):
            weight = None if self.weight is None else self.weight[lo:hi]
            yield np.ascontiguousarray(self.X[lo:hi].T), self.y[..., lo:hi], weight

    def __call__(self, weights, support):
        self.n_passes += 1
        total = None
        for block, y, weight in self.parts():
            part = GlmStatistics.from_block(
                block, y, weight, weights, design=self.design, support=support
            )
            total = part if total is None else total.merge(part)
        return total

    def losses(self, weights):
        total = None
        for block, y, weight in self.parts():
            part = GlmLosses.from_block(block, y, weight, weights, design=self.design)
            total = part if total is None else total.merge(part)
        return total


def make(family, n=300, d=5, n_outputs=None, seed=0, strength=1.0):
    """Correlated columns in odd units; y (P, n), or class numbers (n,) for softmax."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)))
    n_outputs = n_outputs or {"gaussian": 2, "softmax": 3}.get(family, 1)
    eta = strength * (Z @ rng.normal(size=(d, n_outputs))).T / np.sqrt(d)
    X = Z * rng.uniform(0.01, 50.0, d) + rng.normal(size=d) * 10.0
    if family == "gaussian":
        return X, eta + rng.normal(size=eta.shape)
    if family == "logistic":
        return X, (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    if family == "poisson":
        return X, rng.poisson(np.exp(0.5 * eta)).astype(float)
    return X, (eta + rng.gumbel(size=eta.shape)).argmax(axis=0)


def one_hot(y, family, n_outputs):
    """Responses (n, P) for the literal formulas."""
    return np.eye(n_outputs)[y] if family == "softmax" else y.T


def outputs_of(y, family):
    return int(y.max()) + 1 if family == "softmax" else len(y)
