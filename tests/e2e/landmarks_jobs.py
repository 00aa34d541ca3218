"""Small jobs of learning with similarities that several tests share."""

from pathlib import Path
from typing import Any

import numpy as np

from distfms.runs.job_spec import JobSpec
from tests.e2e.jobs import spec_of

N = 400


def smooth_rows(n: int = N, seed: int = 0) -> dict[str, Any]:
    """Rows whose target depends smoothly on three columns, with its levels and two classes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 3, size=(n, 3))
    y = 20 + 5 * np.exp(-((X - 1) ** 2).sum(axis=1)) + 0.05 * rng.normal(size=n)
    cuts = np.quantile(y, [0.4, 0.75])
    columns = {f"x{j}": X[:, j] for j in range(3)}
    columns |= {"id": [f"r{i}" for i in range(n)], "still": np.full(n, 2.0), "y": y}
    level = np.array([1.0, 2.0, 4.0])[np.searchsorted(cuts, y)]
    return {**columns, "level": level, "high": (y > cuts[0]) * 1}


def landmarks_job(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    """Spec of a regression on `smooth_rows`."""
    content = {
        "name": "smooth",
        "method": "landmarks",
        "data": {
            "path": str(data),
            "target": "y",
            "exclude": ["level", "high"],
            "id": "id",
            "folds": 4,
            "test": 0.25,
        },
        "landmarks": {"similarity": "gaussian", "landmarks": 60, "metric": "none", "clip": False},
        "engine": {"workers": 1},
        "output": str(output),
    }
    return spec_of(content, changes)


def task_job(
    data: Path, output: Path, task: str, target: str, engine: Any = None, /, **section: Any
) -> JobSpec:
    """Spec of another task on `smooth_rows`, with the target in one of three columns."""
    excluded = [name for name in ("y", "level", "high") if name != target]
    rows = {"target": target, "exclude": excluded, "folds": 2}
    section = {"task": task, "landmarks": 20} | section
    return landmarks_job(data, output, data=rows, landmarks=section, engine=engine or {})


def ranked_rows() -> dict[str, Any]:
    """Rows of 60 queries, of one to eleven rows each, one without a relevant row."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 12, size=60)
    X = rng.uniform(-1, 2, size=(sizes.sum(), 3))
    score = np.exp(-((X - 1) ** 2).sum(axis=1)) + 0.05 * rng.normal(size=len(X))
    query = np.repeat([f"q{i:02d}" for i in range(60)], sizes)
    grade = np.digitize(score, [0.2, 0.4, 0.6])
    grade[query == "q03"] = 0
    return {f"x{j}": X[:, j] for j in range(3)} | {"q": query, "grade": grade}


def ranking_job(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    """Spec of a ranking of `ranked_rows`."""
    rows = {"target": "grade", "query": "q", "id": None, "exclude": [], "folds": 3, "test": 0.3}
    rows |= {"max_partition_rows": 150} | changes.pop("data", {})
    section = {"task": "ranking", "landmarks": 40, "ridge": 1e-3} | changes.pop("landmarks", {})
    return landmarks_job(data, output, data=rows, landmarks=section, **changes)


def broken(rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    raise ValueError("broken")


def near(rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """A function of the user's: 1 where the first features differ by less than 0.5."""
    return (np.abs(rows[:, :1] - landmarks[:, 0]) < 0.5) * 1.0


def narrow(rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    return np.ones((len(rows), 1))


def undefined(rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    found = near(rows, landmarks)
    found[0, 2] = np.nan
    return found
