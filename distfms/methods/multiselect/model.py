"""Linear models on averages of judgments: from the statistics, by least squares; predicting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import DataError
from distfms.methods.multiselect.same_raters import averages_of_raters
from distfms.solve.buying import BuyFrom, Problem, SelectionPath, full_weights
from distfms.solve.linalg import symmetric_pinv
from distfms.solve.purchases import FullState, full_state
from distfms.solve.same_purchases import SameState
from distfms.stats.comoments import CoMoments
from distfms.stats.ragged import Ragged

#: Directions with at most this share of the largest variance count as linearly dependent.
RANK_RTOL = 1e-10


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Predictor ``intercept + weights @ averages``.

    Attributes
    ----------
    names : tuple of str, length d
        Attributes, in the order in which judgments are given.
    repeats : ndarray of int, shape (d,)
        Judgments to average of each attribute.
    weights : ndarray of shape (d,)
        Units of the label per unit of the attribute; 0 where `repeats` is.
    intercept : float
        Units of the label.
    means : ndarray of shape (d,)
        Training mean of each attribute; stands in for an attribute without judgments.
    """

    names: tuple[str, ...]
    repeats: np.ndarray
    weights: np.ndarray
    intercept: float
    means: np.ndarray


def projected_model(problem: Problem, repeats: ArrayLike) -> LinearModel:
    """Model with the least projected loss, straight from the statistics.

    The weights are M_r⁺ b; the intercept makes the mean prediction the mean label.
    """
    r = np.asarray(repeats)
    weights = full_weights(problem, r)
    intercept = problem.label_mean - float(weights @ problem.means)
    return LinearModel(problem.names, r, weights, intercept, problem.means)


@dataclass(frozen=True, eq=False)
class PathModels:
    """Models of the same attributes, one a row, with their Full objectives and what they cost."""

    repeats: np.ndarray
    weights: np.ndarray
    intercept: np.ndarray
    objective: np.ndarray
    spent: np.ndarray


def path_models(problem: Problem, path: SelectionPath, steps: np.ndarray) -> PathModels:
    """Projected models after some steps of a path, ascending, by one pass of rank-one updates.

    The path may be a baseline's. Between two of the `steps` an attribute's judgments are bought at
    once.
    """
    used = np.unique(path.attributes)
    weights = np.zeros((steps.size, problem.n_attributes))
    repeats = np.zeros((steps.size, problem.n_attributes), dtype=np.int64)
    objective = np.zeros(steps.size)
    for row, state in enumerate(_follow(problem, path, used, steps)):
        weights[row, used[state.support]] = state.w
        repeats[row, used] = state.repeats
        objective[row] = state.objective
    intercept = problem.label_mean - weights @ problem.means
    return PathModels(repeats, weights, intercept, objective, np.append(0.0, path.spent)[steps])


def path_objective(problem: Problem, path: SelectionPath, steps: np.ndarray) -> np.ndarray:
    """Full objective after some steps of a path, at least 1, whatever the algorithm maximises."""
    if path.algorithm == "full":
        return path.objective[steps - 1]
    states = _follow(problem, path, np.unique(path.attributes), steps)
    return np.array([state.objective for state in states])


def _follow(
    problem: Problem, path: SelectionPath, used: np.ndarray, steps: np.ndarray
) -> Iterator[FullState | SameState]:
    """Buy along a path; yield the state on the attributes used after each of `steps`."""
    state = full_state(problem.take(used))
    taken = 0
    attributes = np.searchsorted(used, path.attributes)
    for step in steps.tolist():
        bought = attributes[taken:step]
        counts = np.bincount(bought, weights=path.counts[taken:step])
        # In the order of first purchase: the same for a single step as step by step.
        for attribute in dict.fromkeys(bought.tolist()):
            state.buy(attribute, int(counts[attribute]))
        taken = step
        yield state


def refit_statistics(
    judgments: Sequence[Ragged],
    label: np.ndarray,
    repeats: ArrayLike,
    weight: np.ndarray | None = None,
    raters: Sequence[Ragged] | None = None,
    buy_from: BuyFrom = "independent",
) -> CoMoments:
    """Summarise the averages of r[a] judgments of each selected attribute, and the label.

    They are the first ones or, where raters are known, those of raters as they are bought from.
    Objects that hold fewer judgments of any of them are left out.
    """
    r = np.asarray(repeats)
    support = np.flatnonzero(r > 0).tolist()
    selected = [judgments[a] for a in support]
    if raters is None or not support:
        columns = np.empty((len(support), label.size))
        for row, (ragged, k) in enumerate(zip(selected, r[support].tolist(), strict=True)):
            columns[row] = np.where(ragged.counts() >= k, ragged.first(k).means(), np.nan)
    else:
        columns = averages_of_raters(selected, [raters[a] for a in support], r[support], buy_from)
    complete = ~np.isnan(columns).any(axis=0)
    block = np.concatenate([columns, label[None]])[:, complete]
    return CoMoments.from_block(block, None if weight is None else weight[complete])


def refit(
    comoments: CoMoments, names: Sequence[str], repeats: ArrayLike, *, ridge: ArrayLike = 0.0
) -> LinearModel:
    """Least squares on the averages of the first r[a] judgments (step 4 of the paper).

    The ridge, or that of each attribute, is added to the variance of its average. Linearly
    dependent averages get the smallest weights on them standardised. Raises DataError if no object
    holds enough judgments.
    """
    r = np.asarray(repeats)
    support = np.flatnonzero(r > 0)
    if comoments.n_samples == 0:
        raise DataError(
            "No object holds as many judgments of every selected attribute as the selection asks "
            "for. Use `model: projected`; with `plan: true` the run then lists the judgments to "
            "collect for a refit."
        )
    covariance = comoments.covariance(pairwise=False)
    varying = np.flatnonzero(~comoments.constant_columns()[:-1])
    added = np.broadcast_to(ridge, r.shape)[support[varying]]
    gram = covariance[np.ix_(varying, varying)] + np.diag(added)
    weights = np.zeros(len(names))
    means = np.zeros(len(names))
    weights[support[varying]] = symmetric_pinv(gram, RANK_RTOL) @ covariance[varying, -1]
    means[support] = comoments.mean[:-1]
    intercept = float(comoments.mean[-1] - weights @ means)
    return LinearModel(tuple(names), r, weights, intercept, means)


def predict(model: LinearModel, judgments: Sequence[Ragged]) -> np.ndarray:
    """Predict labels, shape (n,), from the first r[a] judgments of each attribute (at least one).

    The training mean stands in for an attribute without judgments.

    Raises
    ------
    DataError
        A judgment is infinite.
    """
    values = np.full(judgments[0].n_rows, model.intercept)
    for weight, column in zip(model.weights, averages(model, judgments), strict=True):
        values += weight * column
    return values


def averages(model: LinearModel, judgments: Sequence[Ragged]) -> Iterator[np.ndarray]:
    """Yield the averages of each attribute, its training mean where there is no judgment."""
    for name, r, mean, ragged in zip(
        model.names, model.repeats.tolist(), model.means, judgments, strict=True
    ):
        column = ragged.first(r).means()
        if np.isinf(column).any():
            raise DataError(f"A judgment of attribute {name!r} is infinite.")
        yield np.where(np.isnan(column), mean, column)
