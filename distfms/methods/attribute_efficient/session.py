"""Sessions: examples whose attributes are acquired while it is learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.draws import (
    LARGEST_VALUE,
    Draws,
    drawing_weights,
    smoothed,
)
from distfms.methods.attribute_efficient.from_pairs import Learned, Units
from distfms.methods.attribute_efficient.learner import Chain, Drawn, Penalty, improvement_ratio
from distfms.methods.attribute_efficient.lessons import learned_from
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, RunningPairs
from distfms.methods.attribute_efficient.predictors import (
    ByPattern,
    CutLinear,
    Predictor,
    limits_between,
)
from distfms.stats.base import below, joined


@dataclass(frozen=True, eq=False)
class Questions:
    """Attributes to acquire of some new examples.

    Attributes
    ----------
    examples : ndarray of int64, shape (n,)
        Numbers of the examples, for the answer.
    attributes : ndarray of int64, shape (n, k)
        Columns to acquire of each. One that stands twice in a row is acquired once; where there is
        −1, nothing is.
    """

    examples: np.ndarray
    attributes: np.ndarray


class PairsLearner:
    """Pairs of attributes that were acquired, solved when the weights are asked for.

    Parameters
    ----------
    n_attributes : int
    draws : Draws
        With `phases`, attributes are drawn alike until `n_first` examples are told, and by their
        second moments afterwards.
    penalty : {"ridge", "lasso"}
    takes_gaps : bool
        Whether what was asked for may be missing.
    n_first : int
    units : {"deviations", "raw"}
    """

    def __init__(
        self,
        n_attributes: int,
        draws: Draws,
        penalty: Penalty,
        takes_gaps: bool,
        n_first: int = 0,
        units: Units = "deviations",
    ) -> None:
        self.n_attributes = n_attributes
        self.draws = draws
        self.penalty = penalty
        self.takes_gaps = takes_gaps
        self.n_first = n_first
        self.units = units
        self.n_draws = min(draws.n_drawn or n_attributes, n_attributes)
        self.sums = RunningPairs(n_attributes + 1)
        self.streams = {draws.seed}
        self._learned: Learned | None = None

    def learn_rows(self, rows: np.ndarray, target: np.ndarray, number: int) -> None:
        """Learn from rows, numbered from `number`; of each only what is drawn is looked at."""
        n_first = min(max(self.n_first - self.sums.n_rows, 0), len(rows))
        for start, stop in ((0, n_first), (n_first, len(rows))):
            numbers = np.arange(number + start, number + stop)
            keys = numbers.astype(np.uint64)
            drawing = self._drawing()
            drawn = drawing.observe(rows[start:stop].T, keys)
            observed = np.vstack([drawn, target[start:stop]])
            is_bad = self._is_bad(observed)
            if is_bad.any():
                before = f" The {start} rows before have been learned from." if start else ""
                raise DataError(
                    f"A value or the target of row {start + np.argmax(is_bad)} is missing, "
                    f"infinite or beyond ±{LARGEST_VALUE:g}: leave the row out.{before}"
                )
            self.sums.learn(observed, numbers % INNER_FOLDS)

    def _is_bad(self, observed: np.ndarray) -> np.ndarray:
        """Return which rows (d + 1, n) nothing can be learned from, shape (n,)."""
        is_far = (np.abs(observed) > LARGEST_VALUE).any(axis=0)
        is_bad: np.ndarray = is_far | np.isnan(observed[-1])
        if not self.takes_gaps:
            n_seen = np.isfinite(observed[:-1]).sum(axis=0)
            is_bad |= n_seen < self.n_draws
        return is_bad

    def _drawing(self) -> Draws:
        """Return the draws, by second moments once the first phase is complete."""
        if self.n_first and self.draws.weights is None and self.sums.n_rows >= self.n_first:
            weights = drawing_weights(smoothed(*self.sums.squares()[:, :-1]))
            self.draws = replace(self.draws, weights=weights)
        return self.draws

    def draw(self, number: int) -> Drawn:
        """Return the attributes of example `number`, and ones."""
        drawn = np.arange(self.n_attributes)
        if self.n_draws < self.n_attributes:
            drawn = self._drawing().attributes(np.array([number]), self.n_attributes)[0]
        return drawn, np.ones(self.n_draws)

    def learn_drawn(self, number: int, target: float, values: np.ndarray, drawn: Drawn) -> None:
        """Add the pairs of what was observed of example `number`."""
        seen = ~np.isnan(values)
        columns = np.append(drawn[0][seen], self.n_attributes)
        values = np.append(values[seen], target)
        self.sums.add(number % INNER_FOLDS, columns, np.array([0, len(values)]), values)

    def check(self, values: np.ndarray, target: float, attributes: np.ndarray, name: str) -> None:
        """Raise DataError if an example cannot be learned from."""
        if not np.isfinite(target):
            raise DataError(f"The target of {name} is missing or infinite.")
        far = np.abs(np.append(values, target)) > LARGEST_VALUE
        if far.any():
            names = [f"value of attribute {a}" for a in attributes]
            name_of_far = [*names, "target"][np.argmax(far)]
            raise DataError(
                f"The {name_of_far} of {name} is beyond ±{LARGEST_VALUE:g}, too large to be "
                "squared: correct it, or divide all of them by a constant."
            )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return what was learned as named arrays."""
        weights = {} if self.draws.weights is None else {"weights": self.draws.weights}
        streams = np.array(sorted(self.streams), dtype=np.uint64)
        return {**joined({"pairs": self.sums.to_arrays()}), "streams": streams, **weights}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Inverse of `to_arrays`."""
        self.sums = RunningPairs.from_arrays(below("pairs/", arrays))
        self.streams = set(arrays["streams"].tolist())
        self.draws = replace(self.draws, weights=arrays.get("weights"))

    def merge(self, other: PairsLearner) -> None:
        """Add the examples of another, of other draws."""
        if self.streams & other.streams:
            raise SpecError(
                "The two sessions have the same `random_state`, so they asked for the same "
                "attributes and may hold the same examples. Start each session with its own."
            )
        self.sums.merge(other.sums)
        self.streams |= other.streams

    def _solved(self) -> Learned:
        if self._learned is None or self._learned.n_examples != self.n_examples:
            pairs = self.sums.pairs()
            self._learned = learned_from(pairs, self.penalty, self.units, self.takes_gaps)
        return self._learned

    @property
    def predictor(self) -> Predictor:
        """What predicts rows, of which those with gaps need a learner that takes them."""
        learned = self._solved()
        lowest, highest = self.sums.limits
        is_label = lowest[-1] == -1.0 and highest[-1] == 1.0
        fill = np.full(self.n_attributes, np.nan)
        limits = limits_between(lowest, highest, is_label)
        whole = CutLinear(learned.weights[None], np.array([learned.intercept]), fill, limits)
        return whole if learned.gaps is None else ByPattern(whole, learned.gaps)

    @property
    def weights(self) -> np.ndarray:
        """Weights by all that was told, shape (d,)."""
        return self._solved().weights

    @property
    def intercept(self) -> float:
        """What is predicted for attributes of 0."""
        return self._solved().intercept

    @property
    def n_examples(self) -> int:
        """Examples learned from."""
        return self.sums.n_rows

    @property
    def n_seen(self) -> int:
        """Attributes observed."""
        return int(self.sums.squares()[1, :-1].sum()) if self.sums.n_rows else 0

    @property
    def improvement_ratio(self) -> float:
        """ρ of the second moments of what was observed."""
        if not self.sums.n_rows:
            return float("nan")
        squares, counts = self.sums.squares()[:, :-1]
        return improvement_ratio(self.penalty, squares / np.maximum(counts, 1.0))


class Session:
    """What asks for attributes of examples, and has a learner learn from the answers.

    Parameters
    ----------
    learner : Chain or PairsLearner

    Notes
    -----
    Asked and told one example after the other, a chain does what it does with rows. Examples that
    are asked for together are drawn at the weights of that moment, and so are their residuals
    estimated: the gradients of a batch are unbiased, but as old as the batch is large.
    """

    def __init__(self, learner: Chain | PairsLearner) -> None:
        self.learner = learner
        self.n_asked = 0
        self._open: dict[int, Drawn] = {}

    def learn(self, rows: np.ndarray, target: np.ndarray) -> None:
        """Draw attributes of rows (n, d), in their order, and learn from their values.

        Raises
        ------
        DataError
            If a row cannot be learned from.
        """
        self.learner.learn_rows(rows, target, self.n_asked)
        self.n_asked += len(rows)

    # --- asking and telling ---

    @property
    def n_open(self) -> int:
        """Examples asked for and not told."""
        return len(self._open)

    def ask(self, n: int = 1) -> Questions:
        """Draw the attributes of new examples."""
        numbers = np.arange(self.n_asked, self.n_asked + n)
        drawn = {number: self.learner.draw(number) for number in numbers.tolist()}
        self._open.update(drawn)
        self.n_asked += n
        attributes = [attributes for attributes, _ in drawn.values()]
        return Questions(numbers, np.reshape(attributes, (n, self.learner.n_draws)))

    def tell(self, values: ArrayLike, y: ArrayLike, examples: ArrayLike | None = None) -> None:
        """Learn from the values of attributes that were asked for, in the order given.

        Parameters
        ----------
        values : array-like of shape (n, k)
            Values of the attributes as :class:`Questions` has them; those of −1 do not matter.
        y : array-like of shape (n,)
            Targets.
        examples : array-like of int, shape (n,), optional
            Numbers of the examples; default: the first that were asked for and not told.

        Raises
        ------
        DataError
            If an example was not asked for or was told before, or a value is missing or beyond what
            can be learned from. Nothing has been learned then.
        """
        target = np.array(y, dtype=np.float64, ndmin=1)
        numbers = list(self._open)[: len(target)] if examples is None else examples
        numbers = np.array(numbers, dtype=np.int64, ndmin=1).tolist()
        table = np.array(values, dtype=np.float64, ndmin=2)
        self._check_told(numbers, table, target)
        for number, row, label in zip(numbers, table, target.tolist(), strict=True):
            self.learner.learn_drawn(number, label, row, self._open.pop(number))

    def _check_told(self, numbers: list[int], values: np.ndarray, target: np.ndarray) -> None:
        if len(numbers) != len(target):
            raise DataError(
                f"There are {len(target)} targets, but {len(numbers)} examples that were asked for "
                "and not told: ask for more, or tell fewer."
            )
        shape = (len(numbers), self.learner.n_draws)
        if values.shape != shape:
            raise DataError(
                f"The values have the shape {values.shape}, not {shape}: one row for each example, "
                "with the attributes in the order of the questions."
            )
        for place, number in enumerate(numbers):
            was_asked = 0 <= number < self.n_asked
            if number in numbers[:place] or (was_asked and number not in self._open):
                raise DataError(f"Example {number} was already told: tell every example once.")
            if number not in self._open:
                raise DataError(
                    f"Example {number} was not asked for: questions so far have the numbers below "
                    f"{self.n_asked}."
                )
            attributes, _ = self._open[number]
            is_known = np.isfinite(values[place])
            if self.learner.takes_gaps:
                is_known |= np.isnan(values[place])
            lacking = ~is_known & (attributes >= 0)
            if lacking.any():
                raise DataError(
                    f"The value of attribute {attributes[np.argmax(lacking)]} of example {number} "
                    "is missing or infinite: tell an example once all the values asked for are "
                    "available."
                )
            self.learner.check(values[place], float(target[place]), attributes, f"example {number}")

    # --- saving ---

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the state as named arrays."""
        drawn = list(self._open.values())
        shape = (len(drawn), self.learner.n_draws)
        return {
            **self.learner.to_arrays(),
            "asked": np.array(self.n_asked),
            "open/numbers": np.array(list(self._open), dtype=np.int64),
            "open/attributes": np.reshape([a for a, _ in drawn], shape).astype(np.int64),
            "open/factors": np.reshape([f for _, f in drawn], shape).astype(np.float64),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take the state that a session of the same parameters has saved."""
        self.learner.restore(arrays)
        self.n_asked = int(arrays["asked"])
        drawn = zip(arrays["open/attributes"], arrays["open/factors"], strict=True)
        self._open = dict(zip(arrays["open/numbers"].tolist(), drawn, strict=True))
