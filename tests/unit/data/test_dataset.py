import datetime
import os
import shutil
from functools import partial

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files import footers, storage
from distfms.data.files.dataset import open_dataset
from distfms.data.files.footers import readable
from distfms.data.files.partition import Rows, default_bytes, memory_dataset
from distfms.data.rows.folds import assign_parts
from distfms.errors import DataError
from distfms.store.places import files_below
from distfms.store.remote import RemotePath


def write(path, n_rows=10, row_group_size=None, start=0, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"x": np.arange(start, start + n_rows, dtype=float), **columns}
    # No two files are copies.
    table = pa.table(values).replace_schema_metadata({"path": str(path)})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def all_values(dataset):
    tables = [dataset.reader.read(p, ["x"]) for p in dataset.partitions]
    return np.concatenate([t.column("x").to_numpy() for t in tables]).tolist()


def test_row_groups_are_packed_up_to_the_byte_limit(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=45, row_group_size=10)
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(g).total_byte_size for g in range(5)]
    dataset = open_dataset(file, max_bytes=sizes[0] + sizes[1])
    assert [p.row_groups for p in dataset.partitions] == [(0, 1), (2, 3), (4,)]
    assert [p.n_bytes for p in dataset.partitions] == [sum(sizes[:2]), sum(sizes[2:4]), sizes[4]]
    # A row group beyond the limits is a partition.
    beyond = open_dataset(file, max_rows=4, max_bytes=1)
    assert [p.n_rows for p in beyond.partitions] == [10, 10, 10, 10, 5]


def test_partitions_of_wide_tables_may_be_larger():
    assert [default_bytes(n) >> 20 for n in (1, 2896, 3500, 4096, 50_000)] == [64, 64, 93, 128, 128]


def read(reader, piece, columns=("x", "y")):
    return piece, reader.read(piece, columns)


def test_a_large_row_group_is_read_in_batches_of_rows(tmp_path):
    write(tmp_path / "b.parquet", n_rows=95, start=3, y=np.arange(95))
    write(tmp_path / "a.parquet", n_rows=3, y=np.arange(3))
    dataset = open_dataset(tmp_path, max_rows=20)
    small, large = dataset.partitions
    assert (small.batch_rows, large.batch_rows) == (0, 20)
    results = list(dataset.reader.each_batch(large, ["y", "x"], read))
    pieces, tables = zip(*results, strict=True)
    assert [piece.n_rows for piece in pieces] == [20, 20, 20, 20, 15]
    assert [piece.file_row_offset for piece in pieces] == [0, 20, 40, 60, 80]
    assert [piece.row_offset for piece in pieces] == [3, 23, 43, 63, 83]
    assert pa.concat_tables(tables).equals(dataset.reader.read(large, ["x", "y"]))
    with pytest.raises(DataError, match="no column 'z'"):
        list(dataset.reader.each_batch(large, ["x", "z"], read))

    def third(reader, piece):  # others are passed by without being read
        if piece.file_row_offset == 40:
            assert reader.read(piece, ["x"]).column("x").to_pylist() == [*range(43, 63)]
            assert reader.locate_row(piece, 7) == "row group 0, first at its row 47"
            raise ValueError("third")

    for _ in range(2):  # what fails keeps no other from reading
        with pytest.raises(ValueError, match="third"):
            list(dataset.reader.each_batch(large, ["x", "y"], third))
    assert list(dataset.reader.each_batch(small, ["x"], lambda *own: own)) == [
        (dataset.reader, small)
    ]
    assert open_dataset(tmp_path, max_rows=19).partitions[1].fingerprint != large.fingerprint


