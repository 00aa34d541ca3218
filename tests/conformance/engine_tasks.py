"""Work that the engine tests give to executors; imported by worker processes too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distfms.engine.base import Executor, map_reduce
from distfms.engine.blas import THREAD_VARIABLES, single_threaded_blas
from distfms.engine.graph import Unit
from distfms.errors import DataError


@dataclass(frozen=True)
class Ticket:
    """Payload that leaves a mark each time it is worked on, whatever the process."""

    index: int
    folder: str

    def mark(self) -> int:
        """Count this attempt; gives how many there were, this one included."""
        with open(self.path, "a") as file:
            file.write("x")
        return self.attempts

    @property
    def path(self) -> Path:
        return Path(self.folder) / f"attempts-{self.index}"

    @property
    def attempts(self) -> int:
        return len(self.path.read_text()) if self.path.exists() else 0


def tickets(folder: Path, n: int) -> list[Ticket]:
    return [Ticket(i, str(folder)) for i in range(n)]


def attempts(units: list[Unit]) -> list[int]:
    return [unit.payload.attempts for unit in units]


def run(units: list[Unit], fn: Any, executor: Executor, **options: Any) -> Any:
    return map_reduce(units, fn, concatenate, executor, **options)


def gram(seed: int) -> np.ndarray:
    """Gram matrix of a block whose entries span many magnitudes, so that order shows in bits."""
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(12, 400)) * 10.0 ** rng.integers(-6, 7, size=(12, 1))
    return block @ block.T


def add(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left + right


def in_fixed_tree(values: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """The merge tree, written as its definition: split at the largest power of two below n."""
    if len(values) == 1:
        return values[0]
    half = 1 << ((len(values) - 1).bit_length() - 1)
    return merge(in_fixed_tree(values[:half], merge), in_fixed_tree(values[half:], merge))


def square(x: int) -> int:
    return x * x


def as_tuple(ticket: Ticket) -> tuple[int, ...]:
    ticket.mark()
    return (ticket.index,)


def concatenate(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return left + right


def fails_once_on_three(ticket: Ticket) -> tuple[int, ...]:
    if ticket.mark() == 1 and ticket.index == 3:
        raise ConnectionResetError("the storage hung up")
    return (ticket.index,)


def always_fails_on_three(ticket: Ticket) -> tuple[int, ...]:
    ticket.mark()
    if ticket.index == 3:
        raise ConnectionResetError("the storage hung up")
    return (ticket.index,)


def bad_from_five(ticket: Ticket) -> tuple[int, ...]:
    """Later units fail sooner, so the first noticed failure is not the first unit's."""
    ticket.mark()
    time.sleep(0.02 * max(0, 8 - ticket.index))
    if ticket.index >= 5:
        raise DataError(f"column 'a' of unit {ticket.index} is infinite")
    return (ticket.index,)


def killed_once_on_three(ticket: Ticket) -> tuple[int, ...]:
    if ticket.mark() == 1 and ticket.index == 3:
        os.kill(os.getpid(), 9)
    return (ticket.index,)


def hangs_once_on_three(ticket: Ticket) -> tuple[int, ...]:
    if ticket.mark() == 1 and ticket.index == 3:
        time.sleep(60)
    return (ticket.index,)


def killed_on_three(ticket: Ticket) -> tuple[int, ...]:
    ticket.mark()
    if ticket.index == 3:
        os.kill(os.getpid(), 9)
    return (ticket.index,)


@contextmanager
def blas_as_before() -> Iterator[None]:
    """For clusters inside the test process: their tasks limit its BLAS for good."""
    with pytest.MonkeyPatch.context() as patch, single_threaded_blas():
        for variable in THREAD_VARIABLES:
            # Setting makes monkeypatch restore what there was.
            patch.setenv(variable, "1")
        yield


@contextmanager
def dask_cluster(n_workers: int = 2, processes: bool = True) -> Iterator[Any]:
    """A Dask cluster of worker processes, or in this process."""
    from distributed import LocalCluster

    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "protocol": "tcp"}
    with (
        nullcontext() if processes else blas_as_before(),
        LocalCluster(n_workers=n_workers, processes=processes, **settings) as cluster,
    ):
        yield cluster


def blas_threads(_: int) -> list[int]:
    """Threads of each BLAS in the process of the task."""
    from threadpoolctl import threadpool_info

    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def encode(value: tuple[int, ...]) -> bytes:
    return repr(value).encode()


def decode(raw: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in raw.decode().strip("()").split(",") if part.strip())
