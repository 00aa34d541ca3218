"""What the paper's theorems guarantee of a model, and how many rows they ask for.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", Theorems 5 and 9, with the constants of
their proofs (appendices C.1 and D.1).
"""

from __future__ import annotations

from math import ceil, inf, log, sqrt
from typing import Any

#: Probability δ with which each part of a guarantee may fail.
DELTA = 0.05


def guarantee(
    error: float, bound: float, plain: float, n_landmarks: int, n_rows: int, n_kept: int | None
) -> dict[str, Any]:
    """Return what is guaranteed, and what it takes to guarantee less than an error without a model.

    Parameters
    ----------
    error : float
        ε₀ + ε, of absolute loss.
    bound : float
        B, for similarities up to 1.
    plain : float
        Error without a model. Half of what it is above `error` may go to each kind of rows.
    n_landmarks, n_rows : int
        d and n: landmarks to choose from, and training rows.
    n_kept : int or None
        Landmarks of a sparse model, k = τ·d of Theorem 9; None for Theorem 5.

    Returns
    -------
    dict
        ``theorem``, ``error``, ``bound``, ``share`` τ, ``delta``, ``guaranteed`` error, ``plain``,
        whether that makes the theorem ``vacuous``, and the ``landmarks`` and ``rows`` that it asks
        for; None where no number suffices.
    """
    sparse, root = n_kept is not None, sqrt(log(1.0 / DELTA))
    share = 1.0 if n_kept is None else max(n_kept, 1) / n_landmarks
    # Of Theorem 9, √(18B²/k) with k = τd: the steps that chose the landmarks.
    of_landmarks = bound * (32.0 * root + sqrt(18.0) * sparse) / sqrt(share)

    def of_rows(d: float) -> float:
        """Return √n times what too few rows may add."""
        return bound * (2.0 * sqrt(2.0 * log(2.0 * d)) + sqrt(2.0) * root if sparse else 3.0 * root)

    guaranteed = error + of_landmarks / sqrt(n_landmarks) + of_rows(n_landmarks) / sqrt(n_rows)
    half = (plain - error) / 2.0
    landmarks = max(of_landmarks / half * of_landmarks / half, 1.0) if half > 0 else inf
    rows = of_rows(landmarks) / half * of_rows(landmarks) / half if half > 0 else inf
    return {
        **{"theorem": 9 if sparse else 5, "error": error, "bound": bound, "share": share},
        **{"delta": DELTA, "plain": plain, "guaranteed": guaranteed},
        "vacuous": guaranteed >= plain,
        "landmarks": ceil(landmarks) if landmarks < inf else None,
        "rows": ceil(rows) if rows < inf else None,
    }
