"""Sessions: examples whose attributes are acquired while it is learned from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.draws import LARGEST_VALUE, Draws, weights_after
from distfms.methods.attribute_efficient.from_pairs import Learned, Units, learned_from
from distfms.methods.attribute_efficient.learner import Chain, Drawn, Penalty, improvement_ratio
from distfms.methods.attribute_efficient.pairs import Pairs, inner_folds
from distfms.methods.attribute_efficient.predictors import (
    ByPattern,
    CutLinear,
    Predictor,
    limits_between,
)
from distfms.stats.comoments import Moments


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
    penalty : {"ridge", "lasso"}
    takes_gaps : bool
        Whether what was asked for may be missing.
    n_first : int
        Examples that are drawn alike before those that are drawn by their second moments.
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
        self.pairs = Pairs({})
        self.observed = Moments.empty(n_attributes + 1)
        self.streams = [draws.seed]
        self._learned: Learned | None = None

    # --- learning ---

    def learn_rows(self, rows: np.ndarray, target: np.ndarray, number: int) -> None:
        """Learn from rows, numbered from `number`; of each only what is drawn is looked at."""
        n_first = max(self.n_first - self.n_examples, 0)
        self._learn_phase(rows[:n_first], target[:n_first], number, 0)
        self._learn_phase(rows[n_first:], target[n_first:], number + n_first, n_first)

    def _learn_phase(
        self, rows: np.ndarray, target: np.ndarray, number: int, n_before: int
    ) -> None:
        """Learn from rows that are drawn alike, so many of those given coming before."""
        numbers = np.arange(number, number + len(rows))
        drawn = self._drawing().observe(rows.T, numbers.astype(np.uint64))
        observed = np.vstack([drawn, target])
        bad = self._bad_rows(observed)
        if bad.size:
            before = f" The {n_before} rows before have been learned from." if n_before else ""
            raise _refusal(f"row {n_before + bad[0]}", observed[:, bad[0]], before)
        self._add(observed, numbers)

    def tell(
        self, numbers: list[int], target: np.ndarray, values: np.ndarray, drawn: Sequence[Drawn]
    ) -> None:
        """Learn from the values (n, k) of attributes that `draw` returned."""
        observed = np.full((self.n_attributes + 1, len(numbers)), np.nan)
        for place, (columns, _) in enumerate(drawn):
            observed[columns, place] = values[place]
        observed[-1] = target
        bad = self._bad_rows(observed)
        if bad.size:
            raise _refusal(f"example {numbers[bad[0]]}", observed[:, bad[0]])
        self._add(observed, np.array(numbers))

    def _bad_rows(self, observed: np.ndarray) -> np.ndarray:
        """Return the numbers of rows (d + 1, n) that nothing can be learned from."""
        is_far = (np.abs(observed) > LARGEST_VALUE).any(axis=0)
        is_bad: np.ndarray = is_far | np.isnan(observed[-1])
        if not self.takes_gaps:
            is_bad |= np.isfinite(observed[:-1]).sum(axis=0) < self.n_draws
        return np.flatnonzero(is_bad)

    def _add(self, observed: np.ndarray, numbers: np.ndarray) -> None:
        """Add rows (d + 1, n), NaN where nothing was observed."""
        self.pairs = self.pairs.merge(Pairs.of(observed, inner_folds(numbers)))
        self.observed = self.observed.merge(Moments.from_block(observed))
        self._learned = None

    def _drawing(self) -> Draws:
        """Return the draws, by second moments once the first phase is complete."""
        if self.n_first and self.draws.weights is None and self.n_examples >= self.n_first:
            observed = self.observed
            weights = weights_after(observed.second_moment[:-1], observed.weight[:-1])
            self.draws = replace(self.draws, weights=weights)
        return self.draws

    def draw(self, number: int) -> Drawn:
        """Return the attributes of example `number`, and ones."""
        drawn = np.arange(self.n_attributes)
        if self.n_draws < self.n_attributes:
            drawn = self._drawing().attributes(np.array([number]), self.n_attributes)[0]
        return drawn, np.ones(self.n_draws)

    def content(self) -> dict[str, Any]:
        """Return what was learned, as the codec takes it."""
        return {
            "pairs": self.pairs,
            "observed": self.observed,
            "streams": self.streams,
            "weights": self.draws.weights,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `content`."""
        self.pairs = state["pairs"]
        self.observed = state["observed"]
        self.streams = state["streams"]
        self.draws = replace(self.draws, weights=state["weights"])

    def merge(self, other: PairsLearner) -> None:
        """Add the examples of another, of other draws."""
        if set(self.streams) & set(other.streams):
            raise SpecError(
                "The two sessions have the same `random_state`, so they asked for the same "
                "attributes and may hold the same examples. Start each session with its own."
            )
        self.pairs = self.pairs.merge(other.pairs)
        self.observed = self.observed.merge(other.observed)
        self.streams = [*self.streams, *other.streams]
        self._learned = None

    # --- what was learned ---

    @property
    def _solved(self) -> Learned:
        if self._learned is None:
            self._learned = learned_from(self.pairs, self.penalty, self.units, self.takes_gaps)
        return self._learned

    @property
    def predictor(self) -> Predictor:
        """What predicts rows, of which those with gaps need a learner that takes them."""
        learned = self._solved
        lowest = self.observed.minimum
        highest = self.observed.maximum
        is_label = lowest[-1] == -1.0 and highest[-1] == 1.0
        fill = np.full(self.n_attributes, np.nan)
        limits = limits_between(lowest, highest, is_label)
        whole = CutLinear(learned.weights[None], np.array([learned.intercept]), fill, limits)
        return whole if learned.gaps is None else ByPattern(whole, learned.gaps)

    @property
    def weights(self) -> np.ndarray:
        """Weights by all that was told, shape (d,)."""
        return self._solved.weights

    @property
    def intercept(self) -> float:
        """What is predicted for attributes of 0."""
        return self._solved.intercept

    @property
    def n_examples(self) -> int:
        """Examples learned from."""
        return int(self.observed.weight[-1])

    @property
    def n_seen(self) -> int:
        """Attributes observed."""
        return int(self.observed.weight[:-1].sum())

    @property
    def improvement_ratio(self) -> float:
        """ρ of the second moments of what was observed."""
        if not self.n_examples:
            return float("nan")
        return improvement_ratio(self.penalty, self.observed.second_moment[:-1])


