"""The driver: opens the data, runs a method's function, keeps the run folder.

It is the only place that puts data, engine and method together.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distfms import __version__
from distfms.engine import make_executor
from distfms.engine.base import Executor
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DistfmsError
from distfms.methods.frame.contract import Finished, Inputs
from distfms.runs.context import RunContext
from distfms.runs.events import Display, Recorder, Say, silent
from distfms.runs.finished import RunFiles, read_written, track
from distfms.runs.folder import (
    INPUTS,
    LATEST,
    MANIFEST,
    SCHEMA_VERSION,
    Manifest,
    RunFolder,
    choose_folder,
    encode,
    now,
    read_manifest,
    write_atomic,
)
from distfms.runs.job_spec import JobSpec
from distfms.runs.prepare import Prepared, prepare
from distfms.runs.projection import Projection
from distfms.runs.steps import Steps
from distfms.store.kept import KEPT, prune
from distfms.store.places import Location, hangs, missing_folders, reading, remove_tree
from distfms.store.remote import RemotePath

if TYPE_CHECKING:
    from distfms.registry import Registry


_PACKAGES = ("numpy", "scipy", "pyarrow", "dask", "scikit-learn")


@dataclass(frozen=True)
class RunResult:
    """Where a finished run is, and what it did.

    Attributes
    ----------
    folder : Path or RemotePath
        `RemotePath` where the run is at a URL.
    resumed : bool
        Whether an earlier, unfinished run was continued.
    skipped : tuple of str
        Steps that were found finished.
    """

    folder: Location
    resumed: bool
    skipped: tuple[str, ...]


def run_job(
    spec: JobSpec,
    *,
    out: str | Path | None = None,
    say: Say = silent,
    progress: Display = lambda event: None,
    on_silence: Say | None = None,
) -> RunResult:
    """Run a job to the end, going on where an earlier attempt stopped.

    Parameters
    ----------
    spec : JobSpec
    out : path or URL, optional
        The run's folder. By default a new folder below ``output/name``, or the latest unfinished
        one of the same spec and data.
    say : callable
        Told what happens, line by line.
    progress : callable
        Receives the engine's events.
    on_silence : callable, optional
        See :func:`distfms.engine.make_executor`.

    Returns
    -------
    RunResult

    Raises
    ------
    SpecError, DataError
        If spec or data are not as they should be; nothing is written then.
    EngineError
        If workers or storage fail; the run can be resumed.
    """
    result = run_prepared(prepare(spec, say), out, say, progress, on_silence)
    keep_last(spec, result.folder)
    return result


def run_prepared(
    prepared: Prepared,
    out: str | Path | None = None,
    say: Say = silent,
    progress: Display = lambda event: None,
    on_silence: Say | None = None,
) -> RunResult:
    """Run a job that was prepared; see `run_job`."""
    spec = prepared.spec
    named = None if out is None else spec.place(out)
    path = choose_folder(named, prepared.root / spec.name, prepared.identity, say)
    cache = prepared.root / KEPT
    engine = spec.engine
    with single_threaded_blas(), make_executor(engine, on_silence) as executor:
        projection = prepared.projection(executor.workers)
        for line in projection.lines(path):
            say(line)
        projection.require(executor.available_bytes())
        with reading(path):
            new_folders = missing_folders(path)
        run = RunFolder(path)
        with run.locked(), Recorder(run, say, progress, spec.output.mute) as record:
            try:
                resumed = _begin(run, prepared, record)
                for known_footers in prepared.origin.footers:
                    known_footers.keep()
                steps = Steps(run, record, prepared.origin.notes)
                _learn(prepared, _context(prepared, steps, executor, cache, projection))
                run.update(status="done", finished=now())
            except Exception as error:
                record.fail(error, keep=_end_badly(run, error, new_folders))
                if not hangs(error):
                    prune(cache, spec.output.cache_bytes)
                raise
            prune(cache, spec.output.cache_bytes)
            if spec.output.tracking is not None:
                _track(spec.output.tracking, spec.name, path, record)
            record.event("done")
            run.require_claim()
            if path.parent == prepared.root / spec.name:
                _link_latest(path)
    return RunResult(path, resumed, tuple(steps.loaded))


def run_in_memory(prepared: Prepared, say: Say) -> RunFiles:
    """Run a prepared job in memory, where no step is kept; return the files of its model."""
    spec = prepared.spec
    with single_threaded_blas(), make_executor(spec.engine) as executor:
        projection = prepared.projection(executor.workers)
        projection.require(executor.available_bytes())
        with Recorder(None, say, lambda event: None, spec.output.mute) as record:
            steps = Steps(None, record, prepared.origin.notes)
            _learn(prepared, _context(prepared, steps, executor, None, projection))
    files = {name: encode(name, content) for name, content in steps.content.items()}
    steps.entries[-1].files |= {
        n: hashlib.sha256(payload).hexdigest() for n, payload in files.items()
    }
    moment = now()
    outcome = {
        **steps.accounts,
        "passes": steps.passes,
        "stages": steps.entries,
        "notes": steps.notes,
    }
    times = {"status": "done", "created": moment, "finished": moment}
    manifest = Manifest.model_validate({**_facts(prepared), **outcome, **times})
    files[MANIFEST] = encode(MANIFEST, manifest.content())
    files["spec.yaml"] = spec.to_yaml().encode()
    return RunFiles(prepared.root / spec.name, spec.name, files, manifest)


def _context(
    prepared: Prepared,
    steps: Steps,
    executor: Executor,
    cache: Location | None,
    projection: Projection,
) -> RunContext:
    spec = prepared.spec
    return RunContext(
        seed=spec.seed,
        inputs=prepared.job.inputs,
        steps=steps,
        executor=executor,
        attempts=spec.engine.retries + 1,
        cache=cache if projection.cached else None,
        packs_only=projection.cached == "packs",
        record=steps.record,
        value_bytes=projection.value_bytes,
        actors=spec.engine.actors,
    )


def _learn(prepared: Prepared, run: RunContext) -> None:
    """Run the method's function, write what it found, and draw the report."""
    method = prepared.method
    steps = run.steps
    finished = method.learn(run, prepared.job)
    steps.files("model", partial(_files_of, finished))
    if steps.run is None:
        return
    read = partial(read_written, steps.run, prepared.spec.options.functions)
    if prepared.after is not None:
        prepared.after(run, finished, read())
    steps.files("report", lambda: {"report.html": method.page(read())})


