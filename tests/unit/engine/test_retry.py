from concurrent.futures.process import BrokenProcessPool

import pytest

from distfms.engine.graph import ATTEMPTS, call_with_retry, is_transient
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
def test_which_errors_are_worth_another_attempt(error, expected):
    assert is_transient(error) is expected


class Flaky:
    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return x + 1


def test_delays_grow_and_stop_growing():
    slept = []
    flaky = Flaky(*[OSError("a"), TimeoutError("b")] * 50)
    assert call_with_retry(flaky, 1, attempts=101, what="it", sleep=slept.append) == (2, 100)
    assert slept[:5] == pytest.approx([0.1, 0.4, 1.6, 6.4, 10.0])
    assert slept[-1] == 10.0
    assert flaky.calls == 101


@pytest.mark.parametrize(
    ("attempts", "message"),
    [(2, r"it failed 2 times.*OSError: b"), (1, "it failed once.*OSError: a")],
)
def test_gives_up_with_the_last_error(attempts, message):
    flaky = Flaky(OSError("a"), OSError("b"), OSError("c"))
    slept = []
    with pytest.raises(EngineError, match=message) as info:
        call_with_retry(flaky, 1, attempts=attempts, what="it", sleep=slept.append)
    assert isinstance(info.value.__cause__, OSError)
    assert flaky.calls == attempts == len(slept) + 1


def test_other_errors_come_through_at_once():
    error = DataError("bad")
    flaky = Flaky(error)
    with pytest.raises(DataError) as info:
        call_with_retry(flaky, 1, attempts=ATTEMPTS, what="it")
    assert info.value is error
    assert flaky.calls == 1
