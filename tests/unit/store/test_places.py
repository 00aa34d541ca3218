"""One set of laws for every kind of storage."""

import errno
import os
import pickle
import socket
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

from distfms.errors import EngineError, SpecError
from distfms.store import places, remote
from distfms.store.places import (
    create_whole,
    files_below,
    locate,
    read_each,
    remove_tree,
    whole_file,
    write_whole,
)
from distfms.store.remote import RemotePath, is_url, os_error
from tests.remote_systems import ShelfFileSystem, registered


@pytest.fixture(params=["local", "file", "memory", "shelf", "s3"])
def place(request, tmp_path):
    """An empty folder on each kind of storage."""
    kind = request.param
    if kind == "local":
        yield tmp_path / "a folder"
    elif kind == "file":
        yield locate(f"file://{tmp_path}/a folder")
    elif kind == "memory":
        yield locate(f"memory://{tmp_path.name}/a folder")
    elif kind == "shelf":
        with registered("shelf", ShelfFileSystem):
            yield locate(f"shelf://{tmp_path}/a folder")
    else:
        s3 = request.getfixturevalue("s3")
        bucket = s3.bucket(f"store-{abs(hash(tmp_path.name)) % 10**9}")
        yield locate(f"{bucket}/a folder", s3.options)


def test_a_file_is_what_was_last_written(place):
    file = place / "deep" / "x.bin"
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        file.read_bytes()
    for content in (b"one", b"", b"three" * 1000):
        write_whole(file, content)
        assert file.read_bytes() == content
        with places.open_binary(file) as stream:
            assert stream.read() == content
    assert file.exists()
    assert not file.is_dir()
    assert place.is_dir()
    assert (file.name, str(file.parent)) == ("x.bin", str(place / "deep"))
    assert [entry.name for entry in files_below(place)] == ["deep/x.bin"]


def test_listing(place):
    assert files_below(place) == []
    assert list(read_each(place, "m.json")) == []
    before = time.time()
    for name in ("b/m.json", "a/m.json", "a/other", "c/d/m.json", "m.json", ".hidden"):
        write_whole(place / name, name.encode())
    entries = files_below(place)
    assert [e.name for e in entries] == sorted(
        ("b/m.json", "a/m.json", "a/other", "c/d/m.json", "m.json", ".hidden")
    )
    assert all(
        e.n_bytes == len(e.name) and e.place.read_bytes() == e.name.encode() for e in entries
    )
    assert all(abs(e.modified_s - before) < 60 for e in entries)
    results = list(read_each(place, "m.json"))
    assert results == [(place / "b", b"b/m.json"), (place / "a", b"a/m.json")]
    assert [p.name for p in place.iterdir() if p.name != ".hidden"].count("a") == 1
    # What another process writes is seen.
    write_whole(pickle.loads(pickle.dumps(place)) / "e" / "m.json", b"e")
    assert (place / "e" / "m.json").exists()
    assert len(list(read_each(place, "m.json"))) == 3


def test_probing_leaves_nothing(place):
    assert places.missing_folders(place)[0] == place
    places.check_writable(place)
    assert files_below(place) == []


def test_a_file_that_is_written_bit_by_bit(place):
    with whole_file(place / "deep" / "copy") as here:
        here.write_bytes(b"content")
        assert not (place / "deep" / "copy").exists()
    assert [e.name for e in files_below(place)] == ["deep/copy"]
    with (  # noqa: PT012 - the error has to come from inside of the block
        pytest.raises(ZeroDivisionError),
        whole_file(place / "deep" / "copy") as here,
    ):
        here.write_bytes(b"other")
        raise ZeroDivisionError
    assert [e.place.read_bytes() for e in files_below(place)] == [b"content"]


@pytest.mark.parametrize(
    ("kind", "call"), [("local", "fsync"), ("local", "replace"), ("shelf", "")]
)
def test_a_write_that_breaks_off_leaves_the_file_before(kind, call, tmp_path, monkeypatch):
    with registered("shelf", ShelfFileSystem):
        folder = tmp_path if kind == "local" else locate(f"shelf://{tmp_path}")
        write_whole(folder / "x", b"before")

        def full(*arguments, **options):
            raise OSError(errno.ENOSPC, "No space left on device")

        if kind == "local":
            monkeypatch.setattr(os, call, full)
        else:
            monkeypatch.setattr(ShelfFileSystem, "mv", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(folder / "x", b"after")
        assert [p.name for p in tmp_path.iterdir()] == ["x"]
        assert (folder / "x").read_bytes() == b"before"


# --- URLs ---------------------------------------------------------------------------------------


def test_what_is_a_url():
    urls = ("s3://b/x", "s3:/b/x", "hdfs:///x")
    paths = ("runs", "/a/b", "./a:b", "C:x")
    assert [text for text in (*urls, *paths) if is_url(text)] == list(urls)


def test_paths_of_urls():
    # As pathlib writes it.
    assert str(locate(Path("memory://a/b"))) == "memory://a/b"
    assert locate("file:///a/b") == locate("local:///a/b") == Path("/a/b")
    assert locate(locate("memory://a")) == locate("memory://a/")
    assert str(RemotePath("hdfs:///a/b")) == "hdfs:///a/b"
    assert RemotePath("s3://b/x") != RemotePath("s3://b/x", {"key": "other"})
    assert {RemotePath("s3://b/x")} == {RemotePath("S3://b") / "x"}
    with pytest.raises(TypeError):
        Path(RemotePath("s3://b/x"))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sftp://me:secret@host/x", "holds a password"),
        ("simplecache::s3://b/x", "chained URLs"),
        ("s3:///x", r"^s3:///x has no bucket\. Write s3://BUCKET/folder\.$"),
        ("gs://", "gs:// has no bucket"),
        ("s3x://bucket/x", r"unknown storage s3x://. Did you mean 's3'"),
    ],
)
def test_urls_that_are_refused(url, message):
    with pytest.raises(SpecError, match=message) as caught:
        locate(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "module", "install"),
    [
        ("s3://b/x", "s3fs", r"pip install 'distfms\[s3\]'"),
        ("gs://b/x", "gcsfs", r"pip install 'distfms\[gcs\]'"),
        ("abfs://c/x", "adlfs", r"pip install 'distfms\[azure\]'"),
        ("oss://b/x", "ossfs", "ossfs"),
    ],
)
def test_missing_package_is_named(url, module, install, monkeypatch):
    import sys

    from fsspec.registry import _registry

    monkeypatch.setitem(sys.modules, module, None)
    for protocol in ("s3", "gs", "abfs", "oss"):
        monkeypatch.delitem(_registry, protocol, raising=False)
    with pytest.raises(SpecError, match=f"{install}.*every node"):
        locate(url)


