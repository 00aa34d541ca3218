"""The numbers of a multi-selection run against formulas written out, on awkward data."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.methods.multiselect.choices import RIDGES, candidates, rule_of
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.runs.finished import headline
from distfms.solve import buying as objective
from tests.e2e.multiselect_jobs import lists, notes, objects, run, write
from tests.reference.multiselect_rows import Independent

BASELINES = ["full", "scoring", "averages", "copies"]


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Weighted objects in three files, some ids twice, 0 to 3 judgments a cell."""
    rng = np.random.default_rng(5)
    n = 90
    d = 4
    truth = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * np.eye(d, k=1)) * 2
    label = truth @ [1, 2, -1, 0.5] + 0.5 * rng.normal(size=n) + 100
    judgments = [
        [
            (truth[i, a] + rng.normal(size=rng.choice([0, 1, 2, 3, 3, 3])) * (1 + a)).tolist()
            for i in range(n)
        ]
        for a in range(d)
    ]
    weight = rng.choice([0, 1, 2.5], n)
    ids = [f"o{i % 85}" for i in range(n)]
    columns = {"id": ids, "y": label, "w": weight}
    table = pa.table({**columns, **{f"q{a}": lists(judgments[a]) for a in range(d)}})
    folder = tmp_path_factory.mktemp("ragged")
    for part in range(3):
        pq.write_table(table.slice(30 * part, 30), folder / f"{part}.parquet")
    return folder, np.array(ids, dtype=object), judgments, label, weight


@pytest.mark.parametrize("algorithm", ["full", "scoring"])
@pytest.mark.parametrize(("model", "budget"), [("projected", 7), ("refit", 3)])
def test_numbers(ragged, tmp_path, algorithm, model, budget):
    path, ids, judgments, label, weight = ragged
    options = {"budget": budget, "ridge": 0.1, "algorithm": algorithm, "model": model, "plan": True}
    folder, selection, metrics, manifest = run(
        path,
        tmp_path,
        seed=4,
        data={"weight": "w", "test": 0.25},
        multiselect={**options, "baselines": BASELINES},
    )
    parts = assign_parts(ids, n_folds=3, test=0.25, seed=4)
    train = parts < 3
    test = parts == 3
    by_hand = Independent(judgments, label, weight, ridge=0.1)

    r, w, intercept, objective = by_hand.fit(train, algorithm, budget)
    variance = by_hand.estimates(train).label_variance
    assert selection["repeats"] == {f"q{a}": int(r[a]) for a in np.flatnonzero(r)}
    assert selection["label_variance"] == pytest.approx(variance)
    assert selection["projected_loss"] == pytest.approx(variance - objective)
    assert selection["path"][-1]["projected_loss"] == pytest.approx(variance - objective)
    assert np.cumsum([s["count"] for s in selection["path"]]).tolist() == [
        s["spent"] for s in selection["path"]
    ]
    assert selection["path"][-1]["spent"] == budget
    for fold in metrics["folds"]:
        inside = parts == fold["fold"]
        r_, w_, c_, _ = by_hand.fit(train & ~inside, algorithm, budget)
        assert fold["projected_loss"] == pytest.approx(by_hand.loss(inside, r_, w_, c_))
        mean = by_hand.label_mean(train & ~inside)
        squares = (label[inside] - mean) ** 2
        assert fold["loss_of_mean"] == pytest.approx(np.average(squares, weights=weight[inside]))
    other = {"full": "scoring", "scoring": "full"}[algorithm]
    r_, w_, c_, objective_ = by_hand.fit(train, other, budget)
    baseline = metrics["baselines"][other]
    assert baseline["train"]["projected_loss"] == pytest.approx(variance - objective_)
    assert baseline["test"]["projected_loss"] == pytest.approx(by_hand.loss(test, r_, w_, c_))

    if model == "refit":
        w, intercept = by_hand.refit(train, r)
    stored = json.loads((folder / "model.json").read_text())
    assert stored["intercept"] == pytest.approx(intercept)
    for name, mask in (("train", train), ("test", test)):
        loss = by_hand.loss(mask, r, w, intercept)
        assert metrics[name]["projected_loss"] == pytest.approx(loss)
        assert metrics[name]["n_objects"] == np.sum(mask & (weight > 0))
    taught = np.flatnonzero(train & (weight > 0))
    lacking = sum(max(0, r[a] - len(judgments[a][i])) for a in range(4) for i in taught)
    assert manifest["plan"]["judgments"] == lacking
    assert pq.read_table(folder / "plan").column("more").to_numpy().sum() == lacking
    if model == "refit":
        rows, _ = by_hand.complete(train, r)
        assert f"used {len(rows)} training objects; {len(taught) - len(rows)} hold" in notes(
            manifest
        )