def test_batches_of_rows_have_as_many_as_1_2_or_4_pages(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=200_000)
    results = [open_dataset(file, max_rows=n) for n in (19_999, 39_999, 79_999, 99_999)]
    rows = [dataset.partitions[0].batch_rows for dataset in results]
    assert rows == [19_999, 20_000, 40_000, 80_000]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("d/z/*.pq", ["z/1.pq", "z/2.pq"]),
        ("d/**/1.pq", ["d/1.pq", "d/y/1.pq", "d/z/1.pq"]),
        (["d/z/2.pq", "d/z/1.pq"], ["z/2.pq", "z/1.pq"]),
        ("run[1]", ["run[1]/a.parquet"]),
    ],
)
def test_globs_and_lists(tmp_path, monkeypatch, path, names):
    """A glob gives files in the order of names, a list in its own; what exists is no glob."""
    monkeypatch.chdir(tmp_path)
    for name in ("d/z/2.pq", "d/z/1.pq", "d/y/1.pq", "d/1.pq", "run[1]/a.parquet"):
        write(tmp_path / name)
    assert [file.name for file in open_dataset(path).files] == names


def parts_of(path):
    partition = open_dataset(path).partitions[0]
    parts = assign_parts(None, partition=partition, n_folds=5, test=0.2, seed=3)
    return partition.fingerprint, parts.tolist()


def test_names_of_files_count_below_what_is_named(tmp_path):
    """A file by itself, or a folder, has the same folds and fingerprint under any name."""
    file = write(tmp_path / "2024" / "a.parquet", n_rows=500)
    other = write(tmp_path / "2025" / "a.parquet", n_rows=500)
    pattern = str(file.with_name("*.parquet"))
    alone = parts_of(file)
    folder = parts_of(file.parent)
    listed = parts_of([file.parent, other.parent])
    held = memory_dataset(Rows(pq.read_table(file)), pq.read_schema(file)).partitions[0]
    assert alone[1] == assign_parts(None, partition=held, n_folds=5, test=0.2, seed=3).tolist()
    assert len({tuple(parts) for _, parts in (alone, folder, listed)}) == 3
    assert parts_of(pattern) == parts_of(f"file://{file.parent}") == folder
    # A list stays what it was when more is added; there folders have names.
    assert parts_of([file]) == parts_of([file.parent]) == parts_of([pattern, other]) == listed
    moved = (tmp_path / "2024").rename(tmp_path / "elsewhere")
    assert parts_of(moved) == folder
    assert parts_of(moved / "a.parquet") == alone
    renamed = (moved / "a.parquet").rename(moved / "b.parquet")
    assert parts_of(renamed) == alone
    assert parts_of(moved)[1] != folder[1]


def test_listed_folders_of_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / parent / "2024" for parent in ("b", "a", "c")]
    for folder in folders:
        write(folder / "x.parquet")
    write(tmp_path / "2024#2" / "x.parquet")
    names = [file.name for file in open_dataset([*folders, tmp_path / "2024#2"]).files]
    assert names == ["2024/x.parquet", "2024#2//x.parquet", "2024#3//x.parquet", "2024#2/x.parquet"]
    both = open_dataset([folders[0] / "x.parquet", write(folders[0] / "y.parquet")])
    assert [file.name for file in both.files] == ["2024/x.parquet", "2024/y.parquet"]


