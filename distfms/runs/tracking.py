"""Telling MLflow of finished runs; its own settings say where it keeps what it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distfms.errors import SpecError
from distfms.runs.finished import flat, read_run
from distfms.runs.folder import INPUTS, MANIFEST
from distfms.store.places import Location

_ARTEFACTS = (
    "spec.yaml",
    MANIFEST,
    INPUTS,
    "selection.json",
    "model.json",
    "weights.npz",
    "metrics.json",
    "report.html",
)


def require_tracker(tracker: str) -> Any:
    """Import the package of a tracker.

    Raises
    ------
    SpecError
        If it is not installed.
    """
    try:
        return import_module(tracker)
    except ImportError as error:
        raise SpecError(
            f"`output.tracking: {tracker}` needs a package that this Python lacks ({error}). "
            f"Install it (pip install 'distfms[{tracker}]'), or leave the key out."
        ) from error


def track(tracker: str, experiment: str, folder: Location) -> str:
    """Tell a tracker of a finished run; return why that failed, which does not undo the run."""
    try:
        _log(require_tracker(tracker), experiment, folder)
    except Exception as error:
        return f"{tracker} could not be told of this run ({type(error).__name__}: {error})."
    return ""


def _log(mlflow: Any, experiment: str, folder: Location) -> None:
    """Log options as parameters, numbers as metrics, files as artefacts."""
    files = read_run(folder)
    parameters = {_name(key): str(value)[:6000] for key, value in flat(files.spec()).items()}
    _, run = files.open()
    mlflow.set_experiment(experiment)
    with mlflow.start_run(run_name=folder.name), TemporaryDirectory() as scratch:
        mlflow.set_tags({"distfms.run": str(folder), "distfms.identity": run.manifest["identity"]})
        mlflow.log_params(parameters)
        mlflow.log_metrics(_numbers(run.metrics))
        for name in _ARTEFACTS:
            with suppress(FileNotFoundError):
                (Path(scratch) / name).write_bytes((folder / name).read_bytes())
        mlflow.log_artifacts(scratch)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the single numbers of nested metrics."""
    return {
        _name(key): float(value)
        for key, value in flat(metrics).items()
        if type(value) in (int, float)
    }


def _name(key: str) -> str:
    """Return a name that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "_", key, flags=re.ASCII)[:250]
