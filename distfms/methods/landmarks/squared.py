"""The pure part of the method: from co-moments of similarities to models of few landmarks.

A model of squared loss is f(x) = Σ u_l K(x, l) + b; in the paper's terms w = √k·u for k landmarks.
The intercept is what centring makes of it: b = mean(y) − uᵀ mean(K). Without one, similarities and
target are not centred.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", Algorithms 1 and 2.
Shalev-Shwartz, Srebro, Zhang, "Trading Accuracy for Sparsity", SIAM J. Optimization 20 (2010):
forward greedy selection, with the refit of all chosen weights after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.judge import squared_errors
from distfms.methods.frame.moments import NamedRule, Procedure
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.solve.cholesky import Shard
from distfms.solve.forward import CALLS, ForwardProblem, forward
from distfms.solve.linalg import symmetric_pinv
from distfms.solve.newton import Domain
from distfms.solve.ridge import regular
from distfms.stats.base import Members, explained
from distfms.stats.comoments import CoMoments
from distfms.stats.folds import Answer

MEASURES = {"mse": False, "mae": False, "error": False, "loss": False} | dict.fromkeys(
    ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "ndcg"), True
)
"""What `tune` compares models by, and whether more is better."""

#: Name of models among answers.
MODELS = "fold/models"
#: Part of the target's variance, or deviation, by which no model may be better where steps end.
STEPS_TOLERANCE = 1e-3
#: Steps of Algorithm 2 before it is given up.
_MOST_STEPS, _TINY = 100_000, float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class SquaredProblem:
    """Squared loss of a target on L similarities.

    Attributes
    ----------
    mean : ndarray of shape (L + 1,)
        Of the similarities, then of the target; 0 without an intercept.
    covariance : ndarray of shape (L + 1, L + 1)
        About these.
    penalty : ndarray of shape (L, L), or None
        A of a ridge λ·uᵀAu; by default the identity, times the mean variance of a similarity.
    ridge : float
        λ where the spec does not say.
    """

    mean: np.ndarray
    covariance: np.ndarray
    penalty: np.ndarray | None = None
    ridge: float = 0.0

    @classmethod
    def of(
        cls,
        moments: CoMoments,
        n_landmarks: int | None = None,
        penalty: np.ndarray | None = None,
        ridge: float = 0.0,
        intercept: bool = True,
    ) -> SquaredProblem:
        """Read similarities and target from their co-moments; by default to all landmarks."""
        if penalty is not None:
            penalty = regular(penalty[:n_landmarks, :n_landmarks])
        mean, covariance = _first(moments, n_landmarks)
        if not intercept:
            covariance = covariance + np.outer(mean, mean)
            mean = np.zeros_like(mean)
        return cls(mean, covariance, penalty, ridge)

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks L."""
        return len(self.mean) - 1

    @property
    def target_variance(self) -> float:
        """Variance of the target."""
        return float(self.covariance[-1, -1])

    @property
    def mean_variance(self) -> float:
        """Mean variance of a similarity."""
        return float(np.mean(np.diagonal(self.covariance)[:-1])) if self.n_landmarks else 0.0

    def added(self, ridge: float) -> np.ndarray:
        """Return what a ridge adds to the Gram (L, L)."""
        if self.penalty is not None:
            return ridge * self.penalty
        return np.diag(np.full(self.n_landmarks, ridge * self.mean_variance))

    def penalised(self, ridge: float) -> np.ndarray:
        """Return the Gram (L, L) with a ridge."""
        return self.covariance[:-1, :-1] + self.added(ridge)

    def intercept(self, weights: np.ndarray) -> np.ndarray:
        """Return b of models with weights (..., L)."""
        return np.asarray(self.mean[-1] - weights @ self.mean[:-1])


