"""The pure part of group sequencing: from co-moments to sequences and what they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distfms.methods.contract import Answer
from distfms.methods.cross_validation import CALLS, Fold, Members
from distfms.methods.sequence.groups import FeatureGroups, GroupCosts
from distfms.methods.sequence.path import SequencePath
from distfms.methods.sequence.problem import SequenceProblem, problem_from_comoments
from distfms.methods.sequence.rules import Rule
from distfms.methods.sequence.timeliness import MAX_POINTS, thinned, timeliness
from distfms.methods.statistics_job import Procedure
from distfms.stats.base import Statistic
from distfms.stats.comoments import CoMoments

MEASURES = {"timeliness": True, "explained_variance": True, "mse": False}
"""What `tune` compares sequences by, and whether more is better."""


@dataclass(frozen=True)
class SequenceProcedure(Procedure):
    """What decides about sequences besides the statistics.

    Attributes
    ----------
    rules : tuple of Rule
    feature_names : tuple of str, length D
        Rows of a batch.
    target_names : tuple of str, length P
    groups : FeatureGroups
        Partition of the D columns.
    costs : GroupCosts
    ridge : float
    max_groups : int or None
    seed : int
        Of the ``random`` baseline.
    """

    part_types: ClassVar[Mapping[str, type[Statistic]]] = {"moments": CoMoments}
    path_type: ClassVar[Any] = SequencePath

    rules: tuple[Rule, ...]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    max_groups: int | None
    seed: int

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight."""
        moments = members["moments"]
        return int(moments.n_samples), float(moments.weight)

    def problem(self, train: Members) -> SequenceProblem:
        """Return the selection problem of some rows: the D features, then the P targets."""
        n_features, n_targets = len(self.feature_names), len(self.target_names)
        return problem_from_comoments(
            train["moments"],
            features=range(n_features),
            targets=range(n_features, n_features + n_targets),
            feature_names=self.feature_names,
            target_names=self.target_names,
            groups=self.groups,
            costs=self.costs,
            ridge=self.ridge,
        )

    def problem_on(self, fold: Fold) -> SequenceProblem:
        """Return the problem of all rows but a fold's, whose matrix does not have the ridge."""
        problem = fold.once("problem", lambda: self.problem(fold.train))
        return replace(problem, ridge=self.ridge)

    def search(self, problem: SequenceProblem, rule: Rule) -> SequencePath:
        """Return the sequence of a rule."""
        return rule.path(problem, seed=self.seed, max_groups=self.max_groups)

    def grid(self, path: SequencePath) -> np.ndarray:
        """Return the costs of the prefixes whose scores are kept."""
        return path.curve_cost[thinned(len(path) + 1, MAX_POINTS)]

    def score(
        self, problem: SequenceProblem, path: SequencePath, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Score the longest prefix that each budget affords."""
        curve = path.held_out(held_out["moments"])
        prefixes = [path.affordable(budget) for budget in budgets]
        return {
            "r2": curve.r2[prefixes],
            "mse": curve.mse.mean(axis=1)[prefixes],
            "explained_variance": curve.explained_variance[prefixes],
        }

    def evaluate(self, fold: Fold, rule: Rule, budgets: np.ndarray) -> Answer:
        """Search without a fold; score on it what each budget affords, and the whole sequence."""
        problem = self.problem_on(fold)
        path = self.search(problem, rule)
        found = self.score(problem, path, fold.held_out, budgets)
        whole = self.score(problem, path, fold.held_out, path.curve_cost[-1:])
        return {**found, **{f"whole/{measure}": values[0] for measure, values in whole.items()}}

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure sequences that end after so many groups, on a fold."""
        path = self.search(self.problem_on(fold), self.rules[0])
        curve = path.held_out(fold.held_out["moments"])
        last = [len(path) if end is None else min(end, len(path)) for end in ends]
        if measure == "timeliness":
            # On one scale for all points: what all groups cost, and all that can be explained.
            whole = float(self.costs.own.sum() + sum(item.cost for item in self.costs.shared))
            cost, value = path.curve_cost, curve.explained_variance
            return np.array(
                [timeliness(cost[: k + 1], value[: k + 1], stop=whole, final=1.0) for k in last]
            )
        values = curve.mse.mean(axis=1) if measure == "mse" else curve.explained_variance
        return values[last]

    def store(
        self, problem: SequenceProblem, paths: Mapping[str, SequencePath]
    ) -> dict[str, np.ndarray]:
        """Return the paths as named arrays."""
        return {
            f"{name}/{key}": array
            for name, path in paths.items()
            for key, array in path.to_arrays().items()
        }

    def restore(
        self, train: Members, arrays: Mapping[str, np.ndarray]
    ) -> tuple[SequenceProblem, dict[str, SequencePath]]:
        """Return problem and paths, in the order of the rules."""
        problem = self.problem(train)
        found: dict[str, dict[str, np.ndarray]] = {rule.name: {} for rule in self.rules}
        for name, array in arrays.items():
            rule, _, key = name.partition("/")
            found[rule][key] = array
        paths = {n: self.path_type.from_arrays(own, problem.outline) for n, own in found.items()}
        return problem, paths

    def n_operations(self) -> float:
        """Return about how many multiplications a sequence takes, calls counted as such."""
        n_columns, n_groups = len(self.feature_names), len(self.groups)
        n_steps = n_groups if self.max_groups is None else min(self.max_groups, n_groups)
        return float(n_columns) ** 2 * n_columns * n_steps / n_groups + CALLS * n_steps