def _files_of(finished: Finished) -> dict[str, Any]:
    selection = dict(finished.selection)
    metrics = dict(finished.metrics)
    files: dict[str, Any] = {"model.json": finished.model, "weights.npz": finished.weights}
    if finished.tuning is not None:
        brief = {key: finished.tuning[key] for key in ("measure", "rule", "chosen")}
        selection = {**selection, "tuning": brief}
        metrics = {**metrics, "tuning": finished.tuning}
        files["tuning.json"] = finished.tuning
    return {"selection.json": selection, **files, "metrics.json": metrics}


def _link_latest(path: Location) -> None:
    """Let ``latest`` lead to a run; where there are no links, commands find it without."""
    if isinstance(path, Path):
        link = path.with_name(f".{LATEST}-{path.name}")
        with suppress(OSError):
            link.unlink(missing_ok=True)
            link.symlink_to(path.name, target_is_directory=True)
            link.replace(path.with_name(LATEST))


def _track(tracker: str, name: str, path: Location, record: Recorder) -> None:
    """Tell a tracker of a finished run, which is finished also if the tracker fails."""
    try:
        track(tracker, name, path)
    except Exception as error:
        text = f"{tracker} could not be told of this run ({type(error).__name__}: {error})."
        record.note(text)


def _end_badly(run: RunFolder, error: Exception, new_folders: Sequence[Location]) -> bool:
    """Note the failure; leave nothing behind where nothing was achieved.

    Returns whether the folder stays and is this driver's.
    """
    # The storage itself may be what failed.
    if isinstance(run.path, RemotePath) and hangs(error):
        return False
    with suppress(DistfmsError):
        manifest = read_manifest(run.path)
        if manifest is not None and not run.holds_claim():
            return False
        refused = isinstance(error, DistfmsError) and error.exit_code == 2
        if manifest is not None and (manifest.stages or run.path not in new_folders or not refused):
            with suppress(DistfmsError):
                run.update(status="failed", error=str(error) or type(error).__name__)
            return True
        if run.path in new_folders:
            remove_tree(run.path)
            for folder in new_folders[1:]:
                with suppress(OSError):
                    Path(str(folder)).rmdir()
    return False


