"""Files of data: paths, globs and URLs resolved to a list of files."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from pyarrow import fs

from distfms.data.files.formats import FORMATS
from distfms.data.files.formats.excel import divided
from distfms.data.files.partition import LONE
from distfms.errors import DataError, SpecError
from distfms.store import places
from distfms.store.kept import KEPT
from distfms.store.places import File, Location
from distfms.store.remote import RemotePath, is_url

#: Ends of names by format, in the order in which a folder is searched.
_ENDINGS = ((".parquet",), *(form.endings for form in FORMATS))
#: Folders of tables, by the names of files below them.
_TABLES = {
    re.compile(r"(?:(.*)/)?_delta_log/"): "a Delta table",
    re.compile(r"(?:(.*)/)?\.hoodie/"): "a Hudi table",
    re.compile(r"(?:(.*)/)?metadata/[^/]*\.metadata\.json$"): "an Iceberg table",
}

#: Bytes of a file that are compared at once.
_PIECE_BYTES = 2**22

#: Beginnings of names that are passed over: of hidden files, and of the locks of open workbooks.
_PASSED_OVER = re.compile(r"(?:^|/)(?:_|\.|~\$)")
_GLOB_CHARACTERS = re.compile(r"[*?\[]")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def list_files(
    path: Paths,
    storage_options: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[File, ...]:
    """Resolve a file, folder, glob, URL or list of those to files.

    A folder is searched, with all below it, for Parquet files or, where there are none, for those
    of the first of `FORMATS` that has any; names (of files or folders) that start with ``_``, ``.``
    or ``~$`` are passed over. Files of a folder or glob come in name order, items of a list in the
    order given. Users should know what is said.

    Raises
    ------
    DataError
        If there is no such path, no such file in it, a file is empty or named twice, or the folder
        is that of a table whose files hold rows that are no longer in it.
    EngineError
        If the storage does not answer, or refuses.
    """
    items = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not items:
        raise DataError("The list of data files is empty: name at least one file.")
    resolved = []
    in_list = not isinstance(path, str | os.PathLike)
    for item in items:
        text, sheet = divided(os.fspath(item))
        place = places.locate(
            text if is_url(text) else Path(text).expanduser().absolute(), storage_options
        )
        with places.reading(place):
            root, listed = _resolve(text, place, say)
        ending = f"#{sheet}" if sheet else ""
        named = [replace(file, name=file.name + ending, sheet=sheet) for file in listed]
        resolved += [(root, file) for file in named]
    own_names = _own_names(root for root, _ in resolved)
    lone = not in_list and resolved[0][1].place == place
    files = tuple(
        replace(
            file,
            name=f"{own_names[root]}/{file.name}",
            key=LONE if lone else f"{own_names[root]}/{file.name}" if in_list else file.name,
        )
        for root, file in resolved
    )
    _refuse_repeats(files)
    for file in files:
        if file.n_bytes == 0:
            raise DataError(
                f"The file {file.path} is empty (0 bytes): rewrite it or remove it from the "
                "dataset."
            )
    return files


def _resolve(item: str, place: Location, say: Callable[[str], None]) -> tuple[Location, list[File]]:
    file = places.file_entry(place)
    if file is not None and place.name.startswith("~$"):
        raise DataError(
            f"{item} is the lock file of a workbook that is open elsewhere: name the workbook "
            f"itself, {place.name[2:]}."
        )
    if file is not None:
        return place.parent, [file]
    if place.is_dir():
        return place, _folder(place, say)
    if _GLOB_CHARACTERS.search(str(place)):
        return _glob(place)
    origin = (
        ""
        if is_url(item) or os.path.isabs(item)
        else f" (a relative path is taken from {os.getcwd()})"
    )
    raise DataError(f"There is no file or folder {item}: check `data.path`{origin}.")


def _folder(root: Location, say: Callable[[str], None]) -> list[File]:
    """List the files under a folder in name order."""
    entries = places.files_below(root)
    _refuse_table(root, entries)
    visible = _visible(entries)
    of_data = [file for file in visible if file.name.lower().endswith(tuple(chain(*_ENDINGS)))]
    for endings in _ENDINGS:
        files = [file for file in of_data if file.name.lower().endswith(endings)]
        if files:
            passed = [file.name for file in of_data if file not in files]
            if passed:
                count = f" and {len(passed) - 1} more" if passed[1:] else ""
                say(
                    f"{root} holds {endings[0]} files, and only these are read: {passed[0]}{count} "
                    "passed over."
                )
            return files
    example = (
        f" (it holds {len(visible)} other files, for example {visible[0].name})" if visible else ""
    )
    raise DataError(
        f"There is no data file in the folder {root}{example}: names must end in "
        f"{', '.join(chain(*_ENDINGS))}, and those that start with _, . or ~$ are passed over."
    )


def _refuse_table(root: Location, entries: Iterable[File]) -> None:
    """Refuse the folder of a table: its files hold rows that were changed or removed since."""
    for entry in entries:
        for pattern, kind in _TABLES.items():
            if matched := pattern.match(entry.name):
                table = root / matched[1] if matched[1] else root
                raise DataError(
                    f"{table} is {kind}: some of its files hold rows that are no longer in the "
                    "table. Write its present rows to Parquet files in another folder, with the "
                    "table's own reader, and name that folder."
                )


def _visible(entries: Iterable[File]) -> list[File]:
    return [entry for entry in entries if not _PASSED_OVER.search(entry.name)]


def _glob(pattern: Location) -> tuple[Location, list[File]]:
    """Return the fixed head of a glob and the files it matches, in name order."""
    root = pattern
    below = list[str]()
    while _GLOB_CHARACTERS.search(str(root)):
        below.insert(0, root.name)
        root = root.parent
    for folder in ("_delta_log", ".hoodie", "metadata"):
        entries = places.files_below(root / folder)
        _refuse_table(root, [replace(entry, name=f"{folder}/{entry.name}") for entry in entries])
    files = _visible(places.files_below(root, "/".join(below)))
    if not files:
        raise DataError(f"No file matches {pattern}: check the pattern in `data.path`.")
    return root, files


def _own_names(roots: Iterable[Location]) -> dict[Location, str]:
    """Return the last part of each folder's path; a second folder of one name is numbered.

    The slash after the number keeps it from a folder that is really called so.
    """
    own_names: dict[Location, str] = {}
    counts: dict[str, int] = {}
    for root in dict.fromkeys(roots):
        counts[root.name] = counts.get(root.name, 0) + 1
        number = counts[root.name]
        own_names[root] = root.name if number == 1 else f"{root.name}#{number}/"
    return own_names


def _refuse_repeats(files: Iterable[File]) -> None:
    """Refuse a file that is named twice, also by a link: its rows would count twice."""
    seen: dict[str, str] = {}
    for file in files:
        real = os.path.realpath(file.path) if isinstance(file.place, Path) else file.path
        if real in seen:
            link = "" if seen[real] == file.path else f", also as {seen[real]} (a symbolic link)"
            raise DataError(
                f"The file {file.path} is named twice in `data.path`{link}: its rows would count "
                "twice. Name it once."
            )
        seen[real] = file.path


def refuse_copies(files: Iterable[File], others: Iterable[File] = ()) -> None:
    """Refuse a file whose rows are those of another, or of one of the `others`.

    Only files of one size and footer are compared: by what their store calls the content, and where
    that differs by all bytes. Files without rows do no harm.
    """
    alike: dict[tuple[int, str], list[File]] = {}
    for file in (*others, *files):
        if file.n_rows:
            alike.setdefault((file.n_bytes, file.footer), []).append(file)
    for same in alike.values():
        tags = {file.state for file in same}
        are_copies = any(file.source for file in same)
        content_of = _tag_of if len(tags) < len(same) and not are_copies else _content_of
        seen: dict[str, File] = {}
        for file in same if len(same) > 1 else ():
            first = seen.setdefault(content_of(file), file)
            if first is not file:
                raise DataError(
                    f"The file {file.called} is a copy of "
                    f"{first.called}, byte for byte: its rows would count twice. "
                    "Remove one of them, or name the other files alone."
                )


def _tag_of(file: File) -> str:
    """Return what a store calls a file's content, else a digest of it."""
    return file.state or _content_of(file)


