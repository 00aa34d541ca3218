"""Workbooks: which sheet, which row of names, and which types are read."""

import datetime
import io

import pytest
from openpyxl import Workbook

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.base import FormatError
from distfms.data.files.formats.copies import Copies
from distfms.data.files.formats.excel import FORMAT
from distfms.errors import DataError

VALUES = [[k, 0.5 * k, "x"] for k in range(1, 6)]
DAY = datetime.datetime(2024, 1, 1)


def workbook(rows, *, merged=(), sheets=None, chart=False):
    book = Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    for name, others in (sheets or {}).items():
        sheet = book.create_sheet(name, 0)
        for row in others:
            sheet.append(row)
    if chart:
        book.create_chartsheet("chart", 0)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


def table(content):
    schema = FORMAT.schema(io.BytesIO(content))
    (batch,) = FORMAT.batches(io.BytesIO(content), schema, schema.names)
    return batch.to_pydict(), FORMAT.notes(schema)


@pytest.mark.parametrize(
    ("above", "merged", "names"),
    [
        ([["a", "b", "c"]], (), ["a", "b", "c"]),
        ([["Report"], ["a", "b", "c"]], (), ["a", "b", "c"]),
        ([["Report", None, "of 2024"], [], ["a", " b", "c"]], (), ["a", "b", "c"]),
        ([[], ["a", "b", "c"]], (), ["a", "b", "c"]),
        ([["Visit", None, "y"], ["a", "b"]], ["A1:B1"], ["Visit a", "Visit b", "y"]),
        ([["First", None, "Last"], ["a", "b", "a"]], (), ["First a", "First b", "Last a"]),
        ([[None, "b", "c"]], (), ["b", "c"]),
    ],
)
def test_names_are_found_below_titles_and_in_two_rows(above, merged, names):
    values, _ = table(workbook([*above, *VALUES], merged=merged))
    assert list(values) == names
    assert len(values[names[0]]) == len(VALUES)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ([1, 2, None], [1, 2, None]),
        ([1, 2.5, "NA"], [1.0, 2.5, None]),
        (["007", "7", "1e3"], ["007", "7", "1e3"]),
        (["A1", 2, 3.5], ["A1", "2", "3.5"]),
        ([True, False, None], [True, False, None]),
        ([True, 2, 3], [1, 2, 3]),
        ([DAY, None, DAY], [DAY, None, DAY]),
        ([DAY, "unknown", None], ["2024-01-01", "unknown", None]),
        ([datetime.datetime(1899, 12, 31), DAY, DAY], [datetime.datetime(1899, 12, 31), DAY, DAY]),
        (["#N/A", 1, 2], [None, 1, 2]),
        ([2.0**60, 1, 2], [2.0**60, 1.0, 2.0]),
    ],
)
def test_types_are_those_of_the_cells(cells, values):
    content = workbook([["a", "b"], *([cell, 0.5] for cell in cells)])
    assert table(content)[0]["a"] == values


def test_the_fullest_sheet_is_read_and_said():
    content = workbook([["a", "b"], [1, 2], [3, 4]], sheets={"About": [["written by hand"]]})
    values, notes = table(content)
    assert values == {"a": [1, 3], "b": [2, 4]}
    assert len(notes) == 1
    assert "of the sheets 'About', 'Sheet', 'Sheet' is read, which has the most" in notes[0]
    assert notes[0].endswith("to read another, name it after the path, as in #About")
    values, notes = table(workbook([["Title"], [], ["a", "b"], [1, 2]], chart=True))
    assert values == {"a": [1], "b": [2]}
    assert notes == ["the names of columns are in row 3"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (workbook([["a", "a"], [1, 2]]), "has the column 'a' twice in the sheet 'Sheet'"),
        (workbook([["a", None, "b"], [1, 2, 3]]), "a name for each column above the values"),
        (workbook([[1, 2], [3, 4]]), "a name for each column above the values"),
        (workbook([]), "has no sheet with a table"),
        (b"a,b\n1,2\n", "cannot be read as a workbook"),
    ],
)
def test_what_has_no_names_is_refused(content, reason):
    with pytest.raises(FormatError, match=reason):
        FORMAT.schema(io.BytesIO(content))


def test_a_sheet_is_named_after_the_path(tmp_path):
    tall = [["a", "y"], *([k, 0.5 * k] for k in range(5))]
    sheets = {"2023": [["Report"], *tall[:3]], "the rest #2": [["b"], [7]]}
    path = tmp_path / "book.XLSX"
    path.write_bytes(workbook(tall, sheets=sheets))
    said = []
    copies = Copies(folder=tmp_path / "copies", say=said.append)

    def rows(name):
        dataset = open_dataset(name, copies=copies)
        names = dataset.schema.names
        return [dataset.reader.read(part, names).to_pydict() for part in dataset.partitions]

    assert rows(path) == [{"a": [0, 1, 2, 3, 4], "y": [0.0, 0.5, 1.0, 1.5, 2.0]}]
    assert "book.XLSX: of the sheets 'the rest #2', '2023', 'Sheet', 'Sheet' is read" in said[1]
    rows(path)
    assert said[2:] == said[1:2]  # also where the copy is there
    assert rows(f"{path}#2023") == [{"a": [0, 1], "y": [0.0, 0.5]}]
    assert rows(f"{path}#the rest #2") == [{"b": [7]}]
    assert len(rows([f"{path}#2023", f"{path}#Sheet"])) == 2
    assert rows(f"{tmp_path}/*.XLSX#2023") == rows(f"{path}#2023")
    with pytest.raises(DataError, match="choose from 'the rest #2', '2023', 'Sheet'"):
        rows(f"{path}#2024")
    with pytest.raises(DataError, match="is named twice"):
        rows([f"{path}#2023", f"{path}#2023"])
