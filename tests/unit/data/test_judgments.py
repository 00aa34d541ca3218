import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.folds import FoldPlan, assign_parts
from distfms.data.rows.judgments import detect_layout, lists_as_ragged, read_judgments
from distfms.data.rows.roles import resolve_roles
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


# --- who judged -----------------------------------------------------------------------------------


def with_raters(tmp_path, columns, raters="auto", **options):
    dataset = open_table(tmp_path, columns)
    roles = resolve_roles(dataset.schema, target="y", judgments=True)
    layout = detect_layout(dataset.schema, roles, raters)
    return read_judgments(dataset.reader, dataset.partitions[0], layout, roles, **options)


@pytest.mark.parametrize("dtype", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_column_for_each_attribute(tmp_path, dtype):
    raters = {"a": [["ann", "bob"], None, ["eve", None]], "b": [["bob"], ["ann"], []]}
    columns = {
        "a": [[1.0, 2.0], None, [3.0, 4.0]],
        "b": [[5.0], [6.0], []],
        **{f"{name}__raters": pa.array(ids, pa.list_(pa.string())) for name, ids in raters.items()},
        "y": [1.0, 2.0, 3.0],
    }
    for name in raters:
        lists = columns[f"{name}__raters"]
        values = lists.values.cast(dtype) if dtype != pa.string() else lists.values
        mask = pa.array([ids is None for ids in raters[name]])
        columns[f"{name}__raters"] = pa.ListArray.from_arrays(lists.offsets, values, mask=mask)
    batch = with_raters(tmp_path, columns)
    assert batch.names == ("a", "b")
    a, b = (as_lists(codes) for codes in batch.raters)
    assert [len(row) for row in a] == [2, 0, 2]
    assert a[2][1] == -1
    assert a[0][1] == b[0][0]
    assert a[0][0] == b[1][0]
    assert len({*a[0], a[2][0]}) == 3


def test_one_column_for_all_and_gaps_keep_their_places(tmp_path):
    columns = {
        "raters": [[7, 8, 9], [8, 7, -1]],
        "a": [[1.0, None, 3.0], [4.0]],
        "b__1": [1.0, 2.0],
        "b__2": [NAN, 5.0],
        "b__3": [6.0, None],
        "y": [1.0, 2.0],
    }
    batch = with_raters(tmp_path, columns)
    assert as_lists(batch.attributes[1]) == [[1.0, 6.0], [2.0, 5.0]]
    a, b = (as_lists(codes) for codes in batch.raters)
    assert a[0] == b[0]  # raters 7 and 9
    assert a[1] == b[1][:1]
    assert b[1][1] == a[0][0]
    by_position = with_raters(tmp_path, columns, "positions")
    assert [as_lists(codes) for codes in by_position.raters] == [[[0, 2], [0]], [[0, 2], [0, 1]]]
    assert with_raters(tmp_path, columns, "ignore").raters is None


def test_raters_follow_the_objects_into_their_parts(tmp_path):
    n = 40
    ids = [[i, i + 1] for i in range(n)]
    columns = {"a": [[float(i), i + 1.0] for i in range(n)], "y": np.arange(n), "a__raters": ids}
    batch = with_raters(tmp_path, columns, folds=FoldPlan(3, 0.2))
    held = (batch.raters[0].content(), batch.attributes[0].content())
    names = dict(zip(*held, strict=True))
    assert len(names) == n + 1  # the id of a rater is the value it gave
    for part, rows in enumerate(batch.part_slices):
        (values,), _, _ = batch.part_view(part)
        (codes,) = batch.raters_of(rows)
        assert [names[c] for c in codes.content()] == values.content().tolist()


def test_numbers_of_ids_that_do_not_fit(tmp_path):
    columns = {"a": [[1.0], [2.0, 3.0]], "y": [1.0, 2.0]}
    with pytest.raises(DataError, match=r"2 judgments of 'a' but 1 ids .*'a__raters' .*row 1"):
        with_raters(tmp_path, {**columns, "a__raters": [["x"], ["x"]]})
    with pytest.raises(DataError, match="'raters'"):
        with_raters(tmp_path, {**columns, "raters": [["x"], ["x"]]})
    with pytest.raises(SpecError, match="NAME__raters"):
        with_raters(tmp_path, columns, "columns")
    assert with_raters(tmp_path, columns).raters is None


def test_columns_that_only_look_like_ids(tmp_path):
    """Lists of judgments stay attributes; ids of no attribute are refused like other text."""
    columns = {"a": [[1.0]], "raters": [[0.5]], "y": [1.0]}
    assert with_raters(tmp_path, columns).names == ("a", "raters")
    with pytest.raises(DataError, match="'c__raters' holds"):
        with_raters(tmp_path, {**columns, "c__raters": [["x"]]})
