"""Feature-group sequencing for generalised linear models.

By ``fr`` groups are put in order on the squared loss that is the model's own about the null model,
and models are fitted to the prefixes. By ``omp`` (Algorithm 3 of the paper) the group that comes
next is the one with the largest ‖∇r(W)_g‖² / c(g), with the gradient whitened by the Gram matrix of
the group; then the model is fitted again on the groups so far. On other rows ``fr`` explains more.

References
----------
Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear Prediction",
Appendix B.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.passes import Sums, minimise
from distfms.methods.sequence.families import FAMILIES, Family
from distfms.methods.sequence.greedy import BY_STATISTICS, Trail, best_set, sequence
from distfms.methods.sequence.problem import (
    Ladder,
    LinearModels,
    RefittedPath,
    Scaling,
    SequenceProblem,
)
from distfms.methods.sequence.residual import Pivot, ResidualGram, SequencePath, group_norms

TOLERANCE = 1e-7
"""Norm of the gradient, in units of the response's deviation, at which a fit has converged."""

#: Tolerance of the model of all columns at which the Hessian is taken that guides all fits, and the
#: share of the null model's in it, which keeps it regular where classes are told apart; and the
#: share of a column that keeps those regular that hardly differ.
_ROUGH, _NULL_SHARE, _REGULAR = 1e-2, 0.05, 1e-10
#: Columns up to which there is such a Hessian: those of all shards are added up at once.
MOST_BENT = 600
#: Four mebibytes of float64, so that what is done once a chunk costs little beside its products.
_CHUNK_VALUES = 1 << 19


@dataclass(frozen=True, eq=False)
class GlmRows:
    """Rows as generalised linear models see them.

    `values` (d, n) are standardised columns, without the constant ones, 0 where a value is missing;
    `response` is (P, n), or (n,) for class numbers; `weight` (n,); `fold` (n,).
    """

    values: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fold: np.ndarray


@dataclass(frozen=True, eq=False)
class GlmModel:
    """What a pass is to evaluate: weights (d + 1, P), intercept last, on all rows but a fold's.

    Of `columns`, where they are given, alone is the gradient wanted; other weights are 0. The
    Hessian is wanted of a model that `bends`, which is asked about alone.
    """

    weights: np.ndarray
    left_out: int = -1
    columns: np.ndarray | None = None
    bends: bool = False


