"""Jobs whose driver kills itself at the place asked for."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.cache import PartialCache
from distfms.runs import driver, folder
from distfms.runs.job_spec import build_spec
from tests.e2e.jobs import judgments_job

#: What such a driver has loaded when it starts, so that it starts in no time.
_PRELOAD = [
    __name__,
    "pyarrow.dataset",
    "distfms.methods.multiselect.job",
    "distfms.methods.sequence.job",
]


def killed(data: Path, output: Path | str, where: str, what: str) -> None:
    """Kill the job of `judgments_job`."""
    content = judgments_job(data, Path("unused")).to_mapping()
    killed_job({**content, "output": str(output)}, where, what)


def killed_job(spec: Mapping[str, Any], where: str, what: str) -> None:
    """Run a job in a process that kills itself.

    After so many ``partials``, ``before`` a stage's files are written, or ``between`` its files and
    the manifest.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    arguments = (dict(os.environ), spec, where, what)
    process = context.Process(target=_die, args=arguments)
    process.start()
    process.join(120.0)
    assert process.exitcode == -signal.SIGKILL


def _die(environment: dict[str, str], spec: Mapping[str, Any], where: str, what: str) -> None:
    os.environ.update(environment)
    with pytest.MonkeyPatch.context() as patch:
        if where == "partials":
            _die_after(patch, int(what))
        else:
            _die_at(patch, where, what)
        driver.run_job(build_spec(spec))


def _kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_after(patch: pytest.MonkeyPatch, n_partials: int) -> None:
    put, left = PartialCache.put, [n_partials]

    def counted(self: Any, key: str, value: Any) -> int:
        n_bytes = put(self, key, value)
        left[0] -= 1
        if left[0] == 0:
            _kill_itself()
        return n_bytes

    patch.setattr(PartialCache, "put", counted)


def _die_at(patch: pytest.MonkeyPatch, where: str, what: str) -> None:
    write, update = folder.RunFolder.write_stage, folder.RunFolder.update

    def before(self: Any, stage: str, *rest: Any) -> None:
        if (where, stage) == ("before", what):
            _kill_itself()
        write(self, stage, *rest)

    def between(self: Any, **entries: Any) -> Any:
        stages = entries.get("stages")
        if where == "between" and stages and stages[-1]["name"] == what:
            _kill_itself()
        return update(self, **entries)

    patch.setattr(folder.RunFolder, "write_stage", before)
    patch.setattr(folder.RunFolder, "update", between)
