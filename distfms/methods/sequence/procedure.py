"""The pure part of group sequencing: from co-moments to sequences and what they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.moments import Procedure
from distfms.methods.sequence.evaluate import kept_prefixes, timeliness
from distfms.methods.sequence.glm import Fitting, GlmFits, sequence_glm
from distfms.methods.sequence.glm_rows import View
from distfms.methods.sequence.greedy import BY_STATISTICS, best_set, sequence
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.options import GAIN, OrderRule
from distfms.methods.sequence.problem import (
    FeatureGroups,
    Ladder,
    Path,
    SequenceOutline,
    SequenceProblem,
    outline_from_comoments,
    problem_from_comoments,
)
from distfms.methods.sequence.sparse import sparse_sequence
from distfms.solve.cholesky import Shard
from distfms.solve.costs import GroupCosts
from distfms.solve.forward import CALLS
from distfms.stats.base import Members
from distfms.stats.folds import Answer

MEASURES = {"timeliness": True, "explained_variance": True, "mse": False}
"""What `tune` compares sequences by, and whether more is better."""


RIDGES = (1e3, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-5)
"""What the ridge ``auto`` chooses from, the simplest models first: the first is nearly the mean."""

FIRST_RIDGES = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5)
"""The same of other families than the gaussian, whose ridges take fits each."""

LARGER_RIDGES = tuple(ridge for ridge in RIDGES if ridge > FIRST_RIDGES[0])
"""Ridges that follow these, the least first, while the largest that was tried is the best."""

#: Name among the statistics of a fold of a path that was found before, and its measures there.
FOUND = "found"
#: Fields of the procedure that a problem has too.
_POSED = ("feature_names", "target_names", "groups", "costs", "ridge", "least_scale")


@dataclass(frozen=True)
class SequenceProcedure(Procedure):
    """What decides about sequences besides the statistics.

    `groups` partition the rows of a batch; `n_outputs` counts those of a model that is not
    gaussian, the classes of ``softmax``. With `as_one` all
    columns are one group, whose model is that of all groups in any order. With `with_models`
    `evaluate` also answers with the linear models, for what only rows tell. `gains` are what
    boosted trees gain by each group, by its name, for the rule `gain`. A column that deviates by
    less than its `least_scale` (D,) counts as constant.
    """

    rules: tuple[OrderRule, ...]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    max_groups: int | None
    seed: int = 0
    family: str = "gaussian"
    n_outputs: int = 1
    model: str = "linear"
    ladder: Ladder = field(default_factory=Ladder)
    as_one: bool = False
    with_models: bool = False
    gains: tuple[tuple[str, float], ...] = ()
    least_scale: np.ndarray | None = None

    @property
    def posed(self) -> dict[str, Any]:
        """What a problem has beside its statistics."""
        return {name: getattr(self, name) for name in _POSED}

    @property
    def share(self) -> str:
        """What the models explain of the target."""
        return "explained_variance" if self.family == "gaussian" else "explained_deviance"

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight."""
        moments = members["moments"]
        return int(moments.n_samples), float(moments.weight)

    def learnable(self, train: Members) -> bool:
        """Return whether all targets vary, and some column does."""
        try:
            outline_from_comoments(train["moments"], **self.posed)
        except DataError:
            return False
        return True

    def problem(self, train: Members) -> SequenceProblem:
        """Return the selection problem of some rows."""
        return problem_from_comoments(train["moments"], **self.posed)

    def problem_on(self, fold: Fold) -> SequenceProblem:
        """Return the problem of all rows but a fold's, whose matrix does not have the ridge."""
        problem = fold.once("problem", lambda: self.problem(fold.train))
        if self.as_one:
            groups = FeatureGroups(("all",), (tuple(range(len(problem.gram))),))
            problem = replace(problem, groups=groups, costs=GroupCosts(np.ones(1)))
        return replace(problem, ridge=self.ridge)

    # --- searches ---

    def shards(self, problem: SequenceProblem, rule: Any = None) -> Sequence[Shard]:
        """Return the runs of groups that a problem's candidates are in."""
        return problem.forward.shard.cut()

    def search(self, problem: SequenceProblem, rule: OrderRule, **where: Any) -> SequencePath:
        """Return the sequence of a rule, or the set of a budget as one that ends with it.

        `where` has the pool and the shards, if there are any.
        """
        if rule.budget is not None:
            return best_set(problem, rule.budget, self.max_groups, **where)
        if rule.criterion == "sparse":
            return sparse_sequence(problem, self.max_groups)
        return sequence(problem, **self._options(problem, rule), **where)

    def fitting(self, problem: SequenceProblem, rule: OrderRule, view: View) -> Fitting[GlmFits]:
        """Return the same search for models of another family, which asks for passes."""
        # Where trees take the models' place, only gradients ask for these.
        asks = self.model == "linear" or rule.criterion not in BY_STATISTICS
        ladder = self.ladder if asks else Ladder(())
        options = self._options(problem, rule)
        return sequence_glm(problem, view, ladder, budget=rule.budget, **options)

    def _options(self, problem: SequenceOutline, rule: OrderRule) -> dict[str, Any]:
        # Groups of constant columns are not in the problem.
        by_group = dict(self.gains)
        gains = None
        if rule.criterion == GAIN:
            gains = [by_group[name] for name in problem.groups.names]
        return {
            "criterion": rule.criterion,
            "cost_aware": rule.cost_aware,
            "doubling": rule.doubling,
            "max_groups": self.max_groups,
            "seed": self.seed,
            "gains": gains,
        }

    # --- scores ---

    def grid(self, path: Path) -> np.ndarray:
        """Return budgets that buy the prefixes whose scores are kept.

        That of no group is negative, as 0 also buys the groups that are free.
        """
        spent = path.curve_cost[kept_prefixes(path)]
        return np.append(-1.0, spent[1:])

    def scored_at(self, budgets: np.ndarray) -> SequenceProcedure:
        """Return the procedure that fits models where they are scored, at what budgets afford."""
        return replace(self, ladder=Ladder(costs=tuple(budgets.tolist())))

    def found_on(self, fold: Fold, rule: OrderRule) -> tuple[Path, Answer]:
        """Return the path of a rule without a fold, and the measures of its prefixes there."""
        if FOUND in fold.held_out:
            path_and_measures: tuple[Path, Answer] = fold.held_out[FOUND]
            return path_and_measures
        path = self.search(self.problem_on(fold), rule)
        return path, path.held_out(fold.held_out["moments"])

    def score(
        self, problem: Any, path: SequencePath, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Score the longest prefix that each budget affords."""
        return _afforded(path, path.held_out(held_out["moments"]), budgets)

    def evaluate(self, fold: Fold, rule: OrderRule, budgets: np.ndarray) -> Answer:
        """Search without a fold and score on it; the last score is that of the whole sequence."""
        path, curve = self.found_on(fold, rule)
        ends = np.append(budgets, np.inf)
        answer = dict(_afforded(path, curve, ends))
        if not self.with_models:
            return answer
        models = path.models_at([path.affordable(budget) for budget in ends])
        for name, array in models.to_arrays().items():
            answer[f"fold/{name}"] = array
        return answer

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure sequences that end after so many groups, on a fold."""
        path, curve = self.found_on(fold, self.rules[0])
        last = [len(path) if end is None else min(end, len(path)) for end in ends]
        if measure != "timeliness":
            return curve[measure if measure in ("mse", "deviance") else self.share][last]
        # On one scale for all points: what all groups cost, and all that can be explained.
        whole = float(self.costs.own.sum() + sum(item.cost for item in self.costs.shared))
        cost = path.curve_cost
        value = curve[self.share]
        areas = [timeliness(cost[: k + 1], value[: k + 1], stop=whole, final=1.0) for k in last]
        return np.array(areas)

    def n_operations(self) -> float:
        """Return about how many multiplications a sequence takes, calls counted as such."""
        n_groups = 1 if self.as_one else len(self.groups)
        return search_operations(len(self.feature_names), n_groups, self.max_groups or n_groups)


def search_operations(n_columns: int, n_groups: int, max_groups: int) -> float:
    """Return about how many multiplications it takes to put so many groups in order."""
    n_steps = min(max_groups, n_groups)
    return float(n_columns) ** 3 * n_steps / n_groups + CALLS * n_steps


def _afforded(path: Path, curve: Mapping[str, np.ndarray], budgets: np.ndarray) -> Answer:
    prefixes = [path.affordable(budget) for budget in budgets]
    return {name: values[prefixes] for name, values in curve.items()}
