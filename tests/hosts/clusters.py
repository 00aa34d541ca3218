"""Ray and Dask clusters on the hosts of a lab."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.hosts.lab import PRIVATE, SHARED, Host

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
TOKEN = SHARED / "token"

GCS = 6379
DASHBOARD = 8265
SCHEDULER = 8786

_STORE_BYTES = 100_000_000
_START_S = 120.0
# Ray looks five times, with pauses of 3 s and answers within 10 s, before it takes a node for lost.
_PATIENCE = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
_WAIT_FOR_NODES = """
import json, pathlib, sys, time, urllib.request
url, n_nodes, token = sys.argv[1:]
headers = {"Authorization": "Bearer " + pathlib.Path(token).read_text()}
while True:
    try:
        request = urllib.request.Request(url + "/nodes?view=summary", headers=headers)
        nodes = json.load(urllib.request.urlopen(request, timeout=5))["data"]["summary"]
        if sum(n["raylet"].get("state") == "ALIVE" for n in nodes) == int(n_nodes):
            break
    except OSError:
        pass
    time.sleep(0.3)
"""


def settings(*, token: bool = True) -> dict[str, str]:
    """Variables of Ray and distfms on a host."""
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", "")])
    data = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(TOKEN)}
    mode = data if token else {"RAY_AUTH_MODE": "disabled"}
    return {**mode, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def distfms(host: Host, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of distfms there to its end."""
    command = [sys.executable, "-m", "distfms.cli", *words]
    return host.run(*command, timeout_s=240, **settings() | variables)


def start_distfms(host: Host, *words: object, log: Path) -> subprocess.Popen[bytes]:
    """Start a command of distfms there."""
    return host.start(sys.executable, "-m", "distfms.cli", *words, log=log, **settings())


def start_head(host: Host, log: Path, *, token: bool = True) -> str:
    """Start a Ray head there; gives the address of its dashboard."""
    _start_node(
        host,
        log,
        token,
        "--head",
        f"--port={GCS}",
        f"--dashboard-host={host.address}",
        f"--dashboard-port={DASHBOARD}",
    )
    return dashboard(host)


def start_worker(host: Host, head: Host, log: Path) -> None:
    """Start a Ray node there that joins a head."""
    _start_node(host, log, True, f"--address={head.address}:{GCS}")


def wait_for_nodes(head: Host, n_nodes: int) -> None:
    """Wait until the head counts so many living nodes."""
    script = [sys.executable, "-c", _WAIT_FOR_NODES, dashboard(head), n_nodes, TOKEN]
    head.run(*script, timeout_s=_START_S).check_returncode()


def dashboard(head: Host) -> str:
    """Address of a head's dashboard."""
    return f"http://{head.address}:{DASHBOARD}"


def start_dask(head: Host, workers: list[Host], log: Path) -> str:
    """Start a Dask scheduler and workers with a thread each; gives the scheduler's address."""
    address = f"tcp://{head.address}:{SCHEDULER}"
    head.start(
        *[PROGRAMS / "dask", "scheduler", f"--host={head.address}", f"--port={SCHEDULER}"],
        "--no-dashboard",
        log=log / "dask-scheduler.log",
        **settings(),
    )
    for host in workers:
        host.start(
            *[PROGRAMS / "dask", "worker", address, f"--host={host.address}", "--nthreads=1"],
            *["--no-dashboard", "--memory-limit=1GB", f"--local-directory={PRIVATE}"],
            log=log / f"dask-{host.name}.log",
            **settings(),
        )
    return address


def wait_for_line(log: Path, pattern: str, timeout_s: float = 120.0) -> None:
    """Wait until a log has a match."""
    last_s = time.monotonic() + timeout_s
    while not re.search(pattern, log.read_text()):
        assert time.monotonic() < last_s, f"no {pattern} in: {log.read_text()[-2000:]}"
        time.sleep(0.05)


def _start_node(host: Host, log: Path, token: bool, *options: str) -> None:
    common = [
        f"--node-ip-address={host.address}",
        "--num-cpus=1",
        f"--object-store-memory={_STORE_BYTES}",
        "--disable-usage-stats",
        "--log-color=false",
        "--block",
    ]
    ray = [PROGRAMS / "ray", "start", *options, *common]
    host.start(*ray, log=log / f"ray-{host.name}.log", **settings(token=token), **_PATIENCE)
