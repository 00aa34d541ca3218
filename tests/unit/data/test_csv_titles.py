"""Lines above the names of columns in CSV: titles and empty lines are passed over, and said."""

import io

import pytest

from distfms.data.files.formats.base import Forms, MisfitError
from distfms.data.files.formats.csv import FORMAT


def table(text):
    (schema,), _ = FORMAT.settle([FORMAT.schema(io.BytesIO(text.encode()))], {}, Forms())
    batches = FORMAT.batches(io.BytesIO(text.encode()), schema, schema.names)
    return [batch.to_pydict() for batch in batches], FORMAT.notes(schema)


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        (
            "Study 1990\nExport 12.03.2021\n\nid,a\nP0,5\nP1,7\n",
            {"id": ["P0", "P1"], "a": [5, 7]},
            4,
        ),
        ("\n\na,b\n1,2\n3,4\n", {"a": [1, 3], "b": [2, 4]}, 3),
        ("Report, 2020\na;b\n1;2\n2;3\n", {"a": [1, 2], "b": [2, 3]}, 2),
        ("Report;;\na;b;c\n1;2;3\n", {"a": [1], "b": [2], "c": [3]}, 2),
        ("Umsatz\n\nPreis;Menge\n1,5;2\n2,5;3\n", {"Preis": [1.5, 2.5], "Menge": [2, 3]}, 3),
        ("t\r\n\r\na\tb\r\n1\t2\r\n", {"a": [1], "b": [2]}, 3),
        ("just\n1\n2\n", {"just": [1, 2]}, None),
        (",a,b\n0,1,2\n1,2,3\n", {"a": [1, 2], "b": [2, 3]}, None),
        ("a,b\n,\n1,2\n", {"a": [None, 1], "b": [None, 2]}, None),
    ],
)
def test_names_are_found_below_titles(text, columns, line):
    assert table(text)[0] == [columns]
    messages = [note for note in table(text)[1] if "names of columns" in note]
    assert messages == ([] if line is None else [f"the names of columns are in line {line}"])


def test_errors_name_the_row_of_the_file():
    rows = "".join(f"{k},{k}\n" for k in range(200_000))
    text = f"Title\n\na,b\n{rows}x,1\n"
    head = "\n".join(text.split("\n")[:50]) + "\n"
    (schema,), _ = FORMAT.settle([FORMAT.schema(io.BytesIO(head.encode()))], {}, Forms())
    with pytest.raises(MisfitError, match=r"row 200004 \(the header is row 3\)"):
        list(FORMAT.batches(io.BytesIO(text.encode()), schema, schema.names))
