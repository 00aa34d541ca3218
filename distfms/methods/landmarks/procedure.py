"""The pure part of the method: from co-moments of similarities to models of few landmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.contract import Answer
from distfms.methods.cross_validation import CALLS, Fold, Members
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import SquaredProblem, errors, greedy, refitted, stepwise
from distfms.methods.statistics_job import NamedRule, Procedure
from distfms.stats.base import below

MEASURES = {"mse": False, "r2": True, "mae": False, "error": False, "loss": False} | dict.fromkeys(
    ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10"), True
)
"""What `tune` compares models by, and whether more is better."""

#: Ridge where none is given or learned.
RIDGE = 1e-6
#: What a reference has in place of similarities: the columns themselves, or trees on them.
COLUMNS, LIGHTGBM = "columns", "lightgbm"


@dataclass(frozen=True, eq=False)
class LandmarkPath:
    """Landmarks in the order in which models take them.

    Attributes
    ----------
    label : str
        Of the similarity.
    arrays : mapping of str to ndarray
        ``order`` (k,) of landmarks, and ``ridge``. Where weights are not fitted again for a size,
        what the search led to: ``weights``, and how far it, or each fit, came.
    """

    label: str
    arrays: Mapping[str, np.ndarray]

    @property
    def order(self) -> np.ndarray:
        """Landmarks in the order in which models take them."""
        return self.arrays["order"]

    @property
    def progress(self) -> dict[str, Any]:
        """How far the search came, for the results: as a whole, or each fit."""
        models = ("order", "weights", "offset", "extra", "ridge")
        found = {name: array.tolist() for name, array in self.arrays.items() if name not in models}
        if "status" not in found:
            return found
        fits = zip(*found.values(), strict=True)
        return {"fits": [dict(zip(found, fit, strict=True)) for fit in fits]}


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model on similarities to k landmarks.

    Attributes
    ----------
    landmarks : slice or ndarray of int, shape (k,)
    weights : ndarray of shape (k, P)
    offset : ndarray of shape (P,)
    extra : ndarray of shape (E,)
        Parameters of the loss beside the weights.
    """

    landmarks: Any
    weights: np.ndarray
    offset: np.ndarray
    extra: np.ndarray

    def scores(self, similarities: np.ndarray) -> np.ndarray:
        """Return scores (P, n) of similarities (k, n) to its landmarks."""
        return self.weights.T @ similarities + self.offset[:, np.newaxis]


def taken(order: np.ndarray) -> Any:
    """Return what takes landmarks in this order; the first of them are taken without a copy."""
    return slice(len(order)) if (order == np.arange(len(order))).all() else order


def side_by_side(models: Sequence[Linear]) -> np.ndarray:
    """Return the weights of models (n, k, P), the last of which has all k landmarks."""
    found = np.zeros((len(models), *models[-1].weights.shape))
    for room, model in zip(found, models, strict=True):
        room[: len(model.weights)] = model.weights
    return found


def ladder(n_landmarks: int) -> list[int]:
    """Return numbers of landmarks up to a number: 1, 2, 5, 10, …."""
    steps = [m * 10**e for e in range(9) for m in (1, 2, 5)]
    return [*(step for step in steps if step < n_landmarks), n_landmarks]


