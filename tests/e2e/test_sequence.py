"""Group sequencing from a spec to predictions, against plain numpy on the rows."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.dataset import PartitionReader
from distfms.errors import DataError, DistfmsError, SpecError
from distfms.methods.sequence import job as job_module
from distfms.methods.sequence import predictor as predictor_module
from distfms.methods.sequence.predictor import Schedule
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.predict import predict_file
from tests.e2e.jobs import results, stage
from tests.e2e.sequence_jobs import LiteralRows, mixed_job, mixed_rows, write_rows
from tests.reference.sequence import fitted, literal_sequence

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["categories", "statistics", "select", "model", "evaluate", "report"]


@pytest.fixture(scope="module")
def columns():
    return mixed_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "rows", columns)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return run_job(mixed_job(data, tmp_path_factory.mktemp("runs"))).folder


def content(folder, name):
    return json.loads((folder / name).read_text())


def curve(metrics, name):
    return next(c["points"] for c in metrics["curves"] if c["name"] == name)


def explained(literal, held_out, chosen, ridge=1e-5):
    """Explained variance on held-out rows of a set of groups, from the rows."""
    X, Y, X_out, Y_out = literal.split(held_out)
    used = [c for g in chosen for c in literal.groups[g]]
    residual = Y_out - X_out[:, used] @ fitted(X, Y, used, ridge) if used else Y_out
    return 1 - (residual**2).sum() / (Y_out**2).sum()


# --- the numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("fr", {}),
        ("omp-blind", {"criterion": "omp", "cost_aware": False}),
        ("fr-doubling", {"doubling": True}),
        ("omp-single", {"criterion": "omp-single"}),
        ("omp-no-whiten", {"criterion": "omp-no-whiten"}),
    ],
)
def test_the_sequence_is_the_literal_one(data, columns, tmp_path, rule, options):
    literal = LiteralRows(columns)
    X, Y, *_ = literal.split(literal.test)
    expected = literal_sequence(
        options.get("criterion", "fr"),
        X,
        Y,
        literal.groups,
        literal.cost,
        1e-5,
        cost_aware=options.get("cost_aware", True),
        doubling=options.get("doubling", False),
    )
    spec = mixed_job(data, tmp_path, sequence={**options, "baselines": []})
    selection = content(run_job(spec).folder, "selection.json")
    steps = selection["sequence"]
    assert selection["rule"] == rule
    assert [s["group"] for s in steps] == [literal.group_names[g] for g in expected.order]
    assert [s["cost"] for s in steps] == expected.costs
    np.testing.assert_allclose([s["gain"] for s in steps], expected.gains, rtol=1e-8, atol=1e-12)
    assert steps[-1]["spent"] == pytest.approx(2 + 1 + 6 + 1 + 1 + 1.5)


def test_held_out_curves_are_those_of_the_rows(run, columns):
    literal = LiteralRows(columns)
    metrics, selection = content(run, "metrics.json"), content(run, "selection.json")
    order = [literal.group_names.index(s["group"]) for s in selection["sequence"]]
    points = curve(metrics, "fr")
    assert [p["n_groups"] for p in points] == list(range(6))
    expected = [explained(literal, literal.test, order[:k]) for k in range(6)]
    np.testing.assert_allclose([p["test"] for p in points], expected, rtol=1e-9, atol=1e-12)
    assert metrics["test"]["explained_variance"] == pytest.approx(expected[-1], rel=1e-9)
    variance = np.var(literal.y[literal.test])
    assert metrics["test"]["mse"] == pytest.approx((1 - metrics["test"]["r2"]) * variance, rel=1e-9)
    assert metrics["test"]["n_rows"] == literal.test.sum()


@pytest.mark.parametrize(("name", "criterion", "aware"), [("fr", "fr", 1), ("omp", "omp", 1)])
def test_cross_validation_is_that_of_the_rows(run, columns, name, criterion, aware):
    literal = LiteralRows(columns)
    points = curve(content(run, "metrics.json"), name)
    total, weight = np.zeros(len(points)), 0
    for fold in range(3):
        held_out = literal.parts == fold
        train = LiteralRows(columns)
        keep = ~literal.test
        train.X, train.y, inner = literal.X[keep], literal.y[keep], held_out[keep]
        X, Y, *_ = train.split(inner)
        path = literal_sequence(criterion, X, Y, literal.groups, literal.cost, 1e-5)
        spent = np.cumsum(path.costs)
        for i, point in enumerate(points):
            affordable = int((spent <= point["spent"] + 1e-9).sum())
            total[i] += inner.sum() * explained(train, inner, path.order[:affordable])
        weight += inner.sum()
    validation = [p["validation"] for p in points]
    np.testing.assert_allclose(validation, total / weight, rtol=1e-9, atol=1e-12)


def test_what_was_left_out_and_filled_in_is_said(run, columns):
    literal = LiteralRows(columns)
    manifest = content(run, "manifest.json")
    assert manifest["dropped"] == {"rows": literal.n_dropped}
    assert manifest["imputed"] == literal.n_gaps
    assert sum(manifest["objects"].values()) == len(literal.y)
    assert content(run, "selection.json")["constant"] == ["still"]
    page = (run / "report.html").read_text()
    for text in (f"{literal.n_dropped} rows were left out", "still", "ward"):
        assert text in page
    assert content(run, "statistics/categories.json")["levels"] == {
        "ward": ["east", "north", "west"]
    }


def test_metrics_say_how_early(run):
    metrics, selection = content(run, "metrics.json"), content(run, "selection.json")
    assert [c["name"] for c in metrics["curves"]] == [
        "fr", "omp", "fr-blind", "omp-doubling", "random", "oracle",
    ]  # fmt: skip
    points = curve(metrics, "fr")
    x, y = (np.array([p[key] for p in points]) for key in ("spent", "explained_variance"))
    area = ((y[1:] + y[:-1]) / 2 * np.diff(x)).sum() / (x[-1] * y[-1])
    assert metrics["timeliness"]["fr"]["timeliness"] == pytest.approx(area, rel=1e-12)
    assert selection["timeliness"] == pytest.approx(area, rel=1e-12)
    assert set(metrics["baselines"]) == {"omp", "fr-blind", "omp-doubling", "random", "oracle"}
    alpha = metrics["alpha"]["alpha"]
    assert {entry["alpha"] for entry in metrics["timeliness"].values()} == {alpha}
    assert metrics["timeliness"]["omp"]["stopping_cost"] == metrics["alpha"]["stopping_cost"]


def test_several_targets(data, columns, tmp_path):
    rng = np.random.default_rng(1)
    two = {**columns, "z": columns["blood"] + rng.normal(size=len(columns["blood"]))}
    folder = write_rows(tmp_path / "two", two)
    spec = mixed_job(folder, tmp_path, data={"target": ["y", "z"]})
    folder = run_job(spec).folder
    model, weights = content(folder, "model.json"), np.load(folder / "weights.npz")
    assert model["target_names"] == ["y", "z"]
    # Without a choice among groups the targets have nothing to do with one another.
    literal = LiteralRows(columns)
    literal.y = np.column_stack((literal.y, two["z"][~np.isnan(columns["y"])]))
    X, Y, X_out, Y_out = literal.split(literal.test)
    residual = Y_out - X_out @ fitted(X, Y, range(8), 1e-5)
    metrics = content(folder, "metrics.json")
    share = 1 - (residual**2).sum(axis=0) / (Y_out**2).sum(axis=0)
    assert metrics["test"]["explained_variance"] == pytest.approx(share.mean(), rel=1e-9)
    assert weights["coefficients"].shape == (6, 9, 2)
    predict_file(folder, str(tmp_path / "two"), tmp_path / "p.parquet")
    assert {"predicted_y", "predicted_z"} <= set(pq.read_schema(tmp_path / "p.parquet").names)


# --- the same bits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine", [{"workers": 2}, {"workers": 2, "processes": True}, {"cache": False}], ids=str
)
def test_same_bits_whatever_the_engine(data, run, tmp_path, engine):
    assert results(run_job(mixed_job(data, tmp_path, engine=engine)).folder) == results(run)


def test_the_embedded_job_with_one_and_two_workers(tmp_path):
    spec = ROOT / "jobs" / "sequence-breast-cancer.yaml"
    folders = []
    for workers in (1, 2):
        changes = [f"engine.workers={workers}", f"output={tmp_path / str(workers)}"]
        folders.append(run_job(load_spec(spec, changes)).folder)
    assert results(folders[0]) == results(folders[1])
    metrics = content(folders[0], "metrics.json")
    assert metrics["test"]["accuracy"] > 0.94
    assert metrics["test"]["explained_variance"] > 0.7
    order = [s["group"] for s in content(folders[0], "selection.json")["sequence"]]
    assert len(order) == 10
    assert order.index("perimeter") < order.index("fractal_dimension")


DYING = """
import os, signal, sys
from pathlib import Path
from distfms.runs import driver, folder
from tests.e2e.sequence_jobs import mixed_job

