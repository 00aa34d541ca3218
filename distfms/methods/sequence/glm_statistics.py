"""Mergeable statistics of a generalised linear model at given coefficients.

One Newton step is one map-reduce: every partition computes :class:`GlmStatistics` of its rows (a
weighted Gram, a gradient, a loss), the partials are merged, and the driver solves for the step.
Rows are standardised inside the block, a cache-sized run of rows at a time: doing it afterwards on
the sums would lose the digits that a column of mean 10⁸ and unit variance needs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distfms.errors import DataError, NumericalError
from distfms.methods.sequence.families import Array, Curvature, Family, get_family

_CHUNK_VALUES = 1 << 17  # one mebibyte of float64: what is standardised at a time stays in cache


@dataclass(frozen=True, eq=False)
class GlmDesign:
    """What stays the same over all passes: family, standardisation, size limit of the Hessian.

    Attributes
    ----------
    family : Family
        A name is accepted too.
    mean, scale : (d,)
        Column means and standard deviations; columns enter as (x − mean) / scale. A scale that is
        zero or not finite (constant column, nothing observed) counts as one, such a mean as zero.
    max_hessian : int
        Softmax only: largest side (n_support + 1)(P − 1) of a full Hessian. Beyond it the passes
        return Böhning's upper bound ½ X̃ᵀX̃ instead, of side n_support + 1: smaller partials, but
        more passes (measured: six to ten times as many). The default means at most 32 MiB in
        each partial.

    References
    ----------
    Böhning, *Multinomial logistic regression algorithm*, Ann. Inst. Statist. Math. 44 (1992).
    """

    family: Family
    mean: Array
    scale: Array
    max_hessian: int = 2048

    def __post_init__(self) -> None:
        mean = np.asarray(self.mean, dtype=np.float64)
        scale = np.asarray(self.scale, dtype=np.float64)
        usable = np.isfinite(scale) & (scale > 0.0)
        object.__setattr__(self, "family", get_family(self.family))
        object.__setattr__(self, "mean", np.where(np.isfinite(mean), mean, 0.0))
        object.__setattr__(self, "scale", np.where(usable, scale, 1.0))

    @property
    def n_columns(self) -> int:
        """Number of feature columns d."""
        return int(self.mean.shape[0])

    def curvature(self, n_support: int, n_outputs: int) -> Curvature:
        """Form of the Hessian for a support of that size: "full" gives way to "bound"."""
        if self.family.curvature != "full":
            return self.family.curvature
        return "full" if (n_support + 1) * (n_outputs - 1) <= self.max_hessian else "bound"

    def original_units(self, weights: Array) -> tuple[Array, Array]:
        """Coefficients (d, P) and intercept (P,) for columns as they are in the data.

        Parameters
        ----------
        weights : (d + 1, P)
            Coefficients of the standardised columns, intercept last.
        """
        coefficients = weights[:-1] / self.scale[:, np.newaxis]
        return coefficients, weights[-1] - self.mean @ coefficients


@dataclass(frozen=True, eq=False)
class GlmStatistics:
    """Sums over rows at coefficients W: loss, gradient, Hessian on the support.

    Attributes
    ----------
    n_samples : int
        Rows.
    weight : float
        Σ w.
    loss : float
        Σ w (φ(η) − yᵀη − saturated), half the deviance.
    saturated : float
        Σ w min_η (φ(η) − yᵀη); ``loss + saturated`` is Σ w (φ(η) − yᵀη) of equation 21.
    gradient : (d + 1, P)
        Σ w x̃ (∇φ(η) − y)ᵀ over all standardised columns, intercept last; without the ridge.
    hessian : (blocks, side, side)
        Second derivative over the support and the intercept (last). Curvature "shared": one block
        for all outputs; "separate": one per output; "full": one block, index q·(s + 1) + column,
        over the first P − 1 classes q (the last class follows, as rows add up to zero); "bound":
        ½ Σ w x̃x̃ᵀ.
    support : (s,) int
        Columns of the Hessian.
    curvature : str
        See ``hessian``.
    response_mean, response_m2 : (P,)
        Weighted mean of y and Σ w (y − mean)².
    min_margin : float
        Least margin of a row with positive weight (see ``Family.margin``); +inf without rows.
    n_clipped : int
        Rows whose linear predictor lies beyond the overflow guard.
    n_missing : (d,) int
        Missing values, each counted as the column mean.
    """

    n_samples: int
    weight: float
    loss: float
    saturated: float
    gradient: Array
    hessian: Array
    support: NDArray[np.int64]
    curvature: Curvature
    response_mean: Array
    response_m2: Array
    min_margin: float
    n_clipped: int
    n_missing: NDArray[np.int64]

    @classmethod
    def from_block(
        cls,
        block: Array,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        weights: Array,
        *,
        design: GlmDesign,
        support: ArrayLike,
    ) -> Self:
        """Statistics of one block of rows.

        Parameters
        ----------
        block : (d, n)
            All feature columns, unstandardised, NaN where missing.
        y : (n,) or (P, n)
            Responses, see ``Family.responses``.
        sample_weight : (n,) or None
            Weights ≥ 0.
        weights : (d + 1, P)
            Coefficients W of the standardised columns, intercept last, zero off the support.
        design : GlmDesign
            Family and standardisation.
        support : (s,)
            Columns that the Hessian is wanted for; coefficients outside it are not looked at.

        Raises
        ------
        DataError
            For infinite values, unusable responses or weights.

        Notes
        -----
        O(n·(d·P + s²)) time, softmax O(n·(d·P + s²P²)); working memory one mebibyte, softmax up
        to P times that.
        """
        columns = np.asarray(support, dtype=np.int64)
        n_outputs = weights.shape[1]
        responses = design.family.responses(y, n_outputs)
        sample_weight = _sample_weight(sample_weight, block.shape[1])
        if responses.shape[1] != block.shape[1] or block.shape[0] != design.n_columns:
            raise NumericalError(
                f"A block of shape {block.shape} came with {responses.shape[1]} responses "
                f"for a design of {design.n_columns} columns."
            )
        sums = _Sums.zeros(design, columns, n_outputs)
        for lo, rows, missing in _standardised(block, design):
            part = slice(lo, lo + rows.shape[1])
            sums.add(rows, responses[:, part], sample_weight[part], weights)
            sums.n_missing += missing
        return cls(
            n_samples=block.shape[1],
            support=columns,
            **_response_moments(responses, sample_weight),
            **sums.values(),
        )

    def merge(self, other: Self) -> Self:
        """Statistics of both sets of rows, at the same coefficients and support.

        Raises
        ------
        NumericalError
            When the two were not computed for the same support.
        """
        if self.curvature != other.curvature or not np.array_equal(self.support, other.support):
            raise NumericalError("Statistics for different supports cannot be merged.")
        weight = self.weight + other.weight
        share = other.weight / weight if weight > 0.0 else 0.0
        shift = other.response_mean - self.response_mean
        return type(self)(
            n_samples=self.n_samples + other.n_samples,
            weight=weight,
            loss=self.loss + other.loss,
            saturated=self.saturated + other.saturated,
            gradient=self.gradient + other.gradient,
            hessian=self.hessian + other.hessian,
            support=self.support,
            curvature=self.curvature,
            response_mean=self.response_mean + share * shift,
            response_m2=self.response_m2
            + other.response_m2
            + self.weight * share * np.square(shift),
            min_margin=min(self.min_margin, other.min_margin),
            n_clipped=self.n_clipped + other.n_clipped,
            n_missing=self.n_missing + other.n_missing,
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the fields as arrays, for storage without pickle."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of :meth:`to_arrays`."""
        values: dict[str, Any] = {field.name: arrays[field.name] for field in fields(cls)}
        scalars = {name: value.item() for name, value in values.items() if value.ndim == 0}
        return cls(**(values | scalars))


