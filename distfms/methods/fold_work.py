"""What is to be evaluated on the folds of a cross-validation, and for which points of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Answer = Mapping[str, np.ndarray]

#: Multiplications that take as long as the calls of one greedy step on small arrays: 0.13 ms of
#: 6 · 10⁹ a second (measured on 30 to 1,000 columns).
CALLS = 8e5


@dataclass(frozen=True, eq=False)
class FoldWork:
    """What to evaluate on which folds; picklable.

    Attributes
    ----------
    file : str
        Statistics in the run folder, an npz file.
    load : callable
        From the arrays of the file to the statistics of all folds.
    split : callable
        From these and the number of a fold to what the evaluation wants of it, or None where the
        fold has too few rows.
    evaluate : callable
        From (that, item) to the answer: named arrays, few numbers.
    items : sequence
    n_folds : int
    held_bytes : int
        Memory that an actor takes for the statistics of all folds and what `split` makes of them.
    n_operations : float
        About how many multiplications all evaluations take together; see `CALLS`.
    """

    file: str
    load: Callable[[Mapping[str, np.ndarray]], Any]
    split: Callable[[Any, int], Any]
    evaluate: Callable[[Any, Any], Answer]
    items: Sequence[Any]
    n_folds: int
    held_bytes: int
    n_operations: float

    @property
    def n_units(self) -> int:
        """Number of evaluations."""
        return len(self.items) * self.n_folds


@dataclass(frozen=True, eq=False)
class TuneWork:
    """How points of a grid are evaluated.

    Attributes
    ----------
    work : FoldWork
        Its answers have ``values`` (as many as points that the item stands for), ``weight`` and
        ``n_rows`` of the fold.
    places : tuple of (int, int)
        For each point its item and the place among the item's values: one path of choices gives
        the value of every smaller budget.
    """

    work: FoldWork
    places: tuple[tuple[int, int], ...]
