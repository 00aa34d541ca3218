"""Scripts with Ray clusters of their own, run as processes by the fault tests.

What they do to a cluster may end the process that is connected to it, and one process can be
connected to one cluster only. Each prints one line of JSON at its end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from distfms import cli
from distfms.engine import nodes
from distfms.engine.base import map_reduce
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import Unit
from distfms.engine.ray_cluster import RayExecutor
from distfms.engine.ray_session import RaySession
from distfms.errors import DistfmsError
from tests.conformance import engine_tasks, pool_tasks
from tests.faults.cases import CASES
from tests.faults.disturbance import Plan, command_of
from tests.ray_here import STORE_BYTES

N_UNITS = 8


@contextmanager
def cluster(n_nodes: int, *, from_head: bool = False) -> Iterator[Any]:
    """Several nodes on this machine: a head that does no work and the nodes that do.

    A driver ends with the node that it is connected through, which may be any but `from_head`.
    """
    import ray
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
    try:
        if from_head:
            made.connect()
        nodes = [made.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(n_nodes)]
        made.wait_for_nodes()
        if from_head:
            wait_until_known([node.node_id for node in nodes])
        yield made, nodes
    finally:
        if from_head:
            ray.shutdown()
        made.shutdown()


def wait_until_known(nodes: list[str]) -> None:
    """Wait until what is meant for a node goes there: before, actors may be put on the head."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_node_id())
    seats = [NodeAffinitySchedulingStrategy(node, soft=True) for node in nodes]
    while ray.get([task.options(scheduling_strategy=seat).remote() for seat in seats]) != nodes:
        time.sleep(0.5)


@contextmanager
def pool_off_the_head(address: str, shards: list[Any]) -> Iterator[Any]:
    """A pool of two on nodes that work: on a busy machine Ray may still put one on the head.

    Each attempt has an executor of its own, as one keeps its actors for the next pool.
    """
    while True:
        with RayExecutor(address, timeout_s=2.0) as executor, executor.pool(2) as pool:
            pool.start(pool_tasks.build, shards)
            seats = {node["NodeID"] for node in executor.session.living_nodes()}
            if seats.issuperset(pool.step(own_node)):
                yield pool
                return


def own_node(state: Any, message: None) -> tuple[None, str]:
    import ray

    return None, ray.get_runtime_context().get_node_id()


def told(action: Callable[[], Any]) -> dict[str, Any]:
    """Class and text of the error of an action, and how long it took."""
    begin_s = time.monotonic()
    try:
        action()
    except DistfmsError as error:
        kind = type(error).__name__
        text = str(error)
    else:
        kind = ""
        text = ""
    return {"kind": kind, "text": text, "seconds": time.monotonic() - begin_s}


def command_lines(spec: str, ray_address: str, dask_address: str) -> dict[str, Any]:
    """The command line with clusters that are not there, or not what they are taken for."""
    for kind in (RaySession, DaskExecutor):
        kind.__init__.__kwdefaults__["timeout_s"] = 2.0  # type: ignore[attr-defined]
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unheard.getsockname()[1]}"
        dask = ["--engine", "dask", "--address"]
        ray = ["--engine", "ray", "--address"]
        lines = {
            "no Ray": [*ray, nobody],
            "no Ray client": [*ray, f"ray://{nobody}"],
            "no Dask": [*dask, f"tcp://{nobody}"],
            "wrong token": [*ray, ray_address],
            "Dask given to Ray": [*ray, dask_address],
            "Dask given to Ray, without its scheme": [*ray, dask_address.removeprefix("tcp://")],
            "Dask given to a Ray client": [*ray, dask_address.replace("tcp", "ray")],
            "Ray given to Dask": [*dask, f"tcp://{ray_address}"],
            "Ray client given to Dask": [*dask, f"ray://{ray_address}"],
        }
        return {name: _ended(["run", spec, *line]) for name, line in lines.items()}


def _ended(arguments: list[str]) -> dict[str, Any]:
    """Exit code of the command line, and what it wrote to standard error."""
    with redirect_stderr(StringIO()) as error, redirect_stdout(StringIO()):
        try:
            cli.main(arguments)
        except SystemExit as end:
            return {"code": end.code, "error": error.getvalue()}
    return {}


