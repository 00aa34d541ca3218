"""A chain: the weights that some examples have taught, of which few attributes were observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import DataError
from distfms.methods.attribute_efficient.draws import FIRST_PHASE
from distfms.methods.attribute_efficient.sampling import (
    Penalty,
    Phase,
    Sampling,
    alias_table,
    improvement_ratio,
    smoothing,
)


@dataclass(frozen=True, eq=False)
class Design:
    """What is learned, how, and what is known before the first example.

    Attributes
    ----------
    penalty : {"ridge", "lasso"}
    sampling : {"uniform", "moments", "two_phase"}
    n_attributes : int
        d.
    n_draws : int
        k + 1, at least 2.
    n_examples : int
        m, that the steps are for; more may come.
    bound : float
        B, of the weights of scaled attributes.
    norm : float, or ndarray of shape (d,)
        What attributes are divided by, so that ‖x‖₂ ≤ 1 (ridge) or ‖x‖_∞ ≤ 1 (lasso).
    moments : ndarray of shape (d,), or None
        Second moments as the attributes come, for ``sampling="moments"``.
    even_split : bool
        Half of the draws for the inner product rather than one.
    improved : bool
        Draw for the inner product by |w| √E[x²] where the moments are known.
    step_factor, first_step_factor : float
        Multiply the theoretical steps; the second those of the first of two phases.
    fixed_step : float, optional
        Instead of the theoretical step, but for the first of two phases.
    offset : float
        Taken off every target: the intercept of the model.
    confidence : float
        1 − δ of the moments that a first phase estimates; 0 takes ε = 0.
    """

    penalty: Penalty
    sampling: Sampling
    n_attributes: int
    n_draws: int
    n_examples: int
    bound: float
    norm: Any
    moments: np.ndarray | None = None
    even_split: bool = True
    improved: bool = True
    step_factor: float = 1.0
    first_step_factor: float = 1.0
    confidence: float = 0.0
    fixed_step: float | None = None
    offset: float = 0.0

    @property
    def units(self) -> np.ndarray:
        """What each attribute is divided by, shape (d,)."""
        return np.full(self.n_attributes, self.norm, dtype=np.float64)

    @property
    def improvement_ratio(self) -> float:
        """ρ of the moments of scaled attributes; NaN while none are known."""
        if self.moments is None:
            return float("nan")
        return improvement_ratio(self.penalty, self.moments / self.units**2)

    @property
    def n_point(self) -> int:
        """Attributes drawn for the point: k."""
        return self.n_draws - (self.n_draws // 2 if self.even_split else 1)

    @property
    def first_examples(self) -> int:
        """Examples of the first phase, m₁; 0 where there is one phase."""
        return max(1, self.n_examples // FIRST_PHASE) if self.sampling == "two_phase" else 0

    def require_within(
        self,
        rows: np.ndarray,
        target: np.ndarray,
        name: str = "row {}",
        attributes: Any = slice(None),
    ) -> None:
        """Refuse rows beyond the norm, by values of all or some attributes, and targets beyond B.

        Ridge divides standardized attributes by a mean norm: rows may then be longer.
        """
        order = 2 if self.penalty == "ridge" else np.inf
        lengths = np.linalg.norm(rows / self.units[attributes], order, axis=1)
        at = int(np.argmax(lengths))
        if lengths[at] > 1.0 + 1e-9 and not (self.penalty == "ridge" and np.ndim(self.norm)):
            raise DataError(
                f"The attributes of {name.format(at)} are {lengths[at]:.3g} times as large as "
                "`norm` allows: choose a larger `norm` from the start, or divide them."
            )
        beyond = ~(np.abs(target - self.offset) <= self.bound)
        if beyond.any():
            at = int(np.argmax(beyond))
            raise DataError(
                f"The target of {name.format(at)} is {target[at]:g}, beyond the bound "
                f"{self.bound:g}: choose a larger `bound` from the start, or divide the targets."
            )

    def phase(self, estimated: np.ndarray | None = None) -> Phase:
        """Return the only or first phase, or the second with the moments that the first found."""
        moments, more = self.moments if self.sampling == "moments" else None, {}
        n_examples = self.first_examples or self.n_examples
        if estimated is not None:
            n_examples = max(1, self.n_examples - self.first_examples)
            draws = float(self.n_draws * self.first_examples)
            more = {
                "smoothing": smoothing(self.n_attributes, draws, self.confidence),
                "first_draws": draws,
                "confidence": self.confidence,
            }
            moments = estimated
        scaled = None if moments is None else moments / self.norm**2
        return Phase(
            self.penalty, self.n_attributes, n_examples, self.n_point, self.bound, scaled, **more
        )


class Chain:
    """GAERR or GAELR on a sequence of examples.

    Parameters
    ----------
    design : Design
    key : int
        Of the stream of random numbers, below 2⁶⁴.

    References
    ----------
    Kukliansky and Shamir, "Attribute Efficient Linear Regression with Distribution-Dependent
    Sampling" (ICML 2015), Algorithms 1 to 4.
    """

    def __init__(self, design: Design, key: int) -> None:
        from distfms.methods.attribute_efficient import kernels

        self.design = design
        n_attributes = design.n_attributes
        n_leaves = 1 << max(n_attributes - 1, 1).bit_length()
        self.state = kernels.State(
            table=np.zeros((n_attributes, 8)),
            tree=np.zeros(2 * n_leaves),
            alias=np.zeros((n_attributes, 2)),
            squares=np.zeros((n_attributes, 2)),
            spans=np.zeros(kernels.MOST_SPANS),
            numbers=np.zeros(kernels.N_NUMBERS),
            counts=np.zeros(kernels.N_COUNTS, dtype=np.int64),
            form=np.zeros(5, dtype=np.int64),
            key=np.array([key], dtype=np.uint64),
            units=design.units,
        )
        self._begin(design.phase(), np.zeros(n_attributes))

    # --- learning ---

    def learn(self, rows: np.ndarray, target: np.ndarray, order: np.ndarray | None = None) -> None:
        """Draw attributes of each row, in the order given, and learn from their values."""
        order = np.arange(len(rows)) if order is None else np.asarray(order, dtype=np.int64)
        target = target - self.design.offset
        first = max(self.design.first_examples - self.n_examples, 0)
        for part in (order[:first], order[first:]):
            self._kernels.learn_rows(self.state, rows, target, part)
            self._end_phase()

    def draw(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return attributes (−1: none) and factors of example `number`, at the present weights."""
        attributes = np.empty(self.design.n_draws, dtype=np.int64)
        factors = np.empty(self.design.n_draws)
        self._kernels.draw(self.state, number, attributes, factors)
        return attributes, factors

    def learn_drawn(
        self, target: float, values: np.ndarray, attributes: np.ndarray, factors: np.ndarray
    ) -> None:
        """Learn from the values of attributes that `draw` returned."""
        target -= self.design.offset
        self._kernels.learn(self.state, target, values, attributes, factors)
        self._end_phase()

    # --- what was learned ---

    @property
    def n_examples(self) -> int:
        """Examples learned from."""
        return int(self.state.counts[self._kernels.N_EXAMPLES])

    @property
    def n_seen(self) -> int:
        """Attributes observed, an attribute of an example once however often it was drawn."""
        return int(self.state.counts[self._kernels.N_SEEN])

    @property
    def weights(self) -> np.ndarray:
        """Average of the weights of the last phase, for attributes as they come, shape (d,)."""
        n_averaged = int(self.state.counts[self._kernels.N_AVERAGED])
        if not n_averaged:
            return self.current / self.design.norm
        gathered: np.ndarray = self._kernels.gathered(self.state)
        return gathered / n_averaged / self.design.norm

    @property
    def step(self) -> float:
        """Length of the steps, η."""
        return float(self.state.numbers[self._kernels.STEP])

    @property
    def current(self) -> np.ndarray:
        """Weights after the last example, for scaled attributes."""
        return self.state.numbers[self._kernels.SCALE] * self.state.table[:, self._kernels.VALUE]

    @property
    def estimated_moments(self) -> np.ndarray:
        """Mean squares of the attributes that a first phase observed, as they come, shape (d,).

        An attribute that was never observed has the mean of the others, once they are scaled.
        """
        total, count = self.state.squares.T
        squares, seen = self.state.units**2, count > 0
        means = np.divide(total, count, out=np.zeros(len(total)), where=seen)
        means[~seen] = (means / squares)[seen].mean() * squares[~seen] if seen.any() else 1.0
        return means

    # --- phases ---

    def _end_phase(self) -> None:
        """Begin the second phase where the first is complete: from its result, by its moments."""
        if self.state.form[self._kernels.GATHERS] and self.n_examples == self.design.first_examples:
            start, moments = self.weights * self.design.norm, self.estimated_moments
            known = moments if moments.any() else np.ones_like(moments)
            self._begin(self.design.phase(known), start)

    def _begin(self, phase: Phase, start: np.ndarray) -> None:
        kernels, design = self._kernels, self.design
        first = design.sampling == "two_phase" and phase.moments is None
        self.probabilities = probabilities = phase.probabilities()
        known = phase.moments if design.improved else None
        squares = design.penalty == "ridge" and known is None
        state, drawn = self.state, probabilities > 0
        state.alias[:] = alias_table(probabilities)
        state.form[:] = (design.penalty == "lasso", squares, design.n_point, design.n_draws, first)
        table, numbers = state.table, state.numbers
        table[:] = 0.0
        divisors = design.n_point * probabilities[drawn] * state.units[drawn]
        table[drawn, kernels.POINT] = 1.0 / divisors
        table[:, kernels.INNER] = 1.0 if known is None else np.sqrt(known)
        numbers[:] = 0.0
        numbers[kernels.SCALE], numbers[kernels.BOUND] = 1.0, design.bound
        factor = design.first_step_factor if first else design.step_factor
        fixed = None if first else design.fixed_step
        numbers[kernels.STEP] = factor * phase.step() if fixed is None else fixed
        if design.penalty == "lasso":
            table[:, kernels.LOG] = logarithms(start, design.bound)
            numbers[kernels.BASE] = np.abs(table[:, kernels.LOG]).max()
        else:
            table[:, kernels.VALUE] = start
        # No scales of the phase before are to be gathered.
        state.spans[:] = 0.0
        state.counts[[kernels.N_AVERAGED, kernels.N_SPANS]] = 0
        kernels.settle(state)

    @property
    def _kernels(self) -> ModuleType:
        from distfms.methods.attribute_efficient import kernels

        return kernels


