"""Judgment statistics of a run of attributes, for more attributes than one process can pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.stats.comoment_block import ComomentBlock
from distfms.stats.judgments import (
    SUMS,
    WITHIN_COUNTS,
    checked_judgments,
    given_or_estimated,
    refuse,
    with_prefix,
    within_objects,
)
from distfms.stats.ragged import Ragged


@dataclass(frozen=True, eq=False)
class AttributeEstimates:
    """Estimates of single attributes: what is known of `n` of them without their pairs.

    Attributes
    ----------
    b, v, noise, sigma, means : ndarray of shape (n,)
        As in :class:`~distfms.stats.judgments.JudgmentEstimates`.
    external_variance : ndarray of shape (n,)
        σ̂², at least 0.
    n_judgments, n_missing : ndarray of shape (n,), int
    mean_judgments : ndarray of shape (n,)
    label_variance, label_mean : float
    n_objects : int
    """

    b: np.ndarray
    v: np.ndarray
    noise: np.ndarray
    sigma: np.ndarray
    means: np.ndarray
    external_variance: np.ndarray
    n_judgments: np.ndarray
    n_missing: np.ndarray
    mean_judgments: np.ndarray
    label_variance: float
    label_mean: float
    n_objects: int

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> AttributeEstimates:
        """Inverse of :meth:`to_arrays`."""
        values: dict[str, Any] = {f.name: arrays[f.name] for f in fields(cls)}
        return cls(**{n: v if v.ndim else v.item() for n, v in values.items()})

    @classmethod
    def concatenate(cls, parts: Sequence[AttributeEstimates]) -> AttributeEstimates:
        """Put together the estimates of runs of attributes from the same objects, in order."""
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name, value in vars(parts[0]).items()
            if isinstance(value, np.ndarray)
        }
        return cls(**(vars(parts[0]) | joined))


@dataclass(frozen=True, eq=False)
class JudgmentBlockStatistics:
    """Mergeable summary of the judgments of the attributes ``[start, start + n)`` of `d`.

    The blocks of all attributes have what :class:`~distfms.stats.judgments.JudgmentStatistics`
    has, in runs of rows that nobody has to hold all of.

    Attributes
    ----------
    means : ComomentBlock
        Rows of the n attributes in the co-moments of all d attributes' mean judgments and the
        label, which is the last column.
    label_comoment : float
        Σ w (y − ȳ)².
    variance_sum, variance_weight, noise_sum, single_weight : ndarray of shape (n,)
        As in `JudgmentStatistics`.
    n_judgments, n_judged, n_repeated, max_judgments : ndarray of shape (n,), int64
        As in `JudgmentStatistics`.
    """

    means: ComomentBlock
    label_comoment: float
    variance_sum: np.ndarray
    variance_weight: np.ndarray
    noise_sum: np.ndarray
    single_weight: np.ndarray
    n_judgments: np.ndarray
    n_judged: np.ndarray
    n_repeated: np.ndarray
    max_judgments: np.ndarray

    @classmethod
    def empty(cls, n_attributes: int, attributes: slice) -> JudgmentBlockStatistics:
        """Summary of no objects: the identity of `merge`."""
        n = len(range(*attributes.indices(n_attributes)))
        sums = [np.zeros(n) for _ in SUMS]
        counts = [np.zeros(n, dtype=np.int64) for _ in WITHIN_COUNTS]
        return cls(ComomentBlock.empty(n_attributes + 1, attributes), 0.0, *sums, *counts)

    @classmethod
    def from_block(
        cls,
        judgments: Sequence[Ragged],
        label: np.ndarray,
        attributes: slice,
        weight: np.ndarray | None = None,
    ) -> JudgmentBlockStatistics:
        """Summarise one block of objects.

        Parameters
        ----------
        judgments : sequence of Ragged, length d
            Of all attributes.
        label : ndarray of shape (n_objects,)
        attributes : slice
            The run that is summarised.
        weight : ndarray of shape (n_objects,), optional

        Raises
        ------
        DataError
            As :meth:`JudgmentStatistics.from_block`.
        """
        judgments, label, weight = checked_judgments(judgments, label, weight)
        block = np.empty((len(judgments) + 1, label.size))
        block[-1] = label
        own, rows = range(*attributes.indices(len(judgments))), []
        for attribute, ragged in enumerate(judgments):
            block[attribute], squares = ragged.means_and_squares()
            if attribute in own:
                rows.append(within_objects(ragged.counts(), squares, weight))
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 8)
        means = ComomentBlock.from_block(block, attributes, weight, overwrite=True)
        squares = (label - means.mean[-1]) ** 2
        return cls(
            means,
            float(squares.sum() if weight is None else weight @ squares),
            *table[:, :4].T.copy(),
            *table[:, 4:].T.astype(np.int64),
        )

    @property
    def start(self) -> int:
        """First attribute."""
        return self.means.start

    def merge(self, other: JudgmentBlockStatistics) -> JudgmentBlockStatistics:
        """Summary of the objects of both.

        Raises
        ------
        ValueError
            If the two are of different attributes.
        """
        ours, theirs = self.means, other.means
        both = ours.weight + theirs.weight
        shift = theirs.mean[-1] - ours.mean[-1]
        share = ours.weight * theirs.weight / both if both else 0.0
        added = {
            name: getattr(self, name) + getattr(other, name) for name in SUMS + WITHIN_COUNTS[:-1]
        }
        return JudgmentBlockStatistics(
            means=ours.merge(theirs),
            label_comoment=self.label_comoment + other.label_comoment + float(shift**2 * share),
            max_judgments=np.maximum(self.max_judgments, other.max_judgments),
            **added,
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        own = {name: getattr(self, name) for name in (*SUMS, *WITHIN_COUNTS)}
        own["label_comoment"] = np.asarray(self.label_comoment)
        return own | {f"means_{key}": array for key, array in self.means.to_arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> JudgmentBlockStatistics:
        """Inverse of :meth:`to_arrays`."""
        own = {name: arrays[name] for name in (*SUMS, *WITHIN_COUNTS)}
        means = ComomentBlock.from_arrays(with_prefix("means_", arrays))
        return cls(means=means, label_comoment=float(arrays["label_comoment"]), **own)

    def internal_variance(self) -> np.ndarray:
        """Return v̂ of each attribute, NaN where no object has two judgments; shape (n,)."""
        out = np.full(self.variance_sum.size, np.nan)
        np.divide(self.variance_sum, self.variance_weight, out=out, where=self.n_repeated > 0)
        return out

    def estimates(
        self,
        internal_variance: np.ndarray | None = None,
        names: Sequence[str] | None = None,
    ) -> AttributeEstimates:
        """Estimates of the block's attributes, as those of `JudgmentStatistics`.

        Parameters
        ----------
        internal_variance : ndarray of shape (n,), optional
            v where it is known, NaN where it is to be estimated.
        names : sequence of str, length n, optional
            For messages.

        Raises
        ------
        DataError, SpecError
            As :meth:`JudgmentStatistics.estimates`.
        """
        means, n = self.means, self.n_judged.size
        labels = [f"number {self.start + a}" for a in range(n)] if names is None else names
        if not means.n_samples:
            raise DataError("There is no object to estimate from.")
        refuse(self.n_judged == 0, labels, "no object has a judgment; exclude what is named")
        v = given_or_estimated(self.internal_variance(), internal_variance, labels)
        noise = (self.noise_sum + v * self.single_weight) / means.observed_weight[means.columns]
        diagonal = np.diagonal(means.comoment, self.start) / self._weight(own=True)
        external = diagonal - noise
        return AttributeEstimates(
            b=means.comoment[:, -1] / self._weight(label=True),
            v=v,
            noise=noise,
            sigma=np.sqrt(np.maximum(external, 0.0)),
            means=means.mean[means.columns].copy(),
            external_variance=np.maximum(external, 0.0),
            n_judgments=self.n_judgments,
            n_missing=means.n_samples - self.n_judged,
            mean_judgments=self.n_judgments / self.n_judged,
            label_variance=self.label_comoment / means.weight,
            label_mean=float(means.mean[-1]),
            n_objects=means.n_samples,
        )

    def external(self, noise: np.ndarray) -> np.ndarray:
        """Rows of Σ̂ = S − Diag(u), in the memory of the co-moments, which are lost.

        Parameters
        ----------
        noise : ndarray of shape (n,)
            u.

        Returns
        -------
        ndarray of shape (n, d)
            A view without the label's column.
        """
        comoment, weight = self.means.comoment, self.means.pair_weight
        if weight is None:
            comoment /= self.means.weight
        else:
            np.divide(comoment, weight, out=comoment, where=weight > 0)
            comoment[weight <= 0] = 0.0
        own = np.arange(noise.size)
        comoment[own, self.start + own] -= noise
        return comoment[:, :-1]

    def _weight(self, *, own: bool = False, label: bool = False) -> np.ndarray | float:
        """Pair weights of each attribute with itself or with the label."""
        weight = self.means.pair_weight
        if weight is None:
            return self.means.weight
        assert own != label
        return weight[:, -1] if label else np.diagonal(weight, self.start)
