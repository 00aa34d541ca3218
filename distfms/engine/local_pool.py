"""Pools of this machine: one process for each actor, or all states in this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import selectors
import signal
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from distfms.engine.blas import limit_blas_threads, single_threaded_blas
from distfms.engine.deadline import end_with_parent
from distfms.engine.pool_host import Host, Reply
from distfms.engine.pool_replay import Loss, ReplayPool
from distfms.engine.pools import EventHandler
from distfms.engine.retry import RetryPolicy

_PATIENCE_S = 5.0


class SerialPool(ReplayPool):
    """All states in this process, one shard after the other; the reference for other pools.

    Parameters
    ----------
    retry : RetryPolicy, optional
        Attempts of one step after transient errors.
    on_event : callable, optional
        Receives events; see `make_pool`.
    """

    name = "serial"

    def __init__(
        self, *, retry: RetryPolicy | None = None, on_event: EventHandler | None = None
    ) -> None:
        super().__init__(1, retry=retry, on_event=on_event)
        self._host = Host()
        self._reply = b""

    def _spawn(self, actor: int) -> None:
        self._host = Host()

    def _end(self, actor: int) -> None:
        self._host = Host()

    def _send(self, actor: int, request: bytes) -> None:
        with single_threaded_blas():
            self._reply = self._host.handle(request)

    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, Reply | Loss]:
        return {0: pickle.loads(self._reply)}


class LocalPool(ReplayPool):
    """One process of this machine for each actor, with one BLAS thread.

    Parameters
    ----------
    n_actors : int
        Processes, at least 1.
    timeout_s : float, optional
        An actor that takes longer for one request is killed and replaced.
    retry : RetryPolicy, optional
        Attempts of one step on one actor.
    on_event : callable, optional
        Receives events; see `make_pool`.

    Notes
    -----
    Processes are started by spawn, so a script must guard its work by
    ``if __name__ == "__main__":``. They end with this process, however it ends.
    """

    name = "local"

    def __init__(
        self,
        n_actors: int,
        *,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        on_event: EventHandler | None = None,
    ) -> None:
        super().__init__(n_actors, timeout_s=timeout_s, retry=retry, on_event=on_event)
        self._processes: dict[int, BaseProcess] = {}
        self._connections: dict[int, Connection] = {}
        # Pipes and ends of the actors that are to answer, and of no others: what nobody waits for
        # would wake the wait again and again.
        self._selector = selectors.DefaultSelector()

    def close(self) -> None:
        """End the processes; safe to call twice."""
        super().close()
        self._selector.close()

    @property
    def pids(self) -> dict[int, int | None]:
        """Process of each actor."""
        return {actor: process.pid for actor, process in self._processes.items()}

    def _spawn(self, actor: int) -> None:
        if self._selector.get_map() is None:  # closed before
            self._selector = selectors.DefaultSelector()
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(
            target=_serve, args=(there,), name=f"distfms-actor-{actor}", daemon=True
        )
        process.start()
        there.close()
        self._processes[actor], self._connections[actor] = process, here

    def _end(self, actor: int) -> None:
        self._ignore(actor)
        process = self._processes.pop(actor)
        self._connections.pop(actor).close()
        process.kill()
        process.join(_PATIENCE_S)
        process.close()

    def _send(self, actor: int, request: bytes) -> None:
        # A process that died is noticed when its answer is waited for.
        with contextlib.suppress(OSError):
            self._connections[actor].send_bytes(request)
        for source in self._sources(actor):
            self._selector.register(source, selectors.EVENT_READ, actor)

    def _receive(self, actors: Sequence[int], wait_s: float) -> Mapping[int, Reply | Loss]:
        ready = {key.data for key, _ in self._selector.select(wait_s)}
        return {actor: self._hear(actor) for actor in sorted(ready)}

    def _sources(self, actor: int) -> tuple[int, int]:
        """Give what becomes readable when an actor answers, and when it ends."""
        return self._connections[actor].fileno(), self._processes[actor].sentinel

    def _ignore(self, actor: int) -> None:
        """Wait for this actor no longer."""
        for source in self._sources(actor):
            if source in self._selector.get_map():
                self._selector.unregister(source)

    def _hear(self, actor: int) -> Reply | Loss:
        self._ignore(actor)
        connection, process = self._connections[actor], self._processes[actor]
        try:
            # An answer that was complete before the process died counts.
            if connection.poll():
                return pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            pass
        process.join(_PATIENCE_S)
        code = process.exitcode
        if code is not None and code < 0:
            return Loss(f"its process was ended by {signal.Signals(-code).name}")
        return Loss(f"its process ended (exit code {code})")


def _serve(connection: Connection) -> None:
    """Answer requests until the driver is gone; runs in the actor's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are the driver's business
    end_with_parent()
    host = Host()
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = connection.recv_bytes()
            limit_blas_threads()
            connection.send_bytes(host.handle(request))
