"""The command line as a user meets it: results, exit codes, messages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.runs.driver import run_job
from tests.e2e.jobs import judgments_job, results, stage, write_judgments

ROOT = Path(__file__).resolve().parents[2]


def distfms(*arguments, cwd, **variables):
    command = [sys.executable, "-m", "distfms.cli", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def spec_text(data, **method):
    options = {"budget": 12, **method}
    return json.dumps(
        {
            "name": "small",
            "method": "multiselect",
            "data": {"path": str(data), "target": "y", "id": "id", "folds": 3, "test": 0.2},
            "multiselect": options,
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_judgments(tmp_path_factory.mktemp("data") / "judgments")


@pytest.fixture
def place(data, tmp_path):
    (tmp_path / "job.yaml").write_text(spec_text(data))
    return tmp_path


def test_run_predict_report(place, data):
    result = distfms("run", "job.yaml", "--out", "out", cwd=place)
    assert result.returncode == 0, result.stderr
    assert result.stdout.rstrip().endswith("out/report.html")
    html = (place / "out" / "report.html").read_text()
    assert "<svg" in html
    selection = json.loads((place / "out" / "selection.json").read_text())
    assert selection["spent"] == 12
    assert sum(selection["repeats"].values()) == 12
    assert selection["path"][-1]["spent"] == 12

    result = distfms("predict", "out", data, "--out", "predicted.parquet", cwd=place)
    assert result.returncode == 0, result.stderr
    predicted = pq.read_table(place / "predicted.parquet")
    truth = pq.read_table(data)
    assert predicted.column("id").to_pylist() == truth.column("id").to_pylist()
    error = predicted.column("predicted_y").to_numpy() - truth.column("y").to_numpy()
    assert np.mean(error**2) < 0.7 * np.var(truth.column("y").to_numpy())

    (place / "out" / "report.html").unlink()
    assert distfms("report", "out", cwd=place).returncode == 0
    assert (place / "out" / "report.html").read_text().count("<svg") == html.count("<svg")


def test_predictions_are_the_models_numbers(place, data):
    folder = run_job(judgments_job(data, place)).folder
    model = json.loads((folder / "model.json").read_text())
    arrays = np.load(folder / "weights.npz")
    distfms("predict", folder, data / "part-2.parquet", "--out", "p.parquet", cwd=place)
    table = pq.read_table(data / "part-2.parquet").to_pylist()
    predicted = pq.read_table(place / "p.parquet").column("predicted_y").to_numpy()
    for row, value in zip(table, predicted, strict=True):
        means = [
            np.mean(row[name][:r])
            for name, r in zip(model["attributes"], arrays["repeats"], strict=True)
        ]
        assert value == pytest.approx(model["intercept"] + arrays["weights"] @ means, rel=1e-12)


def test_check_reads_no_rows_and_writes_nothing(place):
    result = distfms("check", "job.yaml", cwd=place)
    assert result.returncode == 0
    assert "Reads 200 rows, 4 partitions of 4 files" in result.stdout
    assert not (place / "runs").exists()


@pytest.mark.parametrize(
    "engine",
    [{"workers": 2}, {"workers": 4}, {"workers": 2, "processes": True}, {"cache": False}],
    ids=["two", "four", "processes", "uncached"],
)
def test_same_bits_whatever_the_engine(data, tmp_path, engine):
    expected = results(run_job(judgments_job(data, tmp_path / "one")).folder)
    assert (
        results(run_job(judgments_job(data, tmp_path / "other", engine=engine)).folder) == expected
    )


def test_same_bits_on_a_dask_cluster(data, tmp_path):
    from distributed import LocalCluster

    expected = results(run_job(judgments_job(data, tmp_path / "one")).folder)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        engine = {"kind": "dask", "address": cluster.scheduler_address, "workers": None}
        folder = run_job(judgments_job(data, tmp_path / "other", engine=engine)).folder
    assert results(folder) == expected
    manifest = json.loads((folder / "manifest.json").read_text())
    assert stage(manifest, "statistics")["n_read"] == 4


# --- bad input ----------------------------------------------------------------------------------


def refusal(place, *arguments, code=2):
    result = distfms(*arguments, cwd=place)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    error = result.stderr[result.stderr.index("Error: ") :]
    assert error.count("\n") == 1
    return error


def complaint(place, *arguments, code=2):
    error = refusal(place, *arguments, code=code)
    assert not (place / "runs" / "small").exists()
    return error


def one_file(place, columns):
    pq.write_table(pa.table(columns), place / "own.parquet")
    return place / "own.parquet"


def judged(n, **changes):
    rng = np.random.default_rng(0)
    columns = {
        "id": list(range(n)),
        "y": rng.normal(size=n),
        "a": rng.normal(size=(n, 2)).tolist(),
        "b": rng.normal(size=(n, 2)).tolist(),
    }
    return columns | changes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [1.0] * 40}, "label"),
        ({"a": [[1.0]] * 40}, r"\ba\b.*"),
        ({"a": [[1.0, float("inf")]] + [[1.0, 2.0]] * 39}, "infinite"),
        ({"y": [None] + [1.0, 2.0, 3.0] * 13}, "y"),
        ({"y": [None] * 40}, "y"),
        ({"a": ["x"] * 40}, "a"),
    ],
    ids=["constant label", "judged once", "infinite", "label missing", "no label", "text"],
)
def test_bad_columns(place, change, message):
    path = one_file(place, judged(40, **change))
    (place / "bad.yaml").write_text(spec_text(path))
    assert re.search(message, complaint(place, "run", "bad.yaml"))


def test_one_object(place):
    (place / "bad.yaml").write_text(spec_text(one_file(place, judged(1))))
    assert "at least 2" in complaint(place, "run", "bad.yaml", "--set", "data.test=0")


def test_no_such_file(place):
    assert "nowhere" in complaint(place, "run", "job.yaml", "--set", "data.path=nowhere")


def test_folder_without_parquet(place):
    (place / "empty").mkdir()
    assert "empty" in complaint(place, "run", "job.yaml", "--set", "data.path=empty")


def test_truncated_file(place, data):
    content = (data / "part-0.parquet").read_bytes()
    (place / "cut.parquet").write_bytes(content[: len(content) // 2])
    assert "cut.parquet" in complaint(place, "run", "job.yaml", "--set", "data.path=cut.parquet")


def test_shard_with_another_schema(place, data):
    folder = place / "mixed"
    folder.mkdir()
    table = pq.read_table(data / "part-0.parquet")
    pq.write_table(table, folder / "part-0.parquet")
    pq.write_table(table.drop_columns(["loud"]), folder / "part-1.parquet")
    text = complaint(place, "run", "job.yaml", "--set", "data.path=mixed")
    assert "loud" in text
    assert "part-1.parquet" in text


def test_wrong_names(place):
    assert "'y'" in complaint(place, "run", "job.yaml", "--set", "data.target=yy")
    text = complaint(place, "run", "job.yaml", "--set", "data.features=[warm, loudd]")
    assert "loudd" in text
    assert "loud" in text.replace("loudd", "")
    assert "budget" in complaint(place, "run", "job.yaml", "--set", "multiselect.budgt=3")
    assert "warmm" in complaint(place, "run", "job.yaml", "--set", "multiselect.costs.warmm=3")
    assert "warmm" in complaint(
        place, "run", "job.yaml", "--set", "multiselect.internal_variance.warmm=3"
    )
    assert "warmm" in complaint(
        place, "run", "job.yaml", "--set", "multiselect.baselines=['single:warmm']"
    )


@pytest.mark.parametrize("cost", ["0", "-1", ".nan"])
def test_bad_cost(place, cost):
    assert "warm" in complaint(place, "run", "job.yaml", "--set", f"multiselect.costs.warm={cost}")


def test_budget_zero(place):
    assert "budget" in complaint(place, "run", "job.yaml", "--set", "multiselect.budget=0")


def test_budget_below_the_cheapest_attribute(place):
    result = distfms("run", "job.yaml", "--set", "multiselect.costs.default=20", cwd=place)
    assert result.returncode == 2
    assert "12" in result.stderr
    assert "20" in result.stderr


def test_out_is_taken(place, data):
    assert distfms("run", "job.yaml", "--out", "out", cwd=place).returncode == 0
    before = results(place / "out")
    text = complaint(place, "run", "job.yaml", "--out", "out", "--set", "seed=5")
    assert "another spec" in text
    assert results(place / "out") == before
    (place / "things").mkdir()
    (place / "things" / "thesis.txt").write_text("years of work")
    assert "things" in complaint(place, "run", "job.yaml", "--out", "things")
    assert "file" in complaint(place, "run", "job.yaml", "--out", "job.yaml")


def test_more_memory_than_the_spec_allows(place):
    """Refused before anything ran: exit code 2, by `check` and by `run`."""
    for command in (["check", "job.yaml"], ["run", "job.yaml", "--out", "mine"]):
        error = complaint(place, *command, "--set", "engine.memory=1MiB")
        assert "would take about" in error
        assert "1.0 MiB is available" in error
        assert not (place / "mine").exists()


def test_unwritable_output(place):
    # A file in the way stops also a superuser, whom permissions do not.
    (place / "blocked").write_text("")
    text = complaint(place, "run", "job.yaml", "--set", "output=blocked/runs")
    assert "blocked" in text


def test_predict_needs_a_finished_run(place, data):
    (place / "none").mkdir()
    assert "no run folder" in complaint(place, "predict", "none", data, "--out", "p.parquet")


def test_nothing_to_predict(place, data):
    folder = run_job(judgments_job(data, place)).folder
    empty = pq.read_table(data / "part-0.parquet").slice(0, 0)
    pq.write_table(empty, place / "empty.parquet")
    text = refusal(place, "predict", folder, "empty.parquet", "--out", "p.parquet")
    assert "There are no rows in" in text
    assert "there is nothing to predict" in text
    (place / "blocked").write_text("")
    text = refusal(place, "predict", folder, data, "--out", "blocked/p.parquet")
    assert "--out blocked/p.parquet cannot be written (" in text
    assert "Name another file" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "job.yaml", "--set", "output=memory://lab"),
        ("run", "job.yaml", "--out", "memory://lab/run"),
        ("check", "job.yaml", "--set", "output=MEMORY://lab"),
        ("predict", "none", "none.parquet", "--out", "memory://lab/p.parquet"),
    ],
)
def test_what_ends_with_the_command_is_refused(place, arguments):
    assert "lives only in the memory of this process" in complaint(place, *arguments)


def test_usage(place):
    assert distfms("run", cwd=place).returncode == 2
    assert distfms("fly", cwd=place).returncode == 2
    assert distfms("--help", cwd=place).returncode == 0


def test_predictions_do_not_overwrite_the_data(place, data):
    folder = run_job(judgments_job(data, place)).folder
    own = place / "own"
    own.mkdir()
    (own / "part-0.parquet").write_bytes((data / "part-0.parquet").read_bytes())
    before = (own / "part-0.parquet").read_bytes()
    for target in ("own/part-0.parquet", "own/predicted.parquet"):
        result = distfms("predict", folder, "own", "--out", target, cwd=place)
        assert result.returncode == 2
        assert target in result.stderr
    assert [p.name for p in own.iterdir()] == ["part-0.parquet"]
    assert (own / "part-0.parquet").read_bytes() == before


def test_version_and_traceback_on_demand(place):
    assert distfms("--version", cwd=place).stdout.startswith("distfms ")
    result = distfms("--debug", "check", "nowhere.yaml", cwd=place)
    assert "Traceback" in result.stderr
    assert result.returncode == 1


def test_a_full_disk_at_the_start_leaves_nothing(data, tmp_path, monkeypatch):
    import errno

    from distfms.errors import EngineError
    from distfms.runs.folder import RunFolder

    def full(self, **entries):
        raise EngineError("The disk is full") from OSError(errno.ENOSPC, "No space")

    monkeypatch.setattr(RunFolder, "update", full)
    with pytest.raises(EngineError, match="disk is full"):
        run_job(judgments_job(data, tmp_path / "runs"))
    assert not (tmp_path / "runs" / "small").exists()