@pytest.mark.parametrize("max_rows", [100, 4])
def test_keys_of_folders_are_columns(tmp_path, max_rows):
    places = ("year=2023/at=n%2Fw", "year=2024/at=s", "year=2024/at=__HIVE_DEFAULT_PARTITION__")
    for place in places:
        write(tmp_path / place / "day=2024-01-02" / "a.parquet")
    dataset = open_dataset(tmp_path, max_rows=max_rows)
    assert [(column.name, str(column.type)) for column in dataset.schema] == [
        ("x", "double"),
        ("year", "int64"),
        ("at", "string"),
    ]
    for columns in (["at", "x", "year"], ["year"]):
        tables = []
        of_columns = partial(read, columns=columns)
        for partition in dataset.partitions:
            pieces = dataset.reader.each_batch(partition, columns, of_columns)
            tables += [table for _, table in pieces]
        found = pa.concat_tables(tables).to_pydict()
        assert [*found] == columns
        assert found["year"] == [2023] * 10 + [2024] * 20
    assert dataset.reader.read(dataset.partitions[0], ["at"]).to_pydict() == {"at": ["n/w"] * 10}
    assert dataset.notes == (
        "Keys of folders are columns: year, at.",
        "Dates in the names of folders are no columns: day.",
    )
    alone = open_dataset(tmp_path / "year=2024" / "at=s", forms=dataset.forms)
    assert alone.schema.names == ["x"]
    write(tmp_path / "year=2024" / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet is in no folder at=…"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_delta_log/0.json", "Delta"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_folders_of_tables(tmp_path, name, kind):
    """Their files hold rows that are no longer in the table."""
    write(tmp_path / "table" / "part.parquet")
    (tmp_path / "table" / name).parent.mkdir()
    (tmp_path / "table" / name).write_text("{}")
    for path in (tmp_path, tmp_path / "table", tmp_path / "table" / "*.parquet"):
        with pytest.raises(DataError, match=f"/table is an? {kind} table: .* another folder"):
            open_dataset(path)
    assert open_dataset(tmp_path / "table" / "part.parquet").n_rows == 10


def test_files_of_another_format_are_named(tmp_path):
    write(tmp_path / "a.parquet")
    assert open_dataset(tmp_path).notes == ()
    for name in ("b.csv", "c.jsonl", "readme.txt"):
        (tmp_path / name).write_text("x\n1\n")
    (note,) = open_dataset(tmp_path).notes
    assert note.endswith("only these are read: b.csv and 1 more passed over.")


def test_keys_that_only_mark_folders(tmp_path, monkeypatch):
    """They end in a slash, or have two; consoles and Hadoop write them."""
    file = {"name": "/bucket/a", "size": 0, "type": "file"}
    names = ("/bucket/", "/bucket/2024/", "/bucket//a.parquet", "/bucket/2024/b.parquet")
    listed = {name: {**file, "name": name} for name in names}
    monkeypatch.setattr(RemotePath, "ask", lambda *own, **options: listed)
    found = storage._visible(files_below(RemotePath("memory://bucket")))
    assert [entry.name for entry in found] == ["/a.parquet", "2024/b.parquet"]


@pytest.mark.parametrize("scheme", ["", "memory:/"])
def test_a_file_under_two_names(tmp_path, scheme, monkeypatch):
    """Its rows would count twice; other files are not read for it."""
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", start=1)
    write(tmp_path / "empty.parquet", n_rows=0)
    shutil.copy(tmp_path / "empty.parquet", tmp_path / "none.parquet")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "_content_of", None)
        assert open_dataset(tmp_path).n_rows == 20
    shutil.copy(tmp_path / "b.parquet", tmp_path / "c.parquet")
    if scheme:
        fsspec.filesystem("memory").put(str(tmp_path), str(tmp_path), recursive=True)
    with pytest.raises(DataError, match=r"c\.parquet is a copy of .*b\.parquet, byte for byte"):
        open_dataset(f"{scheme}{tmp_path}")


def test_the_fingerprint_changes_with_the_time_of_a_file(tmp_path):
    file = write(tmp_path / "rows" / "part" / "a.parquet")
    before = open_dataset(tmp_path / "rows").fingerprint
    os.utime(file, ns=(1, 1))
    assert open_dataset(tmp_path / "rows").fingerprint != before


@pytest.mark.parametrize("n_columns", [2, 1500])
def test_the_fingerprint_tells_a_rewrite_of_the_same_size_and_time(tmp_path, n_columns):
    """Also where the footer is longer than what is read of a file's end at once."""
    path = tmp_path / "a.parquet"
    rng = np.random.default_rng(0)

    def rewritten(values):
        columns = {f"x{c}": values for c in range(n_columns)}
        pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
        os.utime(path, ns=(10**18, 10**18))
        file = open_dataset(path)
        return file.files[0].n_bytes, file.files[0].stamp, file.fingerprint

    values = rng.normal(size=50)
    first = rewritten(values)
    again = rewritten(values)
    other = rewritten(values + 1.0)
    assert first == again
    assert first[:2] == other[:2]
    assert first[2] != other[2]
    assert pq.read_table(path).num_columns == n_columns


