"""A file that cannot be read is named with its fault and what to do."""

import bz2
import gzip
import io
import json
import lzma

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.errors import DataError

ROWS = "a,b,y\n" + "".join(f"{k},{k % 7},{k * 0.5}\n" for k in range(60))
PARQUET = io.BytesIO()
pq.write_table(pa.table({"a": [1.0] * 60, "y": [2.0] * 60}), PARQUET)
LINES = b"".join(json.dumps({"a": k, "y": 0.5 * k}).encode() + b"\n" for k in range(60))
WORDS = {
    "gzip.csv": (gzip.compress(ROWS.encode()), "compressed by gzip, not CSV: add .gz"),
    "zst.csv": (pa.Codec("zstd").compress(ROWS.encode(), asbytes=True), "compressed by Zstandard"),
    "bz2.csv": (bz2.compress(ROWS.encode()), "compressed by bzip2"),
    "xz.csv": (lzma.compress(ROWS.encode()), "compressed by xz"),
    "table.csv.zst": (pa.Codec("zstd").compress(ROWS.encode(), asbytes=True), "by Zstandard"),
    "book.csv": (b"PK\x03\x04" + bytes(80), "holds a workbook or a zip archive, not CSV"),
    "parquet.csv": (PARQUET.getvalue(), "holds Parquet, not CSV: end its name in .parquet"),
    "gzip.parquet": (gzip.compress(ROWS.encode()), "compressed by gzip, not Parquet"),
    "text.parquet": (ROWS.encode(), "holds text, not Parquet: end its name in .csv"),
    "table.txt": (ROWS.encode(), "holds text, not Parquet: end its name in .csv"),
    "lines.json": (LINES, "holds JSON, not Parquet: end its name in .jsonl"),
    "array.json": (b'[\n {"a": 1}]', "holds a JSON array, not Parquet: write one object a line"),
    "page.csv": (b"<!DOCTYPE html><html></html>", "holds a web page, not CSV"),
    "secret.parquet": (b"PARE" + PARQUET.getvalue()[4:-4] + b"PARE", "encrypted Parquet"),
    "old.csv": (
        ROWS.encode() + b"caf\xe9 \x81,1,2\n",
        "of no encoding .*byte 0x81.*save it as UTF-8",
    ),
    "~$book.xlsx": (b"\x05book" + bytes(160), "is a lock of Excel"),
    "book.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "cannot be read as a workbook"),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_fault_is_named(name, tmp_path):
    content, words = WORDS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as refused:
        open_dataset(tmp_path / name, copies=Copies(folder=tmp_path / "copies"))
    assert "permissions" not in str(refused.value)


def test_locks_of_excel_are_passed_over(tmp_path):
    pd.DataFrame({"a": [1, 2], "y": [3, 4]}).to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "~$rows.csv").write_bytes(b"\x05somebody")
    assert open_dataset(tmp_path, copies=Copies(folder=tmp_path / "copies")).n_rows == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_columns_without_a_value_go_with_any_type(order, tmp_path):
    texts = pd.DataFrame(
        {"a": [1, 2], "note": ["u", "v"], "when": pd.to_datetime(["2024-01-01"] * 2)}
    )
    empty = texts.assign(note=None, when=None)
    nothing = texts.head(0).astype(object)
    for number, place in enumerate(order):
        frame = (texts, empty, nothing)[place]
        frame.to_parquet(tmp_path / f"{number}.parquet", index=False)
    dataset = open_dataset(tmp_path)
    assert [str(kind) for kind in dataset.schema.types][:2] == ["int64", "string"]
    tables = [dataset.reader.read(part, dataset.schema.names) for part in dataset.partitions]
    assert pa.concat_tables(tables).column("note").null_count == 2
