"""Pools of actors on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

from distfms.engine.blas import limit_blas_threads
from distfms.engine.memory import require_room
from distfms.engine.replay_pool import ActorLoss, Host, ReplayPool

_POLL_S = 0.5


class DaskPool(ReplayPool):
    """States that workers of a Dask cluster hold, as results of tasks; see `Executor.pool`.

    What an actor is asked is a task that needs its states and runs where they are. The scheduler
    drops them with the pool, and with a driver that is gone. Where a worker is lost, another takes
    its place; a worker that hangs is left to itself.
    """

    name = "dask"

    def __init__(
        self, executor: Any, n_actors: int, *, actor_bytes: int = 0, **options: Any
    ) -> None:
        room = executor.memory_bytes()
        largest = max(room) if room and all(room) else None
        require_room(actor_bytes, largest, "the largest worker of the Dask cluster")
        super().__init__(n_actors, **options)
        self._executor = executor
        self._hosts: dict[int, Any] = {}
        self._seats: dict[int, str] = {}
        self._left: dict[int, str] = {}
        self._tasks: dict[Future[bytes], tuple[int, Any]] = {}
        self._n_sent = 0

    def _spawn(self, actor: int) -> None:
        self._seats[actor] = self._free_seat(actor, self._executor.living())
        self._hosts[actor] = self._submit(actor, Host)

    def _free_seat(self, actor: int, threads: Mapping[str, int]) -> str:
        """Return another worker than the one it left, with the fewest actors for its threads."""
        taken = [*self._seats.values()]

        def cost(worker: str) -> tuple[bool, float, str]:
            return worker == self._left.get(actor), taken.count(worker) / threads[worker], worker

        return min(threads, key=cost)

    def _submit(self, actor: int, function: Any, *arguments: Any) -> Any:
        where = {"workers": [self._seats[actor]], "allow_other_workers": False}
        with self._executor.asking():
            client = self._executor.client
            return client.submit(function, *arguments, pure=False, priority=1, **where)

    def _end(self, actor: int) -> None:
        self._left[actor] = self._seats.pop(actor)
        self._hosts.pop(actor, None)  # which lets go of its states
        for answer, (of_actor, _) in list(self._tasks.items()):
            if of_actor == actor:
                answer.cancel()
                del self._tasks[answer]

    def _send(self, actor: int, setup: bytes | None, request: Any) -> Future[bytes]:
        self._n_sent += 1
        log = [] if setup is None else [*self._log]
        task = self._submit(actor, _handle, self._hosts[actor], setup, request, log, self._n_sent)
        client = self._executor.client
        gathering = client.gather(task, asynchronous=True)
        answer = asyncio.run_coroutine_threadsafe(gathering, client.loop.asyncio_loop)
        self._tasks[answer] = actor, task
        return answer

    def _done(self, answers: Sequence[Future[bytes]], wait_s: float) -> Collection[Future[bytes]]:
        done = wait(answers, min(wait_s, _POLL_S), FIRST_COMPLETED).done
        if done:
            return done
        living = self._executor.living()
        return [one for one in answers if self._seats[self._tasks[one][0]] not in living]

    def _heard(self, answer: Future[bytes]) -> bytes | ActorLoss:
        if not answer.done():
            return ActorLoss("its worker is gone")
        del self._tasks[answer]
        try:
            reply = answer.result()
        except (Exception, CancelledError) as error:
            return ActorLoss(f"Dask says {type(error).__name__}: {str(error)[:200]}")
        return reply or ActorLoss("its worker was started again")


def _handle(
    host: Host, setup: bytes | None, request: bytes, log: Sequence[bytes], number: int
) -> bytes:
    """Carry out a request on a worker; nothing where its states are those of another process."""
    limit_blas_threads()
    if setup is None and not host.has_states:
        return b""
    return host.handle(setup, request, log, number)
