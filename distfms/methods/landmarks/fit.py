"""Models of other losses on similarities, fitted by passes over rows that are embedded once.

Weights go out; loss and gradient come back. The driver works with similarities that are centred by
their known means, on coordinates whitened by their known Gram.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.contract import Answer
from distfms.methods.cross_validation import Fold, Members
from distfms.methods.landmarks.losses import EpsilonInsensitive, Loss
from distfms.methods.landmarks.procedure import (
    LandmarkPath,
    LandmarkProcedure,
    Linear,
    ladder,
    side_by_side,
    taken,
)
from distfms.methods.landmarks.squared import SquaredProblem
from distfms.methods.passes import Minimum, Sums, minimise
from distfms.methods.statistics_job import NamedRule

#: Widths of corners relative to the last, each fit beginning where the one before it ended.
_WIDTHS = (100.0, 10.0, 1.0)
#: Gradient at which a fit has converged, relative to that of a loss of slope 1 on all similarities.
_TOLERANCE = 1e-4
#: Relative excess of the norm of the weights over their bound.
_BOUND_TOLERANCE = 1e-3
_MOST_TRIALS = 30
#: Iterations of a fit before it is given up.
_MOST_ITERATIONS = 500


@dataclass(frozen=True, eq=False)
class EmbeddedRows:
    """Rows of one part of a partition.

    Attributes
    ----------
    part : int
        Fold; the number of folds for held-out rows.
    similarities : mapping of str to ndarray of shape (L, n)
        By the label of the similarity.
    target : ndarray of shape (n,)
        Numbers of classes or levels where the target is one.
    weight : ndarray of shape (n,)
    """

    part: int
    similarities: Mapping[str, np.ndarray]
    target: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True, eq=False)
class FitPass:
    """Loss and gradient of a model over rows but those of one fold.

    The gradient is by the weights of the model's landmarks, or by those of all landmarks.
    """

    label: str
    loss: Loss
    model: Linear
    left_out: int | None = None
    by_all: bool = False

    def sums(self, rows: Iterable[EmbeddedRows]) -> Sums:
        """Add up over rows."""
        found, model = Sums({}), self.model
        for own in rows:
            if own.part == self.left_out:
                continue
            similarities = own.similarities[self.label]
            chosen = similarities[model.landmarks]
            scores = model.scores(chosen)
            wanted = similarities if self.by_all else chosen
            slopes = self.loss.slopes(scores, own.target, own.weight, model.extra)
            arrays = {
                "weight": np.array(own.weight.sum()),
                "loss": np.array(slopes.value @ own.weight),
                "product": wanted @ slopes.score.T.astype(similarities.dtype),
                "slope": slopes.score.sum(axis=1),
                "extra": slopes.extra,
            }
            found = found.merge(Sums(arrays))
        return found


@dataclass(frozen=True, eq=False)
class JudgePass:
    """Errors of models on some parts, whose names begin the names of the sums."""

    label: str
    loss: Loss
    models: Sequence[Linear]
    parts: Mapping[int, str]

    def sums(self, rows: Iterable[EmbeddedRows]) -> Sums:
        """Add up over rows."""
        found = Sums({})
        for own in rows:
            if own.part in self.parts:
                errors = np.array([self._errors(model, own) for model in self.models]).T
                arrays = {
                    "weight": np.array(own.weight.sum()),
                    **dict(zip(ERRORS, errors, strict=True)),
                }
                name = self.parts[own.part]
                found = found.merge(Sums({f"{name}/{key}": a for key, a in arrays.items()}))
        return found

    def _errors(self, model: Linear, rows: EmbeddedRows) -> list[float]:
        scores = model.scores(rows.similarities[self.label][model.landmarks])
        loss = self.loss.slopes(scores, rows.target, rows.weight, model.extra).value
        away = np.abs(self.loss.decoded(scores, model.extra) - rows.target)
        return [own @ rows.weight for own in (loss, away, away**2, away > 0)]


#: What is summed of rows that a model is judged on.
ERRORS = ("loss", "mae", "mse", "error")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, and how far the fit came."""

    model: Linear
    minimum: Minimum
    tolerance: float
    n_passes: int


