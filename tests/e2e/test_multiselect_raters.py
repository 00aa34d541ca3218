"""Jobs on judgments of which it is known who gave them, from long CSV to plan and predictions."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.multiselect_jobs import job, objects, write
from tests.reference import multiselect as literal
from tests.reference.statistics import judgment_estimates, rater_estimates

N = 60
ATTRIBUTES = ("calm", "kind", "warm")
WORKERS = ("ann", "bob", "eve")


def crowd(seed=0):
    """Judgments of shape (n, 3, 3): each worker judges each attribute, with moods; and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(N, 3)) @ [[1, 0.5, 0.2], [0, 1, 0.4], [0, 0, 1]]
    moods = rng.normal(size=(N, 1, 3))
    judgments = truth[:, :, None] + 0.8 * moods + 0.6 * rng.normal(size=(N, 3, 3))
    return judgments.round(4), (truth @ [1.0, 2.0, -1.0]).round(4)


def write_long(folder, judgments, labels):
    folder.mkdir()
    with open(folder / "long.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["object", "attribute", "worker", "value"])
        for i, row in enumerate(judgments):
            for name, values in zip(ATTRIBUTES, row, strict=True):
                for worker, value in zip(WORKERS, values, strict=True):
                    if (i, name, worker) != (0, "kind", "eve"):
                        writer.writerow([i, name, worker, value])
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([["object", "mood"], *enumerate(labels)])
    return folder


def spec_of(folder, output, **options):
    long = {
        "object": "object",
        "attribute": "attribute",
        "value": "value",
        "worker": "worker",
        "labels": str(folder / "labels.csv"),
        "label": "mood",
    }
    data = {"path": str(folder / "long.csv"), "long": long, "folds": 3, "test": 0.25}
    content = {"name": "moods", "method": "multiselect", "data": data, "output": str(output)}
    return build_spec(
        content | {"multiselect": {"budget": 6, "ridge": 0.0, "algorithm": "full", **options}}
    )


@pytest.fixture(scope="module")
def bought_from_the_same(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raters")
    write_long(folder / "data", *crowd())
    found = run_job(spec_of(folder / "data", folder / "runs", buy_from="same", plan=True))
    return folder, found.folder


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def test_selection_and_losses_are_those_of_the_literal_formulas(bought_from_the_same):
    _, folder = bought_from_the_same
    (wide,) = (folder.parents[1] / ".kept/judgments").glob("*/judgments/data/*.parquet")
    table = pq.read_table(wide)
    assert table["calm__raters"].to_pylist()[1] == list(WORKERS)
    selection = read(folder, "selection")
    metrics = read(folder, "metrics")
    judged = [table[name].to_pylist() for name in ATTRIBUTES]
    raters = [table[f"{name}__raters"].to_pylist() for name in ATTRIBUTES]
    labels = table["mood"].to_pylist()
    train, test = _parts(folder, table)

    def estimated(rows):
        own = [[[column[i] for i in rows] for column in columns] for columns in (judged, raters)]
        label = [labels[i] for i in rows]
        found = judgment_estimates(own[0], label)
        told = rater_estimates(*own, label)
        external = np.where(np.eye(3) > 0, found.external, told.external)
        noise = np.where(np.eye(3) > 0, np.diag(found.v), told.noise_covariance)
        return found, external, noise, np.mean(label)

    found, external, noise, mean = estimated(train)
    repeats = np.array([selection["repeats"].get(name, 0) for name in ATTRIBUTES])

    def objective(r):
        return literal.same_raters_objective(found.b, external, noise, r)

    assert repeats.tolist() == np.bincount(literal.greedy(objective, 3, 6), minlength=3).tolist()
    assert selection["objective"] == pytest.approx(objective(repeats))
    s = np.flatnonzero(repeats)
    most = np.maximum.outer(repeats[s], repeats[s])
    grid = np.ix_(s, s)
    weights = np.linalg.solve(external[grid] + noise[grid] / most, found.b[s])
    intercept = mean - weights @ found.means[s]
    held, external, noise, mean = estimated(test)
    for key, own in (
        ("loss_same", noise[grid] / most),
        ("loss_independent", np.diag(held.v[s] / repeats[s])),
    ):
        offset = mean - intercept - weights @ held.means[s]
        loss = held.label_variance - 2 * weights @ held.b[s]
        loss += weights @ (external[grid] + own) @ weights + offset**2
        assert metrics["test"]["raters"][key] == pytest.approx(loss)
    assert metrics["test"]["projected_loss"] == metrics["test"]["raters"]["loss_same"]
    correlation = metrics["train"]["raters"]["noise_correlation"]
    assert all(0.2 < c < 1 for row in correlation.values() for c in row.values())


def _parts(folder, table):
    """Positions of training and held-out objects, as predictions tell them."""
    out = folder.parent / "parts.parquet"
    wide = next((folder.parents[1] / ".kept/judgments").glob("*/judgments"))
    predict_file(folder, str(wide), out, with_folds=True)
    held_out = {row["object"] for row in pq.read_table(out).to_pylist() if row["held_out"]}
    ids = table["object"].to_pylist()
    train = [i for i, own in enumerate(ids) if own not in held_out]
    return train, [i for i, own in enumerate(ids) if own in held_out]


def test_plan_names_raters_and_the_report_says_what_they_share(bought_from_the_same):
    _, folder = bought_from_the_same
    none = {"n_unknown": 0, "n_second": 0, "n_alone": 0}
    assert read(folder, "manifest")["raters"] == none
    plan = pq.read_table(folder / "plan").to_pylist()
    assert {row["object"] for row in plan} <= set(range(N))
    for row in plan:
        assert row["rater_id"] in (*WORKERS, None)
        assert row["rater_slot"] >= 1
        assert row["more"] == 1
    asked_again = [row for row in plan if row["object"] == 0 and row["rater_id"] == "eve"]
    assert all(row["attribute"] == "kind" for row in asked_again)
    page = (folder / "report.html").read_text()
    assert "Who judges" in page
    assert "bought from the same raters" in page


def test_check_says_whether_raters_are_known(bought_from_the_same, tmp_path):
    folder, _ = bought_from_the_same
    known = prepare(spec_of(folder / "data", tmp_path / "runs", buy_from="same")).job.describe()
    assert known["raters"] == "known; the judgments to be bought come from the same raters"
    unknown = prepare(job(write(tmp_path / "two", objects()), tmp_path / "runs")).job.describe()
    assert "`data.long.worker`" in unknown["raters"]
