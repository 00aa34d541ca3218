import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distfms.data.dataset as dataset_module
from distfms.data.dataset import open_dataset
from distfms.data.folds import assign_parts
from distfms.data.footers import readable
from distfms.errors import DataError, SpecError


def write(path, n_rows=10, row_group_size=None, start=0, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"x": np.arange(start, start + n_rows, dtype=float), **columns}
    pq.write_table(pa.table(values), path, row_group_size=row_group_size)
    return path


def layout(dataset):
    return [(p.name, p.row_groups, p.n_rows, p.row_offset) for p in dataset.partitions]


def all_values(dataset):
    tables = [dataset.read(p, ["x"]) for p in dataset.partitions]
    return np.concatenate([t.column("x").to_numpy() for t in tables]).tolist()


def test_row_groups_are_packed_up_to_the_row_limit(tmp_path):
    write(tmp_path / "rows" / "a.parquet", n_rows=25, row_group_size=10)
    write(tmp_path / "rows" / "b.parquet", n_rows=7, row_group_size=3, start=25)
    dataset = open_dataset(tmp_path / "rows", max_rows=20)
    assert layout(dataset) == [
        ("rows/a.parquet", (0, 1), 20, 0),
        ("rows/a.parquet", (2,), 5, 20),
        ("rows/b.parquet", (0, 1, 2), 7, 25),
    ]
    assert [p.index for p in dataset.partitions] == [0, 1, 2]
    assert [p.file_row_offset for p in dataset.partitions] == [0, 20, 0]
    assert dataset.n_rows == 32
    assert all_values(dataset) == list(range(32))


def test_row_groups_are_packed_up_to_the_byte_limit(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=40, row_group_size=10)
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(g).total_byte_size for g in range(4)]
    dataset = open_dataset(file, max_bytes=sizes[0] + sizes[1])
    assert [p.row_groups for p in dataset.partitions] == [(0, 1), (2, 3)]
    assert [p.n_bytes for p in dataset.partitions] == [sum(sizes[:2]), sum(sizes[2:])]
    assert dataset.n_bytes == sum(sizes)


def test_a_row_group_beyond_the_limits_is_one_partition(tmp_path):
    write(tmp_path / "a.parquet", n_rows=25, row_group_size=10)
    dataset = open_dataset(tmp_path, max_rows=4, max_bytes=1)
    assert [p.n_rows for p in dataset.partitions] == [10, 10, 5]


def test_a_large_row_group_is_read_in_batches_of_rows(tmp_path):
    write(tmp_path / "b.parquet", n_rows=95, start=3, y=np.arange(95))
    write(tmp_path / "a.parquet", n_rows=3, y=np.arange(3))
    dataset = open_dataset(tmp_path, max_rows=20)
    small, large = dataset.partitions
    assert (small.batch_rows, large.batch_rows) == (0, 20)
    found = list(dataset.reader.batches(large, ["y", "x"]))
    assert [piece.n_rows for _, piece in found] == [20, 20, 20, 20, 15]
    assert [piece.file_row_offset for _, piece in found] == [0, 20, 40, 60, 80]
    assert [piece.row_offset for _, piece in found] == [3, 23, 43, 63, 83]
    tables = [reader.read(piece, ["x", "y"]) for reader, piece in found]
    assert pa.concat_tables(tables).equals(dataset.read(large, ["x", "y"]))
    reader, piece = found[2]
    assert reader.locate_row(piece, 7) == "row group 0, first at its row 47"
    with pytest.raises(DataError, match="no column 'z'"):
        list(dataset.reader.batches(large, ["x", "z"]))
    assert open_dataset(tmp_path, max_rows=19).partitions[1].fingerprint != large.fingerprint


def test_sizes_are_those_of_decoded_values(tmp_path):
    codes = {"y": np.zeros(10_000), "l": [[1.0, 1.0, 1.0]] * 10_000}
    write(tmp_path / "a.parquet", n_rows=10_000, x=np.zeros(10_000), **codes)
    (partition,) = open_dataset(tmp_path).partitions
    assert partition.n_bytes == 8 * 10_000 * (2 + 3)
    assert partition.held_bytes == 2 * partition.n_bytes