def test_items_on_several_file_systems_are_refused(tmp_path):
    fsspec.filesystem("memory").pipe("/distfms-one/a.parquet", b"x")
    try:
        with pytest.raises(DataError, match="several file systems"):
            open_dataset([write(tmp_path / "a.parquet"), "memory://distfms-one/a.parquet"])
    finally:
        fsspec.filesystem("memory").rm("/distfms-one", recursive=True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.parquet", "no file or folder .*nothing"),
        ("nothing/*.parquet", "No file matches .*nothing"),
        ([], "list of data files is empty"),
        (["a.parquet", "."], "named twice in `data.path`: its"),
        ("linked", r"b/x\.parquet is named twice .*, also as .*/a/x\.parquet \(a symbolic link\)"),
        ("text", r"no data file in the folder .*data\.txt.* end in \.parquet, \.csv, "),
        ("empty", r"e\.parquet is empty \(0 bytes\)"),
        ("cut", r"cut\.parquet cannot be read as Parquet: it is truncated"),
        ("none", "no rows in the 2 files of"),
        ("none/0.parquet", r"no rows in .*0\.parquet"),
        ("twice", r"'x' occurs 2 times in .*twice\.parquet"),
    ],
)
def test_what_is_no_data(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    whole = write(tmp_path / "a.parquet").read_bytes()
    contents = {"text/data.txt": b"x\n1\n", "empty/e.parquet": b"", "cut/cut.parquet": whole[:-100]}
    for file, content in contents.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_bytes(content)
    for name in "01":
        write(tmp_path / "none" / f"{name}.parquet", n_rows=0)
    write(tmp_path / "linked/a/x.parquet")
    (tmp_path / "linked/b").symlink_to("a")
    (tmp_path / "twice").mkdir()
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    pq.write_table(twice, tmp_path / "twice" / "twice.parquet")
    with pytest.raises(DataError, match=message):
        open_dataset(path)


def test_damage_that_only_a_checksum_tells(tmp_path):
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "a.parquet", **options)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[2000] ^= 0x40
    (tmp_path / "a.parquet").write_bytes(content)
    dataset = open_dataset(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet: .*checksum"):
        dataset.reader.read(dataset.partitions[0], ["x"])


def test_times_of_96_bits(tmp_path):
    """They reach beyond those of 64 bits in nanoseconds."""
    days = pa.array(["3000-01-01", "1600-02-29", None]).cast(pa.timestamp("us"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"day": days}), path, use_deprecated_int96_timestamps=True)
    dataset = open_dataset(path)
    table = dataset.reader.read(dataset.partitions[0], ["day"])
    assert table.column("day").combine_chunks().equals(days)
    assert table.schema.equals(dataset.schema)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({}, r"b\.parquet lacks the column 'y'"),
        ({"y": np.zeros(10), "z": np.zeros(10)}, r"b\.parquet has the extra column 'z'"),
        ({"y": np.zeros(10, dtype="int32")}, r"b\.parquet has int32 in column 'y' instead of doub"),
    ],
)
def test_a_shard_with_another_schema(tmp_path, columns, difference):
    write(tmp_path / "a.parquet", y=np.zeros(10))
    write(tmp_path / "b.parquet", **columns)
    with pytest.raises(DataError, match=difference):
        open_dataset(tmp_path)


def test_columns_are_read_by_their_whole_names(tmp_path):
    write(tmp_path / "a.parquet", **{"x.y": np.ones(10), "z": np.zeros(10)})
    dataset = open_dataset(tmp_path)
    assert dataset.reader.read(dataset.partitions[0], ["x"]).column_names == ["x"]
    assert (
        dataset.reader.read(dataset.partitions[0], ["x.y"]).column("x.y").to_pylist() == [1.0] * 10
    )
    with pytest.raises(DataError, match="no column 'y'"):
        dataset.reader.read(dataset.partitions[0], ["x", "y"])


