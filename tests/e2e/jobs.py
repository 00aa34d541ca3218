"""Small jobs that the tests of runs share."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distfms.runs.driver import run_job
from distfms.runs.job_spec import JobSpec, build_spec

RESULTS = ("selection.json", "model.json", "weights.npz", "metrics.json")
#: Stages of `judgments_job`.
STAGES = ["statistics", "ridge", "select", "evaluate", "plan", "model", "report"]


def spec_of(content: dict[str, Any], changes: dict[str, Any]) -> JobSpec:
    """Build a spec; sections among the changes are added to those that there are.

    There are folds where they are asked for: they would make all the small jobs slower.
    """
    content["data"] = {"folds": 0, **content["data"]}
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value} if isinstance(value, dict) else value
    return build_spec(content)


def run_on(rows: Any, output: Path, method: str, options: Any, data: Any, **changes: Any) -> Path:
    """Run a job on a frame or on files with a target ``y``; return its folder."""
    path = rows
    if hasattr(rows, "to_parquet"):
        output.mkdir(parents=True, exist_ok=True)
        path = output / "rows.parquet"
        rows.to_parquet(path)
    content = {"name": "job", "method": method, method: options, "output": str(output)}
    content["data"] = {"path": str(path), "target": "y", **data}
    return run_job(spec_of({**content, "engine": {"workers": 1}}, changes)).folder


def content(folder: Path, name: str) -> Any:
    """Read a JSON file of a run."""
    return json.loads((folder / name).read_bytes())


def write_judgments(folder: Path, n_objects: int = 200, n_files: int = 4, seed: int = 0) -> Path:
    """Write judgments of five attributes, two or three an object, in several files."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    names = ["warm", "tall", "loud", "soft", "flat"]
    truth = rng.normal(size=(n_objects, len(names))) @ np.diag([2.0, 1.0, 1.0, 0.5, 0.2])
    label = truth @ [1.0, -1.0, 0.5, 2.0, 0.0] + rng.normal(size=n_objects)
    size = n_objects // n_files
    for number in range(n_files):
        rows = range(number * size, (number + 1) * size)
        columns: dict[str, Any] = {"id": [f"object-{i}" for i in rows], "y": label[rows]}
        for a, name in enumerate(names):
            columns[name] = [(truth[i, a] + rng.normal(size=2 + i % 2)).tolist() for i in rows]
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=size)
    return folder


def judgments_job(data: Path, output: Path, **changes: Any) -> JobSpec:
    """Spec of a small multi-selection job on `write_judgments` data."""
    content: dict[str, Any] = {
        "name": "small",
        "method": "multiselect",
        "data": {"path": str(data), "target": "y", "id": "id", "folds": 3, "test": 0.2},
        "multiselect": {"budget": 12, "algorithm": "full", "plan": True},
        "engine": {"workers": 1},
        "output": str(output),
    }
    return spec_of(content, changes)


def results(folder: Path) -> dict[str, bytes]:
    """Bytes of everything in a run folder that has to be the same wherever it was made."""
    files = [folder / name for name in RESULTS]
    files += sorted((folder / "statistics").iterdir())
    files += sorted((folder / "plan").iterdir()) if (folder / "plan").exists() else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def stage(folder_manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Entry of one stage in a manifest."""
    return next(entry for entry in folder_manifest["stages"] if entry["name"] == name)
