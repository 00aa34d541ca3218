"""Data, specs and registries that are not as they should be."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import DataError, EngineError, SpecError
from distfms.registry import Registry
from distfms.retrain.job import retrain
from distfms.store.places import locate
from tests.e2e.retrain_jobs import again, growing_job, in_place, registry_of, retraining, write_day


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path, row_group_size=150)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.append_column("f", t["a"]).drop(["b"]), "gone: b; new: f"),
        (
            lambda t: t.set_column(0, "a", t["a"].cast(pa.float32())),
            r"of another type: a \(double, now float\)",
        ),
    ],
)
def test_files_that_all_have_other_columns_are_refused(trained, days, change, words):
    for path in days.iterdir():
        rewrite(path, change)
    with pytest.raises(SpecError, match=rf"{words}.*--anew"):
        again(trained)
    assert in_place(trained) == 1


def test_a_partition_that_shrank_is_refused(trained, days):
    rewrite(days / "2026-01-03.parquet", lambda table: table.slice(0, 100))
    outcome = again(trained)
    assert not outcome.promoted
    assert outcome.reasons == (
        "at most 10.0% of the rows behind the current model lost: found 33.3% of its rows lost. "
        "If that is meant: distfms retrain SPEC --accept data/2026-01-03.parquet",
    )
    lax = growing_job(days, days.parent / "runs", retrain={"gate": {"max_lost": 0.5}})
    assert not any("lost" in reason for reason in again(lax).reasons)


def test_a_file_that_vanished_is_refused(trained, days):
    (days / "2026-01-02.parquet").unlink()
    outcome = again(trained)
    assert retraining(outcome)["data"]["vanished"] == ["data/2026-01-02.parquet"]
    assert "found 50.0%" in outcome.reasons[0]
    # Night after night, until somebody says that it is meant.
    write_day(days, "2026-01-04", 4)
    assert "--accept data/2026-01-02.parquet" in again(trained).reasons[0]
    assert again(trained, accept=["2026-01-02.parquet"]).promoted
    write_day(days, "2026-01-05", 5)
    assert again(trained).promoted


def test_a_touched_file_is_no_change(trained, days):
    write_day(days, "2026-01-03", 3)
    results = retraining(again(trained))["data"]
    assert (results["new"], results["changed"], results["vanished"]) == ([], [], [])


def test_an_empty_day_is_nothing_new(trained, days):
    rewrite(write_day(days, "2026-01-04", 4), lambda table: table.slice(0, 0))
    messages = []
    outcome = again(trained, say=messages.append)
    assert (outcome.folder, outcome.promoted) == (None, False)
    assert messages[-1].startswith("Nothing to do")


def test_a_day_ahead_of_the_clock_is_refused_where_days_count(trained, days):
    write_day(days, "2999-01-01", 4)
    forget = {"forget": {"window": "30 days"}}
    with pytest.raises(DataError, match="machine's clock"):
        again(growing_job(days, days.parent / "runs", retrain=forget))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": {"target": "e"}}, r"data\.target"),
        ({"data": {"test": 0.4}}, r"data\.test"),
        ({"data": {"id": "a"}}, r"data\.id"),
        ({"seed": 3}, "`seed`"),
        ({"sequence": {"groups": {"ab": ["a", "b"]}}}, r"sequence\.groups"),
        (
            {"method": "landmarks", "landmarks": {"task": "regression", "similarity": "gaussian"}},
            "is of the method `sequence`",
        ),
    ],
)
def test_another_question_is_refused(trained, days, changes, words):
    with pytest.raises(SpecError, match=words) as error:
        again(growing_job(days, days.parent / "runs", **changes))
    assert "--anew" in str(error.value)
    assert in_place(trained) == 1


def test_a_registry_that_cannot_be_written_is_refused_before_anything_is_read(days, tmp_path):
    spec = growing_job(days, tmp_path / "runs")
    # Nobody, root neither, can make a folder there.
    with pytest.raises(SpecError, match="--registry"):
        retrain(spec, Registry(locate("/proc/registry")))
    assert not (tmp_path / "runs" / "growing").exists()


@pytest.mark.parametrize(
    ("changes", "known"),
    [({}, "mse or r2"), ({"method": "landmarks", "landmarks": {"similarity": "gaussian"}}, "mse")],
    ids=["by_statistics", "by_rows"],
)
def test_an_unknown_metric_is_refused_before_the_first_training(days, tmp_path, changes, known):
    gate = {"retrain": {"gate": {"metric": "auc"}}}
    with pytest.raises(SpecError, match=f"compared by {known}"):
        again(growing_job(days, tmp_path / "runs", **changes, **gate))
    assert not (tmp_path / "runs").exists()


def test_a_model_promoted_meanwhile_is_not_replaced(trained, days, monkeypatch):
    from distfms.retrain import job

    write_day(days, "2026-01-04", 4)
    registry = registry_of(trained)

    def promoted_meanwhile(*arguments, before=job.run_prepared):
        found = before(*arguments)
        other = registry.add("growing", {"model.json": b"{}"}, {}, 1)
        registry.promote("growing", other.number)
        return found

    monkeypatch.setattr(job, "run_prepared", promoted_meanwhile)
    with pytest.raises(EngineError, match="is current now"):
        again(trained)
    assert in_place(trained) == 2


def test_a_damaged_version_in_place_is_said(trained, days):
    registry = registry_of(trained)
    version = registry.version("growing")
    place = registry.files("growing", version) / "model.json"
    place.write_text(json.dumps({"method": "sequence"}))
    write_day(days, "2026-01-04", 4)
    with pytest.raises(SpecError, match="has changed since it was added"):
        again(trained)
    messages = []
    assert again(trained, anew=True, say=messages.append).promoted
    assert "Note: Replacing version 1 without reading it." in "\n".join(messages)
    change = registry.history("growing")[-1]
    assert (change.version, change.because) == (2, "retrained with --anew")
