"""How many runs of a job are kept, and locks of its model."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from distfms.engine.storage import Location, remove_tree
from distfms.errors import DistfmsError
from distfms.runs.job_spec import JobSpec
from distfms.runs.manifest import read_manifest

if TYPE_CHECKING:
    from distfms.registry import Registry

#: Name of the folder of a run, as `choose_folder` makes it.
_RUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}")


def keep_last(spec: JobSpec, run: Location, registry: Registry | None = None) -> None:
    """Delete the oldest runs of a job beyond `output.keep_runs`, and records of old locks.

    `run` stays, the one that has just finished, and so do those of the current model and of the one
    that a rollback would promote, and runs that are under way or were killed. Failing is no error:
    the next run tries again.
    """
    keep, base = spec.output.keep_runs, spec.place() / spec.name
    if keep is None:
        return
    from distfms.registry import Lock

    with suppress(OSError, DistfmsError):
        registry = registry or spec.registry()
        names = sorted(path.name for path in base.iterdir() if _RUN.fullmatch(path.name))
        facts = [registry.version(spec.name, n).facts for n in registry.in_use(spec.name)]
        needed = {run.name} | {
            str(own.get("run")).replace("\\", "/").rpartition("/")[2] for own in facts
        }
        for name in names[:-keep]:
            manifest = None if name in needed else read_manifest(base / name)
            if manifest is not None and manifest.status in ("done", "failed"):
                remove_tree(base / name)
        locks = registry.journal(spec.name, Lock)
        for number in locks.numbers()[:-1]:
            locks.place(number).unlink(missing_ok=True)
