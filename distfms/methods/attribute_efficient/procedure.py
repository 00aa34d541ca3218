"""What is learned of some rows, and how good it is on others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.attribute_efficient.candidates import (
    judge_of,
    measures_of,
    predictor_of,
    predictors_of_candidates,
    shares_of,
)
from distfms.methods.attribute_efficient.cells import IMPUTED, MIXED, PAIRS, TREES, learned_by
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    ImputedPairs,
    Learned,
    full_candidates,
    learned_from,
    solve,
)
from distfms.methods.attribute_efficient.lessons import Lesson, learn, lesson_of
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.predictors import SideBySide
from distfms.methods.attribute_efficient.read import TrainingRows
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.judge import JudgedRows, LossSums
from distfms.methods.frame.moments import NamedRule, Procedure
from distfms.methods.frame.read import SAMPLE
from distfms.stats.base import Members
from distfms.stats.folds import Answer


@dataclass(frozen=True)
class LearningProcedure(Procedure):
    """What is learned of some rows, and how good it is on others; both are given with the rows.

    Attributes
    ----------
    options : AttributeEfficientOptions
    key : int
        Of the order of examples, and of draws from them.
    operations : float
        Multiplications that it takes to learn once.
    names : tuple of str
        Of the chosen algorithm, and of what is compared with it on folds; the rest is, by curves.
    draws : Draws or None
        Of the attributes that pairs are of; None for the online learner.
    linear : str
        What is mixed with LightGBM.
    """

    options: AttributeEfficientOptions
    key: int
    operations: float
    names: tuple[str, ...]
    draws: Draws | None = None
    linear: str = PAIRS

    @property
    def rules(self) -> tuple[NamedRule, ...]:  # type: ignore[override]
        """Rules of these names."""
        return tuple(NamedRule(name) for name in self.names)

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
        """Return what is learned online of all training rows, or of those without a fold."""
        n_examples = train["counts"].n_rows
        lesson = lesson_of(self.names[0], n_examples, self.key, self.options, train)
        return replace(lesson, fold=train.get("left_out", -1))

    def search(self, problem: Members, rule: NamedRule) -> Learned:
        """Learn from rows, or solve from what was drawn of them."""
        if self.draws is None:
            return learn(self.lesson(problem), problem["rows"])
        if rule.name != MIXED:
            return self._solved(problem, rule.name, self.draws)
        # A linear model and LightGBM, between which the share is to be chosen.
        trees = self._solved(problem, TREES, self.draws).trees
        return replace(self._solved(problem, self.linear, self.draws), trees=trees, share=0.5)

    def _solved(self, problem: Members, name: str, draws: Draws) -> Learned:
        options = self.options
        pairs = problem["pairs"]
        if name == PAIRS:
            takes_gaps = IMPUTED in self.names
            return learned_from(pairs, options.penalty, options.units, takes_gaps)
        if name == IMPUTED:
            return solve(ImputedPairs([*pairs.folds.values()]), full_candidates, options.units)
        n_rows = problem["counts"].n_rows
        return learned_by(name, problem[SAMPLE], draws, n_rows, options.units)

    def grid(self, path: Learned) -> np.ndarray:
        """Return the numbers of the candidates that a path stands for."""
        n_candidates = 1 if self.draws is None else 1 + len(shares_of(path))
        return np.arange(n_candidates, dtype=np.float64)

    def score(
        self, problem: Members, path: Learned, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Measure the candidates on the rows of a fold."""
        models = [predictor_of(path, problem)]
        if self.draws is not None:
            models = predictors_of_candidates(path, problem)
        judge = judge_of(self.options, problem, len(budgets))
        sums = LossSums()
        for features, target in held_out["rows"]():
            rows = JudgedRows(features.T, target[np.newaxis])
            sums = sums.merge(judge.of_rows(SideBySide(models), rows, len(budgets)))
        measures = measures_of(judge, sums)
        return {**measures, "loss_of_mean": np.full_like(measures["mse"], sums.spread[0])}

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
