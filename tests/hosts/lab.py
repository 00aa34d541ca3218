"""Several hosts on one machine, with names, addresses, processes and folders of their own.

A host is a process that holds namespaces (network, mounts, processes, host name, IPC) and ends with
whoever made it; nothing is left in the machine's own network. One more holds the switch. Nothing
in there can reach the machine's network, nor be reached from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

#: A host's private folder (a tmpfs, also its home), and the folder that all hosts share.
PRIVATE = Path("/tmp")
SHARED = PRIVATE / "shared"

_TOOLS = ("ip", "unshare", "nsenter", "mount", "setpriv")
_NETWORK = "10.213.77"
# Of the holder of a host: says that it is ready, and waits. Children that lost their parent are
# its to collect, as they are of any init.
_INIT = "trap : TERM; echo ready; while :; do sleep 3600 & wait $!; done"
# Each host its own /tmp, /dev/shm and names; $1 is the folder to share, $2 the file of names.
_FURNISH = f"""
set -e
mount --bind "$1" /mnt
mount --bind "$2" /etc/hosts
mount --bind /dev/null /etc/resolv.conf
mount -t tmpfs -o mode=1777 tmpfs {PRIVATE}
mkdir {SHARED}
mount --move /mnt {SHARED}
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
"""


def marks(limit_s: float) -> list[pytest.MarkDecorator]:
    """Marks of the tests of a module that need hosts."""
    why = lacking()
    skip = pytest.mark.skipif(bool(why), reason=f"hosts of its own: {why}")
    return [pytest.mark.hosts, pytest.mark.timeout(limit_s), skip]


def lacking() -> str:
    """Say what this machine lacks for hosts of its own; empty if nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs Linux and root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", _TRIAL],
        capture_output=True,
        text=True,
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


_TRIAL = (
    "ip link add eth0 type veth peer name eth1 && ip link add lan type bridge"
    " && mount -t tmpfs tmpfs /mnt"
)


class Host:
    """One host of a lab.

    Parameters
    ----------
    name, address : str
    pid : int
        Of the process that holds its namespaces, seen from outside.
    """

    def __init__(self, name: str, address: str, pid: int) -> None:
        self.name = name
        self.address = address
        self.pid = pid

    def command(self, *words: object) -> list[str]:
        """What to run here for a command to run there."""
        enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--ipc", "--pid"]
        return [*enter, f"--wd={PRIVATE}", "--", *map(str, words)]

    def environment(self, **variables: str) -> dict[str, str]:
        """Variables of a command there: no Ray setting of this process, its own home."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "PYTEST_"))}
        return {**kept, "HOME": str(PRIVATE), "TMPDIR": str(PRIVATE), **variables}

    def run(
        self, *words: object, timeout_s: float = 120.0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self.environment(**variables),
        )

    def start(self, *words: object, log: Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command there; it ends with the host."""
        with log.open("wb") as stream:
            return subprocess.Popen(
                self.command(*words),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=self.environment(**variables),
                start_new_session=True,
            )

    def plug(self, up: bool) -> None:
        """Plug its network cable in or out."""
        self.run("ip", "link", "set", "eth0", "up" if up else "down").check_returncode()


@contextmanager
def hosts(*names: str, shared: Path, log: Path) -> Iterator[dict[str, Host]]:
    """Make hosts on one switch, and take them away with all that runs there.

    Parameters
    ----------
    *names : str
        Their host names.
    shared : Path
        Folder of this machine that all see as `SHARED`.
    log : Path
        Folder for what goes wrong.
    """
    with ExitStack() as stack:
        switch = stack.enter_context(_holder("switch", log, "--net"))
        _inside(switch, "ip", "link", "add", "lan", "type", "bridge")
        _inside(switch, "ip", "link", "set", "lan", "up")
        addresses = {name: f"{_NETWORK}.{number}" for number, name in enumerate(names, 1)}
        table = log / "hosts"
        lines = [f"{address} {name}" for name, address in addresses.items()]
        table.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        job = {}
        for name, address in addresses.items():
            kinds = ("--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc")
            pid = stack.enter_context(_holder(name, log, *kinds))
            job[name] = Host(name, address, pid)
            _wire(job[name], switch)
            _furnish(job[name], shared, table)
        yield job


@contextmanager
def _holder(name: str, log: Path, *kinds: str) -> Iterator[int]:
    """Run a process in namespaces of its own; gives its id, and ends it with all it started."""
    # setpriv: should this process be killed, the holder is too, and its namespaces go with it.
    guard = ["setpriv", "--pdeathsig", "KILL", "unshare", *kinds]
    fork = ["--fork", "--kill-child"] if "--pid" in kinds else []
    what = _INIT if fork else "echo ready; exec sleep infinity"
    with (log / f"{name}.log").open("wb") as stream:
        process = subprocess.Popen(
            [*guard, *fork, "sh", "-c", what], stdout=subprocess.PIPE, stderr=stream
        )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"no host {name}: {(log / f'{name}.log').read_text()}")
        yield _child(process.pid) if fork else process.pid
    finally:
        process.kill()
        process.communicate()


def _child(pid: int) -> int:
    """Id of the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _inside(pid: int, *words: str) -> None:
    """Run a command in the network of a holder."""
    command = ["nsenter", f"--target={pid}", "--net", "--", *words]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _wire(host: Host, switch: int) -> None:
    """Lay a cable from the host to the switch."""
    port = f"to-{host.name}"
    far = ["peer", "name", "eth0", "netns", str(host.pid)]
    _inside(switch, "ip", "link", "add", port, "type", "veth", *far)
    _inside(switch, "ip", "link", "set", port, "master", "lan", "up")
    _inside(host.pid, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _inside(host.pid, "ip", "link", "set", device, "up")


def _furnish(host: Host, shared: Path, table: Path) -> None:
    """Give the host its name and folders."""
    enter = ["nsenter", f"--target={host.pid}", "--mount", "--uts", "--"]
    arguments = ["sh", str(shared), str(table)]
    script = f"hostname {host.name}; {_FURNISH}"
    result = subprocess.run(
        [*enter, "sh", "-c", script, *arguments], capture_output=True, text=True
    )
    if result.returncode:
        raise RuntimeError(f"no host {host.name}: {result.stderr}")
