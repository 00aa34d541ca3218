"""Models of other losses on similarities, fitted by passes over rows that are embedded once.

Weights go out; loss, gradient and Hessian come back. Similarities are centred by their known means,
and their known Gram bounds the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.moments import NamedRule, Procedure
from distfms.methods.landmarks.squared import (
    MODELS,
    STEPS_TOLERANCE,
    LandmarkPath,
    LandmarkProcedure,
    Linear,
    SquaredProblem,
    as_array,
    ladder,
    stepwise,
)
from distfms.solve.losses import EpsilonInsensitive, Loss, Margin, Slopes
from distfms.solve.newton import Domain, NewtonMinimum, Quadratic, minimise
from distfms.stats.base import Members, ratio
from distfms.stats.folds import Answer
from distfms.stats.sums import Sums

#: Widths of corners relative to the last, each fit beginning where the one before it ended.
_WIDTHS = (100.0, 10.0, 1.0)
#: How far above its minimum the penalised mean loss of a fit that has converged is at most; where
#: the target is a number, in units of its standard deviation.
TOLERANCE = 1e-10
#: The same for a fit that another one begins at.
_ROUGH = 1e-4
#: Numbers of a block of similarities that is worked on at a time.
_BLOCK_VALUES = 2**20


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
    """Loss, gradient and Hessian of a model over rows but those of one fold.

    Attributes
    ----------
    label : str
        Of the similarity.
    loss : Loss
    model : Linear
    centre : ndarray of shape (L,)
        What is subtracted from the similarities to all landmarks.
    left_out : int or None
    kind : {"model", "majorant", "landmark"}
        The loss with its derivatives; a Hessian that is nowhere less; or the gradient by the
        weights of all landmarks alone.
    """

    label: str
    loss: Loss
    model: Linear
    centre: np.ndarray
    left_out: int | None = None
    kind: Literal["model", "majorant", "landmark"] = "model"

    def sums(self, rows: Iterable[EmbeddedRows]) -> Sums:
        """Add up over rows, some at a time."""
        step = max(256, _BLOCK_VALUES // max(len(self.centre), 1))
        sums = Sums({})
        add = self._gradient if self.kind == "landmark" else self._derivatives
        for part in rows:
            if part.part == self.left_out:
                continue
            for start in range(0, len(part.target), step):
                sums = sums.merge(Sums(add(part, slice(start, start + step))))
        return sums

    def _values(self, rows: EmbeddedRows, block: slice, landmarks: np.ndarray) -> np.ndarray:
        """Return centred similarities (k, n) to some landmarks."""
        similarities = rows.similarities[self.label][landmarks, block]
        return similarities - self.centre[landmarks, np.newaxis]

    def _slopes(self, values: np.ndarray, target: np.ndarray) -> Slopes:
        """Return loss and derivatives at the model's scores of similarities to its landmarks."""
        offset = self.loss.offset(self.model.extra)
        scores = self.model.weights.T @ values + offset[:, np.newaxis]
        return self.loss.slopes(scores, target, self.model.extra)

    def _gradient(self, rows: EmbeddedRows, block: slice) -> dict[str, np.ndarray]:
        """Return the gradient by the weights of all landmarks, (L, P)."""
        weight = rows.weight[block]
        values = self._values(rows, block, np.arange(len(self.centre)))
        slopes = self._slopes(values[self.model.landmarks], rows.target[block])
        slope = (slopes.slope * weight).sum(axis=1)
        return {"weight": np.array(weight.sum()), "gradient": values @ slope.T}

    def _derivatives(self, rows: EmbeddedRows, block: slice) -> dict[str, np.ndarray]:
        """Return the loss (P,), its gradient (m, P) and its Hessian (P, m, m)."""
        target = rows.target[block]
        weight = rows.weight[block]
        values = self._values(rows, block, self.model.landmarks)
        slopes = self._slopes(values, target)
        curvature = slopes.curvature
        if self.kind == "majorant":
            curvature = np.full_like(curvature[:1], self.loss.steepest)
        designs = [np.vstack((values, shift)) for shift in self.loss.shifts(target)]
        size = len(designs[0])
        gradient = np.zeros((size, len(slopes.slope)))
        hessian = np.zeros((len(curvature), size, size))
        for term, design in enumerate(designs):
            gradient += design @ (slopes.slope[:, term] * weight).T
            for score, curvatures in enumerate(curvature):
                curved = curvatures[term] * weight
                is_curved = curved > 0
                rooted = design[:, is_curved] * np.sqrt(curved[is_curved])
                hessian[score] += rooted @ rooted.T
        return {
            "weight": np.array(weight.sum()),
            "loss": slopes.value @ weight,
            "gradient": gradient,
            "hessian": hessian,
        }


