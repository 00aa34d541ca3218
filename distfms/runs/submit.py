"""Submitting a job to a Ray cluster through Ray's own client, and following it to its end.

The package and the resolved spec travel; data and results stay on storage that the cluster sees.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from distfms.engine.remote import is_url
from distfms.errors import EngineError, SpecError
from distfms.hidden import hidden_in_urls, secrets_of
from distfms.runs.events import LOG_VARIABLE
from distfms.runs.job_spec import JobSpec, build_spec
from distfms.runs.ray_head import explained
from distfms.spec import expand_variables, write_yaml

#: Status values after which nothing more happens to a job.
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")

#: Seconds between two looks at a job, and for which a head may be silent before they end.
_POLL_S, _PATIENCE_S = 1.0, 120.0

Say = Callable[[str], None]


def submit(
    client: Any, address: str, spec: JobSpec, *, local: bool, say: Say, retrain: bool = False
) -> str:
    """Hand a job in, unless the same job is pending or running, and return its id.

    The id, ``distfms-NAME-HASH-ATTEMPT``, is made of the job's name, a hash of its resolved spec
    and the number of the attempt: submitting the same spec again resumes what an attempt that
    ended badly has left in the run folder. With ``retrain`` the cluster does as `distfms retrain`
    does, and the id begins with ``distfms-retrain``. ``local`` says that the cluster is on this
    machine, so that relative paths mean the same there.
    """
    travelling = resolved(spec, local=local, say=say)
    verb = "retrain" if retrain else "run"
    prefix = _submission_prefix(travelling, verb)
    earlier = _jobs(client, address, prefix)
    if earlier and earlier[-1].status.value not in _ENDED:
        id = str(earlier[-1].submission_id)
        say(f"The same job is already {earlier[-1].status.value.lower()}: {id}")
        return id
    attempt = 1 + (int(earlier[-1].submission_id.removeprefix(prefix)) if earlier else 0)
    id = f"{prefix}{attempt}"
    kind = os.environ.get(LOG_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="distfms-submit-") as folder:
        stage_package(Path(folder))
        (Path(folder) / "spec.yaml").write_text(write_yaml(travelling), encoding="utf-8")
        surroundings = {"working_dir": folder, "env_vars": {LOG_VARIABLE: kind} if kind else {}}
        try:
            with explained(address):
                client.submit_job(
                    entrypoint=f"python entry.py {verb} spec.yaml",
                    submission_id=id,
                    runtime_env=surroundings,
                    metadata={"distfms": metadata.version("distfms"), "method": spec.method},
                )
        except EngineError:
            # Somebody else may have submitted the same attempt at the same moment.
            if id not in [job.submission_id for job in _jobs(client, address, prefix)]:
                raise
            say(f"The same job was just submitted: {id}")
            return id
    say(f"Submitted {id}" + (f" (attempt {attempt})" if attempt > 1 else ""))
    return id


def _jobs(client: Any, address: str, prefix: str) -> list[Any]:
    """Details of a job's attempts, the latest last."""
    with explained(address):
        jobs = client.list_jobs()
    pattern = re.compile(re.escape(prefix) + r"\d+")
    found = [job for job in jobs if pattern.fullmatch(job.submission_id or "")]
    return sorted(found, key=lambda job: int(job.submission_id.removeprefix(prefix)))


def _submission_prefix(content: Mapping[str, Any], verb: str) -> str:
    """Id of a job without the number of the attempt; the engine does not count."""
    counted = {key: value for key, value in content.items() if key != "engine"}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    start = "distfms-" if verb == "run" else f"distfms-{verb}-"
    return f"{start}{content['name']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-"


# --- what travels -------------------------------------------------------------------------------


