"""Retry rules: which failures are worth another attempt, and how long to wait before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass
from typing import Any

from distfms.errors import DistfmsError, EngineError

# OSErrors that say the same thing however often one asks.
_PERMANENT = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
)


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed when it is made again.

    True for the OSError family (network, storage, timeouts) except what cannot change by itself,
    and for a killed worker; False for what distfms raises on purpose and for programming errors.
    """
    if isinstance(error, (*_PERMANENT, DistfmsError)):
        return False
    return isinstance(error, (OSError, BrokenExecutor))


#: Seconds before the second attempt; each further delay is four times the one before, up to the
#: longest.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 10.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often a task is attempted.

    Attributes
    ----------
    attempts : int
        Number of attempts in total, at least 1; 1 means no retry.
    timeout_s : float or None
        Longest time of one attempt. One that takes longer is left behind as a failure that is
        worth another attempt; its thread cannot be ended and stays as long as its process.
    """

    attempts: int = 3
    timeout_s: float | None = None

    def another(self, error: BaseException, failures: int) -> bool:
        """Return whether to try again after ``failures`` failures, the last of them ``error``."""
        return failures < self.attempts and is_transient(error)


USUAL = RetryPolicy()


def call_with_retry(
    fn: Callable[..., Any],
    *args: Any,
    policy: RetryPolicy,
    what: str,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Any, int]:
    """Call ``fn(*args)``, again after transient failures; return its value and the retries.

    The call must be free of lasting effects. ``what`` it does is for the error message, such as
    ``"unit part-3.parquet"``. Raises EngineError when the last attempt allowed failed for a
    transient reason, any other error of ``fn`` as it is and at once.
    """
    failures = 0
    while True:
        try:
            return _in_time(policy.timeout_s, fn, args), failures
        except Exception as error:
            failures += 1
            if not is_transient(error):
                raise
            if not policy.another(error, failures):
                times = "once" if failures == 1 else f"{failures} times"
                raise EngineError(
                    f"{what} failed {times}; the last error was {type(error).__name__}: {error}. "
                    "Such errors come from storage or the network: check that every worker can "
                    "read the input, then run the same command again; finished work is kept."
                ) from error
        # No number of failures overflows a float.
        sleep(min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 4.0 ** min(failures - 1, 60)))


def _in_time(limit_s: float | None, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call in a thread that is left behind when it takes too long.

    Its process may not be ended: on a cluster it may hold other people's work.
    """
    if limit_s is None:
        return fn(*args)
    result: Future[Any] = Future()

    def call() -> None:
        try:
            result.set_result(fn(*args))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=call, name="distfms-attempt", daemon=True).start()
    try:
        return result.result(limit_s)
    except TimeoutError:
        if result.done():
            raise
        raise TimeoutError(f"it took longer than {limit_s:g} s") from None
