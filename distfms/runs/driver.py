"""The driver: opens the data, runs a job's stages one after the other, keeps the run folder.

It is the only place that puts data, engine and method together.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distfms.data.footers import row_remarks
from distfms.engine import make_executor
from distfms.engine.blas import single_threaded_blas
from distfms.engine.cache import prune
from distfms.engine.graph import RetryPolicy
from distfms.engine.memory import counted
from distfms.engine.remote import RemotePath
from distfms.engine.storage import (
    Location,
    files_below,
    hangs,
    missing_folders,
    reading,
    remove_tree,
)
from distfms.errors import DistfmsError, SpecError
from distfms.hidden import hidden_in_urls
from distfms.methods import load_method
from distfms.methods.contract import Inputs, Job, Method, Stage
from distfms.methods.statistics_job import KEPT
from distfms.methods.tuning import Tuning
from distfms.runs.auto_folds import resolve_folds
from distfms.runs.context import RunContext
from distfms.runs.events import Display, Recorder, Say
from distfms.runs.finished import RunFiles, require_tracker, track
from distfms.runs.folder import (
    LATEST,
    SCHEMA_VERSION,
    Manifest,
    RunFolder,
    choose_folder,
    now,
    read_manifest,
    write_atomic,
)
from distfms.runs.inputs import Opened, open_inputs
from distfms.runs.job_spec import JobSpec
from distfms.runs.projection import Projection, project_job

if TYPE_CHECKING:
    from distfms.registry import Registry


_PACKAGES = ("numpy", "scipy", "pyarrow", "dask", "scikit-learn")


def silent(line: str) -> None:
    """Take a line and say nothing."""


# --- a job, ready to run ------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A job whose spec and data have been checked.

    `root` is the place of all runs, `identity` a hash of all that the result depends on, `tuning`
    the same job with the choice of its options, where the spec asks for it, `more` the stages
    between those of the job and the report, which `draws` says whether there is.
    """

    spec: JobSpec
    root: Location
    opened: Opened
    method: Method
    job: Job
    identity: str
    tuning: Tuning | None = None
    more: tuple[Stage, ...] = ()
    draws: bool = True

    def stages(self) -> Sequence[Stage]:
        """Return the stages of the run."""
        report = [self.method.report_stage()] if self.draws else []
        return [*(self.tuning or self.job).stages(), *self.more, *report]

    def describe(self) -> Mapping[str, str]:
        """Return what the run will do: label → text."""
        described = dict((self.tuning or self.job).describe())
        n_folds = self.job.inputs.section.folds
        cost = f", about {n_folds + 1} times the work of `folds: 0`" * self.job.folds_cost
        described["cross-validation"] = f"{n_folds} folds{cost}" if n_folds else "none"
        if self.spec.engine.kind == "dask":
            described["actors"] = "processes of this machine; Dask workers make the passes"
        return described

    def projection(self, workers: int | None = None) -> Projection:
        """Project what the run will read, hold and write."""
        return project_job(self.spec, self.opened.inputs, self.job, workers)

    def local_files(self) -> list[str]:
        """Return the files that every worker has to see; what is on object storage is left out."""
        inputs = self.opened.inputs
        datasets = [*inputs.datasets, *([inputs.unlabelled] if inputs.unlabelled else [])]
        paths = [file.path for dataset in datasets for file in dataset.files]
        return [path for path in paths if Path(path).exists()]


