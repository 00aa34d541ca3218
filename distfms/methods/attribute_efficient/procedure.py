"""What is learned of some rows, and how good it is on others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.attribute_efficient.candidates import (
    judge_of,
    linear_models_of,
    measures_of,
    predictor_of,
    predictors_of_candidates,
)
from distfms.methods.attribute_efficient.cells import MIXED, NORMAL, TREES, learned_by
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    ImputedPairs,
    Learned,
    full_candidates,
    solve,
)
from distfms.methods.attribute_efficient.lessons import Lesson, learn, learned_from, lesson_of
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.predictors import SideBySide
from distfms.methods.attribute_efficient.read import TrainingRows
from distfms.methods.frame.contract import Answer
from distfms.methods.frame.cross_validation import Fold, Members
from distfms.methods.frame.judge import JudgedRows, LossSums
from distfms.methods.frame.moments import NamedRule, Procedure
from distfms.methods.frame.read import SAMPLE


@dataclass(frozen=True)
class LearningProcedure(Procedure):
    """What is learned of some rows, and how good it is on others; both are given with the rows."""

    options: AttributeEfficientOptions
    key: int
    operations: float
    #: What is learned by, where it is not the chosen algorithm.
    name: str = ""
    #: What pairs are compared with on the same rows, of which these attributes were drawn.
    compared: tuple[str, ...] = ()
    draws: Draws | None = None
    #: What is mixed with LightGBM.
    linear: str = "pairs"

    @property
    def rules(self) -> tuple[NamedRule, ...]:  # type: ignore[override]
        """The chosen algorithm and what is compared with it on folds; the rest is, by curves."""
        return tuple(NamedRule(name) for name in (self.name or self.options.chosen, *self.compared))

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows, also as their weight."""
        n_rows = members["counts"].n_rows
        return n_rows, float(n_rows)

    def learnable(self, train: Members) -> bool:
        """Return whether an attribute varies among what was observed."""
        observed = train.get("observed", train["moments"])
        return not observed.constant_columns()[:-1].all()

    def problem(self, train: Members) -> Members:
        """Return the statistics, which designs are made of."""
        return train

    def lesson(self, train: Members) -> Lesson:
        """Return what is learned of all training rows, or of those without a fold."""
        options = self.options
        n_examples = train["counts"].n_rows
        lesson = lesson_of(self.name or options.chosen, n_examples, self.key, options, train)
        return replace(lesson, fold=train.get("left_out", -1))

    def search(self, problem: Members, rule: NamedRule) -> Learned:
        """Solve from pairs, or learn from rows."""
        if "pairs" in problem:
            pairs = problem["pairs"]
            units = self.options.units
            if rule.name == "imputed":
                return solve(ImputedPairs([*pairs.folds.values()]), full_candidates, units)
            if self.draws is not None and rule.name in self.compared:
                n_rows = problem["counts"].n_rows
                return learned_by(rule.name, problem[SAMPLE], self.draws, n_rows, units)
            if rule.name == MIXED:
                return self._mixed(problem)
            return self._linear(problem, "pairs")
        return learn(self.lesson(problem), problem["rows"])

    def _mixed(self, problem: Members) -> Learned:
        """Return a linear model and LightGBM, between which the share is to be chosen."""
        assert self.draws is not None
        sample = problem[SAMPLE]
        n_rows = problem["counts"].n_rows
        trees = learned_by(TREES, sample, self.draws, n_rows, self.options.units)
        return replace(self._linear(problem, self.linear), trees=trees.trees, share=0.5)

    def _linear(self, problem: Members, kind: str) -> Learned:
        """Return a normal model, or a linear model of pairs."""
        options = self.options
        if kind == NORMAL:
            assert self.draws is not None
            n_rows = problem["counts"].n_rows
            return learned_by(NORMAL, problem[SAMPLE], self.draws, n_rows, options.units)
        takes_gaps = "imputed" in self.compared
        return learned_from(problem["pairs"], options.penalty, options.units, takes_gaps)

    def grid(self, path: Learned) -> np.ndarray:
        """Return the numbers of the candidates that a path stands for."""
        if self.options.solver == "online":
            return np.zeros(1)
        n_candidates = 2
        if path.trees and path.share < 1.0:
            n_candidates = 1 + sum(len(shares) for _, shares in linear_models_of(path))
        return np.arange(n_candidates, dtype=np.float64)

    def score(
        self, problem: Members, path: Learned, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Measure the candidates on the rows of a fold."""
        models = [predictor_of(path, problem)]
        if self.options.solver == "pairs":
            models = predictors_of_candidates(path, problem)
        judge = judge_of(self.options, problem, len(budgets))
        sums = LossSums()
        for features, target in held_out["rows"]():
            rows = JudgedRows(features.T, target[np.newaxis])
            sums = sums.merge(judge.of_rows(SideBySide(models), rows, len(budgets)))
        return measures_of(judge, sums)

    def n_operations(self) -> float:
        """Return about how many multiplications it takes to learn once."""
        return self.operations


def on_rows(
    rows: TrainingRows, evaluate: Callable[[Fold, Any], Answer], fold: Fold, item: Any
) -> Answer:
    """Evaluate an item on a fold, with the rows as well."""
    train = {**fold.train, "rows": rows, "left_out": fold.number}
    held_out = {**fold.held_out, "rows": partial(rows.of_fold, fold.number)}
    return evaluate(Fold(train, held_out, fold.number), item)
