"""Small jobs of attribute-efficient regression that several tests share."""

from pathlib import Path
from typing import Any

import numpy as np

from distfms.runs.job_spec import JobSpec
from tests.e2e.jobs import spec_of

N = 900
D = 12
NAMES = [f"x{j}" for j in range(D)]
SHARES = np.arange(1, D + 1) ** -1.0


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    """Features of which later ones are rarer, the eighth always 0, and a linear target."""
    rng = np.random.default_rng(8)
    X = 4.0 * (rng.random((N, D)) < SHARES) * rng.random((N, D))
    X[:, 7] = 0.0
    return X, X @ rng.choice([-0.2, 0.2], size=D)


X, Y = make_rows()
IDS = [f"r{i}" for i in range(N)]


def few_columns(features: np.ndarray = X, target: np.ndarray = Y) -> dict[str, Any]:
    columns: dict[str, Any] = {name: features[:, j] for j, name in enumerate(NAMES)}
    return {**columns, "y": target, "id": IDS}


def few_job(
    data: Path, output: Path, own: dict[str, Any] | None = None, /, **changes: Any
) -> JobSpec:
    """Spec of a job on these rows with 5 attributes of each; `own` options of the method."""
    content = {
        "name": "few",
        "method": "attribute_efficient",
        "data": {"path": str(data), "target": "y", "id": "id", "folds": 3, "test": 0.25},
        "attribute_efficient": {
            "attributes_per_example": 5,
            "solver": "online",
            "repeats": 2,
            **(own or {}),
        },
        "engine": {"workers": 2},
        "output": str(output),
    }
    return spec_of(content, changes)
