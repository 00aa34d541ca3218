"""Random splits: statistics by bucket give what jobs find on the same rows, split by hand."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import FoldPlan, assign_parts
from distfms.errors import SpecError
from distfms.methods.frame.moments import split_seed
from distfms.runs import auto_folds
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content

N = 400
METHODS = {
    "multiselect": {"budget": 6, "ridge": 0.01},
    "sequence": {"ridge": 1e-3, "baselines": ["omp", "random"]},
    "landmarks": {"similarity": "precomputed", "scaling": "none", "ridge": 0.1},
}
OPTIONS = {"splits": 4, "buckets": 16, "test": 0.25, "folds": 3, "id": "id", "target": "y"}


def columns(method):
    rng = np.random.default_rng(1)
    truth = rng.normal(size=(N, 4))
    y = truth @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=N)
    noisy = truth[:, :, None] + rng.normal(size=(N, 4, 3))
    cells = noisy.tolist() if method == "multiselect" else truth.tolist()
    named = {f"x{a}": [row[a] for row in cells] for a in range(4)}
    return {"id": np.arange(N), "y": y, **named}


def spec(folder, method, rows=None, n_files=1, engine=None, data=None, **options):
    """Return the spec of a job on some rows, written below a folder."""
    folder.mkdir(exist_ok=True)
    table = pa.table(columns(method))
    table = table if rows is None else table.take(rows)
    size = -(-table.num_rows // n_files)
    for number in range(n_files):
        piece = table.slice(number * size, size)
        pq.write_table(piece, folder / f"{number}.parquet", row_group_size=50)
    made = {
        "name": "splits",
        "method": method,
        "data": {"path": str(folder), **OPTIONS, **(data or {})},
        method: {**METHODS.get(method, {}), **options},
        "engine": {"workers": 1, **(engine or {})},
        "output": str(folder.parent / "runs"),
    }
    return build_spec(made)


def metrics(made):
    return content(run_job(made).folder, "metrics.json")


def by_hand(tmp_path, method, number):
    """Run a job without splits on the rows that a split trains on, and those that it holds out."""
    plan = FoldPlan(OPTIONS["folds"], OPTIONS["test"], 0, OPTIONS["buckets"])
    parts = assign_parts(np.arange(N), **vars(plan))
    out = np.isin(parts, plan.splits(OPTIONS["splits"])[number])
    test = tmp_path / f"test-{number}"
    spec(test, method, rows=np.flatnonzero(out))
    own = {"splits": 0, "test": 0.0, "folds": 0, "test_path": str(test)}
    train = spec(tmp_path / f"train-{number}", method, rows=np.flatnonzero(~out), data=own)
    return {c["name"]: [p["test"] for p in c["points"]] for c in metrics(train)["curves"]}


@pytest.mark.parametrize("method", METHODS)
def test_splits_are_jobs_on_rows_split_by_hand(tmp_path, method):
    found = metrics(spec(tmp_path / "all", method))
    plain = metrics(spec(tmp_path / "all", method, data={"splits": 0}))
    jobs = [by_hand(tmp_path, method, number) for number in range(OPTIONS["splits"])]
    assert found["splits"] == {"n": 4, "test": 0.25, "buckets": 16}
    assert len(found["curves"]) == {"multiselect": 5, "sequence": 3, "landmarks": 1}[method]
    for curve, whole in zip(found["curves"], plain["curves"], strict=True):
        own, name = curve["splits"], curve["name"]
        assert own["n"] == 4
        for measure, mean in own["mean"].items():
            values = np.array([[point[measure] for point in job[name]] for job in jobs])
            np.testing.assert_allclose(mean, values.mean(axis=0), rtol=1e-9, atol=1e-12)
            spread = values.std(axis=0, ddof=1)
            np.testing.assert_allclose(own["deviation"][measure], spread, rtol=1e-6, atol=1e-9)
            if name in found["baselines"]:
                ends = found["baselines"][name]["splits"]
                assert (ends["n"], ends["mean"][measure]) == (4, mean[-1])
        # The model is that of the job without splits, but for the order of the sums.
        for rows in ("train", "validation", "test"):
            for point, other in zip(curve["points"], whole["points"], strict=True):
                assert point[rows] == pytest.approx(other[rows], rel=1e-9, abs=1e-12)


#: Of models that rows are read for.
BY_FIT = {
    "sequence": {"model": "lightgbm", "baselines": ["omp"], "lightgbm": {"num_iterations": 5}},
    "landmarks": {"loss": "epsilon_insensitive", "similarity": "sigmoid", "landmarks": 8},
}


@pytest.mark.parametrize("method", BY_FIT)
def test_splits_of_other_models_are_runs_with_other_seeds(tmp_path, method):
    own = {"splits": 3, "folds": 2}
    made = spec(tmp_path / "rows", method, data=own, **BY_FIT[method])
    found = metrics(made)
    assert found["splits"] == {"n": 3, "test": 0.25}
    alone = spec(tmp_path / "rows", method, data={**own, "splits": 0}, **BY_FIT[method])
    runs = [metrics(replace(alone, seed=split_seed(0, number))) for number in range(3)]
    names = [{c["name"] for c in job["curves"]} for job in runs]
    assert names[0] == {c["name"] for c in found["curves"]}
    for curve in found["curves"]:
        budgets = [point["budget"] for point in curve["points"]]
        values = []
        for job in runs:
            points = next(c["points"] for c in job["curves"] if c["name"] == curve["name"])
            bought = [[p for p in points if p["budget"] <= b][-1]["test"]["mse"] for b in budgets]
            values.append(bought)
        own, values = curve["splits"], np.array(values)
        np.testing.assert_allclose(own["mean"]["mse"], values.mean(axis=0))
        np.testing.assert_allclose(own["deviation"]["mse"], values.std(axis=0, ddof=1))
    if method == "landmarks":
        name = next(name for name in found["baselines"] if name.startswith("kernel regression"))
        values = [job["baselines"][name]["test"]["mse"] for job in runs]
        assert found["baselines"][name]["splits"]["mean"]["mse"] == pytest.approx(np.mean(values))


@pytest.mark.parametrize("method", METHODS)
def test_splits_do_not_depend_on_files_workers_and_actors(tmp_path, method):
    one = metrics(spec(tmp_path / "one", method))
    engine = {"workers": 2, "actors": "always"}
    many = metrics(spec(tmp_path / "many", method, n_files=5, engine=engine))
    for own, other in zip(one["curves"], many["curves"], strict=True):
        for kind in ("mean", "deviation"):
            for measure, values in own["splits"][kind].items():
                assert other["splits"][kind][measure] == pytest.approx(values, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("method", "changes", "told"),
    [
        ("multiselect", {"data": {"test": 0.0}}, "`splits` needs `test`"),
        ("multiselect", {"data": {"splits": -1}}, "data.splits"),
        ("multiselect", {"data": {"splits": 9, "buckets": 4, "folds": 0}}, "in 4 ways only"),
        ("attribute_efficient", {"attributes_per_example": 2}, "has an option `repeats`: set that"),
    ],
)
def test_what_cannot_be_split_is_refused(tmp_path, method, changes, told):
    with pytest.raises(SpecError, match=told):
        prepare(spec(tmp_path / "rows", method, **changes))
    assert not (tmp_path / "runs").exists()


def test_fewer_buckets_where_statistics_would_be_large(tmp_path, monkeypatch):
    made = spec(tmp_path / "rows", "multiselect", data={"buckets": 64})
    large = prepare(made)
    assert large.describe()["random splits"] == "4, of 64 buckets of rows"
    # Of 64 buckets and of 4 parts without them.
    monkeypatch.setattr(
        auto_folds, "MOST_BYTES_OF_BUCKETS", large.job.statistics_bytes * 20.5 // 68
    )
    small = prepare(made)
    assert small.spec.data.buckets == 16
    assert small.job.statistics_bytes * 68 == large.job.statistics_bytes * 20
    assert any("of 16 buckets of rows, as statistics of 64" in n for n in small.opened.notes)
    assert small.projection().memory.total_bytes < large.projection().memory.total_bytes
    told = run_job(made)
    assert content(told.folder, "metrics.json")["splits"]["buckets"] == 16
    page = (told.folder / "report.html").read_text()
    assert "Means over 4 random splits of all rows, each with 25\u00a0%" in page
