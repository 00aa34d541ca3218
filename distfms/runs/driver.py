"""The driver: opens the data, runs a job's stages one after the other, keeps the run folder.

It is the only place that puts data, engine and method together.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from distfms.data.dataset import ParquetDataset
from distfms.engine.blas import single_threaded_blas
from distfms.engine.cache import PartialCache
from distfms.engine.executors import Executor, make_executor
from distfms.engine.graph import Unit
from distfms.engine.mapreduce import map_reduce
from distfms.engine.retry import RetryPolicy
from distfms.errors import DistfmsError, SpecError
from distfms.methods import method_job
from distfms.methods.contract import Inputs, Job, PartialReader
from distfms.runs.folder import SCHEMA_VERSION, RunFolder, now, read_manifest, write_atomic
from distfms.runs.inputs import Opened, open_inputs
from distfms.runs.job_spec import JobSpec, is_url
from distfms.runs.projection import Projection, project_job
from distfms.stats.base import from_bytes, to_bytes
from distfms.stats.bundle import Bundle

T = TypeVar("T")
R = TypeVar("R")

_PACKAGES = ("numpy", "scipy", "pyarrow", "dask", "scikit-learn")


def _silent(line: str) -> None:
    """Take a line and say nothing."""


@dataclass
class _Iteration:
    """Hands on the events of passes that follow one another; the ends of passes now and then."""

    progress: Callable[[Mapping[str, Any]], None]
    interval_s: float = 5.0
    last_s: float = -math.inf

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "unit" and event["done"] == event["total"]:
            now_s = time.monotonic()
            if now_s - self.last_s < self.interval_s:
                return
            self.last_s = now_s
        self.progress(event)


@dataclass
class _Context:
    """See :class:`distfms.methods.contract.Context`."""

    seed: int
    inputs: Inputs
    run: RunFolder
    executor: Executor
    cache: Path | None
    retry: RetryPolicy
    say: Callable[[str], None]
    progress: Callable[[Mapping[str, Any]], None]
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.iteration = _Iteration(self.progress)

    @property
    def folder(self) -> Path:
        return self.run.path

    def reduce(
        self, reader: Callable[[ParquetDataset, bool], PartialReader], *, cache: bool = True
    ) -> Bundle:
        result = self._reduce_one(reader(self.inputs.train, False), self.inputs.train, cache)
        if self.inputs.test is not None:
            held_out = self._reduce_one(reader(self.inputs.test, True), self.inputs.test, cache)
            result = result.merge(held_out)
        return result

    def _reduce_one(self, read: PartialReader, dataset: ParquetDataset, use_cache: bool) -> Bundle:
        key = json.dumps(read.key(), sort_keys=True, default=str)
        prefix = hashlib.sha256(key.encode()).hexdigest()
        units = [
            Unit(f"{prefix}:{read.partition_key(p)}", p, p.n_bytes) for p in dataset.partitions
        ]
        cache = None
        if use_cache and self.cache is not None:
            cache = PartialCache(self.cache, encode_bundle, partial(decode_bundle, read.part_types))
        reduction = map_reduce(
            units,
            read,
            Bundle.merge,
            self.executor,
            cache=cache,
            retry=self.retry,
            on_event=self.progress if use_cache else self.iteration,
        )
        self._count(reduction.n_computed, reduction.n_cached, reduction.bytes_read)
        return reduction.value

    def _count(self, n_read: int, n_cached: int, bytes_read: int) -> None:
        for name, value in (
            ("n_read", n_read),
            ("n_cached", n_cached),
            ("bytes_read", bytes_read),
        ):
            self.counts[name] = self.counts.get(name, 0) + value

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return self.executor.map(function, list(items), retry=self.retry)

    def read_json(self, name: str) -> dict[str, Any]:
        return self.run.read_json(name)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        return self.run.read_arrays(name)

    def manifest(self) -> dict[str, Any]:
        return self.run.manifest()

    def note(self, text: str) -> None:
        notes = self.run.manifest().get("notes", [])
        if text not in notes:
            self.run.update(notes=[*notes, text])
            self.run.event("note", text=text)
            self.say(f"Note: {text}")

    def account(self, **entries: Any) -> None:
        self.run.update(**entries)


def encode_bundle(bundle: Bundle) -> bytes:
    """Bytes of a bundle, for the cache."""
    return to_bytes(bundle.to_arrays())


def decode_bundle(part_types: Mapping[str, Any], payload: bytes) -> Bundle:
    """Inverse of :func:`encode_bundle`."""
    return Bundle.from_arrays(from_bytes(payload), part_types)


# --- a job, ready to run ------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A job whose spec and data have been checked.

    Attributes
    ----------
    spec : JobSpec
    opened : Opened
    job : Job
    identity : str
        Hash of all that the result depends on.
    """

    spec: JobSpec
    opened: Opened
    job: Job
    identity: str

    def projection(self) -> Projection:
        """What the run will read, hold and write."""  # noqa: D401
        return project_job(self.spec, self.opened.inputs, self.job)


