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

from distfms.methods.frame.contract import Answer
from distfms.methods.frame.cross_validation import Fold, Members
from distfms.methods.frame.moments import NamedRule
from distfms.methods.frame.passes import Sums
from distfms.methods.landmarks.squared import (
    COLUMNS,
    DENSE,
    MODELS,
    LandmarkPath,
    LandmarkProcedure,
    Linear,
    SquaredProblem,
    as_array,
    ladder,
    stepwise,
)
from distfms.solve.losses import EpsilonInsensitive, Loss, Margin
from distfms.solve.newton import Domain, NewtonMinimum, Quadratic, minimise

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


def joined_rows(rows: Sequence[EmbeddedRows], label: str) -> EmbeddedRows:
    """Join rows of several parts, with one similarity: few rows cost little more than none."""
    similarities = np.concatenate([own.similarities[label] for own in rows], axis=1)
    target, weight = (
        np.concatenate([getattr(own, name) for own in rows]) for name in ("target", "weight")
    )
    return EmbeddedRows(-1, {label: similarities}, target, weight)


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
    wanted : {"model", "majorant", "landmark"}
        The loss with its derivatives; a Hessian that is nowhere less; or the gradient by the
        weights of all landmarks alone.
    """

    label: str
    loss: Loss
    model: Linear
    centre: np.ndarray
    left_out: int | None = None
    wanted: Literal["model", "majorant", "landmark"] = "model"

    def sums(self, rows: Iterable[EmbeddedRows]) -> Sums:
        """Add up over rows, some at a time."""
        found, size = Sums({}), max(256, _BLOCK_VALUES // max(len(self.centre), 1))
        kept = [own for own in rows if own.part != self.left_out]
        if len(kept) > 1 and sum(len(own.target) for own in kept) <= size:
            kept = [joined_rows(kept, self.label)]
        for own in kept:
            for start in range(0, len(own.target), size):
                found = found.merge(Sums(self._sums(own, slice(start, start + size))))
        return found

    def _sums(self, rows: EmbeddedRows, part: slice) -> dict[str, np.ndarray]:
        model, target, weight = self.model, rows.target[part], rows.weight[part]
        by_all = self.wanted == "landmark"
        taken = np.arange(len(self.centre)) if by_all else model.landmarks
        values = rows.similarities[self.label][taken, part] - self.centre[taken, np.newaxis]
        chosen = values[model.landmarks] if by_all else values
        scores = model.weights.T @ chosen + self.loss.offset(model.extra)[:, np.newaxis]
        value, slope, curvature = self.loss.slopes(scores, target, model.extra)
        if self.wanted == "majorant":
            curvature = np.full_like(curvature[:1], self.loss.steepest)
        slope, curvature = slope * weight, curvature * weight
        if by_all:
            return {"weight": np.array(weight.sum()), "gradient": values @ slope.sum(axis=1).T}
        designs = [np.vstack((values, own)) for own in self.loss.shifts(target)]
        gradient = sum(own @ slope[:, t].T for t, own in enumerate(designs))
        hessian = np.zeros((len(curvature), len(designs[0]), len(designs[0])))
        for out, bent in zip(hessian, curvature, strict=True):
            for own, curved in zip(designs, bent, strict=True):
                rooted = own[:, curved > 0] * np.sqrt(curved[curved > 0])
                out += rooted @ rooted.T
        sums = {"weight": np.array(weight.sum()), "loss": value @ weight}
        return {**sums, "gradient": gradient, "hessian": hessian}


#: What models are measured by on rows; numbers by all but the last.
ERRORS = ("loss", "mae", "mse", "error")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, and how far the fit came."""

    model: Linear
    minimum: NewtonMinimum
    tolerance: float
    n_passes: int


MakePass = Callable[..., Sums]
"""From a loss, a model and what is wanted to sums over the rows."""


def _maker(problem: PassProblem, label: str) -> MakePass:
    """Return what passes over the rows of a problem, with the similarities of a label."""
    centre, passed = problem.squared[label].mean[:-1], problem.make_pass
    assert passed is not None
    return lambda loss, model, wanted="model": passed(
        FitPass(label, loss, model, centre, wanted=wanted)
    )


