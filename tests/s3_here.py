"""An S3 service on this machine for tests, in a process of its own; it counts requests.

Besides S3, it answers to ``GET /-/requests`` with the requests since it was last asked.
Whatever is asked of a bucket called ``denied`` is refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DENIED = (
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
)


@dataclass(frozen=True)
class S3:
    """Where the service is, and how to reach it.

    Attributes
    ----------
    endpoint : str
    """

    endpoint: str

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment in which every client finds the service."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def options(self) -> dict[str, Any]:
        """Storage options that say the same."""
        return {
            "key": "somebody",
            "secret": "not-to-be-shown",
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    @property
    def options_of_specs(self) -> dict[str, Any]:
        """The same with the names of `variables` for what a spec must not hold."""
        named = {"key": "${AWS_ACCESS_KEY_ID}", "secret": "${AWS_SECRET_ACCESS_KEY}"}
        return {**self.options, **named}

    def files(self) -> Any:
        """Give the file system of the tests, which remembers nothing."""
        import s3fs

        return s3fs.S3FileSystem(**self.options, use_listings_cache=False)

    def bucket(self, name: str) -> str:
        """Make a bucket, and return its URL."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return f"s3://{name}"

    def requests(self) -> Counter[str]:
        """Count the requests since the last call: method → number."""
        with urllib.request.urlopen(f"{self.endpoint}/-/requests") as answer:
            return Counter(json.load(answer))


@contextmanager
def started() -> Iterator[S3]:
    """Run the service until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_here"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
    )
    with process:
        assert process.stdout is not None
        yield S3(process.stdout.readline().strip())
        # It ends with its input, also when this process is killed.
        process.communicate()


def serve() -> None:
    """Serve on a free port, name it, and go on until the input ends."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    s3 = DomainDispatcherApplication(create_backend_app)
    counts = Counter[str]()

    def application(environ: dict[str, Any], respond: Any) -> Any:
        if environ["PATH_INFO"] == "/-/requests":
            respond("200 OK", [("Content-Type", "application/json")])
            body = json.dumps(counts).encode()
            counts.clear()
            return [body]
        counts[environ["REQUEST_METHOD"]] += 1
        if environ["PATH_INFO"].startswith("/denied"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            respond("403 Forbidden", [("Content-Type", "application/xml")])
            # What follows the headers of an answer to HEAD would be taken for another answer.
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [DENIED]
        return s3(environ, respond)

    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    serve()
