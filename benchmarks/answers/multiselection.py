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
    faces = [f"faces, {name}" for name in FACES if exists("omi")]
    return [f"{name}, {budget}" for name in (*faces, *JUDGED) for budget in BUDGETS]


def judged(name: str, most: int, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Return judgments (n, d, k) in random order, NaN where there are fewer, and the label."""
    rng = np.random.default_rng([split, 11])
    if name.startswith("faces"):
        ratings, _, names = impressions()
        target = names.index(name.removeprefix("faces, "))
        rest = np.delete(np.arange(len(names)), target)
        return shuffled(ratings[:most, rest], rng), np.nanmean(ratings[:most, target], axis=-1)
    X, y = numbers_of(name.removesuffix(", heavy tails"), most)
    drawn = np.random.default_rng(len(name)).lognormal(0.0, 0.7, X.shape[1])  # of the table
    shape = (*X.shape, max(BUDGETS))
    noise = rng.standard_t(2.5, shape) if "tails" in name else rng.normal(size=shape)
    return X[:, :, None] + noise * (drawn * X.std(axis=0))[:, None], y


def loss(model: Model, judgments: np.ndarray, y: np.ndarray, mean: float) -> float:
    """Return the squared error on objects judged as the model says, by that of a mean."""
    repeats, weights, intercept = model
    held = np.clip(repeats, 1, np.isfinite(judgments).sum(axis=-1))
    sums = np.nancumsum(judgments, axis=-1)
    means = np.take_along_axis(sums, held[:, :, None] - 1, axis=2)[:, :, 0] / held
    return unexplained(intercept + np.where(repeats > 0, means, 0.0) @ weights, y, mean)


def unexplained(found: np.ndarray, y: np.ndarray, mean: float) -> float:
    """Return the squared error by that of a mean."""
    return float(((y - found) ** 2).mean() / ((y - mean) ** 2).mean())


def spread(chosen: np.ndarray, budget: int, d: int) -> np.ndarray:
    """Return the repeats of buying single judgments of some attributes in turn."""
    return np.bincount(np.resize(chosen, budget), minlength=d)


def projected(repeats: np.ndarray, problem: Problem) -> Model:
    found = projected_model(problem, repeats)
    return repeats, found.weights, found.intercept


def even(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Buy judgments of all attributes in turn, in random order."""
    d = judgments.shape[1]
    return projected(spread(np.random.default_rng(0).permutation(d), budget, d), problem)


def along_lasso(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Take the best support on the lasso path of averages, judged in turn."""
    supports = supports_of(problem, statistics_of(judgments, y).estimates(), K)
    path = lasso(problem, supports, budget)
    return projected(path.final_repeats, problem)


def alone(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Buy only the attribute that is best alone."""
    d = judgments.shape[1]
    explained = problem.b**2 / (problem.external_variance + problem.v / budget)
    return projected(spread(np.array([explained.argmax()]), budget, d), problem)


def greedy(judgments: np.ndarray, y: np.ndarray, budget: int, problem: Problem) -> Model:
    """Add the attribute that lowers a ridge's cross-validated error most, then judge all in turn.

    The number of attributes is the one of the least error. The ridge is refitted to averages of as
    many judgments as are bought, at most those at hand.
    """
    X, d = judgments.mean(axis=-1), judgments.shape[1]
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), y - y.mean()])
    folds = list(KFold(5, shuffle=True, random_state=0).split(Z))
    grams = [(Z[fit].T @ Z[fit], Z[other]) for fit, other in folds]
    chosen, errors = list[int](), list[float]()
    while len(chosen) < min(budget, d):
        rest = [a for a in range(d) if a not in chosen]
        tried = [_error(grams, [*chosen, a]) for a in rest]
        chosen.append(rest[int(np.argmin(tried))])
        errors.append(min(tried))
    support = np.array(chosen[: 1 + int(np.argmin(errors))])
    repeats, weights = spread(support, budget, d), np.zeros(d)
    X[:, repeats == 1] = judgments[:, repeats == 1, 0]
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))).fit(X[:, support], y)
    weights[support] = ridge[1].coef_ / ridge[0].scale_
    return repeats, weights, float(y.mean() - X.mean(axis=0) @ weights)


def _error(grams: list[tuple[np.ndarray, np.ndarray]], own: list[int]) -> float:
    found = 0.0
    for gram, rows in grams:
        inner = gram[np.ix_(own, own)] + 1e-2 * gram[0, 0] * np.eye(len(own))
        weights = np.linalg.solve(inner, gram[own, -1])
        found += float(((rows[:, -1] - rows[:, own] @ weights) ** 2).sum())
    return found


def cells(name: str, split: int, most: int) -> Iterator[tuple[str, float, float]]:
    """Yield each way's unexplained share of the variance, and its processor seconds."""
    table, budget = name.rsplit(", ", 1)[0], int(name.rsplit(", ", 1)[1])
    judgments, y = judged(table, most, split)
    train, test = parts_of(len(y), split, 0.6)
    own, label = judgments[train, :, :K], y[train]
    unit = own.std(axis=(0, 2))[:, None]
    estimates = statistics_of(own / unit, label).estimates()
    problem = Problem.from_estimates(estimates, ridge=0.01)
    ways = {"even split": even, "lasso path": along_lasso, "best alone": alone}
    ways["greedy refits"] = greedy
    start, mean = time.process_time(), float(label.mean())
    ours = FeatureMultiSelector(budget=budget, n_jobs=1).fit(own, label)
    spent = time.process_time() - start
    yield "ours", unexplained(ours.predict(judgments[test]), y[test], mean), spent
    for way, make in ways.items():
        start = time.process_time()
        model = make(own / unit, label, budget, problem=problem)
        spent = time.process_time() - start
        yield way, loss(model, judgments[test] / unit, y[test], mean), spent
