"""The problem of feature multi-selection, what it maximises, and the path a search returns.

With r[a] judgments of each attribute a, S those that have any, b the covariances with the label
and M = Σ[S, S] + Diag(v/r) + ρI that of the averages, a linear predictor on these explains

    Full(r) = b_Sᵀ M⁺ b_S,    or, with Σ taken for diagonal,    Scoring(r) = Σ_a b[a]² / M[a, a]

of the label's variance. A :class:`Problem` is all that the search looks at.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from distfms.solve.linalg import mirrored, nearest_psd, symmetric_pinv
from distfms.stats.base import Fields
from distfms.stats.comoments import CONSTANT_RTOL

if TYPE_CHECKING:
    from distfms.stats.judgments import JudgmentEstimates

#: An attribute whose share of variance not explained by the selected ones is at most this counts
#: as a linear combination of them.
RANK_TOLERANCE = 1e-10

Psd = Literal["nearest", "data_units", "none"]
BuyFrom = Literal["independent", "same"]


@dataclass(frozen=True, eq=False)
class Problem(Fields):
    """Feature multi-selection in numbers; build it with :meth:`from_estimates`.

    Attributes
    ----------
    b, v, means, costs : ndarray of shape (d,)
        Covariance with the label, variance of one judgment given the object, mean judgment, cost of
        a judgment of each attribute.
    external : ndarray of shape (d, d)
        External covariance, positive semi-definite unless `psd` is ``"none"``.
    external_variance : ndarray of shape (d,)
        σ̂², at least 0: the diagonal of the external covariance before "MakePSD". Scoring uses
        this, Full uses the diagonal of `external`.
    ridge : ndarray of shape (d,)
        ρ ≥ 0, added to the variance of the average of each attribute.
    label_variance, label_mean : float
        The variance is the loss of the empty selection.
    psd : {"nearest", "data_units", "none"}
        ``nearest``: Full works with the nearest positive semi-definite matrix ("MakePSD" of the
        paper), each attribute in units of the standard deviation of one judgment of it, which needs
        all of Σ̂ in one place and O(d³) operations. ``data_units``: the same in the units of the
        data, as the paper writes it. ``none``: with the estimate as it is. A judgment
        that would make the covariance of the selected averages singular or indefinite is then never
        bought, but the projected loss may be too small, even negative.
    noise_covariance : ndarray of shape (d, d), or None
        N, of two judgments by one rater, with v on its diagonal, made positive semi-definite like
        `external`, where the same raters judge all attributes; None for independent raters.
    """

    not_stored: ClassVar = ("names",)
    names: tuple[str, ...]
    b: np.ndarray
    v: np.ndarray
    external: np.ndarray
    external_variance: np.ndarray
    costs: np.ndarray
    ridge: np.ndarray
    label_variance: float
    label_mean: float
    means: np.ndarray
    psd: Psd = "nearest"
    noise_covariance: np.ndarray | None = None

    @classmethod
    def from_estimates(
        cls,
        estimates: JudgmentEstimates,
        *,
        costs: ArrayLike = 1.0,
        ridge: ArrayLike = 0.0,
        names: Sequence[str] | None = None,
        psd: Psd = "nearest",
        buy_from: BuyFrom = "independent",
    ) -> Problem:
        """Build the problem from the estimates of one pass, in O(d³) if Σ̂ is made semi-definite."""
        n = estimates.b.size
        external = estimates.external
        # Rows are read for columns everywhere, so that it has to be symmetric to the bit.
        if not np.array_equal(external, external.T):
            external = (external + external.T) / 2
        problem = cls(
            names=tuple(map(str, range(n)) if names is None else names),
            b=estimates.b,
            v=estimates.v,
            external=external,
            external_variance=estimates.external_variance,
            costs=np.full(n, costs, dtype=float),
            ridge=np.full(n, ridge, dtype=float),
            label_variance=estimates.label_variance,
            label_mean=estimates.label_mean,
            means=estimates.means,
            psd=psd,
            noise_covariance=estimates.noise_covariance if buy_from == "same" else None,
        )
        return problem if psd == "none" else problem._made_psd()

    def _made_psd(self) -> Problem:
        """Return the problem with matrices that are positive semi-definite."""
        units = self.deviation, np.sqrt(self.v)
        if self.psd == "data_units":
            units = np.ones(self.n_attributes), np.ones(self.n_attributes)
        noise = self.noise_covariance
        if noise is not None:
            noise = _make_psd(noise, units[1], self.v > 0)
        external = _make_psd(self.external, units[0], self.candidates)
        return replace(self, external=external, noise_covariance=noise)

    @property
    def n_attributes(self) -> int:
        """Number of attributes d."""
        return self.b.size

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of a single judgment of each attribute, shape (d,)."""
        return np.sqrt(self.external_variance + self.v)

    @property
    def candidates(self) -> np.ndarray:
        """Which attributes may be chosen, bool of shape (d,): those that are not constant.

        A constant such as 0.1 may have a variance from rounding.
        """
        return self.deviation > CONSTANT_RTOL * np.abs(self.means)

    def take(self, attributes: np.ndarray, external: np.ndarray | None = None) -> Problem:
        """Return the problem on some attributes only, without another "MakePSD".

        Their `external` can be given where the problem does not have its own.
        """
        taken = {
            name: getattr(self, name)[attributes]
            for name in ("b", "v", "external_variance", "costs", "ridge", "means")
        }
        grid = np.ix_(attributes, attributes)
        taken["external"] = self.external[grid] if external is None else external
        if self.noise_covariance is not None:
            taken["noise_covariance"] = self.noise_covariance[grid]
        names = tuple(self.names[a] for a in attributes.tolist())
        return replace(self, names=names, **taken)