data, output, where, what = sys.argv[1:]
name = "write_stage" if where == "before" else "update"
original = getattr(folder.RunFolder, name)

def killed(self, *rest, **entries):
    stages = entries.get("stages")
    now = rest and rest[0] == what if where == "before" else stages and stages[-1]["name"] == what
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, *rest, **entries)

setattr(folder.RunFolder, name, killed)
driver.run_job(mixed_job(Path(data), Path(output)))
"""


@pytest.mark.parametrize(
    ("where", "at"),
    [*(("before", name) for name in STAGES), ("between", "categories"), ("between", "model")],
)
def test_a_killed_run_goes_on(data, run, tmp_path, where, at):
    command = [sys.executable, "-c", DYING, str(data), str(tmp_path), where, at]
    dead = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert dead.returncode == -9, dead.stderr
    result = run_job(mixed_job(data, tmp_path))
    assert result.resumed
    assert list(result.skipped) == STAGES[: STAGES.index(at)]
    assert results(result.folder) == results(run)
    entry = stage(content(result.folder, "manifest.json"), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == ((0, 3) if at == "statistics" else (3, 0))


# --- prediction ---------------------------------------------------------------------------------


@pytest.fixture
def read_columns(monkeypatch):
    """Names of all columns that any task reads."""
    seen = set()
    read = PartitionReader.batches

    def watched(self, partition, names):
        seen.update(names)
        return read(self, partition, names)

    monkeypatch.setattr(PartitionReader, "batches", watched)
    return seen


def prefix(run, n_groups):
    steps = content(run, "selection.json")["sequence"][:n_groups]
    names = [name for step in steps for name in step["columns"]]
    return (steps[-1]["spent"] if steps else 0.0), names


@pytest.mark.parametrize("n_groups", [0, 1, 3, 5])
def test_prediction_reads_what_the_budget_pays_for(run, columns, tmp_path, read_columns, n_groups):
    spent, needed = prefix(run, n_groups)
    # Only the columns of the prefix are there at all.
    rows = {name: columns[name] for name in ["id", *needed]}
    folder = write_rows(tmp_path / "few", rows)
    said = predict_file(run, str(folder), tmp_path / "p.parquet", budget=spent + 0.05)
    assert read_columns == set(needed)
    assert f"on {n_groups} of 5 groups" in said
    assert f"Spends {spent:g} of the budget {spent + 0.05:g} a row" in said
    assert ("predicted by the mean" in said) == (n_groups == 0)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["id", "predicted_y", "values_missing"]
    assert table.column("id").to_pylist() == columns["id"]
    literal = LiteralRows(columns)
    X, Y, X_out, _ = literal.split(literal.test)
    names = [s["group"] for s in content(run, "selection.json")["sequence"][:n_groups]]
    used = [c for n in names for c in literal.groups[literal.group_names.index(n)]]
    train = literal.y[~literal.test]
    expected = np.full(len(X_out), train.mean())
    if used:
        expected += train.std() * (X_out[:, used] @ fitted(X, Y, used, 1e-5))[:, 0]
    kept = ~np.isnan(columns["y"])
    found = table.column("predicted_y").to_numpy()[kept][literal.test]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_without_a_budget_the_whole_sequence_predicts(run, data, tmp_path):
    said = predict_file(run, str(data), tmp_path / "p.parquet")
    assert "5 of 5 groups" in said
    whole = pq.read_table(tmp_path / "p.parquet")
    predict_file(run, str(data), tmp_path / "q.parquet", budget=1e9)
    assert pq.read_table(tmp_path / "q.parquet").equals(whole)
    assert whole.column("values_missing").to_numpy().max() >= 1


def test_missing_values_and_unknown_categories_count_as_the_mean(run, data, columns, tmp_path):
    _, needed = prefix(run, 5)
    rows = {name: list(columns[name][:3]) for name in needed}
    rows["ward"] = ["somewhere", None, "west"]
    pq.write_table(pa.table(rows), tmp_path / "odd.parquet")
    said = predict_file(run, str(tmp_path / "odd.parquet"), tmp_path / "p.parquet")
    assert "unknown categories, taken for the training mean: " in said
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names[0] == "row"
    model, weights = content(run, "model.json"), np.load(run / "weights.npz")
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


def test_prediction_refuses_what_it_cannot_read(run, data, columns, tmp_path):
    _, needed = prefix(run, 5)
    out = tmp_path / "p.parquet"
    rows = {name: columns[name] for name in needed}
    pq.write_table(pa.table({**rows, "ward": np.zeros(len(columns["id"]))}), tmp_path / "n.parquet")
    with pytest.raises(DataError, match=r"'ward' .* holds numbers .* made with categories"):
        predict_file(run, str(tmp_path / "n.parquet"), out)
    pq.write_table(pa.table({**rows, "age": ["old"] * len(columns["id"])}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"'age' .* holds categories .* made with numbers"):
        predict_file(run, str(tmp_path / "t.parquet"), out)
    del rows["blood"]
    pq.write_table(pa.table(rows), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="no column 'blood'"):
        predict_file(run, str(tmp_path / "b.parquet"), out)
    for budget in (-1.0, float("nan")):
        with pytest.raises(SpecError, match="--budget"):
            predict_file(run, str(data), out, budget=budget)
    assert not out.exists()


def test_a_deadline_ends_the_reading_of_groups(run, data, columns, tmp_path, monkeypatch):
    out = tmp_path / "p.parquet"
    said = predict_file(run, str(data), out, deadline_s=1e6)
    assert "Spends up to" in said
    assert "because of the deadline" not in said
    timely = pq.read_table(out)
    assert set(timely.column("groups_used").to_pylist()) == {5}
    predict_file(run, str(data), tmp_path / "q.parquet")
    whole = pq.read_table(tmp_path / "q.parquet")
    for name in whole.column_names:
        assert timely.column(name).equals(whole.column(name))
    said = predict_file(run, str(data), out, deadline_s=0.0)
    assert "Rows predicted from fewer groups because of the deadline: 600" in said
    late = pq.read_table(out)
    assert set(late.column("groups_used").to_pylist()) == {0}
    literal = LiteralRows(columns)
    mean = literal.y[~literal.test].mean()
    np.testing.assert_allclose(late.column("predicted_y").to_numpy(), mean, rtol=1e-12)

    # A clock of which every look takes a second: three groups fit into a partition's time.
    clock = iter(range(10**6))
    monkeypatch.setattr(predictor_module.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(Schedule, "until", lambda self, index, now: now + 4.0)
    predict_file(run, str(data), out, deadline_s=100.0, workers=1)
    some = pq.read_table(out)
    assert set(some.column("groups_used").to_pylist()) == {3}
    spent, _ = prefix(run, 3)
    predict_file(run, str(data), tmp_path / "r.parquet", budget=spent)
    expected = pq.read_table(tmp_path / "r.parquet")
    assert some.column("predicted_y").equals(expected.column("predicted_y"))


def test_time_is_shared_out_over_partitions():
    schedule = Schedule(end_s=110.0, n_partitions=5, workers=2)
    assert schedule.until(0, 100.0) == pytest.approx(100 + 10 * 2 / 5)
    assert schedule.until(3, 104.0) == 110.0
    assert schedule.until(4, 109.0) == 110.0  # more workers than partitions: no more than is left
    assert schedule.until(4, 120.0) == 120.0


def test_predict_on_the_command_line(run, data, tmp_path):
    command = [sys.executable, "-m", "distfms.cli", "predict", run, data, "--budget", "4.5"]
    done = subprocess.run(
        [*map(str, command), "--out", "p.parquet"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "of the budget 4.5 a row" in done.stdout
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 600


# --- a second pass: accuracy and NDCG -----------------------------------------------------------


def ranking_rows(n_queries=60, seed=3):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, n_queries)
    query = np.repeat(np.arange(n_queries), sizes)
    n = len(query)
    a, b = rng.normal(size=n), rng.integers(0, 3, n).astype(float)
    grade = np.clip(np.round(a + b / 2 + rng.normal(size=n)), 0, 4)
    grade[query == 7] = 0
    return {"q": [f"query-{i}" for i in query], "a": a, "b": b, "grade": grade}


def ranking_job(data, output, **changes):
    content = {
        "name": "ranking",
        "method": "sequence",
        "data": {"path": str(data), "target": "grade", "query": "q", "test": 0.5, **changes},
        "sequence": {"baselines": []},
        "engine": {"workers": 2},
        "output": str(output),
    }
    return build_spec(content)


def test_ndcg_is_that_of_the_rows(tmp_path):
    from sklearn.metrics import ndcg_score

    columns = ranking_rows()
    folder = write_rows(tmp_path / "data", columns, n_files=5)
    # Partitions of a few rows each, so that queries straddle several of them.
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "data" / "part-0.parquet", row_group_size=4)
    for extra in range(1, 5):
        (folder / f"part-{extra}.parquet").unlink()
    run = run_job(ranking_job(folder, tmp_path, max_partition_rows=4)).folder
    assert content(run, "manifest.json")["n_partitions"] > 50
    model, weights = content(run, "model.json"), np.load(run / "weights.npz")
    X = np.column_stack([columns[name] for name in model["feature_names"]])
    query = np.array(columns["q"], dtype=object)
    test = assign_test(query, 0.5)
    points = curve(content(run, "metrics.json"), "fr")
    assert len(points) == 3
    for k, point in enumerate(points):
        scores = X @ weights["coefficients"][k, :, 0] + weights["intercept"][k, 0]
        values = []
        for name in dict.fromkeys(query[test]):
            rows = query == name
            gain = 2.0 ** columns["grade"][rows] - 1
            if gain.max() > 0:
                alone = rows.sum() == 1
                values.append(1.0 if alone else ndcg_score([gain], [scores[rows]], k=5))
        assert point["ndcg@5"] == pytest.approx(np.mean(values), rel=1e-12)
    assert content(run, "metrics.json")["test"]["ndcg@5"] == points[-1]["ndcg@5"]
    assert "NDCG@5" in (run / "report.html").read_text()


def assign_test(keys, share):
    from distfms.data.folds import assign_parts

    return assign_parts(keys, n_folds=0, test=share, seed=0) == 1


def test_scattered_queries_are_refused(tmp_path):
    columns = ranking_rows()
    order = np.random.default_rng(0).permutation(len(columns["q"]))
    shuffled = {name: np.array(values)[order].tolist() for name, values in columns.items()}
    folder = write_rows(tmp_path / "data", shuffled)
    with pytest.raises(DataError, match="do not follow one another") as caught:
        run_job(ranking_job(folder, tmp_path))
    assert caught.value.exit_code == 2


def test_ndcg_needs_grades(tmp_path):
    columns = ranking_rows()
    folder = write_rows(tmp_path / "data", {**columns, "grade": columns["grade"] - 1})
    with pytest.raises(DataError, match="NDCG is wanted because"):
        run_job(ranking_job(folder, tmp_path))


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_accuracy_of_binary_labels(tmp_path, low):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, 400))
    y = np.where(a + 0.5 * b + rng.normal(size=400) > 0, 1.0, low)
    weight = rng.uniform(0.5, 2, 400)
    rows = {"a": a, "b": b, "w": weight, "y": y}
    train, test = ({k: v[s] for k, v in rows.items()} for s in (slice(300), slice(300, None)))
    data = write_rows(tmp_path / "train", train)
    other = write_rows(tmp_path / "test", test)
    spec = mixed_job(
        data,
        tmp_path,
        data={"id": None, "weight": "w", "test": 0, "test_path": str(other), "folds": 0},
        sequence={"groups": {}, "costs": {}, "shared_costs": {}, "baselines": []},
    )
    folder = run_job(spec).folder
    weights, model = np.load(folder / "weights.npz"), content(folder, "model.json")
    X = np.column_stack([test[name] for name in model["feature_names"]])
    points = curve(content(folder, "metrics.json"), "fr")
    for k, point in enumerate(points):
        scores = X @ weights["coefficients"][k, :, 0] + weights["intercept"][k, 0]
        right = (scores > (1 + low) / 2) == (test["y"] > (1 + low) / 2)
        assert point["accuracy"] == pytest.approx(np.average(right, weights=test["w"]), rel=1e-12)
        assert point["validation"] is None
    assert content(folder, "metrics.json")["folds"] == []


# --- bad input ----------------------------------------------------------------------------------


def refused(spec):
    """Message of a job that is refused before anything is written."""
    with pytest.raises(DistfmsError) as caught:
        run_job(spec())
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {"bp": ["bp_lo"]}}, "'bp_lo' of group 'bp' is no feature column. Did you mean"),
        ({"groups": {"bp": ["y"]}}, "'y' of group 'bp' is no feature column"),
        ({"groups": {"bp": ["bp_*"], "two": ["bp_low"]}}, "groups must not overlap"),
        ({"costs": {"blod": 2}}, "'blod' in costs is no group. Did you mean 'blood'?"),
        ({"costs": {"bp": 0}}, "`sequence.costs.bp` is 0"),
        ({"costs": {"bp": -1}}, "`sequence.costs.bp` is -1"),
        ({"shared_costs": {"v": {"groups": ["nobody"], "cost": 1}}}, "'nobody' in shared cost 'v'"),
        ({"shared_costs": {"v": {"groups": [], "cost": 1}}}, "shared_costs.v.groups"),
        ({"criterion": "best"}, "`sequence.criterion` is 'best'"),
        ({"baselines": ["ompp"]}, "There is no rule `ompp`"),
        ({"ridge": -1}, "`sequence.ridge`"),
        ({"alpha": 1.5}, "`sequence.alpha`"),
        ({"grops": {}}, "Unknown key `sequence.grops`"),
        ({"cost_file": "nowhere.csv"}, "There is no cost file nowhere.csv"),
    ],
)
def test_bad_options(data, tmp_path, options, message):
    assert message in refused(lambda: mixed_job(data, tmp_path, sequence=options))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("group,price\nbp,2\n", "needs the columns 'group' and 'cost'"),
        ("group,cost\nbp,2\nbp,3\n", "names group 'bp' twice"),
        ("group,cost\nbp,0\n", "above 0"),
        ("group,cost\nbp,dear\n", "no number"),
        ("group,cost\nblod,1\n", "'blod' in costs is no group"),
    ],
)
def test_bad_cost_files(data, tmp_path, table, message):
    file = tmp_path / "costs.csv"
    file.write_text(table)
    options = {"cost_file": str(file), "costs": {}}
    assert message in refused(lambda: mixed_job(data, tmp_path / "runs", sequence=options))


@pytest.mark.parametrize(
    ("change", "section", "message"),
    [
        ({"y": np.ones(600)}, {}, "Target 'y' is constant"),
        ({}, {"query": "search"}, "no column 'search', named as `query`"),
        ({}, {"target": "z"}, "no column 'z'"),
        ({}, {"missing": "error"}, "missing value"),
        ({"y": np.full(600, np.nan)}, {}, "0 rows to train on"),
        ({"age": np.full(600, np.nan)}, {}, "All values are missing in 'age'"),
        ({"age": np.full(600, np.inf)}, {}, "infinite"),
    ],
)
def test_bad_data(columns, tmp_path, change, section, message):
    folder = write_rows(tmp_path / "data", {**columns, **change})
    text = refused(lambda: mixed_job(folder, tmp_path / "runs", data=section))
    assert message in text
    assert not list(tmp_path.glob("runs/mixed/*/selection.json"))


def test_the_command_line_says_it_in_one_line(data, tmp_path):
    content = {
        "name": "x",
        "method": "sequence",
        "data": {"path": str(data), "target": "y", "missing": "mean"},
        "sequence": {"groups": {"bp": ["bp_lo"]}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(content))
    for command in ("check", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "distfms.cli", command, "job.yaml"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("Error: 'bp_lo' of group 'bp'")
        assert done.stderr.count("\n") == 1


# --- optional parts -----------------------------------------------------------------------------


def test_without_celer_the_default_baseline_is_left_out_and_said(data, tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "_has_celer", lambda: False)
    folder = run_job(mixed_job(data, tmp_path, sequence={"baselines": None})).folder
    names = [c["name"] for c in content(folder, "metrics.json")["curves"]]
    assert names == ["fr", "omp", "fr-blind", "oracle"]
    assert any("celer" in note for note in content(folder, "manifest.json")["notes"])
    asked = {"baselines": ["sparse"]}
    with pytest.raises(SpecError, match="names sparse, which needs the package celer"):
        run_job(mixed_job(data, tmp_path, sequence=asked))


def test_with_celer_the_group_lasso_is_a_curve(data, tmp_path):
    pytest.importorskip("celer")
    folder = run_job(mixed_job(data, tmp_path, sequence={"baselines": None})).folder
    metrics = content(folder, "metrics.json")
    assert [c["name"] for c in metrics["curves"]] == ["fr", "omp", "fr-blind", "sparse", "oracle"]
    last = {c["name"]: c["points"][-1]["explained_variance"] for c in metrics["curves"]}
    assert last["sparse"] == pytest.approx(last["fr"], rel=1e-9)
    assert metrics["timeliness"]["sparse"]["timeliness"] < metrics["timeliness"]["fr"]["timeliness"]


@pytest.mark.realdata
def test_beijing_air_has_the_order_of_the_paper(realdata, tmp_path, monkeypatch):
    pytest.importorskip("celer")
    monkeypatch.setenv("DISTFMS_REALDATA", str(realdata))
    spec = load_spec(ROOT / "jobs" / "sequence-beijing.yaml", [f"output={tmp_path}"])
    folder = run_job(spec).folder
    manifest = content(folder, "manifest.json")
    assert manifest["dropped"] == {"rows": 8739}
    assert manifest["imputed"]["CO"] == 15162
    by_rule = content(folder, "metrics.json")["timeliness"]
    early = {name: entry["alpha_timeliness"] for name, entry in by_rule.items()}
    for name in ("omp", "omp-single", "omp-no-whiten"):
        assert early["oracle"] >= early["fr"] > early[name] > early["sparse"] > early["fr-blind"]
    assert early["fr"] > 0.99 * early["oracle"]
    held_out = by_rule["fr"]["test_alpha_timeliness"]
    assert held_out == pytest.approx(early["fr"], abs=0.01)


@pytest.mark.realdata
def test_heart_at_its_real_prices(realdata, tmp_path, monkeypatch):
    pytest.importorskip("celer")
    script = ROOT / "benchmarks" / "heart_data.py"
    made = tmp_path / "heart"
    command = [sys.executable, str(script), str(realdata / "heart"), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("920 patients, 13 tests")
    monkeypatch.setenv("DISTFMS_HEART", str(made))
    spec = load_spec(ROOT / "jobs" / "sequence-heart.yaml", [f"output={tmp_path}"])
    folder = run_job(spec).folder
    selection = content(folder, "selection.json")
    steps = {s["group"]: s["cost"] for s in selection["sequence"]}
    # The dearer price for the first of a set, the cheaper one for the others: the price list.
    assert sorted(steps[g] for g in ("exang", "oldpeak", "slope")) == [1.0, 1.0, 87.3]
    assert sorted(steps[g] for g in ("thal", "thalach")) == [1.0, 102.9]
    assert sum(steps.values()) == pytest.approx(323.97)
    by_rule = content(folder, "metrics.json")["timeliness"]
    assert by_rule["fr"]["timeliness"] > by_rule["sparse"]["timeliness"]
    assert content(folder, "metrics.json")["test"]["accuracy"] > 0.75
