"""The pure part of multi-selection: from statistics of judgments to paths and their losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.moments import Procedure
from distfms.methods.multiselect.baselines import (
    averages,
    copies,
    lasso,
    nothing,
    single_attribute,
    supports_of,
)
from distfms.methods.multiselect.judged import Trained, losses_on
from distfms.methods.multiselect.model import LinearModel, PathModels, path_models, projected_model
from distfms.solve.buying import BUDGET_TOLERANCE, BuyFrom, Problem, Psd, SelectionPath
from distfms.solve.forward import CALLS
from distfms.solve.purchases import Algorithm, AttributeSlab, Criterion, select, slabs_of
from distfms.stats.base import Members
from distfms.stats.comoments import CoMoments
from distfms.stats.folds import Answer
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics

#: Points of a curve at most.
MOST_POINTS = 80

#: Multiplications of as long as a positive semi-definite projection of d × d takes, over d³
#: (measured at d = 1,000).
_EIGEN = 1.5


#: Deviation of an attribute without a fold, as a share of that in the fold, below which it hardly
#: varies there.
LEAST_DEVIATION = 0.1

#: Baselines that heed how many judgments were collected.
_OF_COLLECTED = {"averages": averages, "copies": copies}


class BuyingRule(NamedTuple):
    """``full``, ``scoring``, ``nothing``, or the name of a baseline."""

    name: str

    @property
    def objective(self) -> Algorithm:
        """Objective that the rule's selection is to make large."""
        return "scoring" if self.name == "scoring" else "full"


@dataclass(frozen=True, eq=False)
class Training:
    """What some objects teach, of the attributes (by position) that they suffice to estimate."""

    attributes: np.ndarray
    estimates: JudgmentEstimates
    problem: Problem
    _supports: dict[int, list[list[int]]] = field(default_factory=dict)

    def supports(self, budget: float) -> list[list[int]]:
        """Return the supports of the lasso path that may be paid, the same for all ridges."""
        cheapest = np.cumsum(np.sort(self.problem.costs))
        n_paid = int(np.searchsorted(cheapest, budget * (1.0 + BUDGET_TOLERANCE), side="right"))
        if n_paid not in self._supports:
            supports = supports_of(self.problem, self.estimates, n_paid)
            self._supports[n_paid] = supports
        return self._supports[n_paid]

    def on(self, kept: np.ndarray) -> Training | None:
        """Return the same of some of these attributes, by place; None for none."""
        if not kept.size:
            return None
        return Training(self.attributes[kept], self.estimates.take(kept), self.problem.take(kept))


