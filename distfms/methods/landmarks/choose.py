"""From a sample of rows to landmarks, the scales of features, and maps to similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distfms.errors import DataError
from distfms.methods.landmarks.similarity import PRECOMPUTED, LandmarkMap, Similarity
from distfms.stats.moments import Moments
from distfms.stats.sample import RowSample

#: Rows that the mean distance between rows is taken of.
SIGMA_ROWS = 500


def landmark_arrays(
    landmarks: RowSample, moments: Moments, n_features: int, scaling: str
) -> dict[str, np.ndarray]:
    """Return the arrays of a map to landmarks.

    Parameters
    ----------
    landmarks : RowSample
    moments : Moments
        Of the training rows, features first.
    n_features : int
    scaling : {"standard", "unit", "none", "precomputed"}
        With the last, features are similarities.

    Raises
    ------
    DataError
        If no feature varies.
    """
    shift, scale = scales(moments, n_features, scaling)
    if not scale.any():
        raise DataError("All features are constant: no row differs from another.")
    own = np.eye(n_features) if scaling == PRECOMPUTED else landmarks.values[:n_features].T
    return {"landmarks": own, "shift": shift, "scale": scale, "fill": moments.mean[:n_features]}


def scales(moments: Moments, n: int, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and scale of the first n columns; 0 for those that do not vary."""
    if scaling in (PRECOMPUTED, "none"):
        return np.zeros(n), np.ones(n)
    varies = ~moments.constant_columns()[:n]
    if scaling == "unit":
        shift, scale = moments.minimum[:n], moments.maximum[:n] - moments.minimum[:n]
    else:
        shift, scale = moments.mean[:n], np.sqrt(moments.variance[:n])
    return np.where(varies, shift, 0.0), np.where(varies, scale, 0.0)


def landmark_maps(
    similarities: Sequence[Similarity], arrays: Mapping[str, np.ndarray], sample: RowSample
) -> dict[str, LandmarkMap]:
    """Return maps by the label of the similarity, with all parameters.

    Parameters
    ----------
    similarities : sequence of Similarity
    arrays : mapping of str to ndarray
        As `landmark_arrays` returned them.
    sample : RowSample
        Of training rows: the mean distance between the first of them is the default of sigma.
    """
    plain = LandmarkMap.of(Similarity("linear"), arrays)

    def sigma() -> float:
        rows = sample.first(SIGMA_ROWS).values[: len(plain.scale)]
        return mean_distance(plain.scaled(rows))

    n_columns = int(np.count_nonzero(plain.scale))
    return {
        similarity.label: LandmarkMap.of(similarity.resolved(n_columns, sigma), arrays)
        for similarity in similarities
    }


def mean_distance(rows: np.ndarray) -> float:
    """Return the mean Euclidean distance between two different rows (d, n); 1 without any."""
    n = rows.shape[1]
    negative = np.empty((n, n))
    Similarity("euclidean").fill(np.ascontiguousarray(rows.T), rows, negative)
    np.fill_diagonal(negative, 0.0)
    total = float(np.sqrt(np.maximum(-negative, 0.0)).sum())
    return total / (n * (n - 1)) if total > 0 else 1.0