def test_one_decomposition_for_each_set_of_objects(tmp_path, monkeypatch):
    """MakePSD costs O(d³): all algorithms and the interval share it; Copies needs none."""
    sizes = []
    make_psd = objective.nearest_psd
    monkeypatch.setattr(objective, "nearest_psd", lambda m: sizes.append(len(m)) or make_psd(m))
    baselines = ["scoring", "averages", "copies", "lasso", "single:a"]
    options = {"baselines": baselines}
    run(write(tmp_path, objects()), tmp_path, multiselect=options)
    # Without each of the three folds to choose the ridge; to select; without each fold to evaluate.
    assert sizes == [3] * (3 + 1 + 3)


# --- what is left to cross-validation -----------------------------------------------------------


def test_folds_choose_the_way_to_select_unless_there_are_none():
    by_default = MultiselectOptions(budget=12)
    tried = candidates(by_default, 3)
    assert [own["algorithm"] for own in tried] == ["nothing", *["full"] * 9, *["lasso"] * 9]
    greedy = [{"algorithm": "full", "ridge": ridge} for ridge in RIDGES]
    assert candidates(by_default, 0) == greedy
    closed = MultiselectOptions(budget=12, algorithm="lasso", ridge=0.1)
    assert candidates(closed, 3) == [{"algorithm": "lasso", "ridge": 0.1}]


def test_nothing_is_bought_unless_that_is_worse_by_a_standard_error():
    tried = [{"algorithm": "nothing"}, {"algorithm": "full"}, {"algorithm": "lasso"}]
    clear = np.array([[1.0, 1.1, 0.9], [0.7, 0.8, 0.6], [0.8, 0.9, 0.7]])
    rule = rule_of(tried)
    assert rule(clear, np.ones(3)) == 1
    unclear = np.array([[1.0, 1.1, 0.9], [0.7, 1.2, 0.9], [2.0, 2.0, 2.0]])
    assert rule(unclear, np.ones(3)) == 0
    # Folds that lack an attribute do not count; if all do, there is nothing to choose by.
    clear[2, 1] = np.nan
    assert rule(clear, np.ones(3)) == 1
    assert rule(np.full((3, 3), np.nan), np.ones(3)) == 1


@pytest.mark.parametrize("folds", [5, 0])
def test_noise_takes_the_largest_ridges_or_buys_nothing(tmp_path, folds):
    rng = np.random.default_rng(0)
    judgments = rng.normal(size=(40, 6, 1)) + rng.normal(size=(40, 6, 2))
    columns = {f"q{a}": lists(judgments[:, a].tolist()) for a in range(6)}
    path = write(tmp_path, {"id": np.arange(40), "y": rng.normal(size=40), **columns})
    data = {"folds": folds, "test": 0.0}
    options = {"algorithm": "auto"}
    folder, selection, _, _ = run(path, tmp_path, data=data, multiselect=options)
    if folds:
        assert selection["repeats"] == {}
        assert headline(folder).startswith("Buy nothing: no judgments predict `y` better")
    else:
        assert selection["ridge"] >= 0.3


def test_an_attribute_that_hardly_varies_without_a_fold_decides_nothing(tmp_path):
    """A few objects of one fold alone differ in it: others know nothing of its weight."""
    rng = np.random.default_rng(3)
    n = 60
    ids = [f"o{i}" for i in range(60)]
    parts = assign_parts(np.array(ids, dtype=object), n_folds=3, test=0.0, seed=0)
    truth = rng.normal(size=(n, 2))
    truth[:, 1] = np.where(parts == 0, 1e4 * rng.normal(size=n), 1e-3 * rng.normal(size=n))
    judgments = truth[:, :, None] + [[[0.5], [1e-4]]] * rng.normal(size=(n, 2, 2))
    columns = {f"q{a}": lists(judgments[:, a].tolist()) for a in range(2)}
    label = truth[:, 0] + 0.3 * rng.normal(size=n)
    path = write(tmp_path, {"id": ids, "y": label, **columns})
    options = {"algorithm": "auto", "robust": False}
    _, selection, metrics, _ = run(path, tmp_path, data={"test": 0.0}, multiselect=options)
    assert selection["repeats"].get("q0", 0) > 0
    assert all(fold["projected_loss"] < 5 * label.var() for fold in metrics["folds"])
