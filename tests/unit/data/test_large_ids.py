"""Whole numbers that floats would merge stay apart in files of text."""

import json

import pyarrow as pa
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies

FIRST = 14_160_410_518_916_000_000  # beyond 2^63


def read(folder, name, lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    dataset = open_dataset(str(folder / name), copies=Copies(folder=folder / "copies"))
    return dataset.reader.read(dataset.partitions[0], ["id", "a"])


@pytest.mark.parametrize("first", [FIRST, 2**63 - 150, 10**30])
def test_ids_of_csv_are_text_where_no_integer_holds_them(tmp_path, first):
    ids = [first + number for number in range(300)]
    table = read(tmp_path, "rows.csv", ["id,a", *(f"{id},{id % 7}.5" for id in ids)])
    assert table["id"].to_pylist() == [str(id) for id in ids]
    assert table["a"].type == pa.float64()


@pytest.mark.parametrize("first", [FIRST, 2**63 - 150])
def test_ids_of_json_lines_are_whole_numbers(tmp_path, first):
    ids = [first + number for number in range(300)]
    lines = [json.dumps({"id": id, "a": 1.5e19 * (id % 7)}) for id in ids]
    table = read(tmp_path, "rows.jsonl", lines)
    assert table["id"].to_pylist() == ids
    assert table["a"].type == pa.float64()
