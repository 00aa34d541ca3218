"""Kills while work runs: what is left of a job, and how long anybody waits.

A trial runs one job and kills one thing it depends on: the driver; a worker; all workers, twice; an
actor's process; a raylet; the scheduler of Dask; the head of Ray. The moment comes from the events
of the run: at one of those of the undisturbed job, chosen by chance, after a share of
the time to the next one. A kill counts as a hit if the victim was there and the job had not ended.
Then, within two minutes, the command ends: with the bits of the undisturbed job, or with exit code
1 and one paragraph that begins with ``Error:``. After an error, and after the driver was killed,
the same command is given again, on another cluster if this one is damaged, and has to end with the
same bits.

Files are another matter: a model that is trained, predicts into folders, is retrained, promoted
and rolled back, each command killed at one of its file events (``--lives``; see
``tests.faults.chaos``).

Run with ``python benchmarks/chaos.py --kills 40 [--lives 100] [--seed 1] [--log kills.jsonl]``;
a kill on a cluster takes about half a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.record import record
from tests import ray_here
from tests.faults.chaos import Life

MOST_S = 120.0
VICTIMS = {
    "threads": ("driver",),
    "processes": ("driver", "worker", "actor"),
    "dask": ("driver", "worker", "workers twice", "scheduler"),
    "ray": ("driver", "worker", "actor", "raylet", "head"),
}
#: Number of an event, and seconds after it.
Moment = tuple[int, float]
Events = tuple[tuple[float, str], ...]
RESULTS = ("selection.json", "model.json", "weights.npz", "metrics.json")


# --- jobs ----------------------------------------------------------------------------------------


def write_data(folder: Path, n_files: int = 16, n: int = 1_000, d: int = 10) -> dict[str, Path]:
    """Write rows of numbers, a target and classes, and two or three judgments of each attribute."""
    rng = np.random.default_rng(0)
    weights = np.random.default_rng(1).normal(size=d)
    for number in range(n_files):
        X = rng.normal(size=(n, d))
        y = X @ weights + np.sin(X[:, 0]) + rng.normal(size=n)
        tables: dict[str, dict[str, Any]] = {"rows": {}, "judged": {}}
        for column in range(d):
            judgments = rng.normal(X[:, column, None], size=(n, 3))
            lists = [row[: 2 + place % 2].tolist() for place, row in enumerate(judgments)]
            tables["rows"][f"x{column}"] = X[:, column]
            tables["judged"][f"a{column}"] = lists
        for name, columns in tables.items():
            (folder / name).mkdir(exist_ok=True)
            table = pa.table({**columns, "y": y, "c": (y > 0).astype(float)})
            pq.write_table(table, folder / name / f"{number:02d}.parquet")
    others = ("sequence", "landmarks", "attribute_efficient")
    return {"multiselect": folder / "judged", **dict.fromkeys(others, folder / "rows")}


def job(method: str, data: Path, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a job that has passes, tasks and, where the method has such, actors."""
    target, other = ("c", "y") if method == "sequence" else ("y", "c")
    rows = {"path": str(data), "target": target, "exclude": [other], "folds": 2, "test": 0.2}
    options: dict[str, dict[str, Any]] = {
        "multiselect": {"budget": 60},
        "sequence": {"family": "logistic", "baselines": []},
        "landmarks": {"landmarks": 30},
        "attribute_efficient": {"attributes_per_example": 4, "solver": "online", "repeats": 2},
    }
    return {
        "name": method.replace("_", "-"),
        "method": method,
        "data": rows,
        method: options[method],
        "engine": {"actors": "always", **engine},
        "output": "runs",
    }


# --- clusters ------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Where a job runs: its engine section, and the processes that may be killed."""

    kind: str
    engine: dict[str, Any] = field(default_factory=dict)
    roots: list[psutil.Process] = field(default_factory=list)
    ray: Any = None
    sound: bool = True

    def is_sound(self) -> bool:
        """Whether nothing of the cluster was killed, nor has ended with what was."""
        return self.sound and all(p.is_running() and p.status() != "zombie" for p in self.roots)

    def processes(self, driver: psutil.Process) -> list[psutil.Process]:
        """Return all that the driver and the cluster have started."""
        processes = []
        for root in (driver, *self.roots):
            with suppress(psutil.Error):
                processes += root.children(recursive=True)
        return processes

    def victims(self, what: str, driver: psutil.Process) -> list[psutil.Process]:
        """Return the processes of which one, or all, are to be killed."""
        if what == "driver":
            return [driver]
        if what == "scheduler":
            return self.roots[:1]
        if self.kind == "ray" and what in ("raylet", "head"):
            return of_nodes(self.ray, "raylet" if what == "raylet" else "gcs_server")
        victims = []
        for process in self.processes(driver):
            with suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if self.kind == "ray":
                    # Not those that wait, nor agents, with which their raylet ends.
                    is_one = line.startswith("ray::") and not re.search("IDLE|Agent", line)
                else:
                    of_cluster = self.kind == "dask"
                    is_one = "spawn_main" in line and of_cluster != (driver in process.parents())
                if is_one:
                    victims.append(process)
        return victims


