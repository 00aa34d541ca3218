"""Rows as passes for generalised linear models see them, and what these passes add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distfms.methods.sequence.problem import LeftOut, Scaling
from distfms.solve.losses import FAMILIES, Family
from distfms.stats.sums import Sums

#: Four mebibytes of float64, so that what is done once a chunk costs little beside its products.
_CHUNK_VALUES = 1 << 19


@dataclass(frozen=True, eq=False)
class GlmRows:
    """Rows as generalised linear models see them.

    `values` (d, n) are those of the columns of a `GlmDesign` but the intercept; `response` is
    (P, n), or (n,) for class numbers; `weight` (n,); `fold` (n,).
    """

    values: np.ndarray
    response: np.ndarray
    weight: np.ndarray
    fold: np.ndarray


@dataclass(frozen=True, eq=False)
class GlmModel:
    """What a pass is to evaluate: weights (d + 1, P), intercept last, on all rows but of folds.

    A model `with_hessian` is asked about alone.
    """

    weights: np.ndarray
    left_out: LeftOut = -1
    with_hessian: bool = False


@dataclass(frozen=True, eq=False)
class GlmDesign:
    """What stays the same over all passes: family, number of outputs P, and the columns.

    These are the standardised columns that are not constant, 0 where a value is missing; then, of
    those at the places `gaps` among them, 1 where a value is there and 0 where it is missing; then
    the intercept. So every view can take missing values for the mean of its own rows. The `guide`
    of fits, where there is one, is what `guide_of` returns.
    """

    family: str
    n_outputs: int
    scaling: Scaling
    guide: tuple[np.ndarray, np.ndarray] | None = None
    gaps: Sequence[int] = ()

    @property
    def kind(self) -> Family:
        """What the family is."""
        return FAMILIES[self.family]

    def rows(
        self, features: np.ndarray, response: np.ndarray, weight: np.ndarray, fold: np.ndarray
    ) -> GlmRows:
        """Make the columns of features (D, n) in memory of their own, and check the response."""
        kept = self.scaling.kept
        n_kept = len(kept)
        values = features[np.append(kept, kept[list(self.gaps)])]
        is_there = ~np.isnan(values[n_kept:])
        values[n_kept:] = is_there
        standardised = values[:n_kept]
        standardised -= self.scaling.mean[kept][:, np.newaxis]
        standardised /= self.scaling.scale[kept][:, np.newaxis]
        np.copyto(standardised, 0.0, where=np.isnan(standardised))
        self.kind.require(response)
        return GlmRows(values, np.array(response, dtype=np.float64), np.array(weight), fold)

    def sums(self, rows: GlmRows, models: Sequence[GlmModel]) -> Sums:
        """Add up ``weight`` (M,), ``loss`` (M,) and ``gradient`` (M, d + 1, P) of M models.

        Also the ``hessian`` (1, d + 1, d + 1) of one that asks for it.
        """
        n_models = len(models)
        n_values, n_outputs = models[0].weights.shape
        weights = np.concatenate([model.weights for model in models], axis=1)
        intercepts = weights[-1][:, np.newaxis]
        slopes = weights[:-1]
        left_out = np.array([np.broadcast_to(model.left_out, 2) for model in models])
        total = np.zeros(n_models)
        loss = np.zeros(n_models)
        gradient = np.zeros_like(weights)
        has_hessian = models[0].with_hessian
        hessian = np.zeros((1, n_values, n_values) if has_hessian else 0)
        # Other chunks would mean other bits, so they depend on what is asked alone.
        size = max(256, _CHUNK_VALUES // max(n_values, 4 * slopes.shape[1]))
        for start in range(0, rows.values.shape[1], size):
            part = slice(start, start + size)
            values = rows.values[:, part]
            is_kept = (rows.fold[part] != left_out[..., np.newaxis]).all(axis=1)
            weight = np.where(is_kept, rows.weight[part], 0.0)
            scores = slopes.T @ values + intercepts
            eta = scores.reshape(n_models, n_outputs, -1).swapaxes(0, 1)
            response = self.kind.responses(rows.response[..., part], n_outputs)
            y = response[:, np.newaxis]
            total += weight.sum(axis=1)
            loss += np.einsum("mn,mn->m", weight, self.kind.loss(eta, y))
            mean = self.kind.mean(eta)
            if has_hessian:
                hessian += self._hessian(values, mean[:, 0], weight[0])
            # Residuals take the memory of the scores.
            np.subtract(mean, y, out=eta)
            eta *= weight
            gradient[:-1] += values @ scores.T
            gradient[-1] += scores.sum(axis=1)
        by_model = gradient.reshape(n_values, n_models, n_outputs)
        gradients = np.moveaxis(by_model, 1, 0).copy()
        sums = {"weight": total, "loss": loss, "gradient": gradients}
        if has_hessian:
            sums["hessian"] = hessian
        return Sums(sums)

    def _hessian(self, values: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return Σ w v(μ) x xᵀ (d + 1, d + 1) over rows (d, n) with a last entry of 1."""
        variance = self.kind.variance(mean).sum(axis=0)
        ones = np.ones((1, values.shape[1]))
        scaled = np.concatenate((values, ones)) * np.sqrt(weight * variance)
        return np.asarray(scaled @ scaled.T)


class View:
    """The rows in memory, without those of a fold or two, as columns of another scaling.

    That of the rows without a fold differs from that of all rows.
    """

    def __init__(self, design: GlmDesign, scaling: Scaling, left_out: LeftOut = -1) -> None:
        self.design = design
        self.left_out = left_out
        whole = design.scaling
        columns = scaling.kept
        n_whole = len(whole.kept)
        scale = scaling.scale[columns, np.newaxis]
        self._n_design = n_whole + len(design.gaps) + 1
        self._places = np.searchsorted(whole.kept, columns)
        # What says whether a value is there: the intercept, where all are.
        is_there = np.full(n_whole, self._n_design - 1)
        is_there[list(design.gaps)] = np.arange(n_whole, self._n_design - 1)
        self._is_there = is_there[self._places]
        self._ratio = whole.scale[columns, np.newaxis] / scale
        self._shift = (whole.mean - scaling.mean)[columns, np.newaxis] / scale
        self.guide = None
        if design.guide is not None:
            hessian, slope = design.guide
            half = self._turned(hessian)
            self.guide = self._turned(half.T), self._turned(slope)

    def model(self, weights: np.ndarray) -> GlmModel:
        """Return what a pass evaluates for weights on these columns."""
        slopes = weights[:-1]
        whole = np.zeros((self._n_design, weights.shape[1]))
        whole[self._places] = slopes * self._ratio
        whole[-1] = weights[-1]
        np.add.at(whole, self._is_there, slopes * self._shift)
        return GlmModel(whole, self.left_out)

    def sums(self, of_design: Sums) -> Sums:
        """Return the sums of a pass with the gradient of these columns."""
        gradient = self._turned(of_design["gradient"])
        return Sums({**of_design.arrays, "gradient": gradient})

    def _turned(self, gradient: np.ndarray) -> np.ndarray:
        """Return a gradient by the columns of the design, the first axis, as one by these."""
        slopes = self._ratio * gradient[self._places] + self._shift * gradient[self._is_there]
        return np.vstack((slopes, gradient[-1:]))
