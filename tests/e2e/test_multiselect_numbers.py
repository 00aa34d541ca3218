"""The numbers of a multi-selection run against formulas written out, on awkward data."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.methods.multiselect import objective
from distfms.methods.multiselect.choices import choices
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.runs.finished import headline
from tests.e2e.multiselect_jobs import lists, notes, objects, run, write
from tests.reference.multiselect_rows import Independent

BASELINES = ["full", "scoring", "averages", "copies"]


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Weighted objects in three files, some ids twice, 0 to 3 judgments a cell."""
    rng = np.random.default_rng(5)
    n, d = 90, 4
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
    train, test = parts < 3, parts == 3
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
    other = {"full": "scoring", "scoring": "full"}[algorithm]
    r_, w_, c_, objective_ = by_hand.fit(train, other, budget)
    baseline = metrics["baselines"][other]
    assert baseline["train"]["projected_loss"] == pytest.approx(variance - objective_)
    assert baseline["test"]["projected_loss"] == pytest.approx(by_hand.loss(test, r_, w_, c_))

    single = metrics["baselines"]["copies"]
    assert sum(single["repeats"].values()) == budget
    assert max(single["repeats"].values()) <= 2
    assert single["validation"]["projected_loss"] > 0

    if model == "refit":
        w, intercept = by_hand.refit(train, r)
    stored = json.loads((folder / "model.json").read_text())
    assert stored["intercept"] == pytest.approx(intercept)
    check_scores(by_hand, {"train": train, "test": test}, (r, w, intercept), metrics)
    taught = np.flatnonzero(train & (weight > 0))
    lacking = sum(max(0, r[a] - len(judgments[a][i])) for a in range(4) for i in taught)
    assert manifest["plan"]["judgments"] == lacking
    assert pq.read_table(folder / "plan").column("more").to_numpy().sum() == lacking
    if model == "refit":
        rows, _ = by_hand.complete(train, r)
        assert f"used {len(rows)} training objects; {len(taught) - len(rows)} hold" in notes(
            manifest
        )


def check_scores(by_hand, masks, model, metrics):
    """The losses of the model (repeats, weights, intercept) on sets of objects."""
    for name, mask in masks.items():
        scores, (rows, _) = metrics[name], by_hand.complete(mask, model[0])
        assert scores["projected_loss"] == pytest.approx(by_hand.loss(mask, *model))
        assert scores["n_objects"] == np.sum(mask & (by_hand.weight > 0))
        if scores["mse"] is not None:
            assert scores["n_objects_with_all_judgments"] == len(rows)
            assert scores["mse"] == pytest.approx(by_hand.plain(mask, *model))


@pytest.mark.parametrize("psd", ["nearest", "data_units"])
def test_units_of_the_nearest_matrix_on_folds(tmp_path, psd):
    rng = np.random.default_rng(2)
    n, d = 30, 6
    truth = rng.normal(size=(n, d)) @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, d))
    values = (truth[:, :, None] + 3 * rng.normal(size=(n, d, 2))) * 3.0 ** np.arange(d)[:, None]
    label, ids = truth.sum(axis=1), [f"o{i}" for i in range(n)]
    judgments = [values[:, a].tolist() for a in range(d)]
    columns = {f"q{a}": judgments[a] for a in range(d)}
    path = write(tmp_path / "data", {"id": ids, "y": label, **columns})
    options = {"budget": 9, "ridge": 0.1, "psd": psd, "baselines": []}
    _, selection, metrics, _ = run(path, tmp_path / "run", seed=1, multiselect=options)
    parts = assign_parts(np.array(ids, dtype=object), n_folds=3, test=0.2, seed=1)
    by_hand = Independent(judgments, label, np.ones(n), 0.1, psd == "data_units")
    estimates, found = by_hand.problem(parts < 3)
    assert not np.allclose(found, estimates.external, rtol=1e-3)
    r, _, _, objective = by_hand.fit(parts < 3, "full", 9)
    assert selection["repeats"] == {f"q{a}": int(r[a]) for a in np.flatnonzero(r)}
    assert selection["objective"] == pytest.approx(objective)
    for fold in metrics["folds"]:
        inside = parts == fold["fold"]
        r, w, c, _ = by_hand.fit((parts < 3) & ~inside, "full", 9)
        assert fold["projected_loss"] == pytest.approx(by_hand.loss(inside, r, w, c))


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


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """One attribute tells nearly all of the label; eleven others are noise."""
    rng = np.random.default_rng(4)
    truth = rng.normal(size=(90, 12))
    judgments = truth[:, :, None] + 1.5 * rng.normal(size=(90, 12, 2))
    label = truth[:, 0] + 0.3 * rng.normal(size=90)
    columns = {f"q{a:02d}": lists(judgments[:, a].tolist()) for a in range(12)}
    folder = tmp_path_factory.mktemp("noisy")
    return write(folder, {"id": np.arange(90), "y": label, **columns})


