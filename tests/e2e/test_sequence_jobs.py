"""Sequencing jobs of other kinds: ranking, binary labels, optional parts, real data."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import distfms
from distfms.data.rows.folds import assign_parts
from distfms.methods.frame import mapped
from distfms.methods.frame.judge import Judge
from distfms.methods.sequence.form import SequenceForm
from distfms.runs.driver import run_job
from distfms.runs.job_spec import load_spec
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import curve, mixed_job, mixed_rows, write_rows
from tests.reference.landmarks import mean_ndcg
from tests.reference.sequence import fitted, literal_sequence

ROOT = Path(__file__).resolve().parents[2]


PLAIN = {"groups": {}, "costs": {}, "shared_costs": {}, "baselines": []}


def graded(n_queries=60):
    """Six rows of each query with four features and a target of 1 or 2, and the target's score."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(6 * n_queries, 4)) @ (np.eye(4) + 0.4)
    score = X @ [0.2, 1.0, 0.0, 0.6] + rng.normal(size=len(X))
    columns = dict(zip("abcd", X.T, strict=True))
    query = [f"q{i // 6}" for i in range(len(X))]
    return {**columns, "q": query, "y": 1.0 + (score > 0.5)}


def natural(columns, rule, inside, outside):
    """Accuracy and NDCG@5 on rows of all prefixes of a rule's sequence of others, from the rows."""
    X = np.column_stack([columns[name] for name in "abcd"])
    y = columns["y"]
    mean = X[inside].mean(axis=0)
    scale = X[inside].std(axis=0)
    Z = (X - mean) / scale
    center = y[inside].mean()
    Y = (y - center)[:, None] / y[inside].std()
    groups = [[j] for j in range(4)]
    order = literal_sequence(rule, Z[inside], Y[inside], groups, lambda *_: 1.0, 1e-5).order
    results = []
    query = np.array(columns["q"])[outside]
    for k in range(5):
        w = fitted(Z[inside], Y[inside], order[:k], 1e-5) if k else np.zeros((0, 1))
        scores = center + y[inside].std() * (Z[outside][:, order[:k]] @ w)[:, 0]
        right = ((scores > 1.5) == (y[outside] == 2)).mean()
        results.append((right, mean_ndcg(scores, y[outside], query, 5)))
    return np.array(results)


def test_every_rule_is_judged_by_accuracy_and_ndcg_on_all_rows_in_one_pass(tmp_path, monkeypatch):
    columns = graded()
    passes = []
    judge = Judge.by_pass
    counted = staticmethod(lambda *args: passes.append(1) or judge(*args))
    monkeypatch.setattr(Judge, "by_pass", counted)
    data = write_rows(tmp_path / "data", columns, n_files=1)
    section = {"id": None, "query": "q", "missing": "error"}
    rules = ["omp", "omp-single", "fr-blind", "omp-blind", "random", "sparse", "oracle:random"]
    spec = mixed_job(data, tmp_path, data=section, sequence={**PLAIN, "baselines": rules})
    folder = run_job(spec).folder
    metrics = content(folder, "metrics.json")
    parts = assign_parts(np.array(columns["q"], object), n_folds=3, test=0.25, seed=0)
    for rule in ("fr", "omp-single"):
        points = curve(metrics, rule)
        rows = {"train": natural(columns, rule, parts < 3, parts < 3)}
        rows["test"] = natural(columns, rule, parts < 3, parts == 3)
        folds = [natural(columns, rule, (parts < 3) & (parts != f), parts == f) for f in range(3)]
        share = [(parts == f).sum() for f in range(3)]
        rows["validation"] = np.average(folds, axis=0, weights=share)
        for name, expected in rows.items():
            results = [[p[name]["accuracy"], p[name]["ndcg@5"]] for p in points]
            np.testing.assert_allclose(results, expected, rtol=1e-9)
        assert not np.allclose(rows["test"], rows["validation"], rtol=1e-3)
    assert [f["accuracy"] for f in metrics["folds"]] == pytest.approx([f[-1, 0] for f in folds])
    assert len(passes) == 1
    shares = [
        [point["train"]["explained_variance"] for point in curve(metrics, name)]
        for name in ("random", "oracle:random", "fr")
    ]
    gains = [np.sort(np.diff(own)) for own in shares]
    np.testing.assert_allclose(np.diff(shares[1])[::-1], gains[0])
    assert not np.allclose(gains[2], gains[0], rtol=1e-3)
    page = (folder / "report.html").read_text()
    assert "NDCG@5 of the chosen sequence" in page
    assert "Accuracy of the chosen sequence" in page


