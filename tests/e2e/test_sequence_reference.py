"""Boosted trees on all columns beside a sequence, and the kind of model that folds choose."""

import re

import lightgbm
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from distfms import GroupSequencer
from distfms.data.rows.folds import assign_parts
from distfms.errors import SpecError
from distfms.methods.sequence import form
from distfms.methods.sequence.problem import Ladder
from distfms.runs.driver import run_job
from distfms.runs.finished import headline
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from distfms.solve.trees import DEFAULTS, FIXED
from tests.e2e.jobs import content, spec_of

OWN = {"num_iterations": 20, "min_data_in_leaf": 5}
TARGETS = {"gaussian": "bent", "logistic": "flag", "softmax": "kind", "poisson": "count"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of four numbers; targets bend in them, but `flat`; two cross in `crossed`."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({name: rng.normal(size=n) for name in "abcd"})
    score = np.square(frame["a"]) + frame["b"] + np.abs(frame["c"])
    frame["bent"] = score + 0.2 * rng.normal(size=n)
    frame["flat"] = frame["a"] + frame["b"] + 0.2 * rng.normal(size=n)
    frame["flag"] = (frame["bent"] > 1.5).astype(float)
    frame["kind"] = np.digitize(frame["bent"], [1.0, 2.5])
    frame["count"] = rng.poisson(np.exp(score / 2))
    frame["id"] = np.arange(n)
    frame["crossed"] = np.sign(frame["a"]) * frame["b"] + 0.3 * frame["d"]
    frame["same"] = (frame["crossed"] > 0).astype(float)
    frame["above"] = (frame["flat"] > 0).astype(float)
    path = tmp_path_factory.mktemp("bent") / "rows.parquet"
    frame.to_parquet(path)
    return path, frame


def job(rows, output, target="bent", **changes):
    data = {"path": str(rows[0]), "target": target, "id": "id", "features": list("abcd")}
    made = {"name": "beside", "method": "sequence", "data": {**data, "folds": 3, "test": 0.25}}
    options = {"ridge": 1e-3, "model": "linear", "lightgbm": OWN, **changes.pop("sequence", {})}
    made |= {"sequence": options, "engine": {"workers": 1}, "output": str(output)}
    return spec_of(made, changes)


def run(rows, output, target="bent", **changes):
    return run_job(job(rows, output, target, **changes), out=output / "run").folder


@pytest.mark.parametrize("family", TARGETS)
def test_the_reference_is_lightgbm_on_all_columns(rows, tmp_path, family):
    folder = run(rows, tmp_path, TARGETS[family], sequence={"family": family})
    found, (_, frame) = content(folder, "metrics.json")["reference"], rows
    parts = assign_parts(frame["id"].to_numpy(), n_folds=3, test=0.25, seed=0)
    y = frame[TARGETS[family]].to_numpy(float)
    X = frame[list("abcd")].to_numpy()
    objective = {"logistic": "binary", "softmax": "multiclass", "poisson": "poisson"}
    parameters = {**DEFAULTS, **FIXED, **OWN, "objective": objective.get(family, "regression")}
    parameters |= {"num_class": 3} if family == "softmax" else {}

    def loss(predicted, own):
        if family == "gaussian":
            return np.mean(np.square(y[own] - predicted))
        if family == "poisson":
            logs = np.log(np.where(y[own] > 0, y[own] / predicted, 1.0))
            return np.mean(2 * (y[own] * logs - y[own] + predicted))
        shares = predicted if family == "softmax" else np.column_stack([1 - predicted, predicted])
        return -2 * np.mean(np.log(shares[np.arange(own.sum()), y[own].astype(int)]))

    share = "explained_variance" if family == "gaussian" else "explained_deviance"
    # Of classes the null model is that of all training rows. Shares are those of all folds
    # together, to first order.
    all_train = np.flatnonzero(parts != 3)
    losses = []
    nulls = []
    for fold in range(4):
        train = (parts != fold) & (parts != 3)
        own = np.concatenate([np.flatnonzero(train & (parts == p)) for p in range(3)])
        model = lightgbm.train(parameters, lightgbm.Dataset(X[own], y[own]))
        own = all_train if family in ("logistic", "softmax") else own
        null = np.bincount(frame["kind"][own]) / len(own) if family == "softmax" else y[own].mean()
        held_out = parts == fold
        n = held_out.sum()
        null = np.tile(null, (n, 1)) if family == "softmax" else np.full(n, null)
        losses.append(loss(model.predict(X[held_out]), held_out))
        nulls.append(loss(null, held_out))
    expected = 1 - np.array(losses) / nulls
    sizes = np.bincount(parts)[:3]
    part = sizes / sizes.sum()
    of_folds, of_null = np.array([losses, nulls])[:, :3]
    mean = of_null @ part
    left = of_folds @ part / mean
    away = (of_folds - left * of_null) / of_null.clip(mean / 2, mean)
    expected[:3] = 1 - left - away + away @ part
    assert [entry[share] for entry in (*found["folds"], found["test"])] == pytest.approx(
        expected, rel=1e-6
    )
    assert (found["n_trees"], found["n_train"]) == (20, len(all_train))


def test_far_from_trees_the_headline_and_the_report_say_what_to_set(rows, tmp_path):
    folder = run(rows, tmp_path / "bent")
    text = headline(folder)
    assert "; LightGBM on all columns " in text
    assert text.endswith(": try `model: lightgbm`.")
    results = content(folder, "metrics.json")["reference"]
    assert results["more"] > 2 * results["standard_error"] > 0
    near = run(rows, tmp_path / "flat", "flat")
    assert "; LightGBM on all columns " in headline(near)
    assert "model: lightgbm" not in headline(near) + (near / "report.html").read_text()
    # Held-out rows alone say it too; of baselines that are named it has to be one.
    alone = run(rows, tmp_path / "alone", data={"folds": 0})
    assert headline(alone).endswith(": try `model: lightgbm`.")
    none = run(rows, tmp_path / "none", sequence={"baselines": ["omp"]})
    assert "reference" not in content(none, "metrics.json")
    with pytest.raises(SpecError, match="LightGBM takes one target"):
        prepare(job(rows, tmp_path, ["bent", "flat"], sequence={"baselines": ["lightgbm"]}))


@pytest.mark.parametrize(
    ("target", "family", "kind"),
    [
        ("crossed", "gaussian", {"model": "lightgbm"}),
        ("flat", "gaussian", {"model": "linear"}),
        pytest.param(
            *("bent", "gaussian", {"model": "linear", "expand": {"splines": 5}}),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("same", "logistic", {"model": "lightgbm", "criterion": "fr"}), marks=pytest.mark.slow
        ),
        ("flag", "logistic", {"model": "linear", "expand": {"splines": 5}}),
    ],
)
def test_folds_choose_the_kind_of_model(rows, tmp_path, target, family, kind):
    options = {"family": family, "baselines": [], **kind}
    plain = run(rows, tmp_path / "plain", target, sequence=options)
    options |= {"model": "auto", "expand": "auto"}
    auto = run(rows, tmp_path / "auto", target, sequence=options)
    said = ", ".join(f"<code>{n}: {v}</code>" for n, v in kind.items()).replace("'", "")
    report = (auto / "report.html").read_text()
    assert re.search(f"Chosen by cross-validation, on [^:]*: {said}.*, explaining ", report)
    models = [content(folder, "model.json") for folder in (auto, plain)]
    stops = [model["stop"] for model in models]
    assert stops[0]["n_groups"] == stops[1]["n_groups"]
    assert stops[0]["rule"] == stops[1]["rule"]
    tables = []
    for folder in (auto, plain):
        predict_file(folder, str(rows[0]), folder / "p.parquet", budget=3)
        tables.append(pq.read_table(folder / "p.parquet").to_pandas())
    # Statistics of splines that were chosen are of the rows in memory.
    pd.testing.assert_frame_equal(*tables, rtol=1e-9)


def test_without_folds_models_are_linear_and_estimators_resolve_them(rows, tmp_path):
    spec = job(rows, tmp_path, data={"folds": 0}, sequence={"model": "auto"})
    assert "`sequence.model: auto` compares on folds" in prepare(spec).describe()["model"]
    _, frame = rows
    X = frame[list("abcd")]
    y = frame["crossed"]
    results = [
        GroupSequencer(model=m, lightgbm=OWN, folds=3).fit(X, y) for m in ("auto", "lightgbm")
    ]
    np.testing.assert_array_equal(*(model.predict(X) for model in results))


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("compares models of one target", {"data": {"target": ["bent", "flat"]}}),
        ("that count less with age", {"retrain": {"forget": {"half_life": "3 partitions"}}}),
        ("compares up to 100 rows and 1,000 columns", {}),
    ],
)
def test_jobs_that_compare_no_trees_say_why(rows, tmp_path, monkeypatch, why, changes):
    if not changes:
        monkeypatch.setattr(form, "MOST_ROWS", 100)
    results = prepare(job(rows, tmp_path, sequence={"model": "auto"}, **changes)).describe()[
        "model"
    ]
    assert results.startswith("linear: `sequence.model: auto` ")
    assert why in results


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Rows whose target depends on two numbers together, on neither alone, and on a third."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(1200, 8)), columns=list("abcdefgh"))
    noise = 0.1 * rng.normal(size=1200)
    frame["y"] = np.sign(frame["g"]) * frame["h"] + 0.3 * frame["a"] + noise
    path = tmp_path_factory.mktemp("hidden") / "rows.parquet"
    frame.to_parquet(path)
    return path, frame


