"""Who judged, read beside the judgments."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.dataset import open_dataset
from distfms.data.folds import FoldPlan
from distfms.data.judgments import detect_layout, read_judgments
from distfms.data.roles import resolve_roles
from distfms.errors import DataError, SpecError
from tests.unit.data.test_judgments import as_lists

NAN = float("nan")


def read(tmp_path, columns, raters="auto", **options):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    dataset = open_dataset(tmp_path / "a.parquet")
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
    batch = read(tmp_path, columns)
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
    batch = read(tmp_path, columns)
    assert as_lists(batch.attributes[1]) == [[1.0, 6.0], [2.0, 5.0]]
    a, b = (as_lists(codes) for codes in batch.raters)
    assert a[0] == b[0]  # raters 7 and 9
    assert a[1] == b[1][:1]
    assert b[1][1] == a[0][0]
    by_position = read(tmp_path, columns, "positions")
    assert [as_lists(codes) for codes in by_position.raters] == [[[0, 2], [0]], [[0, 2], [0, 1]]]
    assert read(tmp_path, columns, "ignore").raters is None


def test_raters_follow_the_objects_into_their_parts(tmp_path):
    n = 40
    ids = [[i, i + 1] for i in range(n)]
    columns = {"a": [[float(i), i + 1.0] for i in range(n)], "y": np.arange(n), "a__raters": ids}
    batch = read(tmp_path, columns, folds=FoldPlan(3, 0.2))
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
        read(tmp_path, {**columns, "a__raters": [["x"], ["x"]]})
    with pytest.raises(DataError, match="'raters'"):
        read(tmp_path, {**columns, "raters": [["x"], ["x"]]})
    with pytest.raises(SpecError, match="NAME__raters"):
        read(tmp_path, columns, "columns")
    assert read(tmp_path, columns).raters is None


def test_columns_that_only_look_like_ids(tmp_path):
    """Lists of judgments stay attributes; ids of no attribute are refused like other text."""
    columns = {"a": [[1.0]], "raters": [[0.5]], "y": [1.0]}
    assert read(tmp_path, columns).names == ("a", "raters")
    with pytest.raises(DataError, match="'c__raters' holds"):
        read(tmp_path, {**columns, "c__raters": [["x"]]})