def trap(n=500):
    """Six cheap weak columns, one dear column that says nearly all, and targets of each kind."""
    rng = np.random.default_rng(0)
    strong, *weak = rng.normal(size=(7, n))
    score = 2.2 * strong + 0.7 * sum(weak)
    y = score + 0.3 * rng.normal(size=n)
    columns = {"strong": strong, **{f"weak{i}": own for i, own in enumerate(weak)}}
    columns |= {"gaussian": y, "logistic": (y > 1).astype(float)}
    columns |= {"softmax": np.digitize(y, [-4.0, 1.0]), "poisson": rng.poisson(np.exp(score / 4))}
    return {"id": [f"row-{i}" for i in range(n)], **columns}


@pytest.mark.parametrize(
    ("family", "folds"),
    [
        ("gaussian", 3),
        ("softmax", 3),
        ("poisson", 0),
        pytest.param("gaussian", 0, marks=pytest.mark.slow),
        pytest.param("logistic", 0, marks=pytest.mark.slow),
    ],
)
def test_a_budget_buys_the_dear_group_that_the_sequence_puts_after_cheap_ones(
    tmp_path, family, folds, read_columns
):
    columns = trap()
    data = write_rows(tmp_path / "data", columns)
    others = [name for name in ("gaussian", "logistic", "softmax", "poisson") if name != family]
    options = {
        "budgets": [2.0, 4.9, 24.0],
        "budget": 22.8,
        "costs": {"strong": 22.78},
        "family": family,
    }
    if family == "poisson":
        options["ridge"] = 0.01
    spec = mixed_job(
        data, tmp_path,
        data={"target": family, "exclude": others, "folds": folds, "missing": "error"},
        sequence={**PLAIN, **options},
    )  # fmt: skip
    run = run_job(spec).folder
    selection = content(run, "selection.json")
    metrics = content(run, "metrics.json")
    assert selection["sequence"][0]["group"].startswith("weak")
    assert [e["budget"] for e in metrics["budgets"]] == [2.0, 4.9, 22.8, 24.0]
    assert metrics["budgets"][-2]["model"] > 7
    assert metrics["stop"]["rule"] == "budget"
    for budget, wanted in ((4.5, {"weak"}), (22.8, {"strong"}), (24.0, {"strong", "weak"})):
        read_columns.clear()
        summary = predict_file(run, str(data), tmp_path / "p.parquet", budget=budget)
        assert {name.rstrip("012345") for name in read_columns - {"id"}} == wanted
        assert "selected for a budget" in summary or budget < 5
    # Between two budgets what the lower one does; by default what `budget` buys.
    kept = pq.read_table(tmp_path / "p.parquet")
    predict_file(run, str(data), tmp_path / "q.parquet", budget=24.5)
    assert pq.read_table(tmp_path / "q.parquet") == kept
    summary = predict_file(run, str(data), tmp_path / "r.parquet")
    assert "Each row costs 22.78, for 1 of 7 groups: what the budget pays for" in summary
    page = (run / "report.html").read_text()
    assert "the best groups for each budget" in page
    if family == "gaussian":
        # The model of the set is least squares on its column.
        model = content(run, "model.json")
        weights = np.load(run / "weights.npz")
        at = model["feature_names"].index("strong")
        used = np.flatnonzero(weights["coefficients"][metrics["budgets"][2]["model"], :, 0])
        assert used.tolist() == [at]


@pytest.mark.parametrize("family", ["gaussian", "logistic"])
def test_a_derived_group_comes_after_what_it_is_computed_from(tmp_path, family):
    rng = np.random.default_rng(1)
    tt4, t4u, tsh, age = rng.normal(2.0, 0.3, size=(4, 400))
    y = tt4 / t4u + 0.1 * tsh
    columns = {"fti": tt4 / t4u, "age": age, "tsh": tsh, "t4u": t4u, "tt4": tt4}
    columns["y"] = y if family == "gaussian" else (y > np.median(y)).astype(float)
    data = write_rows(tmp_path / "data", columns)
    options = {
        "costs": {"tt4": 14.51, "t4u": 11.41, "tsh": 22.78},
        "requires": {"fti": ["tt4", "t4u"]},
        "budgets": [26.0],
        "family": family,
        "ridge": 0.01,
    }
    spec = mixed_job(
        data, tmp_path, data={"id": None, "test": 0, "folds": 0, "missing": "error"},
        sequence={**PLAIN, **options},
    )  # fmt: skip
    run = run_job(spec)
    selection = content(run.folder, "selection.json")
    steps = {step["group"]: step["cost"] for step in selection["sequence"]}
    places = {name: place for place, name in enumerate(steps)}
    assert places["fti"] == 1 + max(places["tt4"], places["t4u"])
    assert [steps[n] for n in ("tt4", "t4u", "fti")] == pytest.approx([14.51, 11.41, 0.0])
    assert selection["budgets"][0]["sequence"][-1]["spent"] == pytest.approx(25.92)
    assert selection["costs"]["fti"] == pytest.approx(25.92)
    session = distfms.load_estimator(run.folder).anytime() if family == "gaussian" else None
    while session is not None and session.next_group() != "fti":
        session.deliver(session.next_group(), 2.0)
    assert session is None or session.spent >= 25.92