#: What models are measured by on rows; numbers by all but the last.
ERRORS = ("loss", "mae", "mse", "error")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, and how far the fit came."""

    model: Linear
    minimum: NewtonMinimum
    tolerance: float


MakePass = Callable[..., Sums]
"""From a loss, a model and the kind of a pass to sums over the rows."""


def _maker(problem: PassProblem, label: str) -> MakePass:
    """Return what passes over the rows of a problem, with the similarities of a label."""
    centre = problem.squared[label].mean[:-1]
    make_pass = problem.make_pass
    assert make_pass is not None

    def passed(loss: Loss, model: Linear, kind: Any = "model") -> Sums:
        return make_pass(FitPass(label, loss, model, centre, kind=kind))

    return passed


def _path(label: str, order: np.ndarray, fits: Sequence[Fitted], ridge: float) -> LandmarkPath:
    """Return models of several sizes as a path."""
    progress = []
    for fit in fits:
        size = len(fit.model.weights)
        progress.append({"sizes": size, "status": fit.minimum.status, "gap": fit.minimum.gap})
    models = tuple(fit.model for fit in fits)
    return LandmarkPath(label, order, ridge, models=models, progress={"fits": progress})


@dataclass(frozen=True, eq=False)
class PenalisedLoss:
    """The mean loss of models on some landmarks with a ridge, at parameters (k + E/P, P).

    Weights come first, then the parameters beside them.
    """

    make_pass: MakePass
    problem: SquaredProblem
    order: np.ndarray
    penalty: np.ndarray

    def model(self, loss: Loss, parameters: np.ndarray) -> Linear:
        """Return the model with these parameters."""
        k = len(self.order)
        weights = parameters[:k]
        extra = parameters[k:].ravel()
        offset = loss.offset(extra) - self.problem.mean[self.order] @ weights
        return Linear(self.order, weights, offset, extra)

    def at(self, loss: Loss, parameters: np.ndarray, kind: str = "model") -> Quadratic:
        """Return value and derivatives, by a pass over the rows."""
        sums = self.make_pass(loss, self.model(loss, parameters), kind)
        total = sums["weight"]
        pull = self.penalty @ parameters
        return Quadratic(
            sums["loss"] / total + np.sum(pull * parameters, axis=0) / 2,
            sums["gradient"] / total + pull,
            sums["hessian"] / total + self.penalty,
        )


# --- the procedure ------------------------------------------------------------------------------


def _on_landmarks(
    loss: Loss, problem: SquaredProblem, extra: np.ndarray, order: Any, weights: np.ndarray
) -> Linear:
    """Return the model with weights (k,) of landmarks."""
    landmarks = np.array(order, dtype=np.intp)
    offset = loss.offset(extra) - problem.mean[landmarks] @ weights
    return Linear(landmarks, weights[:, np.newaxis], offset, extra)


@dataclass(frozen=True, eq=False)
class PassProblem:
    """Co-moments of similarities, and passes over the rows that they sum up.

    Attributes
    ----------
    squared : mapping of str to SquaredProblem
        By the label of the similarity.
    make_pass : callable or None
        From a message to its sums. None where nothing is fitted.
    """

    squared: Mapping[str, SquaredProblem]
    make_pass: Callable[[FitPass], Sums] | None = None


@dataclass(frozen=True)
class PassProcedure(Procedure):
    """What decides about models of other losses; their fits pass over the rows.

    Attributes
    ----------
    squared : LandmarkProcedure
        What decides about models of squared loss of the same similarities.
    loss : Loss
    """

    squared: LandmarkProcedure
    loss: Any

    @property
    def rules(self) -> Sequence[NamedRule]:  # type: ignore[override]
        """The chosen similarity first."""
        return self.squared.rules

    @property
    def candidates(self) -> int:
        """How many of the landmarks there are."""
        return self.squared.candidates

    @property
    def keep(self) -> int:
        """Most landmarks of a model."""
        return self.squared.keep

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight."""
        return self.squared.size(members)

    def learnable(self, train: Members) -> bool:
        """Return whether the target varies."""
        return self.squared.learnable(train)

    def problem(self, train: Members) -> PassProblem:
        """Return the problem of all training rows."""
        return PassProblem(self.squared.problem(train), train.get("make_pass"))

    def problem_on(self, fold: Fold) -> PassProblem:
        """Return the problem without a fold; ``make_pass`` is among its members."""
        return PassProblem(self.squared.problem_on(fold), fold.train.get("make_pass"))

    def start(self, problem: SquaredProblem) -> np.ndarray:
        """Return the first values of the parameters beside the weights."""
        if isinstance(self.loss, EpsilonInsensitive) and self.loss.has_intercept:
            return problem.mean[-1:].copy()
        return self.loss.start()

    def fitted(
        self,
        make_pass: MakePass,
        problem: SquaredProblem,
        order: np.ndarray,
        start: Fitted | None = None,
    ) -> Fitted:
        """Fit a model on landmarks in an order, beginning at that of the first of them."""
        k = len(order)
        loss = self.loss
        first = self.start(problem).reshape(-1, loss.n_scores)
        unit = self._unit(problem)
        penalty = np.zeros((k + len(first), k + len(first)))
        penalty[:k, :k] = problem.added(self.squared.ridge(problem) / unit)[np.ix_(order, order)]
        objective = PenalisedLoss(make_pass, problem, order, penalty)
        parameters = np.vstack((np.zeros((k, loss.n_scores)), first))
        widths: Sequence[float] = _WIDTHS
        if start is not None:
            parameters[: len(start.model.weights)] = start.model.weights
            parameters[k:] = start.model.extra.reshape(first.shape)
            widths = _WIDTHS[1:]
        if isinstance(loss, Margin) and loss.logistic:
            widths = _WIDTHS[-1:]  # without a corner
        steepest = objective.at(loss, parameters, "majorant").hessian[0] - penalty
        # Regular also without a ridge, and where landmarks are the same.
        steepest.flat[:: len(steepest) + 1] += 1e-10 * np.trace(steepest) / len(steepest)
        bound = self.squared.options.bound
        domain = Domain(k, None if bound is None else bound / np.sqrt(k), loss.least())
        for width in widths:
            rounded = replace(loss, width=width * loss.width)
            tolerance = unit * (TOLERANCE if width == _WIDTHS[-1] else _ROUGH)
            minimum = minimise(
                partial(objective.at, rounded),
                parameters,
                steepest / width + penalty,
                domain,
                tol=tolerance,
            )
            parameters = minimum.parameters
        model = objective.model(loss, parameters)
        return Fitted(model, minimum, tolerance)

    def _unit(self, problem: SquaredProblem) -> float:
        """Return the unit of the loss of a number, with whose square squared weights grow."""
        if not isinstance(self.loss, EpsilonInsensitive):
            return 1.0
        return float(np.sqrt(problem.target_variance)) or 1.0

    def _steps(self, problem: SquaredProblem, label: str, make_pass: MakePass) -> LandmarkPath:
        """Take the steps of Algorithm 2, a pass for each; with an intercept all is centred."""
        extra = self.start(problem)
        unit = float(np.sqrt(problem.target_variance))
        ridge = self.squared.ridge(problem)
        penalty = problem.added(ridge / unit)

        model = partial(_on_landmarks, self.loss, problem, extra)

        def slope(order: Any, weights: np.ndarray) -> np.ndarray:
            sums = make_pass(self.loss, model(order, weights), "landmark")
            gradient = sums["gradient"][:, 0] / sums["weight"]
            return np.asarray(gradient + penalty[:, order] @ weights)

        curvature = self.loss.steepest * np.diagonal(problem.covariance)[:-1]
        bound = self.squared.options.bound
        assert bound is not None
        steps = stepwise(
            slope,
            n_kept=min(self.keep, problem.n_landmarks),
            bound=bound,
            smoothness=float((curvature + np.diagonal(penalty)).max()),
            least=STEPS_TOLERANCE * unit,
        )
        order = steps["order"]
        models = [model(order[:0], np.zeros(0))]
        if len(order):
            sizes = ladder(len(order))
            models = [model(order[:k], steps["weights"][k - 1, :k]) for k in sizes]
        progress = {name: steps[name].item() for name in ("n_steps", "gap")}
        return LandmarkPath(label, order, ridge, models=tuple(models), progress=progress)

    def search(self, problem: Any, rule: NamedRule, **where: Any) -> Any:
        """Fit models on more and more landmarks, each beginning where the one before it ended.

        Of `sparse`, a landmark is chosen after each fit.
        """
        squared = problem.squared[rule.name]
        make_pass = _maker(problem, rule.name)
        if self.squared.options.takes_steps:
            return self._steps(squared, rule.name, make_pass)
        is_sparse = self.squared.options.task == "sparse"
        keep = min(self.keep, squared.n_landmarks)
        sizes = [k for k in ladder(keep) if 10 * k >= keep]
        order = np.arange(keep)
        fits = list[Fitted]()
        last = None
        for k in range(1, keep + 1) if is_sparse else sizes:
            if is_sparse:
                order[k - 1 :] = self._next(make_pass, squared, order[: k - 1], last)
            last = self.fitted(make_pass, squared, order[:k], last)
            if k in sizes:
                fits.append(last)
        return _path(rule.name, order, fits, self.squared.ridge(squared))

    def _next(
        self, make_pass: Any, problem: SquaredProblem, order: np.ndarray, last: Fitted | None
    ) -> int:
        """Return the landmark along which the loss of a model falls most steeply."""
        if last is None:
            extra = self.start(problem)
            weights = np.zeros((0, self.loss.n_scores))
            model = Linear(order, weights, self.loss.offset(extra), extra)
        else:
            model = last.model
        sums = make_pass(self.loss, model, "landmark")
        slope = np.abs(sums["gradient"]).sum(axis=1)
        if self.squared.options.selection == "gain":
            spread = np.sqrt(np.diagonal(problem.covariance)[:-1])
            slope = ratio(slope, spread)
        slope[order] = -1.0
        return int(np.argmax(slope))

    def models(self, problem: Any, path: Any, sizes: Sequence[int]) -> list[Linear]:
        """Return the models that were fitted, whatever the sizes."""
        return list(path.models)

    def grid(self, path: Any) -> np.ndarray:
        """Return the numbers of landmarks of the models."""
        return np.array([len(model.weights) for model in path.models], dtype=np.float64)

    def score(self, problem: Any, path: Any, held_out: Members, budgets: np.ndarray) -> Answer:
        """Return the models (`MODELS`), which rows have to judge."""
        sizes = self.grid(path)
        places = np.maximum(np.searchsorted(sizes, budgets, "right") - 1, 0)
        models = [path.models[place] for place in places]
        largest = [np.abs(model.weights).max(initial=0.0) for model in models]
        return {"largest_weight": np.array(largest) * sizes[places], MODELS: as_array(models)}

    def tuned_values(self, fold: Fold, ends: Sequence[Any], measure: str) -> np.ndarray:
        """Return the model of all landmarks without a fold."""
        return self.evaluate(fold, self.rules[0], np.array([float(self.keep)]))[MODELS]

    def n_operations(self) -> float:
        """Return about how many multiplications a search takes, calls counted as such."""
        return self.squared.n_operations()
