"""Feature-group sequencing for generalised linear models (Algorithm 3 of the paper).

The groups are chosen by the whitened gradient per cost; after each choice the model is refitted by
damped Newton, started from the last one. Data are seen only through a callable that makes one pass
at given coefficients, see :mod:`distfms.methods.sequence.glm_fit`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from distfms.errors import NumericalError, SpecError
from distfms.methods.sequence.families import (
    FAMILIES,
    Array,
    Family,
    Gaussian,
    Logistic,
    Poisson,
    Softmax,
    get_family,
    predict_glm,
)
from distfms.methods.sequence.glm_fit import (
    GlmFit,
    GlmStatus,
    PassFunction,
    fit_glm,
    gradient_scale,
)
from distfms.methods.sequence.glm_statistics import GlmDesign, GlmLosses, GlmStatistics

__all__ = [
    "FAMILIES",
    "Family",
    "Gaussian",
    "GlmDesign",
    "GlmFit",
    "GlmLosses",
    "GlmRefit",
    "GlmSequence",
    "GlmStatistics",
    "GlmStatus",
    "Logistic",
    "PassFunction",
    "Poisson",
    "Softmax",
    "fit_glm",
    "get_family",
    "predict_glm",
    "sequence_glm",
]

_TIE_TOLERANCE = 1e-12  # relative; scores this close are equal
_RANK_TOLERANCE = 1e-10  # of the Gram of a group with unit diagonal

#: Marginal costs (J,) of all groups, given the groups bought so far in order.
CostFunction = Callable[[Sequence[int]], ArrayLike]


@dataclass(frozen=True, eq=False)
class GlmRefit:
    """A model on the first groups of a sequence.

    Attributes
    ----------
    n_groups : int
        How many groups of the sequence it uses; 0 for the null model.
    columns : (s,) int
        Their columns, in the order of the groups.
    weights : (s + 1, P)
        Coefficients of these standardised columns, intercept last.
    loss : float
        Mean training loss, half the deviance.
    status : str
        See :class:`GlmFit`; the null model of a response without variation counts as converged.
    rank_deficient : bool
        Some of the columns are redundant.
    n_passes : int
        Passes over the data until this model was there, from the first one on.
    """

    n_groups: int
    columns: NDArray[np.int64]
    weights: Array
    loss: float
    status: GlmStatus
    rank_deficient: bool
    n_passes: int


@dataclass(frozen=True, eq=False)
class GlmSequence:
    """An order of groups and a model for each of its prefixes.

    Attributes
    ----------
    groups : tuple of int
        The groups in the order found, by index.
    costs : (J',)
        Cost of each when it was bought.
    scores : (J',)
        What it was chosen by: (whitened) squared gradient norm, divided by its cost when the
        sequence is cost-aware. Groups of one refit share the gradient of the refit before.
    explained_deviance : (J' + 1,)
        1 − deviance / null deviance on the training rows, for 0, 1, … groups (R² for gaussian).
    refit_at : tuple of int
        Prefix lengths that were refitted. A prefix in between has the model of the longest
        refitted one that it contains.
    refits : tuple of GlmRefit
        The null model, then one for each of ``refit_at``.
    n_passes : int
        Passes over the data in all.
    null_loss : float
        Mean loss of the null model.
    design : GlmDesign
        Family and standardisation.
    """

    groups: tuple[int, ...]
    costs: Array
    scores: Array
    explained_deviance: Array
    refit_at: tuple[int, ...]
    refits: tuple[GlmRefit, ...]
    n_passes: int
    null_loss: float
    design: GlmDesign

    def model_at(self, n_groups: int) -> GlmRefit:
        """Return the model that a prefix of ``n_groups`` groups predicts with.

        Raises
        ------
        SpecError
            When the sequence is shorter, or ``n_groups`` negative.
        """
        if not 0 <= n_groups <= len(self.groups):
            raise SpecError(f"The sequence has prefixes of 0 to {len(self.groups)} groups.")
        return self.refits[int(np.searchsorted(self.refit_at, n_groups, side="right"))]

    def weights_at(self, n_groups: int) -> Array:
        """Coefficients (d + 1, P) of the standardised columns for a prefix, intercept last."""
        model = self.model_at(n_groups)
        weights = np.zeros((self.design.n_columns + 1, model.weights.shape[1]))
        weights[model.columns] = model.weights[:-1]
        weights[-1] = model.weights[-1]
        return weights

    def coefficients(self, n_groups: int) -> tuple[Array, Array]:
        """Coefficients (d, P) and intercept (P,) for a prefix, in the units of the data."""
        return self.design.original_units(self.weights_at(n_groups))

    @property
    def statuses(self) -> tuple[GlmStatus, ...]:
        """Status of the model of each prefix, from the null model on."""
        return tuple(self.model_at(k).status for k in range(len(self.groups) + 1))


def sequence_glm(
    pass_fn: PassFunction,
    design: GlmDesign,
    gram: Array,
    groups: Sequence[ArrayLike],
    costs: ArrayLike | CostFunction,
    *,
    n_outputs: int = 1,
    cost_aware: bool = True,
    whiten: bool = True,
    ridge: float = 0.0,
    max_refits: int | None = None,
    max_groups: int | None = None,
    max_iter: int = 50,
    tol: float = 1e-8,
) -> GlmSequence:
    """Order groups of columns for anytime prediction with a generalised linear model.

    Parameters
    ----------
    pass_fn : callable
        ``pass_fn(weights (d + 1, P), support (s,)) -> GlmStatistics`` of all training rows, made
        with the same ``design``.
    design : GlmDesign
        Family and standardisation of the columns.
    gram : (d, d)
        X̃ᵀX̃/n of the standardised columns (their correlations); whitening uses the blocks of the
        groups. Not read when ``whiten`` is false.
    groups : sequence of (s_g,) int
        Columns of each group, disjoint.
    costs : (J,) or callable
        Positive costs, or a function of the groups bought so far that returns the (J,) costs of
        buying each group next (costs shared between groups).
    n_outputs : int
        P: responses, or classes for softmax.
    cost_aware : bool
        Divide the scores by the costs.
    whiten : bool
        Score tr(∇_gᵀ C_gg⁺ ∇_g); otherwise ‖∇_g‖²_F, right for groups that are white already.
    ridge : float
        λ of the risk, on standardised coefficients.
    max_refits : int or None
        Most refits. With fewer than groups, they are spread evenly over the sequence (the last
        prefix is always refitted) and the groups between two refits are taken in the order of
        their scores at the earlier one.
    max_groups : int or None
        Stop after that many groups.
    max_iter, tol
        Of each refit, see :func:`fit_glm`.

    Returns
    -------
    GlmSequence

    Raises
    ------
    SpecError
        For costs that are not positive, overlapping groups, or caps below one.
    NumericalError
        When there are no rows.

    Notes
    -----
    Two passes for the null model, then one pass to open each refit and one for each of its Newton
    steps; none when the new columns' gradient already vanishes. Scores below the convergence
    tolerance count as zero (redundant groups), ties go to the lowest index.

    Several Gaussian responses are taken as they come: a response of larger variance weighs more in
    scores and explained deviance. Standardise them before, if they should count alike.

    References
    ----------
    Hu et al., Appendix B, Algorithm 3, equations 21 and 22.
    """
    columns = _disjoint(groups, design.n_columns)
    n_wanted = len(columns) if max_groups is None else min(max_groups, len(columns))
    schedule = _refit_schedule(n_wanted, max_refits)
    price = _cost_function(costs, len(columns))
    scorer = _Scorer(columns, gram if whiten else None)
    null = _null_fit(pass_fn, design, n_outputs)
    walk = _Walk(fit=null, refits=[_refit(null, 0, null.n_passes)], n_passes=null.n_passes)
    for length in schedule:
        walk.choose(length, scorer, price, cost_aware, tol)
        support = np.concatenate([columns[g] for g in walk.groups])
        walk.refit(pass_fn, design.family, support, ridge, max_iter, tol)
    return GlmSequence(
        groups=tuple(walk.groups),
        costs=np.array(walk.costs),
        scores=np.array(walk.scores),
        explained_deviance=_explained(walk.refits, schedule, n_wanted),
        refit_at=tuple(schedule),
        refits=tuple(walk.refits),
        n_passes=walk.n_passes,
        null_loss=null.loss,
        design=design,
    )


@dataclass(frozen=True, eq=False)
class _Scorer:
    """Squared norm of each group's gradient, whitened by its Gram when there is one."""

    columns: list[NDArray[np.int64]]
    gram: Array | None

    def scores(self, gradient: Array, floor: float) -> Array:
        """Scores (J,); gradients below ``floor`` for each entry count as zero."""
        return np.array([self._score(gradient, own, floor) for own in self.columns])

    def _score(self, gradient: Array, own: NDArray[np.int64], floor: float) -> float:
        part = gradient[own]
        squared = float(np.square(part).sum())
        if squared <= floor**2:
            return 0.0
        if self.gram is None:
            return squared
        values, vectors = eigh(self.gram[np.ix_(own, own)])
        kept = values > _RANK_TOLERANCE * max(values[-1], 0.0)
        rotated = np.square(vectors[:, kept].T @ part).sum(axis=1)
        return float((rotated / values[kept]).sum())


@dataclass
class _Walk:
    """The sequence while it grows."""

    fit: GlmFit
    refits: list[GlmRefit]
    n_passes: int

    def __post_init__(self) -> None:
        self.groups: list[int] = []
        self.costs: list[float] = []
        self.scores: list[float] = []

    def choose(
        self,
        length: int,
        scorer: _Scorer,
        price: Callable[[Sequence[int]], Array],
        cost_aware: bool,
        tol: float,
    ) -> None:
        """Take groups by the present gradient until there are ``length``."""
        statistics = self.fit.statistics
        gradient = statistics.gradient[:-1] / statistics.weight
        scores = scorer.scores(gradient, tol * gradient_scale(statistics))
        while len(self.groups) < length:
            costs = price(self.groups)
            values = scores / costs if cost_aware else scores.copy()
            values[self.groups] = -np.inf
            top = values.max()
            # Rounding must not decide between groups that are equally good: the lowest index does.
            best = int(np.flatnonzero(values >= top - _TIE_TOLERANCE * abs(top))[0])
            self.groups.append(best)
            self.costs.append(float(costs[best]))
            self.scores.append(float(values[best]))

    def refit(
        self,
        pass_fn: PassFunction,
        family: Family,
        support: NDArray[np.int64],
        ridge: float,
        max_iter: int,
        tol: float,
    ) -> None:
        """Fit the chosen groups, from the last model on, if that can change anything."""
        statistics = self.fit.statistics
        gradient = statistics.gradient[support] / statistics.weight
        gradient += ridge * self.fit.weights[support]
        done = self.fit.status in ("converged", "separated")
        if done and np.linalg.norm(gradient) <= tol * gradient_scale(statistics):
            self.refits.append(_refit(self.fit, len(self.groups), self.n_passes, support))
            return
        start = self.fit.weights
        self.fit = fit_glm(pass_fn, family, support, start, ridge, max_iter, tol)
        self.n_passes += self.fit.n_passes
        self.refits.append(_refit(self.fit, len(self.groups), self.n_passes))


def _refit(
    fit: GlmFit, n_groups: int, n_passes: int, support: NDArray[np.int64] | None = None
) -> GlmRefit:
    """Keep what a sequence needs of a fit: neither its Hessian nor its full gradient."""
    columns = fit.support if support is None else support
    return GlmRefit(
        n_groups=n_groups,
        columns=columns,
        weights=fit.weights[np.append(columns, len(fit.weights) - 1)],
        loss=fit.loss,
        status=fit.status,
        rank_deficient=fit.rank_deficient,
        n_passes=n_passes,
    )


def _null_fit(pass_fn: PassFunction, design: GlmDesign, n_outputs: int) -> GlmFit:
    """Intercept alone, in closed form: one pass for the response mean, one at the model."""
    nothing = np.empty(0, dtype=np.int64)
    weights = np.zeros((design.n_columns + 1, n_outputs))
    first = pass_fn(weights, nothing)
    if not first.weight > 0.0:
        raise NumericalError("There is no row with a positive weight to fit a model on.")
    weights = weights.copy()
    weights[-1] = design.family.link(first.response_mean)
    statistics = pass_fn(weights, nothing)
    loss = statistics.loss / statistics.weight
    norm = float(np.linalg.norm(statistics.gradient[-1])) / statistics.weight
    return GlmFit(weights, nothing, "converged", loss, loss, norm, 0, 2, False, (loss,), statistics)


def _refit_schedule(n_groups: int, max_refits: int | None) -> list[int]:
    """Prefix lengths to refit at: all, or ``max_refits`` spread evenly with the last among them."""
    if n_groups < 1 or (max_refits is not None and max_refits < 1):
        raise SpecError("At least one group and one refit are needed.")
    n_refits = n_groups if max_refits is None else min(max_refits, n_groups)
    return [-(-n_groups * k // n_refits) for k in range(1, n_refits + 1)]


def _explained(refits: Sequence[GlmRefit], schedule: Sequence[int], n_groups: int) -> Array:
    """Explained deviance of each prefix; zero when there is nothing to explain."""
    losses = np.array([refit.loss for refit in refits])
    shares = 1.0 - losses / losses[0] if losses[0] > 0.0 else np.zeros(len(losses))
    return shares[np.searchsorted(schedule, np.arange(n_groups + 1), side="right")]


def _disjoint(groups: Sequence[ArrayLike], n_columns: int) -> list[NDArray[np.int64]]:
    """Make groups index arrays; refuse empty, overlapping or unknown columns."""
    columns = [np.asarray(group, dtype=np.int64).ravel() for group in groups]
    seen = np.concatenate([np.empty(0, dtype=np.int64), *columns])
    if any(len(group) == 0 for group in columns) or len(np.unique(seen)) < len(seen):
        raise SpecError("Every group needs at least one column, and no column two groups.")
    if len(seen) and (seen.min() < 0 or seen.max() >= n_columns):
        raise SpecError(f"Groups name columns outside 0 … {n_columns - 1}.")
    return columns


def _cost_function(
    costs: ArrayLike | CostFunction, n_groups: int
) -> Callable[[Sequence[int]], Array]:
    """Costs as a function of what is bought, checked at every use."""

    def price(bought: Sequence[int]) -> Array:
        values = np.asarray(costs(bought) if callable(costs) else costs, dtype=np.float64)
        if values.shape != (n_groups,) or not np.isfinite(values).all():
            raise SpecError(f"Costs must be {n_groups} finite numbers, one for each group.")
        left = np.setdiff1d(np.arange(n_groups), bought)
        if (values[left] <= 0.0).any():
            raise SpecError("Every group needs a positive cost.")
        # Groups already bought may cost nothing more; they are not candidates.
        return np.where(values > 0.0, values, 1.0)

    return price
