"""Which folder a job runs in: the one that is named, one to resume, or a new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from distfms.engine.storage import Location, read_each, reading
from distfms.errors import SpecError
from distfms.runs.manifest import (
    MANIFEST,
    SCHEMA_VERSION,
    parse_manifest,
    read_manifest,
)


def choose_folder(
    named: Location | None, base: Location, identity: str, say: Callable[[str], None]
) -> Location:
    """Return the named folder, that of an unfinished run of the same identity, or a new one.

    ``base`` is the folder of all runs of the job; ``say`` is told of damaged runs that are skipped.
    """
    if named is not None:
        with reading(named):
            _refuse_foreign(named, identity)
        return named
    with reading(base):
        return _unfinished_or_new(base, identity, say)


def _unfinished_or_new(base: Location, identity: str, say: Callable[[str], None]) -> Location:
    """Return the latest unfinished run of an identity below a folder, or the place of a new one.

    The names of runs ascend, also of those that begin in the same second, and end with the
    beginning of their identity.
    """
    ending = f"-{identity[:8]}"
    for path, content in read_each(base, MANIFEST, ending):
        try:
            found = parse_manifest(path, content)
        except SpecError as error:
            # Such a run stays as it is, and is in nobody's way.
            say(f"Note: skipping the run {path}. {error}")
            continue
        of_now = found.schema_version == SCHEMA_VERSION
        if of_now and found.identity == identity and found.status != "done":
            return path
    taken, moment = set[str](), datetime.now(UTC)
    with suppress(FileNotFoundError, NotADirectoryError):
        taken = {path.name.rpartition("-")[0] for path in base.iterdir()}
    while True:
        stamp = moment.strftime("%Y-%m-%dT%H-%M-%SZ")
        path = base / f"{stamp}{ending}"
        if stamp not in taken and not path.exists():
            return path
        moment += timedelta(seconds=1)


def _refuse_foreign(out: Location, identity: str) -> None:
    if not out.exists():
        return
    if not out.is_dir():
        raise SpecError(f"--out {out} is a file. Name a folder.")
    found = read_manifest(out)
    if found is not None and found.identity != identity:
        raise SpecError(
            f"The run folder {out} belongs to another spec or to other data (identity "
            f"{found.identity[:8]}, not {identity[:8]}). Choose another folder with --out."
        )
    if found is None and any(not path.name.startswith(".") for path in out.iterdir()):
        raise SpecError(
            f"--out {out} holds files that are not a run's. Name an empty or a new folder."
        )