@dataclass(frozen=True, eq=False)
class GlmDesign:
    """What stays the same over all passes: family, number of outputs P, scaling of the columns.

    The `guide` of fits, where there is one, is what `guide_of` returns.
    """

    family: str
    n_outputs: int
    scaling: Scaling
    guide: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def kind(self) -> Family:
        """What the family is."""
        return FAMILIES[self.family]

    def rows(
        self,
        features: np.ndarray,
        response: np.ndarray,
        weight: np.ndarray | None,
        fold: np.ndarray | None = None,
    ) -> GlmRows:
        """Standardise features (D, n) into memory of their own, and check the response."""
        kept, n = self.scaling.kept, features.shape[1]
        values = features[kept]
        values -= self.scaling.mean[kept][:, np.newaxis]
        values /= self.scaling.scale[kept][:, np.newaxis]
        np.copyto(values, 0.0, where=np.isnan(values))
        self.kind.require(response)
        weight = np.ones(n) if weight is None else np.array(weight)
        fold = np.zeros(n, dtype=np.intp) if fold is None else fold
        return GlmRows(values, np.array(response, dtype=np.float64), weight, fold)

    def sums(self, rows: GlmRows, models: Sequence[GlmModel]) -> Sums:
        """Add up ``weight`` (M,), ``loss`` (M,) and ``gradient`` (M, d + 1, P) of M models.

        Also the ``hessian`` (1, d + 1, d + 1) of one that bends.
        """
        n_models, (n_values, n_outputs) = len(models), models[0].weights.shape
        weights = np.concatenate([model.weights for model in models], axis=1)
        needed: Any = slice(None)
        wanted = [model.columns for model in models if model.columns is not None]
        if len(wanted) == n_models:
            few = np.unique(np.concatenate(wanted))
            # To copy a column takes about as long as to multiply it by the weights of two outputs.
            needed = few if len(few) < n_values / (1 + 2 / weights.shape[1]) else needed
        gradient, loss, total = np.zeros_like(weights), np.zeros(n_models), np.zeros(n_models)
        own, slope = weights[:-1][needed], np.zeros_like(weights[:-1][needed])
        bends = np.zeros((n_values, n_values)) if models[0].bends else None
        # Other chunks would mean other bits, so they depend on what is asked alone.
        size = max(256, _CHUNK_VALUES // max(own.shape[0], own.shape[1], 1))
        buffer = None if isinstance(needed, slice) else np.empty((len(needed), size))
        for start in range(0, len(rows.weight), size):
            part = slice(start, start + size)
            values = rows.values[:, part]
            if buffer is not None:
                values = np.stack([values[c] for c in needed], out=buffer[:, : values.shape[1]])
            y = self.kind.responses(rows.response[..., part], self.n_outputs)
            residual = own.T @ values + weights[-1][:, np.newaxis]
            for number, model in enumerate(models):
                weight = rows.weight[part] * (rows.fold[part] != model.left_out)
                eta = residual[number * n_outputs : (number + 1) * n_outputs]
                loss[number] += weight @ self.kind.loss(eta, y)
                total[number] += weight.sum()
                mean = self.kind.mean(eta)
                eta[:] = weight * (mean - y)
            if bends is not None:
                root = np.sqrt(weight * self.kind.variance(mean).sum(axis=0))
                bent = np.concatenate((values, np.ones((1, values.shape[1])))) * root
                bends += bent @ bent.T
            slope += values @ residual.T
            gradient[-1] += residual.sum(axis=1)
        gradient[:-1][needed] = slope
        by_model = np.moveaxis(gradient.reshape(n_values, n_models, n_outputs), 1, 0).copy()
        more = {} if bends is None else {"hessian": bends[np.newaxis]}
        return Sums({"weight": total, "loss": loss, "gradient": by_model, **more})


class View:
    """The rows in memory, without those of a fold (−1: all), as columns of another scaling.

    That of the rows without a fold differs from that of all rows.
    """

    def __init__(self, design: GlmDesign, scaling: Scaling, left_out: int = -1) -> None:
        self.design, self.left_out = design, left_out
        own, columns = design.scaling, scaling.kept
        self._at = np.append(np.searchsorted(own.kept, columns), len(own.kept))
        scale = scaling.scale[columns, np.newaxis]
        self._ratio = own.scale[columns, np.newaxis] / scale
        self._shift = (own.mean - scaling.mean)[columns, np.newaxis] / scale
        self.guide = None
        if design.guide is not None:
            half, slope = (self._turned(part[self._at]) for part in design.guide)
            self.guide = self._turned(half.T[self._at]), slope

    def model(self, weights: np.ndarray, support: np.ndarray | None) -> GlmModel:
        """Return what a pass evaluates for weights on these columns, 0 beyond the support."""
        whole = np.zeros((len(self.design.scaling.kept) + 1, weights.shape[1]))
        whole[self._at[:-1]] = weights[:-1] * self._ratio
        whole[-1] = weights[-1] + (self._shift * weights[:-1]).sum(axis=0)
        return GlmModel(whole, self.left_out, None if support is None else self._at[support])

    def sums(self, found: Sums) -> Sums:
        """Return the sums of a pass with the gradient of these columns."""
        gradient = self._turned(found.arrays["gradient"][self._at])
        return Sums({**found.arrays, "gradient": gradient})

    def _turned(self, slopes: np.ndarray) -> np.ndarray:
        return np.vstack((self._ratio * slopes[:-1] + self._shift * slopes[-1], slopes[-1:]))


T = TypeVar("T")
#: A search that yields models, and is sent the sums of a pass over the rows at each.
Fitting = Generator[GlmModel, Sums, T]


@dataclass(frozen=True, eq=False, kw_only=True)
class GlmPath(RefittedPath):
    """A path of generalised linear models, R of whose prefixes were fitted.

    `refit_at` (R,) are the prefixes that were fitted; one in between has the model of the last
    before it. The others are of the null model and the refits, (R + 1,): `weights`
    (R + 1, d + 1, P) on standardised columns, intercept last; `loss`, half the mean deviance;
    `gradient_norm` in units of the tolerance; passes since the beginning.
    """

    weights: np.ndarray
    loss: np.ndarray
    status: np.ndarray
    gradient_norm: np.ndarray
    n_passes: np.ndarray

    @property
    def curve_value(self) -> np.ndarray:
        """Explained deviance of the prefixes 0..K on the training rows."""
        if not self.loss[0] > 0.0:
            return np.zeros(len(self) + 1)
        return 1.0 - self.loss[self.model_of_prefix] / self.loss[0]

    @property
    def model_of_prefix(self) -> np.ndarray:
        """Position of the model of each prefix 0..K: of the longest refitted one in it."""
        return self.of_prefixes(self.fitted, np.arange(len(self.fitted)))

    def prefix_models(self) -> LinearModels:
        """Return the models of the `fitted` prefixes."""
        scaling, weights = self.scaling, self.weights
        n, _, n_outputs = weights.shape
        coefficients = np.zeros((n, len(scaling.feature_names), n_outputs))
        scaled = weights[:, :-1] / scaling.scale[scaling.kept][:, np.newaxis]
        coefficients[:, scaling.kept] = scaled
        moved = np.einsum("kdp,d->kp", scaled, scaling.mean[scaling.kept])
        return LinearModels(coefficients, weights[:, -1] - moved, scaling.mean)

    def step_details(self) -> dict[str, np.ndarray]:
        """Return how each step was chosen, and how its fit ended."""
        at = self.model_of_prefix[1:]
        return {
            "explained_deviance": self.curve_value[1:],
            "gain": -np.diff(self.loss[self.model_of_prefix]),
            "status": self.status[at],
            "gradient_norm": self.gradient_norm[at],
        }


def sequence_glm(
    problem: SequenceProblem,
    view: View,
    ladder: Ladder,
    *,
    criterion: str = "fr",
    cost_aware: bool = True,
    doubling: bool = False,
    max_groups: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    gains: Sequence[float] | None = None,
    tol: float = TOLERANCE,
) -> Fitting[GlmPath]:
    """Put the groups of a problem in order for anytime prediction, asking for passes.

    The `view` is of the rows that the problem sums up. The model is fitted at the prefixes of the
    ladder and at the last. Where the gradient decides what comes next, it is between two of them
    that of the quadratic model of the loss at the last fit, whose Hessian is the Gram matrix times
    the variance of the response; ties go to the lowest index, and a group whose gradient is below
    the tolerance costs no pass. With a `budget` the groups are the best set for it by score tests
    at the null model, and one model is fitted. For other options see `greedy.sequence`.
    """
    fits = _Fits(problem, view, tol)
    yield from fits.begin()
    if budget is not None:
        found, ladder = best_set(fits.squared_loss(), budget, max_groups), Ladder(())
    elif criterion in BY_STATISTICS:
        how: Any = {"cost_aware": cost_aware, "doubling": doubling, "max_groups": max_groups}
        found = sequence(fits.squared_loss(), criterion, seed=seed, gains=gains, **how)
    else:
        trail, n_groups = Trail(problem, cost_aware, doubling), len(problem.groups)
        n_wanted = n_groups if max_groups is None else min(max_groups, n_groups)
        yield from _by_gradients(fits, ladder, trail, criterion, n_wanted)
        return fits.path(trail)
    for n in ladder.of_path(found.spent):
        rank = found.ranks[n - 1]
        yield from fits.fit(n, found.support[:rank])
    return fits.path(found)


def guide_of(problem: SequenceProblem, view: View) -> Fitting[tuple[GlmDesign, int]]:
    """Return the design with a guide, H and c, and the number of passes.

    About where all columns are fitted the mean loss is ½wᵀHw − cᵀw. Near H (d + 1, d + 1) are the
    Hessians of most prefixes, also without a fold: steps with it take half of the passes that they
    take with the Hessian of the null model.
    """
    fits = _Fits(problem, view, _ROUGH)
    yield from fits.begin()
    yield from fits.fit(0, np.arange(len(problem.gram)))
    found = yield replace(view.model(fits.weights, None), bends=True)
    hessian = found["hessian"] / found["weight"]
    guide = hessian, hessian @ fits.weights - fits.gradient
    return replace(view.design, guide=guide), fits.n_passes + 1


def _by_gradients(
    fits: _Fits, ladder: Ladder, trail: Trail, criterion: str, n_wanted: int
) -> Fitting[None]:
    """Choose groups, and fit the models that decide about the next ones."""
    problem = fits.problem
    pivots, columns = list[Pivot](), [list(g) for g in problem.groups.columns]
    ridge = problem.ridge / fits.curvature
    state = ResidualGram(problem.gram, fits.gradient[:-1], columns, criterion, ridge=ridge)

    def values() -> np.ndarray:
        norms = group_norms(state.residual, columns)
        return np.where(norms > fits.threshold, 2.0 * state.values(), 0.0)

    def fit() -> Fitting[None]:
        support = np.concatenate([p.columns for p in pivots]).astype(np.intp)
        yield from fits.fit(len(pivots), support)

    def fits_before(cost: float) -> Fitting[bool]:
        """Fit the present prefix, if it is one of the ladder and the next group costs so much."""
        n_taken, spent = len(pivots), sum(trail.cost)
        is_fitted = n_taken == fits.kept[-1][0]
        is_due = not is_fitted and ladder.ends_at(n_taken, n_wanted, spent, cost)
        if is_due:
            yield from fit()
            if not fits.is_whole:
                yield from fits.ask()
            state.residual = fits.gradient[:-1]
        return is_due

    while len(pivots) < n_wanted:
        yield from fits_before(0.0)
        group = trail.choose(values, 0.0)
        assert group is not None  # every group is affordable
        if (yield from fits_before(float(problem.costs.marginal(trail.order)[group]))):
            continue
        pivot = state.pivot(group)
        assert pivot is not None
        state.append(pivot)
        pivots.append(pivot)
        trail.take(group)
    yield from fit()


@dataclass(eq=False)
class _Fits:
    """The present model, and those that were kept."""

    problem: SequenceProblem
    view: View
    tol: float
    #: Groups, weights, loss, status, norm of the gradient, and passes since the beginning.
    kept: list[tuple[int, np.ndarray, float, str, float, int]] = field(default_factory=list)
    n_passes: int = 0

    def begin(self) -> Fitting[None]:
        """Find the null model: one pass for the mean response, one at the model."""
        family = self.view.design.kind
        self.weights = np.zeros((len(self.problem.gram) + 1, self.view.design.n_outputs))
        yield from self.ask()
        if not self._sums.arrays["weight"] > 0:
            raise DataError("There is no row with a positive weight to fit a model on.")
        # Rounding leaves less than 0 of a class that no row has.
        mean = np.maximum(family.mean(self.weights[-1:].T)[:, 0] - self.gradient[-1], 0.0)
        self.weights[-1] = family.link(mean)
        yield from self.ask()
        variance = family.variance(mean)
        #: Norm of the gradient at which a fit has converged.
        self.threshold = self.tol * float(max(np.sqrt(variance.sum()), 1e-8))
        self.curvature = float(max(variance.mean(), 1e-8))
        self._keep(0, "converged", 0.0)

    @property
    def gradient(self) -> np.ndarray:
        """Gradient of the mean loss at the present model, without the ridge."""
        return np.asarray(self._sums.arrays["gradient"] / self._sums.arrays["weight"])

    def squared_loss(self) -> SequenceProblem:
        """Return the problem of squared loss with the gains of score tests at the null model."""
        family = self.view.design.kind
        mean = family.mean(self.weights[-1:].T)[:, 0]
        # diag(1/π) is an inverse of the Hessian of softmax on vectors that add up to 0.
        variance = mean if family.name == "softmax" else family.variance(mean)
        target = -self.gradient[:-1] / np.sqrt(np.maximum(variance, 1e-12))
        return replace(self.problem, target=target, ridge=self.problem.ridge / self.curvature)

    def fit(self, n_groups: int, support: np.ndarray) -> Fitting[None]:
        """Fit the columns of some groups, which are independent, from the last model on."""
        from scipy.linalg import cho_solve

        active = np.append(support, len(self.weights) - 1)
        ridge, is_first = self.problem.ridge, len(self.kept) == 1
        if not self.is_whole:
            yield from self.ask(support)

        def objective(own: np.ndarray) -> Fitting[tuple[float, np.ndarray]]:
            weights = np.zeros_like(self.weights)
            weights[active] = own
            if not np.array_equal(weights, self.weights):
                self.weights = weights
                yield from self.ask(support)
            gradient = self.gradient[active]
            gradient[:-1] += ridge * own[:-1]
            loss = float(self._sums.arrays["loss"] / self._sums.arrays["weight"])
            return loss + 0.5 * ridge * float(np.square(own[:-1]).sum()), gradient

        # About the null model a guide would lead astray.
        guide = None if is_first and len(active) < len(self.weights) else self.view.guide
        null = self.curvature * (1.0 if guide is None else _NULL_SHARE)
        bent = np.diag(np.append(np.full(len(support), ridge + _REGULAR * null), null))
        bent[:-1, :-1] += null * self.problem.gram[np.ix_(support, support)]
        if guide is not None:
            bent += (1.0 - _NULL_SHARE) * guide[0][np.ix_(active, active)]
        factor, start = np.linalg.cholesky(bent).T, self.weights[active]
        if guide is not None and is_first:
            start = cho_solve((factor, False), guide[1][active])
        found = yield from minimise(objective, start, factor=factor, tol=self.threshold)
        yield from objective(found.weights)
        self._keep(n_groups, found.status, found.gradient_norm)

    def _keep(self, n_groups: int, status: str, norm: float) -> None:
        loss = float(self._sums.arrays["loss"] / self._sums.arrays["weight"])
        self.kept.append((n_groups, self.weights.copy(), loss, status, norm, self.n_passes))

    def path(self, found: SequencePath | Trail) -> GlmPath:
        """Return the path of groups that were found, with the models that were fitted."""
        fitted, weights, loss, status, norms, n_passes = zip(*self.kept, strict=True)
        return GlmPath(
            outline=self.problem.outline,
            order=np.array(found.order, dtype=np.intp),
            cost=np.array(found.cost),
            notes=tuple(found.notes),
            n_candidates=found.n_candidates,
            refit_at=np.array(fitted[1:], dtype=np.intp),
            weights=np.stack(weights),
            loss=np.array(loss),
            status=np.array(status),
            gradient_norm=np.array(norms) / self.threshold,
            n_passes=np.array(n_passes),
        )

    def ask(self, support: np.ndarray | None = None) -> Fitting[None]:
        """Ask for the sums at the present weights, with the gradient of some columns or of all."""
        self.n_passes += 1
        self.is_whole = support is None
        found = yield self.view.model(self.weights, support)
        self._sums = self.view.sums(found)
