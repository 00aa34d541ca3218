import gzip
import os
import shutil

import numpy as np
import pandas as pd
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats import csv
from distfms.data.files.formats.base import FORMS
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
        ('a,b,day\n1,2,"05/03/2026"\n', r"'05/03/2026' in column 'day', row 2 .*`data.text`"),
        ('a,b,day\n1,"2,5",2026-01-01\n', r"invalid value '2,5' in column 'b', row 2 "),
        ("", r"2\.csv is empty \(0 bytes\)"),
        ("a,a,day\n1,2,3\n", r"'a' occurs 2 times in .*2\.csv"),
        ("a,day\n1,2026-01-01\n", r"2\.csv lacks the column 'b', unlike .*1\.csv"),
        ("a,,day\n0,1,2026-01-01\n", r"Column 2 of .*2\.csv has no name: give it one"),
        ("a;b;day\n1;2;3\n", r"2\.csv has invalid value '3' in column 'day', row 2 "),
        ("1,2,2026-01-01\n1,x,2026-01-01\n", r"2\.csv lacks the column 'a', unlike .*1\.csv"),
        (b"a,b,day\n1,2,caf\xe9\n", r"2\.csv has .* in column 'day', row 2 "),
    ],
)
def test_what_cannot_be_read(tmp_path, put, opened, second, message):
    put("1.csv", GOOD)
    put("2.csv", second)
    with pytest.raises(DataError, match=message):
        opened()
    assert len(list((tmp_path / "copies").rglob("rows.parquet"))) < 2


def test_one_type_a_column(put, opened, monkeypatch):
    """By all files' first rows; whole numbers become floats where a fraction turns up late."""
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 64)
    put("1.csv", "n,late,kind,none\n" + "1,2,,\n" * 30 + "1,2.5,,\n")
    put("2.csv.gz", "none,kind,n,late\n,x,7,8\n")
    put("3.csv", "n,late,kind,none\n")  # no rows, no types
    dataset = opened()
    assert [str(kind) for kind in dataset.schema.types] == ["int64", "double", "string", "double"]
    assert [part.name for part in dataset.partitions] == ["days/1.csv", "days/2.csv.gz"]
    results = rows(dataset)
    assert results.n.tolist() == [1] * 31 + [7]
    assert results.late.tolist() == [2] * 30 + [2.5, 8]
    assert results.kind.dropna().tolist() == ["x"]
    assert np.isnan(results.none).all()


def test_only_what_changed_is_converted(tmp_path, put, opened, said):
    first = put("1.csv", GOOD)
    _ = put("2.csv", GOOD.replace("1.5", "3.5"))
    before = opened().fingerprint
    assert opened().fingerprint == before
    opened("days/2.csv")
    assert [line.split(": ")[1] for line in said] == ["2 of 2 files"]
    stamp = first.stat().st_mtime_ns
    put("1.csv", GOOD.replace("0.5", "7.5"))
    changed = opened()
    assert said[1].endswith("1 of 2 files")
    assert rows(changed).b.tolist() == [7.5, 1.5, 0.5, 3.5]
    put("1.csv", GOOD.replace("0.5", "9.5"))
    os.utime(first, ns=(stamp, stamp))
    # Of the same size and time as one that was copied.
    assert rows(opened()).b[0] == 9.5
    put("1.csv", GOOD)
    os.utime(first, ns=(stamp, stamp))
    shutil.rmtree(tmp_path / "copies")
    with pytest.raises(DataError, match=r"days/1\.csv \(its copy in Parquet\) was removed"):
        rows(changed)
    # A copy that is made again is the same data.
    assert opened().fingerprint == before


DAYS = [f"{month}-{day}" for month, day in (("2024-03", "05"), ("2024-04", "06"))]


