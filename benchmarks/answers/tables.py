"""Tables for all questions: public ones, what scikit-learn ships, and such by published recipes.

``rows_of`` reads public tables from the folder that DISTFMS_REALDATA names; recipes need none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

from benchmarks import multiselect_omi
from benchmarks.answers.peers import read

FOLDER = Path(os.environ.get("DISTFMS_REALDATA", "."))
Recipe = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def friedman(make: Callable[..., tuple[np.ndarray, np.ndarray]], noise: float) -> Recipe:
    """Return one of Friedman's problems, with the noise that Breiman gave them in 1996."""
    return lambda rng, n: make(n_samples=n, noise=noise, random_state=int(rng.integers(2**31)))


def planes(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two planes, one for each value of the first of ten numbers (CART, 1984, section 8.6)."""
    X = rng.integers(-1, 2, size=(n, 10)).astype(float)
    X[:, 0] = rng.choice([-1.0, 1.0], n)
    first, other = (X[:, [s, s + 1, s + 2]] @ [3.0, 2.0, 1.0] for s in (1, 4))
    y = np.where(X[:, 0] > 0, 3.0 + first, -3.0 + other)
    return X, y + np.sqrt(2.0) * rng.normal(size=n)


def waveform(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes, each a mixture of two of three waves at 21 points (CART, section 2.6)."""
    wave = np.array([np.maximum(6.0 - np.abs(np.arange(1, 22) - at), 0.0) for at in (7, 15, 11)])
    y, share = rng.integers(3, size=n), rng.random((n, 1))
    X = share * wave[y] + (1.0 - share) * wave[(y + 1) % 3]
    return X + rng.normal(size=X.shape), y


def norms(kind: str) -> Recipe:
    """Return two classes of normal rows in 20 dimensions (Breiman, "Arcing classifiers", 1998)."""

    def make(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        y, X, a = rng.integers(2, size=n), rng.normal(size=(n, 20)), 2 / np.sqrt(20)
        first, ends = (y == 0)[:, np.newaxis], rng.choice([-a, a], (n, 1))
        if kind == "two":  # a mean at either end of a diagonal
            return X + np.where(first, a, -a), y
        if kind == "ring":  # one class all around the other
            return np.where(first, 2.0 * X, X + a), y
        return X + np.where(first, ends, a * (-1.0) ** np.arange(20)), y

    return make


def uniform(rng: np.random.Generator, n: int, *limits: tuple[float, float]) -> np.ndarray:
    low, high = np.array(limits).T
    return rng.uniform(low, high, size=(n, len(limits)))


def noisy(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Add noise of a fifth of the deviation, as simulators have none."""
    return y + 0.2 * y.std() * rng.normal(size=len(y))


def borehole(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Flow of water through a borehole (Harper and Gupta, 1983)."""
    X = uniform(
        rng, n, (0.05, 0.15), (100, 50000), (63070, 115600), (990, 1110), (63.1, 116),
        (700, 820), (1120, 1680), (9855, 12045),
    )  # fmt: skip
    radius, reach, upper, head, lower, below, length, k = X.T
    log = np.log(reach / radius)
    rest = 1.0 + 2.0 * length * upper / (log * radius**2 * k) + upper / lower
    return X, noisy(rng, 2.0 * np.pi * upper * (head - below) / (log * rest))


def piston(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cycle time of a piston (Kenett and Zacks, 1998)."""
    X = uniform(
        rng, n, (30, 60), (0.005, 0.02), (0.002, 0.01), (1000, 5000), (90000, 110000),
        (290, 296), (340, 360),
    )  # fmt: skip
    mass, area, gas, k, pressure, ambient, filling = X.T
    force = pressure * area + 19.62 * mass - k * gas / area
    heat = pressure * gas * ambient / filling
    volume = area / (2.0 * k) * (np.sqrt(force**2 + 4.0 * k * heat) - force)
    return X, noisy(rng, 2.0 * np.pi * np.sqrt(mass / (k + area**2 * heat / volume**2)))


RECIPES: dict[str, Recipe] = {
    "friedman1": friedman(datasets.make_friedman1, 1.0),
    "friedman2": friedman(datasets.make_friedman2, 125.0),
    "friedman3": friedman(datasets.make_friedman3, 0.1),
    "2dplanes": planes,
    "borehole": borehole,
    "piston": piston,
    "waveform": waveform,
    **{f"{kind}norm": norms(kind) for kind in ("two", "three", "ring")},
}
SHIPPED = {
    "diabetes": datasets.load_diabetes,
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
}
#: Tables whose target is a class.
CLASSES = ("breast_cancer", "wine", "waveform", "twonorm", "threenorm", "ringnorm")


def exists(name: str) -> bool:
    """Whether a table is there: by a recipe, shipped, or in the folder."""
    if name in RECIPES or name in SHIPPED:
        return True
    place = "judgments/omi" if name == "omi" else f"regression/{name}"
    return (FOLDER / f"{place}.parquet").exists()


def rows_of(name: str, most: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return at most so many rows of a table, and its target."""
    rng = np.random.default_rng(0)
    if name in RECIPES:
        X, y = RECIPES[name](rng, most)
        names = [f"x{c:02d}" for c in range(X.shape[1])]
        return pd.DataFrame(X, columns=names), y
    if name in SHIPPED:
        data = SHIPPED[name](as_frame=True)
        own = rng.permutation(len(data.target))[:most]
        X = data.data.iloc[own].reset_index(drop=True)
        return X.set_axis([c.replace(" ", "_") for c in X], axis=1), data.target.to_numpy()[own]
    found = read(FOLDER, name, most)
    return found.X, found.y


def numbers_of(name: str, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers without gaps and a numeric target: of classes, whether it is the first."""
    frame, y = rows_of(name, most)
    X = frame.select_dtypes("number").to_numpy(float)
    whole = np.isfinite(X).all(axis=1)
    return X[whole], (np.where(y == 0, 1.0, -1.0) if name in CLASSES else y.astype(float))[whole]


@lru_cache(1)
def impressions() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the ratings of faces, their counts, and the names of the impressions."""
    return multiselect_omi.load(FOLDER / "judgments/omi.parquet")


def parts_of(n: int, split: int, share: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to learn from, and others."""
    order = np.random.default_rng([split, 7]).permutation(n)
    cut = int(share * n)
    return order[:cut], order[cut:]