@dataclass(frozen=True)
class LandmarkProcedure(Procedure):
    """What decides about a model of squared loss besides the statistics.

    Attributes
    ----------
    rules : tuple of NamedRule
        The chosen similarity first.
    sparse : bool
        Choose landmarks rather than take the first ones.
    keep : int
        Most landmarks of a model.
    ridge : float or None
        By default that of `ridges`.
    bound : float or None
    refit : bool
        Fit all weights again after each choice, rather than take a step of Algorithm 2.
    tolerance : float
        At which these steps end.
    candidates : int or None
        How many of the landmarks there are; by default all.
    maps : mapping of str to LandmarkMap
        By the label of the similarity, and of the metrics that were learned without a fold.
    ridges : mapping of str to float
        By the same labels, as far as they were learned.
    """

    rules: tuple[NamedRule, ...]
    sparse: bool
    keep: int
    ridge: float | None = 0.0
    bound: float | None = None
    refit: bool = True
    tolerance: float = 0.0
    candidates: int | None = None
    maps: Mapping[str, LandmarkMap] = field(default_factory=dict, repr=False, compare=False)
    ridges: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        options: Any,
        labels: Sequence[str],
        n_landmarks: int,
        maps: Mapping[str, LandmarkMap] | None = None,
        ridges: Mapping[str, float] | None = None,
    ) -> LandmarkProcedure:
        """Return the procedure of a job's options, for so many landmarks."""
        return cls(
            rules=tuple(NamedRule(label) for label in labels),
            sparse=options.task == "sparse",
            keep=options.n_kept(n_landmarks),
            ridge=options.ridge,
            bound=options.bound,
            refit=options.refit,
            tolerance=options.tolerance,
            candidates=n_landmarks,
            maps=maps or {},
            ridges=ridges or {},
        )

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight."""
        moments = next(iter(members.values()))
        return int(moments.n_samples), float(moments.weight)

    def problem_on(self, fold: Fold) -> Any:
        """Return the problems of all rows but a fold's."""
        return fold.once("problem", lambda: self.problem(fold.train, fold.number))

    def problem(self, train: Members, fold: int = -1) -> Any:
        """Return the problem of each similarity, of all training rows or without a fold."""
        n_rows, _ = self.size(train)
        if n_rows < 2:
            raise DataError(f"There are {n_rows} rows of positive weight; at least 2 are needed.")
        return {rule.name: self._problem(train[rule.name], rule.name, fold) for rule in self.rules}

    def _problem(self, moments: Any, name: str, fold: int) -> SquaredProblem:
        if name == COLUMNS:
            return SquaredProblem.of(moments)
        label = of_fold(name, fold) if of_fold(name, fold) in self.maps else name
        penalty = self.maps[label].penalty() if label in self.maps else None
        ridge = self.ridges.get(label, RIDGE) if self.ridge is None else self.ridge
        return SquaredProblem.of(moments, self.candidates, penalty, ridge)

    def search(self, problem: Mapping[str, SquaredProblem], rule: NamedRule) -> LandmarkPath:
        """Return the landmarks in the order of choice, or the first ones."""
        own = problem[rule.name]
        if rule.name == COLUMNS:
            order, ridge = np.arange(own.n_landmarks), own.cross_validated_ridge()
            return LandmarkPath(rule.name, {"order": order, "ridge": np.array(ridge)})
        if not self.refit and self.bound is not None:
            steps = stepwise(own, self.keep, own.ridge, self.bound, self.tolerance)
            return LandmarkPath(rule.name, {**steps, "ridge": np.array(own.ridge)})
        order = np.arange(min(self.keep, own.n_landmarks))
        if self.sparse:
            order = greedy(own, self.keep, own.ridge)
        return LandmarkPath(rule.name, {"order": order, "ridge": np.array(own.ridge)})

    def weights(
        self, problem: Mapping[str, SquaredProblem], path: LandmarkPath, sizes: Sequence[int]
    ) -> np.ndarray:
        """Return the models of the path's first landmarks, (n_sizes, L)."""
        if "weights" in path.arrays:
            weights = np.zeros((len(sizes), problem[path.label].n_landmarks))
            for row, k in zip(weights, sizes, strict=True):
                row[path.order] = path.arrays["weights"][k - 1] if k else 0.0
            return weights
        bound = None if path.label == COLUMNS else self.bound
        ridge = float(path.arrays["ridge"])
        return refitted(problem[path.label], path.order, sizes, ridge, bound)

    def models(self, problem: Any, path: Any, sizes: Sequence[int]) -> list[Linear]:
        """Return the models of the path's first landmarks, of so many."""
        weights = self.weights(problem, path, sizes)
        intercepts = problem[path.label].intercept(weights)
        orders = [path.order[:k] for k in sizes]
        return [
            Linear(taken(order), own[order, np.newaxis], np.array([intercept]), np.zeros(0))
            for order, own, intercept in zip(orders, weights, intercepts, strict=True)
        ]

    def decoded(self, model: Linear, scores: np.ndarray) -> np.ndarray:
        """Return predictions (n,) of scores (P, n)."""
        return scores[0]

    def grid(self, path: LandmarkPath) -> np.ndarray:
        """Return the numbers of landmarks at which the curve has its points."""
        n = len(path.order)
        return np.array([0, n] if path.label == COLUMNS else ladder(n), dtype=np.float64)

    def score(
        self,
        problem: Mapping[str, SquaredProblem],
        path: LandmarkPath,
        held_out: Members,
        budgets: np.ndarray,
    ) -> Answer:
        """Score models of so many landmarks.

        ``largest_weight`` is the bound B of Definition 2, where similarities are averaged.
        """
        sizes = np.minimum(budgets, len(path.order)).astype(int)
        weights = self.weights(problem, path, sizes.tolist())
        moments = held_out[path.label]
        mse = errors(problem[path.label], weights, moments)
        variance = float(moments.comoment[-1, -1] / moments.weight)
        r2 = 1.0 - mse / variance if variance > 0 else np.full(len(mse), np.nan)
        largest = sizes * np.abs(weights).max(axis=1, initial=0.0)
        return {"mse": mse, "r2": r2, "largest_weight": largest}

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure models of several numbers of landmarks on a fold."""
        most = np.array([self.keep if end is None else end for end in ends], dtype=np.float64)
        return self.evaluate(fold, self.rules[0], most)[measure]

    def store(self, problem: Any, paths: Mapping[str, LandmarkPath]) -> dict[str, np.ndarray]:
        """Return the paths as named arrays."""
        return {f"{n}/{key}": a for n, path in paths.items() for key, a in path.arrays.items()}

    def restore(
        self, whole: Fold, arrays: Mapping[str, np.ndarray]
    ) -> tuple[Any, dict[str, LandmarkPath]]:
        """Return problem and paths, in the order of the rules."""
        names = [rule.name for rule in self.rules]
        return self.problem_on(whole), {n: LandmarkPath(n, below(f"{n}/", arrays)) for n in names}

    def n_operations(self) -> float:
        """Return about how many multiplications a search takes, calls counted as such."""
        return float(self.keep) ** 3 + CALLS * (self.keep if self.sparse else 10)


def of_fold(label: str, fold: int) -> str:
    """Return the name of a similarity with the metric that was learned without a fold."""
    return f"{label}@{fold}"


def coded(classes: Sequence[float] | None, target: np.ndarray) -> np.ndarray:
    """Return a target as losses take it: classes as their numbers."""
    return target if classes is None else np.searchsorted(np.array(classes), target) * 1.0
