"""What an executor is: `submit`, `done`, `result`, `close`; all work is carried out by these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from typing import Any, Self

from distfms.engine.graph import Leaf, UnitReport
from distfms.engine.host import Host

#: Seconds between looks at a cluster that has nothing to say.
POLL_S = 0.5


class Closing(ABC):
    """A context manager that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Stop what was started; safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(eq=False)
class Task:
    """Work that was submitted.

    ``value`` stands for what it returns, which stays where it was made; ``answer`` for what comes
    to the driver: reports, or the value of a task that has a seat, which is ``seat``.
    """

    value: Any
    answer: Any
    seat: Any = None


def values_of(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments, of tasks what stands for their values."""
    return [argument.value if isinstance(argument, Task) else argument for argument in arguments]


class LostError(Exception):
    """A seat is gone, with all states on it; the text says why, for people."""


class Tasks(Closing):
    """Runs functions somewhere.

    A seat is a process that keeps states for a pool, in a `distfms.engine.host.Host`. What is
    submitted to it runs there, one after the other, and is given that host.
    """

    def __init__(self) -> None:
        self._spare_seats: list[Any] = []
        self._is_closed = False

    def close(self) -> None:
        """End the seats that are kept."""
        self._is_closed = True
        while self._spare_seats:
            self.leave(self._spare_seats.pop())

    @abstractmethod
    def submit(self, function: Any, *arguments: Any, seat: Any = None, attempts: int = 3) -> Task:
        """Start ``function(*arguments)``, or ``function(host, *arguments)`` on a seat.

        Tasks among the arguments stand for their values. Where its worker is lost, work is begun up
        to so many `attempts`; on a Dask cluster that is for the scheduler to say
        (``distributed.scheduler.allowed-failures``).
        """

    def done(self, tasks: Sequence[Task], wait_s: float) -> list[Task]:
        """Wait until one of the tasks is done, or failed; return those that are.

        Raises EngineError where there is no use in waiting any longer.
        """
        wait([task.answer for task in tasks], wait_s, FIRST_COMPLETED)
        return [task for task in tasks if task.answer.done()]

    @abstractmethod
    def result(self, task: Task) -> Any:
        """Return the value of a task, here.

        Raises `LostError` where its seat is gone, EngineError where the cluster is or workers kept
        dying, and else what the function raised.
        """

    def reports(self, task: Task) -> tuple[UnitReport, ...]:
        """Return what a task that is done reports of its units; raises as `result` does."""
        return reports_of(self.result(task))

    def forget(self, tasks: Sequence[Task]) -> None:
        """Let go of tasks, and of their values."""
        return

    # --- seats ---

    @abstractmethod
    def open_seat(self, actor_bytes: int, instead_of: Any) -> Any:
        """Start what a seat is, such as in the place of one that is lost."""

    def seat(self, actor_bytes: int, instead_of: Any = None) -> Any:
        """Return a seat that an earlier pool left, as processes take long to start, or open one."""
        if self._spare_seats:
            return self._spare_seats.pop()
        return self.open_seat(actor_bytes, instead_of)

    def keep(self, seat: Any) -> None:
        """Have a seat forget its states, and keep it for another pool."""
        if self._is_closed:
            self.leave(seat)
            return
        self.submit(Host.forget, seat=seat)
        self._spare_seats.append(seat)

    @abstractmethod
    def leave(self, seat: Any) -> None:
        """End a seat at once, whatever it does."""

    @abstractmethod
    def room(self, n_actors: int) -> tuple[int, int | None, str]:
        """Return how many of so many actors share some memory, how much, and what has it.

        None where it is not known.
        """

    def share(self, request: bytes) -> Any:
        """Prepare an argument that goes to several seats, so that it travels once."""
        return request


def reports_of(value: Any) -> tuple[UnitReport, ...]:
    """Return the reports of a leaf of a graph."""
    return value.reports if isinstance(value, Leaf) else ()
