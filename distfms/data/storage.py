"""Where Parquet files lie: local paths, globs and URLs resolved to a file system and file list."""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distfms.errors import DataError

_GLOB_CHARACTERS = re.compile(r"[*?\[]")
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True)
class StoredFile:
    """One file as the file system describes it.

    Attributes
    ----------
    path : str
        Path inside the file system, absolute for local files.
    name : str
        Name of the listed folder and the path below it, with ``/`` between folders, as
        ``2024/a.parquet``. It stays the same when further folders join the dataset.
    n_bytes : int
        Size of the file.
    stamp : str
        What changes when the content changes: the etag if the store has one, else the
        modification time in nanoseconds.
    """

    path: str
    name: str
    n_bytes: int
    stamp: str


def list_parquet_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Any, tuple[StoredFile, ...]]:
    """Resolve a file, folder, glob, URL or list of those to Parquet files.

    Parameters
    ----------
    path : str, path or sequence of those
        A folder is searched for ``**/*.parquet``; names (of files or folders) that start with
        ``_`` or ``.`` are passed over. Files of a folder or glob come in name order, items of a
        list in the order given.
    storage_options : mapping, optional
        Passed to the fsspec file system of a URL.

    Returns
    -------
    filesystem : pyarrow.fs.FileSystem
        The one file system that holds all the files; picklable.
    files : tuple of StoredFile

    Raises
    ------
    DataError
        If there is no such path, no Parquet file in it, a file is empty or named twice, or the
        items lie on several file systems.
    """
    items = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not items:
        raise DataError("The list of data files is empty: name at least one Parquet file.")
    resolved = [_resolve(os.fspath(item), storage_options) for item in items]
    filesystem = resolved[0][0]
    if any(other != filesystem for other, _, _ in resolved[1:]):
        raise DataError(
            f"The data paths {', '.join(map(str, items))} lie on several file systems: "
            "copy them to one, or run one job for each."
        )
    _refuse_repeats([file for _, _, files in resolved for file in files])
    own_names = _own_names([root for _, root, _ in resolved])
    names = {
        file: f"{own_names[root]}/{posixpath.relpath(file, root)}"
        for _, root, files in resolved
        for file in files
    }
    return filesystem, tuple(_describe(filesystem, names))


def _own_names(roots: Iterable[str]) -> dict[str, str]:
    """Return the last part of each folder's path; a second folder of one name is numbered.

    The slash after the number keeps it from a folder that is really called so.
    """
    own_names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for root in dict.fromkeys(roots):
        name = posixpath.basename(posixpath.normpath(root))
        counts[name] = counts.get(name, 0) + 1
        own_names[root] = name if counts[name] == 1 else f"{name}#{counts[name]}/"
    return own_names


def _resolve(item: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str, list[str]]:
    """Return the file system, the root folder and the files of one item."""
    filesystem, location = _filesystem(item, storage_options)
    kind = filesystem.get_file_info(location).type.name
    if kind == "File":
        return filesystem, posixpath.dirname(location), [location]
    if kind == "Directory":
        return filesystem, location, _folder(filesystem, location)
    if _GLOB_CHARACTERS.search(location):
        return filesystem, *_glob(filesystem, location)
    raise DataError(f"There is no file or folder {item}: check `data.path`{_hint(item)}.")


def _hint(item: str) -> str:
    """Say where a relative path was looked for."""
    if _URL.match(item) or os.path.isabs(item):
        return ""
    return f" (a relative path is taken from {os.getcwd()})"


