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

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.passes import Sums
from distfms.methods.sequence.greedy import BY_STATISTICS, best_set, overspent_notes, sequence
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import (
    Ladder,
    LinearModels,
    RefittedPath,
    Scaling,
    SequenceProblem,
)
from distfms.solve.cholesky import ForwardState, Pivot, Shard
from distfms.solve.forward import Trail
from distfms.solve.lbfgs import minimise, side_by_side
from distfms.solve.losses import FAMILIES, Family

TOLERANCE = 1e-7
"""Norm of the gradient, in units of the response's deviation, at which a fit has converged."""

#: Tolerance of the model of all columns at which the Hessian is taken that guides all fits, and the
#: share of the null model's in it, which keeps it regular where classes are told apart; and the
#: share of a column that keeps those regular that hardly differ.
_ROUGH, _NULL_SHARE, _REGULAR = 1e-2, 0.05, 1e-10
#: Columns up to which there is such a Hessian: those of all shards are added up at once.
MOST_BENT = 600
#: Models that are fitted together: they are multiplied by the rows in one product.
SIDE_BY_SIDE = 64
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
        left_out = np.array([[model.left_out] for model in models])
        bends = np.zeros((n_values, n_values)) if models[0].bends else None
        # Other chunks would mean other bits, so they depend on what is asked alone.
        size = max(256, _CHUNK_VALUES // max(own.shape[0], 4 * own.shape[1]))
        buffer = None if isinstance(needed, slice) else np.empty((len(needed), size))
        for start in range(0, len(rows.weight), size):
            part = slice(start, start + size)
            values = rows.values[:, part]
            if buffer is not None:
                values = np.stack([values[c] for c in needed], out=buffer[:, : values.shape[1]])
            y = self.kind.responses(rows.response[..., part], self.n_outputs)[:, np.newaxis]
            weight = rows.weight[part] * (rows.fold[part] != left_out)
            residual = own.T @ values + weights[-1][:, np.newaxis]
            eta = residual.reshape(n_models, n_outputs, -1).swapaxes(0, 1)
            loss += np.einsum("mn,mn->m", weight, self.kind.loss(eta, y))
            total += weight.sum(axis=1)
            mean = self.kind.mean(eta)
            np.subtract(mean, y, out=eta)
            eta *= weight
            if bends is not None:
                root = np.sqrt(weight[0] * self.kind.variance(mean[:, 0]).sum(axis=0))
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
    `gradient_norm` in units of the tolerance. `n_passes` were made for it and what was found
    together with it.
    """

    weights: np.ndarray
    loss: np.ndarray
    status: np.ndarray
    gradient_norm: np.ndarray
    n_passes: int

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
) -> Fitting[GlmFits]:
    """Put the groups of a problem in order for anytime prediction, asking for passes.

    The `view` is of the rows that the problem sums up. The model is fitted at the prefixes of the
    ladder and at the last: here, or by `fitted` where a guide says where to begin. Where the
    gradient decides what comes next, it is between two of them that of the quadratic model of the
    loss at the last fit, whose Hessian is the Gram matrix times the variance of the response; ties
    go to the lowest index, and a group whose gradient is below the tolerance costs no pass. With a
    `budget` the groups are the best set for it by score tests at the null model, and one model is
    fitted. For other options see `greedy.sequence`.
    """
    fits = GlmFits(problem, view, tol)
    yield from fits.begin()
    if budget is not None:
        fits.trail, ladder = best_set(fits.squared_loss(), budget, max_groups), Ladder(())
    elif criterion in BY_STATISTICS:
        how: Any = {"cost_aware": cost_aware, "doubling": doubling, "max_groups": max_groups}
        fits.trail = sequence(fits.squared_loss(), criterion, seed=seed, gains=gains, **how)
    else:
        fits.trail, n_groups = Trail(problem.costs, cost_aware, doubling), len(problem.groups)
        n_wanted = n_groups if max_groups is None else min(max_groups, n_groups)
        yield from _by_gradients(fits, ladder, fits.trail, criterion, n_wanted)
        return fits
    found = fits.trail
    fits.wanted = [(n, found.support[: found.ranks[n - 1]]) for n in ladder.of_path(found.spent)]
    while fits.wanted and view.guide is None:
        fits.kept.append((yield from fits.fit(*fits.wanted.pop(0))))
        fits.known = None
    return fits


def fitted(
    searches: Iterable[Fitting[GlmFits]], sums: Callable[[list[GlmModel]], Iterable[Sums]]
) -> list[GlmFits]:
    """Return what searches find, with the models that they leave: the largest of all first.

    So models that are fitted together have many columns in common, and the last ones are small.
    """
    found = side_by_side(searches, sums, SIDE_BY_SIDE)
    left = [(fits, n_groups, support) for fits in found for n_groups, support in fits.wanted]
    left.sort(key=lambda fit: -len(fit[2]))
    models = side_by_side((fits.fit(n, support) for fits, n, support in left), sums, SIDE_BY_SIDE)
    for (fits, *_), model in zip(left, models, strict=True):
        fits.kept.append(model)
    return found


def guide_of(problem: SequenceProblem, view: View) -> Fitting[GlmDesign]:
    """Return the design with a guide, H and c.

    About where all columns are fitted the mean loss is ½wᵀHw − cᵀw. Near H (d + 1, d + 1) are the
    Hessians of most prefixes, also without a fold, so that fits begin where it says, at any
    number of columns: they need not wait for one another.
    """
    fits = GlmFits(problem, view, _ROUGH)
    yield from fits.begin()
    whole = yield from fits.fit(0, np.arange(len(problem.gram)))
    found = yield replace(view.model(whole.weights, None), bends=True)
    hessian = found["hessian"] / found["weight"]
    slope = view.sums(found)["gradient"] / found["weight"]
    guide = hessian, hessian @ whole.weights - slope
    return replace(view.design, guide=guide)


def _by_gradients(
    fits: GlmFits, ladder: Ladder, trail: Trail, criterion: str, n_wanted: int
) -> Fitting[None]:
    """Choose groups, and fit the models that decide about the next ones."""
    problem = fits.problem
    pivots = list[Pivot]()
    ridge = problem.ridge / fits.curvature
    assert fits.known is not None
    gradient = fits.known[1][:-1]
    shard = Shard.whole(problem.gram, gradient, problem.groups.columns, ridge)
    state = ForwardState(shard, criterion)

    def values() -> np.ndarray:
        norms = state.gradient_norms()
        return np.where(norms > fits.threshold, 2.0 * state.values(), 0.0)

    def fit() -> Fitting[None]:
        support = np.concatenate([p.columns for p in pivots]).astype(np.intp)
        fits.kept.append((yield from fits.fit(len(pivots), support)))

    def fits_before(cost: float) -> Fitting[bool]:
        """Fit the present prefix, if it is one of the ladder and the next group costs so much."""
        n_taken, spent = len(pivots), sum(trail.cost)
        is_fitted = n_taken == fits.kept[-1].n_groups
        is_due = not is_fitted and ladder.ends_at(n_taken, n_wanted, spent, cost)
        if is_due:
            yield from fit()
            fits.known = yield from fits.asked(fits.kept[-1].weights, None)
            state.turn_to(fits.known[1][:-1])
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
        pivots.append(pivot.without_gram())
        trail.take(group)
    yield from fit()


class _Fit(NamedTuple):
    """A model, the number of its groups, and how its fit ended."""

    n_groups: int
    weights: np.ndarray
    loss: float
    status: str = "converged"
    gradient_norm: float = 0.0


@dataclass(eq=False)
class GlmFits:
    """A search of which some models may be left to be fitted.

    `wanted` are the numbers of their groups, and their columns.
    """

    problem: SequenceProblem
    view: View
    tol: float
    kept: list[_Fit] = field(default_factory=list)
    #: Mean loss at the last model, and its whole gradient without the ridge, where they are known.
    known: tuple[float, np.ndarray] | None = None
    trail: SequencePath | Trail = field(init=False)
    wanted: list[tuple[int, np.ndarray]] = field(default_factory=list)

    def begin(self) -> Fitting[None]:
        """Find the null model: one pass for the mean response, one at the model."""
        family = self.view.design.kind
        weights = np.zeros((len(self.problem.gram) + 1, self.view.design.n_outputs))
        _, slope = yield from self.asked(weights, None)
        # Rounding leaves less than 0 of a class that no row has.
        mean = np.maximum(family.mean(weights[-1:].T)[:, 0] - slope[-1], 0.0)
        weights[-1] = family.link(mean)
        self.known = yield from self.asked(weights, None)
        self.kept.append(_Fit(0, weights, self.known[0]))
        variance = family.variance(mean)
        #: Norm of the gradient at which a fit has converged.
        self.threshold = self.tol * float(max(np.sqrt(variance.sum()), 1e-8))
        self.curvature = float(max(variance.mean(), 1e-8))

    def squared_loss(self) -> SequenceProblem:
        """Return the problem of squared loss with the gains of score tests at the null model."""
        family = self.view.design.kind
        mean = family.mean(self.kept[0].weights[-1:].T)[:, 0]
        # diag(1/π) is an inverse of the Hessian of softmax on vectors that add up to 0.
        variance = mean if family.name == "softmax" else family.variance(mean)
        assert self.known is not None
        target = -self.known[1][:-1] / np.sqrt(np.maximum(variance, 1e-12))
        return replace(self.problem, target=target, ridge=self.problem.ridge / self.curvature)

    def fit(self, n_groups: int, support: np.ndarray) -> Fitting[_Fit]:
        """Fit the columns of some groups, which are independent.

        The first fit to all rows begins where the guide says, if there is one, others at the last
        model.
        """
        from scipy.linalg import cho_solve

        last, ridge, guide = self.kept[-1], self.problem.ridge, self.view.guide
        active = np.append(support, len(last.weights) - 1)

        def whole(own: np.ndarray) -> np.ndarray:
            weights = np.zeros_like(last.weights)
            weights[active] = own
            return weights

        def penalised(own: np.ndarray, loss: float, slope: np.ndarray) -> tuple[float, np.ndarray]:
            gradient = slope[active]
            gradient[:-1] += ridge * own[:-1]
            return loss + 0.5 * ridge * float(np.square(own[:-1]).sum()), gradient

        def objective(own: np.ndarray) -> Fitting[tuple[float, np.ndarray]]:
            return penalised(own, *(yield from self.asked(whole(own), support)))

        null = self.curvature * (1.0 if guide is None else _NULL_SHARE)
        bent = np.diag(np.append(np.full(len(support), ridge + _REGULAR * null), null))
        bent[:-1, :-1] += null * self.problem.gram[np.ix_(support, support)]
        if guide is not None:
            bent += (1.0 - _NULL_SHARE) * guide[0][np.ix_(active, active)]
        factor, start = np.linalg.cholesky(bent).T, last.weights[active]
        known = penalised(start, *self.known) if self.known else None
        # Models without a fold must not begin at what its rows say: ends are loose.
        if guide is not None and len(self.kept) == 1 and self.view.left_out < 0:
            guided = cho_solve((factor, False), guide[1][active])
            there = yield from objective(guided)
            # Where the loss is far from quadratic a guide leads astray.
            if known is None or there[0] < known[0]:
                start, known = guided, there
        found = yield from minimise(
            objective, start, at_start=known, factor=factor, tol=self.threshold
        )
        loss = found.value - 0.5 * ridge * float(np.square(found.weights[:-1]).sum())
        return _Fit(n_groups, whole(found.weights), loss, found.status, found.gradient_norm)

    def path(self, n_passes: int) -> GlmPath:
        """Return the path of groups that were found, with the models that were fitted."""
        found = sorted(self.kept, key=lambda fit: fit.n_groups)
        if isinstance(self.trail, Trail):
            notes = overspent_notes(self.problem, self.trail.overspent)
        else:
            notes = tuple(self.trail.notes)
        fitted, weights, loss, status, norms = zip(*found, strict=True)
        return GlmPath(
            outline=self.problem.outline,
            order=np.array(self.trail.order, dtype=np.intp),
            cost=np.array(self.trail.cost),
            notes=notes,
            n_candidates=self.trail.n_candidates,
            refit_at=np.array(fitted[1:], dtype=np.intp),
            weights=np.stack(weights),
            loss=np.array(loss),
            status=np.array(status),
            gradient_norm=np.array(norms) / self.threshold,
            n_passes=n_passes,
        )

    def asked(
        self, weights: np.ndarray, support: np.ndarray | None
    ) -> Fitting[tuple[float, np.ndarray]]:
        """Ask for the mean loss, and its gradient by some columns or all."""
        found = self.view.sums((yield self.view.model(weights, support)))
        total = float(found["weight"])
        if not total > 0:
            raise DataError("There is no row with a positive weight to fit a model on.")
        return float(found["loss"]) / total, found["gradient"] / total