@pytest.mark.parametrize(
    ("name", "content", "expected", "note"),
    [
        ("a.csv", "a;b\n1,5;x\n2;y\n", {"a": [1.5, 2.0], "b": ["x", "y"]}, "decimal commas"),
        ("a.tsv", "a\tb\n1\t2.5\n", {"a": [1], "b": [2.5]}, None),
        ("a.csv", "größe;n\nklein;1\n".encode("cp1252"), {"größe": ["klein"], "n": [1]}, "cp1252"),
        ("a.csv", "größe,n\nklein,1\n".encode("utf-16"), {"größe": ["klein"], "n": [1]}, "utf-16"),
        ("a.csv", "größe,n\nklein,1\n".encode("utf-8-sig"), {"größe": ["klein"], "n": [1]}, None),
        ("a.csv", 'a,b\n"one\ntwo",1\n', {"a": ["one\ntwo"], "b": [1]}, None),
        (
            "a.csv",
            "1.5,2,x\n2.5,3,y\n",
            {"c1": [1.5, 2.5], "c2": [2, 3], "c3": ["x", "y"]},
            "c1 … c3",
        ),
        ("a.csv", ",a\n0,5\n1,6\n", {"a": [5, 6]}, "left out"),
        ("a.csv", "code,a\n01234,1\n12345,2\n", {"code": ["01234", "12345"], "a": [1, 2]}, None),
        ("a.csv", "d,a\n05.03.2024,1\n06.04.2024,2\n", {"d": DAYS, "a": [1, 2]}, None),
        (
            "a.csv",
            "d,a\n05/03/2024,1\n06/04/2024,2\n",
            {"d": DAYS, "a": [1, 2]},
            "%m/%d/%Y fits, too",
        ),
    ],
)
def test_csv_as_people_write_it(tmp_path, name, content, expected, note):
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    said = []
    results = rows(
        open_dataset(tmp_path / name, copies=Copies(tmp_path / "copies", say=said.append))
    )
    if "d" in results:
        results["d"] = results["d"].dt.strftime("%Y-%m-%d")
    assert results.to_dict("list") == expected
    assert note is None or note in "\n".join(said)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((["1", "2"], ["X", "1"]), ["1", "2", "X", "1"]),
        ((["01", "02"], ["10", "11"]), ["01", "02", "10", "11"]),
        ((["0", "1"], ["true", "false"]), [False, True, True, False]),
        ((["05/03/2024"], ["03/20/2024"]), [("2024-05-03"), ("2024-03-20")]),
        ((["5.3.2024 10:00"], ["", "20.3.2024 11:30"]), ["2024-03-05", None, "2024-03-20"]),
        ((["2024-03-05"], ["2024-03-06 10:00:00"]), ["2024-03-05", "2024-03-06"]),
        ((["NA", "DE"], ["FR"]), ["NA", "DE", "FR"]),
        ((["NA", "DE"], ["n/a"]), [None, "DE", None]),
        ((["7", "20.788"], ["1.234,5"]), [7, 20788, 1234.5]),
        ((["$42,000", "$7"], ["-$1.5"]), [42000, 7, -1.5]),
        ((["80.5 %"], ["3%", ""]), [80.5, 3, None]),
        ((["1 234", "5"], ["7\u202f000,5"]), [1234, 5, 7000.5]),
        ((["1,234", "1,234,567"], ["1'234.5"]), [1234, 1234567, 1234.5]),
        ((["5 %", "3"], ["7"]), ["5 %", "3", "7"]),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_column_is_what_fits_all_files(put, opened, texts, expected, turned):
    """Whatever their order."""
    for number, values in enumerate(texts):
        cells = "".join(f'"{value}"\t{k}\n' for k, value in enumerate(values))
        put(f"{1 - number if turned else number}.tsv", f"a\tb\n{cells}")
    if turned:
        expected = expected[len(texts[0]) :] + expected[: len(texts[0])]
    found = rows(opened()).a
    if found.dtype.kind == "M":
        found = found.dt.strftime("%Y-%m-%d")
    assert found.astype(object).where(found.notna(), None).tolist() == expected


def test_what_late_rows_tell(put, opened, monkeypatch):
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 128)
    early = "03/03/2024;1,5;2\n" * 20
    put("1.csv", f"day;price;n\n{early}03/20/2024;1.234,5;2,5\n")
    results = rows(opened())
    assert str(results.day.iloc[-1].date()) == "2024-03-20"
    assert results.price.tolist() == [1.5] * 20 + [1234.5]
    assert results.n.tolist() == [2] * 20 + [2.5]


def test_new_data_are_read_as_other_data_were(put, opened, tmp_path):
    put("1.csv", "code,price,day,n\n01,$5,04/20/2024,1\nX,$7,04/05/2024,2\n")
    forms = opened().forms
    forms = FORMS.validate_json(FORMS.dump_json(forms))
    (tmp_path / "new.csv").write_text("n,day,price,code\n1.5,05/03/2024,$2,10\n")
    dataset = open_dataset(tmp_path / "new.csv", copies=Copies(tmp_path / "copies"), forms=forms)
    results = rows(dataset)
    assert [str(results.day[0].date()), results.code[0]] == ["2024-05-03", "10"]
    assert results[["n", "price"]].values.tolist() == [[1.5, 2]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_line_breaks_within_quotes(put, opened, monkeypatch, delimiter):
    """What decides about a file ends at the end of a record."""
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 2**13)
    monkeypatch.setattr(csv, "_SNIFFED_BYTES", 2**11)
    note = f"it hurts{delimiter} less\n\nthan, before;\nso: we\nlower it"
    frame = pd.DataFrame({"id": range(400), "note": note, "price": 0.5})
    frame.loc[::3, "note"] = "good"
    put("1.csv", frame.to_csv(index=False, sep=delimiter))
    pd.testing.assert_frame_equal(rows(opened()), frame, check_dtype=False)


@pytest.mark.parametrize("ending", ["feather", "arrow", "xlsx"])
def test_tables_with_types(tmp_path, ending):
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan], "c": ["x", "y"], "d": [True, False]})
    frame["day"] = pd.to_datetime(["2024-01-02", "2024-01-03"])
    path = tmp_path / f"table.{ending}"
    if ending == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.astype({"c": "category"}).to_feather(path)
    dataset = open_dataset(path, copies=Copies(tmp_path / "copies"))
    assert [str(kind) for kind in dataset.schema.types[:4]][:2] == ["int64", "double"]
    pd.testing.assert_frame_equal(rows(dataset), frame, check_dtype=False)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match=f"{ending}.* cannot be read as"):
        open_dataset(path, copies=Copies(tmp_path / "copies"))


def test_lists_in_arrow(tmp_path):
    pd.DataFrame({"a": [[1.0], [2.0, 3.0]]}).to_feather(tmp_path / "a.feather")
    with pytest.raises(DataError, match="'a': write such columns as Parquet"):
        open_dataset(tmp_path / "a.feather", copies=Copies(tmp_path / "copies"))