def of_nodes(ray: Any, name: str) -> list[psutil.Process]:
    """Return the processes of this name of a cluster of Ray."""
    nodes = (ray.head_node, *ray.worker_nodes)
    processes = []
    for node in nodes:
        infos = node.all_processes.get(name, [])
        processes += [psutil.Process(info.process.pid) for info in infos]
    return processes


@contextmanager
def cluster(kind: str) -> Iterator[Cluster]:
    """Start a cluster of two workers, where the engine needs one."""
    if kind in ("threads", "processes"):
        yield Cluster(kind, {"kind": "local", "workers": 2, "processes": kind == "processes"})
    elif kind == "dask":
        with _dask() as of_dask:
            yield of_dask
    else:
        from ray.cluster_utils import Cluster as RayCluster

        options = {"object_store_memory": ray_here.STORE_BYTES, "include_dashboard": False}
        ray = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
        try:
            for _ in range(2):
                ray.add_node(num_cpus=1, object_store_memory=ray_here.STORE_BYTES)
            ray.wait_for_nodes()
            address = {"kind": "ray", "address": ray.address}
            yield Cluster("ray", address, of_nodes(ray, "raylet"), ray)
        finally:
            for node in (ray.head_node, *ray.worker_nodes):  # in good order it takes 30 s
                node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


@contextmanager
def _dask() -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distfms-dask-")))
        scheduler_file = folder / "scheduler.json"
        shared = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        dask = [sys.executable, "-m", "dask"]
        where = ["--scheduler-file", str(scheduler_file), "--dashboard-address", ":0"]
        commands = [
            [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *where],
            [*dask, "worker", *where, "--nworkers", "2", "--nthreads", "1"],
        ]
        roots = []
        for command in commands:
            process = subprocess.Popen(command, **shared)  # type: ignore[call-overload]
            roots.append(psutil.Process(process.pid))
            stack.callback(_end, process)
        while len([p for p in roots[1].children(True) if "spawn_main" in str(p.cmdline())]) < 2:
            time.sleep(0.2)
        address = json.loads(scheduler_file.read_text())["address"]
        yield Cluster("dask", {"kind": "dask", "address": address}, roots)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    process.kill()
    process.wait()


# --- trials --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int | None
    seconds: float
    error: str
    hit: bool = False
    events: Events = ()


@dataclass(frozen=True)
class Job:
    """A job in a folder of its own."""

    folder: Path
    method: str
    data: Path

    def run(self, on: Cluster, what: str = "", at: Moment = (0, 0.0), seed: int = 0) -> Ended:
        """Run the command, and kill something on the way."""
        start = time.monotonic()
        hit = False
        self.folder.mkdir(exist_ok=True)
        spec = job(self.method, self.data, on.engine)
        (self.folder / "job.yaml").write_text(json.dumps(spec))
        error = (self.folder / "error.txt").open("w+")
        with error, (self.folder / "output.txt").open("w") as output:
            command = [sys.executable, "-m", "distfms.cli", "run", "job.yaml"]
            process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=error)
            driver = psutil.Process(process.pid)
            try:
                if what:
                    self._wait_for(at, process)
                    hit = self._kill(what, on, driver, seed)
                    start = time.monotonic()  # what anybody waits for begins with the kill
                code = process.wait(2 * MOST_S)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            seconds = time.monotonic() - start
            error.seek(0)
            events = tuple((event["time"], event["event"]) for event in self._logged())
            return Ended(code, seconds, error.read(), hit, events)

    def _logged(self) -> list[dict[str, Any]]:
        events = []
        for path in self.folder.glob("runs/*/20*/events.jsonl"):
            for line in path.read_text().splitlines():
                with suppress(ValueError):
                    events.append(json.loads(line))
        return events

    def _wait_for(self, at: Moment, process: subprocess.Popen[Any]) -> None:
        while process.poll() is None and len(self._logged()) <= at[0]:
            time.sleep(0.01)
        with suppress(subprocess.TimeoutExpired):
            process.wait(at[1])

    def _kill(self, what: str, on: Cluster, driver: psutil.Process, seed: int) -> bool:
        on.sound &= what in ("driver", "worker", "actor")
        if what != "workers twice":
            victims = on.victims(what, driver)
            random.Random(seed).shuffle(victims)
            return any(map(_killed, victims[:1])) and driver.is_running()
        for _ in range(2):
            end = time.monotonic() + 20
            while not (victims := on.victims("worker", driver)) and time.monotonic() < end:
                time.sleep(0.05)
            n = sum([_killed(process) for process in victims])
            time.sleep(2.0)
        return n > 0

    def results(self) -> str:
        """Return a hash of what the finished run has written."""
        sums = hashlib.sha256()
        for name in RESULTS:
            sums.update((next(self.folder.glob("runs/*/latest")) / name).read_bytes())
        return sums.hexdigest()


