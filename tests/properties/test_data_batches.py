import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.batches import ColumnPlan, read_rows
from distfms.data.rows.folds import FoldPlan
from distfms.data.rows.judgments import detect_layout, read_judgments
from distfms.data.rows.roles import resolve_roles

lean = settings(max_examples=40, deadline=None)
numbers = st.floats(-1e6, 1e6) | st.none() | st.just(math.nan)
shards = st.lists(st.integers(0, 12), min_size=1, max_size=4).filter(any)


def write_shards(folder, columns, sizes, row_group_size):
    table = pa.table(columns)
    start = 0
    for i, size in enumerate(sizes):
        path = Path(folder) / f"{i}.parquet"
        pq.write_table(table.slice(start, size), path, row_group_size=row_group_size)
        start += size


@lean
@given(sizes=shards, row_group_size=st.integers(1, 5), limit=st.integers(1, 20))
def test_partitions_cover_the_rows_once_and_in_order(sizes, row_group_size, limit):
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder, {"x": np.arange(sum(sizes))}, sizes, row_group_size)
        dataset = open_dataset(folder, max_rows=limit)
        offset = 0
        for partition in dataset.partitions:
            rows = dataset.reader.read(partition, ["x"]).column("x").to_pylist()
            assert rows == list(range(offset, offset + partition.n_rows))
            assert partition.row_offset == offset
            assert 0 < partition.n_rows <= limit or len(partition.row_groups) == 1
            offset += partition.n_rows
        assert offset == sum(sizes) == dataset.n_rows
        again = open_dataset(folder, max_rows=limit)
        assert (again.partitions, again.fingerprint) == (dataset.partitions, dataset.fingerprint)


@lean
@given(data=st.data(), sizes=shards, row_group_size=st.integers(1, 5))
def test_keyed_batches_hold_the_same_rows_in_each_part_however_they_are_sharded(
    data, sizes, row_group_size
):
    n = sum(sizes)
    columns = {
        "x": pa.array(data.draw(st.lists(numbers, min_size=n, max_size=n)), pa.float64()),
        "c": pa.array(
            data.draw(st.lists(st.sampled_from(["u", "v", None]), min_size=n, max_size=n)),
            pa.string(),
        ),
        "key": np.arange(n) // 2,
        "y": np.arange(n, dtype=float),
    }
    policy = data.draw(st.sampled_from(["drop", "mean"]))
    results = []
    for cut in (sizes, [n]):
        with tempfile.TemporaryDirectory() as folder:
            write_shards(folder, columns, cut, row_group_size)
            results.append(rows_by_part(open_dataset(folder), policy))
    assert results[0] == results[1]
    kept = [row for part in results[0] for row in part]
    whole = [i for i in range(n) if policy == "mean" or complete(columns, i)]
    assert sorted(int(row[-1]) for row in kept) == whole
    for x, u, v, y in kept:
        i = int(y)
        assert x == shown(columns["x"][i].as_py())
        letter = columns["c"][i].as_py()
        assert (u, v) == ((None, None) if letter is None else (letter == "u", letter == "v"))


def complete(columns, i):
    return shown(columns["x"][i].as_py()) is not None and columns["c"][i].as_py() is not None


def shown(value):
    """NaN as None, so that rows can be compared."""
    return None if value is None or math.isnan(value) else value


def rows_by_part(dataset, policy):
    roles = resolve_roles(dataset.schema, target="y", id="key")
    plan = ColumnPlan.of(roles, {"c": ("u", "v")})
    parts = [[] for _ in range(4)]
    for partition in dataset.partitions:
        batch = read_rows(
            dataset.reader, partition, plan, folds=FoldPlan(3, 0.25, 1), missing=policy
        )
        for part, rows in zip(parts, batch.part_slices, strict=True):
            part += [tuple(map(shown, row)) for row in batch.values[:, rows].T.tolist()]
    return parts


@lean
@given(data=st.data(), sizes=shards, row_group_size=st.integers(1, 5))
def test_judgments_are_what_was_written_in_every_form(data, sizes, row_group_size):
    n = sum(sizes)
    rows = st.lists(numbers, max_size=3) | st.none()
    lists = data.draw(st.lists(rows, min_size=n, max_size=n))
    fixed = data.draw(st.lists(st.tuples(numbers, numbers), min_size=n, max_size=n))
    columns = {
        "a": pa.array(lists, pa.list_(pa.float64())),
        "b__1": pa.array([pair[0] for pair in fixed], pa.float64()),
        "b__2": pa.array([pair[1] for pair in fixed], pa.float64()),
        "f": pa.array(map(list, fixed), pa.list_(pa.float64(), 2)),
        "y": np.arange(n, dtype=float),
    }
    seen = []
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder, columns, sizes, row_group_size)
        dataset = open_dataset(folder)
        roles = resolve_roles(dataset.schema, target="y", judgments=True)
        layout = detect_layout(dataset.schema, roles)
        for partition in dataset.partitions:
            batch = read_judgments(dataset.reader, partition, layout, roles, folds=FoldPlan(2, 0.3))
            for row, label in enumerate(batch.label.astype(int).tolist()):
                seen.append(label)
                a, b, f = (r.rows(row, row + 1).content().tolist() for r in batch.attributes)
                assert a == [v for v in lists[label] or [] if shown(v) is not None]
                assert b == f == [v for v in fixed[label] if shown(v) is not None]
    assert sorted(seen) == list(range(n))
