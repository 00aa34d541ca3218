"""Judgments with heavy tails: the error with and without clipping, on objects that chose nothing.

Twelve correlated attributes, three judgments of each; an object's label is a sparse sum of them.
Noise is Student's t with 2.5 degrees of freedom, and 5 % of the raters answer at random; or it is
normal.
Errors are mean squared errors over the variance of the label, of 4,000 other objects.
"""

from __future__ import annotations

import argparse

import numpy as np

from distfms import FeatureMultiSelector

D, K, OTHERS = 12, 3, 4000


def judged(
    rng: np.random.Generator, n: int, k: int, mixing: np.ndarray, weights: np.ndarray, tails: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return k judgments of each attribute of n objects, and labels."""
    truth = rng.normal(size=(n, D)) @ mixing
    noise = rng.standard_t(2.5, (n, D, k)) if tails else 1.5 * rng.normal(size=(n, D, k))
    judgments = truth[:, :, None] + noise
    at_random = tails & (rng.random((n, 1, k)) < 0.05)
    judgments = np.where(at_random, rng.uniform(-6, 6, judgments.shape), judgments)
    return judgments, truth @ weights + 0.3 * rng.normal(size=n)


def errors(seed: int, n: int, budget: int, tails: bool) -> list[float]:
    """Return the errors by default and without clipping."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=D) * (rng.random(D) < 0.6)
    weights /= np.linalg.norm(weights) + 1e-9
    mixing = np.eye(D) + 0.3 * rng.normal(size=(D, D))
    X, y = judged(rng, n, K, mixing, weights, tails)
    others, truth = judged(rng, OTHERS, budget, mixing, weights, tails)
    found = []
    for clip in ("auto", False):
        model = FeatureMultiSelector(budget=budget, clip=clip).fit(X, y)
        found.append(float(np.mean((model.predict(others) - truth) ** 2) / truth.var()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--objects", type=int, nargs="*", default=[200, 600, 2000])
    parser.add_argument("--budgets", type=int, nargs="*", default=[5, 10, 20])
    args = parser.parse_args()
    print("noise   objects  budget  not clipped   by default less it, mean (least, greatest)")
    for tails in (True, False):
        for n in args.objects:
            for budget in args.budgets:
                found = np.array([errors(100 + s, n, budget, tails) for s in range(args.seeds)])
                gain = found[:, 0] - found[:, 1]
                print(
                    f"{'t' if tails else 'normal':<8}{n:7}{budget:8}{found[:, 1].mean():12.3f}"
                    f"{gain.mean():14.3f} ({gain.min():.3f}, {gain.max():.3f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
