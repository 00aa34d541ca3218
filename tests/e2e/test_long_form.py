"""Jobs on judgments in long form."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.errors import DataError
from distfms.retrain.job import retrain
from distfms.runs.driver import run_job
from distfms.runs.prepare import prepare
from tests.e2e.jobs import RESULTS, content
from tests.e2e.multiselect_jobs import NAMES, N, job, notes

FORM = {"object": "object", "attribute": "attribute", "value": "value", "worker": "worker"}


def write_long(folder, n_files=1, extra=()):
    """Judgments of 60 objects as CSV, 0 to 3 a cell, with labels of most objects."""
    rng = np.random.default_rng(0)
    rows = [
        f"o{i},{name},w{k},{i % 7 + a + rng.normal():.6f}"
        for i in range(N)
        for a, name in enumerate(NAMES)
        for k in range(rng.integers(0, 4))
    ]
    rows += extra
    folder.mkdir(exist_ok=True)
    size = -(-len(rows) // n_files)
    for part in range(n_files):
        lines = ["object,attribute,worker,value", *rows[part * size : (part + 1) * size]]
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")
    labels = [f"o{i},{i % 7 + 0.1 * (i % 3)}" for i in range(N) if i % 9]
    (folder / "labels.txt").write_text("")  # not taken for judgments
    (folder.parent / "labels.csv").write_text("object,y\n" + "\n".join(labels) + "\n")
    return folder


def long_job(path, output, long=None, **changes):
    labels = {"label": "y", "labels": str(output.parent / "labels.csv")}
    data = {
        "target": [],
        "id": None,
        "long": {**FORM, **labels, **(long or {})},
        **changes.pop("data", {}),
    }
    return job(path, output, data=data, **changes)


def conversions(runs):
    """Folders of converted judgments."""
    return list((runs / ".kept/judgments").glob("*/judgments"))


def test_judgments_in_several_csv_files(tmp_path):
    one = write_long(tmp_path / "one")
    many = write_long(tmp_path / "many", n_files=3)
    expected = run_job(long_job(one / "0.csv", tmp_path / "a")).folder
    losses = content(expected, "metrics.json")["test"]
    files = [str(many / f"{part}.csv") for part in range(3)]
    for path in (str(many), str(many / "*.csv"), files):
        folder = run_job(long_job(many, tmp_path / "b", data={"path": path})).folder
        loss = content(folder, "metrics.json")["test"]["projected_loss"]
        assert loss == pytest.approx(losses["projected_loss"], rel=1e-9)
        assert "7 objects without a label" in notes(content(folder, "manifest.json"))


def test_retraining_reads_what_is_new(tmp_path):
    whole = write_long(tmp_path / "whole") / "0.csv"
    days = tmp_path / "days"
    days.mkdir()
    head, *lines = whole.read_text().splitlines()
    later = [line for line in lines if line.startswith("o1,")][2:]
    rows = [line for line in lines if line not in later]
    folders = []

    def night(day, some):
        (days / f"{day}.csv").write_text("\n".join([head, *some]) + "\n")
        changes = {"data": {"folds": 0}, "retrain": {"gate": {"max_regression": 9}}}
        spec = long_job(days, tmp_path / "runs", **changes)
        outcome = retrain(spec, spec.registry())
        assert outcome.promoted
        told = content(outcome.folder, "retrain.json")["data"]
        folders.append(outcome.folder)
        new, changed = ([n.split("/")[2][:5] for n in told[key]] for key in ("new", "changed"))
        return new, changed, told["n_read"]

    assert night("day-1", rows[: len(rows) // 2]) == (["day-1"], [], 1)
    assert night("day-2", rows[len(rows) // 2 :])[1:] == (["day-1"], 2)  # an object of both
    assert night("day-3", later) == ([], ["day-1"], 1)
    assert night("day-4", ["p1,a,w1,3", "p1,b,w1,3"]) == ([], [], 0)  # no label
    copy = max(conversions(tmp_path / "runs"), key=lambda folder: folder.parent.stat().st_mtime)
    assert "Several files hold" in notes(content(folders[-1], "manifest.json"))
    fresh = run_job(long_job(days, tmp_path / "fresh", data={"folds": 0})).folder
    for name in RESULTS:
        assert (folders[-1] / name).read_bytes() == (fresh / name).read_bytes()
    prepare(long_job(whole, tmp_path / "whole-runs"))
    (wide,) = conversions(tmp_path / "whole-runs")
    tables = (pq.read_table(p, partitioning=None) for p in (copy, wide))
    found, wanted = (table.sort_by([("object", "ascending")]) for table in tables)
    assert found.column("object").equals(wanted.column("object"))
    assert sorted(map(len, found["a"].to_pylist())) == sorted(map(len, wanted["a"].to_pylist()))


@pytest.mark.parametrize(
    ("row", "message"), [("o1,a,w9,high", "row .* holds 'high'"), ("o1,a", "cannot be read as CSV")]
)
def test_bad_rows_of_judgments(tmp_path, row, message):
    path = write_long(tmp_path / "long", extra=[row])
    with pytest.raises(DataError, match=message):
        prepare(long_job(path, tmp_path / "runs"))
    assert not conversions(tmp_path / "runs")
