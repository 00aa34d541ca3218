"""Gram matrices of standardised columns, in memory or in mapped files."""

from __future__ import annotations

import numpy as np

from distfms.stats.mapped import room_like, row_blocks


def standardised_gram(
    comoment: np.ndarray, weight: float, columns: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Return G_ij = C_ij / (W s_i s_j) of some columns, with 1 on its diagonal.

    Parameters
    ----------
    comoment : ndarray of shape (D, D)
        C: an array or a mapped file, as G will be; some rows of either are in memory at a time.
    weight : float
        W.
    columns : ndarray of int, shape (d,)
    scale : ndarray of shape (d,)
        Deviations s of these columns.
    """
    n_columns = len(columns)
    gram = room_like(comoment, (n_columns, n_columns))
    for block in row_blocks(n_columns, n_columns):
        rows = np.asarray(comoment[columns[block]])[:, columns]
        rows /= weight
        rows /= np.outer(scale[block], scale)
        gram[block] = rows
    np.fill_diagonal(gram, 1.0)
    return gram
