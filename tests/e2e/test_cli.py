"""The command line as a user meets it: results, exit codes, messages."""

import json
import os
import re
import shutil
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import content, judgments_job


@pytest.fixture
def place(judgments, tmp_path, monkeypatch):
    spec = judgments_job(judgments, tmp_path / "runs", multiselect={"plan": False})
    (tmp_path / "job.yaml").write_text(spec.to_yaml())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_umask():
    umask = os.umask(0)
    yield
    os.umask(umask)


@pytest.fixture
def refusal(distfms, place):
    """The one line of a command that is refused, and has started no run."""

    def refused(*arguments):
        result = distfms(*arguments)
        assert result.code == 2, result.out + result.err
        error = result.err[result.err.index("Error: ") :]
        assert error.count("\n") == 1
        assert not (place / "runs" / "small").exists()
        return error

    return refused


def test_run_predict_report(place, judgments, distfms, no_umask):
    result = distfms("run", "job.yaml", "--out", "out")
    assert result.code == 0, result.err
    assert result.out.rstrip().endswith("out/report.html")
    html = (place / "out" / "report.html").read_text()
    assert "<svg" in html
    selection = content(place / "out", "selection.json")
    assert selection["spent"] == 12
    assert sum(selection["repeats"].values()) == 12
    assert selection["path"][-1]["spent"] == 12

    result = distfms("predict", "out", judgments, "--out", "predicted.parquet")
    assert result.code == 0, result.err
    predicted = pq.read_table(place / "predicted.parquet")
    truth = pq.read_table(judgments)
    assert predicted.column("id").to_pylist() == truth.column("id").to_pylist()
    error = predicted.column("predicted_y").to_numpy() - truth.column("y").to_numpy()
    assert np.mean(error**2) < 0.7 * np.var(truth.column("y").to_numpy())

    (place / "out" / "report.html").unlink()
    assert distfms("report", "out").code == 0
    assert (place / "out" / "report.html").read_text().count("<svg") == html.count("<svg")
    assert not [path for path in place.rglob("*") if path.stat().st_mode & stat.S_IWOTH]


def test_check_reads_no_rows_and_writes_nothing(place, distfms):
    result = distfms("check", "job.yaml")
    assert result.code == 0
    assert "Reads 200 rows, 4 partitions of 4 files" in result.out
    assert "actors: not for candidates (actors are no faster); not for folds (about" in result.out
    found = json.loads(distfms("check", "job.yaml", "--json").out)
    assert (found["n_rows"], found["job"]["method"] in result.out) == (200, True)
    always = distfms("check", "job.yaml", "--set", "engine.actors=always").out
    assert "actors: for candidates (`engine.actors` is always); for folds (" in always
    assert not (place / "runs").exists()


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("multiselect.budgt=3", ["budget", "`distfms options multiselect --all` lists the keys"]),
        ("sed=3", ["`distfms options` lists the keys and sections"]),
    ],
)
def test_bad_values(refusal, change, words):
    error = refusal("run", "job.yaml", "--set", change)
    assert [word for word in words if word not in error] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "empty", "none.parquet", "--out", "p.parquet"], "not a run folder"),
        # A file in the way stops also a superuser, whom permissions do not.
        (["run", "job.yaml", "--set", "output=blocked/runs"], "blocked"),
        (["run", "job.yaml", "--out", "job.yaml"], "file"),
        (["run", "job.yaml", "--out", "things"], "things"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_bad_places(place, refusal, arguments, message):
    for name in ("empty", "things"):
        (place / name).mkdir()
    (place / "things" / "thesis.txt").write_text("years of work")
    (place / "blocked").write_text("")
    assert re.search(message, refusal(*arguments))


def test_more_memory_than_the_spec_allows(place, refusal):
    """Refused before anything ran, by `check` and by `run`."""
    for command in (["check", "job.yaml"], ["run", "job.yaml", "--out", "mine"]):
        error = refusal(*command, "--set", "engine.memory=1MiB")
        assert "needs about" in error
        assert "1.0 MiB is available" in error
        assert not (place / "mine").exists()


def test_bad_predictions(place, judgments, judgments_run, distfms):
    own = place / "own"
    own.mkdir()
    content = (judgments / "part-0.parquet").read_bytes()
    (own / "part-0.parquet").write_bytes(content)
    (place / "blocked").write_text("")
    empty = pq.read_table(judgments / "part-0.parquet").slice(0, 0)
    pq.write_table(empty, place / "empty.parquet")
    for given, out, message in (
        ("own", "own/part-0.parquet", "own/part-0.parquet is part of the data to predict"),
        ("own", "own/predicted.parquet", "is part of the data to predict, own"),
        ("empty.parquet", "p.parquet", "There are no rows in .*there is nothing to predict"),
        (
            judgments,
            "blocked/p.parquet",
            r"--out blocked/p.parquet cannot be written \(.*another file",
        ),
    ):
        result = distfms("predict", judgments_run, given, "--out", out)
        assert result.code == 2
        assert re.search(message, result.err)
    assert [p.name for p in own.iterdir()] == ["part-0.parquet"]
    assert (own / "part-0.parquet").read_bytes() == content


def test_a_run_is_found_without_its_link_and_predictions_need_a_known_form(
    place, judgments, judgments_run, distfms
):
    run = shutil.copytree(judgments_run, place / "runs" / "small" / judgments_run.name)
    refused = distfms("predict", run, judgments, "--out", "p.json")
    assert (refused.code, ".parquet or .csv" in refused.err) == (2, True)
    assert distfms("report", "runs/small/latest").code == 0
    assert distfms("report", "runs/small").code == 0


def test_use(distfms):
    assert [distfms(*a).code for a in (["run"], ["fly"], ["--help"])] == [2, 2, 0]
    assert distfms("--version").out.startswith("distfms ")
