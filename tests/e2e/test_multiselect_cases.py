"""Multi-selection on awkward data and specs."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.errors import SpecError
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.multiselect_jobs import NAMES, N, job, lists, notes, objects, run, write

# --- few judgments ------------------------------------------------------------------------------


def test_attribute_that_cannot_be_estimated_without_a_fold(tmp_path):
    once = [[v[0]] for v in objects()["a"]]
    path = write(tmp_path, objects(a=[[1.0, 2.0], *once[1:]]))
    data = {"test": 0}
    _, selection, metrics, manifest = run(path, tmp_path, data=data, multiselect={"budget": 20})
    assert "a" in selection["repeats"]
    assert "Without one of the folds, 'a' cannot be estimated" in notes(manifest)
    assert len(metrics["folds"]) == 3
    assert all(np.isfinite(fold["projected_loss"]) for fold in metrics["folds"])


def test_held_out_objects_without_judgments_of_an_attribute(tmp_path):
    columns = objects(90)
    parts = assign_parts(np.arange(90), n_folds=3, test=0.2, seed=0)
    columns["c"] = lists([v if parts[i] == 1 else [] for i, v in enumerate(columns["c"])])
    _, selection, metrics, manifest = run(write(tmp_path, columns), tmp_path)
    assert "c" in selection["repeats"]
    # Folds 0 and 2 and the test objects cannot judge a model that uses it; without fold 1 nothing
    # is known of it, and the model that is chosen then can be judged on fold 1 itself.
    losses = {fold["fold"]: fold["projected_loss"] for fold in metrics["folds"]}
    assert losses[0] is None
    assert losses[2] is None
    assert losses[1] is not None
    assert metrics["test"]["projected_loss"] is None
    assert metrics["test"]["r2"] is None
    last = metrics["curves"][0]["points"][-1]
    assert (last["test"]["projected_loss"], last["validation"]["lower"]) == (None, None)
    assert last["validation"]["projected_loss"] == pytest.approx(losses[1])
    assert "No held-out object has a judgment of 'c'" in notes(manifest)


def test_pairs_never_judged_together_are_told(tmp_path):
    columns = objects()
    columns["a"] = lists([v if i % 2 else [] for i, v in enumerate(columns["a"])])
    columns["b"] = lists([[] if i % 2 else v for i, v in enumerate(columns["b"])])
    _, _, _, manifest = run(write(tmp_path, columns), tmp_path)
    assert "1 pair of attributes (of 3) have no object with both" in notes(manifest)


def test_more_folds_than_objects(tmp_path):
    columns = objects(8)
    del columns["id"]
    data = {"folds": 100, "test": 0, "id": None}
    _, _, metrics, manifest = run(write(tmp_path, columns), tmp_path, data=data)
    assert metrics["folds"] == []
    assert "Choose fewer folds" in notes(manifest)
    assert "Chosen by generalised cross-validation: algorithm full, ridge" in notes(manifest)


def test_nothing_worth_buying(tmp_path):
    """Only constant attributes: an empty selection that predicts the mean label."""
    path = write(tmp_path, objects(**dict.fromkeys(NAMES, [[3.0, 3.0]] * N)))
    folder, selection, _, _ = run(path, tmp_path, multiselect={"plan": True})
    assert selection["repeats"] == {}
    assert selection["status"] == "no_positive_gain"
    assert selection["constant"] == list(NAMES)
    assert "Buy nothing: no judgment tells anything" in (folder / "report.html").read_text()
    predict_file(folder, str(path), tmp_path / "predicted.parquet")
    predicted = pq.read_table(tmp_path / "predicted.parquet").column("predicted_y").to_numpy()
    parts = assign_parts(np.arange(N), n_folds=3, test=0.2, seed=0)
    assert predicted == pytest.approx(np.full(N, objects()["y"][parts < 3].mean()))


def test_objects_left_out_are_told(tmp_path):
    label = [None if i % 10 == 0 else float(y) for i, y in enumerate(objects()["y"])]
    path = write(tmp_path, objects(y=label), row_group_size=1)
    limits = {"missing": "drop", "max_partition_rows": 1}  # some partitions lose all they have
    _, _, _, manifest = run(path, tmp_path, data=limits, multiselect={"plan": True})
    assert sum(manifest["objects"].values()) == 54
    assert "6 of 60 objects were left out" in notes(manifest)


def test_predictions_within_a_smaller_budget_are_those_of_a_run_with_it(tmp_path):
    path = write(tmp_path, objects())

    def bought(budget, **options):
        options = {"budget": budget, "baselines": [], "ridge": 0.01, **options}
        return run(path, tmp_path, multiselect=options, data={"folds": 0})[0]

    def predicted(folder, within=None):
        predict_file(folder, str(path), tmp_path / "out.parquet", budget=within)
        return pq.read_table(tmp_path / "out.parquet")

    more = bought(20)
    predictions = predicted(more, within=4)
    expected = predicted(bought(4))
    np.testing.assert_allclose(predictions["predicted_y"], expected["predicted_y"], rtol=1e-9)
    assert predictions["judgments_lacking"].equals(expected["judgments_lacking"])
    with pytest.raises(SpecError, match=r"budget of 30: this run bought for 20.*budget=30"):
        predicted(more, within=30)
    with pytest.raises(SpecError, match="a refit is made for one"):
        predicted(bought(2, model="refit"), within=1)


# --- specs --------------------------------------------------------------------------------------


def test_large_budgets_and_several_labels_are_told_before(tmp_path):
    path = write(tmp_path, objects())
    options = {"budget": 150, "costs": {"default": 2, "b": 1}}
    prepared = prepare(job(path, tmp_path, multiselect=options))
    assert prepared.job.describe()["search"] == "up to 150 judgments, bought one at a time"
    with pytest.raises(SpecError, match=r"one label; `data\.target` names 2"):
        prepare(job(path, tmp_path, data={"target": ["y", "id"], "id": None}))


# --- kept partials ------------------------------------------------------------------------------

RESULTS = ("selection.json", "metrics.json", "model.json", "weights.npz")


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"folds": 4}},
        {"data": {"weight": "w", "exclude": []}},
        {"data": {"target": "w", "exclude": ["y"]}},
        {"data": {"features": ["c", "b", "a"], "exclude": []}},
        {"seed": 1},
    ],
    ids=str,
)
def test_kept_partials_are_only_used_where_they_fit(kept, tmp_path, changes):
    path, output = kept
    data = {"exclude": ["w"], **changes.pop("data", {})}
    shared = run_job(job(path, output, data=data, **changes)).folder
    fresh = run_job(job(path, tmp_path, data=data, engine={"cache": False}, **changes)).folder
    assert [(shared / f).read_bytes() for f in RESULTS] == [
        (fresh / f).read_bytes() for f in RESULTS
    ]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Data with a run that has kept its partials."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(3)
    columns = objects(w=rng.choice([1.0, 2.0], N))
    path = write(folder, columns, row_group_size=10)
    run_job(job(path, folder / "runs", data={"exclude": ["w"]}))
    return path, folder / "runs"


def test_check_counts_the_work_of_all_that_folds_compare(tmp_path):
    path = write(tmp_path, objects())
    operations = []
    for ridge in ([0.1, 1.0], [0.1 * n for n in range(1, 11)]):
        options = {"ridge": ridge, "baselines": []}
        operations.append(prepare(job(path, tmp_path, multiselect=options)).job.for_actors())
    assert operations[1]["folds"] == pytest.approx(5 * operations[0]["folds"])