def prepare(spec: JobSpec, say: Say = silent, opened: Opened | None = None) -> Prepared:
    """Open the data, unless they are open, and check the whole spec against them.

    No rows are read.

    Raises
    ------
    SpecError, DataError
    """
    if spec.output.tracking is not None:
        require_tracker(spec.output.tracking)
    root = spec.place()
    method = load_method(spec.method)
    if spec.data.unlabelled_path is not None and not method.takes_unlabelled:
        raise SpecError(
            f"`data.unlabelled_path` is for landmarks only; this job's method is `{spec.method}`. "
            "Leave it out."
        )
    if spec.data.missing == "pairs" and not method.takes_gaps:
        raise SpecError(
            f"`data.missing: pairs` is not for the method `{spec.method}`: choose from error, drop "
            "and mean."
        )
    spec, opened = resolve_folds(spec, opened or open_inputs(spec, root, say))
    identity = spec.identity(opened.fingerprints)
    tuning = None
    if spec.tune is None:
        job = method.make_job(spec.options, opened.inputs, spec.seed)
    else:
        tuning = Tuning.of(method, spec.options, opened.inputs, spec.seed, spec.tune)
        job = tuning.job
    if spec.retrain is not None and spec.retrain.forget.half_life and not job.weighs_partitions:
        raise SpecError(
            f"`retrain.forget.half_life` weighs statistics by age, but this `{spec.method}` job "
            "learns from the rows themselves. Use `forget: all` or a `window`."
        )
    remarks = row_remarks(opened.inputs.train, opened.inputs.section, job.columns())
    opened = replace(opened, notes=(*opened.notes, *remarks))
    return Prepared(spec, root, opened, method, job, identity, tuning)


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
        Stages that were found finished.
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
    cache = prepared.root / ".partials"
    engine = spec.engine
    with (
        single_threaded_blas(),
        make_executor(engine, on_silence) as executor,
    ):
        projection = prepared.projection(executor.workers)
        for line in projection.lines(path):
            say(line)
        projection.require(executor.available_bytes())
        if executor.name != "local":  # whose workers see what this process sees
            executor.probe(prepared.local_files())
        with reading(path):
            made = missing_folders(path)
        run = RunFolder(path)
        with run.locked(), Recorder(run, say, progress) as record:
            try:
                resumed = _begin(run, prepared, record)
                context = RunContext(
                    seed=spec.seed,
                    inputs=prepared.opened.inputs,
                    run=run,
                    executor=executor,
                    retry=RetryPolicy(attempts=engine.retries + 1, timeout_s=engine.timeout_s),
                    cache=cache if projection.cached else None,
                    record=record,
                    value_bytes=projection.memory.value_bytes,
                    in_memory=isinstance(path, RemotePath) and path.protocol == "memory",
                )
                skipped = _run_stages(prepared.stages(), context)
                if skipped:  # the stage that removes what folds keep may be among them
                    remove_tree(path / KEPT)
                run.update(status="done", finished=now())
            except Exception as error:
                record.fail(error, keep=_end_badly(run, error, made))
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
    return RunResult(path, resumed, tuple(skipped))


def run_in_memory(prepared: Prepared, say: Say) -> RunFiles:
    """Run a prepared job in memory, but for the report; return its files but statistics."""
    try:
        folder = run_prepared(replace(prepared, draws=False), f"{prepared.root}/run", say).folder
        files = {
            entry.name: entry.place.read_bytes()
            for entry in files_below(folder)
            if not entry.name.startswith((".", "statistics/"))
        }
        manifest = read_manifest(folder)
        assert manifest is not None
        return RunFiles(folder, prepared.spec.name, files, manifest)
    finally:
        remove_tree(prepared.root)


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
        record.event("note", f"Note: {text}", text=text)


def _end_badly(run: RunFolder, error: Exception, made: Sequence[Location]) -> bool:
    """Note the failure; leave nothing behind where nothing was achieved.

    Returns whether the folder stays and is this driver's.
    """
    # The storage itself may be what failed.
    if isinstance(run.path, RemotePath) and hangs(error):
        return False
    with suppress(DistfmsError):
        found = read_manifest(run.path)
        if found is not None and not run.holds_claim():
            return False
        refused = isinstance(error, DistfmsError) and error.exit_code == 2
        if found is not None and (found.stages or run.path not in made or not refused):
            with suppress(DistfmsError):
                run.update(status="failed", error=str(error) or type(error).__name__)
            return True
        if run.path in made:
            remove_tree(run.path)
            for folder in made[1:]:
                with suppress(OSError):
                    Path(str(folder)).rmdir()
    return False


