"""Retraining as a library call: what is read, what is decided, and that the bits are the same."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs.driver import run_job
from tests.e2e.jobs import RESULTS, content, stage
from tests.e2e.retrain_jobs import again, growing_job, registry_of, write_day


@pytest.fixture
def spec(data, tmp_path):
    return growing_job(data, tmp_path / "runs")


def retraining(outcome):
    return content(outcome.folder, "retrain.json")


def test_the_first_model_is_put_in_place(spec):
    outcome = again(spec)
    assert (outcome.version, outcome.promoted, outcome.reasons) == (1, True, ())
    assert registry_of(spec).current("growing").number == 1


def test_nothing_new_is_nothing_to_do(spec):
    again(spec)
    said = []
    outcome = again(spec, say=said.append)
    assert (outcome.version, outcome.promoted, outcome.folder) == (1, False, None)
    assert said[-1].startswith("Nothing to do: version 1")


@pytest.mark.parametrize("day", ["2026-01-01", "2026-01-04"])
def test_only_new_partitions_are_read_wherever_they_are(spec, data, day):
    again(spec)
    write_day(data, day, 4)
    outcome = again(spec)
    manifest = content(outcome.folder, "manifest.json")
    assert (manifest["n_read"], manifest["n_cached"]) == (2, 4)
    assert stage(manifest, "retrain")["n_read"] == 0
    found = retraining(outcome)["data"]
    assert (found["new"], found["changed"], found["vanished"]) == ([f"data/{day}.parquet"], [], [])
    assert found["n_new_rows"] == 300


def test_the_bits_are_those_of_a_run_from_scratch(spec, data, tmp_path):
    again(spec)
    write_day(data, "2026-01-01", 4)
    outcome = again(spec)
    fresh = run_job(growing_job(data, tmp_path / "elsewhere")).folder
    for name in (*RESULTS, "statistics/statistics.npz"):
        assert (outcome.folder / name).read_bytes() == (fresh / name).read_bytes()


def test_both_models_are_judged_by_their_predictions(spec, data):

    from distfms.runs.predict import predict_file

    first = again(spec)
    write_day(data, "2026-01-04", 4)
    second = again(spec)
    compared = {entry["rows"]: entry for entry in retraining(second)["compared"]}
    errors, held = [], []
    for run in (first.folder, second.folder):
        predict_file(run, str(data), data.parent / "out.parquet", with_folds=False)
        table = pq.read_table(data.parent / "out.parquet")
        truth = pq.read_table(data, columns=["id", "y"])
        assert table.column("id").equals(truth.column("id"))
        errors.append((table["predicted_y"].to_numpy() - truth["y"].to_numpy()) ** 2)
    predict_file(second.folder, str(data), data.parent / "out.parquet", with_folds=True)
    held = pq.read_table(data.parent / "out.parquet")["held_out"].to_numpy()
    newest = held & (truth["id"].to_numpy() >= 400_000)
    for rows, which in (("held_out", held), ("newest", newest)):
        entry = compared[rows]
        assert entry["n_rows"] == which.sum()
        found = (entry["in_place"], entry["new"])
        assert found == pytest.approx([e[which].mean() for e in errors], rel=1e-9)


def test_a_worse_model_is_refused(spec, data, tmp_path):
    again(spec)
    write_day(data, "2026-01-04", 4)
    strict = growing_job(data, tmp_path / "runs", retrain={"gate": {"min_gain": 0.5}})
    outcome = again(strict)
    assert (outcome.version, outcome.promoted) == (1, False)
    assert outcome.reasons[0].startswith("mse on held-out rows better by at least 50.00%: found")
    assert registry_of(spec).current("growing").number == 1
    assert "Refused; version 1 stays in place" in (outcome.folder / "report.html").read_text()


def test_drift_is_found_and_refused(spec, data, tmp_path):
    again(spec)
    write_day(data, "2026-01-04", 4, c=5.0)
    outcome = again(growing_job(data, tmp_path / "runs", retrain={"gate": {"max_drift": 1}}))
    drift = retraining(outcome)["drift"]
    assert (drift["column"], drift["quantity"]) == ("c", "mean")
    assert drift["largest"] == pytest.approx(5.0, abs=0.4)
    assert "(c, mean)" in outcome.reasons[-1]


def test_summaries_are_kept_with_the_model(spec, data):
    again(spec)
    write_day(data, "2026-01-04", 4)
    outcome = again(spec)
    with np.load(outcome.folder / "statistics" / "drift.npz") as stored:
        assert stored["mean"].shape == (6, 6)
        assert stored["names"].tolist() == ["a", "b", "c", "d", "e", "y"]
    _, files = registry_of(spec).read("growing")
    assert "statistics/drift.npz" in files
    assert "report.html" not in files


def test_what_was_rolled_back_is_not_put_in_place_again(spec, data):
    again(spec)
    write_day(data, "2026-01-04", 4)
    again(spec)
    registry = registry_of(spec)
    registry.rollback("growing")
    said = []
    assert again(spec, say=said.append).folder is None
    assert "version 2 of 'growing', which was replaced by another" in said[-1]
    assert registry.current("growing").number == 1
    write_day(data, "2026-01-05", 5)
    assert again(spec).version == 3


def test_rows_that_are_held_out_are_asked_for(data, tmp_path):
    with pytest.raises(SpecError, match=r"data\.test"):
        again(growing_job(data, tmp_path / "runs", data={"test": 0}))


def test_a_model_is_replaced_anew_on_request(spec, data, tmp_path):
    again(spec)
    other = growing_job(data, tmp_path / "runs", data={"target": "e"})
    with pytest.raises(SpecError, match=r'data\.target` is \["e"\] in the spec and was \["y"\]'):
        again(other)
    outcome = again(other, anew=True)
    assert (outcome.version, outcome.promoted) == (2, True)
    assert registry_of(spec).current("growing").parent == 1


def test_a_refused_model_is_compared_again_with_more_data(spec, data, tmp_path):
    again(spec)
    write_day(data, "2026-01-04", 4)
    gate = {"gate": {"min_rows": 500}}
    few = growing_job(data, tmp_path / "runs", retrain=gate)
    assert again(few).reasons == ("at least 500 rows in new and changed files: found 300",)
    write_day(data, "2026-01-05", 5)
    outcome = again(few)
    assert outcome.promoted
    assert retraining(outcome)["data"]["n_read"] == 2


def test_half_life_weighs_and_reads_nothing_anew(spec, data, tmp_path):
    again(spec)
    forget = growing_job(data, tmp_path / "runs", retrain={"forget": {"half_life": "1 day"}})
    outcome = again(forget)
    assert retraining(outcome)["data"]["n_read"] == 0
    assert os.path.exists(outcome.folder / "weights.npz")
    plain = run_job(growing_job(data, tmp_path / "elsewhere")).folder
    assert (outcome.folder / "weights.npz").read_bytes() != (plain / "weights.npz").read_bytes()


def test_a_window_learns_as_if_nothing_else_were_there(data, tmp_path):
    write_day(data, "2026-01-04", 4)
    forget = {"forget": {"window": "2 days"}}
    outcome = again(growing_job(data, tmp_path / "runs", retrain=forget))
    (data / "2026-01-02.parquet").unlink()
    fresh = run_job(growing_job(data, tmp_path / "fresh")).folder
    for name in RESULTS:
        assert (outcome.folder / name).read_bytes() == (fresh / name).read_bytes()


def test_what_the_window_has_passed_has_not_vanished(data, tmp_path):
    spec = growing_job(data, tmp_path / "runs", retrain={"forget": {"window": "2 days"}})
    again(spec)
    write_day(data, "2026-01-04", 4)
    outcome = again(spec)
    found = retraining(outcome)["data"]
    assert (found["vanished"], found["forgotten"]) == ([], 1)
    assert (found["n_read"], found["n_cached"]) == (2, 2)
    assert outcome.promoted


def test_half_life_gives_the_model_of_rows_that_weigh_less(data, tmp_path):
    forget = {"forget": {"half_life": "1 day"}}
    outcome = again(growing_job(data, tmp_path / "runs", retrain=forget))
    for number, day in enumerate(("2026-01-02", "2026-01-03")):
        table = pq.read_table(data / f"{day}.parquet")
        weight = pa.array(np.full(len(table), 0.5 ** (1 - number)))
        pq.write_table(table.append_column("w", weight), data / f"{day}.parquet")
    weighted = growing_job(data, tmp_path / "fresh", data={"weight": "w"})
    fresh = run_job(weighted).folder
    one, other = (np.load(folder / "weights.npz") for folder in (outcome.folder, fresh))
    for name in ("coefficients", "intercept", "fill"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-12)
    tests = [content(folder, "metrics.json")["test"]["mse"] for folder in (outcome.folder, fresh)]
    assert tests[0] == pytest.approx(tests[1], rel=1e-9)


def test_processes_give_the_bits_of_threads(data, tmp_path):
    forget = {"forget": {"half_life": "1 day"}}
    outcomes = []
    for place, engine in (("a", {"workers": 1}), ("b", {"workers": 2, "processes": True})):
        spec = growing_job(data, tmp_path / place, retrain=forget, engine=engine)
        first = again(spec)
        write_day(data, "2026-01-04", 4)
        outcomes.append((first, again(spec)))
        (data / "2026-01-04.parquet").unlink()
    for one, other in zip(*outcomes, strict=True):
        for name in RESULTS:
            assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()
    drifts = [retraining(pair[1])["drift"]["columns"] for pair in outcomes]
    assert drifts[0] == drifts[1]


def test_a_killed_retraining_goes_on_but_promotes_only_what_was_compared(spec, data, monkeypatch):
    again(spec)
    write_day(data, "2026-01-04", 4)
    monkeypatch.setattr("distfms.methods.contract.Method.page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        again(spec)
    monkeypatch.undo()
    registry = registry_of(spec)
    other = registry.add("growing", {**registry.read("growing")[1], "x": b""}, {}, 1)
    registry.promote("growing", other.number)
    with pytest.raises(EngineError, match="Compare again"):
        again(spec)
    assert registry.current("growing").number == other.number
    outcome = again(spec)
    assert outcome.promoted
    assert retraining(outcome)["in_place"] == other.number
