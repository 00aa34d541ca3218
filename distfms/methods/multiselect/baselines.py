"""What one would do without multi-selection: the baselines of the paper's section 4.

All return a :class:`~distfms.methods.multiselect.greedy.SelectionPath`. Its objective is what the
baseline itself maximises; to compare with other paths, evaluate the models of
:func:`~distfms.methods.multiselect.model.path_models`.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from distfms.errors import SpecError
from distfms.methods.multiselect.greedy import FullState, greedy_path
from distfms.methods.multiselect.objective import Costs, Problem, default_names, resolve_costs
from distfms.methods.multiselect.path import BUDGET_TOLERANCE, SelectionPath
from distfms.methods.multiselect.slab import Purse

if TYPE_CHECKING:
    from distfms.stats.judgments import CopiesStatistics, JudgmentEstimates


def averages(
    estimates: JudgmentEstimates,
    budget: float,
    costs: Costs = 1.0,
    *,
    n_judgments: int | None = None,
    ridge: float = 0.0,
    names: Sequence[str] | None = None,
) -> SelectionPath:
    """Forward selection on the averages of the judgments that were collected.

    Each attribute is chosen at most once and then costs as many judgments as its averages were
    made of.

    Parameters
    ----------
    estimates : JudgmentEstimates
        Of the training data; `second_moment` is that of the averages.
    budget : float
    costs : float, sequence, or mapping
        Cost of one judgment.
    n_judgments : int, optional
        Judgments k per chosen attribute; default: each attribute's mean number of judgments,
        rounded.
    ridge : float, default=0
    names : sequence of str, optional

    Returns
    -------
    SelectionPath
        With k judgments in each step; without steps if the budget buys no attribute.
    """
    names_ = default_names(estimates.b.size, names)
    k = np.full(len(names_), n_judgments or 1, dtype=np.int64)
    if n_judgments is None:
        k = np.maximum(np.rint(estimates.mean_judgments), 1).astype(np.int64)
    elif n_judgments < 1:
        raise SpecError(f"Averages needs at least 1 judgment per attribute, not {n_judgments}.")
    single = resolve_costs(costs, names_)
    problem = Problem.build(
        estimates.b,
        np.zeros(len(names_)),
        estimates.second_moment,
        label_variance=estimates.label_variance,
        costs=single * k,
        ridge=ridge,
        means=estimates.means,
        names=names_,
        semidefinite=not estimates.n_missing.any(),
    )
    path = greedy_path(problem, FullState(problem), budget, "averages")
    return replace(path, costs=single, counts=k[path.attributes])


def copies(
    statistics: CopiesStatistics,
    budget: float,
    costs: Costs = 1.0,
    *,
    ridge: float = 0.0,
    names: Sequence[str] | None = None,
) -> SelectionPath:
    """Forward selection with each judgment as an attribute of its own.

    The copies of an attribute are chosen in fixed order; r[a] is the number of copies chosen, at
    most the k that the statistics have of every attribute.
    """
    d, n_copies = statistics.n_attributes, statistics.copies
    names_ = default_names(d, names)
    if len(names_) != d:
        raise SpecError(f"There are {d} attributes but {len(names_)} names.")
    single = resolve_costs(costs, names_)
    covariance = statistics.comoments.covariance(pairwise=True)
    problem = Problem.build(
        covariance[:-1, -1],
        np.zeros(d * n_copies),
        covariance[:-1, :-1],
        label_variance=float(covariance[-1, -1]),
        costs=np.repeat(single, n_copies),
        ridge=ridge,
        means=statistics.comoments.mean[:-1],
        semidefinite=statistics.comoments.pair_weight is None,
    )
    state = _CopiesState(FullState(problem), n_copies)
    return replace(greedy_path(problem, state, budget, "copies"), names=names_)


class _CopiesState:
    """Attributes whose next judgment is their next copy."""

    def __init__(self, inner: FullState, n_copies: int) -> None:
        self._inner, self._n_copies = inner, n_copies
        self.costs = inner.costs[::n_copies]
        self.repeats = np.zeros(self.costs.size, dtype=np.int64)

    @property
    def objective(self) -> float:
        """Explained part of the label's variance."""
        return self._inner.objective

    def best(self, purse: Purse) -> tuple[int | None, bool]:
        """Best next copy of an attribute, and whether any of them has a positive gain."""
        first = np.arange(self.repeats.size) * self._n_copies
        following = first + np.minimum(self.repeats, self._n_copies - 1)
        left = self.repeats < self._n_copies
        gains = np.where(left, self._inner.gains()[following], -np.inf)
        return purse.best(gains, self.costs), bool((gains > 0).any())

    def buy(self, attribute: int) -> None:
        """Add the next copy."""
        self._inner.buy(attribute * self._n_copies + int(self.repeats[attribute]))
        self.repeats[attribute] += 1


def single_attribute(problem: Problem, name: str, budget: float) -> SelectionPath:
    """Spend the whole budget on judgments of one attribute, say people's estimate of the label."""
    if name not in problem.names:
        raise SpecError(f"There is no attribute {name!r}; known are {', '.join(problem.names)}.")
    a = problem.names.index(name)
    most = int(budget * (1.0 + BUDGET_TOLERANCE) / problem.costs[a])
    variance = problem.external[a, a] + problem.ridge + problem.v[a] / np.arange(1, most + 1)
    left = budget - most * problem.costs[a] > BUDGET_TOLERANCE * budget
    return SelectionPath(
        algorithm="single_attribute",
        criterion="gain",
        status="unaffordable" if left else "budget_spent",
        budget=float(budget),
        names=problem.names,
        costs=problem.costs,
        attributes=np.full(most, a, dtype=np.int64),
        counts=np.ones(most, dtype=np.int64),
        objective=problem.b[a] ** 2 / variance if problem.candidates[a] else np.zeros(most),
        label_variance=problem.label_variance,
    )
