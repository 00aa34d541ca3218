"""The One Million Impressions faces: 34 impressions of 1,004 faces by 30 to 83 raters each.

One impression's mean over all its raters is the label, the others are attributes. ``omi.parquet``
has columns face, attribute, rating.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged, offsets_of


def load(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ratings (faces, attributes, raters) with NaN where there are fewer, counts, names."""
    table = pq.read_table(path, columns=["face", "attribute", "rating"])
    faces, face = np.unique(table["face"].to_numpy(), return_inverse=True)
    encoded = table["attribute"].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    cell = face * len(names) + encoded.indices.to_numpy()
    order = np.argsort(cell, kind="stable")
    counts = np.bincount(cell, minlength=faces.size * len(names))
    starts = np.cumsum(counts) - counts
    ratings = np.full((counts.size, counts.max()), np.nan)
    place = np.arange(cell.size) - np.repeat(starts, counts)
    ratings[cell[order], place] = table["rating"].to_numpy()[order]
    shape = (faces.size, len(names))
    return ratings.reshape(*shape, -1), counts.reshape(shape), names


def shuffled(ratings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Raters of every cell in random order, absent ones last."""
    keys = rng.random(ratings.shape, dtype=np.float32)
    keys[np.isnan(ratings)] = 2.0
    return np.take_along_axis(ratings, np.argsort(keys, axis=-1), axis=-1)


def ragged_of(matrix: np.ndarray) -> Ragged:
    """Return the judgments of an attribute, from (objects, k) with NaN where there is none."""
    is_there = ~np.isnan(matrix)
    return Ragged(matrix[is_there], offsets_of(is_there.sum(axis=1)))


def statistics_of(judgments: np.ndarray, label: np.ndarray) -> JudgmentStatistics:
    """Statistics of (m, d, K) judgments."""
    columns = [ragged_of(judgments[:, a]) for a in range(judgments.shape[1])]
    return JudgmentStatistics.from_block(columns, label)