def test_folds_choose_the_order_that_trees_know(hidden, tmp_path):
    data = {"id": None, "features": list("abcdefgh")}
    auto = run(hidden, tmp_path / "auto", "y", data=data, sequence={"model": "auto"})
    selection = content(auto, "selection.json")
    assert selection["criterion"] == "gain"
    assert [step["group"] for step in selection["sequence"][:3]] == ["h", "g", "a"]
    assert "more than LightGBM in the order of linear models" in (auto / "report.html").read_text()
    assert content(auto, "metrics.json")["stop"]["n_groups"] in (2, 3)
    # The order of linear models, and of splines, finds the two only by chance.
    own = {"model": "lightgbm", "criterion": "fr"}
    plain = run(hidden, tmp_path / "plain", "y", data=data, sequence=own)
    points = [content(own, "metrics.json")["curves"][0]["points"] for own in (auto, plain)]
    explained = [own[3]["test"]["explained_variance"] for own in points]
    assert explained[0] > explained[1] + 0.2
    with pytest.raises(SpecError, match="gain` is for `model: lightgbm`"):
        prepare(job(hidden, tmp_path, "y", data=data, sequence={"criterion": "gain"}))


def test_few_prefixes_and_those_that_budgets_pay_for():
    assert Ladder("few").numbers(12) == list(range(1, 13))
    assert Ladder("few").numbers(26) == [1, 2, 3, 4, 6, 8, 11, 14, 19, 26]
    few = Ladder("few", budgets=(7.0, 20.5))
    assert few.of_path(np.arange(1.0, 27)) == [1, 2, 3, 4, 6, 7, 8, 11, 14, 19, 20, 26]


def test_a_budget_that_buys_nothing_of_use_is_said(rows, tmp_path):
    costs = {"default": 1.0, "a": 9.0, "b": 9.0, "c": 9.0}
    folder = run(rows, tmp_path, sequence={"costs": costs, "budget": 0.5})
    assert headline(folder).startswith("The budget buys nothing of use: no group predicts")
