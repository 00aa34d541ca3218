from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.write import ShardWriter, write_table
from distfms.errors import DataError, EngineError


@pytest.fixture
def table() -> pa.Table:
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


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail as a full disk does, when the content is to reach it.

    A limit on the size of files would hit all threads of the process, and what they log.
    """

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)


def everything_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_table_comes_back_and_replaces_a_file_in_one_step(tmp_path: Path, table: pa.Table) -> None:
    path = write_table(tmp_path / "deep" / "t.parquet", table)
    assert everything_in(tmp_path) == ["deep", "deep/t.parquet"]
    with path.open("rb") as reader:
        write_table(path, table.slice(0, 10))
        # Who has opened the old file goes on reading it.
        assert pq.read_table(reader).equals(table)
    assert pq.read_table(path).num_rows == 10


def test_numbers_have_no_dictionary_and_others_do(tmp_path: Path, table: pa.Table) -> None:
    group = pq.ParquetFile(write_table(tmp_path / "t.parquet", table)).metadata.row_group(0)
    encodings = {
        group.column(j).path_in_schema: set(group.column(j).encodings)
        for j in range(group.num_columns)
    }
    for name in ("label", "small", "judged.list.element"):
        assert "BYTE_STREAM_SPLIT" in encodings[name]
        assert "RLE_DICTIONARY" not in encodings[name]
    assert "DELTA_BINARY_PACKED" in encodings["id"]
    assert "RLE_DICTIONARY" not in encodings["id"]
    assert "RLE_DICTIONARY" in encodings["kind"]
    assert {group.column(j).compression for j in range(group.num_columns)} == {"ZSTD"}


def test_row_groups_end_at_rows_or_bytes(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(100.0)})
    by_rows = pq.ParquetFile(write_table(tmp_path / "r", table, row_group_rows=40))
    assert [by_rows.metadata.row_group(j).num_rows for j in range(3)] == [40, 40, 20]
    by_bytes = pq.ParquetFile(write_table(tmp_path / "b", table, row_group_bytes=240))
    assert [by_bytes.metadata.row_group(j).num_rows for j in range(4)] == [30, 30, 30, 10]
    single = pq.ParquetFile(write_table(tmp_path / "s", table.slice(0, 3), row_group_bytes=1))
    assert single.metadata.num_row_groups == 3


def test_full_disk_leaves_the_old_file(tmp_path: Path, table: pa.Table, small_disk: None) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"old")
    with pytest.raises(EngineError, match=r"disk is full.*t\.parquet could not be written"):
        write_table(path, table)
    assert path.read_bytes() == b"old"
    assert everything_in(tmp_path) == ["t.parquet"]


def test_parent_is_a_file(tmp_path: Path, table: pa.Table) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=r"could not be written .*Check the folder"):
        write_table(tmp_path / "file" / "t.parquet", table)


def test_same_shards_however_the_rows_come(tmp_path: Path, table: pa.Table) -> None:
    contents = []
    for name, cuts in {"one": [1000], "many": [1, 77, 300, 622], "none": [0, 1000]}.items():
        with ShardWriter(tmp_path / name, table.schema, 300, 130, 3000) as writer:
            start = 0
            for rows in cuts:
                writer.write(table.slice(start, rows))
                start += rows
        shards = sorted((tmp_path / name).iterdir())
        contents.append([shard.read_bytes() for shard in shards])
        assert [shard.name for shard in shards] == [f"part-0000{j}.parquet" for j in range(4)]
        assert [pq.ParquetFile(s).metadata.num_rows for s in shards] == [300, 300, 300, 100]
    assert contents[0] == contents[1] == contents[2]
    assert pq.read_table(tmp_path / "one").equals(table)


def test_dataset_is_not_there_before_it_is_whole(tmp_path: Path, table: pa.Table) -> None:
    out = tmp_path / "out"
    with ShardWriter(out, table.schema, 100) as writer:
        writer.write(table)
        writer.add_file("_costs.csv", b"group,cost\n")
        assert not out.exists()
    assert len(everything_in(out)) == 11
    assert everything_in(tmp_path)[0] == "out"


def test_nothing_is_left_after_an_error(tmp_path: Path, table: pa.Table) -> None:
    with (  # noqa: PT012 - the error has to come from inside of the writer's block
        pytest.raises(RuntimeError, match="stop"),
        ShardWriter(tmp_path / "out", table.schema, 100) as writer,
    ):
        writer.write(table)
        raise RuntimeError("stop")
    assert everything_in(tmp_path) == []
    with ShardWriter(tmp_path / "out", table.schema):  # no rows keep the schema
        pass
    assert pq.read_table(tmp_path / "out").schema.equals(table.schema)


def test_full_disk_leaves_nothing(tmp_path: Path, table: pa.Table, small_disk: None) -> None:
    with (
        pytest.raises(EngineError, match=r"disk is full.*out could not be written"),
        ShardWriter(tmp_path / "out", table.schema) as writer,
    ):
        writer.write(table)
    assert everything_in(tmp_path) == []


def test_killed_writer_is_swept_up_by_the_next(tmp_path: Path, table: pa.Table) -> None:
    script = """
        import os, sys, pyarrow as pa
        from distfms.data.write import ShardWriter
        table = pa.table({"x": [1.0, 2.0, 3.0]})
        ShardWriter(sys.argv[1], table.schema, 1).__enter__().write(table)
        os.kill(os.getpid(), 9)
    """
    out = tmp_path / "out"
    command = [sys.executable, "-c", textwrap.dedent(script), str(out)]
    assert subprocess.run(command, check=False).returncode == -9
    assert not out.exists()
    assert any(name.startswith(".out.partial") for name in everything_in(tmp_path))
    with ShardWriter(out, table.schema) as writer:
        writer.write(table)
    assert everything_in(tmp_path) == ["out", "out/part-00000.parquet"]


def test_working_folder_of_a_live_writer_stays(tmp_path: Path, table: pa.Table) -> None:
    with ShardWriter(tmp_path / "out", table.schema) as first:
        first.write(table)
        with pytest.raises(RuntimeError), ShardWriter(tmp_path / "out", table.schema):
            raise RuntimeError("stop")
    assert everything_in(tmp_path) == ["out", "out/part-00000.parquet"]


def test_taken_folder(tmp_path: Path, table: pa.Table) -> None:
    write_table(tmp_path / "out" / "a.parquet", table)
    with pytest.raises(DataError, match="exists and is not empty"):
        ShardWriter(tmp_path / "out", table.schema)
    with ShardWriter(tmp_path / "out", table.schema, overwrite=True) as writer:
        writer.write(table.slice(0, 1))
    assert everything_in(tmp_path) == ["out", "out/part-00000.parquet"]
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"holds 'thesis\.tex'"):
        ShardWriter(tmp_path / "out", table.schema, overwrite=True)
    with pytest.raises(DataError, match="is a file"):
        ShardWriter(tmp_path / "out" / "thesis.tex", table.schema, overwrite=True)