def _make_psd(matrix: np.ndarray, units: np.ndarray, varying: np.ndarray) -> np.ndarray:
    """Nearest PSD matrix in some units; exact zeros for what does not vary."""
    result = np.zeros_like(matrix)
    index = np.flatnonzero(varying)
    if index.size:
        grid = np.ix_(index, index)
        products = np.outer(units[index], units[index])
        scaled = matrix[grid] / products
        projected = nearest_psd(scaled)
        if np.array_equal(projected, scaled):
            result[grid] = matrix[grid]
        else:
            result[grid] = projected * products
    return result


def covariance_of_averages(
    problem: Problem, repeats: np.ndarray, support: np.ndarray
) -> np.ndarray:
    """Covariance of the averages of the attributes `support`: M_r = sub_r(Σ + Diag(v/r + ρ)).

    By the same raters it is sub_r(Σ[a, b] + N[a, b] / max(r[a], r[b]) + Diag(ρ)).
    """
    grid = np.ix_(support, support)
    r = repeats[support]
    matrix = problem.external[grid]
    noise = problem.v[support] / r
    if problem.noise_covariance is not None:
        matrix += problem.noise_covariance[grid] / np.maximum.outer(r, r)
        noise = np.zeros(r.size)
    matrix[np.diag_indices_from(matrix)] += noise + problem.ridge[support]
    return matrix


