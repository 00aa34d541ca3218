"""Files at fault are named with their fault, and with what to do about it."""

import gzip
import io
import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.errors import DataError

ROWS = "a,b,y\n" + "".join(f"{i},{i % 7},{i * 0.5}\n" for i in range(30))


def parquet(**options):
    out = io.BytesIO()
    pq.write_table(pa.table({"a": [1.0] * 30, "y": [2.0] * 30}), out, **options)
    return out.getvalue()


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("table.csv", ROWS)
    return out.getvalue()


ENCRYPTED = b"PARE" + parquet()[4:-4] + b"PARE"
OBJECTS = [{"a": i, "y": i / 2} for i in range(30)]
LINES = "".join(json.dumps(row) + "\n" for row in OBJECTS)


@pytest.fixture
def opened(tmp_path):
    def opened(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return open_dataset(tmp_path / name, copies=Copies(folder=tmp_path / "copies"))

    return opened


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", ROWS.encode() + b"caf\xe9 \x81,1,2\n", "holds the byte 0x81, .* as UTF-8"),
        ("x.csv", gzip.compress(ROWS.encode()), "compressed with gzip, not CSV .* end in .gz"),
        ("x.csv", zipped(), "holds a zip archive, .* not CSV .* unpack"),
        ("x.csv", parquet(), "holds Parquet, not CSV .* end in .parquet"),
        ("x.csv.gz", gzip.compress(parquet()), "holds Parquet, not CSV"),
        ("x.csv", "<!DOCTYPE html><p>Log in</p>", "holds a web page, not CSV"),
        (
            "x.csv",
            "version https://git-lfs.github.com/spec/v1\n",
            "pointer of Git LFS.* git lfs pull",
        ),
        ("x.jsonl", json.dumps(OBJECTS), "holds a JSON array: write one object a line"),
        ("x.jsonl", json.dumps(OBJECTS, indent=1), "holds a JSON array: write one object a line"),
        ("x.jsonl", gzip.compress(LINES.encode()), "compressed with gzip, not JSON lines"),
        ("x.arrow", ROWS, "cannot be read as Arrow, as which it does not begin"),
        ("x.xlsx", ROWS, "cannot be read as Excel, as which it does not begin.* end in .csv"),
        ("x.xls", "<html><table></table></html>", "holds a web page, not Excel"),
        ("x.parquet", ENCRYPTED, "holds encrypted Parquet: write it without encryption"),
        (
            "x.parquet",
            parquet()[:-40],
            "cannot be read as Parquet: it is truncated, as it begins but does not end so",
        ),
        ("x.parquet", gzip.compress(ROWS.encode()), "compressed with gzip, not Parquet"),
        ("x.parquet", ROWS, "holds text, not Parquet: .* end in .csv"),
        (
            "x.parquet",
            bytes(90),
            "cannot be read as Parquet: it is truncated, damaged or in another",
        ),
        ("x.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "cannot be read as a workbook"),
        ("x.json", LINES, "ends in .json, which tells no format: write one object a line"),
        ("x.txt", ROWS, "ends in .txt, which tells no format: .* end in .csv"),
        ("x.csv.zst", pa.Codec("zstd").compress(ROWS.encode(), asbytes=True), "Zstandard"),
        ("x.csv.bz2", b"BZh91AY", "bzip2.* compress it with gzip"),
        ("x.zip", zipped(), "zip archive.* unpack"),
        ("x.sav", ROWS, "names that end in .sav tell no other format"),
        (
            "~$x.xlsx",
            b"\x05Anna",
            "is the lock file of a workbook .* name the workbook itself, x.xlsx",
        ),
    ],
)
def test_fault_of_a_file(opened, name, content, message):
    with pytest.raises(DataError, match=message) as refused:
        opened(name, content)
    assert name in str(refused.value)
    assert "permissions" not in str(refused.value)


def test_parquet_may_have_any_name(opened):
    assert opened("part-00000", parquet()).n_rows == 30
    assert opened("x.snappy", parquet(compression="snappy")).n_rows == 30


def test_locks_of_workbooks_are_passed_over(tmp_path):
    (tmp_path / "~$x.csv").write_bytes(b"\x05Anna")
    (tmp_path / "x.csv").write_text(ROWS)
    assert open_dataset(tmp_path, copies=Copies(folder=tmp_path / ".copies")).n_rows == 30
