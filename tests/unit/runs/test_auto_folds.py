"""Which jobs are cross-validated by default, and what is said of it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import DataError, SpecError
from distfms.runs import auto_folds
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from distfms.spec import read_yaml
from tests.e2e.jobs import content

METHODS = {
    "multiselect": {"budget": 5, "internal_variance": {"x0": 1.0}},
    "sequence": {},
    "landmarks": {},
    "attribute_efficient": {"attributes_per_example": 2},
}


def write(folder, n, d=3, name="rows"):
    """Write n rows of d columns, with a target and classes that depend on the first."""
    rng = np.random.default_rng(n)
    columns = {f"x{i}": rng.normal(size=n) for i in range(d)}
    y = columns["x0"] + 0.3 * rng.normal(size=n)
    classes = np.array(["no", "yes"])[(y > 0) * 1]
    pq.write_table(pa.table({**columns, "y": y, "class": classes}), folder / f"{name}.parquet")
    return str(folder / f"{name}.parquet")


def spec(path, method="sequence", tune=None, **changes):
    job = {
        "name": "auto",
        "method": method,
        "data": {"path": path, "target": "y", "exclude": "class", **changes.pop("data", {})},
        method: {**METHODS[method], **changes},
        "output": path.replace("rows.parquet", "runs"),
    }
    return build_spec(job | ({} if tune is None else {"tune": tune}))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "test", "n_folds"), [(20, 0.0, 5), (19, 0.0, 0), (24, 0.2, 0)])
def test_rows_decide(tmp_path, method, n, test, n_folds):
    prepared = prepare(spec(write(tmp_path, n), method, data={"test": test}))
    assert prepared.spec.data.folds == prepared.job.inputs.section.folds == n_folds
    said = {5: "5 folds", 0: "none"}[n_folds]
    assert prepared.describe()["cross-validation"].startswith(said)
    noted = [note for note in prepared.origin.notes if "no cross-validation" in note]
    assert len(noted) == (not n_folds)
    assert all("there are 19 rows to learn from, fewer than 20" in note for note in noted)
    assert all(("of the training rows" in note) == (not test) for note in noted)


@pytest.mark.parametrize(("method", "d", "bound"), [("sequence", 30, 6), ("landmarks", 3, 12)])
def test_the_size_of_the_statistics_decides(tmp_path, monkeypatch, method, d, bound):
    path = write(tmp_path, 100, d)
    needed = prepare(spec(path, method)).job.statistics_bytes
    assert needed > 8 * bound * (d + 1) ** 2 - 1
    monkeypatch.setattr(auto_folds, "MOST_BYTES", needed)
    assert prepare(spec(path, method)).spec.data.folds == 5
    monkeypatch.setattr(auto_folds, "MOST_BYTES", needed - 1)
    prepared = prepare(spec(path, method))
    assert prepared.spec.data.folds == 0
    assert "the statistics of 5 folds would take" in prepared.origin.notes[0]
    assert prepare(spec(path, method, data={"folds": 5})).spec.data.folds == 5


def test_a_run_keeps_what_was_found(tmp_path):
    path = write(tmp_path, 200)
    run = run_job(spec(path)).folder
    assert read_yaml(run / "spec.yaml")["data"]["folds"] == 5
    assert run_job(build_spec(read_yaml(run / "spec.yaml")), out=run).resumed
    assert run_job(spec(path), out=run).resumed
    assert len(content(run, "metrics.json")["folds"]) == 5
    predict_file(run, path, tmp_path / "found.parquet", with_folds=True)
    folds = pq.read_table(tmp_path / "found.parquet").column("fold").to_pylist()
    assert sorted(set(folds)) == [0, 1, 2, 3, 4]


def test_what_costs_passes_says_what_folds_cost(tmp_path):
    path = write(tmp_path, 100)
    classes = {"target": "class", "exclude": "y"}
    for method, own, data in (
        ("sequence", {"family": "logistic"}, classes),
        ("sequence", {"model": "lightgbm"}, {}),
        ("landmarks", {"task": "classification"}, classes),
    ):
        described = prepare(spec(path, method, data=data, **own)).describe()
        assert "about 6 times the work" in described["cross-validation"]
        without = prepare(spec(path, method, data={**data, "folds": 0}, **own))
        assert without.describe()["cross-validation"] == "none"


def test_tuning_needs_folds(tmp_path):
    tune = {"grid": {"ridge": [0.1, 1.0]}}
    assert prepare(spec(write(tmp_path, 60), tune=tune)).job.tune is not None
    with pytest.raises(SpecError, match=r"there is 1 row to learn from.* Set `data.folds`"):
        prepare(spec(write(tmp_path, 1), tune=tune))


def one_of_a_class(frame):
    frame["class"] = np.where(np.arange(len(frame)) == 3, "yes", "no")


def a_third_class(frame):
    frame.loc[3, "class"] = "maybe"


def nearly_constant(frame):
    frame["y"] = (np.arange(len(frame)) == 3) * 1.0


def few_of_weight(frame):
    frame["w"] = (np.arange(len(frame)) < 4) * 1.0


@pytest.mark.parametrize(
    ("method", "own", "edits"),
    [
        ("sequence", {}, [nearly_constant, few_of_weight]),
        ("sequence", {"family": "logistic"}, [one_of_a_class]),
        ("sequence", {"family": "softmax"}, [one_of_a_class, a_third_class]),
        ("landmarks", {"landmarks": 3}, [nearly_constant, few_of_weight]),
        ("landmarks", {"task": "classification", "landmarks": 3}, [one_of_a_class]),
    ],
)
def test_folds_that_leave_nothing_to_learn_from_are_left_out(tmp_path, method, own, edits):
    """What works without cross-validation works with it."""
    frame = pd.read_parquet(write(tmp_path, 60)).assign(id=np.arange(60), w=1.0)
    names = {"class", "y"} if "family" in own or "task" in own else {"y"}
    target = min(names)
    for edit in edits:
        edited = frame.copy()
        edit(edited)
        edited.to_parquet(path := tmp_path / edit.__name__)
        roles = {"target": target, "exclude": max({"class", "y"} - {target}), "id": "id"}
        weight = {"weight": "w"} if edit is few_of_weight else {"features": ["x*"]}
        spec_of = {"data": {**roles, **weight}, **own}
        made = spec(str(path), method, **spec_of).to_mapping()
        run = run_job(build_spec({**made, "output": str(tmp_path / "runs")})).folder
        n_folds = len(content(run, "metrics.json")["folds"])
        noted = [n for n in content(run, "manifest.json")["notes"] if "are left out of" in n]
        assert len(noted) == (n_folds < 5)
        assert n_folds == {few_of_weight: n_folds, a_third_class: 5}.get(edit, 4)


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("sequence", {}),
        ("landmarks", {"landmarks": 3}),
        ("attribute_efficient", {"solver": "online"}),
    ],
)
def test_an_id_that_keeps_all_rows_together_is_refused(tmp_path, method, own):
    path = write(tmp_path, 60)
    pd.read_parquet(path).assign(id=7).to_parquet(path)
    with pytest.raises(
        DataError, match=r"Only one of 5 folds has .* with the same 'id' stay together"
    ):
        run_job(spec(path, method, data={"id": "id"}, **own))
