from __future__ import annotations

import threading
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest

from distfms.engine.graph import RetryPolicy, call_with_retry, is_transient
from distfms.errors import DataError, EngineError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("disk"), True),
        (TimeoutError(), True),
        (BrokenProcessPool(), True),
        (FileNotFoundError(), False),
        (DataError("x"), False),
        (ValueError(), False),
    ],
)
def test_which_errors_are_worth_another_attempt(error: BaseException, expected: bool) -> None:
    assert is_transient(error) is expected


class Flaky:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return x + 1


def test_delays_grow_and_stop_growing() -> None:
    slept: list[float] = []
    flaky = Flaky(*[OSError("a"), TimeoutError("b")] * 50)
    policy = RetryPolicy(attempts=101)
    assert call_with_retry(flaky, 1, policy=policy, what="it", sleep=slept.append) == (2, 100)
    assert slept[:5] == pytest.approx([0.1, 0.4, 1.6, 6.4, 10.0])
    assert slept[-1] == 10.0
    assert flaky.calls == 101


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

    policy = RetryPolicy(attempts=3, timeout_s=0.2)
    assert call_with_retry(work, 1, policy=policy, what="it") == (2, 2)
    calls.clear()
    with pytest.raises(
        EngineError, match=r"failed 2 times.*TimeoutError: it took longer than 0\.2"
    ):
        call_with_retry(work, 1, policy=replace(policy, attempts=2), what="it")
    go.set()
