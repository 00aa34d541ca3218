"""Submitting a job to a Ray cluster through Ray's own client, and following it to its end.

The package and the resolved spec travel; data and results stay on storage that the cluster sees.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distfms import __version__
from distfms.credentials import without_credentials
from distfms.engine.ray_session import TOKEN_ADVICE
from distfms.errors import EngineError, SpecError
from distfms.runs.events import LOG_VARIABLE, Say
from distfms.runs.job_spec import JobSpec, build_spec
from distfms.spec import expand_variables, write_yaml
from distfms.store.remote import is_url

#: Status values after which nothing more happens to a job.
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")

#: Seconds between two looks at a job, and for which a head may be silent before they end.
_POLL_S = 1.0
_PATIENCE_S = 120.0


def submit(client: Any, address: str, spec: JobSpec, *, say: Say, retrain: bool = False) -> str:
    """Hand a job in, unless the same job is pending or running, and return its id.

    The id, ``distfms-NAME-HASH-ATTEMPT``, is made of the job's name, a hash of its resolved spec
    and the number of the attempt: submitting the same spec again resumes what an attempt that
    ended badly has left in the run folder. With ``retrain`` the cluster does as `distfms retrain`
    does, and the id begins with ``distfms-retrain``.
    """
    travelling = resolved(spec)
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
        with explained(address), _without_chatter():
            client.submit_job(
                entrypoint=f"python entry.py {verb} spec.yaml",
                submission_id=id,
                runtime_env=surroundings,
                metadata={"distfms": __version__, "method": spec.method},
            )
    say(f"Submitted {id}" + (f" (attempt {attempt})" if attempt > 1 else ""))
    return id


def _jobs(client: Any, address: str, prefix: str) -> list[Any]:
    """Details of a job's attempts, the latest last."""
    with explained(address):
        jobs = client.list_jobs()
    pattern = re.compile(re.escape(prefix) + r"\d+")
    attempts = [job for job in jobs if pattern.fullmatch(job.submission_id or "")]
    return sorted(attempts, key=lambda job: int(job.submission_id.removeprefix(prefix)))


def _submission_prefix(content: Mapping[str, Any], verb: str) -> str:
    """Id of a job without the number of the attempt; the engine does not count."""
    counted = {key: value for key, value in content.items() if key != "engine"}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    start = "distfms-" if verb == "run" else f"distfms-{verb}-"
    return f"{start}{content['name']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-"


# --- what travels -------------------------------------------------------------------------------


def resolved(spec: JobSpec) -> dict[str, Any]:
    """Return the spec as the cluster is to read it: absolute paths, engine ray.

    The variables that storage options name are looked up on the cluster.
    """

    def absolute(path: Any) -> Any:
        if path is None or isinstance(path, list):
            return path and [absolute(item) for item in path]
        expanded = expand_variables(path)
        if is_url(expanded):
            # A secret that a variable holds is looked up on the cluster.
            return expanded if without_credentials(expanded) == expanded else path
        return str(Path(expanded).expanduser().absolute())

    content = spec.to_mapping()
    data = content["data"]
    engine = content["engine"]
    data |= {key: absolute(data[key]) for key in ("path", "test_path", "unlabelled_path")}
    if data["long"]:
        data["long"]["labels"] = absolute(data["long"]["labels"])
    content["output"] |= {key: absolute(content["output"][key]) for key in ("path", "registry")}
    if engine["kind"] != "ray":  # what was said of another engine is dropped
        engine |= {"workers": None, "processes": False}
    engine |= {"kind": "ray", "address": "auto"}
    build_spec(content)
    return content


def stage_package(folder: Path) -> None:
    """Copy this distfms into a folder, so that Python started there finds it."""
    package = Path(__file__).resolve().parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(package, folder / package.name, ignore=ignored)
    shutil.copyfile(package / "cli" / "entry.py", folder / "entry.py")
    distribution = metadata.distribution("distfms")
    # What the cluster lacks is told by what the package requires.
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
            "it, submit the same spec again with --wait."
        )
        raise
    status = job.status.value
    if status == "STOPPED":
        raise EngineError(
            f"The job {id} was stopped. Submit the same spec again to resume from its finished "
            "steps."
        )
    if status != "SUCCEEDED":
        raise EngineError(f"The job {id} {status.lower()}: {_own_error(job, log, address)}")
    say(f"{id}: {status}")


def _ended(client: Any, address: str, id: str, write: Say) -> tuple[Any, str]:
    """Write what a job prints until it has ended; return its details and all it has printed."""
    log = ""
    heard_s = time.monotonic()
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
    last_words = lines[-1].strip() if started else " ".join((job.message or "").split())[:1000]
    return f"{last_words} (full output: ray job logs {job.submission_id} --address {address})"


#: Variables by which Ray would silently go to another head than the one named.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")


def connect(address: str) -> Any:
    """Return Ray's client of the job server of a head, at an address from `dashboard_url`."""
    import requests
    from ray.job_submission import JobSubmissionClient

    kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        with _requiring_token(address):
            return JobSubmissionClient(address)
    except (requests.RequestException, ConnectionError, RuntimeError, KeyError) as error:
        raise EngineError(
            f"There is no Ray dashboard at {address} ({error}). Give the address of the head's "
            "dashboard, such as http://head:8265 (not the head's own port 6379, nor that of a Dask "
            "cluster, where nothing is submitted: `distfms run SPEC --engine dask`), and check "
            "that the head is up: ray status."
        ) from error
    finally:
        os.environ.update(kept)


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep back what Ray logs of each upload."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _requiring_token(address: str) -> Iterator[None]:
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise EngineError(
            f"The Ray head at {address} requires a token, and rejects the token that it got, if "
            f"any. {TOKEN_ADVICE}"
        ) from error


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn the errors of Ray's client into ones a user can act on."""
    import requests

    try:
        with _requiring_token(address):
            yield
    except (requests.RequestException, ConnectionError) as error:
        raise EngineError(
            f"The Ray head at {address} no longer answers. Its jobs may still be running. Once it "
            f"is back, check with: ray job list --address {address}"
        ) from error
    except RuntimeError as error:
        raise EngineError(f"The Ray head at {address} answered: {error}") from error


def dashboard_url(address: str) -> str:
    """Check the address of a dashboard and complete it, as ``http://head:8265``."""
    if "@" in address:
        raise SpecError(
            "--address must not hold a user name or password, which others could read. Name a "
            "token file in RAY_AUTH_TOKEN_PATH."
        )
    parts = urlsplit(address if "://" in address else f"http://{address}")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 8265)
    except ValueError:
        port = None
    if port is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(
            f"--address {address} is not the address of a Ray head's dashboard, such as "
            "http://head:8265. On a Dask cluster nothing is submitted: use `distfms run SPEC "
            "--engine dask --address tcp://head:8786`."
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
