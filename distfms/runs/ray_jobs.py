"""The job server of a Ray head: finding it, logging in, asking and telling it about jobs.

The head is looked at before anything secret is sent: only a Ray head that asks for a token gets it.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distfms.errors import EngineError, SpecError, nearest

#: Status values after which nothing more happens to a job.
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")

#: Variables by which Ray would silently go to another head than the one named.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")

#: Loggers of Ray that tell of each upload.
_CHATTY = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")

_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class JobState:
    """What a head says about a job.

    Attributes
    ----------
    id : str
        The submission id.
    status : str
        ``PENDING``, ``RUNNING``, ``SUCCEEDED``, ``FAILED`` or ``STOPPED``.
    message : str
        Of Ray, about the status.
    metadata : mapping of str to str
    started_s, ended_s : float or None
        Unix times.
    """

    id: str
    status: str
    message: str
    metadata: Mapping[str, str]
    started_s: float | None
    ended_s: float | None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job."""
        return self.status in ENDED

    @property
    def started(self) -> str:
        """When it started, UTC, for the user."""
        if self.started_s is None:
            return ""
        return datetime.fromtimestamp(self.started_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

    @property
    def seconds(self) -> str:
        """How long it ran, for the user; empty while it runs."""
        if self.started_s is None or self.ended_s is None:
            return ""
        return f"{self.ended_s - self.started_s:.0f}"


class RayJobs:
    """Jobs of one Ray cluster; made by :func:`connect`.

    Every method raises EngineError when the head does not answer or refuses the token, and
    SpecError when the head knows no job of that name.

    Parameters
    ----------
    client : ray.job_submission.JobSubmissionClient
    address : str
        Of the head, for messages.
    """

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self.address = address

    def submit(
        self, entrypoint: str, id: str, runtime_env: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> None:
        """Hand a job in; what ``runtime_env`` names locally is uploaded."""
        with self._explained(id):
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=id,
                runtime_env=dict(runtime_env),
                metadata=dict(metadata),
            )

    def list(self, prefix: str = "") -> Sequence[JobState]:
        """States of the submitted jobs whose id begins so, the latest last."""
        with self._explained():
            found = self._client.list_jobs()
        # Drivers that were not submitted have no id.
        states = [
            _state(d) for d in found if d.submission_id and d.submission_id.startswith(prefix)
        ]
        return sorted(states, key=lambda state: (state.started_s or 0.0, state.id))

    def state(self, id: str) -> JobState:
        """State of one job."""
        with self._explained(id):
            return _state(self._client.get_job_info(id))

    def logs(self, id: str) -> str:
        """Everything that a job has printed."""
        with self._explained(id):
            return self._client.get_job_logs(id)

    def tail(self, id: str) -> AsyncIterator[str]:
        """Stream what a job prints, from its beginning; may break off at any time."""
        return self._client.tail_job_logs(id)

    def stop(self, id: str) -> bool:
        """Ask a job to end; returns whether it was running."""
        with self._explained(id):
            return self._client.stop_job(id)

    @contextmanager
    def _explained(self, id: str | None = None) -> Iterator[None]:
        """Turn the client's errors into ones a user can act on."""
        import requests
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError as error:
            raise _refused(self.address, True) from error
        except (requests.RequestException, ConnectionError) as error:
            raise EngineError(
                f"The Ray head at {self.address} does not answer any more. Jobs there may still "
                "be running; ask again when it is back: distfms jobs list --address "
                f"{self.address}"
            ) from error
        except RuntimeError as error:
            if id is not None and "status code 404" in str(error):
                raise self._unknown(id) from error
            raise EngineError(f"The Ray head at {self.address} answered: {error}") from error

    def _unknown(self, id: str) -> SpecError:
        known = [state.id for state in self.list()]
        hint = nearest(id, known) or " It knows no submitted job."
        return SpecError(f"The Ray head at {self.address} knows no job `{id}`.{hint}")


def _state(details: Any) -> JobState:
    return JobState(
        id=details.submission_id or "",
        status=getattr(details.status, "value", str(details.status)),
        message=details.message or "",
        metadata=details.metadata or {},
        started_s=None if details.start_time is None else details.start_time / 1000,
        ended_s=None if details.end_time is None else details.end_time / 1000,
    )


# --- connecting ---------------------------------------------------------------------------------


def connect(
    address: str, *, insecure: bool = False, say: Callable[[str], None] = lambda line: None
) -> RayJobs:
    """Connect to the job server of a Ray head.

    Parameters
    ----------
    address : str
        Of the head's dashboard, such as ``http://head:8265``.
    insecure : bool
        Accept a head on another machine that asks for no token.
    say : callable
        Told what the user should know.

    Returns
    -------
    RayJobs

    Raises
    ------
    SpecError
        If the address is of another kind, or a remote head lets everybody in and ``insecure`` is
        not set.
    EngineError
        If nothing answers there, what answers is no Ray dashboard, or the token is refused.

    Notes
    -----
    The token is looked for where Ray does: ``RAY_AUTH_TOKEN``, the file that
    ``RAY_AUTH_TOKEN_PATH`` names, ``~/.ray/auth_token``; not at all with
    ``RAY_AUTH_MODE=disabled``. It goes into the headers of requests and nowhere else.
    """
    url = dashboard_url(address)
    headers = {}
    if _asks_for_token(url):
        token = _find_token()
        if token is None:
            raise _refused(url, False)
        if url.startswith("http://") and not is_loopback(url):
            say(
                f"Note: the token goes to {url} unencrypted. Use https:// or a tunnel where others "
                "can listen."
            )
        headers = {"Authorization": f"Bearer {token}"}
    elif not is_loopback(url) and not insecure:
        raise SpecError(
            f"The Ray head at {url} asks for no token: whoever reaches it can run anything there. "
            "Start it with RAY_AUTH_MODE=token, or accept that with --insecure."
        )
    return RayJobs(_client(url, headers), url)


def dashboard_url(address: str) -> str:
    """Check the address of a dashboard and complete it.

    Raises
    ------
    SpecError
        If it is an address of something else.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "http", address
    if scheme in ("tcp", "tls", "ucx", "ws", "wss"):
        raise SpecError(
            f"{address} is the address of a Dask scheduler. Jobs are submitted to a Ray head, "
            "whose dashboard has an address like http://head:8265; on a Dask cluster, use "
            f"`distfms run SPEC --engine dask --address {address}`."
        )
    if scheme == "ray":
        raise SpecError(
            f"{address} is the address of a Ray client server. Jobs are submitted to the head's "
            "dashboard, as http://head:8265."
        )
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or (443 if scheme == "https" else 8265)
    except ValueError:
        port = None
    if port is None or scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(
            f"--address {address} is no address of a dashboard; write it as http://head:8265."
        )
    if parts.username or parts.password:
        raise SpecError(
            "--address must not hold a name or password, which others can read there. Give a token "
            "in RAY_AUTH_TOKEN_PATH."
        )
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{scheme}://{host}:{port}{parts.path.rstrip('/')}"


def is_loopback(url: str) -> bool:
    """Whether an address leads to this machine only."""
    host = urlsplit(url).hostname or ""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(
        ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found
    )


def _asks_for_token(url: str) -> bool:
    """Look at what answers, without telling it anything; whether it asks for a token."""
    import requests

    try:
        answer = requests.get(f"{url}/api/version", timeout=_PROBE_TIMEOUT_S, allow_redirects=False)
    except requests.RequestException as error:
        raise _no_answer(url, error) from error
    if answer.status_code == 401 and "authentication token" in answer.text:
        return True
    try:
        is_ray = answer.status_code == 200 and "ray_version" in answer.json()
    except ValueError:
        is_ray = False
    if not is_ray:
        raise _other_server(url, answer)
    return False


def _no_answer(url: str, error: Exception) -> EngineError:
    reason = "it did not answer in time" if _is_timeout(error) else "the connection was refused"
    if _answers_something(url):
        reason = "what listens there does not speak HTTP"
    return EngineError(
        f"There is no Ray dashboard at {url}: {reason}. Give the address of the head's dashboard, "
        "as http://head:8265 (not the head's own port 6379, nor a Dask scheduler's 8786), and see "
        "that the head is up: ray status."
    )


def _is_timeout(error: Exception) -> bool:
    import requests

    return isinstance(error, requests.Timeout)


def _answers_something(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((str(parts.hostname), parts.port or 80), timeout=2):
            return True
    except OSError:
        return False


def _other_server(url: str, answer: Any) -> EngineError:
    import requests

    found = "something else"
    try:
        home = requests.get(f"{url}/status", timeout=_PROBE_TIMEOUT_S)
        if re.search(r"\bdask\b", home.text, re.IGNORECASE):
            found = "a Dask dashboard"
    except requests.RequestException:
        pass
    return EngineError(
        f"What answers at {url} is {found}, not a Ray dashboard (GET /api/version: status "
        f"{answer.status_code}). Give the address of a Ray head's dashboard, as http://head:8265; "
        "on a Dask cluster, use `distfms run SPEC --engine dask --address tcp://host:8786`."
    )


def _refused(url: str, had_token: bool) -> EngineError:
    if had_token:
        return EngineError(
            f"The Ray head at {url} does not accept the token. It has to be the one that the "
            "cluster was started with; name the file that holds it in RAY_AUTH_TOKEN_PATH."
        )
    disabled = " (RAY_AUTH_MODE=disabled keeps it back)" if _auth_disabled() else ""
    return EngineError(
        f"The Ray head at {url} asks for a token and none was found{disabled}. Name the file that "
        "holds it: export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=…"
    )


def _auth_disabled() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled"


def _find_token() -> str | None:
    if _auth_disabled():
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        if named:
            raise SpecError(
                f"The token file {path}, named by RAY_AUTH_TOKEN_PATH, cannot be read "
                f"({error.strerror or error})."
            ) from error
        return None


def _client(url: str, headers: dict[str, str]) -> Any:
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        return JobSubmissionClient(url, headers=headers)
    except AuthenticationError as error:
        raise _refused(url, bool(headers)) from error
    except (ConnectionError, requests.RequestException) as error:
        raise _no_answer(url, error) from error
    except RuntimeError as error:
        raise EngineError(f"The Ray head at {url} cannot take jobs: {error}") from error
    finally:
        os.environ.update(kept)
