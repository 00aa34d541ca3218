"""Retraining as a library call: what is read, what is decided, and that the bits are the same."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs.driver import run_job
from distfms.runs.finished import read_run
from tests.e2e.jobs import RESULTS, content, stage
from tests.e2e.retrain_jobs import again, growing_job, in_place, registry_of, retraining, write_day


@pytest.mark.parametrize("day", ["2026-01-01", "2026-01-04"])
def test_only_new_partitions_are_read_and_the_bits_are_those_of_a_run_from_scratch(
    trained, days, tmp_path, day
):
    write_day(days, day, 4)
    outcome = again(trained)
    manifest = content(outcome.folder, "manifest.json")
    assert (manifest["n_read"], manifest["n_cached"]) == (2, 4)
    assert stage(manifest, "retrain")["n_read"] == 0
    results = retraining(outcome)["data"]
    assert (results["new"], results["changed"], results["vanished"]) == (
        [f"data/{day}.parquet"],
        [],
        [],
    )
    assert results["n_new_rows"] == 300
    fresh = run_job(growing_job(days, tmp_path / "elsewhere")).folder
    for name in (*RESULTS, "statistics/statistics.step"):
        assert (outcome.folder / name).read_bytes() == (fresh / name).read_bytes()
    # Summaries are kept with the model, for the drift of the next days.
    with np.load(outcome.folder / "statistics" / "drift.npz") as stored:
        assert stored["mean"].shape == (6, 6)
        assert stored["names"].tolist() == ["a", "b", "c", "d", "e", "y"]
    _, files = registry_of(trained).read("growing")
    assert "statistics/drift.npz" in files
    assert not {"report.html", "inputs.json"} & files.keys()
    version = read_run("registry:growing", registry=str(registry_of(trained).root))
    assert version.inputs() == content(outcome.folder, "inputs.json")["inputs"]


def test_held_out_rows_stay_held_out(days, tmp_path):
    """A file by itself may be renamed; where its name begins to count, other rows are held out."""
    path = write_day(days, "2026-01-01", 1)
    options = {"id": None, "exclude": ["id"]}
    alone = growing_job(path, tmp_path / "runs", data=options)
    assert again(alone).promoted
    renamed = path.rename(days / "2026-02-01.parquet")
    moved = growing_job(renamed, tmp_path / "runs", data=options, sequence={"ridge": 0.1})
    changes = retraining(again(moved))["data"]
    assert (changes["new"], changes["changed"], changes["vanished"]) == ([], [], [])
    with pytest.raises(SpecError, match=r"Other rows of .*2026-02-01.parquet are held out now"):
        again(growing_job(days, tmp_path / "runs", data=options))


def test_a_worse_model_is_refused(trained, days, tmp_path):
    write_day(days, "2026-01-04", 4)
    strict = growing_job(days, tmp_path / "runs", retrain={"gate": {"min_gain": 0.5}})
    outcome = again(strict)
    assert (outcome.version, outcome.promoted) == (1, False)
    assert outcome.reasons[0].startswith(
        "mean squared error on held-out rows better by at least 50.00%: found"
    )
    assert in_place(trained) == 1
    page = (outcome.folder / "report.html").read_text()
    said = "Refused: mean squared error 0.70% better on held-out rows"
    assert page.index(said) < page.index(f"{said}. Version 1 stays the current model")
    assert page.index(">Retraining<") < page.index(">Run<")


def test_a_drifted_day_is_refused_by_itself_until_it_is_accepted(trained, days, tmp_path):
    gate = {"max_drift": 1, "max_regression": 1}
    spec = growing_job(days, tmp_path / "runs", retrain={"gate": gate})
    write_day(days, "2026-01-04", 4)
    assert again(spec).promoted
    bad = write_day(days, "2026-01-05", 5, c=1.3)
    text = "c drifted by 1."
    assert text in again(spec).reasons[0]
    registry_of(spec).rollback("growing")
    for day in (5, 6, 7):  # also among ever more days that have not drifted
        write_day(days, f"2026-01-0{day + 1}", day + 1)
        outcome = again(spec)
        assert text in outcome.reasons[0]
        assert "in data/2026-01-05.parquet" in outcome.reasons[0]
    assert len(retraining(outcome)["drift"]["sets"]) == 5
    lax = growing_job(days, tmp_path / "runs", retrain={"gate": gate | {"max_drift": 2}})
    assert "data/2026-01-05.parquet drifted when last seen" in again(lax).reasons[0]
    with pytest.raises(SpecError, match="no file '2026-01-15'"):
        again(lax, accept=["2026-01-15"])
    max((tmp_path / "runs/registry/growing/refusals").iterdir()).write_text("{")
    assert again(spec, accept=[bad.name]).promoted
    registry_of(spec).rollback("growing")
    write_day(days, "2026-01-09", 9)
    assert again(spec).promoted


def test_a_model_that_was_only_replaced_comes_back_with_its_data(trained, days):
    bad = write_day(days, "2026-01-04", 4, n=900)
    assert again(trained).version == 2
    bad.unlink()
    messages = []
    outcome = again(trained, say=messages.append)
    assert (outcome.version, outcome.promoted) == (3, True)
    assert "again those of version 1" in "".join(messages)
    assert "again those of version 1" in (outcome.folder / "report.html").read_text()
    first, now = (registry_of(trained).read("growing", n)[1] for n in (1, 3))
    assert first["weights.npz"] == now["weights.npz"]
    registry_of(trained).promote("growing", 2)  # by hand: that stands
    assert again(trained, say=messages.append).folder is None
    assert "version 3 of 'growing', which was rolled back" in messages[-1]


def test_a_file_rewritten_with_the_same_footer_has_changed(days, tmp_path):
    def write(shift):
        table = pq.read_table(write_day(days, "2026-01-03", 3, c=shift))
        plain = {"compression": None, "use_dictionary": False, "write_statistics": False}
        pq.write_table(table, days / "2026-01-03.parquet", row_group_size=150, **plain)

    spec = growing_job(days, tmp_path / "runs", retrain={"gate": {"max_drift": 1}})
    write(0.0)
    first = content(again(spec).folder, "inputs.json")["inputs"]
    write(5.0)
    outcome = again(spec)
    footers = [entry["footer"] for entry in content(outcome.folder, "inputs.json")["inputs"]]
    assert footers == [entry["footer"] for entry in first]
    assert retraining(outcome)["data"]["changed"] == ["data/2026-01-03.parquet"]
    assert "c drifted by" in outcome.reasons[-1]


def test_rows_that_are_held_out_are_asked_for(days, tmp_path):
    with pytest.raises(SpecError, match=r"data\.test"):
        again(growing_job(days, tmp_path / "runs", data={"test": 0}))


def test_old_runs_go_but_never_those_that_a_rollback_needs(trained, days, tmp_path):
    spec = growing_job(days, tmp_path / "runs", retrain={"gate": {"min_gain": 1.0}})
    spec = replace(spec, output=spec.output.model_copy(update={"keep_runs": 2}))
    refused = []
    for day in (4, 5, 6):
        write_day(days, f"2026-01-0{day}", day)
        refused.append(again(spec).folder)
    kept = sorted(p for p in (tmp_path / "runs/growing").iterdir() if not p.is_symlink())
    first = Path(registry_of(spec).version("growing").facts["run"])
    assert kept == [first, *refused[1:]]
    assert run_job(spec).folder.exists()
    assert first.exists()
    assert len(list((tmp_path / "runs/growing").iterdir())) <= 5


def test_a_window_learns_as_if_nothing_else_were_there(days, tmp_path):
    write_day(days, "2026-01-04", 4)
    forget = {"forget": {"window": "2 days"}}
    outcome = again(growing_job(days, tmp_path / "runs", retrain=forget))
    (days / "2026-01-02.parquet").unlink()
    fresh = run_job(growing_job(days, tmp_path / "fresh")).folder
    for name in RESULTS:
        assert (outcome.folder / name).read_bytes() == (fresh / name).read_bytes()


def test_what_the_window_has_passed_has_not_vanished(days, tmp_path):
    spec = growing_job(days, tmp_path / "runs", retrain={"forget": {"window": "2 days"}})
    again(spec)
    write_day(days, "2026-01-04", 4)
    outcome = again(spec)
    results = retraining(outcome)["data"]
    assert (results["vanished"], results["forgotten"]) == ([], 1)
    assert (results["n_read"], results["n_cached"]) == (2, 2)
    assert outcome.promoted


def test_half_life_gives_the_model_of_rows_that_weigh_less(days, tmp_path):
    forget = {"forget": {"half_life": "1 day"}}
    outcome = again(growing_job(days, tmp_path / "runs", retrain=forget))
    for number, day in enumerate(("2026-01-02", "2026-01-03")):
        table = pq.read_table(days / f"{day}.parquet")
        weight = pa.array(np.full(len(table), 0.5 ** (1 - number)))
        pq.write_table(table.append_column("w", weight), days / f"{day}.parquet")
    weighted = growing_job(days, tmp_path / "fresh", data={"weight": "w"})
    fresh = run_job(weighted).folder
    one, other = (np.load(folder / "weights.npz") for folder in (outcome.folder, fresh))
    for name in ("coefficients", "intercept", "fill"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-12)
    tests = [content(folder, "metrics.json")["test"]["mse"] for folder in (outcome.folder, fresh)]
    assert tests[0] == pytest.approx(tests[1], rel=1e-9)


def test_a_killed_retraining_goes_on_but_promotes_only_what_was_compared(
    trained, days, monkeypatch
):
    write_day(days, "2026-01-04", 4)
    monkeypatch.setattr("distfms.methods.frame.contract.Method.page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        again(trained)
    monkeypatch.undo()
    registry = registry_of(trained)
    other = registry.add("growing", {**registry.read("growing")[1], "x": b""}, {}, 1)
    registry.promote("growing", other.number)
    with pytest.raises(EngineError, match="Retrain again"):
        again(trained)
    assert in_place(trained) == other.number
    outcome = again(trained)
    assert outcome.promoted
    assert retraining(outcome)["in_place"] == other.number