def test_a_file_replaced_between_two_batches_of_its_rows_is_refused(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=100)
    dataset = open_dataset(tmp_path, max_rows=20)
    batches = dataset.reader.batches(dataset.partitions[0], ["x"])
    next(batches)
    write(file, n_rows=100, start=5)
    with pytest.raises(DataError, match="changed after the job had listed it"):
        list(batches)


def test_a_folder_is_searched_in_name_order_without_hidden_names(tmp_path):
    for name in ("b/2.parquet", "b/10.parquet", "a.parquet", "_tmp/x.parquet", ".y.parquet"):
        write(tmp_path / "d" / name)
    write(tmp_path / "d" / "_metadata.parquet")
    (tmp_path / "d" / "notes.txt").write_text("no Parquet")
    names = [file.name for file in open_dataset(tmp_path / "d").files]
    assert names == ["d/a.parquet", "d/b/10.parquet", "d/b/2.parquet"]


def test_a_glob_gives_files_in_name_order(tmp_path):
    for name in ("z/2.pq", "z/1.pq", "y/1.pq", "1.pq"):
        write(tmp_path / "d" / name)
    names = [f.name for f in open_dataset(tmp_path / "d" / "z" / "*.pq").files]
    assert names == ["z/1.pq", "z/2.pq"]
    recursive = open_dataset(f"{tmp_path}/d/**/1.pq")
    assert [f.name for f in recursive.files] == ["d/1.pq", "d/y/1.pq", "d/z/1.pq"]


def test_a_list_keeps_its_order(tmp_path):
    first, second = write(tmp_path / "d/b.parquet"), write(tmp_path / "d/a.parquet", start=10)
    dataset = open_dataset([first, str(second)])
    assert all_values(dataset) == list(range(20))
    assert [f.name for f in dataset.files] == ["d/b.parquet", "d/a.parquet"]


def test_rows_keep_fingerprint_and_fold_however_their_folder_is_listed(tmp_path):
    file = write(tmp_path / "2024" / "a.parquet", n_rows=500)
    write(tmp_path / "2025" / "a.parquet", n_rows=500)

    def first(path):
        partition = open_dataset(path).partitions[0]
        parts = assign_parts(None, partition=partition, n_folds=5, test=0.2, seed=3)
        return partition.name, partition.fingerprint, parts.tolist()

    alone = first(file.parent)
    assert alone[0] == "2024/a.parquet"
    assert first([file.parent, tmp_path / "2025"]) == alone
    assert first([file.parent, tmp_path / "2025" / "*.parquet"]) == alone
    assert first(file) == first(tmp_path / "2024" / "*.parquet") == alone
    assert first(tmp_path / "2025" / ".." / "2024") == alone


def test_listed_folders_of_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / parent / "2024" for parent in ("b", "a", "c")]
    for folder in folders:
        write(folder / "x.parquet")
    write(tmp_path / "2024#2" / "x.parquet")
    names = [file.name for file in open_dataset([*folders, tmp_path / "2024#2"]).files]
    assert names == ["2024/x.parquet", "2024#2//x.parquet", "2024#3//x.parquet", "2024#2/x.parquet"]
    both = open_dataset([folders[0] / "x.parquet", write(folders[0] / "y.parquet")])
    assert [file.name for file in both.files] == ["2024/x.parquet", "2024/y.parquet"]


def test_a_path_with_glob_characters_that_exists_is_taken_literally(tmp_path):
    file = write(tmp_path / "run[1]" / "a.parquet")
    assert open_dataset(file.parent).n_rows == 10


def test_empty_shards_beside_others_give_no_partition(tmp_path):
    write(tmp_path / "d" / "a.parquet", n_rows=0)
    write(tmp_path / "d" / "b.parquet", n_rows=5)
    dataset = open_dataset(tmp_path / "d")
    assert layout(dataset) == [("d/b.parquet", (0,), 5, 0)]


