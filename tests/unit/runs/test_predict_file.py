"""The file of predictions: whole or not there."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import DistfmsError
from distfms.runs.predict import _written

TABLE = pa.table({"x": [1.0, 2.0]})


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    out = tmp_path / "p.parquet"
    with _written(out) as write, _written(out) as other:
        write(TABLE)
        other(TABLE)
        assert len(list(tmp_path.iterdir())) == 2
    assert pq.read_table(out).num_rows == 2


@pytest.mark.parametrize("error", [OSError("disk"), ValueError("bad"), KeyboardInterrupt()])
def test_after_an_error_the_writer_is_closed_and_nothing_is_left(tmp_path, monkeypatch, error):
    made = []
    writer = pq.ParquetWriter

    def opened(*args, **options):
        made.append(writer(*args, **options))
        return made[0]

    monkeypatch.setattr(pq, "ParquetWriter", opened)
    expected = DistfmsError if isinstance(error, OSError) else type(error)

    def fail():
        with _written(tmp_path / "p.parquet") as write:
            write(TABLE)
            raise error

    with pytest.raises(expected):
        fail()
    assert [w.is_open for w in made] == [False]
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    replace = Path.replace
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda d: (synced.append(os.readlink(f"/proc/self/fd/{d}")), fsync(d))
    )
    monkeypatch.setattr(Path, "replace", lambda a, b: (synced.append("named"), replace(a, b)))
    with _written(tmp_path / "p.parquet") as write:
        write(TABLE)
    assert synced[0].endswith(".tmp")
    assert synced[1:] == ["named", str(tmp_path)]