def _begin(run: RunFolder, prepared: Prepared, record: Recorder) -> bool:
    """Enter the attempt in the manifest; return whether there was one before."""
    manifest = read_manifest(run.path)
    resumed = manifest is not None
    if manifest is None:
        manifest = Manifest(created=now(), notes=list(prepared.opened.notes))
        write_atomic(run.path / "spec.yaml", prepared.spec.to_yaml().encode())
    content = run.claim(
        schema=SCHEMA_VERSION,
        model_form=prepared.method.form,
        distfms=metadata.version("distfms"),
        status="running",
        created=manifest.created,
        spec_name=prepared.spec.name,
        method=prepared.spec.method,
        identity=prepared.identity,
        seed=prepared.spec.seed,
        engine=prepared.spec.engine.model_dump(mode="json"),
        packages={name: metadata.version(name) for name in _PACKAGES},
        sources=list(prepared.opened.fingerprints),
        **describe_inputs(prepared.opened.inputs),
        stages=[entry.model_dump() for entry in manifest.stages],
        notes=manifest.notes,
    )
    record.event(
        "begin",
        f"{'Resuming' if resumed else 'Writing'} {run.path}",
        name=prepared.spec.name,
        run=run.path.name,
        method=prepared.spec.method,
        engine=prepared.spec.engine.kind,
        resumed=resumed,
        attempt=content.attempt,
    )
    for text in () if resumed else manifest.notes:
        record.event("note", f"Note: {text}", text=text)
    return resumed


def describe_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return what the manifest says of the data."""
    parts = [part for dataset in inputs.datasets for part in dataset.partitions]
    footers = {file.path: file.footer for dataset in inputs.datasets for file in dataset.files}
    held_out = {file.path for file in inputs.test.files} if inputs.test else set()
    files = []
    for path, some in groupby(parts, key=lambda part: part.path):
        of_file = list(some)
        fingerprints = "\n".join(part.fingerprint for part in of_file)
        files.append(
            {
                "path": hidden_in_urls(path),
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


def _run_stages(stages: Sequence[Stage], context: RunContext) -> list[str]:
    run = context.run
    skipped = run.finished_of([stage.name for stage in stages])
    for stage in stages:
        if stage.name in skipped:
            continue
        context.record.event("stage", stage=stage.name)
        start = time.perf_counter()
        context.counts = {}
        files = stage.run(context)
        seconds = time.perf_counter() - start
        run.write_stage(stage.name, files, seconds, context.counts)
        line = f"  {stage.name}: {seconds:.1f} s{_counted(context.counts)}"
        entries = {"stage": stage.name, "seconds": seconds, **context.counts}
        context.record.event("stage_done", line, **entries)
        context.record.flush()
    return skipped


def _counted(counts: Mapping[str, int]) -> str:
    if "n_read" not in counts:
        return ""
    cached = f", {counts['n_cached']} from the cache" if counts.get("n_cached") else ""
    return f" ({counted(counts['n_read'], 'partition')} read{cached})"


#: Name of the folder of a run, as `choose_folder` makes it.
_RUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}")


def keep_last(spec: JobSpec, run: Location, registry: Registry | None = None) -> None:
    """Delete the oldest runs of a job beyond `output.keep_runs`, and records of old locks.

    `run` stays, the one that has just finished, and so do those of the current model and of the one
    that a rollback would promote, and runs that are under way or were killed. Failing is no error:
    the next run tries again.
    """
    keep, base = spec.output.keep_runs, spec.place() / spec.name
    if keep is None:
        return
    from distfms.registry import Lock

    with suppress(OSError, DistfmsError):
        registry = registry or spec.registry()
        names = sorted(path.name for path in base.iterdir() if _RUN.fullmatch(path.name))
        facts = [registry.version(spec.name, n).facts for n in registry.in_use(spec.name)]
        needed = {run.name} | {
            str(own.get("run")).replace("\\", "/").rpartition("/")[2] for own in facts
        }
        for name in names[:-keep]:
            manifest = None if name in needed else read_manifest(base / name)
            if manifest is not None and manifest.status in ("done", "failed"):
                remove_tree(base / name)
        locks = registry.journal(spec.name, Lock)
        for number in locks.numbers()[:-1]:
            locks.place(number).unlink(missing_ok=True)
