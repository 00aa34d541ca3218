"""What goes wrong with the storage of a run, said so that a user can act on it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distfms.engine.remote import RemotePath
from distfms.engine.store import Location
from distfms.errors import DistfmsError, EngineError, SpecError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def storage_error(path: Location, error: OSError, done: str = "written") -> DistfmsError:
    """Explain a failed write, or a failed reading from remote storage."""
    if isinstance(path, RemotePath):
        return remote_error(path, error, done)
    if error.errno in _FULL:
        return EngineError(
            f"The disk is full, or a quota reached: {path} could not be {done}. What was "
            "finished is kept; free some space, then run the same command again and it goes on "
            "from there."
        )
    return EngineError(
        f"{path} could not be {done} ({error.strerror or error}). Check the folder's permissions, "
        "then run the same command again and it goes on from there."
    )


def remote_error(path: RemotePath, error: OSError, done: str) -> DistfmsError:
    """Explain what remote storage has refused or failed to do."""
    text = f"{path} could not be {done} ({error.strerror or error}). {_advice(error)}"
    if error.errno == errno.EROFS:
        return SpecError(f"{text}.")
    return EngineError(
        f"{text}, then run the same command again and it goes on from what was finished."
    )


def _advice(error: OSError) -> str:
    """Say what to look at when remote storage has failed."""
    if isinstance(error, PermissionError):
        return "Access is denied: check the credentials and what they allow"
    if isinstance(error, FileNotFoundError):
        return "Check that the bucket or container exists"
    if error.errno == errno.EROFS:
        return "Name another place"
    return "Check that the storage can be reached and that there are credentials for it"


def hangs(error: BaseException) -> bool:
    """Whether an error says that storage does not answer, so that no more should be asked of it."""
    return isinstance(error.__cause__, TimeoutError)


@contextmanager
def reading(path: Location) -> Iterator[None]:
    """Explain failures of remote storage other than that a file is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_error(path, error, "read") from error


def unwritable(path: Location, error: OSError) -> DistfmsError:
    """Explain why a run folder cannot be; a storage that does not answer may do so later."""
    places = "--out or `output:`"
    if _may_pass(path, error):
        return storage_error(path, error)
    advice = f"{_advice(error)}, or choose another place with {places}"
    if isinstance(path, Path):
        advice = f"Choose another with {places}, or mend its permissions"
    return _refused(f"The output folder {path}", error, advice)


def unwritable_file(path: Location, error: OSError) -> DistfmsError:
    """Explain why a file named by ``--out`` cannot be."""
    if _may_pass(path, error) or error.errno in _FULL:
        return storage_error(path, error)
    advice = f"{_advice(error)}, or name another place"
    if isinstance(path, Path):
        advice = "Name another file, or mend the permissions of its folder"
    return _refused(f"--out {path}", error, advice)


def _may_pass(path: Location, error: OSError) -> bool:
    """Whether remote storage only does not answer now."""
    silent = isinstance(error, TimeoutError | ConnectionError) or error.errno == errno.EIO
    return silent and not isinstance(path, Path)


def _refused(what: str, error: OSError, advice: str) -> SpecError:
    return SpecError(f"{what} cannot be written ({error.strerror or error}). {advice}.")