def _path(label: str, order: np.ndarray, fits: Sequence[Fitted], ridge: float) -> LandmarkPath:
    """Return models of several sizes as a path."""
    progress = [
        {
            "sizes": len(own.model.weights),
            "tolerance": own.tolerance,
            "n_passes": own.n_passes,
            **{name: getattr(own.minimum, name) for name in ("status", "gap", "n_iterations")},
        }
        for own in fits
    ]
    models = tuple(own.model for own in fits)
    return LandmarkPath(label, order, ridge, models=models, progress={"fits": progress})


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
    """

    squared: Mapping[str, SquaredProblem]
    make_pass: Callable[[FitPass], Sums] | None = None


@dataclass(frozen=True)
class PassProcedure(LandmarkProcedure):
    """What decides about models of other losses; their fits pass over the rows.

    Attributes
    ----------
    loss : Loss
    """

    loss: Any = None

    def problem(self, train: Members, fold: int = -1) -> Any:
        """Return the problem; ``make_pass`` is among the members of a fold."""
        return PassProblem(super().problem(train, fold), train.get("make_pass"))

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
        is_number = isinstance(self.loss, EpsilonInsensitive)
        k, n_passes, first = len(order), 0, self.start(problem).reshape(-1, self.loss.n_scores)
        # The loss grows with the unit of the target, the squared weights with its square.
        unit = float(np.sqrt(problem.target_variance)) or 1.0 if is_number else 1.0
        penalty = np.zeros((k + len(first), k + len(first)))
        penalty[:k, :k] = problem.added(self.ridge(problem) / unit)[np.ix_(order, order)]
        bound = self.options.bound
        radius = None if bound is None else bound / np.sqrt(k)
        domain = Domain(k, radius, self.loss.least())

        def model(at: np.ndarray) -> Linear:
            weights, extra = at[:k], at[k:].ravel()
            offset = self.loss.offset(extra) - problem.mean[order] @ weights
            return Linear(order, weights, offset, extra)

        def mean_of(loss: Loss, at: np.ndarray, wanted: str = "model") -> Quadratic:
            nonlocal n_passes
            n_passes += 1
            sums, weighed = make_pass(loss, model(at), wanted), penalty @ at
            return Quadratic(
                sums["loss"] / sums["weight"] + np.sum(weighed * at, axis=0) / 2,
                sums["gradient"] / sums["weight"] + weighed,
                sums["hessian"] / sums["weight"] + penalty,
            )

        at = np.vstack((np.zeros((k, self.loss.n_scores)), first))
        if start is not None:
            at[: len(start.model.weights)] = start.model.weights
            at[k:] = start.model.extra.reshape(first.shape)
        widths: Sequence[float] = _WIDTHS if start is None else _WIDTHS[1:]
        if isinstance(self.loss, Margin) and self.loss.logistic:
            widths = _WIDTHS[-1:]  # without a corner
        steepest = mean_of(self.loss, at, "majorant").hessian[0] - penalty
        # Regular also without a ridge, and where landmarks are the same.
        steepest.flat[:: len(at) + 1] += 1e-10 * np.trace(steepest) / len(at)
        for width in widths:
            loss = replace(self.loss, width=width * self.loss.width)
            tolerance = unit * (TOLERANCE if width == _WIDTHS[-1] else _ROUGH)
            majorant = steepest / width + penalty
            found = minimise(partial(mean_of, loss), at, majorant, domain, tol=tolerance)
            at = found.parameters
        return Fitted(model(at), found, tolerance, n_passes)

    def shards(self, problem: Any, rule: NamedRule) -> tuple[()]:
        """Return none: gradients over rows tell which landmark is next."""
        return ()

    def search(self, problem: Any, rule: NamedRule, **where: Any) -> Any:
        """Fit models on more and more landmarks, each beginning where the one before it ended."""
        if rule.name == DENSE:
            rule, keep = self.rules[0], self.keep
            own = problem.squared[rule.name]
            sizes = [k for k in ladder(own.n_landmarks) if 10 * k >= keep]
            return self.dense()._search(problem, rule, own, sizes)
        own = problem.squared[rule.name]
        if rule.name == COLUMNS:
            given = {"task": "regression", "ridge": own.ridge, "bound": None}
            loss = replace(self.loss, has_intercept=True)
            plain = replace(self, options=self.options.model_copy(update=given), loss=loss)
            return plain._search(problem, rule, own, [0, own.n_landmarks])
        if self.options.takes_steps:
            return self._steps(own, rule.name, _maker(problem, rule.name))
        keep = min(self.keep, own.n_landmarks)
        sizes = [k for k in ladder(keep) if 10 * k >= keep]
        return self._search(problem, rule, own, sizes)

    def _steps(self, problem: SquaredProblem, label: str, make_pass: MakePass) -> LandmarkPath:
        """Take the steps of Algorithm 2, a pass for each; with an intercept all is centred."""
        ridge, bound, extra = self.ridge(problem), self.options.bound, self.start(problem)
        assert bound is not None
        unit = float(np.sqrt(problem.target_variance))
        penalty, spread = problem.added(ridge / unit), np.diagonal(problem.covariance)[:-1]

        def model(order: Any, weights: np.ndarray) -> Linear:
            own = np.array(order, dtype=np.intp)
            offset = self.loss.offset(extra) - problem.mean[own] @ weights
            return Linear(own, weights[:, np.newaxis], offset, extra)

        def slope(order: Any, weights: np.ndarray) -> np.ndarray:
            sums = make_pass(self.loss, model(order, weights), "landmark")
            found: np.ndarray = sums["gradient"][:, 0] / sums["weight"]
            return found + penalty[:, order] @ weights

        smoothness = float((self.loss.steepest * spread + np.diagonal(penalty)).max())
        most = min(self.keep, problem.n_landmarks)
        found = stepwise(slope, most, bound, smoothness, self.options.tolerance * unit)
        order, kept = found["order"], found["weights"]
        models = [
            model(order[:k], kept[k - 1, :k] if k else np.zeros(0)) for k in ladder(len(order))
        ]
        progress = {name: found[name].item() for name in ("n_steps", "gap")}
        return LandmarkPath(label, order, ridge, models=tuple(models), progress=progress)

    def _search(
        self, problem: Any, rule: NamedRule, own: SquaredProblem, sizes: Sequence[int]
    ) -> LandmarkPath:
        keep = sizes[-1]
        order, fits, make_pass = np.arange(keep), dict[int, Fitted](), _maker(problem, rule.name)
        last = None
        sparse = self.options.task == "sparse"
        for k in range(1, keep + 1) if sparse else sizes:
            if sparse:
                order[k - 1 :] = self._next(make_pass, own, order[: k - 1], last)
            last = self.fitted(make_pass, own, order[:k], last)
            if k in sizes:
                fits[k] = last
        return _path(rule.name, order, list(fits.values()), self.ridge(own))

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
        if self.options.selection == "gain":
            spread = np.sqrt(np.diagonal(problem.covariance)[:-1])
            slope = np.divide(slope, spread, out=np.zeros_like(slope), where=spread > 0)
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
