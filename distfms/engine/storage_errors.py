"""What goes wrong with storage, of data as of runs, said so that a user can act on it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distfms.engine.storage import Location
from distfms.errors import DistfmsError, EngineError, SpecError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def storage_error(place: Location, error: OSError, done: str = "written") -> DistfmsError:
    """Explain a failure of a disk or of remote storage: a place could not be ``done``."""
    reason = error.strerror or error
    if isinstance(place, Path):
        if error.errno in _FULL:
            return EngineError(
                f"The disk is full, or a quota reached: {place} could not be {done}. Finished "
                "work is kept; free some space, then run the same command again to resume."
            )
        return EngineError(
            f"{place} could not be {done} ({reason}). Check the folder's permissions, then run "
            "the same command again to resume."
        )
    text = f"{place} could not be {done} ({reason}). {_advice(error)}"
    if error.errno == errno.EROFS:
        return SpecError(f"{text}.")
    return EngineError(f"{text}, then run the same command again to resume.")


def _advice(error: OSError) -> str:
    """Return what to look at when remote storage has failed."""
    if isinstance(error, PermissionError):
        return "Access is denied: check the credentials and what they allow"
    if isinstance(error, FileNotFoundError):
        return "Check that the bucket or container exists"
    if error.errno == errno.EROFS:
        return "Name another place"
    return "Check that the storage can be reached and that there are credentials for it"


@contextmanager
def reading(place: Location) -> Iterator[None]:
    """Explain failures of storage other than that a file is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(place, error, "read") from error


@contextmanager
def writing(place: Location) -> Iterator[None]:
    """Explain failures of storage."""
    try:
        yield
    except OSError as error:
        raise storage_error(place, error) from error


def hangs(error: BaseException) -> bool:
    """Whether an error says that storage does not answer, so that no more should be asked of it."""
    return isinstance(error.__cause__, TimeoutError)


def unwritable(place: Location, error: OSError, name: str, advice: str) -> DistfmsError:
    """Explain why nothing can be written where a user wants it.

    A storage that does not answer may do so later, and a full disk be emptied; for anything else
    another place has to be named, which ``advice`` says how to do.
    """
    silent = isinstance(error, TimeoutError | ConnectionError) or error.errno == errno.EIO
    if error.errno in _FULL or (silent and not isinstance(place, Path)):
        return storage_error(place, error)
    remedy = "mend its permissions" if isinstance(place, Path) else _advice(error)
    remedy = remedy[:1].upper() + remedy[1:]
    reason = error.strerror or error
    return SpecError(f"{name} {place} cannot be written ({reason}). {remedy}, or {advice}.")
