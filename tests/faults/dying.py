"""Jobs whose driver kills itself at the place asked for."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from distfms.runs import driver
from distfms.runs.job_spec import build_spec
from distfms.runs.steps import Steps
from distfms.store.kept import PartialCache
from tests.e2e.jobs import judgments_job
from tests.faults.disturbance import doom

#: What such a driver has loaded when it starts, so that it starts in no time.
_PRELOAD = [
    __name__,
    "pyarrow.dataset",
    "dask.threaded",
    "distfms.methods.multiselect.flow",
    "distfms.methods.sequence.flow",
]


@contextmanager
def failing(when: str, name: str) -> Iterator[None]:
    """Let a run fail ``before`` or ``after`` a step, and expect it to."""
    files = Steps.files

    def run(self: Any, asked: str, make: Any) -> bool:
        if (when, asked) == ("before", name):
            1 / 0  # noqa: B018
        done = files(self, asked, make)
        if (when, asked) == ("after", name):
            1 / 0  # noqa: B018
        return done

    with patch.object(Steps, "files", run), pytest.raises(ZeroDivisionError):
        yield


def killed(data: Path, output: Path | str, where: str, what: str) -> None:
    """Kill the job of `judgments_job`."""
    content = judgments_job(data, Path("unused")).to_mapping()
    killed_job({**content, "output": str(output)}, where, what)


def killed_job(spec: Mapping[str, Any], where: str, what: str) -> None:
    """Run a job in a process that kills itself.

    After so many ``partials`` are kept, ``before`` a stage's files are
    written, or ``between`` its files and the manifest.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_PRELOAD)
    arguments = (dict(os.environ), spec, where, what)
    process = server.Process(target=_die, args=arguments)
    process.start()
    process.join(120.0)
    assert process.exitcode == -signal.SIGKILL


def _die(environment: dict[str, str], spec: Mapping[str, Any], where: str, what: str) -> None:
    os.environ.update(environment)
    with pytest.MonkeyPatch.context() as patch:
        if where == "partials":
            _die_after(patch, PartialCache, "put", int(what))
        else:
            doom(patch, where, what)
        driver.run_job(build_spec(spec))


def _die_after(patch: pytest.MonkeyPatch, kind: type, method: str, n_kept: int) -> None:
    keep = getattr(kind, method)
    left = [n_kept]

    def counted(self: Any, key: Any, value: Any) -> Any:
        kept = keep(self, key, value)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return kept

    patch.setattr(kind, method, counted)
