"""The job server of a Ray head: finding it, and logging in.

The head is looked at before anything secret is sent: only a Ray head that asks for a token gets it.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distfms.engine.ray_session import lacking_token
from distfms.errors import EngineError, SpecError

#: Variables by which Ray would silently go to another head than the one named.
_OVERRIDES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")

#: Loggers of Ray that tell of each upload.
_CHATTY = ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging")

_PROBE_TIMEOUT_S = 10.0


def connect(
    address: str, *, insecure: bool = False, say: Callable[[str], None] = lambda line: None
) -> Any:
    """Return Ray's client of the job server of a head, at an address from `dashboard_url`.

    ``insecure`` accepts a head on another machine that requires no token. The token is looked for
    where Ray does: ``RAY_AUTH_TOKEN``, the file that ``RAY_AUTH_TOKEN_PATH`` names,
    ``~/.ray/auth_token``; not at all with ``RAY_AUTH_MODE=disabled``. It goes into the headers of
    requests and nowhere else.
    """
    here = is_loopback(address)
    if not _asks_for_token(address):
        if not here and not insecure:
            raise SpecError(
                f"The Ray head at {address} requires no token: anyone who can reach it can run "
                "anything there. Start it with RAY_AUTH_MODE=token, or accept that with --insecure."
            )
        return _client(address, {})
    token = _find_token()
    if token is None:
        raise EngineError(
            f"The Ray head at {address} requires a token, and none was found. {lacking_token()}"
        )
    if address.startswith("http://") and not here:
        say(
            f"Note: the token is sent to {address} unencrypted. Use https:// or a tunnel where "
            "others can listen."
        )
    return _client(address, {"Authorization": f"Bearer {token}"})


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn the errors of Ray's client into ones a user can act on."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise EngineError(
            f"The Ray head at {address} rejects the token. Use the one that the cluster was "
            "started with; RAY_AUTH_TOKEN_PATH names the file that holds it."
        ) from error
    except (requests.RequestException, ConnectionError) as error:
        raise EngineError(
            f"The Ray head at {address} no longer answers. Jobs there may still be running; check "
            f"when it is back: ray job list --address {address}"
        ) from error
    except RuntimeError as error:
        raise EngineError(f"The Ray head at {address} answered: {error}") from error


def dashboard_url(address: str) -> str:
    """Check the address of a dashboard and complete it, as ``http://head:8265``."""
    if "@" in address:
        raise SpecError(
            "--address must not hold a name or password, which others can read there. Name the "
            "file of a token in RAY_AUTH_TOKEN_PATH."
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
        late = isinstance(error, requests.Timeout)
        reason = "it did not answer in time" if late else "what is there is not a web server"
        raise _no_dashboard(url, reason) from error
    if answer.status_code == 401 and "authentication token" in answer.text:
        return True
    if answer.status_code != 200 or "ray_version" not in answer.text:
        status = f"GET /api/version: status {answer.status_code}"
        raise _no_dashboard(url, f"what answers is something else ({status})")
    return False


def _no_dashboard(url: str, reason: str) -> EngineError:
    return EngineError(
        f"There is no Ray dashboard at {url}: {reason}. Give the address of the head's dashboard, "
        "as http://head:8265 (not the head's own port 6379, nor that of a Dask cluster, where "
        "nothing is submitted: `distfms run SPEC --engine dask`), and check that the head is up: "
        "ray status."
    )


def _find_token() -> str | None:
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return None
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        if named is None:
            return None
        raise SpecError(
            f"The token file {path}, named by RAY_AUTH_TOKEN_PATH, cannot be read "
            f"({error.strerror or error})."
        ) from error


def _client(url: str, headers: dict[str, str]) -> Any:
    from ray.job_submission import JobSubmissionClient

    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    kept = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        with explained(url):
            return JobSubmissionClient(url, headers=headers)
    finally:
        os.environ.update(kept)
