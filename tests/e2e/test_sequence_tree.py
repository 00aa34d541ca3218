"""A tree of sequences from a spec to predictions, sessions, estimators and the report."""

import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import distfms
from distfms.errors import SpecError
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.sequence import read_contexts
from distfms.methods.sequence.tree import SequenceTree, TreeSession
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content, results
from tests.e2e.retrain_jobs import again, retraining
from tests.e2e.sequence_jobs import context_job, context_rows, write_rows
from tests.unit.report.checks import plain


@pytest.fixture(scope="module")
def rows():
    return context_rows()


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("contexts") / "rows", rows)


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return run_job(context_job(data, tmp_path_factory.mktemp("runs"))).folder


def test_the_context_is_found_and_each_leaf_has_its_own_order(run, look):
    selection, metrics = content(run, "selection.json"), content(run, "metrics.json")
    own = selection["contexts"]
    assert (own["root"], own["cost"]) == (["site"], 0.5)
    assert {leaf["name"] for leaf in own["leaves"]} == {f"site = {s}" for s in "abc"}
    for leaf in own["leaves"]:
        place = 2 * "abc".index(leaf["name"][-1])
        groups = [s["group"] for s in leaf["sequence"] if s["group"] != "site"]
        assert groups[:2] == [f"x{place}", f"x{place + 1}"]
        assert leaf["costs"]["site"] == 0
    compared = {entry["budget"]: entry for entry in metrics["contexts"]["budgets"]}
    at = compared[max(budget for budget in compared if budget < 4)]
    assert at["tree"]["test"]["explained_variance"] > 0.9
    assert at["one"]["test"]["explained_variance"] < 0.5
    assert metrics["contexts"]["default"]["better"]
    report = (run / "report.html").read_text()
    assert "For whom which order" in report
    text = r"site first, then by its values one of 3 sequences: together they explain \S+ ± \S+ %.*"
    assert re.search(text + r", one sequence for all rows \S+ ± \S+ %", plain(report))
    look(run / "report.html", 4)


def explained(found, truth):
    return 1 - np.mean((found - truth) ** 2) / np.var(truth)


@pytest.mark.parametrize("budget", [None, 1.0, 1.5, 2.5, 6.5])
def test_predictions_sessions_and_estimators_agree_row_by_row(run, tmp_path, budget):
    fresh = context_rows(60, seed=5)
    frame = pd.DataFrame(fresh).drop(columns=["id", "y"])
    write_rows(tmp_path / "rows", fresh, n_files=1)
    said = predict_file(run, str(tmp_path / "rows"), tmp_path / "out.parquet", budget=budget)
    found = pq.read_table(tmp_path / "out.parquet").column("predicted_y").to_numpy()
    estimator = distfms.load_estimator(run)
    np.testing.assert_array_equal(estimator.predict(frame, budget=budget), found)
    tree = SequenceTree.of(estimator.model_.run)
    assert tree.applies(budget) == ("then the sequence of its leaf" in said)
    assert tree.applies(budget) == (budget not in (1.0, 1.5))  # one is as good there
    if budget is None or budget >= 2.5:
        assert explained(found, fresh["y"]) > 0.8
    for number in range(0, 60, 7):
        session, row = estimator.anytime(), frame.iloc[[number]]
        assert isinstance(session, TreeSession)
        assert session.next_group() == "site"
        compute = {
            g: lambda g=g, row=row: estimator.group_values(g, row) for g in estimator.sequence_
        }
        if budget is not None:
            session.run(compute, budget=budget)
            assert session.prediction[0] == pytest.approx(found[number], rel=1e-9, abs=1e-9)
            assert session.spent <= budget
            assert (session.leaf is not None) == tree.applies(budget)


def test_what_is_asked_for_next_depends_on_what_was_told(run):
    estimator = distfms.load_estimator(run)
    orders = {}
    for site in "abc":
        session = estimator.anytime()
        session.deliver("x4", 1.0)  # ahead of its turn
        session.deliver("site", estimator.group_values("site", pd.DataFrame({"site": [site]})))
        orders[site] = session.next_group()
    assert (orders["a"], orders["b"], orders["c"]) == ("x0", "x2", "x5")
    together = estimator.anytime(n_samples=2)
    assert not isinstance(together, TreeSession)


def test_no_tree_where_nothing_is_gained(tmp_path):
    columns = context_rows(seed=1)
    rng = np.random.default_rng(1)
    numbers = np.column_stack([columns[f"x{j}"] for j in range(6)])
    columns["y"] = numbers @ rng.normal(size=6) + rng.normal(size=len(numbers))
    data = write_rows(tmp_path / "rows", columns)
    auto = run_job(context_job(data, tmp_path / "auto")).folder
    none = run_job(context_job(data, tmp_path / "none", sequence={"contexts": "none"})).folder
    found, expected = results(auto), results(none)
    assert {name: found[name] for name in expected} == expected
    steps = [entry["name"] for entry in content(auto, "manifest.json")["stages"]]
    assert "contexts" in steps
    assert not any(name.startswith("leaf") for name in steps)