def test_the_fingerprint_survives_moving_the_folder(tmp_path):
    file = write(tmp_path / "here" / "rows" / "part" / "a.parquet")
    before = open_dataset(tmp_path / "here" / "rows").fingerprint
    os.rename(tmp_path / "here", tmp_path / "there")
    assert open_dataset(tmp_path / "there" / "rows").fingerprint == before
    os.utime(tmp_path / "there" / "rows" / "part" / file.name, ns=(1, 1))
    assert open_dataset(tmp_path / "there" / "rows").fingerprint != before


@pytest.mark.parametrize("n_columns", [2, 1500])
def test_the_fingerprint_tells_a_rewrite_of_the_same_size_and_time(tmp_path, n_columns):
    """Also where the footer is longer than what is read of a file's end at once."""
    path, rng = tmp_path / "a.parquet", np.random.default_rng(0)

    def rewritten(values):
        columns = {f"x{c}": values for c in range(n_columns)}
        pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
        os.utime(path, ns=(10**18, 10**18))
        file = open_dataset(path)
        return file.files[0].n_bytes, file.files[0].stamp, file.fingerprint

    values = rng.normal(size=50)
    first, again = rewritten(values), rewritten(values)
    other = rewritten(values + 1.0)
    assert first == again
    assert first[:2] == other[:2]
    assert first[2] != other[2]
    assert pq.read_table(path).num_columns == n_columns


def test_appending_a_file_keeps_earlier_fingerprints(tmp_path):
    write(tmp_path / "a.parquet", n_rows=20, row_group_size=10)
    before = [p.fingerprint for p in open_dataset(tmp_path, max_rows=10).partitions]
    assert len(set(before)) == 2
    write(tmp_path / "b.parquet")
    after = open_dataset(tmp_path, max_rows=10)
    assert [p.fingerprint for p in after.partitions][:2] == before
    assert len({p.fingerprint for p in after.partitions}) == 3


def test_the_fingerprint_depends_on_the_schema(tmp_path):
    prints = []
    for dtype in ("float64", "int64"):
        file = tmp_path / "a.parquet"
        # Constant bytes and time stamp, so that the schema alone differs.
        pq.write_table(pa.table({"x": np.zeros(4, dtype=dtype)}), file)
        with file.open("ab"):
            os.utime(file, ns=(7, 7))
        dataset = open_dataset(file)
        prints.append((dataset.files[0].n_bytes, dataset.partitions[0].fingerprint))
    assert prints[0][1] != prints[1][1]


def read_sum(reader, partition):
    return reader.read(partition, ["x"]).column("x").to_numpy().sum()


def test_a_reader_travels_to_another_process(tmp_path):
    write(tmp_path / "a.parquet", n_rows=4)
    dataset = pickle.loads(pickle.dumps(open_dataset(tmp_path)))
    assert len(pickle.dumps(dataset.reader)) < 1000
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(read_sum, dataset.reader, dataset.partitions[0]).result() == 6.0


def test_an_fsspec_url_is_read(tmp_path):
    memory = fsspec.filesystem("memory")
    for name in ("deep/b", "a", "_c"):
        local = write(tmp_path / f"{len(name)}.parquet")
        memory.pipe(f"/distfms-test/{name}.parquet", local.read_bytes())
    try:
        folder = open_dataset("memory://distfms-test")
        assert [f.name for f in folder.files] == [
            "distfms-test/a.parquet",
            "distfms-test/deep/b.parquet",
        ]
        assert folder.files[0].stamp
        assert all_values(folder) == [*range(10), *range(10)]
        matched = open_dataset("memory://distfms-test/*/*.parquet")
        assert [f.name for f in matched.files] == ["distfms-test/deep/b.parquet"]
        again = pickle.loads(pickle.dumps(folder))
        assert all_values(again) == all_values(folder)
        with pytest.raises(DataError, match="no file or folder memory://distfms-test/none"):
            open_dataset("memory://distfms-test/none")
    finally:
        memory.rm("/distfms-test", recursive=True)


def test_a_file_url_is_a_local_path(tmp_path):
    write(tmp_path / "a.parquet")
    by_url = open_dataset(f"file://{tmp_path}")
    assert by_url.fingerprint == open_dataset(tmp_path).fingerprint