@dataclass(frozen=True, eq=False)
class GlmLosses:
    """Losses of several coefficient matrices on the same rows, in one pass (held-out curves).

    Attributes
    ----------
    n_samples : int
        Rows.
    weight : float
        Σ w.
    losses : (K,)
        Σ w (φ(η) − yᵀη − saturated) for each matrix. With the null model among them,
        1 − losses / losses[null] is the explained deviance.
    """

    n_samples: int
    weight: float
    losses: Array

    @classmethod
    def from_block(
        cls,
        block: Array,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        weights: Array,
        *,
        design: GlmDesign,
    ) -> Self:
        """Losses of ``weights`` (K, d + 1, P) on a block (d, n); the rest as in GlmStatistics."""
        n_models, _, n_outputs = weights.shape
        responses = design.family.responses(y, n_outputs)
        sample_weight = _sample_weight(sample_weight, block.shape[1])
        stacked = np.ascontiguousarray(weights.transpose(0, 2, 1).reshape(n_models * n_outputs, -1))
        losses = np.zeros(n_models)
        for lo, rows, _ in _standardised(block, design):
            part = slice(lo, lo + rows.shape[1])
            eta = (stacked @ rows).reshape(n_models, n_outputs, -1)
            for k in range(n_models):
                loss = design.family.loss(eta[k], responses[:, part])
                losses[k] += sample_weight[part] @ loss
        return cls(block.shape[1], float(sample_weight.sum()), losses)

    def merge(self, other: Self) -> Self:
        """Losses on both sets of rows."""
        return type(self)(
            self.n_samples + other.n_samples,
            self.weight + other.weight,
            self.losses + other.losses,
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the fields as arrays, for storage without pickle."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Inverse of :meth:`to_arrays`."""
        return cls(arrays["n_samples"].item(), arrays["weight"].item(), arrays["losses"])


def _sample_weight(sample_weight: ArrayLike | None, n_samples: int) -> Array:
    """Weights as an array, ones when there are none."""
    if sample_weight is None:
        return np.ones(n_samples)
    values = np.asarray(sample_weight, dtype=np.float64)
    if values.shape != (n_samples,) or not np.isfinite(values).all() or (values < 0.0).any():
        raise DataError("Sample weights must be finite, not negative, and one for each row.")
    return values


def _response_moments(y: Array, sample_weight: Array) -> dict[str, Any]:
    """Weight, weighted mean and centred second moment of the responses."""
    weight = float(sample_weight.sum())
    mean = y @ sample_weight / weight if weight > 0.0 else np.zeros(y.shape[0])
    m2 = np.square(y - mean[:, np.newaxis]) @ sample_weight
    return {"weight": weight, "response_mean": mean, "response_m2": m2}


def _standardised(
    block: Array, design: GlmDesign
) -> Iterator[tuple[int, Array, NDArray[np.int64]]]:
    """Yield runs of rows: first row, standardised (d + 1, n) with ones last, missing counts."""
    n_columns, n_samples = block.shape
    # The chunk depends on the number of columns only: another chunking would mean other bits.
    size = max(256, _CHUNK_VALUES // max(n_columns, 1))
    buffer = np.ones((n_columns + 1, min(size, n_samples)))
    mean, inverse = design.mean[:, np.newaxis], 1.0 / design.scale[:, np.newaxis]
    for lo in range(0, n_samples, size):
        raw = block[:, lo : lo + size]
        rows = buffer[:, : raw.shape[1]]
        np.subtract(raw, mean, out=rows[:-1])
        rows[:-1] *= inverse
        yield lo, rows, _impute(rows[:-1])


def _impute(values: Array) -> NDArray[np.int64]:
    """Replace NaN by zero (the mean) in place and count them; refuse infinite values."""
    with np.errstate(invalid="ignore"):  # inf − inf in the sum, reported below
        suspects = np.flatnonzero(~np.isfinite(values.sum(axis=1)))
    counts = np.zeros(values.shape[0], dtype=np.int64)
    for column in suspects:
        if np.isinf(values[column]).any():
            raise DataError(f"Column {column} holds infinite values; mend or exclude the column.")
        gaps = np.isnan(values[column])
        counts[column] = np.count_nonzero(gaps)
        values[column, gaps] = 0.0
    return counts


@dataclass
class _Sums:
    """The sums of :class:`GlmStatistics` while they are being added up."""

    design: GlmDesign
    curvature: Curvature
    active: NDArray[np.int64]  # support and intercept
    gradient: Array
    hessian: Array
    n_missing: NDArray[np.int64]
    loss: float = 0.0
    saturated: float = 0.0
    min_margin: float = np.inf
    n_clipped: int = 0

    @classmethod
    def zeros(cls, design: GlmDesign, support: NDArray[np.int64], n_outputs: int) -> Self:
        """Nothing added yet."""
        d, side = design.n_columns, len(support) + 1
        curvature = design.curvature(len(support), n_outputs)
        blocks = n_outputs if curvature == "separate" else 1
        side *= n_outputs - 1 if curvature == "full" else 1
        return cls(
            design=design,
            curvature=curvature,
            active=np.append(support, d),
            gradient=np.zeros((d + 1, n_outputs)),
            hessian=np.zeros((blocks, side, side)),
            n_missing=np.zeros(d, dtype=np.int64),
        )

    def add(self, rows: Array, y: Array, sample_weight: Array, weights: Array) -> None:
        """Add a run of standardised rows (d + 1, n)."""
        family = self.design.family
        chosen = rows[self.active]
        eta = weights[self.active].T @ chosen
        means = family.mean(eta)
        self.gradient += rows @ (sample_weight * (means - y)).T
        self.loss += float(sample_weight @ family.loss(eta, y))
        self.saturated += float(sample_weight @ family.saturated(y))
        counted = sample_weight > 0.0
        self.min_margin = min(
            self.min_margin, float(np.min(family.margin(eta, y)[counted], initial=np.inf))
        )
        self.n_clipped += int(np.count_nonzero(family.clipped(eta) & counted))
        self._add_hessian(chosen, eta, means, sample_weight)

    def _add_hessian(self, chosen: Array, eta: Array, means: Array, sample_weight: Array) -> None:
        """Add the weighted Grams that the curvature asks for."""
        if self.curvature == "full":
            self._add_coupled(chosen, means, sample_weight)
            return
        factors = {"shared": np.ones((1, 1)), "bound": np.full((1, 1), 0.5)}
        factor = factors.get(self.curvature)
        diagonal = self.design.family.second(eta) if factor is None else factor
        for target, second in zip(self.hessian, diagonal, strict=True):
            scaled = chosen * np.sqrt(sample_weight * second)
            target += scaled @ scaled.T  # numpy sees the same operand twice: a dsyrk

    def _add_coupled(self, chosen: Array, means: Array, sample_weight: Array) -> None:
        """Softmax: (diag π − ππᵀ) ⊗ x̃x̃ᵀ over all classes but the last, as two sorts of Gram."""
        side, shares = chosen.shape[0], means[:-1]
        outer = (np.sqrt(sample_weight) * shares)[:, np.newaxis, :] * chosen
        outer = outer.reshape(-1, chosen.shape[1])
        target = self.hessian[0]
        target -= outer @ outer.T
        for q, share in enumerate(shares):
            scaled = chosen * np.sqrt(sample_weight * share)
            at = slice(q * side, (q + 1) * side)
            target[at, at] += scaled @ scaled.T

    def values(self) -> dict[str, Any]:
        """Return the finished sums by field name."""
        internal = ("design", "active")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in internal}
