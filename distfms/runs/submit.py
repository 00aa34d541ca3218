"""Submitting a job to a Ray cluster, and following it to its end.

The package and the resolved spec travel; data and results stay on storage that the cluster sees.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from distfms.engine.remote import is_url
from distfms.errors import EngineError
from distfms.runs import entry
from distfms.runs.events import LOG_VARIABLE
from distfms.runs.job_spec import JobSpec, build_spec
from distfms.runs.ray_jobs import JobState, RayJobs
from distfms.runs.storage_options import refuse_clear_secrets
from distfms.spec import expand_variables, write_yaml

#: Seconds between two looks at a job's status, and before a broken log stream is opened again.
_POLL_S = 1.0

#: Seconds for which a head may be silent before waiting for a job is given up.
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Submission:
    """A job handed in.

    Attributes
    ----------
    id : str
        The submission id, ``distfms-NAME-HASH-ATTEMPT``.
    joined : bool
        Whether the job was there already, pending or running.
    """

    id: str
    joined: bool


def submit(jobs: RayJobs, spec: JobSpec, *, local: bool, say: Callable[[str], None]) -> Submission:
    """Hand a job in, unless the same job is pending or running.

    The id is made of the job's name, a hash of its resolved spec and the number of the attempt:
    submitting the same spec again goes on with what an attempt that ended badly has left in the
    run folder.

    Parameters
    ----------
    jobs : RayJobs
    spec : JobSpec
    local : bool
        Whether the cluster is on this machine, so that relative paths mean the same there.
    say : callable
        Told what the user should know.

    Returns
    -------
    Submission

    Raises
    ------
    SpecError
        If the spec cannot run on a cluster.
    EngineError
        If the head does not take the job.
    """
    travelling = resolved(spec, local=local, say=say)
    prefix = submission_prefix(travelling)
    earlier = jobs.list(prefix)
    if earlier and not earlier[-1].ended:
        say(f"The same job is {earlier[-1].status.lower()} already: {earlier[-1].id}")
        return Submission(earlier[-1].id, joined=True)
    attempt = 1 + max((_attempt(state.id) for state in earlier), default=0)
    id = f"{prefix}{attempt}"
    about = {"distfms": metadata.version("distfms"), "name": spec.name, "method": spec.method}
    with _staged(travelling) as folder:
        try:
            jobs.submit("python entry.py spec.yaml", id, _surroundings(folder), about)
        except EngineError:
            # Somebody else may have submitted the same attempt at the same moment.
            if id not in [state.id for state in jobs.list(prefix)]:
                raise
            say(f"The same job has just been submitted: {id}")
            return Submission(id, joined=True)
    say(f"Submitted {id}" + (f" (attempt {attempt})" if attempt > 1 else ""))
    return Submission(id, joined=False)


def _surroundings(folder: Path) -> dict[str, Any]:
    """Say with what the job is to run: the package, and the kind of log that is wished here."""
    kind = os.environ.get(LOG_VARIABLE)
    return {"working_dir": str(folder), **({"env_vars": {LOG_VARIABLE: kind}} if kind else {})}


def _attempt(id: str) -> int:
    number = id.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


def submission_prefix(content: Mapping[str, Any]) -> str:
    """Id of a job without the number of the attempt; the engine does not count."""
    counted = {key: value for key, value in content.items() if key != "engine"}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return f"distfms-{content['name']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-"


# --- what travels -------------------------------------------------------------------------------


def resolved(spec: JobSpec, *, local: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the spec as the cluster is to read it: absolute paths, engine ray.

    Raises
    ------
    SpecError
        If a variable in a path is not set, or a storage option holds a secret in clear: the
        variables that options name are looked up on the cluster.
    """
    refuse_clear_secrets(spec.data.storage_options, "data.storage_options")
    refuse_clear_secrets(spec.output_options, "output.storage_options")
    made_absolute: list[str] = []

    def absolute(path: str) -> str:
        expanded = expand_variables(path)
        if is_url(expanded):
            return expanded
        full = Path(expanded).expanduser()
        if not full.is_absolute():
            made_absolute.append(str(full.absolute()))
        return str(full.absolute())

    content = spec.to_mapping()
    data = content["data"]
    for section, key in ((data, "path"), (data, "test_path"), (data.get("long") or {}, "labels")):
        value = section.get(key)
        if value is not None:
            section[key] = absolute(value) if isinstance(value, str) else [*map(absolute, value)]
    if isinstance(content["output"], str):
        content["output"] = absolute(content["output"])
    else:
        content["output"]["path"] = absolute(content["output"]["path"])
    content["engine"] = _on_ray(content["engine"])
    build_spec(content)
    if made_absolute and not local:
        say(
            f"Warning: relative paths became {', '.join(made_absolute)}; every node of the cluster "
            "has to see these (shared storage)."
        )
    return content


