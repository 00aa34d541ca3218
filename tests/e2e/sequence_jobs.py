"""Small jobs of group sequencing that several tests share."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.data.rows.folds import assign_parts
from distfms.runs.job_spec import JobSpec
from tests.e2e.jobs import spec_of

N_FILES = 3
#: Options of `mixed_job` to try: twelve points, which six paths answer.
GRID = {"criterion": ["fr", "omp"], "ridge": [1e-5, 0.3, 3.0], "max_groups": [2, None]}


def mixed_rows(n: int = 600, seed: int = 0) -> dict[str, Any]:
    """Rows with correlated numbers, a category, gaps, and a target that is missing sometimes."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    columns: dict[str, Any] = {"id": [f"row-{i}" for i in range(n)]}
    for name in ("bp_low", "bp_high", "age", "scan"):
        columns[name] = 100.0 + 5.0 * (common + rng.normal(size=n))
    columns["blood"] = rng.normal(size=n)
    columns["ward"] = rng.choice(["east", "north", "west"], size=n)
    columns["still"] = np.full(n, 3.0)
    effect = 2.0 * (columns["ward"] == "west") + 0.3 * columns["bp_low"] - 0.2 * columns["scan"]
    columns["y"] = effect + columns["blood"] + rng.normal(size=n)
    columns["scan"][rng.random(n) < 0.1] = np.nan
    columns["y"][rng.random(n) < 0.05] = np.nan
    gaps = rng.random(n) < 0.04
    columns["ward"] = [None if gap else w for w, gap in zip(columns["ward"], gaps, strict=True)]
    return columns


def with_labels(columns: dict[str, Any]) -> dict[str, Any]:
    """The same with a target of 0 or 1, whose models are also judged by accuracy."""
    y = columns["y"]
    return {**columns, "y": np.where(np.isnan(y), np.nan, (y > 10) * 1.0)}


def write_rows(folder: Path, columns: dict[str, Any], n_files: int = N_FILES) -> Path:
    """Write rows in several files of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    size = -(-table.num_rows // n_files)
    for number in range(n_files):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=-(-size // 2))
    return folder


def mixed_job(data: Path, output: Path, /, **changes: Any) -> JobSpec:
    """Spec of a job on `mixed_rows`."""
    content: dict[str, Any] = {
        "name": "mixed",
        "method": "sequence",
        "data": {
            "path": str(data),
            "target": "y",
            "id": "id",
            "missing": "mean",
            "folds": 3,
            "test": 0.25,
        },
        "sequence": {
            "groups": {"bp": ["bp_*"]},
            "costs": {"bp": 2, "scan": 6, "default": 1},
            "shared_costs": {"visit": {"groups": ["bp", "blood"], "cost": 1.5}},
            "baselines": ["omp", "fr-blind", "omp-doubling", "oracle", "random"],
            "ridge": 1e-5,
            "model": "linear",
        },
        "engine": {"workers": 1},
        "output": str(output),
    }
    return spec_of(content, changes)


class LiteralRows:
    """The rows of `mixed_rows` as a job should see them, by plain numpy."""

    names = ("bp_low", "bp_high", "age", "scan", "blood", "ward=east", "ward=north", "ward=west")
    groups = ((0, 1), (2,), (3,), (4,), (5, 6, 7))
    group_names = ("bp", "age", "scan", "blood", "ward")

    def __init__(self, columns: dict[str, Any], n_folds: int = 3, test: float = 0.25) -> None:
        parts = assign_parts(np.array(columns["id"], object), n_folds=n_folds, test=test, seed=0)
        ward = np.array(columns["ward"], dtype=object)
        levels = [
            np.where(ward == None, np.nan, ward == level)  # noqa: E711
            for level in ("east", "north", "west")
        ]
        numbers = [columns[name] for name in self.names[:5]]
        X = np.column_stack([*numbers, *levels]).astype(float)
        y = np.asarray(columns["y"])
        kept = ~np.isnan(y)
        self.n_dropped = int((~kept).sum())
        self.n_gaps = {
            "scan": int(np.isnan(X[kept, 3]).sum()),
            "ward": int(np.isnan(X[kept, 5]).sum()),
        }
        self.parts = parts[kept]
        self.X = X[kept]
        self.y = y[kept][:, None]
        self.test = self.parts == n_folds

    def split(self, held_out: np.ndarray) -> tuple[np.ndarray, ...]:
        """Standardised (X, Y) of the training and the held-out rows, by the training rows."""
        X = self.X[~held_out]
        Y = self.y[~held_out]
        mean = np.nanmean(X, axis=0)
        filled = np.where(np.isnan(X), mean, X)
        scale = filled.std(axis=0)
        X_out = np.where(np.isnan(self.X[held_out]), mean, self.X[held_out])
        y_mean = Y.mean(axis=0)
        y_scale = Y.std(axis=0)
        return (
            (filled - mean) / scale,
            (Y - y_mean) / y_scale,
            (X_out - mean) / scale,
            (self.y[held_out] - y_mean) / y_scale,
        )

    @staticmethod
    def cost(chosen: Any, group: int) -> float:
        """What a group costs after others, as `mixed_job` has it."""
        own = {0: 2.0, 2: 6.0}.get(group, 1.0)
        shares = group in (0, 3) and not {0, 3} & set(chosen)
        return own + (1.5 if shares else 0.0)


def curve(metrics: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Points of one rule's curve."""
    return next(c["points"] for c in metrics["curves"] if c["name"] == name)
