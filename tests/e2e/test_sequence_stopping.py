"""Rows that stop where they need no more, from a job to predictions and sessions."""

import json
import re
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss

import distfms
from distfms.errors import SpecError
from distfms.runs.finished import open_run
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content, run_on
from tests.unit.report.checks import plain

COSTS = {"a": 1.0, "b": 2.0, "c": 10.0, "d": 3.0}


def rows(n, seed):
    """Two classes: `a` is clear for most rows, `c` for all, `d` says nothing."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    sign = 2 * y - 1
    clear = rng.random(n) < 0.75
    columns = {"id": np.arange(n) + 10**6 * seed, "a": clear * sign * 2 + 0.6 * rng.normal(size=n)}
    columns |= {"b": 0.7 * sign + rng.normal(size=n), "c": 1.5 * sign + rng.normal(size=n)}
    return pa.table({**columns, "d": rng.normal(size=n), "y": y})


def job(folder, n=2500, **sequence):
    (data := folder / "data").mkdir(exist_ok=True, parents=True)
    if not list(data.iterdir()):
        for part in range(2):
            pq.write_table(rows(n, part + 1), data / f"{part}.parquet")
    options = {"family": "logistic", "costs": COSTS, "ridge": 1e-3, "baselines": [], **sequence}
    return run_on(data, folder, "sequence", options, {"id": "id", "folds": 4, "test": 0.2})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopping")
    pq.write_table(rows(6000, 9), folder / "new.parquet")
    return job(folder), folder / "new.parquet"


def predicted(run, data, out, **how):
    summary = predict_file(run, str(data), out, **how)
    return pq.read_table(out), summary


def loss_of(table, data):
    truth = pq.read_table(data)["y"].to_numpy()
    return log_loss(truth, table["probability_1"].to_numpy())


def test_the_loss_of_the_prefix_costs_less_row_by_row(finished, tmp_path):
    run, data = finished
    own = content(run, "metrics.json")["stop"]["rows"]
    assert own["advised"]
    found, said = predicted(run, data, tmp_path / "p.parquet", stop="rows")
    cost, n_groups = (found[name].to_numpy() for name in ("cost", "n_groups"))
    claim = own["validation"]
    prefix = own["prefix"]
    assert cost.mean() == pytest.approx(claim["mean_cost"], abs=4 * claim["error_of_mean_cost"])
    assert cost.mean() < 0.75 * prefix["budget"]
    assert loss_of(found, data) == pytest.approx(
        claim["log_loss"], abs=5 * claim["error_of_log_loss"]
    )
    whole, _ = predicted(run, data, tmp_path / "w.parquet")
    assert loss_of(found, data) < loss_of(whole, data) + 0.015
    assert "columns read: a, b, c, id;" not in said
    assert f"Rows that stop after 1 group: {(n_groups == 1).sum():,}" in said
    # Each row has the prediction of the prefix at which it stopped.
    spent = np.array([0.0, *(s["spent"] for s in content(run, "selection.json")["sequence"])])
    np.testing.assert_array_equal(cost, spent[n_groups])
    for k in np.unique(n_groups):
        at = predicted(run, data, tmp_path / "k.parquet", budget=spent[k])[0]
        np.testing.assert_allclose(
            found["probability_1"].to_numpy()[n_groups == k],
            at["probability_1"].to_numpy()[n_groups == k],
            rtol=1e-12,
        )
    method, opened = open_run(run)
    text = plain(method.headline(opened))
    said = r"\nStopping row by row does as well for [\d.]+ ± [\d.]+% of that cost: \d+% of rows"
    assert re.search(said, text)
    assert "Where each row stops" in method.page(opened)


def test_services_estimators_and_sessions_stop_alike(finished, tmp_path):
    run, data = finished
    table = pq.read_table(data).slice(0, 300)
    costs = [policy["mean_cost"] for policy in content(run, "model.json")["stopping"]["policies"]]
    within = max(cost for cost in costs if cost <= 4.0)
    options = {"stop": "rows", "mean_budget": 4.0}
    file, said = predicted(run, data, tmp_path / "p.parquet", **options)
    assert f"at a mean cost of {within:.4g} on rows of the folds" in said
    assert file["cost"].to_numpy().mean() == pytest.approx(within, abs=0.2)
    model = distfms.load(run)
    estimator = distfms.load_estimator(run)
    frame = table.to_pandas().drop(columns=["y", "id"])
    cost = file["cost"].to_numpy()[:300]
    share = file["probability_1"].to_numpy()[:300]
    np.testing.assert_array_equal(model.row_costs(frame, mean_budget=4.0), cost)
    np.testing.assert_array_equal(estimator.row_costs(frame, mean_budget=4.0), cost)
    np.testing.assert_allclose(estimator.predict_proba(frame, **options)[:, 1], share, rtol=1e-12)
    np.testing.assert_array_equal(estimator.predict(frame, **options), share >= 0.5)
    for start in (model.anytime, estimator.anytime):
        for row in range(20):
            session = start(**options)
            while (group := session.next_group()) is not None:
                session.deliver(group, estimator.group_values(group, frame.iloc[[row]]))
            assert session.spent == cost[row]
            assert session.prediction[0] == pytest.approx(share[row], rel=1e-12)
    capped = model.predict(frame, stop="rows", confidence=0.95, budget=3.0)
    sure = np.maximum(capped["probability_0"], capped["probability_1"]) >= 0.95
    assert capped["cost"].max() == 3.0
    assert (sure | (capped["n_groups"] == 2)).all()
    # A budget decides which columns can be needed.
    model.predict(frame[["a", "b"]], stop="rows", budget=3.0)
    for wrong, text in (
        ({"mean_budget": 3.0}, "stop='rows'"),
        ({"stop": "row"}, "choose from"),
        ({"stop": "rows", "confidence": 1.5}, "above 0"),
        ({"stop": "rows", "mean_budget": 3.0, "confidence": 0.9}, "one of them"),
        ({"stop": "rows", "mean_budget": -1.0}, "at least 0"),
    ):
        with pytest.raises(SpecError, match=text):
            model.predict(frame, **wrong)


def test_wrong_classes_have_costs_and_trees_may_stop(finished, tmp_path):
    _, data = finished
    options = {"model": "lightgbm", "lightgbm": {"num_iterations": 20}}
    run = job(tmp_path, threshold={"cost": [1, 5]}, **options)
    metrics = content(run, "metrics.json")
    model = content(run, "model.json")
    own = metrics["stop"]["rows"]
    assert own["measure"] == "error_cost"
    assert own["advised"]
    assert model["stopping"]["stages"] == [0, 1, 2, 3, 4]
    found, _ = predicted(run, data, tmp_path / "p.parquet", stop="rows")
    truth = pq.read_table(data)["y"].to_numpy()
    place = found["predicted_y"].to_numpy()
    loss = ((place > truth) + 5.0 * (place < truth)).mean()
    assert loss == pytest.approx(own["validation"]["error_cost"], abs=0.06)
    first = metrics["stopping"][0]
    assert first["mean_cost"] == 0
    assert first["share"][0] == 1
    # Without any group a miss of every third row costs 5, or a false alarm of the others 1.
    assert first["test"]["error_cost"] == pytest.approx(0.7, abs=0.06)
    assert json.loads(json.dumps(metrics)) == metrics


@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({}, True),
        ({"mean_cost": 14.0}, False),
        ({"log_loss": 0.9}, False),
        ({"mean_cost": 17.0, "log_loss": 0.9}, False),
    ],
)
def test_only_good_news_of_rows_is_in_the_headline(finished, changes, is_news):
    method, opened = open_run(finished[0])
    stop = deepcopy(opened.metrics["stop"])
    stop["rows"]["validation"] |= changes
    told = replace(opened, metrics={**opened.metrics, "stop": stop})
    assert ("row by row" in method.headline(told)) == is_news
    assert ("a greater log loss" in plain(method.page(told))) == ("log_loss" in changes)


def test_models_that_do_not_know_say_so(tmp_path):
    run = job(tmp_path, 60, family="gaussian")
    assert "stopping" not in content(run, "model.json")
    assert "rows" not in content(run, "metrics.json")["stop"]
    with pytest.raises(SpecError, match="where single rows should stop"):
        distfms.load(run).predict(rows(10, 3), stop="rows")