@dataclass(frozen=True, eq=False)
class Selected:
    """What a search found.

    Attributes
    ----------
    paths : mapping of str to SelectionPath
        By rule, the chosen one first.
    content : dict
        Of ``selection.json``.
    chosen : ndarray of int, or None
        After a search in slabs the attributes that some path has bought; paths are on these.
    """

    paths: Mapping[str, SelectionPath]
    content: dict[str, Any]
    chosen: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class SelectionProcedure(Procedure):
    """What decides about a selection besides the statistics.

    Attributes
    ----------
    internal_variance : ndarray of shape (d,)
        Known internal variances, NaN where they are estimated.
    ridge : float
        Relative to the variance of a single judgment of each attribute.
    budgets : ndarray of shape (n_budgets,), or None
        Where curves have their points; None: where the path's own steps end.
    """

    names: tuple[str, ...]
    budget: float
    costs: np.ndarray
    internal_variance: np.ndarray
    ridge: float = 0.0
    psd: Psd = "nearest"
    criterion: Criterion = "best"
    rules: tuple[BuyingRule, ...] = (BuyingRule("full"),)
    buy_from: BuyFrom = "independent"
    budgets: np.ndarray | None = None

    # --- statistics ---

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of objects, and their weight."""
        means = members["judgments"].means
        return means.n_samples, float(means.weight)

    def estimable(self, statistics: JudgmentStatistics) -> np.ndarray:
        """Return which attributes some objects suffice to estimate, bool of shape (d,).

        They are judged at all, and twice somewhere unless the internal variance is given.
        """
        repeated = (statistics.n_repeated > 0) | ~np.isnan(self.internal_variance)
        return (statistics.n_judged > 0) & repeated

    # --- selection ---

    def problem(self, train: Members) -> Training:
        """Return what the training objects teach, who suffice to estimate all attributes."""
        training = self._training(train)
        assert training is not None
        return self.with_ridge(training)

    def _training(self, train: Members) -> Training | None:
        judgments = train["judgments"]
        attributes = np.flatnonzero(self.estimable(judgments))
        if not attributes.size:
            return None
        if attributes.size < len(self.names):
            judgments = judgments.take(attributes)
        names = [self.names[a] for a in attributes.tolist()]
        estimates = judgments.estimates(self.internal_variance[attributes], names)
        problem = Problem.from_estimates(
            estimates,
            costs=self.costs[attributes],
            names=names,
            psd=self.psd,
            buy_from=self.buy_from,
        )
        return Training(attributes, estimates, problem)

    def with_ridge(self, training: Training) -> Training:
        """Return the same with the ridge of each attribute, in units of its judgments."""
        problem = training.problem
        ridge = float(self.ridge) * problem.deviation**2
        return replace(training, problem=replace(problem, ridge=ridge))

    def problem_on(self, fold: Fold) -> Training | None:
        """Return what all objects but a fold's teach; None if nothing can be estimated."""
        training = fold.once(self.psd, lambda: self._training_without(fold))
        return training and self.with_ridge(training)

    def _training_without(self, fold: Fold) -> Training | None:
        """Return what all objects but a fold's teach of the attributes that vary among them.

        One that hardly varies there, compared with the fold, says nothing of how much it matters.
        """
        training = self._training(fold.train)
        if training is None:
            return None
        judgments = fold.held_out["judgments"]
        deviation_in_fold = np.zeros(len(self.names))
        estimable = np.flatnonzero(self.estimable(judgments))
        if estimable.size:
            variance = self.internal_variance[estimable]
            estimates = judgments.take(estimable).estimates(variance)
            total = estimates.external_variance + estimates.v
            deviation_in_fold[estimable] = np.sqrt(total)
        least = LEAST_DEVIATION * deviation_in_fold[training.attributes]
        varies = training.problem.deviation >= least
        return training if varies.all() else training.on(np.flatnonzero(varies))

    @property
    def has_slabs(self) -> bool:
        """Whether a rule searches slabs: Full does, but for judgments by the same raters."""
        return BuyingRule("full") in self.rules and self.buy_from == "independent"

    def shards(self, training: Training, rule: BuyingRule) -> Sequence[AttributeSlab]:
        """Return the slabs of attributes that the rule searches, if it does."""
        is_searched = rule.name == "full" and self.has_slabs
        return slabs_of(training.problem) if is_searched else ()

    def search(self, training: Training, rule: BuyingRule, **slabs: Any) -> SelectionPath:
        """Run the chosen algorithm, or a baseline; Full may have slabs on a pool."""
        problem = training.problem
        budget = self.budget
        name = rule.name
        costs = problem.costs[problem.candidates]
        if costs.size and costs.min() > budget * (1.0 + BUDGET_TOLERANCE):
            # Without an attribute that a fold lacks there may be none that can be paid.
            return nothing(problem, budget, name, "unaffordable")
        if name == "nothing":
            return nothing(problem, budget, name, "no_positive_gain")
        if name == "lasso":
            return lasso(problem, training.supports(budget), budget)
        if name in _OF_COLLECTED:
            baseline = _OF_COLLECTED[name]
            return baseline(problem, training.estimates, budget)
        if name.startswith("single:"):
            return single_attribute(problem, name.removeprefix("single:"), budget)
        if name != "full":
            slabs = {}
        return select(problem, budget, rule.objective, self.criterion, **slabs)

    def grid(self, path: SelectionPath) -> np.ndarray:
        """Return the budgets at which curves are drawn: what the path spent, evenly thinned.

        What the first and the last step had spent are among them, and the last is the whole
        budget, of which other ways to spend it may leave less.
        """
        if self.budgets is not None:
            return self.budgets
        spent = np.unique(path.spent)
        if not spent.size or path.budget - spent[-1] > BUDGET_TOLERANCE * path.budget:
            spent = np.append(spent, path.budget)
        if spent.size <= MOST_POINTS:
            return spent
        return spent[np.unique(np.linspace(0, spent.size - 1, MOST_POINTS).round().astype(int))]

    # --- losses ---

    def losses(
        self,
        training: Training,
        models: LinearModel | PathModels,
        held_out: Members,
        whose: BuyFrom | None = None,
    ) -> np.ndarray:
        """Return the unbiased losses of models on other objects, shape (n_models,)."""
        attributes = training.attributes
        estimates = training.estimates
        trained = Trained(
            self.internal_variance[attributes], estimates.v, estimates.noise_covariance
        )
        judgments = held_out["judgments"]
        if attributes.size < len(self.names):
            judgments = judgments.take(attributes)
        return losses_on(judgments, trained, models, whose or self.buy_from)

    def score(
        self, training: Training, path: SelectionPath, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Return the losses along a path, and that of the mean label of the training objects."""
        models = path_models(training.problem, path, path.steps_at(budgets))
        label: CoMoments = held_out["judgments"].label
        offset = float(label.mean[0]) - training.problem.label_mean
        of_mean = float(label.variance()[0]) + offset**2
        losses = self.losses(training, models, held_out)
        return {"projected_loss": losses, "loss_of_mean": np.full(losses.size, of_mean)}

    def evaluate(self, fold: Fold, rule: BuyingRule, budgets: np.ndarray) -> Answer:
        """Select without a fold; score on it."""
        training = self.problem_on(fold)
        attribute = rule.name.removeprefix("single:")
        is_single = attribute != rule.name
        if training is None or (is_single and attribute not in training.problem.names):
            unknown = np.full(len(budgets), np.nan)
            return {"projected_loss": unknown, "loss_of_mean": unknown}
        return self.score(training, self.search(training, rule), fold.held_out, budgets)

    def tuned_values(self, fold: Fold, ends: Sequence[Any], measure: str) -> np.ndarray:
        """Return the losses of what several budgets select without a fold.

        With equal costs a smaller budget buys the beginning of what a larger one buys. With
        unequal ones it spends its rest on something cheaper, so every budget then has a search of
        its own, on the same problem; and where the whole budget decides, as for the support of the
        lasso.
        """
        budgets = np.array(ends, dtype=float)
        rule = self.rules[0]
        order = np.argsort(budgets)
        searches = [order]  # a path is followed from the smallest on
        costs_differ = bool((self.costs != self.costs[0]).any())
        if costs_differ or rule.name == "lasso":
            searches = list(order[:, np.newaxis])
        losses = np.full(budgets.size, np.nan)
        training = self.problem_on(fold)
        if training is None:
            return losses
        for numbers in searches:
            whole = replace(self, budget=float(budgets[numbers[-1]]))
            path = whole.search(training, rule)
            for number in numbers:
                model = projected_model(training.problem, path.repeats_at(budgets[number]))
                losses[number] = self.losses(training, model, fold.held_out)[0]
        return losses

    def n_operations(self) -> float:
        """Return about how many multiplications a search by one rule takes."""
        d = float(len(self.names))
        n_steps = self.budget / float(self.costs.min())
        project = _EIGEN * d**3 if self.psd != "none" else 0.0
        return project + d**2 * min(n_steps, d) + (d + CALLS) * n_steps