def test_items_on_several_file_systems_are_refused(tmp_path):
    fsspec.filesystem("memory").pipe("/distfms-one/a.parquet", b"x")
    try:
        with pytest.raises(DataError, match="several file systems"):
            open_dataset([write(tmp_path / "a.parquet"), "memory://distfms-one/a.parquet"])
    finally:
        fsspec.filesystem("memory").rm("/distfms-one", recursive=True)


def test_a_url_without_client_says_so():
    with pytest.raises(SpecError, match=r"no storage of the kind nosuch://"):
        open_dataset("nosuch://bucket/data")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.parquet", "no file or folder .*nothing"),
        ("nothing/*.parquet", "No file matches .*nothing"),
        ([], "list of data files is empty"),
        (["a.parquet", "."], "named twice"),
        ("text", r"no Parquet file in the folder .*data\.txt"),
        ("empty", r"e\.parquet is empty \(0 bytes\)"),
    ],
)
def test_what_is_no_data(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.parquet")
    for file, text in {"text/data.txt": "x\n1\n", "empty/e.parquet": ""}.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    with pytest.raises(DataError, match=message):
        open_dataset(path)


@pytest.mark.parametrize("path", [".", "a.csv", "*.csv"])
def test_csv_says_how_to_convert_it(tmp_path, path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match=r"a\.csv is CSV.*read_csv\('.*a\.csv'\).*`data\.long`"):
        open_dataset(tmp_path / path)


def test_a_truncated_file(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=1000)
    write(tmp_path / "b.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet: it is truncated"):
        open_dataset(tmp_path)


def test_damaged_pages_are_found_on_reading(tmp_path):
    file = tmp_path / "a.parquet"
    table = pa.table({"x": np.random.default_rng(0).standard_normal(1000)})
    pq.write_table(table, file, compression="zstd", use_dictionary=False)
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(bytes(content))
    dataset = open_dataset(file)
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as Parquet"):
        dataset.read(dataset.partitions[0], ["x"])


@pytest.mark.parametrize(
    ("names", "message"), [(["a"], r"no rows in .*a\.parquet"), (["a", "b"], "in the 2 files of")]
)
def test_a_dataset_without_rows(tmp_path, names, message):
    for name in names:
        write(tmp_path / f"{name}.parquet", n_rows=0)
    with pytest.raises(DataError, match=message):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ({}, r"b\.parquet lacks the column 'y'"),
        ({"y": np.zeros(10), "z": np.zeros(10)}, r"b\.parquet has a further column 'z'"),
        ({"y": np.zeros(10, dtype="int32")}, r"b\.parquet has int32 in column 'y' instead of doub"),
    ],
)
def test_a_shard_with_another_schema(tmp_path, columns, difference):
    write(tmp_path / "a.parquet", y=np.zeros(10))
    write(tmp_path / "b.parquet", **columns)
    with pytest.raises(DataError, match=difference):
        open_dataset(tmp_path)


def test_storage_of_strings_and_order_of_columns_may_differ(tmp_path):
    texts = pa.array(["u", "v"])
    pq.write_table(pa.table({"x": [1.0, 2.0], "s": texts}), tmp_path / "a.parquet")
    other = pa.table({"s": texts.dictionary_encode(), "x": [3.0, 4.0]})
    pq.write_table(other, tmp_path / "b.parquet")
    dataset = open_dataset(tmp_path)
    assert all_values(dataset) == [1.0, 2.0, 3.0, 4.0]
    assert dataset.read(dataset.partitions[1], ["x", "s"]).column_names == ["x", "s"]


def test_a_duplicate_column(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"'x' occurs 2 times in .*a\.parquet"):
        open_dataset(tmp_path)


def test_a_column_that_is_not_there(tmp_path):
    dataset = open_dataset(write(tmp_path / "a.parquet"))
    with pytest.raises(DataError, match="no column 'y'"):
        dataset.read(dataset.partitions[0], ["x", "y"])


