"""Actor pools: state that stays where it is computed with, behind one contract.

A pool keeps one state for each shard, spread over its actors. The driver sends a message to all
shards and gets one small answer from each, in shard order. What an answer is depends on the
shards and the messages only: not on the kind of pool, the number of actors, or actors that died
on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from distfms.engine.executors import Executor
from distfms.engine.memory import available_bytes, format_bytes
from distfms.engine.remote import RemotePath
from distfms.engine.retry import RetryPolicy
from distfms.errors import SpecError

EventHandler = Callable[[Mapping[str, Any]], None]
StepFunction = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Snapshots:
    """How and where a pool saves what has become of its states.

    Attributes
    ----------
    folder : path, URL or RemotePath
        Where the driver writes checkpoints; only the driver needs to see it. One folder for one
        pool.
    key : str
        Everything the states depend on besides the shards' order: a checkpoint under another key
        is not used.
    save : callable
        ``state → bytes``: what steps changed, not what `build` makes anyway; small, as it passes
        the driver. The same bytes for the same state.
    load : callable
        ``(freshly built state, bytes) → state``, the inverse.
    """

    folder: str | Path | RemotePath
    key: str
    save: Callable[[Any], bytes]
    load: Callable[[Any, bytes], Any]


@dataclass
class PoolCounts:
    """What a pool has done since it was made.

    Attributes
    ----------
    n_steps : int
        Steps completed.
    n_built : int
        States built from their shards, again after losses included.
    n_replayed : int
        Single steps of single shards done again to bring a rebuilt state up to date.
    n_lost : int
        Actors that died or hung and were replaced.
    n_retries : int
        Attempts of a shard repeated after a transient error that it raised.
    n_duplicates : int
        Deliveries of a step that a shard had done already and answered from memory.
    n_damaged : int
        Saved states that failed their checks and were not used.
    """

    n_steps: int = 0
    n_built: int = 0
    n_replayed: int = 0
    n_lost: int = 0
    n_retries: int = 0
    n_duplicates: int = 0
    n_damaged: int = 0


@runtime_checkable
class ActorPool(Protocol):
    """States, one for each shard, on actors that can be replaced.

    Attributes
    ----------
    name : str
        ``"serial"``, ``"local"`` or ``"ray"``.
    n_actors : int
        Processes that hold states. Shard ``i`` lives on actor ``i % n_actors``.
    number : int
        Number of the last completed step; 0 after a fresh start.
    counts : PoolCounts
        What was done, lost and done again.

    Notes
    -----
    When an actor dies, hangs beyond the timeout, or loses its node, another is started, its
    states are built again from their shards (or from the last good checkpoint), the messages of
    the steps that changed them are replayed, and the step is answered again. `build` and step
    functions must therefore be deterministic and free of lasting effects elsewhere. Messages and
    answers are pickled on every kind of pool, so nobody shares memory with the driver.
    """

    name: str
    n_actors: int
    number: int
    counts: PoolCounts

    def start(
        self,
        build: Callable[[Any], Any],
        shards: Sequence[Any],
        *,
        snapshots: Snapshots | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Build one state for each shard; may be called again, which begins anew.

        Parameters
        ----------
        build : callable
            ``shard → state``. Picklable (closures may travel).
        shards : sequence
            Small picklable descriptions, such as a range of columns or a partition; more shards
            than actors are fine.
        snapshots : Snapshots, optional
            Makes `checkpoint` possible, and resumes from the last good checkpoint found.
        timeout_s : float, optional
            Longest time one actor may take to build all its states, once its process runs;
            default: the pool's.

        Returns
        -------
        int
            Number of the step after which the states stand: 0, or that of the checkpoint.

        Raises
        ------
        EngineError
            Actors kept dying, or lack a module.
        Exception
            What `build` raised, for the first shard in order.
        """

    def step(
        self,
        fn: StepFunction,
        message: Any = None,
        *,
        number: int | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call ``fn(state, message)`` on every state.

        Parameters
        ----------
        fn : callable
            ``(state, message) → (new state, answer)``. Returns None as new state when the state
            is as it was, which saves the replay; a state changed in place is returned itself.
        message : Any
            Picklable; sent once to each actor.
        number : int, optional
            The step's number, by default the next. That of the last step gives its answers
            again and does nothing.
        timeout_s : float, optional
            Longest time one actor may take for all its shards; default: the pool's.

        Returns
        -------
        list
            Answers in the order of shards.

        Raises
        ------
        EngineError
            Actors kept dying or hanging, or the pool has not been started, or failed before.
        Exception
            What ``fn`` raised, for the first shard in order. The pool must be started again.
        """

    def map(
        self,
        function: Callable[[Any, Any], Any],
        items: Sequence[Any],
        *,
        on_answer: Callable[[int, Any], None] | None = None,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Call ``function(state, item)`` for every item, each on the next actor that is free.

        The state is that of the actor's first shard, so states have to be interchangeable (what
        was loaded from one file; one shard for each actor is enough), and stay as they are.

        Parameters
        ----------
        function : callable
            ``(state, item) → answer``. Picklable; deterministic.
        items : sequence
            Picklable.
        on_answer : callable, optional
            Called in the calling thread with the number of an item and its answer as they come,
            in any order, each item once.
        timeout_s : float, optional
            Longest time for one item; default: the pool's.

        Returns
        -------
        list
            Answers in the order of items.

        Raises
        ------
        EngineError
            An item was lost with its actor again and again, or the pool has not been started, or
            failed before.
        Exception
            What ``function`` raised, for the first item in order; items under way are finished
            and told before. The pool must be started again.
        """

    def checkpoint(self) -> None:
        """Save what has become of the states, so that fewer messages need replaying.

        The last two checkpoints are kept, for the case that one is damaged.

        Raises
        ------
        EngineError
            The pool was started without snapshots, or the folder cannot be written.
        """

    def close(self) -> None:
        """End the actors; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_pool(
    kind: str = "local",
    n_actors: int | None = None,
    address: str | None = None,
    *,
    executor: Executor | None = None,
    timeout_s: float | None = None,
    retry: RetryPolicy | None = None,
    on_event: EventHandler | None = None,
    actor_bytes: int = 0,
) -> ActorPool:
    """Make a pool of actors.

    Parameters
    ----------
    kind : {"serial", "local", "dask", "ray"}
        In this process; in processes of this machine (also for ``dask``, whose own actors cannot
        be rebuilt); on a Ray cluster.
    n_actors : int, optional
        Default: the executor's workers, else the processors here.
    address : str, optional
        Of the Ray cluster when no executor is given; None starts one here.
    executor : Executor, optional
        One of the same kind, whose connection and workers are used.
    timeout_s : float, optional
        An actor that takes longer for one request is taken for hung; default: never.
    retry : RetryPolicy, optional
        How often one step is attempted on an actor.
    on_event : callable, optional
        Called in the calling thread with ``{"event": "pool_step", "step", "seconds"}`` after each
        completed step, ``{"event": "actor_lost", "actor", "reason", "n_losses"}``,
        ``{"event": "actor_replayed", "actor", "shards", "steps"}``,
        ``{"event": "retry", "key", "n_retries"}``, ``{"event": "checkpoint", "step", "bytes"}``
        and ``{"event": "checkpoint_damaged", "step", "shard"}``.
    actor_bytes : int
        What one actor will hold; refused when there is not as much.

    Returns
    -------
    ActorPool

    Raises
    ------
    SpecError
        No such kind, not a number of actors, or too little memory for one.
    EngineError
        No usable cluster.

    Notes
    -----
    With a Ray cluster that was there before, the whole process ends if the head is out of reach
    for a minute; see :class:`~distfms.engine.ray_cluster.RayExecutor`.
    """
    if kind not in ("serial", "local", "dask", "ray"):
        raise SpecError(f"engine: unknown kind of pool {kind!r}; one of: serial, local, dask, ray.")
    if n_actors is not None and n_actors < 1:
        raise SpecError(f"engine: a pool needs at least 1 actor, not {n_actors}.")
    if kind == "ray":
        from distfms.engine.ray_pool import RayPool

        return RayPool(
            n_actors,
            address,
            executor=executor,
            timeout_s=timeout_s,
            retry=retry,
            on_event=on_event,
            actor_bytes=actor_bytes,
        )
    from distfms.engine.local_pool import LocalPool, SerialPool

    if kind == "serial":
        require_room(actor_bytes, available_bytes(), "this machine")
        return SerialPool(retry=retry, on_event=on_event)
    n = n_actors or _default_actors(executor if kind == "local" else None)
    require_room(actor_bytes * n, available_bytes(), "this machine", f"{n} actors")
    return LocalPool(n, timeout_s=timeout_s, retry=retry, on_event=on_event)


def require_room(needed: int, available: int | None, where: str, who: str = "one actor") -> None:
    """Refuse actors that do not fit; SpecError with the numbers."""
    if available is not None and needed > available:
        raise SpecError(
            f"The state of {who} takes about {format_bytes(needed)} and {where} has "
            f"{format_bytes(available)} of memory for it. Cut the work into more and smaller "
            "blocks, use fewer actors on one machine, or machines with more memory."
        )


def _default_actors(executor: Executor | None) -> int:
    from distfms.engine.executors import n_processors

    return executor.workers if executor is not None else n_processors()
