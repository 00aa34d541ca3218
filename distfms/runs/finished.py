"""Reading finished runs: for prediction, for the report, for the one-line summary."""

from __future__ import annotations

from pathlib import Path

from distfms.errors import SpecError
from distfms.methods import METHODS, method_job
from distfms.methods.contract import FinishedRun, Job
from distfms.runs.folder import RunFolder, digest, read_json, read_manifest, write_atomic
from distfms.stats.base import from_bytes


def open_run(path: Path) -> tuple[type[Job], FinishedRun]:
    """Read a finished run.

    Parameters
    ----------
    path : Path
        The run's folder.

    Returns
    -------
    job : type
        The method's job class.
    run : FinishedRun

    Raises
    ------
    SpecError
        If this is no run folder, the run has not ended, or a file is damaged.
    """
    manifest = read_manifest(path)
    if not manifest:
        raise SpecError(
            f"{path} is no run folder: it has no manifest.json. Give the folder that "
            "`distfms run` named, such as runs/NAME/2026-01-31T12-00-00Z-1a2b3c4d."
        )
    if manifest.get("method") not in METHODS:
        raise SpecError(f"{path} is a run of `{manifest.get('method')}`, unknown to this distfms.")
    _require_whole(path, manifest)
    run = FinishedRun(
        selection=read_json(path / "selection.json"),
        metrics=read_json(path / "metrics.json"),
        model=read_json(path / "model.json"),
        manifest=manifest,
        weights=dict(from_bytes((path / "weights.npz").read_bytes())),
    )
    return method_job(manifest["method"]), run


def _require_whole(path: Path, manifest: dict) -> None:
    written = {n: sha for stage in manifest.get("stages", []) for n, sha in stage["files"].items()}
    for name in ("selection.json", "model.json", "weights.npz", "metrics.json"):
        if name not in written:
            raise SpecError(
                f"The run {path} has not ended: {name} is not there yet. Run the job's command "
                "again; it goes on where it stopped."
            )
        if not (path / name).exists() or digest(path / name) != written[name]:
            raise SpecError(
                f"{path / name} is not what the run wrote (its sha256 differs). Run the job's "
                f"command again with --out {path}; it repeats that stage."
            )


def headline(path: Path) -> str:
    """Say a run's result in one sentence."""
    job, run = open_run(path)
    return job.headline(run)


def redraw(path: Path) -> Path:
    """Draw a run's report again.

    Returns
    -------
    Path
        Of the report.
    """
    job, run = open_run(path)
    target = path / "report.html"
    write_atomic(target, job.page(run).encode())
    folder = RunFolder(path)
    stages = folder.manifest()["stages"]
    for stage in stages:
        if target.name in stage["files"]:
            stage["files"][target.name] = digest(target)
    folder.update(stages=stages)
    return target
