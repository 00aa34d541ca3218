import threading
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows import batches
from distfms.data.rows.batches import (
    Categories,
    ColumnPlan,
    read_rows,
    require_observed,
    scan_categories,
)
from distfms.data.rows.folds import FoldPlan, mix, row_hashes, with_seed
from distfms.data.rows.roles import resolve_roles
from distfms.errors import DataError

LEVELS = {"c": ("u", "v")}


def open_table(tmp_path, columns, row_group_size=None, name="a.parquet"):
    table = pa.table(columns)
    pq.write_table(table, tmp_path / name, row_group_size=row_group_size)
    return open_dataset(tmp_path / name)


def read(dataset, *, folds=None, missing="error", levels=(), unknown="error", share=1.0, **roles):
    resolved = resolve_roles(dataset.schema, **{"target": "y", **roles})
    plan = ColumnPlan.of(resolved, dict(levels), unknown=unknown)
    options = {"folds": folds, "missing": missing, "share": share}
    return read_rows(dataset.reader, dataset.partitions[0], plan, **options)


@pytest.mark.parametrize("row_group_size", [None, 2])
@pytest.mark.parametrize("folds", [FoldPlan(2, 0.3), FoldPlan()])
def test_rows_of_weight_0_are_left_out_whatever_their_values(tmp_path, folds, row_group_size):
    n = 60
    columns = {
        "x": np.arange(n, dtype=float),
        "c": np.array(["u", "v"] * (n // 2), dtype=object),
        "y": np.arange(n, dtype=float),
        "w": np.ones(n),
        "key": np.arange(n),
    }
    options = {"folds": folds, "levels": LEVELS, "id": "key"}
    expected = read(open_table(tmp_path, columns), **options, weight="w").copy()
    for row, wild in ((3, np.inf), (50, np.nan)):
        columns["x"][row] = wild
        columns["w"][row] = 0.0
        columns["c"][row] = "only here"
    dataset = open_table(tmp_path, columns, row_group_size)
    batch = read(dataset, **options, weight="w")
    kept = ~np.isin(expected.row_ids, [3, 50])
    assert batch.values.tolist() == expected.values[:, kept].tolist()
    assert batch.row_ids.tolist() == batch.rows.id.tolist() == expected.row_ids[kept].tolist()
    assert sum(batch.rows.n_weightless) == 2
    (partition,) = dataset.partitions
    found = scan_categories(partition, dataset.reader, ["c"], weight="w")
    assert found.levels == {"c": ("u", "v")}
    with pytest.raises(DataError, match="holds 'only here', which is not among"):
        read(dataset, **options)
    nothing = open_table(tmp_path, {**columns, "w": np.zeros(n)})
    assert read(nothing, **options, weight="w").n_rows == 0


@pytest.mark.parametrize("row_group_size", [None, 25])  # one chunk a column, or several
@pytest.mark.parametrize("folds", [FoldPlan(3, 0.2, seed=4), FoldPlan()])
def test_of_a_share_the_least_hashes_are_read_and_all_held_out_rows(
    tmp_path, row_group_size, folds
):
    columns = {
        "x": np.arange(200.0) / 3,
        "c": ["v", "u"] * 100,
        "i": np.arange(200),
        "key": range(200),
    }
    columns |= {"f": np.linspace(0, 1, 200, dtype=np.float32), "y": -np.arange(200.0)}
    dataset = open_table(tmp_path, {**columns, "w": np.arange(200) / 7}, row_group_size)
    options = {"folds": folds, "levels": LEVELS, "weight": "w", "id": "key"}
    full = read(dataset, **options).copy()
    some = read(dataset, share=0.3, **options)
    hashes = mix(row_hashes(dataset.partitions[0]))[full.row_ids]
    kept = with_seed(hashes, folds.seed) < np.uint64(0.3 * 2**64)
    assert 30 < kept.sum() < 90
    kept |= full.rows.part == folds.test_part
    np.testing.assert_array_equal(some.values, full.values[:, kept])
    np.testing.assert_allclose(some.part_sums.sum(axis=0), some.values.sum(axis=1))
    assert some.row_ids.tolist() == full.row_ids[kept].tolist()
    assert some.rows.part.tolist() == full.rows.part[kept].tolist()
    assert some.weight.tolist() == full.weight[kept].tolist()
    assert some.rows.id.tolist() == full.rows.id[kept].tolist()
    assert read(dataset, share=1e-9, folds=FoldPlan(), levels=LEVELS).n_rows == 0


def test_several_targets_query_and_time(tmp_path):
    columns = {"x": [1.0, 2.0], "y": [3.0, 4.0], "z": [5.0, 6.0], "q": ["m", "n"], "t": [8, 9]}
    batch = read(open_table(tmp_path, columns), target=["z", "y"], query="q", time="t")
    assert batch.target.tolist() == [[5, 6], [3, 4]]
    assert batch.rows.query.tolist() == ["m", "n"]


def test_the_buffer_is_reused_in_a_thread_and_a_copy_is_kept(tmp_path):
    large = open_table(tmp_path, {"x": np.ones(50), "y": np.ones(50)}, name="large.parquet")
    small = open_table(tmp_path, {"x": [2.0], "y": [2.0]}, name="small.parquet")
    first = read(large)
    kept = first.copy()
    address = first.values.ctypes.data
    second = read(small)
    assert second.values.ctypes.data == address
    assert kept.values.min() == 1.0
    assert first.values.max() == 2.0  # overwritten, as documented
    others = []
    thread = threading.Thread(target=lambda: others.append(read(small).values.ctypes.data))
    thread.start()
    thread.join()
    assert others[0] != address
    assert second.values.tolist() == [[2.0], [2.0]]


def test_some_columns_of_a_batch(tmp_path):
    columns = {name: np.arange(4.0) + 10 * k for k, name in enumerate("abcy")}
    columns["b"][2] = np.nan
    for missing in ("mean", "drop"):
        dataset = open_table(tmp_path, columns)
        batch = read(dataset, target="y", missing=missing, folds=FoldPlan(2, 0.0, 0))
        some = batch.restricted([2, 0, 3], 2)
        assert some.names == ("c", "a", "y")
        np.testing.assert_array_equal(some.features, batch.values[[2, 0]])
        np.testing.assert_array_equal(some.target, batch.target)
        assert some.rows is batch.rows
        assert not np.shares_memory(some.values, batch.values)
        if missing == "mean":
            np.testing.assert_array_equal(some.part_sums, batch.part_sums[:, [2, 0, 3]])
        else:
            assert some.part_sums is None
            assert some.dropped == batch.dropped


def missing_table(tmp_path):
    x = [float(i) for i in range(10)]
    x[4] = None
    x[7] = float("nan")
    columns = {"x": x, "c": ["u"] * 9 + [None], "y": np.arange(10.0), "w": np.arange(10.0)}
    return open_table(tmp_path, columns, row_group_size=3)


@pytest.mark.parametrize("folds", [None, FoldPlan(3, 0.2, 1)])
def test_missing_values_are_refused_with_column_file_row_group_and_count(tmp_path, folds):
    dataset = missing_table(tmp_path)
    message = r"'x' of .*a\.parquet has 2 missing values \(row group 1, first at its row 1\)"
    with pytest.raises(DataError, match=message):
        read(dataset, levels=LEVELS, folds=folds)
    message = r"'c' of .*a\.parquet has 1 missing value \(row group 3, first at its row 0\)"
    with pytest.raises(DataError, match=message):
        read(dataset, levels=LEVELS, folds=folds, exclude="x")


@pytest.mark.parametrize("folds", [None, FoldPlan(3, 0.2)])
def test_values_whose_squares_overflow_are_refused_by_name(tmp_path, folds):
    dataset = open_table(tmp_path, {"x": [1e149, -1e140], "y": [1.0, 2.0]})
    assert sorted(read(dataset, folds=folds).features[0]) == [-1e140, 1e149]
    dataset = open_table(tmp_path, {"x": [1.0, 1e200, np.nan], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=r"'x' of .*a.parquet has 1 too large value \(row group 0"):
        read(dataset, folds=folds, missing="mean")


@pytest.mark.parametrize(
    ("weight", "what"),
    [(-2.0, "negative"), (float("nan"), "missing"), (None, "missing"), (float("inf"), "infinite")],
)
def test_bad_weights(tmp_path, weight, what):
    dataset = open_table(tmp_path, {"x": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, weight]})
    message = rf"'w' of .*a\.parquet has 1 {what} value \(row group 0, first at its row 1"
    with pytest.raises(DataError, match=message):
        read(dataset, weight="w", missing="drop")


def test_a_missing_fold_key_names_file_and_column(tmp_path):
    dataset = open_table(tmp_path, {"x": [1.0, 2.0], "y": [1.0, 2.0], "k": ["a", None]})
    with pytest.raises(DataError, match=r"a\.parquet, column 'k': .*missing values"):
        read(dataset, id="k", folds=FoldPlan(2))
    assert read(dataset, id="k").rows.id.tolist() == ["a", None]


def test_columns_without_a_value():
    require_observed(["a", "b"], np.array([1, 2]))
    with pytest.raises(DataError, match="All values of 'a', 'c' are missing in every file"):
        require_observed(["a", "b", "c"], np.array([0, 2, 0]))
    with pytest.raises(DataError, match="'3', '4' and 3 more"):
        require_observed([str(i) for i in range(8)], np.zeros(8))


# --- levels of categories -------------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path):
    shards = [
        {"s": ["b", None, "a"], "d": pa.array(["3", "1", "3"]).dictionary_encode(), "x": [1.0] * 3},
        {"s": ["é", "b", ""], "d": pa.array(["10", None, "1"]).dictionary_encode(), "x": [1.0] * 3},
    ]
    for i, columns in enumerate(shards):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    return open_dataset(tmp_path)


def discover(dataset, columns):
    scanned = (scan_categories(p, dataset.reader, columns) for p in dataset.partitions)
    return reduce(Categories.merge, scanned)


def test_levels_are_the_sorted_union_of_all_partitions(dataset):
    found = discover(dataset, ["d", "s"])
    assert found.levels == {"d": ("1", "10", "3"), "s": ("", "a", "b", "é")}


def test_unused_dictionary_entries_are_no_levels(tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["used", "unused"]))
    assert discover(open_table(tmp_path, {"s": column}), ["s"]).levels == {"s": ("used",)}


def test_too_many_levels(dataset, monkeypatch):
    # Each shard has at most 3 levels, the union has 4.
    message = "'s' has more than 3 levels: .*`exclude: \\[s\\]`"
    for most in (3, 1):
        monkeypatch.setattr(batches, "MAX_LEVELS", most)
        with pytest.raises(DataError, match=message.replace("3", str(most))):
            discover(dataset, ["s"])