def test_a_column_with_dots_is_read_by_its_whole_name(tmp_path):
    write(tmp_path / "a.parquet", **{"x.y": np.ones(10), "z": np.zeros(10)})
    dataset = open_dataset(tmp_path)
    table = dataset.read(dataset.partitions[0], ["x"])
    assert table.column_names == ["x"]
    assert dataset.read(dataset.partitions[0], ["x.y"]).column("x.y").to_pylist() == [1.0] * 10


def test_a_file_that_is_gone_or_changed(tmp_path):
    file = write(tmp_path / "a.parquet", n_rows=20, row_group_size=10)
    dataset = open_dataset(tmp_path)
    write(file, n_rows=5)
    with pytest.raises(DataError, match="changed after the job had listed it"):
        dataset.read(dataset.partitions[0], ["x"])
    file.unlink()
    with pytest.raises(DataError, match="is gone"):
        dataset.read(dataset.partitions[0], ["x"])


@pytest.mark.parametrize("kept_time", [False, True])
def test_a_file_of_the_same_shape_put_in_place_of_another_is_refused(tmp_path, kept_time):
    file = write(tmp_path / "a.parquet")
    dataset = open_dataset(file)
    time = file.stat().st_mtime_ns
    write(file, start=1)
    if kept_time:
        os.utime(file, ns=(time, time))
    with pytest.raises(DataError, match=r"a\.parquet changed after the job had listed it"):
        dataset.read(dataset.partitions[0], ["x"])


def test_a_file_replaced_between_two_of_its_columns_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "_TABLE_BYTES", 1)
    file = write(tmp_path / "a.parquet", y=np.arange(10.0))
    other = write(tmp_path / "b.parquet", y=np.ones(10))
    dataset = open_dataset(file)
    tables = dataset.reader.column_tables(dataset.partitions[0], ["x", "y"])
    assert next(tables).column_names == ["x"]
    other.replace(file)
    with pytest.raises(DataError, match=r"a\.parquet changed after the job had listed it"):
        next(tables)


def test_trouble_with_the_store_is_left_to_the_retries():
    with pytest.raises(OSError, match="Connection reset"), readable("a.parquet"):
        raise OSError("Connection reset by peer")
    with pytest.raises(DataError, match=r"a\.parquet may not be read"), readable("a.parquet"):
        raise PermissionError


@pytest.mark.parametrize("limits", [{"max_rows": 0}, {"max_bytes": -1}])
def test_limits_below_one(tmp_path, limits):
    with pytest.raises(SpecError, match="holds nothing"):
        open_dataset(write(tmp_path / "a.parquet"), **limits)


def test_importing_the_package_does_not_load_pyarrow():
    code = (
        "import sys, distfms.data.batches, distfms.data.judgments, distfms.data.dataset; "
        "sys.exit('pyarrow' in sys.modules or 'fsspec' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_numbers_needs_no_pandas(tmp_path):
    columns = {
        "i": np.arange(9),
        "y": np.ones(9),
        "c": ["u", None, "v"] * 3,
        "l": [[1.0, None]] * 9,
    }
    write(tmp_path / "a.parquet", n_rows=9, **columns)
    code = f"""
import sys
from distfms.data.batches import ColumnPlan, read_rows
from distfms.data.categories import scan_categories
from distfms.data.dataset import open_dataset
from distfms.data.folds import FoldPlan
from distfms.data.judgments import detect_layout, read_judgments
from distfms.data.roles import resolve_roles
data = open_dataset({str(tmp_path)!r})
for id in (None, "i"):
    roles = resolve_roles(data.schema, target="y", exclude="l", id=id)
    levels = scan_categories(data.partitions[0], data, ["c"])
    plan = ColumnPlan.from_schema(data.schema, roles, levels)
    read_rows(data, data.partitions[0], plan, folds=FoldPlan(2, 0.2), missing="mean")
    roles = resolve_roles(data.schema, target="y", features=["x", "l"], judgments=True, id=id)
    layout = detect_layout(data.schema, roles)
    read_judgments(data, data.partitions[0], layout, roles, folds=FoldPlan(2, 0.2))
sys.exit(", ".join({{"pandas", "sklearn", "scipy.stats"}} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