def resolved(spec: JobSpec, *, local: bool, say: Say) -> dict[str, Any]:
    """Return the spec as the cluster is to read it: absolute paths, engine ray.

    The variables that storage options name are looked up on the cluster.
    """
    _refuse_clear_secrets(spec.data.storage_options, spec.data.places(), "data")
    _refuse_clear_secrets(spec.output.storage_options, (), "output")
    made_absolute: list[str] = []

    def absolute(path: Any) -> Any:
        if path is None or isinstance(path, list):
            return path and [absolute(one) for one in path]
        expanded = expand_variables(path)
        if is_url(expanded):
            # A secret that a variable holds is looked up on the cluster.
            return expanded if hidden_in_urls(expanded) == expanded else path
        full = Path(expanded).expanduser()
        if not full.is_absolute():
            made_absolute.append(str(full.absolute()))
        return str(full.absolute())

    content = spec.to_mapping()
    data, engine = content["data"], content["engine"]
    data |= {key: absolute(data[key]) for key in ("path", "test_path", "unlabelled_path")}
    if data["long"]:
        data["long"]["labels"] = absolute(data["long"]["labels"])
    content["output"] |= {key: absolute(content["output"][key]) for key in ("path", "registry")}
    if engine["kind"] != "ray":  # what was said of another engine is dropped
        engine |= {"workers": None, "processes": False}
    engine |= {"kind": "ray", "address": "auto"}
    build_spec(content)
    if made_absolute and not local:
        say(
            f"Warning: relative paths became {', '.join(made_absolute)}; every node of the cluster "
            "must be able to reach them (shared storage)."
        )
    return content


def _refuse_clear_secrets(options: Mapping[str, Any], urls: Iterable[str], where: str) -> None:
    """Refuse what would hand a secret to whoever reads the cluster's job records.

    ``where`` is the section that holds the options and URLs.
    """
    found = [f"storage_options.{key}" for key, _ in secrets_of(options)]
    found += ["path" for url in urls if hidden_in_urls(url) != url]
    if found:
        raise SpecError(
            f"`{where}.{found[0]}` may hold a secret in clear text, and a submitted spec can be "
            "read on the cluster. Set an environment variable on the cluster and write "
            "${NAME}, or leave the option out and use the provider's own configuration there."
        )


def stage_package(folder: Path) -> None:
    """Copy this distfms into a folder, so that Python started there finds it."""
    package = Path(__file__).resolve().parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(package, folder / package.name, ignore=ignored)
    shutil.copyfile(package / "entry.py", folder / "entry.py")
    distribution = metadata.distribution("distfms")
    # The package asks for its version at import.
    about = folder / f"distfms-{distribution.version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(distribution.read_text("METADATA") or "", encoding="utf-8")


# --- following ----------------------------------------------------------------------------------


def follow(client: Any, address: str, id: str, write: Say, say: Say) -> None:
    """Show what a job prints, and return when it has succeeded.

    An EngineError has the job's own error, or says that the head stays silent.
    """
    try:
        job, log = _ended(client, address, id, write)
    except KeyboardInterrupt:
        say(
            f"The job keeps running. To stop it: ray job stop {id} --address {address}; to follow "
            "it again, submit the same spec with --wait."
        )
        raise
    status = job.status.value
    if status == "STOPPED":
        raise EngineError(
            f"The job {id} was stopped. Submit the same spec again to resume from its finished "
            "stages."
        )
    if status != "SUCCEEDED":
        raise EngineError(f"The job {id} {status.lower()}: {_own_error(job, log, address)}")
    say(f"{id}: {status}")


def _ended(client: Any, address: str, id: str, write: Say) -> tuple[Any, str]:
    """Write what a job prints until it has ended; return its details and all it has printed."""
    log, heard_s = "", time.monotonic()
    while True:
        try:
            with explained(address):
                job = client.get_job_info(id)
                now = client.get_job_logs(id)
            heard_s = time.monotonic()
            write(now[len(log) :])
            log = max(log, now, key=len)
            if job.status.value in _ENDED:
                return job, log
        except EngineError:
            if time.monotonic() - heard_s > _PATIENCE_S:
                raise
        # The whole log comes each time: a long one more seldom.
        time.sleep(_POLL_S * min(1 + len(log) / 1e5, 30))


def _own_error(job: Any, log: str, address: str) -> str:
    """Find the error that the job printed; else what Ray says about its end."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error: ")]
    if errors:
        return errors[-1].removeprefix("Error: ")
    started = any(line.startswith("Running entrypoint") for line in lines)
    told = lines[-1].strip() if started else " ".join((job.message or "").split())[:1000]
    return f"{told} (full output: ray job logs {job.submission_id} --address {address})"
