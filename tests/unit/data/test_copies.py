import gzip
import os

import numpy as np
import pandas as pd
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats import csv
from distfms.data.files.formats.copies import Copies
from distfms.errors import DataError

GOOD = "a,b,day\n1,0.5,2026-01-01\n2,1.5,2026-01-02\n"


@pytest.fixture
def said():
    return []


@pytest.fixture
def opened(tmp_path, said):
    """Function that opens the CSV files of a folder, their copies kept."""
    cache = Copies(tmp_path / "copies", say=said.append)
    return lambda path="days": open_dataset(tmp_path / path, copies=cache)


@pytest.fixture
def put(tmp_path):
    (tmp_path / "days").mkdir()

    def write(name, text):
        path = tmp_path / "days" / name
        content = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def rows(dataset):
    names = dataset.schema.names
    tables = [dataset.reader.read(part, names).to_pandas() for part in dataset.partitions]
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("a,b,day\n1,2\n", r"2\.csv cannot be read as CSV: .*Row #2: Expected 3 columns, got 2"),
        (
            "a,b,day\n1,2,2026-01-01\n1,x,2026-01-01\n",
            r"2\.csv has invalid value 'x' in column 'b', row 3 .*is double",
        ),
        ("a,b,day\nx,2,2026-01-01\n", r"invalid value 'x' in column 'a', row 2 "),
        ("", r"2\.csv is empty \(0 bytes\)"),
        ("a,a,day\n1,2,3\n", r"'a' occurs 2 times in .*2\.csv"),
        ("a,day\n1,2026-01-01\n", r"2\.csv lacks the column 'b', unlike .*1\.csv"),
        (",a,b,day\n0,1,2,2026-01-01\n", r"Column 1 of .*2\.csv has no name.*index=False"),
        ("a;b;day\n1;2;3\n", r"2\.csv has a single column, 'a;b;day': separate values by commas"),
        (b"a,b,day\n1,2,caf\xe9\n", r"2\.csv has .* in column 'day', row 2 "),
    ],
)
def test_what_cannot_be_read(tmp_path, put, opened, second, message):
    put("1.csv", GOOD)
    put("2.csv", second)
    with pytest.raises(DataError, match=message):
        opened()
    assert not list((tmp_path / "copies").rglob("2.csv.parquet"))


def test_one_type_a_column(put, opened, monkeypatch):
    """By all files' first rows; whole numbers become floats where a fraction turns up late."""
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 64)
    put("1.csv", "n,late,kind,none\n" + "1,2,,\n" * 30 + "1,2.5,,\n")
    put("2.csv.gz", "none,kind,n,late\n,x,7,8\n")
    put("3.csv", "n,late,kind,none\n")  # no rows, no types
    dataset = opened()
    assert [str(kind) for kind in dataset.schema.types] == ["int64", "double", "string", "double"]
    assert [part.name for part in dataset.partitions] == ["days/1.csv", "days/2.csv.gz"]
    found = rows(dataset)
    assert found.n.tolist() == [1] * 31 + [7]
    assert found.late.tolist() == [2] * 30 + [2.5, 8]
    assert found.kind.dropna().tolist() == ["x"]
    assert np.isnan(found.none).all()


def test_only_what_changed_is_converted(tmp_path, put, opened, said):
    first, _ = put("1.csv", GOOD), put("2.csv", GOOD)
    before = opened().fingerprint
    assert opened().fingerprint == before
    opened("days/2.csv")
    assert [line.split(": ")[1] for line in said] == ["2 of 2 files"]
    stamp = first.stat().st_mtime_ns
    put("1.csv", GOOD.replace("0.5", "7.5"))
    changed = opened()
    assert said[1].endswith("1 of 2 files")
    assert rows(changed).b.tolist() == [7.5, 1.5, 0.5, 1.5]
    put("1.csv", GOOD)
    os.utime(first, ns=(stamp, stamp))
    for copy in (tmp_path / "copies").rglob("*.parquet"):
        copy.unlink()
    # A copy that is made again is the same data.
    assert opened().fingerprint == before


def test_parquet_beside_csv_is_the_data(tmp_path, put, opened):
    put("costs.csv", "group,cost\n")
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "days" / "a.parquet")
    assert opened().schema.names == ["x"]