def _content_of(file: File) -> str:
    """Return a digest of a file's content; of a copy in Parquet, of what it was made from."""
    place = file.place
    if file.source and not is_url(file.source) and not divided(file.source)[1]:
        place = Path(file.source)
    with places.reading(place), places.open_stream(place) as stream:
        content = hashlib.sha256()
        while piece := stream.read(_PIECE_BYTES):
            content.update(piece)
    return content.hexdigest()


# --- copies ---------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return where this user's copies of data are kept.

    Below ``DISTFMS_CACHE``, else ``~/.cache/distfms`` or, where nothing can be written there, a
    folder for temporary files.
    """
    return _cache_of_user() / KEPT


def _cache_of_user() -> Path:
    if named := os.environ.get("DISTFMS_CACHE"):
        return Path(named).absolute()
    with suppress(OSError, RuntimeError):  # there may be no home
        usual = Path.home() / ".cache" / "distfms"
        usual.mkdir(parents=True, exist_ok=True)
        if os.access(usual, os.W_OK | os.X_OK):
            return usual
    return _temporary_cache()


def _temporary_cache() -> Path:
    """Return a folder for temporary files that is this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"distfms-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    # Others may make such a folder before, to have their copies read.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise SpecError(
            f"The home folder is not writable, and {folder} is not this user's alone: name a "
            "folder for copies of data with the environment variable DISTFMS_CACHE."
        )
    return folder


# --- as pyarrow reads them ----------------------------------------------------------------------


def common_filesystem(files: Sequence[File]) -> Any:
    """Return the one pyarrow file system of files."""
    # One place of each server or bucket, and one of this machine.
    of_server: dict[Any, Location] = {}
    for file in files:
        place = file.place
        server = None
        if isinstance(place, RemotePath):
            server = tuple(str(place).split("/")[:3])
            sibling = of_server.get(server)
            place = place.with_queries_of(sibling) if isinstance(sibling, RemotePath) else place
        of_server[server] = place
    first, *filesystems = map(arrow_filesystem, of_server.values())
    if any(filesystem != first for filesystem in filesystems):
        names = ", ".join(map(str, of_server.values()))
        raise DataError(
            f"The data files {names} are on several file systems: copy them to one, or run a job "
            "for each."
        )
    return first


def arrow_filesystem(place: Location) -> Any:
    """Return the pyarrow file system of a place."""
    if isinstance(place, Path):
        return fs.LocalFileSystem()
    return fs.PyFileSystem(fs.FSSpecHandler(place.system()))


def current_state(filesystem: Any, path: str) -> tuple[int, str, Any]:
    """Return size, stamp and time of change of a file as it is now, not as a listing remembers it.

    The last is new each time where a store gives files no etag.
    """
    handler = getattr(filesystem, "handler", None)
    if handler is None:
        status = os.stat(path)
        return status.st_size, str(status.st_mtime_ns), (status.st_ino, status.st_ctime_ns)
    handler.fs.invalidate_cache(path)
    info = handler.fs.info(path)
    return int(info.get("size") or 0), places.stamp_of(info), places.etag_of(info) or object()
