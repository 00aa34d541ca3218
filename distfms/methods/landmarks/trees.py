"""LightGBM, which models on landmarks are compared with."""

from __future__ import annotations

import numpy as np

from distfms.errors import SpecError


def boosted_trees(
    task: str, train: np.ndarray, target: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, int]:
    """Predict by LightGBM with its defaults: classes for `classification`, otherwise numbers.

    Raises
    ------
    SpecError
        If LightGBM is not installed.
    """
    try:
        from lightgbm import LGBMClassifier, LGBMRegressor
    except ImportError as error:
        raise SpecError(
            "`landmarks.baselines` names `lightgbm`, which is not installed. Install it "
            "(`pip install lightgbm`), or leave it out."
        ) from error
    form = LGBMClassifier if task == "classification" else LGBMRegressor
    # The same trees on any machine.
    model = form(n_jobs=1, deterministic=True, force_row_wise=True, random_state=0, verbose=-1)
    return np.asarray(model.fit(train.T, target).predict(rows.T), dtype=float), 0