@dataclass(frozen=True, eq=False)
class Questions:
    """Attributes to acquire of some new examples.

    Attributes
    ----------
    examples : ndarray of int64, shape (n,)
        Numbers of the examples, for the answer.
    attributes : ndarray of int64, shape (n, k + 1)
        Columns to acquire of each. One that stands twice in a row is acquired once; where there is
        −1, nothing is.
    """

    examples: np.ndarray
    attributes: np.ndarray


class Session:
    """A chain whose caller acquires the attributes.

    Parameters
    ----------
    chain : Chain

    Notes
    -----
    Asked and told one example after the other, it does what the chain does with rows. Examples that
    are asked for together are drawn at the weights of that moment, and so are their residuals
    estimated: the gradients of a batch are unbiased, but as old as the batch is large.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.n_asked = chain.n_examples
        self._open: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def n_open(self) -> int:
        """Examples asked for and not told."""
        return len(self._open)

    def ask(self, n: int = 1) -> Questions:
        """Draw the attributes of new examples."""
        numbers = np.arange(self.n_asked, self.n_asked + n)
        drawn = [self.chain.draw(number) for number in numbers.tolist()]
        self._open.update(zip(numbers.tolist(), drawn, strict=True))
        self.n_asked += n
        attributes = [attributes for attributes, _ in drawn]
        return Questions(numbers, np.reshape(attributes, (n, self.chain.design.n_draws)))

    def tell(self, values: ArrayLike, y: ArrayLike, examples: ArrayLike | None = None) -> None:
        """Learn from the values of attributes that were asked for, in the order given.

        Parameters
        ----------
        values : array-like of shape (n, k + 1)
            Values of the attributes as :class:`Questions` has them; those of −1 do not matter.
        y : array-like of shape (n,)
            Targets.
        examples : array-like of int, shape (n,), optional
            Numbers of the examples; default: the first that were asked for and not told.

        Raises
        ------
        DataError
            If an example was not asked for or was told before, a value is missing, or values are
            beyond the norm or the bound. Nothing has been learned then.
        """
        target = np.array(y, dtype=np.float64, ndmin=1)
        numbers = list(self._open)[: len(target)] if examples is None else examples
        numbers = np.array(numbers, dtype=np.int64, ndmin=1).tolist()
        table = np.array(values, dtype=np.float64, ndmin=2)
        self._check_told(numbers, table, target)
        for number, row, label in zip(numbers, table, target.tolist(), strict=True):
            attributes, factors = self._open.pop(number)
            row = np.where(attributes < 0, 0.0, row)
            self.chain.learn_drawn(label, row, attributes, factors)

    def _check_told(self, numbers: list[int], values: np.ndarray, target: np.ndarray) -> None:
        if len(numbers) != len(target):
            raise DataError(
                f"There are {len(target)} targets, but {len(numbers)} examples that were asked for "
                "and not told: ask for more, or tell fewer."
            )
        shape = (len(numbers), self.chain.design.n_draws)
        if values.shape != shape:
            raise DataError(
                f"The values have the shape {values.shape}, not {shape}: one row for each example, "
                "with the attributes in the order of the questions."
            )
        for place, number in enumerate(numbers):
            if number in numbers[:place] or (0 <= number < self.n_asked) > (number in self._open):
                raise DataError(f"Example {number} was told before: tell every example once.")
            if number not in self._open:
                raise DataError(
                    f"Example {number} was not asked for: questions so far have the numbers below "
                    f"{self.n_asked}."
                )
            attributes = self._open[number][0]
            lacking = ~np.isfinite(values[place]) & (attributes >= 0)
            if lacking.any():
                raise DataError(
                    f"The value of attribute {attributes[np.argmax(lacking)]} of example {number} "
                    "is missing or infinite: tell an example when all that was asked is there."
                )
            own, at = np.unique(attributes, return_index=True)
            asked = own >= 0
            self.chain.design.require_within(
                values[[place]][:, at[asked]], target[[place]], f"example {number}", own[asked]
            )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the state as named arrays."""
        drawn = list(self._open.values())
        shape = (len(drawn), self.chain.design.n_draws)
        return {
            **self.chain.state._asdict(),
            "probabilities": self.chain.probabilities,
            "asked": np.array(self.n_asked),
            "open/numbers": np.array(list(self._open), dtype=np.int64),
            "open/attributes": np.reshape([a for a, _ in drawn], shape).astype(np.int64),
            "open/factors": np.reshape([f for _, f in drawn], shape).astype(np.float64),
        }

    @classmethod
    def from_arrays(cls, design: Design, arrays: Mapping[str, np.ndarray]) -> Session:
        """Inverse of `to_arrays`, for the same design."""
        chain = Chain(design, int(arrays["key"][0]))
        for name, array in chain.state._asdict().items():
            array[...] = arrays[name]
        chain.probabilities = arrays["probabilities"]
        session = cls(chain)
        session.n_asked = int(arrays["asked"])
        drawn = zip(arrays["open/attributes"], arrays["open/factors"], strict=True)
        session._open = dict(zip(arrays["open/numbers"].tolist(), drawn, strict=True))
        return session


def logarithms(weights: np.ndarray, bound: float) -> np.ndarray:
    """Return the logarithms θ with ``bound · sinh θ / Σ cosh θ = weights``; Σ|weights| < bound."""
    from scipy.optimize import brentq

    shares = np.abs(weights) / bound
    if not shares.any():
        return np.zeros_like(weights)
    inside, total = 1.0 - 1e-9, shares.sum()
    if total > inside:  # on the boundary logarithms are infinite
        shares *= inside / total

    def excess(norm: float) -> float:
        return float(np.hypot(1.0, shares * norm).sum()) - norm

    upper = 2.0 * len(weights)
    while excess(upper) > 0.0:
        upper *= 2.0
    norm = brentq(excess, 0.0, upper, xtol=1e-12, rtol=1e-14)
    return np.copysign(np.arcsinh(shares * norm), weights)
