"""Jobs on judgments in long form."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distfms.errors import DataError
from distfms.runs.driver import prepare, run_job
from tests.e2e.multiselect_jobs import NAMES, N, job, notes


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
    (folder / "labels.tsv").write_text("")  # not taken for judgments
    (folder.parent / "labels.csv").write_text("object,y\n" + "\n".join(labels) + "\n")
    return folder


def long_job(path, output, long=None, **changes):
    form = {"object": "object", "attribute": "attribute", "value": "value", "worker": "worker"}
    labels = {"label": "y", "labels": str(output.parent / "labels.csv")}
    data = {
        "target": [],
        "id": None,
        "long": {**form, **labels, **(long or {})},
        **changes.pop("data", {}),
    }
    return job(path, output, data=data, **changes)


@pytest.mark.parametrize("form", ["folder", "glob", "list"])
def test_judgments_in_several_csv_files(tmp_path, form):
    one = write_long(tmp_path / "one")
    many = write_long(tmp_path / "many", n_files=3)
    path = {"folder": many, "glob": many / "*.csv"}.get(form)
    expected = run_job(long_job(one / "0.csv", tmp_path / "a")).folder
    spec = long_job(path, tmp_path / "b")
    if form == "list":
        files = [str(many / f"{part}.csv") for part in range(3)]
        spec = long_job(path, tmp_path / "b", data={"path": files})
    folder = run_job(spec).folder
    assert (folder / "metrics.json").read_bytes() == (expected / "metrics.json").read_bytes()
    assert "7 objects without a label" in notes(json.loads((folder / "manifest.json").read_text()))


def test_changed_csv_is_converted_again(tmp_path):
    path = write_long(tmp_path / "long", n_files=2)
    run_job(long_job(path, tmp_path / "runs"))
    os.utime(path / "1.csv", (1, 1))
    prepare(long_job(path, tmp_path / "runs"))
    assert len(list((tmp_path / "runs" / ".data").glob("judgments-*"))) == 2


def test_seed_alone_does_not_convert_again(tmp_path):
    """Unless judgments are drawn."""
    path = write_long(tmp_path / "long")
    for seed in (0, 1):
        prepare(long_job(path, tmp_path / "runs", seed=seed))
        prepare(long_job(path, tmp_path / "runs", {"max_judgments": 2}, seed=seed))
    assert len(list((tmp_path / "runs" / ".data").glob("judgments-*"))) == 3


def test_two_jobs_convert_once(tmp_path):
    path = write_long(tmp_path / "long")
    said = []
    specs = [long_job(path, tmp_path / "runs", multiselect={"budget": b}) for b in (4, 5, 6)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda spec: prepare(spec, said.append), specs))
    assert len([line for line in said if line.startswith("Converting")]) == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [("o1,a,w9,high", "row .* holds 'high'"), ("o1,a", "cannot be read")],
)
def test_bad_rows_of_judgments(tmp_path, row, message):
    path = write_long(tmp_path / "long", extra=[row])
    with pytest.raises(DataError, match=message):
        prepare(long_job(path, tmp_path / "runs"))
    assert not list((tmp_path / "runs" / ".data").glob("judgments-*"))