def test_secrets_are_never_shown():
    data = {"secret": "hush-hush", "nested": {"sas": ["quiet"], "pin": 12345}}
    place = RemotePath("memory://x", data)
    assert "hush" not in repr(place) + str(place)
    failed = place.os_error(ValueError("bad hush-hush, 12345 and quiet at http://host"))
    assert str(failed) == "[Errno 5] ValueError: bad ***, *** and *** at http://host"
    failed = place.os_error(OSError(5, "http://me:pw@host:9000/x?sig=abc is down"))
    assert failed.strerror == "http://host:9000/x is down"
    again = pickle.loads(pickle.dumps(place))
    assert (again, again.storage_options) == (place, data)


def test_errors_are_those_of_a_disk():
    for error, kind in (
        (PermissionError("x"), PermissionError),
        (TimeoutError(), TimeoutError),
        (RuntimeError("x"), OSError),
        (NotImplementedError(), OSError),
    ):
        assert type(os_error(error)) is kind
        assert os_error(error).errno


def test_storage_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(remote, "REQUEST_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": endpoint}}
        with pytest.raises(TimeoutError, match="no answer within"):
            locate("s3://bucket/x", options).read_bytes()


class Opened(ShelfFileSystem):
    """Counts its connections, which may be refused."""

    n_opened = 0
    error: BaseException | None = None

    def __init__(self, **options):
        if self.error is not None:
            raise self.error
        type(self).n_opened += 1
        super().__init__(**options)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), ConnectionRefusedError),
        (TypeError("no such option"), SpecError),
        (FileNotFoundError(errno.ENOENT, "no key file"), SpecError),
    ],
)
def test_connections_that_fail(tmp_path, error, kind):
    class Failing(Opened):
        pass

    Failing.error = error
    with registered("shelf", Failing), pytest.raises(kind):
        locate(f"shelf://{tmp_path}").exists()


def test_a_thread_connects_once_and_again_after_an_error(tmp_path):
    class Counting(Opened):
        cachable = True

        def cat_file(self, path, **options):
            raise OSError(errno.EIO, "broken")

    with registered("shelf", Counting):
        place = locate(f"shelf://{tmp_path}")
        for _ in range(3):
            assert place.exists()
        assert Counting.n_opened == 1
        other = threading.Thread(target=place.exists)
        other.start()
        other.join()
        assert Counting.n_opened == 2
        with pytest.raises(OSError, match="broken"):
            place.read_bytes()
        assert place.exists()
        assert Counting.n_opened == 3


def test_times_of_every_kind():
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for value in (moment, moment.timestamp(), "2026-01-31T12:00:00Z"):
        assert places._modified_s({"LastModified": value}) == moment.timestamp()
    assert places._modified_s({}) == 0.0
    assert places._modified_s({"updated": "yesterday"}) == 0.0


def test_listing_looks_at_every_file_once(tmp_path, monkeypatch):
    for name in ("a", "b/c", "b/d/e"):
        write_whole(tmp_path / name, b"x")
    looked = Counter()
    stat = Path.stat

    def counted(path, **options):
        looked[path.name] += 1
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", counted)
    assert [entry.name for entry in files_below(tmp_path)] == ["a", "b/c", "b/d/e"]
    assert (looked["a"], looked["c"], looked["e"]) == (1, 1, 1)


@pytest.mark.parametrize("links", [True, False])
def test_of_two_writers_one_makes_the_file(place, monkeypatch, links):
    if not links:

        def refuse(*places):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    assert create_whole(place / "file", b"one")
    assert not create_whole(place / "file", b"two")
    assert (place / "file").read_bytes() == b"one"
    assert [entry.name for entry in files_below(place)] == ["file"]


def test_locks_keep_others_out_where_there_are_any(place):
    lock = place / ".lock"
    with places.locked_file(lock, "it is taken"):
        if isinstance(lock, RemotePath):
            with places.locked_file(lock, "it is taken"):
                assert not lock.exists()
        else:
            with pytest.raises(EngineError, match="it is taken"):
                places.locked_file(lock, "it is taken").__enter__()


def test_objects_that_may_not_be_read_are_passed_over():
    class Guarded(fsspec.get_filesystem_class("memory")):
        cachable = False

        def cat_file(self, path, **options):
            if "/b/" in path:
                raise PermissionError(path)
            return super().cat_file(path, **options)

    with registered("memory", Guarded):
        place = locate("memory://guarded")
        for name in ("a", "b"):
            write_whole(place / name / "m.json", name.encode())
        assert list(read_each(place, "m.json")) == [(place / "a", b"a")]
        remove_tree(place)
