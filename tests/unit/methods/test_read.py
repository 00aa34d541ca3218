"""The one read: statistics, and a sample that does not depend on how rows are divided."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.batches import ColumnPlan
from distfms.methods.frame.read import SAMPLE, features_of, sample_share, spans_of
from distfms.methods.frame.rows import RowSource, section_roles
from distfms.solve.trees import inputs_of
from distfms.spec import DataSection, parse_section
from distfms.stats.base import Bundle

N_ROWS = 400
LEVELS = {"c": ["u", "v"]}


def columns():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, N_ROWS))
    text = rng.choice(["u", "v"], N_ROWS).astype(object)
    a[::9] = np.nan
    text[::7] = None
    ids = [f"row {number // 2}" for number in range(N_ROWS)]
    weight = rng.uniform(0.5, 2.0, N_ROWS)
    return {"id": ids, "a": a, "c": pa.array(text, pa.string()), "b": b, "w": weight, "y": a + b}


def source_of(folder, table, group, **section):
    folder.mkdir()
    table = {**table, "y": np.nan_to_num(table["y"])}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=group)
    content = {"path": "x", "target": "y", "missing": "mean", "weight": "w", **section}
    data = parse_section(DataSection, {"folds": 3, "test": 0.25, **content}, "data")
    dataset = open_dataset(folder / "rows.parquet", max_rows=data.max_partition_rows)
    plan = ColumnPlan.of(section_roles(dataset, data), LEVELS)
    return dataset, RowSource(dataset.reader, data, 0, False, plan)


def read(dataset, source, share, **how):
    reader = source.moments().sampled(share, **how)
    return reduce(Bundle.merge, [reader(partition) for partition in dataset.partitions])


def test_columns_of_a_sample_are_those_of_a_batch(tmp_path):
    dataset, source = source_of(tmp_path / "data", columns(), 400, exclude="id")
    samples = read(dataset, source, 1.0)[SAMPLE].parts
    plan = source.plan.expanded({"a": [-0.5, 0.5]}, ["a", "c"], {"a": [-1.0, 1.0]})
    batch = replace(source, plan=plan).read(dataset.partitions[0])
    features = np.hstack([features_of(plan, sample.values[:3]) for sample in samples])
    order = np.argsort(np.concatenate([sample.row_ids for sample in samples]))
    expected = batch.features[:, np.argsort(batch.row_ids)]
    np.testing.assert_array_equal(features[:, order], expected)
    # Of these LightGBM takes what the data have: a flag of gaps is no level.
    taken = inputs_of(features, np.arange(len(features)), spans_of(plan))
    codes = np.concatenate([sample.values[1] for sample in samples])
    assert np.isnan(codes).any()
    np.testing.assert_array_equal(taken[:, 1], codes)


@pytest.mark.parametrize("section", [{"exclude": "id"}, {"id": "id"}])
@pytest.mark.parametrize("by_values", [False, True])
def test_a_sample_does_not_depend_on_partitions(tmp_path, section, by_values):
    samples = []
    for group in (50, 400):
        dataset, source = source_of(tmp_path / str(group), columns(), group, **section)
        bundle = read(dataset, source, 0.5, by_values=by_values)
        samples.append(bundle[SAMPLE].parts)
    n_drawn = sum(sample.n_rows for sample in samples[0])
    assert 0.4 * N_ROWS < n_drawn < 0.6 * N_ROWS
    for one, other in zip(*samples, strict=True):
        assert one.n_rows > 0
        np.testing.assert_array_equal(one.row_ids, other.row_ids)
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.first(5).values, one.values[:, :5])
        pairs = np.unique(one.row_ids, return_counts=True)[1]
        if "id" in section:  # two rows have one id: they are drawn together, or each by its values
            assert (pairs.mean() > 1.9) is not by_values
            assert one.ids is not None


def test_a_share_bounds_rows_and_values():
    assert sample_share(1_000, 10, 1_000, 10_000) == 1.0
    assert sample_share(1_300, 10, 1_000, 10_000) == 0.75
    assert sample_share(2_000, 10, 1_000, 10_000) == 0.5
    for n_rows in (10**4, 12_345, 10**6):
        share = sample_share(n_rows, 50, 1_000, 40_000)
        assert 530 < share * n_rows <= 800
