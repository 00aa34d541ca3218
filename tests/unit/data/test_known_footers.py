import gc
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files import footers
from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies

N_FILES = 36


def write(place, value):
    columns = {"x": [value, value + 0.5], "k": [1, 2], "t": ["a", None]}
    pq.write_table(pa.table(columns), place)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(N_FILES):
        write(tmp_path / "data" / f"{number:02d}.parquet", number)
    return tmp_path / "data"


@pytest.fixture
def read(monkeypatch):
    """Names of the files whose footers were read."""
    names = []
    before = footers._read_footer

    def counted(filesystem, file, shared):
        names.append(file.name)
        return before(filesystem, file, shared)

    monkeypatch.setattr(footers, "_read_footer", counted)
    return names


def opened(data):
    return open_dataset(data, copies=Copies(data.parent / "known"))


def require_same(one, other):
    assert one.partitions == other.partitions
    assert (one.schema, one.files) == (other.schema, other.files)
    for a, b in zip(one.files, other.files, strict=True):
        np.testing.assert_array_equal(a.row_groups, b.row_groups)


def test_only_footers_of_new_and_changed_files_are_read(data, read):
    require_same(opened(data), open_dataset(data))
    del read[:]
    require_same(opened(data), opened(data))
    assert read == []
    # The same size and time: only the disk tells.
    changed = data / "03.parquet"
    status = (data / "03.parquet").stat()
    write(changed, 4.25)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert changed.stat().st_size == status.st_size
    write(data / "99.parquet", 99.0)
    found = opened(data)
    assert sorted(read) == ["data/03.parquet", "data/99.parquet"]
    require_same(found, open_dataset(data))


def test_what_is_damaged_is_read_again(data, read):
    opened(data)
    (kept,) = [path for path in (data.parent / "known").rglob("*") if path.is_file()]
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    del read[:]
    require_same(opened(data), open_dataset(data))
    assert len(read) == 2 * N_FILES


def test_what_was_parsed_does_not_wait_for_a_collection_of_garbage(data):
    """A footer of 500 columns takes 800 KiB until then."""

    def parsed():
        return sum(isinstance(one, pq.FileMetaData) for one in gc.get_objects())

    gc.collect()
    before = parsed()
    gc.disable()
    try:
        open_dataset(data)
        assert parsed() == before
    finally:
        gc.enable()