def preferred(values, weight):
    """The first that is at most one standard error of the difference behind the least mean."""
    share = np.array(weight) / np.sum(weight)
    behind = np.array(values) - values[int(np.argmin(values @ share))]
    mean = behind @ share
    k = share.size
    error = np.sqrt(k / (k - 1) * ((share * (behind - mean[:, None])) ** 2).sum(axis=1))
    return int(np.flatnonzero(mean <= error)[0])


def test_job_is_that_of_the_ridge_and_the_way_that_cross_validation_chooses(noisy, tmp_path):
    def found(**options):
        options = {"budget": 12, "baselines": ["lasso"], **options}
        return run(noisy, tmp_path, multiselect=options)

    folder, selection, metrics, manifest = found(selection="auto", ridge=[0.5, 0.02, 0.0])
    points = selection["tuning"]["points"]
    assert [p["options"]["ridge"] for p in points] == [0.5, 0.02, 0.0] * 2
    weight = [fold["weight"] for fold in metrics["folds"]]
    values = np.array([p["folds"] for p in points])
    ends = [preferred(values[:3], weight), 3 + preferred(values[3:], weight)]
    best = ends[preferred(values[ends], weight)]
    assert best == 4
    assert [p["chosen"] for p in points] == [i == best for i in range(6)]
    assert "Chosen by cross-validation: selection lasso, ridge" in notes(manifest)

    alone, own, settled, _ = found(**points[best]["options"])
    assert (alone / "model.json").read_bytes() == (folder / "model.json").read_bytes()
    assert selection == {**own, "tuning": selection["tuning"]}
    assert metrics == {**settled, "tuning": selection["tuning"]}
    assert own["algorithm"] == "lasso"
    assert [f["projected_loss"] for f in settled["folds"]] == pytest.approx(values[best])
    assert settled["better"] is None

    folder, own, greedy, _ = found(ridge=points[best]["options"]["ridge"])
    losses = [f["projected_loss"] for f in greedy["folds"]]
    behind = np.average(np.array(losses) - values[best], weights=weight)
    assert (greedy["better"]["name"], own["algorithm"]) == ("lasso", "full")
    assert greedy["better"]["gain"] == pytest.approx(behind)
    said = headline(folder)
    assert "but Lasso explains" in said
    assert "`selection: auto`" in said


def test_folds_choose_the_way_to_select_unless_there_are_none():
    by_default = MultiselectOptions(budget=12)
    assert {own["selection"] for own in choices(by_default, 3)} == {"greedy", "lasso"}
    assert choices(by_default, 0) == [{"selection": "greedy", "ridge": 0.0}]


@pytest.mark.parametrize(("folds", "ridges"), [(3, [0.01, 0.001, 0.1, 0.0]), (0, None)])
def test_ridge_of_itself_is_small_with_folds_and_none_without(noisy, tmp_path, folds, ridges):
    _, selection, metrics, _ = run(noisy, tmp_path, data={"folds": folds})
    tried = selection["tuning"]["points"] if folds else None
    assert tried == ridges or [p["options"]["ridge"] for p in tried] == ridges
    assert selection["ridge"] in (ridges or [0.0])
    assert set(metrics["baselines"]) == {"scoring", "averages", "copies", "lasso"}