@pytest.mark.parametrize("kind", ["an order for each site", "columns that interact"])
def test_leaves_have_trees_where_these_explain_more_than_trees_of_all_rows(kind, tmp_path):
    columns = context_rows()
    if kind == "columns that interact":
        x, z = columns["x0"], columns["x1"]
        columns["y"] = 2 * x + (1 + np.sign(x)) * z + 0.3 * columns["x2"]
    data = write_rows(tmp_path / "rows", columns)
    trees = {"num_iterations": 15, "learning_rate": 0.3, "num_leaves": 7}
    own = {"model": "lightgbm", "lightgbm": trees, "prefixes": (3,), "criterion": "fr"}
    folder = run_job(context_job(data, tmp_path / "trees", sequence=own)).folder
    steps = [entry["name"] for entry in content(folder, "manifest.json")["stages"]]
    assert ("leaf 1 models" in steps) == (kind == "an order for each site")
    if "tree" in steps:
        assert content(folder, "selection.json")["contexts"]["root"] == ["site"]
    else:
        linear = run_job(context_job(data, tmp_path / "linear")).folder
        assert content(linear, "selection.json")["contexts"]["root"] == ["x0"]


def test_a_column_that_is_named_is_the_context(data, tmp_path):
    folder = run_job(context_job(data, tmp_path, sequence={"contexts": {"column": "x1"}})).folder
    leaves = content(folder, "selection.json")["contexts"]
    assert leaves["root"] == ["x1"]
    assert all("x1" in leaf["name"] for leaf in leaves["leaves"])
    with pytest.raises(SpecError, match=r"`sequence.contexts` names the column 'x9'"):
        prepare(context_job(data, tmp_path, sequence={"contexts": {"column": "x9"}}))
    with pytest.raises(SpecError, match=r"`sequence.contexts` names the column 'site', but"):
        prepare(
            context_job(
                data, tmp_path, data={"folds": 0}, sequence={"contexts": {"column": "site"}}
            )
        )


def test_partials_by_leaf_are_of_the_classes_there_are(tmp_path, monkeypatch):
    """Another class of the target makes other indicators, of which no earlier partial knows."""
    columns, known = context_rows(), []

    class Recorded(SummaryReader):
        def key(self):
            known.append(self.known)
            return super().key()

    monkeypatch.setattr(read_contexts, "SummaryReader", Recorded)
    columns["kind"] = np.digitize(columns.pop("y"), [-1.0, 1.0])
    data = write_rows(tmp_path / "rows", columns)
    own = {"family": "softmax", "prefixes": (1,), "contexts": {"column": "site"}}
    run_job(context_job(data, tmp_path, data={"target": "kind"}, sequence=own))
    assert {tuple(own["classes"]) for own in known if "leaves" in own} == {(0.0, 1.0, 2.0)}


def test_a_tree_in_place_is_judged_by_its_predictions(tmp_path):
    data = write_rows(tmp_path / "rows", context_rows())
    # By default a retraining looks for none, as it reads only new partitions.
    own = {"contexts": {"column": "site"}}
    spec = context_job(data, tmp_path / "runs", sequence=own)
    assert again(spec).promoted
    write_rows(data / "more", context_rows(400, seed=3), n_files=1)
    (data / "more" / "part-0.parquet").rename(data / "part-9.parquet")
    for compared in retraining(again(spec))["compared"]:
        # One sequence leaves five, and all groups of it four.
        assert max(compared["in_place"], compared["new"]) < 0.3


def test_rows_of_a_leaf_stop_one_by_one(tmp_path):
    columns = context_rows(n_sites=2)
    columns["y"] = np.where(columns["y"] > 0, "yes", "no")
    data = write_rows(tmp_path / "rows", columns)
    options = {"family": "logistic", "ridge": 1e-3, "contexts": {"column": "site"}}
    folder = run_job(context_job(data, tmp_path / "runs", sequence=options)).folder
    estimator = distfms.load_estimator(folder)
    fresh = pd.DataFrame(context_rows(60, seed=5, n_sites=2)).drop(columns=["id", "y"])
    stop = {"stop": "rows", "mean_budget": 2.0}
    shares, costs = estimator.predict_proba(fresh, **stop), estimator.row_costs(fresh, **stop)
    assert len(np.unique(costs)) > 1
    for number in range(0, 60, 7):
        session, row = estimator.anytime(**stop), fresh.iloc[[number]]
        while (group := session.next_group()) is not None:
            session.deliver(group, estimator.group_values(group, row))
        assert session.spent == costs[number]
        assert session.prediction[0] == pytest.approx(shares[number, 1], rel=1e-9)
