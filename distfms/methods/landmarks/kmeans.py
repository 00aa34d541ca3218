"""Landmarks spread over the rows: those nearest to the centres of k-means."""

from __future__ import annotations

import numpy as np

#: Rows of a chunk, and most iterations.
_CHUNK_ROWS, _MOST_ITERATIONS = 1024, 100


def kmeans_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Return the places (n,) of the rows (d, m) that are nearest to n centres, each row once.

    Begins at the first n rows, so that nothing is left to chance; places follow the centres' order.
    Where centres share their nearest row, the first of the others come last.
    """
    import dask
    import dask.array as da
    from dask_ml.cluster import KMeans
    from sklearn.metrics import pairwise_distances_argmin

    points = np.ascontiguousarray(rows.T)
    model = KMeans(n, init=points[:n].copy(), max_iter=_MOST_ITERATIONS)
    with dask.config.set(scheduler="synchronous"):  # of a sample: not worth a cluster
        model.fit(da.from_array(points, chunks=(_CHUNK_ROWS, -1)))
    nearest = pairwise_distances_argmin(model.cluster_centers_, points).tolist()
    return np.array(list(dict.fromkeys([*nearest, *range(len(points))]))[:n], dtype=np.intp)
