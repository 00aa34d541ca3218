"""Compressed files that stand for far more than tables do."""

import gzip
import io
import zipfile

import pandas as pd
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats import expansion
from distfms.data.files.formats.copies import Copies
from distfms.errors import DataError

LINES = {
    "csv": "a,b\n" + "1,2\n" * 30_000,
    "tsv": "a\tb\n" + "0\t0\n" * 30_000,
    "jsonl": '{"a": 1, "b": 2}\n' * 8_000,
}


@pytest.fixture
def opened(tmp_path, monkeypatch):
    monkeypatch.setattr(expansion, "_FREE_BYTES", 2**16)
    return lambda path: open_dataset(path, copies=Copies(tmp_path / "kept"))


@pytest.mark.parametrize("ending", LINES)
@pytest.mark.parametrize("is_bounded", [True, False])
def test_what_gzip_may_expand_to(tmp_path, opened, monkeypatch, ending, is_bounded):
    path = tmp_path / f"a.{ending}.gz"
    path.write_bytes(gzip.compress(LINES[ending].encode()))
    monkeypatch.setattr(expansion, "_MOST_TIMES", 2000 if is_bounded else 100)
    if is_bounded:
        assert opened(path).n_rows in (8_000, 30_000)
        return
    with pytest.raises(DataError, match=rf"{ending}\.gz expands to more than 100 times its \d+ "):
        opened(path)


@pytest.mark.parametrize("ending", ["xlsx", "xlsx.gz"])
def test_what_a_workbook_may_expand_to(tmp_path, opened, ending):
    content = io.BytesIO()
    pd.DataFrame({"a": [1.0, 2.0]}).to_excel(content, index=False)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/none", bytes(2**23))
    payload = content.getvalue()
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(payload) if ending.endswith("gz") else payload)
    with pytest.raises(DataError, match="expands to more than 200 times its"):
        opened(path)
