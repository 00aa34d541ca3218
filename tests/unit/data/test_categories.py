from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.batches import Categories, scan_categories
from distfms.data.dataset import open_dataset
from distfms.errors import DataError


@pytest.fixture
def dataset(tmp_path):
    shards = [
        {"s": ["b", None, "a"], "d": pa.array(["3", "1", "3"]).dictionary_encode(), "x": [1.0] * 3},
        {"s": ["é", "b", ""], "d": pa.array(["10", None, "1"]).dictionary_encode(), "x": [1.0] * 3},
    ]
    for i, columns in enumerate(shards):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    return open_dataset(tmp_path)


def discover(dataset, columns, max_levels=10):
    scanned = (scan_categories(p, dataset.reader, columns, max_levels) for p in dataset.partitions)
    return reduce(Categories.merge, scanned)


def test_levels_are_the_sorted_union_of_all_partitions(dataset):
    found = discover(dataset, ["d", "s"])
    assert found.levels == {"d": ("1", "10", "3"), "s": ("", "a", "b", "é")}


def test_levels_go_through_arrays():
    categories = Categories({"a": ("", "x\0", "é"), "b: c": ("1",), "none": ()}, 7)
    arrays = categories.to_arrays()
    assert all(array.dtype != object for array in arrays.values())
    assert Categories.from_arrays(arrays) == categories


def test_unused_dictionary_entries_are_no_levels(tmp_path):
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["used", "unused"]))
    pq.write_table(pa.table({"s": column}), tmp_path / "a.parquet")
    assert discover(open_dataset(tmp_path), ["s"]).levels == {"s": ("used",)}


def test_too_many_levels(dataset):
    # Each shard has at most 3 levels, the union has 4.
    message = "'s' has more than 3 levels: .*`exclude: \\[s\\]`"
    with pytest.raises(DataError, match=message):
        discover(dataset, ["s"], max_levels=3)
    with pytest.raises(DataError, match=message.replace("3", "1")):
        discover(dataset, ["s"], max_levels=1)
