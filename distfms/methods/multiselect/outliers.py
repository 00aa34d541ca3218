"""Which judgments are clipped, and to what, by a sample of them as they are.

A sample holds judgments of each attribute, the labels of their objects and, where these are known,
the keys of their raters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

#: Limits in median absolute deviations from the median; how many of these make a standard deviation
#: of normal judgments, and how many standard deviations are far.
_CLIPPED = 3.0
_NORMAL = 1.4826
_FAR = 3.0
#: Share of far judgments above which they are clipped, and the least number of them that counts.
MANY = 0.01
LEAST = 10


@dataclass(frozen=True, eq=False)
class SomeJudgments:
    """Judgments of each of d attributes, NaN for none, and the labels of their objects, (d, n)."""

    judgments: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, sampled: np.ndarray, n_attributes: int, left_out: np.ndarray) -> SomeJudgments:
        """Take a sample apart, without judgments of raters whose keys are `left_out`."""
        judgments = sampled[:n_attributes]
        labels = sampled[n_attributes : 2 * n_attributes]
        if left_out.size:
            is_left_out = np.isin(sampled[2 * n_attributes :], left_out)
            judgments = np.where(is_left_out, np.nan, judgments)
        return cls(judgments, labels)

    def limits(self) -> np.ndarray:
        """Return the median ± 3 median absolute deviations of each attribute, shape (2, d).

        Of an attribute most of whose judgments are one value there are none.
        """
        middle, deviation = self._middle
        limits = middle + _CLIPPED * deviation * [-1.0, 1.0]
        return np.where(deviation > 0, limits, [-np.inf, np.inf]).T

    def far_share(self) -> float:
        """Return the share of judgments that are far from the median of their attribute.

        It is that of all attributes or, if that is larger, the largest of one attribute; 0 for less
        than `LEAST` such judgments. Attributes most of whose judgments are one value do not count.
        """
        middle, deviation = self._middle
        is_known = ~np.isnan(self.judgments) & (deviation > 0)
        is_far = is_known & (np.abs(self.judgments - middle) > _FAR * _NORMAL * deviation)
        n_far = np.append(is_far.sum(axis=1), is_far.sum())
        n_known = np.append(is_known.sum(axis=1), is_known.sum())
        shares = np.divide(n_far, n_known, out=np.zeros(n_far.size), where=n_far >= LEAST)
        return float(shares.max())

    def clipping_helps(self) -> bool:
        """Return whether clipped judgments tell more of the labels, attribute by attribute.

        That is whether their squared correlations with the label have a larger sum: far judgments
        of raters who slipped tell nothing, those of objects that are far do.
        """
        low, high = self.limits()[:, :, None]
        clipped = np.clip(self.judgments, low, high)
        return bool(self._explained(clipped) > self._explained(self.judgments))

    def _explained(self, judgments: np.ndarray) -> float:
        """Sum the squared correlations of judgments with the label over attributes."""
        total = 0.0
        for values, labels in zip(judgments, self.labels, strict=True):
            is_known = ~np.isnan(values)
            x = values[is_known]
            y = labels[is_known]
            if x.size < 2 or not (np.ptp(x) and np.ptp(y)):
                continue
            x = x - x.mean()
            y = y - y.mean()
            total += float((x @ y) ** 2 / ((x @ x) * (y @ y)))
        return total

    @cached_property
    def _middle(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the median and the median absolute deviation of each attribute, shape (d, 1)."""
        is_empty = np.isnan(self.judgments).all(axis=1, keepdims=True)
        values = np.where(is_empty, 0.0, self.judgments)
        middle = np.nanmedian(values, axis=1, keepdims=True)
        return middle, np.nanmedian(np.abs(values - middle), axis=1, keepdims=True)
