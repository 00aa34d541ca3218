"""What answers at the address of a head, and what is said of it."""

import json
import os
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs.submit import asking, connect

VERSION = json.dumps({"version": "4", "ray_version": "2.60.0"})
JOB = {
    "type": "SUBMISSION",
    "submission_id": "distfms-small-0-1",
    "status": "RUNNING",
    "entrypoint": "python entry.py spec.yaml",
    "start_time": 1000,
}


@pytest.fixture
def serve():
    """Start a server that answers by a function (path, token) → (status, text)."""
    servers = []

    def start(answer):
        seen = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                token = self.headers.get("Authorization")
                seen.append((self.path, token))
                status, text = answer(self.path, token)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def open_head(path, token):
    if path.startswith("/api/jobs/"):
        name = path.removeprefix("/api/jobs/")
        if name and name != JOB["submission_id"]:
            return 404, f"Job {name} does not exist"
        return 200, json.dumps(JOB if name else [JOB])
    return 200, VERSION


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tcp://head:8786", "Dask cluster.*--engine dask"),
        ("ray://head:10001", "not the address of a Ray head's dashboard"),
        ("http://me:secret@head:8265", "must not hold"),
    ],
)
def test_other_addresses_are_refused(given, message):
    with pytest.raises(SpecError, match=message) as error:
        connect(given)
    assert "secret" not in str(error.value)


# --- what answers -------------------------------------------------------------------------------


def test_nothing_answers():
    with pytest.raises(EngineError, match=r"The Ray dashboard at http://127.0.0.1:9 does not"):
        connect("127.0.0.1:9")


def test_something_without_http_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            # However often the client asks; it ends when the test closes the listener.
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(b"\x00\x01\x02 not http at all\n\n")

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(EngineError, match="The Ray dashboard at"):
            connect(f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("status", [200, 404, 500])
def test_another_server_answers(serve, status):
    url, _ = serve(lambda path, token: (status, "log in first"))
    with pytest.raises(EngineError, match="The Ray dashboard at"):
        connect(url)


@pytest.mark.parametrize(
    ("status", "said", "message"),
    [(401, "Missing", r"requires a token.*AUTH_TOKEN_PATH"), (403, "Invalid", "rejects the token")],
)
def test_a_token_that_the_head_does_not_take(serve, status, said, message):
    url, _ = serve(lambda path, token: (status, f"{said} authentication token"))
    with pytest.raises(EngineError, match=message):
        connect(url)


def test_environment_does_not_lead_to_another_head(serve, monkeypatch):
    """Ray's client prefers RAY_ADDRESS to the address it is given."""
    url, _ = serve(open_head)
    monkeypatch.setenv("RAY_ADDRESS", "http://192.0.2.1:8265")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://192.0.2.1:8265")
    assert connect(url).list_jobs()
    assert os.environ["RAY_ADDRESS"] == "http://192.0.2.1:8265"


def test_errors_of_a_head(serve):
    dead = []
    url, _ = serve(lambda path, token: (500, "going down") if dead else open_head(path, token))
    client = connect(url)
    dead.append(True)
    with pytest.raises(EngineError, match="going down"), asking(url):
        client.list_jobs()