def _filesystem(item: str, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return the pyarrow file system of a path or URL and the path inside it."""
    from pyarrow import fs

    if not _URL.match(item):
        return fs.LocalFileSystem(), Path(item).expanduser().absolute().as_posix()
    try:
        from fsspec.core import url_to_fs

        remote, location = url_to_fs(item, **dict(storage_options or {}))
    except (ImportError, ValueError) as error:
        return _native_filesystem(item, error)
    if "file" in _protocols(remote):
        return fs.LocalFileSystem(), Path(location).as_posix()
    return fs.PyFileSystem(fs.FSSpecHandler(remote)), location.rstrip("/") or "/"


def _native_filesystem(url: str, reason: Exception) -> tuple[Any, str]:
    """Fall back on pyarrow's own clients, which need no further package for s3, gs and hdfs."""
    from pyarrow import ArrowInvalid, fs

    try:
        filesystem, location = fs.FileSystem.from_uri(url)
    except (ArrowInvalid, OSError, NotImplementedError) as error:
        raise DataError(
            f"The URL {url} cannot be opened: neither fsspec ({reason}) nor pyarrow ({error}) has "
            "a client for it. Install the fsspec package of that store, or copy the data."
        ) from error
    return filesystem, location


def _protocols(filesystem: Any) -> tuple[str, ...]:
    """Return the protocol names of an fsspec file system."""
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _folder(filesystem: Any, root: str) -> list[str]:
    """List ``**/*.parquet`` under a folder in name order."""
    found = _walk(filesystem, root)
    files = [file for file in found if file.endswith(".parquet")]
    if not files:
        other = f" (it holds {len(found)} other files, for example {found[0]})" if found else ""
        raise DataError(
            f"There is no Parquet file in the folder {root}{other}: files must end in .parquet, "
            "and names that start with _ or . are passed over."
        )
    return files


def _walk(filesystem: Any, root: str) -> list[str]:
    """List the visible files under a folder in name order."""
    from pyarrow import fs

    infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    files = [info.path for info in infos if info.type.name == "File"]
    return _visible(files, root)


def _visible(files: Iterable[str], root: str) -> list[str]:
    """Leave out names that start with ``_`` or ``.`` below the root, and sort."""
    names = sorted((posixpath.relpath(file, root), file) for file in files)
    return [file for name, file in names if not any(p[0] in "_." for p in name.split("/"))]


def _glob(filesystem: Any, pattern: str) -> tuple[str, list[str]]:
    """Return the fixed head of a glob and the files it matches, in name order."""
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if _GLOB_CHARACTERS.search(part))
    root = "/".join(parts[:first]) or "/"
    files = _visible(_matches(filesystem, root, pattern), root)
    if not files:
        raise DataError(f"No file matches {pattern}: check the pattern in `data.path`.")
    return root, files


def _matches(filesystem: Any, root: str, pattern: str) -> list[str]:
    """List the files that match a glob; ``**`` stands for any number of folders."""
    from pyarrow import fs

    if isinstance(filesystem, fs.LocalFileSystem):
        return [Path(f).as_posix() for f in glob.glob(pattern, recursive=True) if os.path.isfile(f)]
    from fsspec.utils import glob_translate

    matcher = re.compile(glob_translate(pattern))
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    infos = filesystem.get_file_info(selector)
    return [i.path for i in infos if i.type.name == "File" and matcher.match(i.path)]


def _refuse_repeats(paths: Sequence[str]) -> None:
    """Refuse a list that names a file twice: its rows would count twice."""
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise DataError(
                f"The file {path} is named twice in `data.path`: its rows would count twice. "
                "Name each file once."
            )
        seen.add(path)


def _describe(filesystem: Any, names: Mapping[str, str]) -> Iterable[StoredFile]:
    """Ask the file system for size and stamp of each file."""
    infos = filesystem.get_file_info(list(names))
    for info, name in zip(infos, names.values(), strict=True):
        if info.size == 0:
            raise DataError(
                f"The file {info.path} is empty (0 bytes), so it is no Parquet file: "
                "write it again or take it out of the dataset."
            )
        yield StoredFile(info.path, name, info.size, file_stamp(filesystem, info))


def current_info(filesystem: Any, path: str) -> Any:
    """Return the ``pyarrow.fs.FileInfo`` of a file as it is now, not as a listing remembers it."""
    handler = getattr(filesystem, "handler", None)
    if handler is not None:
        handler.fs.invalidate_cache(path)
    return filesystem.get_file_info(path)


def file_stamp(filesystem: Any, info: Any) -> str:
    """Return what tells this content of a file from another one of the same size.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    info : pyarrow.fs.FileInfo

    Returns
    -------
    str
        Etag, version or modification time in nanoseconds; empty when the store tells none.
    """
    handler = getattr(filesystem, "handler", None)
    if handler is not None:
        details = handler.fs.info(info.path)
        for key in ("ETag", "etag", "md5Hash", "version_id", "mtime", "LastModified", "created"):
            if details.get(key) is not None:
                return str(details[key])
    return "" if info.mtime_ns is None else str(info.mtime_ns)