@pytest.mark.parametrize("has_files", [False, True])
def test_numbers_become_piecewise_linear_within_their_groups(tmp_path, monkeypatch, has_files):
    columns = mixed_rows()
    columns["y"] += np.abs(np.asarray(columns["age"]) - 100.0)
    data = write_rows(tmp_path / "data", columns)
    options = {"expand": {"splines": 4, "missing": True}, "ridge": 1e-4, "baselines": []}
    if has_files:
        monkeypatch.setattr(mapped, "ONE_PROCESS_BYTES", 0)
        monkeypatch.setattr(mapped, "PASS_ROWS", 8)
        monkeypatch.setattr(SequenceForm, "models_bytes", 0)
        options |= {"max_groups": 5}
    spec = mixed_job(data, tmp_path, data={"folds": 0}, sequence=options)
    run = run_job(spec).folder
    notes = content(run, "manifest.json")["notes"]
    assert any("mapped files" in note for note in notes) == has_files
    model = content(run, "model.json")
    weights = np.load(run / "weights.npz")
    test = assign_parts(np.array(columns["id"], object), n_folds=0, test=0.25, seed=0) == 1
    known = ~np.isnan(columns["y"])
    values = {"still": columns["still"]}
    for name in ("bp_low", "bp_high", "age", "scan", "blood"):
        x = columns[name]
        own = model["sources"][name]
        train = x[known & ~test & ~np.isnan(x)]
        quantiles = np.quantile(train, [0.2, 0.4, 0.6, 0.8], method="inverted_cdf")
        assert own["knots"] == pytest.approx(quantiles)
        assert own["missing"] == (name == "scan")
        assert own["limits"] == [train.min(), train.max()]
        x = np.clip(x, *own["limits"])
        values[name] = x
        values[f"{name} missing"] = np.isnan(x).astype(float)
        values |= {f"{name}>{knot!r}": np.maximum(x - knot, 0.0) for knot in own["knots"]}
    ward = np.array(columns["ward"], object)
    absent = ward == None  # noqa: E711
    values |= {f"ward={w}": np.where(absent, np.nan, ward == w) for w in ("east", "north", "west")}
    values["ward missing"] = absent.astype(float)
    # All columns of a group are bought, and paid for, together.
    steps = content(run, "selection.json")["sequence"]
    assert [len(step["columns"]) for step in steps if step["group"] == "bp"] == [2]
    assert len(steps) == 5
    names = model["feature_names"]
    X = np.column_stack([values[name] for name in names]).astype(float)
    fill = np.nanmean(X[known & ~test], axis=0)
    filled = np.where(np.isnan(X), fill, X)
    expected = filled @ weights["coefficients"][-1, :, 0] + weights["intercept"][-1, 0]
    predict_file(run, str(data), tmp_path / "p.parquet", budget=1e9)
    found = pq.read_table(tmp_path / "p.parquet").column("predicted_y").to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.realdata
def test_heart_at_its_real_prices(realdata, tmp_path, monkeypatch):
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
    assert by_rule["fr"]["timeliness"] > by_rule["fr-blind"]["timeliness"]
    assert content(folder, "metrics.json")["test"]["accuracy"] > 0.75


@pytest.mark.parametrize(("n_codes", "told"), [(36, True), (35, False)])
def test_text_that_looks_like_an_identifier_is_told(tmp_path, n_codes, told):
    rng = np.random.default_rng(5)
    columns = {"code": [f"c{i % n_codes}" for i in range(40)], "a": rng.normal(size=40)}
    columns["ward"] = ["east", "west"] * 20
    data = write_rows(tmp_path / "rows", columns | {"y": columns["a"] + rng.normal(size=40)})
    section = {"id": None, "folds": 0, "test": 0}
    folder = run_job(mixed_job(data, tmp_path, data=section, sequence=PLAIN)).folder
    notes = content(folder, "manifest.json")["notes"]
    results = [note for note in notes if "looks like an identifier" in note]
    assert len(results) == told
    assert all(f"'code' has {n_codes} different values in 40 rows" in note for note in results)
