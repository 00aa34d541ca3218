import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.dataset import open_dataset
from distfms.data.folds import FoldPlan, assign_parts
from distfms.data.judgments import (
    detect_layout,
    lists_as_ragged,
    read_judgments,
)
from distfms.data.roles import resolve_roles
from distfms.errors import DataError, SpecError

NAN = float("nan")


def open_table(tmp_path, columns, row_group_size=None):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=row_group_size)
    return open_dataset(tmp_path / "a.parquet")


def layout_of(schema, **roles):
    resolved = resolve_roles(schema, **{"target": "y", "judgments": True, **roles})
    return detect_layout(schema, resolved), resolved


def read(dataset, *, folds=None, missing="error", **roles):
    layout, resolved = layout_of(dataset.schema, **roles)
    return read_judgments(
        dataset.reader, dataset.partitions[0], layout, resolved, folds=folds, missing=missing
    )


def as_lists(ragged):
    bounds = zip(ragged.offsets[:-1], ragged.offsets[1:], strict=True)
    return [ragged.values[lo:hi].tolist() for lo, hi in bounds]


def test_the_layout_is_found_from_the_schema():
    schema = pa.schema(
        {
            "age__2": pa.float64(),
            "trust": pa.list_(pa.float64()),
            "age__10": pa.int8(),
            "size": pa.float64(),
            "age__1": pa.float64(),
            "long__name__1": pa.float64(),
            "y": pa.float64(),
        }
    )
    layout, _ = layout_of(schema)
    assert [(a.name, a.columns, a.form) for a in layout.attributes] == [
        ("age", ("age__1", "age__2", "age__10"), "numbers"),
        ("trust", ("trust",), "list"),
        ("size", ("size",), "numbers"),
        ("long__name", ("long__name__1",), "numbers"),
    ]
    assert layout.columns[:4] == ("age__1", "age__2", "age__10", "trust")
    assert layout.restricted(["size", "age"]).names == ("size", "age")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": pa.list_(pa.int8()), "a__1": pa.int8()}, "'a' has judgments in two forms"),
        ({"a": pa.int8(), "a__1": pa.int8()}, "'a' has judgments in two forms"),
        ({"a__1": pa.int8(), "a__01": pa.int8()}, "'a__1' and 'a__01' are the same judgment"),
    ],
)
def test_two_forms_of_one_attribute(columns, message):
    with pytest.raises(SpecError, match=message):
        layout_of(pa.schema({**columns, "y": pa.float64()}))