def inverse_of(matrix: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, pseudo-inverse of a singular one."""
    import scipy.linalg

    if matrix.shape[0] == 0:
        return matrix
    factor, info = scipy.linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    pivots = np.diagonal(factor) ** 2
    if info == 0 and (pivots > RANK_TOLERANCE * np.diagonal(matrix)).all():
        inverse, info = scipy.linalg.lapack.dpotri(factor, lower=1)
        if info == 0:
            return mirrored(inverse)
    return symmetric_pinv(matrix)


def full_weights(problem: Problem, repeats: ArrayLike) -> np.ndarray:
    """Weights w = M_r⁺ b of the predictor with the least projected loss, 0 where not judged."""
    r = np.asarray(repeats)
    support = np.flatnonzero((r > 0) & problem.candidates)
    weights = np.zeros(problem.n_attributes)
    inverse = inverse_of(covariance_of_averages(problem, r, support))
    weights[support] = inverse @ problem.b[support]
    return weights


def full_objective(problem: Problem, repeats: ArrayLike) -> float:
    """Part of the label's variance explained by `repeats` judgments, correlations included.

    That is b_Sᵀ (sub_r(Σ + Diag(v/r)) + ρI)⁺ b_S; step 12 of Algorithm 1 in [1]_.
    """
    return float(problem.b @ full_weights(problem, repeats))


def scoring_objective(problem: Problem, repeats: ArrayLike) -> float:
    """Part of the label's variance explained by `repeats` judgments, were attributes uncorrelated.

    That is Σ over r[a] > 0 of b[a]² / (σ²[a] + ρ[a] + v[a]/r[a]), 0 for constant attributes;
    equation 1 of [1]_.
    """
    r = np.asarray(repeats)
    support = np.flatnonzero((r > 0) & problem.candidates)
    fixed = problem.external_variance[support] + problem.ridge[support]
    variance = fixed + problem.v[support] / r[support]
    return float(np.sum(problem.b[support] ** 2 / variance))


OBJECTIVES = {"full": full_objective, "scoring": scoring_objective}
"""By the name of an algorithm."""

Status = Literal["budget_spent", "no_positive_gain", "unaffordable"]

#: Share of the budget by which sums of costs may miss it through rounding.
BUDGET_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class SelectionPath(Fields):
    """What was bought, in order.

    Attributes
    ----------
    algorithm, criterion : str
        ``"full"``, ``"scoring"``, or the name of a baseline; what its steps maximised.
    status : {"budget_spent", "no_positive_gain", "unaffordable"}
        Why it ended: nothing left; no further judgment of any attribute has a positive gain; or
        some budget is left, but less than what any attribute with a positive gain costs.
    attributes, counts, objective : ndarray of shape (n_steps,)
        Attribute and number of judgments (1, but for some baselines) that each step bought; what
        the algorithm maximises, after it.
    label_variance : float
        Loss of the empty selection.
    n_candidates : int
        Gains of attributes computed and compared, also by the look that ends the search.
    """

    not_stored: ClassVar = ("names", "costs")
    algorithm: str
    criterion: str
    status: Status
    budget: float
    names: tuple[str, ...]
    costs: np.ndarray
    attributes: np.ndarray
    counts: np.ndarray
    objective: np.ndarray
    label_variance: float
    n_candidates: int = 0

    def on(self, attributes: np.ndarray) -> SelectionPath:
        """Return the path as one on some of the attributes, those it has bought among them."""
        return replace(
            self,
            names=tuple(self.names[a] for a in attributes.tolist()),
            costs=self.costs[attributes],
            attributes=np.searchsorted(attributes, self.attributes),
        )

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.attributes.size

    @property
    def spent(self) -> np.ndarray:
        """Total cost after each step, shape (n_steps,)."""
        return np.cumsum(self.costs[self.attributes] * self.counts)

    @property
    def repeats(self) -> np.ndarray:
        """Judgments that the attribute of each step has after it, int of shape (n_steps,)."""
        after = np.empty(self.n_steps, dtype=np.int64)
        for attribute in np.unique(self.attributes):
            is_step = self.attributes == attribute
            after[is_step] = np.cumsum(self.counts[is_step])
        return after

    @property
    def final_repeats(self) -> np.ndarray:
        """Repeat vector at the end of the path, int of shape (d,)."""
        return self.repeats_after(self.n_steps)

    def repeats_after(self, n_steps: int) -> np.ndarray:
        """Repeat vector after the first steps, int of shape (d,)."""
        attributes = self.attributes[:n_steps]
        counts = self.counts[:n_steps]
        held = np.bincount(attributes, weights=counts, minlength=len(self.names))
        return held.astype(np.int64)

    def steps_at(self, budgets: ArrayLike) -> np.ndarray:
        """Count the steps that each of some budgets pays for, int of their shape."""
        return np.searchsorted(
            self.spent, np.asarray(budgets) * (1.0 + BUDGET_TOLERANCE), side="right"
        )

    def repeats_at(self, budget: float) -> np.ndarray:
        """Repeat vector for a smaller budget, int of shape (d,): the steps it pays for, in order.

        With equal costs this is exactly what a search with that budget returns. With unequal ones
        such a search would look for something cheaper than the first step it cannot pay for, where
        this stops, so that up to one step's cost may stay unspent.
        """
        return self.repeats_after(int(self.steps_at(budget)))


class Purse(NamedTuple):
    """What is left to buy from, how purchases compare, and the most judgments of an attribute."""

    spent: float
    limit: float
    per_cost: bool
    most: float = np.inf

    def scores(self, gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Gains (per cost); −inf where there is none, or it cannot be afforded."""
        usable = (gains > 0) & (self.spent + costs <= self.limit)
        return np.where(usable, gains / costs if self.per_cost else gains, -np.inf)

    def choice(
        self, gains: np.ndarray, costs: np.ndarray, repeats: np.ndarray | int
    ) -> tuple[int | None, bool]:
        """Purchase of the largest score, the first of equals, and whether anything gains."""
        gains = np.where(repeats < self.most, gains, -np.inf)
        scores = self.scores(gains, costs)
        best = int(np.argmax(scores))
        return best if scores[best] > 0 else None, bool((gains > 0).any())
