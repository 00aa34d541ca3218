"""Which attributes of a row are observed: distinct ones, by weights, as the row's key decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from distfms.data.rows.folds import mix
from distfms.stats.comoments import Moments

#: How attributes are drawn: alike, by second moments that a pass over all rows finds, or by those
#: that the first tenth of the rows, drawn alike, shows.
Drawing = Literal["uniform", "moments", "two_phase"]

#: Largest absolute value that can be learned from: products of four are finite.
LARGEST_VALUE = 1e75
#: One row or example in so many is of the first of two phases.
FIRST_PHASE = 10
#: Share of the weight that all attributes have alike.
_ALIKE = 0.2
#: Numbers that are held at a time while rows are drawn.
_HELD = 2**22


def drawing_weights(second_moments: np.ndarray) -> np.ndarray:
    """Return weights that grow with the root of second moments (d,), none below 0.2/d."""
    roots = np.sqrt(second_moments)
    share = roots / roots.sum() if roots.any() else np.full(len(roots), 1.0 / len(roots))
    return (1.0 - _ALIKE) * share + _ALIKE / len(roots)


def smoothed(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return second moments from Σx² and counts (d,), as if all had two more of the mean square."""
    overall = sums.sum() / max(counts.sum(), 1)
    return (sums + 2.0 * overall) / (counts + 2.0)


def weights_after(second_moments: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the weights of draws after a first phase that observed so many values (d,)."""
    return drawing_weights(smoothed(second_moments * counts, counts))


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of `n_drawn` distinct attributes of each row (None: all that the row has).

    `weights` (d,) say which come first; without, all are drawn alike. With `phases`, the rows of
    the first phase are drawn alike in any case.
    """

    n_drawn: int | None
    seed: int
    weights: np.ndarray | None = None
    phases: bool = False

    def observe(self, values: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return values (d, n) with NaN for what is not drawn; `keys` (n,) are those of the rows.

        What is not drawn of a row has no influence on the result.
        """
        d, n = values.shape
        if self.n_drawn is None or self.n_drawn >= d:
            return values
        observed = np.full_like(values, np.nan)
        step = max(1, _HELD // d)
        for start in range(0, n, step):
            drawn = self.attributes(keys[start : start + step], d).T
            rows = np.arange(start, start + drawn.shape[1])
            observed[drawn, rows] = values[drawn, rows]
        return observed

    def attributes(self, keys: np.ndarray, n_attributes: int) -> np.ndarray:
        """Return the attributes drawn of rows with these keys, ascending, shape (n, n_drawn).

        Each attribute arrives after an exponential time of its weight; the first are drawn, which
        is successive sampling without replacement.
        """
        assert self.n_drawn is not None
        keys = np.asarray(keys, dtype=np.uint64)
        arrivals = -np.log(self._uniform(keys, n_attributes))
        if self.weights is not None:
            is_later = ~self.first_phase(keys)
            arrivals[is_later] /= self.weights
        order = np.argpartition(arrivals, self.n_drawn - 1, axis=1)
        drawn = order[:, : self.n_drawn]
        return np.sort(drawn, axis=1)

    def _uniform(self, keys: np.ndarray, n_attributes: int) -> np.ndarray:
        """Return numbers in (0, 1) of each attribute of rows with these keys, shape (n, d)."""
        seed = mix(np.uint64(self.seed))
        streams = mix(keys ^ seed)
        attributes = mix(np.arange(n_attributes, dtype=np.uint64))
        hashes = mix(streams[:, np.newaxis] ^ attributes)
        bits = hashes >> np.uint64(11)
        return np.asarray(bits * 2.0**-53 + 2.0**-54)

    def first_phase(self, keys: np.ndarray) -> np.ndarray:
        """Return which rows are of the first phase, shape (n,)."""
        if not self.phases:
            return np.zeros(len(keys), dtype=bool)
        hashes = mix(mix(np.asarray(keys, dtype=np.uint64)) ^ np.uint64(self.seed))
        return hashes % np.uint64(FIRST_PHASE) == 0

    def first_moments(self, values: np.ndarray, keys: np.ndarray) -> Moments:
        """Return the moments of what is observed of those rows (d, n) of the first phase."""
        rows = np.flatnonzero(self.first_phase(keys))
        return Moments.from_block(self.observe(values[:, rows], keys[rows]))

    def key(self) -> dict[str, Any]:
        """Return plain values that stand for the draws."""
        weights = b"" if self.weights is None else self.weights.tobytes()
        digest = hashlib.sha256(weights).hexdigest()
        return {"drawn": self.n_drawn, "seed": self.seed, "weights": digest, "phases": self.phases}
