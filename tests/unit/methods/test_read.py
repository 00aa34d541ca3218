"""The one read: statistics, and a sample that does not depend on how rows are divided."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.batches import ColumnPlan
from distfms.methods.frame.read import SAMPLE, SampledRows, sample_share, sampling_reader
from distfms.methods.frame.rows import RowSource, moment_reader, section_roles
from distfms.spec import DataSection, parse_section
from distfms.stats.base import Bundle

N_ROWS = 400
LEVELS = {"c": ["u", "v"]}


def columns(with_gaps: bool = True) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, N_ROWS))
    text = rng.choice(["u", "v"], N_ROWS).astype(object)
    if with_gaps:
        a[::9] = np.nan
        text[::7] = None
    ids = [f"row {number // 2}" for number in range(N_ROWS)]
    weight = rng.uniform(0.5, 2.0, N_ROWS)
    return {"id": ids, "a": a, "c": pa.array(text, pa.string()), "b": b, "w": weight, "y": a + b}


def source_of(folder: Path, table: dict[str, Any], group: int, **section: Any) -> Any:
    folder.mkdir()
    table = {**table, "y": np.nan_to_num(table["y"])}
    pq.write_table(pa.table(table), folder / "rows.parquet", row_group_size=group)
    content = {"path": "x", "target": "y", "missing": "mean", "weight": "w", **section}
    data = parse_section(DataSection, {"folds": 3, "test": 0.25, **content}, "data")
    dataset = open_dataset(folder / "rows.parquet", max_rows=data.max_partition_rows)
    plan = ColumnPlan.of(section_roles(dataset, data), LEVELS)
    return dataset, RowSource(dataset.reader, data, 0, False, plan)


def read(dataset: Any, source: RowSource, share: float, **how: Any) -> Bundle:
    reader = sampling_reader(moment_reader(source), share, **how)
    return reduce(Bundle.merge, [reader(partition) for partition in dataset.partitions])


@pytest.mark.parametrize("section", [{"exclude": "id"}, {"id": "id"}])
def test_a_sample_of_all_rows_has_their_moments(tmp_path: Path, section: dict[str, str]) -> None:
    dataset, source = source_of(tmp_path / "data", columns(), 90, **section)
    bundle = read(dataset, source, 1.0)
    rows = SampledRows.of(bundle[SAMPLE], source.plan, 1.0)
    assert rows.n_rows == N_ROWS
    assert rows.is_all
    for part, of_rows in zip(bundle["moments"].parts, rows.moments().parts, strict=True):
        assert of_rows.n_samples == part.n_samples
        np.testing.assert_allclose(of_rows.mean, part.mean)
        np.testing.assert_allclose(of_rows.comoment, part.comoment, atol=1e-9)
        np.testing.assert_allclose(of_rows.observed_weight, part.observed_weight)


def test_columns_of_a_sample_are_those_of_a_batch(tmp_path: Path) -> None:
    dataset, source = source_of(tmp_path / "data", columns(), 400, exclude="id")
    rows = SampledRows.of(read(dataset, source, 1.0)[SAMPLE], source.plan, 1.0)
    plan = source.plan.expanded({"a": [-0.5, 0.5]}, ["a", "c"], {"a": [-1.0, 1.0]})
    batch = replace(source, plan=plan).read(dataset.partitions[0])
    order, of_batch = np.argsort(rows.keys), np.argsort(batch.row_ids)
    expected = batch.features[:, of_batch]
    np.testing.assert_array_equal(rows.features(plan)[:, order], expected)


@pytest.mark.parametrize("section", [{"exclude": "id"}, {"id": "id"}])
@pytest.mark.parametrize("by_values", [False, True])
def test_a_sample_does_not_depend_on_partitions(
    tmp_path: Path, section: dict[str, str], by_values: bool
) -> None:
    samples = []
    for group in (50, 400):
        dataset, source = source_of(tmp_path / str(group), columns(), group, **section)
        bundle = read(dataset, source, 0.5, by_values=by_values)
        samples.append(SampledRows.of(bundle[SAMPLE], source.plan, 0.5))
    one, other = samples
    assert 0.4 * N_ROWS < one.n_rows < 0.6 * N_ROWS
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.inputs, other.inputs)
    np.testing.assert_array_equal(one.fold, other.fold)
    assert set(one.fold) == {-1, 0, 1, 2}
    few = one.first(30)
    assert few.n_rows == 30
    assert few.share == pytest.approx(0.5 * 30 / one.n_rows)
    np.testing.assert_array_equal(few.target, one.target[:, :30])
    pairs = np.unique(one.keys, return_counts=True)[1]
    if "id" in section:  # two rows have one id: they are drawn together, or each by its values
        assert (pairs.mean() > 1.9) is not by_values
        assert one.ids is not None
        assert len(one.ids) == one.n_rows


def test_a_share_bounds_rows_and_values() -> None:
    assert sample_share(1_000, 10, 1_000, 10_000) == 1.0
    assert sample_share(1_300, 10, 1_000, 10_000) == 0.75
    assert sample_share(2_000, 10, 1_000, 10_000) == 0.5
    for n_rows in (10**4, 12_345, 10**6):
        share = sample_share(n_rows, 50, 1_000, 40_000)
        assert 530 < share * n_rows <= 800