def _first(moments: CoMoments, n: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the first n similarities and the target."""
    mean = moments.mean
    covariance = moments.covariance(pairwise=False)
    if n is None or n == len(mean) - 1:
        return mean, covariance
    places = np.append(np.arange(n), len(mean) - 1)
    return mean[places], covariance[np.ix_(places, places)]


def errors(problem: SquaredProblem, weights: np.ndarray, held_out: CoMoments) -> np.ndarray:
    """Return the mean squared errors of models (m, L) on rows that co-moments sum up."""
    n_others = len(held_out.mean) - 1 - weights.shape[1]
    all_weights = np.pad(weights, ((0, 0), (0, n_others)))
    return squared_errors(held_out, all_weights, problem.intercept(weights))


#: What a step maximises by the option `selection`: F, or the size |θ_j| of the gradient.
_CRITERIA = {"gain": "fr", "gradient": "omp-no-whiten"}


def greedy(
    problem: SquaredProblem, n_steps: int, ridge: float, selection: str = "gain", **where: Any
) -> np.ndarray:
    """Choose up to `n_steps` landmarks one by one, all weights refitted after each step.

    Ends early where no landmark would lower the loss. `where` has the pool and the shards of
    `solve.forward.forward`, if there are any.
    """
    candidates = candidates_of(problem, ridge)
    criterion = _CRITERIA[selection]
    path = forward(candidates, criterion, max_groups=n_steps, while_gaining=True, **where)
    return path.order


def candidates_of(problem: SquaredProblem, ridge: float) -> ForwardProblem:
    """Return landmarks as `solve.forward` takes them, with the ridge in their Gram."""
    gram = problem.penalised(ridge)
    return ForwardProblem.of_columns(gram, problem.covariance[:-1, -1], problem.target_variance)


def stepwise(
    slope_of: Callable[[list[int], np.ndarray], np.ndarray],
    n_kept: int,
    bound: float,
    smoothness: float,
    least: float,
) -> dict[str, np.ndarray]:
    """Take steps of Algorithm 2 towards one landmark after another, with Σ|u| ≤ C_W.

    Parameters
    ----------
    slope_of : callable
        From landmarks and their weights to the gradient θ (L,) of the mean loss.
    n_kept : int
        Most landmarks of a model: the step that would take another is not done.
    bound : float
        C_W.
    smoothness : float
        β, the largest curvature along a weight; the paper's is for similarities up to 1.
    least : float
        ε: the steps end where δ is no greater, or after ⌈8·C_W²·β/ε⌉ of them, which are the paper's
        8·C_W²/ε² for its β = 1/ε.

    Returns
    -------
    dict
        ``order`` (k,) of landmarks by their first step; ``weights`` (k, k), the last models of no
        more than 1 … k landmarks, which have that order; ``n_steps``; ``gap``, δ of the last step:
        no model within the bound has a loss that is lower by more.
    """
    order: list[int] = []
    weights = np.zeros(n_kept)
    kept = np.zeros((n_kept, n_kept))
    gap = np.inf
    n_steps = 0
    n_allowed = 8.0 * bound * smoothness / max(least, _TINY) * bound
    n_allowed = min(max(np.ceil(n_allowed), 1.0), _MOST_STEPS)
    while n_steps < n_allowed:
        taken = weights[: len(order)]
        slope = slope_of(order, taken)
        landmark = int(np.argmax(np.abs(slope)))
        gap = float(slope[order] @ taken + bound * abs(slope[landmark]))
        is_new = landmark not in order
        if gap <= least or (is_new and len(order) == n_kept):
            break
        if is_new:
            order.append(landmark)
        share = min(1.0, gap / bound / (4.0 * bound * smoothness))
        weights *= 1.0 - share
        weights[order.index(landmark)] -= share * bound * np.sign(slope[landmark])
        kept[len(order) - 1] = weights
        n_steps += 1
    k = len(order)
    return {
        "order": np.array(order, dtype=np.intp),
        "weights": kept[:k, :k],
        "n_steps": np.array(n_steps),
        "gap": np.array(gap),
    }


def squared_steps(
    problem: SquaredProblem,
    n_kept: int,
    ridge: float,
    bound: float,
    tolerance: float = STEPS_TOLERANCE,
) -> dict[str, np.ndarray]:
    """Take the steps of `stepwise` for squared loss; ε is a part of the variance of the target."""
    gram = problem.penalised(ridge)
    target = problem.covariance[:-1, -1]
    return stepwise(
        lambda order, weights: 2.0 * (weights @ gram[order] - target),
        n_kept,
        bound,
        2.0 * float(np.diagonal(gram).max()),
        tolerance * problem.target_variance,
    )


def refitted(
    problem: SquaredProblem,
    order: np.ndarray,
    sizes: Sequence[int],
    ridge: float,
    bound: float | None = None,
) -> np.ndarray:
    """Return the models of the first k landmarks of an order for each size k, (n_sizes, L).

    The bound B is that of the paper's w, so that of u is B/√k.
    """
    from scipy.linalg import solve_triangular

    gram = problem.penalised(ridge)[np.ix_(order, order)]
    target = problem.covariance[order, -1]
    weights = np.zeros((len(sizes), problem.n_landmarks))
    factor = _factor(gram)
    for row, k in zip(weights, sizes, strict=True):
        chosen = order[:k]
        if not k:
            continue
        if bound is not None:
            domain = Domain(k, bound / np.sqrt(k))
            row[chosen] = domain.best(gram[np.newaxis, :k, :k], target[:k, np.newaxis])[:, 0]
        elif factor is None:
            row[chosen] = symmetric_pinv(gram[:k, :k]) @ target[:k]
        else:
            white = solve_triangular(factor[:k, :k], target[:k], trans=1)
            row[chosen] = solve_triangular(factor[:k, :k], white)
    return weights


def _factor(gram: np.ndarray) -> np.ndarray | None:
    """Return the upper Cholesky factor, whose leading blocks are those of the leading blocks."""
    try:
        return np.linalg.cholesky(gram).T
    except np.linalg.LinAlgError:
        return None


# --- models and the procedure ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear model on similarities to k landmarks.

    Attributes
    ----------
    landmarks : ndarray of int, shape (k,)
    weights : ndarray of shape (k, P)
    offset : ndarray of shape (P,)
    extra : ndarray of shape (E,)
        Parameters of the loss beside the weights.
    """

    landmarks: np.ndarray
    weights: np.ndarray
    offset: np.ndarray
    extra: np.ndarray

    def scores(self, similarities: np.ndarray) -> np.ndarray:
        """Return scores (P, n) of similarities (k, n) to its landmarks."""
        return self.weights.T @ similarities + self.offset[:, np.newaxis]


@dataclass(frozen=True, eq=False)
class LandmarkPath:
    """Landmarks in the order in which models take them.

    Attributes
    ----------
    label : str
        Of the similarity.
    order : ndarray of int, shape (k,)
    ridge : float
    weights : ndarray of shape (k, k), or None
        Of the first 1 … k landmarks, where they are not fitted again for a size.
    models : tuple of Linear
        Those that the search itself has fitted.
    progress : mapping
        How far it, or each fit, came; for the results.
    """

    label: str
    order: np.ndarray
    ridge: float
    weights: np.ndarray | None = None
    models: tuple[Linear, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)


def as_array(models: Sequence[Linear]) -> np.ndarray:
    """Return models as an array of objects, as answers have it."""
    array = np.empty(len(models), dtype=object)
    array[:] = models
    return array


def side_by_side(models: Sequence[Linear]) -> np.ndarray:
    """Return the weights of models (n, k, P), the last of which has all k landmarks."""
    weights = np.zeros((len(models), *models[-1].weights.shape))
    for room, model in zip(weights, models, strict=True):
        room[: len(model.weights)] = model.weights
    return weights


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
    options : LandmarksOptions
    candidates : int
        How many of the landmarks there are.
    maps : mapping of str to LandmarkMap
        By the label of the similarity, and of the metrics that were learned without a fold.
    """

    rules: tuple[NamedRule, ...]
    options: LandmarksOptions
    candidates: int
    maps: Mapping[str, LandmarkMap] = field(default_factory=dict, repr=False, compare=False)

    @property
    def keep(self) -> int:
        """Most landmarks of a model."""
        return self.options.n_kept(self.candidates)

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight.

        Of a fold without which no metric was learned there are no statistics.
        """
        moments = next(iter(members.values()), None)
        if moments is None:
            return 0, 0.0
        return int(moments.n_samples), float(moments.weight)

    def learnable(self, train: Members) -> bool:
        """Return whether the target varies."""
        return not next(iter(train.values())).constant_columns()[-1]

    def problem_on(self, fold: Fold) -> Any:
        """Return the problems of all rows but a fold's, which no other option decides about."""
        key = ("problem", self.candidates, self.rules, self.options.intercept)
        return fold.once(key, lambda: self.problem(fold.train, fold.number))

    def problem(self, train: Members, fold: int = -1) -> Any:
        """Return the problem of each similarity, of all training rows or without a fold."""
        return {rule.name: self._problem(train[rule.name], rule.name, fold) for rule in self.rules}

    def _problem(self, moments: Any, name: str, fold: int) -> SquaredProblem:
        mapping = self.maps.get(of_fold(name, fold), self.maps[name])
        return SquaredProblem.of(
            moments,
            self.candidates,
            mapping.penalty(),
            mapping.ridge,
            intercept=self.options.intercept,
        )

    def ridge(self, problem: SquaredProblem) -> float:
        """Return the ridge of the spec, or that of a problem."""
        return problem.ridge if self.options.ridge is None else self.options.ridge

    @property
    def is_greedy(self) -> bool:
        """Whether landmarks are chosen one by one, by co-moments."""
        return self.options.task == "sparse" and not self.options.takes_steps

    def shards(self, problem: Any, rule: NamedRule) -> Sequence[Shard]:
        """Return the runs of landmarks that are chosen from, where they are chosen one by one."""
        if not self.is_greedy:
            return ()
        squared = problem[rule.name]
        return candidates_of(squared, self.ridge(squared)).shard.cut()

    def search(
        self, problem: Mapping[str, SquaredProblem], rule: NamedRule, **where: Any
    ) -> LandmarkPath:
        """Return the landmarks in the order of choice, or the first ones."""
        squared = problem[rule.name]
        options = self.options
        ridge = self.ridge(squared)
        if options.takes_steps and options.bound is not None:
            steps = squared_steps(squared, self.keep, ridge, options.bound)
            progress = {name: steps[name].item() for name in ("n_steps", "gap")}
            return LandmarkPath(
                rule.name, steps["order"], ridge, steps["weights"], progress=progress
            )
        order = np.arange(min(self.keep, squared.n_landmarks))
        if options.task == "sparse":
            order = greedy(squared, self.keep, ridge, options.selection, **where)
        return LandmarkPath(rule.name, order, ridge)

    def weights(
        self, problem: Mapping[str, SquaredProblem], path: LandmarkPath, sizes: Sequence[int]
    ) -> np.ndarray:
        """Return the models of the path's first landmarks, (n_sizes, L)."""
        if path.weights is not None:
            weights = np.zeros((len(sizes), problem[path.label].n_landmarks))
            for row, k in zip(weights, sizes, strict=True):
                row[path.order] = path.weights[k - 1] if k else 0.0
            return weights
        # The bound of steps is not that of models beside them.
        bound = None if self.options.takes_steps else self.options.bound
        return refitted(problem[path.label], path.order, sizes, path.ridge, bound)

    def models(self, problem: Any, path: Any, sizes: Sequence[int]) -> list[Linear]:
        """Return the models of the path's first landmarks, of so many."""
        weights = self.weights(problem, path, sizes)
        return self._linear(problem[path.label], path, sizes, weights)

    def _linear(
        self, problem: SquaredProblem, path: LandmarkPath, sizes: Sequence[int], weights: np.ndarray
    ) -> list[Linear]:
        """Return the models of the path's first landmarks, of so many, by their weights."""
        intercepts = problem.intercept(weights)
        models = []
        for k, row, intercept in zip(sizes, weights, intercepts, strict=True):
            order = path.order[:k]
            offset = np.array([intercept])
            models.append(Linear(order, row[order, np.newaxis], offset, np.zeros(0)))
        return models

    def grid(self, path: LandmarkPath) -> np.ndarray:
        """Return the numbers of landmarks at which the curve has its points."""
        return np.array(ladder(len(path.order)), dtype=np.float64)

    def score(
        self,
        problem: Mapping[str, SquaredProblem],
        path: LandmarkPath,
        held_out: Members,
        budgets: np.ndarray,
    ) -> Answer:
        """Score models of so many landmarks.

        By co-moments, that is before predictions are cut. ``largest_weight`` is the bound B of
        Definition 2, where similarities are averaged.
        """
        sizes = np.minimum(budgets, len(path.order)).astype(int)
        weights = self.weights(problem, path, sizes.tolist())
        moments = held_out[path.label]
        mse = errors(problem[path.label], weights, moments)
        variance = float(moments.comoment[-1, -1] / moments.weight)
        return {
            "mse": mse,
            "r2": explained(mse, variance),
            "largest_weight": sizes * np.abs(weights).max(axis=1, initial=0.0),
            MODELS: as_array(self._linear(problem[path.label], path, sizes.tolist(), weights)),
        }

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure models of several numbers of landmarks on a fold, by default the own one."""
        ends = ends or (self.options.keep,)
        tried = [self.options.model_copy(update={"keep": end}) for end in ends]
        sizes = np.array([options.n_kept(self.candidates) for options in tried])
        largest = replace(self, options=tried[int(np.argmax(sizes))])
        answer = largest.evaluate(fold, self.rules[0], sizes.astype(float))
        return answer[measure if measure in answer else MODELS]  # which rows have to judge

    def n_operations(self) -> float:
        """Return about how many multiplications a search takes, calls counted as such."""
        chosen = 0.0 if self.options.ridge is not None else 10.0 * self.candidates**3
        steps = self.keep if self.options.task == "sparse" else 10
        return float(self.keep) ** 3 + chosen + CALLS * steps


def ridge_errors(procedure: Any, fold: Fold, item: tuple[str, np.ndarray]) -> Answer:
    """Return the squared errors on a fold of models on all landmarks, of some ridges."""
    label, ridges = item
    problem = procedure.problem_on(fold)[label]
    order = np.arange(problem.n_landmarks)
    models = [refitted(problem, order, [len(order)], ridge) for ridge in ridges]
    return {"mse": errors(problem, np.concatenate(models), fold.held_out[label])}


def of_fold(label: str, fold: int) -> str:
    """Return the name of a similarity with the metric that was learned without a fold."""
    return f"{label}@{fold}"


def coded(classes: Sequence[float] | None, target: np.ndarray) -> np.ndarray:
    """Return a target as losses take it: classes as their numbers."""
    return target if classes is None else np.searchsorted(np.array(classes), target) * 1.0
