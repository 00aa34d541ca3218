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
from typing import NamedTuple, TypeVar

import numpy as np

from distfms.errors import DataError
from distfms.methods.sequence.glm_rows import GlmDesign, GlmModel, View
from distfms.methods.sequence.greedy import BY_STATISTICS, best_set, overspent_notes, sequence
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import Ladder, LinearModels, Path, SequenceProblem
from distfms.solve.cholesky import ForwardState, Pivot, Shard
from distfms.solve.forward import Trail
from distfms.solve.lbfgs import minimise, side_by_side
from distfms.stats.sums import Sums

TOLERANCE = 1e-7
"""Norm of the gradient, in units of the response's deviation, at which a fit has converged."""

#: Tolerance of the model of all columns at which the Hessian is taken that guides all fits, and the
#: share of the null model's in it, which keeps it regular where classes are told apart; and the
#: share of a column that keeps those regular that hardly differ.
_ROUGH, _NULL_SHARE, _REGULAR = 1e-2, 0.05, 1e-10
#: Columns up to which there is such a Hessian: those of all shards are added up at once.
MOST_GUIDED = 600
#: Models that are fitted together: they are multiplied by the rows in one product.
SIDE_BY_SIDE = 64


T = TypeVar("T")
#: A search that yields models, and is sent the sums of a pass over the rows at each.
Fitting = Generator[GlmModel, Sums, T]


