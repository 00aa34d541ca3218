"""Submitting a job to a Ray cluster through Ray's own client, and following it to its end.

The package and the resolved spec travel; data and results stay on storage that the cluster sees.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distfms import __version__
from distfms.credentials import without_credentials
from distfms.engine.nodes import quiet_logs
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

#: Variables by which Ray would silently go to another head than the one named.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")


def connect(address: str) -> Any:
    """Return Ray's client of the job server of a head, at the address of its dashboard.

    Raises
    ------
    SpecError
        If it cannot be such an address.
    EngineError
        If no dashboard answers there, or it requires another token.
    """
    url = address if "://" in address else f"http://{address}"
    if "@" in url:
        raise SpecError(
            "--address must not hold a user name or password, which others could read. Name a "
            "token file in RAY_AUTH_TOKEN_PATH."
        )
    if not url.startswith(("http://", "https://")):
        raise SpecError(
            f"--address {address} is not the address of a Ray head's dashboard, such as "
            "http://head:8265. On a Dask cluster nothing is submitted: use `distfms run SPEC "
            "--engine dask --address tcp://head:8786`."
        )
    from ray.job_submission import JobSubmissionClient

    kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        with asking(url):
            return JobSubmissionClient(url)
    finally:
        os.environ.update(kept)


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Turn the errors of Ray's client into ones a user can act on."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise EngineError(
            f"The Ray head at {address} requires a token, and rejects the token that it got, if "
            f"any. {TOKEN_ADVICE}"
        ) from error
    except (requests.RequestException, ConnectionError, RuntimeError, KeyError) as error:
        raise EngineError(
            f"The Ray dashboard at {address} does not answer as it should ({error}). Give the "
            "address of the head's dashboard, such as http://head:8265 (not the head's own port "
            "6379), and check that the head is up: ray status. What was submitted may be running: "
            f"ray job list --address {address}"
        ) from error


def submit(client: Any, address: str, spec: JobSpec, *, say: Say, retrain: bool = False) -> str:
    """Hand a job in, unless the same job is pending or running, and return its id.

    The id, ``distfms-NAME-HASH-ATTEMPT``, is made of the job's name, a hash of its resolved spec
    and the number of the attempt: submitting the same spec again resumes what an attempt that
    ended badly has left in the run folder. With ``retrain`` the cluster does as `distfms retrain`
    does.
    """
    content = resolved(spec)
    verb = "retrain" if retrain else "run"
    counted = {key: value for key, value in content.items() if key != "engine"}
    text = json.dumps([verb, counted], sort_keys=True)
    prefix = f"distfms-{spec.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}-"
    with asking(address):
        jobs = [job for job in client.list_jobs() if (job.submission_id or "").startswith(prefix)]
    for job in jobs:
        if job.status.value not in _ENDED:
            say(f"The same job is already {job.status.value.lower()}: {job.submission_id}")
            return str(job.submission_id)
    id = f"{prefix}{len(jobs) + 1}"
    log = os.environ.get(LOG_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="distfms-submit-") as folder:
        stage(Path(folder), content)
        with asking(address), quiet_logs("ray"):
            client.submit_job(
                entrypoint=f"python -m distfms.cli {verb} spec.yaml",
                submission_id=id,
                runtime_env={"working_dir": folder, "env_vars": {LOG_VARIABLE: log} if log else {}},
                metadata={"distfms": __version__, "method": spec.method},
            )
    say(f"Submitted {id}")
    return id


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


def stage(folder: Path, content: Mapping[str, Any]) -> None:
    """Write what travels: this distfms, where Python started there finds it, and the spec."""
    package = Path(__file__).resolve().parents[1]
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    shutil.copytree(package, folder / package.name, ignore=ignored)
    (folder / "spec.yaml").write_text(write_yaml(content), encoding="utf-8")


def follow(client: Any, address: str, id: str, write: Say, say: Say) -> None:
    """Write what a job prints until it has ended; an EngineError says that it did not succeed."""
    n_written = 0
    heard_s = time.monotonic()
    while True:
        try:
            with asking(address):
                job = client.get_job_info(id)
                log = client.get_job_logs(id)
            heard_s = time.monotonic()
            write(log[n_written:])
            n_written = max(n_written, len(log))
            if job.status.value in _ENDED:
                break
        except EngineError:
            if time.monotonic() - heard_s > _PATIENCE_S:
                raise
        except KeyboardInterrupt:
            say(
                f"The job keeps running. To stop it: ray job stop {id} --address {address}; to "
                "follow it, submit the same spec again with --wait."
            )
            raise
        # The whole log comes each time: a long one more seldom.
        time.sleep(_POLL_S * min(1 + n_written / 1e5, 30))
    status = job.status.value
    if status != "SUCCEEDED":
        reason = " ".join((job.message or "").split())[:1000]
        raise EngineError(
            f"The job {id} {status.lower()}: {reason} Its output is above. Submit the same spec "
            "again to resume from its finished steps."
        )
    say(f"{id}: {status}")
