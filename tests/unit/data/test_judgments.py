import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.judgments import detect_layout, lists_as_ragged, read_judgments
from distfms.data.rows.roles import resolve_roles
from distfms.errors import DataError, SpecError

NAN = float("nan")


def open_table(tmp_path, columns, row_group_size=None):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=row_group_size)
    return open_dataset(tmp_path / "a.parquet")


def layout_of(schema, raters="ignore", **roles):
    resolved = resolve_roles(schema, **{"target": "y", "judgments": True, **roles})
    return detect_layout(schema, resolved, raters), resolved


def read(dataset, *, folds=None, missing="error", raters="ignore", **roles):
    layout, resolved = layout_of(dataset.schema, raters, **roles)
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
        ({"a__1": pa.int8(), "a__01": pa.int8()}, "'a__1' and 'a__01' hold the same judgment"),
    ],
)
def test_two_forms_of_one_attribute(columns, message):
    with pytest.raises(SpecError, match=message):
        layout_of(pa.schema({**columns, "y": pa.float64()}))


def test_values_hidden_under_null_lists_are_no_judgments():
    offsets = pa.array([0, 2, 4, 5], pa.int32())
    values = pa.array([1.0, 2.0, 8.0, 9.0, 3.0])
    hidden = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    assert as_lists(lists_as_ragged(pa.chunked_array([hidden]))) == [[1, 2], [], [3]]


def test_values_are_shared_with_arrow():
    array = pa.array([[1.0, 2.0], [3.0]])
    ragged = lists_as_ragged(pa.chunked_array([array]))
    assert np.shares_memory(ragged.values, array.values.to_numpy())


def test_missing_and_infinite_labels(tmp_path):
    columns = {"a": [[1.0], [2.0], [3.0]], "y": [0.0, None, NAN]}
    dataset = open_table(tmp_path, columns, 2)
    message = r"'y' of .* has 2 missing values \(row group 0, first at its row 1\): give every obj"
    for missing in ("error", "mean"):
        with pytest.raises(DataError, match=message):
            read(dataset, missing=missing)
    batch = read(dataset, missing="drop")
    assert (batch.label.tolist(), batch.row_ids.tolist()) == ([0.0], [0])
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


def test_numbers_of_ids_that_do_not_fit(tmp_path):
    columns = {"a": [[1.0], [2.0, 3.0]], "y": [1.0, 2.0]}
    with pytest.raises(DataError, match=r"2 judgments of 'a' but 1 ids .*'a__raters' .*row 1"):
        with_raters(tmp_path, {**columns, "a__raters": [["x"], ["x"]]})
    with pytest.raises(DataError, match="'raters'"):
        with_raters(tmp_path, {**columns, "raters": [["x"], ["x"]]})
    with pytest.raises(SpecError, match="NAME__raters"):
        with_raters(tmp_path, columns, "columns")
    assert with_raters(tmp_path, columns).raters is None


@pytest.mark.parametrize(
    "dtype", [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(5, 1), pa.string()]
)
@pytest.mark.parametrize("column", ["raters", "a__raters"])
def test_ids_of_any_number_type_are_ids(tmp_path, dtype, column):
    ids = [[7, 8], [None, 7]]
    if dtype == pa.string():
        ids = [[None if i is None else str(i) for i in own] for own in ids]
    columns = {"a": [[1.0, 2.0], [3.0, 4.0]], "y": [1.0, 2.0]}
    batch = with_raters(tmp_path, {**columns, column: pa.array(ids, pa.list_(dtype))})
    assert batch.names == ("a",)
    assert batch.rater_names == ("7", "8")
    assert as_lists(batch.raters[0]) == [[0, 1], [-1, 0]]


def test_ids_that_are_all_missing_are_unknown(tmp_path):
    columns = {"a": [[1.0, 2.0]], "y": [1.0], "raters": pa.array([[None, None]])}
    assert as_lists(with_raters(tmp_path, columns).raters[0]) == [[-1, -1]]
    with_nan = {**columns, "raters": [[NAN, 3.0]]}
    assert as_lists(with_raters(tmp_path, with_nan).raters[0]) == [[-1, 0]]
    of_a = {"a": [[1.0, 2.0]], "a__raters": [["u", "v"]], "b": [[3.0, 4.0, 5.0]], "y": [1.0]}
    assert as_lists(with_raters(tmp_path, of_a).raters[1]) == [[-1, -1, -1]]


def test_columns_that_only_look_like_ids(tmp_path):
    """Numbers that cannot be ids, and ids of no attribute, are refused."""
    columns = {"a": [[1.0]], "y": [1.0]}
    with pytest.raises(DataError, match=r"has 0.5 in the column 'raters': ids .* rename it"):
        with_raters(tmp_path, {**columns, "raters": [[0.5]]})
    with pytest.raises(DataError, match="'c__raters' holds"):
        with_raters(tmp_path, {**columns, "c__raters": [["x"]]})