@dataclass(frozen=True, eq=False, kw_only=True)
class GlmPath(Path):
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
        scaling = self.scaling
        kept = scaling.kept
        n_models, _, n_outputs = self.weights.shape
        coefficients = np.zeros((n_models, len(scaling.feature_names), n_outputs))
        in_units = self.weights[:, :-1] / scaling.scale[kept][:, np.newaxis]
        coefficients[:, kept] = in_units
        at_mean = np.einsum("kdp,d->kp", in_units, scaling.mean[kept])
        return LinearModels(coefficients, self.weights[:, -1] - at_mean, scaling.mean)

    def step_details(self) -> dict[str, np.ndarray]:
        """Return how each step was chosen, and how its fit ended."""
        models = self.model_of_prefix
        return {
            "explained_deviance": self.curve_value[1:],
            "gain": -np.diff(self.loss[models]),
            "status": self.status[models[1:]],
            "gradient_norm": self.gradient_norm[models[1:]],
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
    fits = GlmFits(problem, view)
    yield from fits.begin()
    if budget is not None:
        path = best_set(fits.squared_loss(), budget, max_groups)
        ladder = Ladder(())
    elif criterion in BY_STATISTICS:
        path = sequence(
            fits.squared_loss(),
            criterion,
            seed=seed,
            gains=gains,
            cost_aware=cost_aware,
            doubling=doubling,
            max_groups=max_groups,
        )
    else:
        trail = Trail(problem.costs, cost_aware, doubling)
        fits.trail = trail
        n_groups = min(max_groups or len(problem.groups), len(problem.groups))
        yield from _by_gradients(fits, ladder, trail, criterion, n_groups)
        return fits
    fits.trail = path
    for n_groups in ladder.of_path(path.spent):
        rank = path.ranks[n_groups - 1]
        fits.to_fit.append((n_groups, path.support[:rank]))
    while fits.to_fit and view.guide is None:
        fits.kept.append((yield from fits.fit(*fits.to_fit.pop(0))))
        fits.at_last = None
    return fits


def fitted(
    searches: Iterable[Fitting[GlmFits]], sums: Callable[[list[GlmModel]], Iterable[Sums]]
) -> list[GlmFits]:
    """Return what searches find, with the models that they leave: the largest of all first.

    So models that are fitted together have many columns in common, and the last ones are small.
    """
    fits_of_all = side_by_side(searches, sums, SIDE_BY_SIDE)
    to_fit = [(fits, *models) for fits in fits_of_all for models in fits.to_fit]
    to_fit.sort(key=lambda model: -len(model[2]))
    fittings = (fits.fit(n_groups, support) for fits, n_groups, support in to_fit)
    models = side_by_side(fittings, sums, SIDE_BY_SIDE)
    for (fits, *_), model in zip(to_fit, models, strict=True):
        fits.kept.append(model)
    return fits_of_all


def guide_of(problem: SequenceProblem, view: View) -> Fitting[GlmDesign]:
    """Return the design with a guide, H and c.

    About where all columns are fitted the mean loss is ½wᵀHw − cᵀw. Near H (d + 1, d + 1) are the
    Hessians of most prefixes, also without a fold, so that fits begin where it says, at any
    number of columns: they need not wait for one another.
    """
    fits = GlmFits(problem, view, _ROUGH)
    yield from fits.begin()
    whole = yield from fits.fit(0, np.arange(len(problem.gram)))
    model = view.model(whole.weights)
    sums = yield replace(model, with_hessian=True)
    hessian = sums["hessian"] / sums["weight"]
    slope = sums["gradient"] / sums["weight"]
    return replace(view.design, guide=(hessian, hessian @ model.weights - slope))


def _by_gradients(
    fits: GlmFits, ladder: Ladder, trail: Trail, criterion: str, n_groups: int
) -> Fitting[None]:
    """Choose groups, and fit the models that decide about the next ones."""
    problem = fits.problem
    pivots = list[Pivot]()
    ridge = problem.ridge / fits.curvature
    assert fits.at_last is not None
    gradient = fits.at_last[1][:-1]
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
        is_due = not is_fitted and ladder.ends_at(n_taken, n_groups, spent, cost)
        if is_due:
            yield from fit()
            fits.at_last = yield from fits.loss_at(fits.kept[-1].weights)
            state.turn_to(fits.at_last[1][:-1])
        return is_due

    while len(pivots) < n_groups:
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

    `to_fit` are the numbers of their groups, and their columns.
    """

    problem: SequenceProblem
    view: View
    tol: float = TOLERANCE
    kept: list[_Fit] = field(default_factory=list)
    #: Mean loss at the last model, and its whole gradient without the ridge, where these are known.
    at_last: tuple[float, np.ndarray] | None = None
    trail: SequencePath | Trail = field(init=False)
    to_fit: list[tuple[int, np.ndarray]] = field(default_factory=list)

    def begin(self) -> Fitting[None]:
        """Find the null model: one pass for the mean response, one at the model."""
        family = self.view.design.kind
        weights = np.zeros((len(self.problem.gram) + 1, self.view.design.n_outputs))
        _, slope = yield from self.loss_at(weights)
        # Rounding leaves less than 0 of a class that no row has.
        mean = np.maximum(family.mean(weights[-1:].T)[:, 0] - slope[-1], 0.0)
        weights[-1] = family.link(mean)
        self.at_last = yield from self.loss_at(weights)
        self.kept.append(_Fit(0, weights, self.at_last[0]))
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
        assert self.at_last is not None
        target = -self.at_last[1][:-1] / np.sqrt(np.maximum(variance, 1e-12))
        return replace(self.problem, target=target, ridge=self.problem.ridge / self.curvature)

    def fit(self, n_groups: int, support: np.ndarray) -> Fitting[_Fit]:
        """Fit the columns of some groups, which are independent.

        The first begins where the guide says, if there is one, others at the last model. The rows
        of a fold have a part in the guide: fits without it end so near the minimum that this does
        not show.
        """
        from scipy.linalg import cho_solve

        last = self.kept[-1].weights
        ridge = self.problem.ridge
        guide = self.view.guide
        active = np.append(support, len(last) - 1)

        def whole(of_active: np.ndarray) -> np.ndarray:
            weights = np.zeros_like(last)
            weights[active] = of_active
            return weights

        def penalty(weights: np.ndarray) -> float:
            return 0.5 * ridge * float(np.square(weights[:-1]).sum())

        def penalised(
            weights: np.ndarray, loss: float, whole_gradient: np.ndarray
        ) -> tuple[float, np.ndarray]:
            gradient = whole_gradient[active]
            gradient[:-1] += ridge * weights[:-1]
            return loss + penalty(weights), gradient

        def objective(weights: np.ndarray) -> Fitting[tuple[float, np.ndarray]]:
            loss, gradient = yield from self.loss_at(whole(weights))
            return penalised(weights, loss, gradient)

        factor = self._factor(active)
        start = last[active]
        at_start = penalised(start, *self.at_last) if self.at_last else None
        if guide is not None and len(self.kept) == 1:
            guided = cho_solve((factor, False), guide[1][active])
            at_guided = yield from objective(guided)
            # Where the loss is far from quadratic a guide leads astray.
            if at_start is None or at_guided[0] < at_start[0]:
                start = guided
                at_start = at_guided
        end = yield from minimise(
            objective, start, at_start=at_start, factor=factor, tol=self.threshold
        )
        loss = end.value - penalty(end.weights)
        return _Fit(n_groups, whole(end.weights), loss, end.status, end.gradient_norm)

    def _factor(self, active: np.ndarray) -> np.ndarray:
        """Return U with UᵀU about the Hessian at some columns and the intercept."""
        guide = self.view.guide
        support = active[:-1]
        null = self.curvature
        if guide is not None:
            null *= _NULL_SHARE
        diagonal = np.full(len(active), self.problem.ridge + _REGULAR * null)
        diagonal[-1] = null
        hessian = np.diag(diagonal)
        gram = self.problem.gram[np.ix_(support, support)]
        hessian[:-1, :-1] += null * gram
        if guide is not None:
            at_guide = guide[0][np.ix_(active, active)]
            hessian += (1.0 - _NULL_SHARE) * at_guide
        return np.linalg.cholesky(hessian).T

    def path(self, n_passes: int) -> GlmPath:
        """Return the path of groups that were found, with the models that were fitted."""
        if isinstance(self.trail, Trail):
            notes = overspent_notes(self.problem, self.trail.overspent)
        else:
            notes = tuple(self.trail.notes)
        fits = sorted(self.kept, key=lambda fit: fit.n_groups)
        fitted, weights, loss, status, norms = zip(*fits, strict=True)
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

    def loss_at(self, weights: np.ndarray) -> Fitting[tuple[float, np.ndarray]]:
        """Ask for the mean loss and its gradient."""
        sums = self.view.sums((yield self.view.model(weights)))
        total = float(sums["weight"])
        if not total > 0:
            raise DataError("There is no row with a positive weight to fit a model on.")
        return float(sums["loss"]) / total, sums["gradient"] / total