@pytest.mark.parametrize(
    "dtype",
    [
        pa.list_(pa.float64()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float32()),
        pa.list_(pa.int16()),
        pa.list_(pa.float64(), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("row_group_size", [None, 2])
def test_lists_of_every_type(tmp_path, dtype, row_group_size):
    lists = [[1, 2], None, [None, None], [4, None], [None, 5]]
    columns = {"a": pa.array(lists, dtype), "y": np.arange(5.0)}
    batch = read(open_table(tmp_path, columns, row_group_size))
    assert as_lists(batch.attributes[0]) == [[1, 2], [], [], [4], [5]]
    assert batch.attributes[0].values.dtype == np.float64
    assert batch.attributes[0].offsets.dtype == np.int64
    assert (batch.names, batch.label.tolist()) == (("a",), [0, 1, 2, 3, 4])


def test_values_hidden_under_null_lists_are_no_judgments():
    offsets, values = pa.array([0, 2, 4, 5], pa.int32()), pa.array([1.0, 2.0, 8.0, 9.0, 3.0])
    hidden = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    assert as_lists(lists_as_ragged(pa.chunked_array([hidden]))) == [[1, 2], [], [3]]


def test_sliced_and_chunked_lists():
    array = pa.array([[9.0], [1.0, 2.0], [], [3.0], [9.0]])
    sliced = lists_as_ragged(pa.chunked_array([array[1:4]]))
    assert as_lists(sliced) == [[1, 2], [], [3]]
    assert sliced.offsets[0] == 0
    chunked = pa.chunked_array([array[1:2], array[2:2], array[2:4]])
    assert as_lists(lists_as_ragged(chunked)) == [[1, 2], [], [3]]
    assert as_lists(lists_as_ragged(pa.chunked_array([], array.type))) == []


def test_values_are_shared_with_arrow():
    array = pa.array([[1.0, 2.0], [3.0]])
    ragged = lists_as_ragged(pa.chunked_array([array]))
    assert np.shares_memory(ragged.values, array.values.to_numpy())


@pytest.mark.parametrize("row_group_size", [None, 7])
def test_objects_are_ordered_by_part(tmp_path, row_group_size):
    n = 100
    columns = {
        "even": [[i, i + 0.5] for i in range(n)],
        "any": [[float(i)] * (i % 4) for i in range(n)],
        "num__1": np.arange(n, dtype=float),
        "y": np.arange(n, dtype=float),
        "w": np.arange(n, dtype=float),
        "id": [f"face {i}" for i in range(n)],
    }
    dataset = open_table(tmp_path, columns, row_group_size)
    batch = read(dataset, id="id", weight="w", folds=FoldPlan(3, 0.25, 2))
    parts = assign_parts(columns["id"], n_folds=3, test=0.25, seed=2)
    order = np.argsort(parts, kind="stable").tolist()
    assert order != list(range(n))
    even, uneven, number = batch.attributes
    assert as_lists(even) == [columns["even"][i] for i in order]
    assert as_lists(uneven) == [columns["any"][i] for i in order]
    assert as_lists(number) == [[i] for i in order]
    assert batch.label.tolist() == batch.weight.tolist() == batch.row_ids.tolist() == order
    assert batch.rows.id.tolist() == [f"face {i}" for i in order]
    for part in range(4):
        attributes, label, weight = batch.part_view(part)
        expected = [i for i in order if parts[i] == part]
        assert label.tolist() == weight.tolist() == expected
        assert as_lists(attributes[0]) == [columns["even"][i] for i in expected]


@pytest.mark.parametrize("folds", [None, FoldPlan(2, 0.3)])
def test_infinite_judgments_are_refused(tmp_path, folds):
    lists = [[float(i)] * 2 for i in range(6)]
    lists[4] = [4.0, float("inf")]
    lists[1] = []
    columns = {"a": lists, "n__1": np.arange(6.0), "y": np.arange(6.0)}
    message = r"'a' of .*a\.parquet has 1 infinite value \(row group 1, first at its row 1\)"
    with pytest.raises(DataError, match=message):
        read(open_table(tmp_path, columns, 3), folds=folds)
    columns["n__1"][5] = np.inf
    message = r"'n__1' of .*a\.parquet has 1 infinite value \(row group 1, first at its row 2\)"
    with pytest.raises(DataError, match=message):
        read(open_table(tmp_path, columns, 3), folds=folds, exclude="a")


def test_missing_and_infinite_labels(tmp_path):
    columns = {"a": [[1.0], [2.0], [3.0]], "y": [0.0, None, NAN]}
    dataset = open_table(tmp_path, columns, 2)
    message = r"'y' of .* has 2 missing values \(row group 0, first at its row 1\): give every obj"
    for missing in ("error", "mean"):
        with pytest.raises(DataError, match=message):
            read(dataset, missing=missing)
    batch = read(dataset, missing="drop")
    assert (batch.label.tolist(), batch.n_dropped, batch.row_ids.tolist()) == ([0.0], 2, [0])
    assert as_lists(batch.attributes[0]) == [[1.0]]
    columns["y"] = [0.0, float("inf"), 1.0]
    with pytest.raises(DataError, match=r"'y' of .* has 1 infinite value"):
        read(open_table(tmp_path, columns), missing="drop")


def test_labels_may_be_left_out(tmp_path):
    dataset = open_table(tmp_path, {"a": [[1.0]], "y": [1.0], "z": [1.0]})
    batch = read(dataset, target=None, features=["a"])
    assert (batch.label, batch.n_rows, batch.part_view(0)[1:]) == (None, 1, (None, None))
