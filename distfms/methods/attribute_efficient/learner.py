"""Chains: which attributes are drawn, how long the steps are, and what the examples teach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import Literal

import numpy as np

from distfms.errors import DataError
from distfms.methods.attribute_efficient.draws import FIRST_PHASE, Drawing
from distfms.methods.attribute_efficient.predictors import CutLinear
from distfms.stats.base import ratio

Penalty = Literal["ridge", "lasso"]
#: Attributes of an example, and by what their values are multiplied where a chain learns.
Drawn = tuple[np.ndarray, np.ndarray]

#: What ε is multiplied with in the upper bounds on estimated moments (Algorithm 2).
_SMOOTHING = 13.0 / 6.0


def point_probabilities(penalty: Penalty, moments: np.ndarray) -> np.ndarray:
    """Return the probabilities q that minimise the bound on the gradient's size.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}
    moments : ndarray of shape (d,)
        Second moments E[x²], at least 0, not all 0.

    Returns
    -------
    ndarray of shape (d,)
        Proportional to √E[x²] for ridge (equation 2), to E[x²] for lasso (Lemma 4.3).
    """
    weights = np.sqrt(moments) if penalty == "ridge" else np.asarray(moments, dtype=np.float64)
    return weights / weights.sum()


def improvement_ratio(penalty: Penalty, moments: np.ndarray) -> float:
    """Return ρ in (0, 1]: drawing by the moments can save a factor of up to 1/ρ of the attributes.

    Parameters
    ----------
    penalty : {"ridge", "lasso"}
    moments : ndarray of shape (d,)

    References
    ----------
    Section 5 of the paper: ‖s‖_½ / (d Σ s) for ridge, Σ s / (d max s) for lasso.
    """
    if penalty == "ridge":
        return float(np.sqrt(moments).sum() ** 2 / (len(moments) * moments.sum()))
    return float(moments.sum() / (len(moments) * moments.max()))


@dataclass(frozen=True)
class Phase:
    """One phase of learning: how many examples, and what is known of the second moments.

    `n_point` attributes are drawn for the point (k); `moments` (d,) are those of scaled attributes,
    None where all are drawn alike. Where a first phase has estimated them, `doubt` is ε.
    """

    penalty: Penalty
    n_attributes: int
    n_examples: int
    n_point: float
    bound: float
    moments: np.ndarray | None = None
    doubt: float | None = None

    def probabilities(self) -> np.ndarray:
        """Return q, shape (d,)."""
        if self.moments is None:
            return np.full(self.n_attributes, 1.0 / self.n_attributes)
        return point_probabilities(self.penalty, self.moments + _SMOOTHING * (self.doubt or 0.0))

    def step(self) -> float:
        """Return the step η that minimises the bound on the risk."""
        return self._ridge_step() if self.penalty == "ridge" else self._lasso_step()

    def _ridge_step(self) -> float:
        d = self.n_attributes
        k = self.n_point
        m = self.n_examples
        if self.moments is None:
            # 2B/(G√m), G² = 8B²d/k
            square = k / (2.0 * d * m)
            return math.sqrt(square)
        if self.doubt is None:
            # Theorem 3.3
            norm = _half_norm(self.moments)
            return 1.0 / math.sqrt(m * (norm / k + 1.0))
        # Theorem 3.4
        upper = 2.0 * self.moments + 10.0 / 3.0 * self.doubt
        norm = _half_norm(upper)
        norm += d * math.sqrt(5.0 / 3.0 * self.doubt * norm)
        by_moments = k / m / (2.0 * norm + k)
        uniform = k / (6.0 * d * m)
        square = max(uniform, by_moments)
        return math.sqrt(square)

    def _lasso_step(self) -> float:
        d = self.n_attributes
        k = self.n_point
        m = self.n_examples
        log = math.log(2.0 * d)
        if self.moments is None:
            # The minimum of Theorem 4.1 at G² = 8B²d/k, as Hazan and Koren have it.
            square = k * log / (40.0 * d * m)
            return math.sqrt(square) / self.bound
        norm = float(self.moments.sum())
        if self.doubt is None:
            # Theorem 4.4
            square = log / (20.0 * m * (norm / k + 1.0))
            return math.sqrt(square) / self.bound
        # Theorem 4.5
        doubt = min(self.doubt, 1.0)
        added = 20.0 * d * doubt
        norm = 8.0 * norm + added
        square = k * log / (20.0 * m * (norm + k))
        return math.sqrt(square) / self.bound


def _half_norm(moments: np.ndarray) -> float:
    """Return ‖s‖_½ = (Σ √s)²."""
    return float(np.sqrt(moments).sum() ** 2)


# --- chains ---------------------------------------------------------------------------------------

#: Length that no scaled row exceeds but by rounding.
LONGEST = 1.0 + 1e-9
#: Most examples that the norm is estimated from.
MOST_FOR_NORM = 1000


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
    norm : float
        What attributes are divided by, so that ‖x‖₂ ≤ 1 (ridge) or ‖x‖_∞ ≤ 1 (lasso).
    moments : ndarray of shape (d,), or None
        Second moments as the attributes come, for ``sampling="moments"``.
    improved : bool
        Half of the draws are for the inner product, by |w| √E[x²] where the moments are known;
        else one is, by the weights alone.
    step_factor, first_step_factor : float
        Multiply the theoretical steps; the second those of the first of two phases.
    confidence : float
        1 − δ of the moments that a first phase estimates; 0 takes ε = 0.
    first_share : Fraction
        m₁/m, of the first of two phases.
    """

    penalty: Penalty
    sampling: Drawing
    n_attributes: int
    n_draws: int
    n_examples: int
    bound: float
    norm: float
    moments: np.ndarray | None = None
    improved: bool = True
    step_factor: float = 1.0
    first_step_factor: float = 1.0
    confidence: float = 0.0
    first_share: Fraction = Fraction(1, FIRST_PHASE)

    @property
    def n_point(self) -> int:
        """Attributes drawn for the point: k."""
        return self.n_draws - (self.n_draws // 2 if self.improved else 1)

    @property
    def first_examples(self) -> int:
        """Examples of the first phase, m₁; 0 where there is one phase."""
        if self.sampling != "two_phase":
            return 0
        return max(1, int(self.n_examples * self.first_share))

    def phase(self, estimated: np.ndarray | None = None) -> Phase:
        """Return the only or first phase, or the second with the moments that the first found."""
        d = self.n_attributes
        moments = self.moments if self.sampling == "moments" else None
        n_examples = self.first_examples or self.n_examples
        doubt = None
        if estimated is not None:
            moments = estimated
            n_examples = max(1, self.n_examples - self.first_examples)
            doubt = 0.0
            if self.confidence:
                log = math.log(2 * d / (1 - self.confidence))
                doubt = d * log / (self.n_draws * self.first_examples)
        scaled = None if moments is None else moments / self.norm**2
        return Phase(self.penalty, d, n_examples, self.n_point, self.bound, scaled, doubt)

    def in_full(self, n_examples: int) -> Phase:
        """Return a phase that observes all attributes: Theorems 3.3 and 4.4 with k → ∞."""
        d = self.n_attributes
        return Phase(self.penalty, d, n_examples, np.inf, self.bound, np.ones(d))


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

    #: What is predicted for attributes of 0.
    intercept = 0.0
    probabilities: np.ndarray

    def __init__(self, design: Design, key: int) -> None:
        kernels = self._kernels
        self.design = design
        n_attributes = design.n_attributes
        n_leaves = 1 << max(n_attributes - 1, 1).bit_length()
        self.state = kernels.State(
            table=np.zeros((n_attributes, 8)),
            tree=np.zeros(2 * n_leaves),
            shares=np.zeros(n_attributes),
            squares=np.zeros((n_attributes, 2)),
            numbers=np.zeros(kernels.N_NUMBERS),
            counts=np.zeros(kernels.N_COUNTS, dtype=np.int64),
            form=np.zeros(5, dtype=np.int64),
            key=np.array([key], dtype=np.uint64),
        )
        self.n_draws = design.n_draws
        self._begin(design.phase(), np.zeros(n_attributes))

    # --- learning ---

    def learn(self, rows: np.ndarray, target: np.ndarray, order: np.ndarray | None = None) -> None:
        """Draw attributes of each row, in the order given, and learn from their values."""
        order = np.arange(len(rows)) if order is None else np.asarray(order, dtype=np.int64)
        first = max(self.design.first_examples - self.n_examples, 0)
        for part in (order[:first], order[first:]):
            if part.size:
                self._kernels.learn_rows(self.state, rows, target, part)
                self._end_phase()

    def learn_rows(self, rows: np.ndarray, target: np.ndarray, number: int) -> None:
        """Learn from rows, numbered from `number`, up to the first that is refused."""
        for place, row in enumerate(rows):
            attributes, factors = self.draw(number + place)
            values = row[attributes]
            before = f" The {place} rows before have been learned from." if place else ""
            self._check(values, target[place], attributes, f"row {place}", before)
            self._learn(values, target[place], attributes, factors)

    def observed_norm(self, rows: np.ndarray, order: np.ndarray) -> float:
        """Return what to divide rows by, from what is drawn alike of the first ones.

        1.5 times the root mean square of ‖x‖₂, or the greatest |x|; 1 if all are 0. A chain with
        another norm, too, observes what is looked at.
        """
        n_first = min(self.design.first_examples or len(order), len(order), MOST_FOR_NORM)
        drawn = [self.draw(number)[0][: self.design.n_point] for number in range(n_first)]
        squares = rows[order[:n_first, None], drawn] ** 2
        square = 2.25 * self.design.n_attributes * squares.mean()
        if self.design.penalty == "lasso":
            square = squares.max()
        return float(np.sqrt(square)) or 1.0

    def draw(self, number: int) -> Drawn:
        """Return attributes (−1: none) and factors of example `number`, at the present weights."""
        attributes = np.empty(self.design.n_draws, dtype=np.int64)
        factors = np.empty(self.design.n_draws)
        self._kernels.draw(self.state, number, attributes, factors)
        return attributes, factors

    def tell(
        self, numbers: list[int], target: np.ndarray, values: np.ndarray, drawn: Sequence[Drawn]
    ) -> None:
        """Learn from the values (n, k) of attributes that `draw` returned, whatever those of −1."""
        for place, number in enumerate(numbers):
            attributes, _ = drawn[place]
            self._check(values[place], target[place], attributes, f"example {number}")
        for place, (attributes, factors) in enumerate(drawn):
            self._learn(values[place], target[place], attributes, factors)

    def _learn(
        self, values: np.ndarray, target: float, attributes: np.ndarray, factors: np.ndarray
    ) -> None:
        values = np.where(attributes < 0, 0.0, values)
        self._kernels.learn(self.state, target, values, attributes, factors)
        self._end_phase()

    def _check(
        self, values: np.ndarray, target: float, attributes: np.ndarray, name: str, before: str = ""
    ) -> None:
        """Refuse an example that the theory's steps are too long for."""
        design = self.design
        seen = attributes >= 0
        _, firsts = np.unique(attributes[seen], return_index=True)
        order = np.inf if design.penalty == "lasso" else 2
        length = np.linalg.norm(values[seen][firsts], order) / design.norm
        if not np.isfinite(length):
            raise DataError(
                f"A value of {name} is missing or infinite: leave the example out.{before}"
            )
        if length > LONGEST:
            raise DataError(
                f"The attributes of {name} are {length:.3g} times as large as `norm` allows: "
                f"choose a larger `norm` from the start, or divide them.{before}"
            )
        if not abs(target) <= design.bound:
            raise DataError(
                f"The target of {name} is {target:g}, beyond the bound {design.bound:g}: choose a "
                f"larger `bound` from the start, or divide the targets.{before}"
            )

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
        kernels = self._kernels
        table = self.state.table
        scales = self.state.numbers[kernels.TOTAL] - table[:, kernels.SINCE]
        gathered: np.ndarray = table[:, kernels.GATHERED] + table[:, kernels.VALUE] * scales
        return gathered / n_averaged / self.design.norm

    @property
    def improvement_ratio(self) -> float:
        """ρ of the moments that are known, or were estimated; NaN while none are."""
        moments = self.design.moments
        if moments is None and not self.n_examples:
            return float("nan")
        moments = self.estimated_moments if moments is None else moments
        return improvement_ratio(self.design.penalty, moments)

    def content(self) -> dict[str, np.ndarray]:
        """Return what was learned as named arrays."""
        return {**self.state._asdict(), "probabilities": self.probabilities}

    def restore(self, content: Mapping[str, np.ndarray]) -> None:
        """Inverse of `content`."""
        for name, array in self.state._asdict().items():
            array[...] = content[name]
        self.probabilities = content["probabilities"]

    @property
    def predictor(self) -> CutLinear:
        """What predicts rows."""
        fill = np.full(self.design.n_attributes, np.nan)
        unlimited = np.tile([[-np.inf], [np.inf]], len(fill) + 1)
        return CutLinear(self.weights[None], np.zeros(1), fill, unlimited)

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

        An attribute that was never observed has the mean of the others.
        """
        total, count = self.state.squares.T
        seen = count > 0
        means = ratio(total, count)
        means[~seen] = means[seen].mean() if seen.any() else 1.0
        return means

    # --- phases ---

    def _end_phase(self) -> None:
        """Begin the second phase where the first is complete: from its result, by its moments."""
        if self.state.form[self._kernels.GATHERS] and self.n_examples == self.design.first_examples:
            moments = self.estimated_moments
            if not moments.any():
                moments = np.ones_like(moments)
            start = self.weights * self.design.norm
            self._begin(self.design.phase(moments), start)

    def _begin(self, phase: Phase, start: np.ndarray) -> None:
        kernels = self._kernels
        design = self.design
        state = self.state
        is_lasso = design.penalty == "lasso"
        is_first = design.sampling == "two_phase" and phase.moments is None
        moments = phase.moments if design.improved else None
        by_squares = not is_lasso and moments is None
        self.probabilities = phase.probabilities()
        state.shares[:] = np.cumsum(self.probabilities)
        state.form[:] = (is_lasso, by_squares, design.n_point, design.n_draws, is_first)
        table = state.table
        table[:] = 0.0
        drawn = self.probabilities > 0
        divisors = design.n_point * self.probabilities[drawn] * design.norm
        table[drawn, kernels.POINT] = 1.0 / divisors
        table[:, kernels.INNER] = 1.0 if moments is None else np.sqrt(moments)
        numbers = state.numbers
        numbers[:] = 0.0
        numbers[kernels.SCALE] = 1.0
        numbers[kernels.BOUND] = design.bound
        numbers[kernels.INNER_UNIT] = (design.n_draws - design.n_point) * design.norm
        factor = design.first_step_factor if is_first else design.step_factor
        numbers[kernels.STEP] = factor * phase.step()
        if is_lasso:
            table[:, kernels.LOG] = logarithms(start, design.bound)
            numbers[kernels.BASE] = np.abs(table[:, kernels.LOG]).max()
        else:
            table[:, kernels.VALUE] = start
        state.counts[kernels.N_AVERAGED] = 0
        kernels.settle(state)

    @property
    def _kernels(self) -> ModuleType:
        from distfms.methods.attribute_efficient import kernels

        return kernels


def logarithms(weights: np.ndarray, bound: float) -> np.ndarray:
    """Return the logarithms θ with ``bound · sinh θ / Σ cosh θ = weights``; Σ|weights| < bound."""
    from scipy.optimize import brentq

    shares = np.abs(weights) / bound
    if not shares.any():
        return np.zeros_like(weights)
    inside = 1.0 - 1e-9
    total = shares.sum()
    if total > inside:  # on the boundary logarithms are infinite
        shares *= inside / total

    def excess(norm: float) -> float:
        return float(np.hypot(1.0, shares * norm).sum()) - norm

    upper = 2.0 * len(weights)
    while excess(upper) > 0.0:
        upper *= 2.0
    norm = brentq(excess, 0.0, upper, xtol=1e-12, rtol=1e-14)
    return np.copysign(np.arcsinh(shares * norm), weights)
