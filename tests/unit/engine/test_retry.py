from __future__ import annotations

import threading
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest

from distfms.engine.retry import RetryPolicy, call_with_retry, is_transient
from distfms.errors import DataError, EngineError, SpecError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("disk"), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (BrokenProcessPool(), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (IsADirectoryError(), False),
        (DataError("x"), False),
        (SpecError("x"), False),
        (EngineError("x"), False),
        (ValueError(), False),
        (MemoryError(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_which_errors_are_worth_another_attempt(error: BaseException, expected: bool) -> None:
    assert is_transient(error) is expected


def test_delays_grow_and_stop_growing() -> None:
    policy = RetryPolicy(attempts=9, first_delay_s=0.5, factor=3.0, max_delay_s=10.0)
    assert [policy.delay_s(n) for n in range(1, 6)] == [0.5, 1.5, 4.5, 10.0, 10.0]
    assert policy.delay_s(100_000) == 10.0


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return x + 1


def test_succeeds_after_transient_failures_with_the_delays_of_the_policy() -> None:
    slept: list[float] = []
    flaky = Flaky(OSError("a"), TimeoutError("b"))
    policy = RetryPolicy(attempts=3, first_delay_s=0.25, factor=2.0)
    assert call_with_retry(flaky, 1, policy=policy, what="it", sleep=slept.append) == (2, 2)
    assert slept == [0.25, 0.5]
    assert flaky.calls == 3


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (RetryPolicy(attempts=2), r"it failed 2 times.*OSError: b"),
        (RetryPolicy(attempts=1), "it failed once.*OSError: a"),
    ],
)
def test_gives_up_with_the_last_error(policy: RetryPolicy, message: str) -> None:
    flaky = Flaky(OSError("a"), OSError("b"), OSError("c"))
    slept: list[float] = []
    with pytest.raises(EngineError, match=message) as info:
        call_with_retry(flaky, 1, policy=policy, what="it", sleep=slept.append)
    assert isinstance(info.value.__cause__, OSError)
    assert flaky.calls == policy.attempts == len(slept) + 1


def test_other_errors_come_through_at_once() -> None:
    error = DataError("bad")
    flaky = Flaky(error)
    with pytest.raises(DataError) as info:
        call_with_retry(flaky, 1, policy=RetryPolicy(), what="it")
    assert info.value is error
    assert flaky.calls == 1


def test_an_attempt_that_takes_too_long_is_left_behind() -> None:
    """The limit is for each attempt, not for all, and neither ends the process."""
    go, calls = threading.Event(), []

    def work(x: int) -> int:
        calls.append(x)
        if len(calls) < 3:
            go.wait(30)
        time.sleep(0.15)
        return x + 1

    policy = RetryPolicy(attempts=3, first_delay_s=0.0, timeout_s=0.2)
    assert call_with_retry(work, 1, policy=policy, what="it") == (2, 2)
    calls.clear()
    with pytest.raises(
        EngineError, match=r"failed 2 times.*TimeoutError: it took longer than 0\.2"
    ):
        call_with_retry(work, 1, policy=replace(policy, attempts=2), what="it")
    go.set()
