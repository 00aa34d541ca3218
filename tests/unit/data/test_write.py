import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.write import CsvFile, GroupedFile, write_table


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, 1000)
    items = [rng.normal(size=n).tolist() for n in lengths]
    return pa.table(
        {
            "id": np.arange(1000),
            "label": rng.normal(size=1000),
            "small": rng.normal(size=1000).astype(np.float32),
            "judged": pa.array(items, pa.list_(pa.float64())),
            "kind": rng.choice(["red", "green"], 1000).tolist(),
        }
    )


def everything_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_table_comes_back_and_replaces_a_file_in_one_step(tmp_path, table):
    path = write_table(tmp_path / "deep" / "t.parquet", table)
    assert everything_in(tmp_path) == ["deep", "deep/t.parquet"]
    with path.open("rb") as reader:
        write_table(path, table.slice(0, 10))
        # Who has opened the old file goes on reading it.
        assert pq.read_table(reader).equals(table)
    assert pq.read_table(path).num_rows == 10


def test_same_row_groups_however_the_rows_come(tmp_path, table):
    contents = []
    for name, cuts in {"one": [1000], "many": [1, 77, 300, 622], "none": [0, 1000]}.items():
        with GroupedFile(tmp_path / name, 130, 20_000) as file:
            start = 0
            for rows in cuts:
                file.write(table.slice(start, rows))
                start += rows
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] == contents[2]
    assert pq.read_table(tmp_path / "one").equals(table)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())],
    ids=str,
)
def test_spreadsheets_find_no_formulas(tmp_path, kind):
    texts = ["=1+1", "@x", "-", "+5", "plain", None]
    with CsvFile(tmp_path / "p.csv") as file:
        file.write(pa.table({"=id": pa.array(texts).cast(kind), "@predicted": [-1.0] * 6}))
    header, *lines = (tmp_path / "p.csv").read_text().splitlines()
    assert header == '"\'=id","\'@predicted"'
    results = [line.split(",")[0].strip('"') for line in lines]
    expected = [text if text in ("plain", None) else f"'{text}" for text in texts]
    assert results == [text or "" for text in expected]
