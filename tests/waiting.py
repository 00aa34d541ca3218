"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until a condition holds; fail when it has not by then."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
