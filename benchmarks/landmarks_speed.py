"""Speed of landmark models from memory, against scikit-learn's Nystroem + Ridge and LinearSVR."""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR

from distfms import LandmarkRegressor

EPSILON = 0.1


def rows(n: int, d: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def timed(work):
    """Seconds, processor seconds and what came out."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def squared(X, y, n_landmarks: int, rounds: int) -> None:
    def theirs():
        Z = Nystroem(n_components=n_landmarks, random_state=0).fit_transform(X)
        return np.mean((Ridge(alpha=1e-3).fit(Z, y).predict(Z) - y) ** 2)

    ours = LandmarkRegressor("gaussian", landmarks=n_landmarks, metric="none", folds=0)
    found = [(timed(theirs), timed(lambda: ours.fit(X, y))) for _ in range(rounds)]
    wall, cpu = ([min(pair[i][kind] for pair in found) for i in (0, 1)] for kind in (0, 1))
    error = np.mean((ours.predict(X) - y) ** 2)
    print(
        f"{len(y):,} × 16, {n_landmarks} landmarks: scikit-learn {wall[0]:.3f} s "
        f"(cpu {cpu[0]:.2f}), ours {wall[1]:.3f} s (cpu {cpu[1]:.2f}): {wall[0] / wall[1]:.1f} × "
        f"(cpu {cpu[0] / cpu[1]:.1f} ×); error {found[-1][0][2]:.4f} and {error:.4f}",
        flush=True,
    )


def learned(n_rows: int, n_landmarks: int, rounds: int) -> None:
    """Compare fits with all defaults, folds included, with a grid of five widths on five folds."""
    X, y = rows(n_rows, 20)
    steps = StandardScaler(), Nystroem(n_components=n_landmarks, random_state=0), Ridge(1e-3)
    grid = {"nystroem__gamma": np.logspace(-1, 1, 5) / 40}
    theirs = GridSearchCV(make_pipeline(*steps), grid, cv=5)
    ours = LandmarkRegressor(landmarks=n_landmarks)
    for _ in range(rounds):
        found = [timed(partial(model.fit, X, y)) for model in (theirs, ours)]
        errors = [np.mean((model.predict(X) - y) ** 2) / y.var() for model in (theirs, ours)]
        print(
            f"{n_rows:,} × 20, {n_landmarks} landmarks: tuned Nystroem {found[0][0]:.1f} s "
            f"(cpu {found[0][1]:.1f}), learned metric {found[1][0]:.1f} s (cpu "
            f"{found[1][1]:.1f}); unexplained {errors[0]:.4f} and {errors[1]:.4f}",
            flush=True,
        )


def insensitive(X, y, n_landmarks: int) -> None:
    """Compare costs ½‖w‖² + C Σ max(|f − y| − ε, 0) on the same similarities, C = 1."""
    ridge_free = LandmarkRegressor("gaussian", landmarks=n_landmarks, metric="none", folds=0).fit(
        X, y
    )
    K = ridge_free.transform(X)
    ridge = np.std(y) / (len(y) * np.mean(np.var(K, axis=0)))
    ours = LandmarkRegressor(
        "gaussian",
        metric="none",
        folds=0,
        landmarks=n_landmarks,
        loss="epsilon_insensitive",
        epsilon=EPSILON,
        smoothing=1e-3,
        ridge=ridge,
    )
    seconds, cpu, _ = timed(lambda: ours.fit(X, y))
    theirs = LinearSVR(epsilon=EPSILON, C=1.0, intercept_scaling=10.0, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        their_seconds, their_cpu, _ = timed(lambda: theirs.fit(K, y))

    def cost(w, b):
        return 0.5 * w @ w + np.maximum(np.abs(K @ w + b - y) - EPSILON, 0).sum()

    own, other = cost(ours.weights_, ours.intercept_), cost(theirs.coef_, theirs.intercept_[0])
    n_passes = sum(fit["n_passes"] for fit in ours.model_.run.selection["fits"])
    print(
        f"insensitive loss, {len(y):,} × {n_landmarks}: LinearSVR {their_seconds:.1f} s "
        f"(cpu {their_cpu:.1f}), cost {other:.1f}; ours, similarities included, {seconds:.1f} s "
        f"(cpu {cpu:.1f}, {n_passes} passes), cost {own:.1f}: {own / other - 1:+.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--landmarks", type=int, nargs="*", default=[50, 500])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learned", action="store_true", help="metrics alone")
    args = parser.parse_args()
    X, y = rows(args.rows)
    LandmarkRegressor(landmarks=10, folds=0).fit(X[:1000], y[:1000])
    if args.learned:
        for n_landmarks in args.landmarks:
            learned(args.rows, n_landmarks, args.rounds)
        return
    for n_landmarks in args.landmarks:
        squared(X, y, n_landmarks, args.rounds)
    insensitive(X, y, args.landmarks[0])


if __name__ == "__main__":
    main()
