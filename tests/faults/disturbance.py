"""Jobs that are disturbed on purpose: what befalls them, where, and what was done again.

A disturbance is put around the driver in the test's own process (`disturbed`), or in one of its
own that is the command line otherwise (`python -m tests.faults.disturbed_cli PLAN run SPEC …`).
What runs elsewhere, on workers and actors, is taken along by the tasks themselves. Every mishap
happens once, whoever meets it first; every partition read leaves a mark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.base import map_reduce
from distfms.engine.pool import ActorPool
from distfms.runs import context, folder, steps
from distfms.runs.job_spec import JobSpec
from tests.conformance.pool_tasks import kill_own_node

#: Longest time that a waiting or hanging task is left alone, in seconds.
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Plan:
    """What is to befall a job.

    Attributes
    ----------
    folder : str
        Where marks are left; one for each attempt of a job.
    partition : int, optional
        The partition, by its number in the pass, at which the worker meets the mishap.
    in_pass : int
        Number of that pass over the data, from 0.
    step : int, optional
        The step of an actor pool in which an actor meets the mishap.
    mishap : str
        ``kill`` the process, kill its whole ``node``, ``hang``, ``raise``, or ``wait`` until
        there is a file ``go``.
    die : tuple of (str, str), optional
        Where the driver kills itself: ``("before", step)`` its files are written,
        ``("between", step)`` its files and the manifest, ``("step", number)`` of a pool.
    """

    folder: str
    partition: int | None = None
    in_pass: int = 0
    step: int | None = None
    mishap: str = ""
    die: tuple[str, str] | None = None

    def at(self, **changes: Any) -> Plan:
        """Give the plan with changes."""
        return replace(self, **changes)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        content = json.loads(text)
        return cls(**content | {"die": content["die"] and tuple(content["die"])})

    # --- marks ---

    def mark(self, name: str) -> None:
        """Count something; one byte for each, whichever process it happens in."""
        with open(Path(self.folder) / name, "a") as file:
            file.write("x")

    def reads(self) -> list[list[int]]:
        """How often each partition was read: a list for each pass."""
        counts: Counter[tuple[int, int]] = Counter()
        for path in Path(self.folder).glob("read-*-*"):
            _, number, index = path.name.split("-")
            counts[int(number), int(index)] = path.stat().st_size
        n_passes = 1 + max((number for number, _ in counts), default=-1)
        return [
            [counts[key] for key in sorted(counts) if key[0] == number]
            for number in range(n_passes)
        ]

    def pools(self) -> list[dict[str, int]]:
        """What each pool of actors has done, without zeros."""
        paths = sorted(Path(self.folder).glob("pool-*.json"))
        return [json.loads(path.read_text()) for path in paths]

    @property
    def happened(self) -> bool:
        """Whether the mishap took place."""
        return (Path(self.folder) / "mishap").exists()

    def befall(self, driver: int) -> None:
        """Meet the mishap, unless somebody has met it before."""
        try:
            os.close(os.open(Path(self.folder) / "mishap", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.mishap == "node":
            kill_own_node()
        if self.mishap == "kill" and os.getpid() != driver:
            os.kill(os.getpid(), 9)
        if self.mishap in ("hang", "wait"):
            self._wait(Path(self.folder) / "go")
        if self.mishap in ("raise", "kill"):
            raise ConnectionResetError("the storage hung up")

    @staticmethod
    def _wait(go: Path) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not go.exists() and time.monotonic() < end_s:
            time.sleep(0.02)


@contextmanager
def disturbed(plan: Plan) -> Iterator[Plan]:
    """Have the driver of this process meet what is planned."""
    Path(plan.folder).mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "map_reduce", _Passes(plan))
        opened = context.RunContext.pool
        patch.setattr(
            context.RunContext, "pool", lambda *a, **o: _WatchedPool(plan, opened(*a, **o))
        )
        # Actors also where the work is too small to pay for them.
        patch.setattr(context, "ACTORS_PAY_OPERATIONS", 0.0, raising=False)
        if plan.die is not None:
            doom(patch, *plan.die)
        yield plan


class _Passes:
    """`map_reduce`, with every partition marked when it is read."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._n = 0

    def __call__(self, units: Sequence[Any], read: Any, *rest: Any, **options: Any) -> Any:
        reading = Reading(self._plan, self._n, read, os.getpid())
        self._n += 1
        numbered = [replace(unit, payload=(i, unit.payload)) for i, unit in enumerate(units)]
        return map_reduce(numbered, reading, *rest, **options)


@dataclass(frozen=True)
class Reading:
    """What a worker does with a partition, and what befalls it."""

    plan: Plan
    number: int
    read: Callable[[Any], Any]
    driver: int

    def __call__(self, numbered: tuple[int, Any]) -> Any:
        index, partition = numbered
        self.plan.mark(f"read-{self.number}-{index}")
        if (self.number, index) == (self.plan.in_pass, self.plan.partition):
            self.plan.befall(self.driver)
        return self.read(partition)


class _WatchedPool:
    """A pool one of whose actors meets the mishap, and which says at its end what it did."""

    def __init__(self, plan: Plan, pool: ActorPool) -> None:
        self._plan = plan
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def __enter__(self) -> _WatchedPool:
        return self

    def __exit__(self, *error: Any) -> None:
        counts = {name: n for name, n in vars(self._pool.counts).items() if n}
        number = len(list(Path(self._plan.folder).glob("pool-*.json")))
        (Path(self._plan.folder) / f"pool-{number}.json").write_text(json.dumps(counts))
        self._pool.__exit__(*error)

    def step(self, fn: Callable[[Any, Any], Any], message: Any = None, **options: Any) -> Any:
        number = self._pool.counts.n_steps + 1
        if self._plan.die == ("step", str(number)):
            os.kill(os.getpid(), 9)
        if number == self._plan.step:
            fn = partial(_troubled_step, fn, self._plan, os.getpid())
        return self._pool.step(fn, message, **options)


def _troubled_step(fn: Any, plan: Plan, driver: int, state: Any, message: Any) -> Any:
    """Do the step, so that the state has changed, and then meet the mishap, unanswered."""
    result = fn(state, message)
    plan.befall(driver)
    return result


def doom(patch: pytest.MonkeyPatch, where: str, what: str) -> None:
    """Have the driver kill itself at a step."""
    enter = steps.Steps.enter
    update = folder.RunFolder.update

    def before(self: Any, told: Any, *rest: Any) -> None:
        if (where, told.name) == ("before", what):
            os.kill(os.getpid(), 9)
        enter(self, told, *rest)

    def between(self: Any, **entries: Any) -> Any:
        stages = entries.get("stages")
        if where == "between" and stages and stages[-1]["name"] == what:
            os.kill(os.getpid(), 9)
        return update(self, **entries)

    patch.setattr(steps.Steps, "enter", before)
    patch.setattr(folder.RunFolder, "update", between)


def command_of(plan: Plan, spec: JobSpec, folder: Path) -> list[str]:
    """Write a spec to a folder; return the disturbed command that runs it."""
    (folder / "job.yaml").write_text(spec.to_yaml())
    command = [sys.executable, "-m", "tests.faults.disturbed_cli", plan.to_json(), "run"]
    return [*command, str(folder / "job.yaml")]