def _refusal(name: str, observed: np.ndarray, before: str = "") -> DataError:
    """Return the error of an example whose values (d + 1,), the target last, teach nothing."""
    far = np.flatnonzero(np.abs(observed) > LARGEST_VALUE)
    if not far.size:
        culprit = "The target" if np.isnan(observed[-1]) else "A value"
        problem = "is missing"
    else:
        is_target = far[0] == len(observed) - 1
        culprit = "The target" if is_target else f"The value of attribute {far[0]}"
        problem = f"is infinite or beyond ±{LARGEST_VALUE:g}"
    return DataError(f"{culprit} of {name} {problem}: correct it, or leave it out.{before}")


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
        self.learner.tell(numbers, target, table, [self._open[number] for number in numbers])
        for number in numbers:
            del self._open[number]

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
            if not was_asked:
                raise DataError(
                    f"Example {number} was not asked for: questions so far have the numbers below "
                    f"{self.n_asked}."
                )

    # --- saving ---

    def content(self) -> dict[str, Any]:
        """Return the state, as the codec takes it."""
        return {"learner": self.learner.content(), "asked": self.n_asked, "open": self._open}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state that a session of the same parameters has saved."""
        self.learner.restore(state["learner"])
        self.n_asked = state["asked"]
        self._open = state["open"]