def joining(address: str) -> dict[str, Any]:
    """A cluster that is there is used and left running."""
    import ray

    with RayExecutor(address) as executor:
        squares = executor.map(engine_tasks.square, range(4))
        units = [Unit(str(seed), seed) for seed in range(5)]
        gram = map_reduce(units, engine_tasks.gram, engine_tasks.add, executor).value
        with executor.pool(2) as pool:
            pool.start(int, ["1", "2", "3"])
            answers = pool.step(lambda state, message: (None, state + message), 1)
        workers = executor.workers
    return {
        "squares": squares,
        "gram": gram.tobytes().hex(),
        "answers": answers,
        "workers": workers,
        "connected": ray.is_initialized(),
    }


def nodes_and_head_lost(folder: str) -> dict[str, Any]:
    """A node is killed in a pool's step, another in a pass; then the head goes under a pool."""
    (Path(folder) / "pass").mkdir()
    tickets = engine_tasks.tickets(Path(folder) / "pass", N_UNITS)
    shards = pool_tasks.shards(Path(folder), 4)
    units = [Unit(str(ticket.index), ticket, 100) for ticket in tickets]
    with cluster(3, from_head=True) as (made, _):
        with pool_off_the_head(made.address, shards) as pool:
            pool.step(pool_tasks.walk, (3, None))
            walked = pool.step(pool_tasks.walk, (3, pool_tasks.Mishap(3, "node")))
            counts = vars(pool.counts)
        with RayExecutor(made.address, timeout_s=2.0) as executor:
            reduction = map_reduce(units, node_killed_on_three, engine_tasks.concatenate, executor)
            with executor.pool(1, attempts=2) as pool:
                pool.start(float, ["0.5"])
                pool.step(doze)
                made.head_node.kill_gcs_server(False)
                headless = told(lambda: [pool.step(doze) for _ in range(60)])
    return {
        "walked": [w.tobytes().hex() for w in walked],
        "counts": counts,
        "value": reduction.value,
        "n_computed": reduction.n_computed,
        "bytes_read": reduction.bytes_read,
        "attempts": [ticket.attempts for ticket in tickets],
        "headless": headless,
    }


def node_killed_on_three(ticket: engine_tasks.Ticket) -> tuple[int, ...]:
    if ticket.mark() == 1 and ticket.index == 3:
        pool_tasks.kill_own_node()
    return (ticket.index,)


def lost_under_a_job(folder: str, kind: str, lost: str) -> dict[str, Any]:
    """The head or all nodes go under the command line, which then meets another cluster."""
    place = Path(folder)
    results = []
    struck = {"step": 5} if kind == "blocks" else {"partition": 2}
    for attempt in ("first", "second"):
        plan = Plan(str(place / attempt), mishap="wait" if attempt == "first" else "", **struck)
        with cluster(1) as (made, nodes):
            engine = {"kind": "ray", "address": made.address, "workers": 1}
            spec = CASES[kind].spec(place / "data", place / "runs", engine=engine)
            with subprocess.Popen(
                command_of(plan, spec, place),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                if plan.mishap:
                    while not plan.happened and process.poll() is None:
                        time.sleep(0.1)
                    if lost == "head":
                        made.head_node.kill_gcs_server(False)
                    for node in (made.head_node, *nodes) if lost == "node" else ():
                        node.kill_raylet(False)  # whichever it came through
                said, error = process.communicate(timeout=280)
            results.append(
                {
                    "code": process.returncode,
                    "said": said,
                    "error": error,
                    "reads": plan.reads(),
                    "pools": plan.pools(),
                }
            )
    return dict(zip(("first", "second"), results, strict=True))


def client() -> dict[str, Any]:
    """A cluster used through its ray:// port, from a process that is on none of its nodes."""
    from ray.cluster_utils import Cluster

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = {"num_cpus": 2, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    made = Cluster(True, head_node_args={**options, "ray_client_server_port": port})
    try:
        address = f"{made.address.rpartition(':')[0]}:{port}"
        while not nodes.knock(address.rpartition(":")[0], port, 1.0):
            time.sleep(0.2)
        command = [sys.executable, "-m", __spec__.name, "joining", f"ray://{address}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        return json.loads(done.stdout.strip().split("\n")[-1])
    finally:
        made.shutdown()


def doze(state: float, message: None) -> tuple[None, float]:
    time.sleep(state)
    return None, state


def main() -> None:
    """Run the script of the first argument with the others."""
    functions = (joining, client, nodes_and_head_lost, lost_under_a_job, command_lines)
    scripts = {function.__name__: function for function in functions}
    found = scripts[sys.argv[1]](*sys.argv[2:])
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    tempfile.tempdir = os.environ["RAY_TMPDIR"]
    main()
