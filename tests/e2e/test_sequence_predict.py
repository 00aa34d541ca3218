"""Predictions of a sequencing run: what a budget pays for, and what they refuse."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distfms
from distfms.errors import DataError, SpecError
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import write_rows


def prefix(run, n_groups):
    steps = content(run, "selection.json")["sequence"][:n_groups]
    names = [name for step in steps for name in step["columns"]]
    return (steps[-1]["spent"] if steps else 0.0), names


@pytest.mark.parametrize("n_groups", [0, 1, 3, 5])
def test_prediction_reads_what_the_budget_pays_for(
    mixed_run, mixed_columns, tmp_path, read_columns, n_groups
):
    spent, needed = prefix(mixed_run, n_groups)
    # Only the columns of the prefix are there at all.
    rows = {name: mixed_columns[name] for name in ["id", *needed]}
    folder = write_rows(tmp_path / "few", rows)
    summary = predict_file(mixed_run, str(folder), tmp_path / "p.parquet", budget=spent + 0.05)
    assert read_columns == set(needed)
    assert f"for {n_groups} of 5 groups" in summary
    assert f"Each row costs {spent:g} of the budget {spent + 0.05:g}, for " in summary
    assert ("every prediction is the mean" in summary) == (n_groups == 0)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["id", "predicted_y", "values_missing"]
    assert table.column("id").to_pylist() == mixed_columns["id"]
    # A service may ask one model for several budgets.
    model = distfms.load(mixed_run, budget=0)
    predictions = pq.read_table(folder)
    assert model.predict(predictions, budget=spent + 0.05).equals(table)
    assert model.predict(predictions).column("predicted_y").null_count == 0
    with ThreadPoolExecutor(16) as threads:
        budgets = [0.0, spent + 0.05] * 40
        tables = list(threads.map(lambda most: model.predict(predictions, budget=most), budgets))
    assert all(one.equals(table) for one in tables[1::2])
    assert all(one.equals(tables[0]) for one in tables[::2])


def test_without_a_budget_the_advised_groups_predict(mixed_run, mixed_data, tmp_path):
    stop = content(mixed_run, "model.json")["stop"]
    summary = predict_file(mixed_run, str(mixed_data), tmp_path / "p.parquet")
    assert f"for {stop['n_groups']} of 5 groups: the fewest groups that do as well" in summary
    table = pq.read_table(tmp_path / "p.parquet")
    budget = stop["spent"]
    predict_file(mixed_run, str(mixed_data), tmp_path / "q.parquet", budget=budget)
    assert pq.read_table(tmp_path / "q.parquet").equals(table)


def test_a_budget_of_which_most_is_left_is_told(mixed_run, mixed_data, tmp_path):
    steps = content(mixed_run, "selection.json")["sequence"]
    dear = max(range(1, 5), key=lambda k: steps[k]["cost"])
    before = steps[dear - 1]["spent"]
    assert steps[dear]["cost"] > before + 0.1
    budget = 2 * before + 0.1
    summary = predict_file(mixed_run, str(mixed_data), tmp_path / "p.parquet", budget=budget)
    assert "a run with `sequence.budgets" in summary
    assert f"`sequence.budgets: [{budget:g}]`" in summary


def test_missing_values_and_unknown_categories_count_as_the_mean(
    mixed_run, mixed_data, mixed_columns, tmp_path
):
    _, needed = prefix(mixed_run, 5)
    rows = {name: list(mixed_columns[name][:3]) for name in needed}
    rows["ward"] = ["somewhere", None, "west"]
    pq.write_table(pa.table(rows), tmp_path / "odd.parquet")
    odd = str(tmp_path / "odd.parquet")
    out = tmp_path / "p.parquet"
    summary = predict_file(mixed_run, odd, out, budget=1e9)
    assert "unknown categories, replaced with the training mean: " in summary
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names[0] == "row"
    model = content(mixed_run, "model.json")
    weights = np.load(mixed_run / "weights.npz")
    at = {name: i for i, name in enumerate(model["feature_names"])}
    value = weights["intercept"][-1, 0]
    for name in needed:
        if name != "ward":
            x = rows[name][0]
            fill = weights["fill"][at[name]]
            value += weights["coefficients"][-1, at[name], 0] * (fill if np.isnan(x) else x)
    for level in ("east", "north", "west"):
        j = at[f"ward={level}"]
        value += weights["coefficients"][-1, j, 0] * weights["fill"][j]
    assert table.column("predicted_y")[0].as_py() == pytest.approx(value, rel=1e-12)
    assert table.column("values_missing").to_pylist()[:2] == [
        1 + np.isnan(rows["scan"][i]) for i in (0, 1)
    ]


def test_prediction_refuses_what_it_cannot_read(mixed_run, mixed_data, mixed_columns, tmp_path):
    n = len(mixed_columns["id"])
    out = tmp_path / "p.parquet"
    bad = tmp_path / "bad.parquet"
    rows = pa.table({name: mixed_columns[name] for name in prefix(mixed_run, 5)[1]})
    without = {name: rows.drop_columns([name]) for name in ("ward", "age", "blood")}
    for table, message in (
        (without["ward"].append_column("ward", [np.zeros(n)]), "'ward' .* holds numbers .* made"),
        (without["age"].append_column("age", [["old"] * n]), "'age' .* holds categories .* made"),
        (without["blood"], "no column 'blood'"),
    ):
        pq.write_table(table, bad)
        with pytest.raises(DataError, match=message):
            predict_file(mixed_run, str(bad), out, budget=1e9)
    for budget in (-1.0, float("nan")):
        with pytest.raises(SpecError, match="--budget"):
            predict_file(mixed_run, str(mixed_data), out, budget=budget)
        with pytest.raises(SpecError, match=r"^budget is"):
            distfms.load(mixed_run).predict({"id": [1]}, budget=budget)
    assert not out.exists()
