"""How many judgments of each attribute to buy: error on other objects, judged as was chosen.

Everybody learns from two judgments of each attribute of the training objects. Faces have real
raters; on other tables each attribute gets noise of its own, normal or with heavy tails. Peers
have our weights for what they buy, of attributes divided by their deviations, with a ridge of 0.01,
as these are better than those of a ridge on averages; but for the greedy refits, which have the
latter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.answers.tables import exists, impressions, numbers_of, parts_of
from benchmarks.multiselect_omi import shuffled, statistics_of
from distfms import FeatureMultiSelector
from distfms.methods.multiselect.baselines import lasso, supports_of
from distfms.methods.multiselect.model import projected_model
from distfms.solve.buying import Problem

#: Impressions that chose nothing of ours, and tables whose judges are simulated.
FACES = ("dominant", "smart", "smug", "privileged", "familiar", "weight")
JUDGED = ("diabetes", "friedman1", "breast_cancer", "waveform", "diabetes, heavy tails")
BUDGETS = (10, 40)
K = 2

#: Repeats (d,), weights (d,) and the intercept.
Model = tuple[np.ndarray, np.ndarray, float]


def tables() -> list[str]:
    """Return the names of cells: a table and a budget."""
    names = list(JUDGED)
    if exists("omi"):
        names = [*(f"faces, {name}" for name in FACES), *JUDGED]
    return [f"{name}, {budget}" for name, budget in product(names, BUDGETS)]


def judged(name: str, most: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Return judgments (n, d, k) in random order, NaN where there are fewer, and the label."""
    rng = np.random.default_rng([split, 11])
    if name.startswith("faces"):
        ratings, _, names = impressions()
        target = names.index(name.removeprefix("faces, "))
        attributes = np.delete(np.arange(len(names)), target)
        label = np.nanmean(ratings[:most, target], axis=-1)
        return shuffled(ratings[:most, attributes], rng), label
    X, y = numbers_of(name.removesuffix(", heavy tails"), most)
    of_table = np.random.default_rng(len(name))
    deviations = of_table.lognormal(0.0, 0.7, X.shape[1]) * X.std(axis=0)
    shape = (*X.shape, max(BUDGETS))
    noise = rng.standard_t(2.5, shape) if "tails" in name else rng.normal(size=shape)
    return X[:, :, None] + noise * deviations[:, None], y


def loss(model: Model, judgments: np.ndarray, y: np.ndarray, mean: float) -> float:
    """Return the squared error on objects judged as the model says, by that of a mean."""
    repeats, weights, intercept = model
    n_there = np.isfinite(judgments).sum(axis=-1)
    n_averaged = np.clip(repeats, 1, n_there)
    sums = np.nancumsum(judgments, axis=-1)
    last = n_averaged[:, :, None] - 1
    means = np.take_along_axis(sums, last, axis=2)[:, :, 0] / n_averaged
    bought = np.where(repeats > 0, means, 0.0)
    return unexplained(intercept + bought @ weights, y, mean)


def unexplained(predicted: np.ndarray, y: np.ndarray, mean: float) -> float:
    """Return the squared error by that of a mean."""
    error = np.mean((y - predicted) ** 2)
    return float(error / np.mean((y - mean) ** 2))


def spread(chosen: np.ndarray, budget: int, d: int) -> np.ndarray:
    """Return the repeats of buying single judgments of some attributes in turn."""
    return np.bincount(np.resize(chosen, budget), minlength=d)


def projected(repeats: np.ndarray, problem: Problem) -> Model:
    """Return the model whose weights are ours, by the statistics."""
    model = projected_model(problem, repeats)
    return repeats, model.weights, model.intercept


def even(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Buy judgments of all attributes in turn, in random order."""
    d = judgments.shape[1]
    order = np.random.default_rng(0).permutation(d)
    return projected(spread(order, budget, d), problem)


def along_lasso(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Take the best support on the lasso path of averages, judged in turn."""
    supports = supports_of(problem, statistics_of(judgments, y).estimates())
    path = lasso(problem, supports, budget)
    return projected(path.final_repeats, problem)


def alone(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Buy only the attribute that is best alone."""
    d = judgments.shape[1]
    explained = problem.b**2 / (problem.external_variance + problem.v / budget)
    best = np.array([explained.argmax()])
    return projected(spread(best, budget, d), problem)


def greedy(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Add the attribute that lowers a ridge's cross-validated error most, then judge all in turn.

    The number of attributes is the one of the least error. The ridge is refitted to averages of as
    many judgments as are bought, at most those at hand.
    """
    X = judgments.mean(axis=-1)
    d = X.shape[1]
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = np.column_stack([scaled, y - y.mean()])
    folds = []
    for fit, other in KFold(5, shuffle=True, random_state=0).split(Z):
        folds.append((Z[fit].T @ Z[fit], Z[other]))
    chosen: list[int] = []
    errors: list[float] = []
    rest = list(range(d))
    while len(chosen) < min(budget, d):
        tried = [_error(folds, [*chosen, attribute]) for attribute in rest]
        chosen.append(rest.pop(int(np.argmin(tried))))
        errors.append(min(tried))
    n_attributes = 1 + int(np.argmin(errors))
    support = np.array(chosen[:n_attributes])
    repeats = spread(support, budget, d)
    single = repeats == 1
    X[:, single] = judgments[:, single, 0]
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))).fit(X[:, support], y)
    weights = np.zeros(d)
    weights[support] = ridge[1].coef_ / ridge[0].scale_
    return repeats, weights, float(y.mean() - X.mean(axis=0) @ weights)


def _error(folds: list[tuple[np.ndarray, np.ndarray]], columns: list[int]) -> float:
    """Return the squared error of a ridge over folds: Gram matrices, and the rows left out."""
    total = 0.0
    for gram, rows in folds:
        inner = gram[np.ix_(columns, columns)]
        inner += 1e-2 * gram[0, 0] * np.eye(len(columns))
        weights = np.linalg.solve(inner, gram[columns, -1])
        errors = rows[:, -1] - rows[:, columns] @ weights
        total += float(np.sum(errors**2))
    return total


WAYS = {"even split": even, "lasso path": along_lasso, "best alone": alone, "greedy refits": greedy}


def cells(name: str, split: int, most: int) -> Iterator[tuple[str, float, float]]:
    """Yield each way's unexplained share of the variance, and its processor seconds."""
    table, _, budget_text = name.rpartition(", ")
    budget = int(budget_text)
    judgments, y = judged(table, most, split)
    train, test = parts_of(len(y), split, 0.6)
    known = judgments[train, :, :K]
    label = y[train]
    mean = float(label.mean())
    start = time.process_time()
    ours = FeatureMultiSelector(budget=budget, n_jobs=1).fit(known, label)
    spent = time.process_time() - start
    yield "ours", unexplained(ours.predict(judgments[test]), y[test], mean), spent
    unit = known.std(axis=(0, 2))[:, None]
    estimates = statistics_of(known / unit, label).estimates()
    problem = Problem.from_estimates(estimates, ridge=0.01)
    for way, make in WAYS.items():
        start = time.process_time()
        model = make(known / unit, label, budget, problem=problem)
        spent = time.process_time() - start
        yield way, loss(model, judgments[test] / unit, y[test], mean), spent
