import gzip

import pyarrow as pa
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats import json_lines
from distfms.data.files.formats.copies import Copies
from distfms.errors import DataError

ADVICE = 'write one object a line, such as {"x": 1.5, "y": 2}.'
CORRECT = "Correct the value or remove the file from the dataset."
BEFORE = "the column's type, in rows or files before, is"


def write(folder, *texts):
    """Write JSON lines as 1.jsonl, 2.jsonl and so on."""
    for number, text in enumerate(texts, 1):
        (folder / f"{number}.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())


def read(folder):
    dataset = open_dataset(folder, copies=Copies(folder / ".copies"))
    names = dataset.schema.names
    return pa.concat_tables([dataset.reader.read(part, names) for part in dataset.partitions])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n\n{"a": [1]}\n', "has a list in column 'a', line 3: a column holds numbers, "),
        ('{"a": {"b": 1}}\n', "has an object in column 'a', line 1: a column holds numbers, text,"),
        ('{"b": 1}\n{"a": 1, "b": "x"}\n', f"""has "x" in column 'b', line 2; {BEFORE} double. """),
        ('{"a": 1}\n{"a": true}\n', f"has true in column 'a', line 2; {BEFORE} double. {CORRECT}"),
        ('{"a": 1e999}\n', f"has Infinity in column 'a', line 1; {BEFORE} double. {CORRECT}"),
        ('{"a": "one"}', f"""has "one" in column 'a', line 1; {BEFORE} double. {CORRECT}"""),
        (
            '{"t": "soon"}',
            f"""has "soon" in column 't', line 1; {BEFORE} timestamp[ns]. {CORRECT}""",
        ),
        ('[{"a": 1}]\n', f"holds a JSON array: {ADVICE}"),
        ('{"a": 1}\n5\n', f"has 5 in line 2: {ADVICE}"),
        ('{"a":\n1}\n', f"has no whole JSON object in line 1 (Expecting value): {ADVICE}"),
        ('{"a": 1}{"a": 2}\n', f"has no whole JSON object in line 1 (Extra data): {ADVICE}"),
        ('{"a": 1}\n{"a": 2', "has no whole JSON object in line 2 (Expecting ',' delimiter): "),
        (b'{"a": "caf\xe9"}\n', "has no whole JSON object in line 1 ('utf-8' codec can't decode "),
        ('{"a": 1, "a": 2}\n', "has the key 'a' twice in line 1: leave one out."),
        ('{"a": ' + "[" * 2_000, "has no whole JSON object in line 1 (maximum recursion depth "),
        ('{"a": "\\ud800"}\n', "cannot be read as JSON lines, from line 1 on (JSON parse error: "),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    write(tmp_path, '{"a": 1, "t": "2026-01-01"}\n', text)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"The file {tmp_path}/2.jsonl {message}")
    assert not list((tmp_path / ".copies").rglob("2.jsonl.parquet"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n", "There are no columns in {}/1.jsonl."),
        ("\n \n", "There are no columns in {}/1.jsonl."),
        ('{"": 1}\n', "Column 1 of {}/1.jsonl has no name: give it one, or leave it out "),
    ],
)
def test_files_without_columns(tmp_path, text, message):
    write(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(message.format(tmp_path))


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LINE_BYTES", 2**20)
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 2**10)
    write(tmp_path, '{"a": "' + "x" * 2**21)
    with pytest.raises(DataError, match="more than 1 MiB in one line: write one object a line"):
        read(tmp_path)


@pytest.mark.parametrize("block_bytes", [4, 2**24])
def test_types_are_of_all_rows_and_files(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", block_bytes)
    write(
        tmp_path,
        '\ufeff{"n": 1, "none": null, "day": "2026-01-31"}\r\n\r\n{"n": 2.5, "text": "2026-01-31"}',
        '{"text": "x", "n": 7, "late": true}\n{"day": "2026-02-01T10:00:00"}',
    )
    (tmp_path / "3.ndjson.gz").write_bytes(gzip.compress(b'{"n": 3}\n'))
    write_order = ["n", "none", "day", "text", "late"]
    (tmp_path / "1.jsonl").write_bytes((tmp_path / "1.jsonl").read_bytes() + b'\n{"text": "y"}\n')
    table = read(tmp_path)
    kinds = ["double", "double", "timestamp[ns]", "string", "bool"]
    assert (table.column_names, [str(kind) for kind in table.schema.types]) == (write_order, kinds)
    assert table["n"].to_pylist() == [1, 2.5, None, 7, None, 3]
    assert table["text"].to_pylist() == [None, "2026-01-31", "y", "x", None, None]
    assert table["late"].to_pylist() == [None, None, None, True, None, None]
    assert table["day"].is_valid().to_pylist() == [True, False, False, False, True, False]