def _killed(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        process.send_signal(signal.SIGKILL)
        return alive
    return False


@dataclass
class Trials:
    """Draws trials and keeps what came of them."""

    folder: Path
    log: Path
    data: Mapping[str, Path]
    undisturbed_runs: dict[tuple[str, str], tuple[str, Events]] = field(default_factory=dict)

    def undisturbed(self, kind: str, method: str, on: Cluster) -> None:
        """Run a job once, for its bits and the times of its events."""
        trial = Job(self.folder / f"{kind}-{method}", method, self.data[method])
        ended = trial.run(on)
        assert ended.code == 0, ended.error
        self.undisturbed_runs[kind, method] = (trial.results(), ended.events)
        print(f"{kind} {method}: {ended.seconds:.1f} s, {len(ended.events)} events", flush=True)

    def moment(self, kind: str, method: str, what: str, chance: random.Random) -> Moment:
        """Draw an event and the time after it, longer gaps the more often; actors have pools."""
        _, events = self.undisturbed_runs[kind, method]
        gaps = [max(0.0, after - at) for (at, _), (after, _) in pairwise(events)]
        names = [name for _, name in events]
        if what == "actor" and "pool" in names:
            first = names.index("pool")
            gaps = [gap if number >= first else 0.0 for number, gap in enumerate(gaps)]
        at = chance.choices(range(len(gaps)), [gap**0.5 for gap in gaps])[0]
        return at, gaps[at] * chance.random()

    def trial(self, on: Cluster, method: str, what: str, seed: int) -> Mapping[str, Any]:
        """Kill once; go on after an error."""
        chance = random.Random(seed)
        expected, events = self.undisturbed_runs[on.kind, method]
        at = self.moment(on.kind, method, what, chance)
        trial = Job(self.folder / f"trial-{seed}", method, self.data[method])
        first = trial.run(on, what, at, seed)
        lines = [line for line in first.error.splitlines() if line.strip()]
        paragraphs = [line for line in lines if line.startswith("Error: ")]
        if first.code == 0:
            outcome = "same bits" if trial.results() == expected else "OTHER BITS"
        elif first.code is None or first.seconds > MOST_S:
            outcome = "TOO LONG"
        elif what == "driver" and first.code == -signal.SIGKILL:
            outcome = self.repeated(trial, on, expected)
        elif first.code == 1 and len(paragraphs) == 1 and lines[-1] == paragraphs[0]:
            outcome = f"told; {self.repeated(trial, on, expected)}"
        else:
            outcome = "UNCLEAR"
        result = {
            "seed": seed, "engine": on.kind, "method": method, "victim": what,
            "event": events[at[0]][1], "after_s": round(at[1], 2), "hit": first.hit,
            "code": first.code, "seconds": round(first.seconds, 1), "outcome": outcome,
            "error": first.error[-2000:],
        }  # fmt: skip
        with self.log.open("a") as stream:
            stream.write(json.dumps(result) + "\n")
        print(*list(result.values())[:-1], flush=True)  # but for the error
        shutil.rmtree(trial.folder, ignore_errors=True)
        return result

    def repeated(self, trial: Job, on: Cluster, expected: str) -> str:
        """Give the same command again."""
        with ExitStack() as stack:
            if not on.is_sound():
                on = stack.enter_context(cluster(on.kind))
            again = trial.run(on)
        if again.code != 0 or again.seconds > MOST_S:
            return f"NOT REPEATED ({again.code}, {again.seconds:.0f} s: {again.error[-500:]})"
        return "repeated" if trial.results() == expected else "OTHER BITS"


def on_clusters(trials: Trials, kinds: Sequence[str], n_kills: int, seed: int) -> list[Any]:
    """Kill on each kind of engine in turn, on a sound cluster each time."""
    trials_of_all = []
    share = -(-n_kills // len(kinds))
    for kind in kinds:
        numbers = iter(range(share))
        first_seed = seed * 1_000_000 + 10_000 * list(VICTIMS).index(kind)
        number = next(numbers, None)
        while number is not None:
            with cluster(kind) as on:
                while number is not None and on.is_sound():
                    # All victims of one job after the other, as few kills then show most.
                    method = list(trials.data)[number // len(VICTIMS[kind]) % len(trials.data)]
                    if (kind, method) not in trials.undisturbed_runs:
                        trials.undisturbed(kind, method, on)
                    what = VICTIMS[kind][number % len(VICTIMS[kind])]
                    trials_of_all.append(trials.trial(on, method, what, first_seed + number))
                    number = next(numbers, None)
    return trials_of_all


# --- lives ---------------------------------------------------------------------------------------


def lives(folder: Path, n_kills: int, seed: int) -> None:
    """Kill commands at file events; see `tests.faults.chaos`."""
    chance = random.Random(seed)
    counts = Counter[str]()
    longest_s = 0.0

    def begin(name: str) -> Life:
        (folder / name).mkdir()
        return Life(folder / name, str(folder / name / "runs"), {})

    undisturbed = begin("undisturbed")
    expected = [undisturbed.seen()]
    n_events = []
    for command in undisturbed.commands():
        assert undisturbed.obey(command) == 0, undisturbed.said
        expected.append(undisturbed.seen())
        n_events.append(undisturbed.n_events)
    while counts.total() < n_kills:
        life = begin("life")
        for step, command in enumerate(life.commands()):
            code = life.obey(command, chance.randint(1, n_events[step]))
            counts[command[command[0] == "models"]] += code == -signal.SIGKILL
            life.seen().require_between(*expected[step : step + 2])
            if code and not (command[0] == "models" and life.seen() == expected[step + 1]):
                start = time.monotonic()
                assert life.obey(command) == 0, life.said
                longest_s = max(longest_s, time.monotonic() - start)
            assert life.seen() == expected[step + 1], command
        shutil.rmtree(life.folder)
    print(f"lives: {dict(counts)} kills, the same bits; longest repetition {longest_s:.1f} s")


TEXT = (
    "Kills, hits (the victim was there and the job had not ended), what came of them, and the "
    "longest time from the kill to the end of the command. Told is exit code 1 with one paragraph; "
    "the same command then ended with the same bits."
)


def main() -> None:
    """Kill, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=40, help="on clusters")
    parser.add_argument("--lives", type=int, default=0, help="kills at file events")
    parser.add_argument("--engines", nargs="+", default=list(VICTIMS), choices=list(VICTIMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write the result and the README")
    parser.add_argument("--log", type=Path, default=Path("chaos.jsonl"))
    args = parser.parse_args()
    with ray_here.own_folder() as short, tempfile.TemporaryDirectory() as name:
        os.environ.update(ray_here.environment(short))
        folder = Path(name)
        if args.lives:
            lives(folder, args.lives, args.seed)
        trials = Trials(folder, args.log.absolute(), write_data(folder))
        kills = on_clusters(trials, args.engines, args.kills, args.seed) if args.kills else []
    rows = []
    for kind in args.engines:
        for what in VICTIMS[kind]:
            case = (kind, what)
            rows.append(row_of(*case, [k for k in kills if (k["engine"], k["victim"]) == case]))
    for row in rows:
        print(row)
    if args.record:
        record(
            "chaos",
            title="Kills while work runs",
            text=TEXT,
            script="python -m benchmarks.chaos",
            seeds=[args.seed],
            rows=rows,
        )


def row_of(kind: str, what: str, kills: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of an engine and a victim."""
    outcomes = Counter(kill["outcome"].partition(" (")[0] for kill in kills)
    return {
        "engine": kind,
        "victim": what,
        "kills, hits": f"{len(kills)}, {sum(kill['hit'] for kill in kills)}",
        "outcome": ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()),
        "slowest": f"{max((kill['seconds'] for kill in kills), default=0.0):.0f} s",
    }


if __name__ == "__main__":
    main()
