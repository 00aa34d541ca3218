"""Reading finished runs: for prediction, for the report, for the one-line summary."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from distfms.engine.remote import RemotePath
from distfms.engine.storage import Location, locate, read_each, reading
from distfms.errors import SpecError
from distfms.methods import METHODS, load_method
from distfms.methods.contract import RETRAINING, FinishedRun, Method
from distfms.runs.folder import RunFolder, parse_json, read_json, write_atomic
from distfms.runs.manifest import LATEST, MANIFEST, Manifest, parse_manifest, read_manifest
from distfms.runs.storage_options import expanded
from distfms.stats.base import from_bytes

#: A run's folder, as users name it.
Run = str | os.PathLike[str] | RemotePath


def open_run(
    run: Run, storage_options: Mapping[str, Any] | None = None
) -> tuple[Method, FinishedRun]:
    """Read a finished run from its folder.

    Raises
    ------
    SpecError
        If this is not a run folder, the run is unfinished, or a file is damaged.
    EngineError
        If remote storage does not answer.
    """
    path = find_run(run, storage_options)
    manifest = read_manifest(path)
    if manifest is None:
        raise SpecError(
            f"{path} is not a run folder: it has no manifest.json. Name the folder that "
            "`distfms run` printed, such as runs/NAME/2026-01-31T12-00-00Z-1a2b3c4d."
        )
    if manifest.method not in METHODS:
        raise SpecError(
            f"{path} is a run of `{manifest.method}`, which this distfms does not have."
        )
    payloads = _whole_files(path, manifest)
    content = {
        name: parse_json(path / f"{name}.json", payloads[f"{name}.json"])
        for name in ("selection", "metrics", "model")
    }
    weights = dict(from_bytes(payloads["weights.npz"]))
    retraining = None
    if RETRAINING in manifest.files():
        retraining = read_json(path / RETRAINING)
    return load_method(manifest.method), FinishedRun(
        **content, manifest=manifest.content(), weights=weights, retraining=retraining
    )


def find_run(run: Run, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the folder of a run; of all runs of a job, or their ``latest``, the last finished."""
    path = locate(run, expanded(storage_options or {}))
    base = path.parent if path.name == LATEST else path
    with reading(path):
        if path.name != LATEST and (path / MANIFEST).exists():
            return path
        for folder, payload in read_each(base, MANIFEST):
            with suppress(SpecError):
                if folder.name != LATEST and parse_manifest(folder, payload).status == "done":
                    return folder
    return path


def _whole_files(path: Location, manifest: Manifest) -> dict[str, bytes]:
    """Read the files of a finished run, each once, and check that they are what it wrote."""
    written = manifest.files()
    payloads: dict[str, bytes] = {}
    for name in ("selection.json", "model.json", "weights.npz", "metrics.json"):
        if name not in written:
            raise SpecError(
                f"The run {path} is unfinished: {name} is missing. Run the job's command again to "
                "resume it."
            )
        with reading(path / name), suppress(FileNotFoundError):
            payloads[name] = (path / name).read_bytes()
        if hashlib.sha256(payloads.get(name, b"")).hexdigest() != written[name]:
            raise SpecError(
                f"{path / name} is not what the run wrote (its sha256 differs). Run the job's "
                f"command again with --out {path} to repeat that stage."
            )
    return payloads


def headline(run: Run) -> str:
    """Return a run's result in one sentence."""
    method, found = open_run(run)
    return method.headline(found)


def redraw(run: Run, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Draw a run's report again and return its place."""
    path = find_run(run, storage_options)
    method, found = open_run(path)
    target, page = path / "report.html", method.page(found).encode()
    folder = RunFolder(path)
    # A driver may be at the last stages; what it enters in the manifest must not be lost.
    with folder.locked():
        write_atomic(target, page)
        stages = folder.manifest().stages
        for stage in stages:
            if target.name in stage.files:
                stage.files[target.name] = hashlib.sha256(page).hexdigest()
        folder.update(stages=[stage.model_dump() for stage in stages])
    return target