@pytest.mark.parametrize(("kept_time", "n_rows"), [(False, 10), (True, 10), (False, 5)])
def test_a_file_that_is_gone_or_replaced(tmp_path, kept_time, n_rows):
    """Also by one of the same shape and time."""
    file = write(tmp_path / "a.parquet", row_group_size=5)
    dataset = open_dataset(tmp_path)
    assert all_values(dataset) == [*range(10)]
    time = file.stat().st_mtime_ns
    write(file, start=1, n_rows=n_rows, row_group_size=5)
    if kept_time:
        os.utime(file, ns=(time, time))
    with pytest.raises(DataError, match=r"a\.parquet changed while the job was running"):
        dataset.reader.read(dataset.partitions[0], ["x"])
    file.unlink()
    with pytest.raises(DataError, match="was removed"):
        dataset.reader.read(dataset.partitions[0], ["x"])


def test_the_footer_of_a_file_is_parsed_once(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", n_rows=40, row_group_size=5)
    dataset = open_dataset(tmp_path, max_rows=5)
    parsed = []
    parse = footers._parse
    monkeypatch.setattr(footers, "_parse", lambda footer: parsed.append(footer) or parse(footer))
    assert all_values(dataset) == all_values(dataset) == [*range(40)]
    assert len(parsed) == 1


@pytest.mark.parametrize("max_rows", [20, 100])
def test_a_file_replaced_while_it_is_read_is_refused(tmp_path, monkeypatch, max_rows):
    """Between two batches of its rows, or two of its columns."""
    monkeypatch.setattr("distfms.data.files.partition._TABLE_BYTES", 1)
    file = write(tmp_path / "a.parquet", n_rows=100, y=np.arange(100.0))
    other = write(tmp_path / "b.parquet", n_rows=100, y=np.ones(100))
    dataset = open_dataset(file, max_rows=max_rows)
    (partition,), reader = dataset.partitions, dataset.reader
    pieces = reader.column_tables(partition, ["x", "y"])
    if partition.batch_rows:
        pieces = reader.each_batch(partition, ["x", "y"], read)
    next(pieces)
    other.replace(file)
    with pytest.raises(DataError, match=r"a\.parquet changed while the job was running"):
        list(pieces)


def test_trouble_with_the_store_is_left_to_the_retries():
    with pytest.raises(OSError, match="Connection reset"), readable("a.parquet"):
        raise OSError("Connection reset by peer")
    with pytest.raises(DataError, match=r"a\.parquet is not readable"), readable("a.parquet"):
        raise PermissionError


@pytest.mark.parametrize(
    ("values", "empty", "read"),
    [
        (["u", "v"], pa.nulls(2), pa.string()),
        (["u", "v"], pa.array([None, None], pa.float64()), pa.string()),
        ([True, None], pa.array([None, None], pa.float64()), pa.bool_()),
        ([1.5, 2.0], pa.array([None, None], pa.string()), pa.float64()),
        ([1, 2], pa.nulls(2), pa.int64()),
        ([1, 2], pa.array([None, None], pa.float64()), pa.float64()),
        ([datetime.date(2026, 1, 1), None], pa.array([None] * 2, pa.float64()), pa.date32()),
        ([[1.5], [2.5, 3.0]], pa.nulls(2), pa.list_(pa.float64())),
        ([[1.5], []], pa.array([[], None], pa.list_(pa.null())), pa.list_(pa.float64())),
    ],
)
@pytest.mark.parametrize("first", ["values", "empty"])
def test_a_column_without_a_value_in_a_file_has_the_type_of_others(
    tmp_path, values, empty, read, first
):
    columns = {"values": pa.array(values), "empty": empty}
    for number, name in enumerate(sorted(columns, key=lambda name: name != first)):
        write(tmp_path / f"{number}.parquet", n_rows=2, z=columns[name])
    dataset = open_dataset(tmp_path)
    assert dataset.schema.field("z").type == read
    table = pa.concat_tables(dataset.reader.read(p, ["z"]) for p in dataset.partitions)
    assert table.column("z").type == read
    kept = [value for value in table.column("z").to_pylist() if value]
    assert kept == [value for value in pa.array(values).to_pylist() if value]
