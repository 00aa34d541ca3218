"""What scikit-learn expects of targets, columns and common parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils import check_random_state, check_X_y, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from distfms.errors import DataError


def target_names(y: Any) -> list[str]:
    """Names of targets: those of a frame or series, otherwise ``y`` or ``y0``, ``y1``, …."""
    if hasattr(y, "columns"):
        return [str(label) for label in y.columns]
    if isinstance(getattr(y, "name", None), str) and not hasattr(y, "chunks"):
        return [y.name]
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return [f"y{i}" for i in range(shape[1])] if len(shape) == 2 and shape[1] > 1 else ["y"]


def type_of(levels: Any) -> pa.DataType:
    """Return the type of a column with these levels; None for numbers."""
    return pa.float64() if levels is None else pa.string()


def checked_target(estimator: Any, y: Any, n_rows: int) -> np.ndarray:
    """Check a target in memory as scikit-learn does."""
    tags = get_tags(estimator)
    is_class = tags.estimator_type == "classifier"
    checks = {"multi_output": tags.target_tags.multi_output, "y_numeric": not is_class}
    _, y = check_X_y(np.zeros((n_rows, 1)), y, estimator=estimator, **checks)
    if is_class:
        check_classification_targets(y)
        if len(classes := np.unique(y)) < 2:
            raise DataError(f"The target holds 1 class, {classes[0]!r}; at least 2 are needed.")
    checked: np.ndarray = y
    return checked


def check_columns(
    estimator: Any, names: Sequence[str], named: bool, *, reset: bool = False
) -> None:
    """Set or check number and names of an estimator's columns, as scikit-learn does."""
    head: Any = np.empty((0, len(names)))
    if named:
        import pandas as pd

        head = pd.DataFrame(head, columns=list(names))
    validate_data(estimator, head, reset=reset, skip_check_array=True)


def seed_of(random_state: Any) -> int:
    """Return the seed that a state stands for."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def workers_of(n_jobs: int | None) -> int | None:
    """Return how many partitions are read side by side; None for as many as there are cores."""
    return None if n_jobs is None or n_jobs < 1 else int(n_jobs)
