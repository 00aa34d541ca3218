"""What folds answered: named arrays of few numbers, by item and fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.stats.base import FoldMeans, number_or_none, over_folds

#: What one evaluation on a fold found: named arrays, few numbers.
Answer = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class FoldAnswers:
    """What the folds answered.

    Attributes
    ----------
    folds : tuple of int
        Folds with two rows or more; the others have no answer.
    n_rows : tuple of int
    weight : tuple of float
        Of the rows of each of them.
    answers : tuple of tuple of mapping
        By item, then by fold.
    n_done : int
        Evaluations that were done.
    """

    folds: tuple[int, ...]
    n_rows: tuple[int, ...]
    weight: tuple[float, ...]
    answers: tuple[tuple[Answer, ...], ...]
    n_done: int = 0

    def values(self, item: int, measure: str) -> np.ndarray:
        """Return what the folds answered an item by a measure, shape (…, n_folds)."""
        return np.stack([answer[measure] for answer in self.answers[item]], axis=-1)

    def means(self, item: int, measure: str) -> FoldMeans:
        """Return what the folds say together of an item by a measure."""
        return over_folds(self.values(item, measure), self.weight)

    def with_values(self, values_of: Callable[[int], Answer]) -> FoldAnswers:
        """Return answers with other values (…, n_folds) of some measures of each item."""
        answers = []
        for item, of_folds in enumerate(self.answers):
            values = values_of(item)
            changed = []
            for fold, answer in enumerate(of_folds):
                of_fold = {measure: by_fold[..., fold] for measure, by_fold in values.items()}
                changed.append({**answer, **of_fold})
            answers.append(tuple(changed))
        return replace(self, answers=tuple(answers))

    def entries(self) -> list[dict[str, Any]]:
        """Return for each fold the scores of all that the chosen rule's path affords."""
        entries = []
        for place, answer in enumerate(self.answers[0]):
            entry: dict[str, Any] = {"fold": self.folds[place]}
            for name, values in answer.items():
                if not name.startswith("fold/"):
                    entry[name] = number_or_none(values[-1])
            entries.append(entry | {"n_rows": self.n_rows[place], "weight": self.weight[place]})
        return entries