def _on_ray(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine section for the cluster; what was said of another engine is dropped."""
    kept = dict(engine)
    if kept.pop("kind") != "ray":
        for key in ("workers", "processes", "address"):
            kept.pop(key, None)
    return {**kept, "kind": "ray", "address": "auto"}


@contextmanager
def _staged(content: Mapping[str, Any]) -> Iterator[Path]:
    """Make a folder with all that travels, for as long as it is uploaded."""
    with tempfile.TemporaryDirectory(prefix="distfms-submit-") as name:
        folder = Path(name)
        stage_package(folder)
        (folder / "spec.yaml").write_text(write_yaml(content), encoding="utf-8")
        yield folder


def stage_package(folder: Path) -> None:
    """Copy this distfms into a folder, so that Python started there finds it.

    Parameters
    ----------
    folder : Path
    """
    package = Path(entry.__file__).resolve().parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(package, folder / package.name, ignore=ignored)
    shutil.copyfile(entry.__file__, folder / "entry.py")
    distribution = metadata.distribution("distfms")
    # The package asks for its version at import.
    about = folder / f"distfms-{distribution.version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(distribution.read_text("METADATA") or "", encoding="utf-8")


# --- following ----------------------------------------------------------------------------------


def wait(jobs: RayJobs, id: str, write: Callable[[str], None], poll_s: float = _POLL_S) -> JobState:
    """Show what a job prints until it has ended.

    Only the status counts: a log stream that ends is opened again, one that broke off too.

    Parameters
    ----------
    jobs : RayJobs
    id : str
    write : callable
        Receives the log's text piece by piece, each once.
    poll_s : float
        Seconds between two looks at the status.

    Returns
    -------
    JobState
        Of the ended job.

    Raises
    ------
    EngineError
        If the head stays silent. The job may go on.
    """
    return asyncio.run(_wait(jobs, id, _Log(write), poll_s))


def follow(
    jobs: RayJobs, id: str, write: Callable[[str], None], say: Callable[[str], None]
) -> None:
    """Show what a job prints, and return when it has succeeded.

    Raises
    ------
    EngineError
        If the job failed or was stopped, with its own error, or if the head stays silent.
    """
    try:
        state = wait(jobs, id, write)
    except KeyboardInterrupt:
        say(
            f"The job goes on. To end it: distfms jobs stop {id} --address {jobs.address}; to "
            "follow it again, submit the same spec with --wait."
        )
        raise
    require_success(jobs, state)
    say(f"{id}: {state.status}")


def require_success(jobs: RayJobs, state: JobState) -> None:
    """Raise unless a job has succeeded.

    Raises
    ------
    EngineError
        With the job's own error.
    """
    if state.status == "SUCCEEDED":
        return
    if state.status == "STOPPED":
        raise EngineError(
            f"The job {state.id} was stopped. Submit the same spec again; it goes on from the "
            "stages that were finished."
        )
    raise EngineError(f"The job {state.id} {state.status.lower()}: {_own_error(jobs, state)}")


def _own_error(jobs: RayJobs, state: JobState) -> str:
    """Find the error that the job printed; else what Ray says about its end."""
    lines = [line for line in jobs.logs(state.id).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error: ")]
    if errors:
        return errors[-1].removeprefix("Error: ")
    started = any(line.startswith("Running entrypoint") for line in lines)
    told = lines[-1].strip() if started else " ".join(state.message.split())[:1000]
    return f"{told} (all of its output: distfms jobs logs {state.id} --address {jobs.address})"


class _Log:
    """Writes each piece of a log once, however often its beginning is sent."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._n_written = 0

    def take(self, text: str, start: int) -> None:
        """Take text that begins ``start`` characters after the log's beginning."""
        fresh = text[max(self._n_written - start, 0) :]
        if fresh:
            self._write(fresh)
            self._n_written = start + len(text)


async def _wait(jobs: RayJobs, id: str, log: _Log, poll_s: float) -> JobState:
    tail = asyncio.create_task(_tail(jobs, id, log, poll_s))
    try:
        state = await _ended(jobs, id, poll_s)
    finally:
        tail.cancel()
        with suppress(asyncio.CancelledError):
            await tail
    # What the stream had not yet brought.
    with suppress(EngineError):
        log.take(await asyncio.to_thread(jobs.logs, id), 0)
    return state


async def _tail(jobs: RayJobs, id: str, log: _Log, pause_s: float) -> None:
    while True:
        position = 0
        # Whatever the stream breaks with: whether the job lives is for its status to say.
        with suppress(Exception):
            async for text in jobs.tail(id):
                log.take(text, position)
                position += len(text)
        await asyncio.sleep(pause_s)


async def _ended(jobs: RayJobs, id: str, poll_s: float) -> JobState:
    heard = time.monotonic()
    while True:
        try:
            state = await asyncio.to_thread(jobs.state, id)
            heard = time.monotonic()
        except EngineError:
            if time.monotonic() - heard > _PATIENCE_S:
                raise
        else:
            if state.ended:
                return state
        await asyncio.sleep(poll_s)