def _begin(run: RunFolder, prepared: Prepared, record: Recorder) -> bool:
    """Enter the attempt in the manifest; return whether it goes on with an earlier one."""
    manifest = read_manifest(run.path)
    if manifest is None:
        write_atomic(run.path / "spec.yaml", prepared.spec.to_yaml().encode())
    elif manifest.distfms != __version__:
        text = f"Another version of distfms ({manifest.distfms}) began this run: it starts anew."
        record.event("anew", text, began=manifest.distfms)
        manifest = None
    kept = Manifest(notes=list(prepared.origin.notes)) if manifest is None else manifest
    stages = [entry.model_dump(exclude_defaults=True) for entry in kept.stages]
    facts = _facts(prepared)
    forms = prepared.job.inputs.train.forms
    content = {"inputs": facts.pop("inputs"), "forms": forms.content() if forms else None}
    inputs = encode(INPUTS, content)
    claimed = run.claim(
        **facts,
        inputs_sha256=hashlib.sha256(inputs).hexdigest(),
        status="running",
        created=kept.created or now(),
        stages=stages,
        notes=kept.notes,
    )
    if kept.inputs_sha256 != claimed.inputs_sha256 or not (run.path / INPUTS).exists():
        write_atomic(run.path / INPUTS, inputs)
    resumed = manifest is not None
    record.event(
        "begin",
        f"{'Resuming' if resumed else 'Writing'} {run.path}",
        name=prepared.spec.name,
        run=run.path.name,
        method=prepared.spec.method,
        engine=prepared.spec.engine.kind,
        resumed=resumed,
        attempt=claimed.attempt,
    )
    for text in () if resumed else kept.notes:
        record.note(text)
    return resumed


def _facts(prepared: Prepared) -> dict[str, Any]:
    """Return what the manifest says of a run before it begins."""
    spec = prepared.spec
    return {
        "schema": SCHEMA_VERSION,
        "distfms": __version__,
        "spec_name": spec.name,
        "method": spec.method,
        "identity": prepared.identity,
        "seed": spec.seed,
        "muted": list(spec.output.mute),
        "engine": spec.engine.model_dump(mode="json"),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "source": prepared.origin.source,
        **describe_inputs(prepared.job.inputs),
    }


def describe_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return what is said of the data: file by file in `INPUTS`, and the sums in the manifest."""
    parts = [part for dataset in inputs.datasets for part in dataset.partitions]
    footers = {file.path: file.footer for dataset in inputs.datasets for file in dataset.files}
    held_out = {file.path for file in inputs.test.files} if inputs.test else set()
    files = []
    for path, group in groupby(parts, key=lambda part: part.path):
        of_file = list(group)
        fingerprints = "\n".join(part.fingerprint for part in of_file)
        files.append(
            {
                "path": of_file[0].called,
                # They tell a folder that was moved or renamed from other data.
                "name": of_file[0].name,
                "key": of_file[0].key,
                "footer": footers.get(path, ""),
                "version": of_file[0].file_version,
                "held_out": path in held_out,
                "n_rows": sum(part.n_rows for part in of_file),
                "n_bytes": sum(part.n_bytes for part in of_file),
                "fingerprint": hashlib.sha256(fingerprints.encode()).hexdigest(),
            }
        )
    return {
        "inputs": files,
        "n_partitions": len(parts),
        "n_rows": sum(part.n_rows for part in parts),
        "n_bytes": sum(part.n_bytes for part in parts),
    }


#: Name of the folder of a run, as `choose_folder` makes it.
_RUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}")


def keep_last(spec: JobSpec, run: Location, registry: Registry | None = None) -> None:
    """Delete the oldest runs of a job beyond `output.keep_runs`.

    `run` stays, the one that has just finished, and so do those of the current model and of the one
    that a rollback would promote, and runs that are under way or were killed. Failing is no error:
    the next run tries again.
    """
    keep = spec.output.keep_runs
    base = spec.place() / spec.name
    if keep is None:
        return
    with suppress(OSError, DistfmsError):
        registry = registry or spec.registry()
        names = sorted(path.name for path in base.iterdir() if _RUN.fullmatch(path.name))
        needed = {run.name}
        for number in registry.in_use(spec.name):
            place = str(registry.version(spec.name, number).facts.get("run"))
            needed.add(place.replace("\\", "/").rpartition("/")[2])
        for name in names[:-keep]:
            manifest = None if name in needed else read_manifest(base / name)
            if manifest is not None and manifest.status in ("done", "failed"):
                remove_tree(base / name)