def prepare(spec: JobSpec, say: Callable[[str], None] = _silent) -> Prepared:
    """Open the data and check the whole spec against it, without reading rows.

    Raises
    ------
    SpecError, DataError
    """
    opened = open_inputs(spec, say)
    job = method_job(spec.method).of(spec.options, opened.inputs, spec.seed)
    return Prepared(spec, opened, job, spec.identity(opened.fingerprints))


@dataclass(frozen=True)
class RunResult:
    """Where a finished run is, and what it did.

    Attributes
    ----------
    folder : Path
    resumed : bool
        Whether an earlier, unfinished run was continued.
    skipped : tuple of str
        Stages that were found finished.
    """

    folder: Path
    resumed: bool
    skipped: tuple[str, ...]


def run_job(
    spec: JobSpec,
    *,
    out: str | Path | None = None,
    say: Callable[[str], None] = _silent,
    progress: Callable[[Mapping[str, Any]], None] = lambda event: None,
) -> RunResult:
    """Run a job to the end, going on where an earlier attempt stopped.

    Parameters
    ----------
    spec : JobSpec
    out : path, optional
        The run's folder. By default a new folder below ``output/name``, or the latest unfinished
        one of the same spec and data.
    say : callable
        Told what happens, line by line.
    progress : callable
        Receives the engine's events.

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
    projection = prepared.projection()
    for line in projection.lines():
        say(line)
    projection.require()
    path = choose_folder(prepared, None if out is None else Path(out))
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    run = RunFolder(path)
    with run.locked():
        resumed = _begin(run, prepared)
        say(f"{'Resuming' if resumed else 'Writing'} {path}")
        try:
            skipped = _run_stages(run, prepared, say, progress)
        except DistfmsError as error:
            _end_badly(run, error, made)
            raise
        run.update(status="done", finished=now())
        run.event("done")
    return RunResult(path, resumed, tuple(skipped))


def _end_badly(run: RunFolder, error: DistfmsError, made: Sequence[Path]) -> None:
    """Note the failure; leave nothing behind where nothing was achieved."""
    if not run.holds_claim():
        return
    if run.manifest().get("stages") or run.path not in made:
        with suppress(DistfmsError):
            run.update(status="failed", error=str(error))
        run.event("failed", error=str(error))
        return
    if error.exit_code == 2:
        shutil.rmtree(run.path, ignore_errors=True)
        for folder in made[1:]:
            with suppress(OSError):
                folder.rmdir()


def choose_folder(prepared: Prepared, out: Path | None) -> Path:
    """Folder for a run: the one asked for, an unfinished one of the same identity, or a new one.

    Raises
    ------
    SpecError
        If the folder asked for belongs to another spec or other data, or holds other things.
    """
    if out is not None:
        _refuse_foreign(out, prepared.identity)
        return out
    base = Path(prepared.spec.output) / prepared.spec.name
    unfinished = [
        path.parent
        for path in sorted(base.glob("*/manifest.json"))
        if (manifest := read_manifest(path.parent)).get("identity") == prepared.identity
        and manifest.get("status") != "done"
    ]
    if unfinished:
        return unfinished[-1]
    stamp = now().replace(":", "-")
    path = base / f"{stamp}-{prepared.identity[:8]}"
    counter = 2
    while path.exists():
        path = base / f"{stamp}-{prepared.identity[:8]}-{counter}"
        counter += 1
    return path


def _refuse_foreign(out: Path, identity: str) -> None:
    if is_url(str(out)):
        raise SpecError(
            f"--out {out} is a URL. A run is written to a folder, for a cluster one on a shared "
            "file system."
        )
    if out.exists() and not out.is_dir():
        raise SpecError(f"--out {out} is a file. Name a folder.")
    found = read_manifest(out).get("identity") if out.exists() else None
    if found is not None and found != identity:
        raise SpecError(
            f"The run folder {out} belongs to another spec or to other data (it says "
            f"{found[:8]}, this job is {identity[:8]}). Choose another folder with --out."
        )
    if found is None and out.exists() and any(not p.name.startswith(".") for p in out.iterdir()):
        raise SpecError(
            f"--out {out} holds files that are not a run's. Name an empty or a new folder."
        )


def _begin(run: RunFolder, prepared: Prepared) -> bool:
    """Enter the attempt in the manifest; return whether there was one before."""
    manifest = run.manifest()
    resumed = bool(manifest)
    if not resumed:
        write_atomic(run.path / "spec.yaml", prepared.spec.to_yaml().encode())
    content = run.claim(
        schema=SCHEMA_VERSION,
        distfms=metadata.version("distfms"),
        status="running",
        created=manifest.get("created", now()),
        spec_name=prepared.spec.name,
        method=prepared.spec.method,
        identity=prepared.identity,
        seed=prepared.spec.seed,
        engine=prepared.spec.engine.model_dump(mode="json"),
        packages={name: metadata.version(name) for name in _PACKAGES},
        **_describe_inputs(prepared.opened.inputs),
        stages=manifest.get("stages", []),
        notes=manifest.get("notes", list(prepared.opened.notes)),
    )
    run.event("begin", resumed=resumed, attempt=content["attempt"])
    return resumed


def _describe_inputs(inputs: Inputs) -> dict[str, Any]:
    datasets = [d for d in (inputs.train, inputs.test) if d is not None]
    files: dict[str, dict[str, Any]] = {}
    for dataset in datasets:
        for part in dataset.partitions:
            entry = files.setdefault(
                part.path, {"path": part.path, "n_rows": 0, "n_bytes": 0, "fingerprints": []}
            )
            entry["n_rows"] += part.n_rows
            entry["n_bytes"] += part.n_bytes
            entry["fingerprints"].append(part.fingerprint)
    return {
        "inputs": [_with_one_fingerprint(entry) for entry in files.values()],
        "n_partitions": sum(len(d.partitions) for d in datasets),
        "n_rows": sum(d.n_rows for d in datasets),
        "n_bytes": sum(d.n_bytes for d in datasets),
    }


def _with_one_fingerprint(entry: dict[str, Any]) -> dict[str, Any]:
    parts = entry.pop("fingerprints")
    whole = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return {**entry, "fingerprint": parts[0] if len(parts) == 1 else whole}


def _run_stages(
    run: RunFolder,
    prepared: Prepared,
    say: Callable[[str], None],
    progress: Callable[[Mapping[str, Any]], None],
) -> list[str]:
    skipped: list[str] = []
    engine = prepared.spec.engine
    pending = [stage for stage in prepared.job.stages() if not run.finished(stage.name)]
    skipped = [s.name for s in prepared.job.stages() if s not in pending]
    if not pending:
        return skipped

    def on_event(event: Mapping[str, Any]) -> None:
        progress(event)
        if event.get("event") != "unit":
            run.event(**dict(event))

    with (
        single_threaded_blas(),
        make_executor(engine.kind, engine.workers, engine.address, engine.processes) as executor,
    ):
        context = _Context(
            seed=prepared.spec.seed,
            inputs=prepared.opened.inputs,
            run=run,
            executor=executor,
            cache=Path(prepared.spec.output) / ".partials" if engine.cache else None,
            retry=RetryPolicy(attempts=engine.retries + 1),
            say=say,
            progress=on_event,
        )
        for stage in pending:
            run.event("stage", stage=stage.name)
            start = time.perf_counter()
            context.counts = {}
            files = stage.run(context)
            seconds = time.perf_counter() - start
            run.write_stage(stage.name, files, seconds, context.counts)
            run.event("stage_done", stage=stage.name, seconds=seconds, **context.counts)
            say(f"  {stage.name}: {seconds:.1f} s{_counted(context.counts)}")
    return skipped


def _counted(counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    cached = f", {counts['n_cached']} from the cache" if counts.get("n_cached") else ""
    return f" ({counts['n_read']} partitions read{cached})"
