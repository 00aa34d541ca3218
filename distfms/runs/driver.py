"""The driver: opens the data, runs a method's function, keeps the run folder.

It is the only place that puts data, engine and method together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distfms.engine import make_executor
from distfms.engine.base import Executor
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DistfmsError
from distfms.methods.frame.contract import Finished
from distfms.runs.context import RunContext
from distfms.runs.events import Display, Recorder, Say, silent
from distfms.runs.facts import begin, facts_of
from distfms.runs.finished import RunFiles, read_written
from distfms.runs.folder import INPUTS, MANIFEST, Manifest, RunFolder, encode, now, read_manifest
from distfms.runs.job_folder import choose_folder, keep_last, link_latest
from distfms.runs.job_spec import JobSpec
from distfms.runs.prepare import Prepared, prepare
from distfms.runs.projection import Projection, project_job
from distfms.runs.steps import Steps
from distfms.store.kept import KEPT, pruned
from distfms.store.places import Location, hangs, missing_folders, reading, remove_tree
from distfms.store.remote import RemotePath


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
    prepared = prepare(spec, say)
    registry = spec.registry() if spec.output.keep_runs else None
    result = run_prepared(prepared, out, say, progress, on_silence)
    if registry is not None:
        base = prepared.root / spec.name
        keep_last(base, spec.output.keep_runs, result.folder, registry)
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
    base = prepared.root / spec.name
    cache = prepared.root / KEPT
    named = None if out is None else spec.place(out)
    path = choose_folder(named, base, prepared.identity, say)
    with (
        single_threaded_blas(),
        make_executor(spec.engine, on_silence) as executor,
        pruned(cache, spec.output.cache_bytes),
    ):
        projection = project_job(spec.engine, prepared.job, executor.workers)
        for line in projection.lines(path):
            say(line)
        projection.require(executor.available_bytes())
        with reading(path):
            new_folders = missing_folders(path)
        run = RunFolder(path)
        with run.locked(), Recorder(run, say, progress, spec.output.mute) as record:
            try:
                resumed = begin(run, prepared, record)
                steps = Steps(run, record, prepared.origin.notes)
                _learn(prepared, _context(prepared, steps, executor, cache, projection))
                run.update(status="done", finished=now())
            except Exception as error:
                record.fail(error, keep=_end_badly(run, error, new_folders))
                raise
            if spec.output.tracking is not None:
                from distfms.runs.tracking import track

                failure = track(spec.output.tracking, spec.name, path)
                if failure:
                    record.note(failure)
            record.event("done")
            run.require_claim()
            if path.parent == base:
                link_latest(path)
    return RunResult(path, resumed, tuple(steps.loaded))


def run_in_memory(prepared: Prepared, say: Say) -> RunFiles:
    """Run a prepared job in memory, where no step is kept; return the files of its model."""
    spec = prepared.spec
    with single_threaded_blas(), make_executor(spec.engine) as executor:
        projection = project_job(spec.engine, prepared.job, executor.workers)
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
    facts, files[INPUTS] = facts_of(prepared)
    manifest = Manifest.model_validate({**facts, **outcome, **times})
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
