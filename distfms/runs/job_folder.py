"""The folder of all runs of a job: which one goes on, which is the latest, which are deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from distfms.errors import DistfmsError, SpecError
from distfms.runs.folder import LATEST, each_run, read_manifest
from distfms.store.places import Location, names_in, reading, remove_tree

if TYPE_CHECKING:
    from distfms.registry import Registry


def choose_folder(
    named: Location | None, base: Location, identity: str, say: Callable[[str], None]
) -> Location:
    """Return the named folder, that of an unfinished run of the same identity, or a new one.

    ``base`` is the folder of all runs of the job; ``say`` is told of damaged runs that are skipped.
    """
    if named is not None:
        _refuse_foreign(named, identity)
        return named
    ending = f"-{identity[:8]}"
    for path, manifest in each_run(base, ending, say):
        if manifest.identity == identity and manifest.status != "done":
            return path
    return _new_folder(base, ending)


def _new_folder(base: Location, ending: str) -> Location:
    """Return the place of a new run; names ascend, also of runs that begin in the same second."""
    taken = {name.rpartition("-")[0] for name in names_in(base)}
    moment = datetime.now(UTC)
    while (stamp := moment.strftime("%Y-%m-%dT%H-%M-%SZ")) in taken:
        moment += timedelta(seconds=1)
    return base / f"{stamp}{ending}"


def _refuse_foreign(out: Location, identity: str) -> None:
    with reading(out):
        if not out.exists():
            return
        if not out.is_dir():
            raise SpecError(f"--out {out} is a file. Name a folder.")
        manifest = read_manifest(out)
        names = [path.name for path in out.iterdir()]
    if manifest is not None and manifest.identity != identity:
        raise SpecError(
            f"The run folder {out} belongs to another spec or other data (identity "
            f"{manifest.identity[:8]}, not {identity[:8]}). Choose another folder with --out."
        )
    if manifest is None and any(not name.startswith(".") for name in names):
        raise SpecError(f"--out {out} holds files that no run wrote. Name an empty or new folder.")


def link_latest(path: Location) -> None:
    """Let ``latest`` lead to a run; where there are no links, commands find it without."""
    if isinstance(path, Path):
        link = path.with_name(f".{LATEST}-{path.name}")
        with suppress(OSError):
            link.unlink(missing_ok=True)
            link.symlink_to(path.name, target_is_directory=True)
            link.replace(path.with_name(LATEST))


#: Name of the folder of a run, as `choose_folder` makes it.
_RUN = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}")


def keep_last(base: Location, keep: int | None, last: Location, registry: Registry) -> None:
    """Delete the oldest runs of a job beyond so many; see `output.keep_runs`.

    `base` is the folder of all. `last` stays, the one that has just finished, and so do those of
    the current model and of the one that a rollback would promote, and runs that are under way or
    were killed. Failing is no error: the next run tries again.
    """
    if keep is None:
        return
    name = base.name
    with suppress(OSError, DistfmsError):
        needed = {last.name}
        for number in registry.in_use(name):
            place = str(registry.version(name, number).facts.get("run"))
            needed.add(place.replace("\\", "/").rpartition("/")[2])
        runs = [run for run in each_run(base) if _RUN.fullmatch(run[0].name)]
        for folder, manifest in runs[keep:]:
            if folder.name not in needed and manifest.status in ("done", "failed"):
                remove_tree(folder)