class _Run:
    """The passes of one fit."""

    def __init__(
        self,
        loss: Loss,
        make_pass: Callable[[Loss, Linear], Sums],
        problem: SquaredProblem,
        order: np.ndarray,
    ) -> None:
        self.loss, self.make_pass, self.k = loss, make_pass, len(order)
        self.landmarks, self.mean = taken(order), problem.mean[order]
        # The curvature is that of the loss, about 1 over the unit of the target, times the Gram.
        is_number = isinstance(loss, EpsilonInsensitive)
        self.unit = float(np.sqrt(problem.target_variance)) or 1.0 if is_number else 1.0
        self.gram = problem.penalised(1e-10)[np.ix_(order, order)]
        self.tolerance = _TOLERANCE * float(np.sqrt(np.trace(self.gram)))
        self.n_passes = 0

    def split(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and the parameters beside them."""
        return parameters[: self.k], parameters[self.k :].ravel()

    def model(self, weights: np.ndarray, extra: np.ndarray) -> Linear:
        """Return the model on similarities as they are."""
        offset = self.loss.offset(extra) - self.mean @ weights
        return Linear(self.landmarks, weights, offset, extra)

    def minimum(
        self, weights: np.ndarray, extra: np.ndarray, penalty: float, width: float
    ) -> Minimum:
        """Minimise the mean loss with corners of some width, and a penalty on the weights."""
        from scipy.linalg import block_diag

        loss = replace(self.loss, width=width * self.loss.width)

        def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
            own, beside = self.split(parameters)
            sums, self.n_passes = self.make_pass(loss, self.model(own, beside)), self.n_passes + 1
            product = sums["product"] - np.outer(self.mean, sums["slope"])
            gradient = product / sums["weight"] + penalty * own
            other = (sums["extra"] / sums["weight"]).reshape(-1, own.shape[1])
            total = float(sums["loss"] / sums["weight"]) + penalty / 2 * float(np.sum(own**2))
            return total, np.vstack((gradient, other))

        start = np.vstack((weights, extra.reshape(-1, weights.shape[1])))
        curvature = self.gram + penalty * self.unit * np.eye(self.k)
        whitening = np.linalg.cholesky(curvature).T
        factor = block_diag(whitening, np.eye(len(start) - self.k))
        return minimise(value, start, factor=factor, tol=self.tolerance, max_iter=_MOST_ITERATIONS)

    def bounded(self, found: Minimum, penalty: float, bound: float) -> Minimum:
        """Raise the penalty until the norm of the weights is the bound, if it is above it."""
        at = [found]

        def excess(exponent: float) -> float:
            own = self.split(at[-1].weights)
            at.append(self.minimum(*own, np.exp(exponent), 1.0))
            return float(np.log(np.linalg.norm(self.split(at[-1].weights)[0]) / bound))

        over = float(np.log(np.linalg.norm(self.split(found.weights)[0]) / bound))
        if over <= 0:
            return found
        high, at_high = np.log(max(penalty, 1e-12 * np.trace(self.gram))), over
        while at_high > 0:
            low, at_low = high, at_high
            high, at_high = high + np.log(30.0), excess(high + np.log(30.0))
        for _ in range(_MOST_TRIALS):
            # Regula falsi; where one end stays, half its excess counts (Illinois).
            middle = (low * at_high - high * at_low) / (at_high - at_low)
            before, over = over, excess(middle)
            if abs(over) <= _BOUND_TOLERANCE:
                break
            stays = 0.5 if over * before > 0 else 1.0
            if over > 0:
                low, at_low, at_high = middle, over, at_high * stays
            else:
                high, at_high, at_low = middle, over, at_low * stays
        weights, extra = self.split(at[-1].weights)
        weights = weights * min(1.0, bound / float(np.linalg.norm(weights)))
        beside = extra.reshape(-1, weights.shape[1])
        return replace(at[-1], weights=np.vstack((weights, beside)))


def _path(label: str, order: np.ndarray, fits: Sequence[Fitted]) -> LandmarkPath:
    """Return models of several sizes as a path."""
    models = [fitted.model for fitted in fits]
    arrays = {
        "order": order,
        "sizes": np.array([len(model.weights) for model in models]),
        "weights": side_by_side(models),
        "offset": np.array([model.offset for model in models]),
        "extra": np.array([model.extra for model in models]),
        "tolerance": np.array([fitted.tolerance for fitted in fits]),
        "n_passes": np.array([fitted.n_passes for fitted in fits]),
    }
    for name in ("status", "gradient_norm", "n_iterations"):
        arrays[name] = np.array([getattr(fitted.minimum, name) for fitted in fits])
    return LandmarkPath(label, arrays)


# --- the procedure ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PassProblem:
    """Co-moments of similarities, and passes over the rows that they sum up.

    Attributes
    ----------
    squared : mapping of str to SquaredProblem
        By the label of the similarity.
    make_pass : callable or None
        From a message to its sums. None where nothing is fitted.
    left_out : int or None
        Fold that is not fitted to.
    """

    squared: Mapping[str, SquaredProblem]
    make_pass: Callable[[Any], Sums] | None = None
    left_out: int | None = None


@dataclass(frozen=True)
class PassProcedure(LandmarkProcedure):
    """What decides about models of other losses; their fits pass over the rows.

    Attributes
    ----------
    loss : Loss
    only_last : bool
        Fit the model on all landmarks alone, not smaller ones before it.
    """

    loss: Any = None
    only_last: bool = False

    def problem(self, train: Members) -> Any:
        """Return the problem; ``make_pass`` and ``left_out`` are among the members of a fold."""
        own = {rule.name: train[rule.name] for rule in self.rules}
        return PassProblem(super().problem(own), train.get("make_pass"), train.get("left_out"))

    def start(self, problem: SquaredProblem) -> np.ndarray:
        """Return the first values of the parameters beside the weights."""
        is_number = isinstance(self.loss, EpsilonInsensitive)
        return problem.mean[-1:].copy() if is_number else self.loss.start()

    def fitted(
        self,
        make_pass: Callable[[Loss, Linear], Sums],
        problem: SquaredProblem,
        order: np.ndarray,
        start: Fitted | None = None,
    ) -> Fitted:
        """Fit a model on landmarks in an order, beginning at that of the first of them."""
        k = len(order)
        weights, extra = np.zeros((k, self.loss.n_scores)), self.start(problem)
        widths: Sequence[float] = _WIDTHS
        if start is not None:
            weights[: len(start.model.weights)] = start.model.weights
            extra, widths = start.model.extra, _WIDTHS[-2:]
        penalty = self.ridge * np.mean(np.diagonal(problem.covariance)[:-1])
        run = _Run(self.loss, make_pass, problem, order)
        # The loss grows with the unit of the target, the squared weights with its square.
        penalty /= run.unit
        found = None
        for width in widths:
            found = run.minimum(weights, extra, penalty, width)
            weights, extra = run.split(found.weights)
        assert found is not None
        if self.bound is not None:
            found = run.bounded(found, penalty, self.bound / np.sqrt(k))
            weights, extra = run.split(found.weights)
        return Fitted(run.model(weights, extra), found, run.tolerance, run.n_passes)

    def search(self, problem: Any, rule: NamedRule) -> Any:
        """Fit models on more and more landmarks, each beginning where the one before it ended."""
        own = problem.squared[rule.name]
        keep = min(self.keep, own.n_landmarks)
        sizes = [k for k in ladder(keep) if (k == keep if self.only_last else 10 * k >= keep)]
        order, fits = np.arange(keep), dict[int, Fitted]()

        def make_pass(loss: Loss, model: Linear, by_all: bool = False) -> Sums:
            left_out = problem.left_out
            sums: Sums = problem.make_pass(FitPass(rule.name, loss, model, left_out, by_all))
            return sums

        last = None
        for k in range(1, keep + 1) if self.sparse else sizes:
            if self.sparse:
                order[k - 1 :] = self._next(make_pass, own, order[: k - 1], last)
            last = self.fitted(make_pass, own, order[:k], last)
            if k in sizes:
                fits[k] = last
        return _path(rule.name, order, list(fits.values()))

    def _next(
        self, make_pass: Any, problem: SquaredProblem, order: np.ndarray, last: Fitted | None
    ) -> int:
        """Return the landmark along which the loss of a model falls most steeply."""
        if last is None:
            extra = self.start(problem)
            weights = np.zeros((0, self.loss.n_scores))
            model = Linear(slice(0), weights, self.loss.offset(extra), extra)
        else:
            model = last.model
        sums = make_pass(self.loss, model, by_all=True)
        product = sums["product"][: problem.n_landmarks]
        slope = np.abs(product - np.outer(problem.mean[:-1], sums["slope"])).sum(axis=1)
        if not self.by_gradient:
            spread = np.sqrt(np.diagonal(problem.covariance)[:-1])
            slope = np.divide(slope, spread, out=np.zeros_like(slope), where=spread > 0)
        slope[order] = -1.0
        return int(np.argmax(slope))

    def models(self, problem: Any, path: Any, sizes: Sequence[int]) -> list[Linear]:
        """Return the models that were fitted, whatever the sizes."""
        a = path.arrays
        rows = zip(a["sizes"], a["weights"], a["offset"], a["extra"], strict=True)
        return [
            Linear(taken(a["order"][:k]), weights[:k], offset, extra)
            for k, weights, offset, extra in rows
        ]

    def decoded(self, model: Linear, scores: np.ndarray) -> np.ndarray:
        """Return predictions (n,): numbers, or those of classes and levels."""
        return np.asarray(self.loss.decoded(scores, model.extra))

    def grid(self, path: Any) -> np.ndarray:
        """Return the numbers of landmarks of the models."""
        return np.asarray(path.arrays["sizes"], dtype=np.float64)

    def score(self, problem: Any, path: Any, held_out: Members, budgets: np.ndarray) -> Answer:
        """Score models; ``judge`` is among the members, from a message of models to sums."""
        sizes = path.arrays["sizes"]
        at = np.maximum(np.searchsorted(sizes, budgets, "right") - 1, 0)
        models = self.models(problem, path, sizes)
        sums = held_out["judge"](partial(JudgePass, path.label, self.loss, models))
        largest = np.abs(path.arrays["weights"]).max(axis=(1, 2)) * sizes
        is_number = isinstance(self.loss, EpsilonInsensitive)
        names = [name for name in ERRORS if name != "error" or not is_number]
        errors = {name: sums[name] / sums["weight"] for name in names}
        return {name: a[at] for name, a in {**errors, "largest_weight": largest}.items()}

    def tuned_values(self, fold: Fold, ends: Sequence[Any], measure: str) -> np.ndarray:
        """Measure the model of all landmarks on a fold."""
        return self.evaluate(fold, self.rules[0], np.array([float(self.keep)]))[measure]
