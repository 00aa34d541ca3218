"""Multi-selection with the covariance in slabs is the job of one process but for what it says."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.methods.multiselect import slab_form
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content, stage
from tests.e2e.multiselect_jobs import job as small_job
from tests.e2e.test_sequence_mapped import require_close

OPTIONS = {
    "algorithm": "full",
    "budget": 12,
    "ridge": 0.2,
    "psd": "none",
    "plan": True,
    "costs": {"warm": 2.0},
}
ENOUGH = slab_form.ONE_PROCESS_BYTES


@pytest.fixture(scope="module", autouse=True)
def small_slabs():
    """Slabs of two of the five attributes, whatever one process could do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slab_form, "SLAB_COLUMNS", 2)
        patch.setattr(slab_form, "ONE_PROCESS_BYTES", 0)
        yield


def job(path, output, **changes):
    options = OPTIONS | changes.pop("multiselect", {})
    return small_job(path, output, **changes, multiselect=options)


def run(path, output, **changes):
    return run_job(job(path, output, **changes)).folder


def run_in_one_process(path, output, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slab_form, "ONE_PROCESS_BYTES", ENOUGH)
        return run(path, output, **changes)


@pytest.fixture(scope="module")
def in_slabs(judgments, tmp_path_factory):
    """A finished run, and what it said."""
    messages = []
    spec = job(judgments, tmp_path_factory.mktemp("runs"), engine={"cache": False})
    return run_job(spec, say=messages.append).folder, messages


@pytest.mark.parametrize("model", ["projected", "refit"])
def test_result_is_that_of_one_process(judgments, tmp_path, in_slabs, model):
    options = {"multiselect": {"model": model}}
    cut = in_slabs[0] if model == "projected" else run(judgments, tmp_path / "a", **options)
    one = run_in_one_process(judgments, tmp_path / "b", **options)
    found = content(cut, "selection.json")
    expected = content(one, "selection.json")
    require_close(found, expected)
    weights = [np.load(folder / "weights.npz")["weights"] for folder in (cut, one)]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9)
    metrics = content(cut, "metrics.json")
    others = content(one, "metrics.json")
    assert metrics.keys() == others.keys()
    require_close(metrics["test"], others["test"])
    assert set(metrics["baselines"]) == {"scoring"}
    scoring = [m["baselines"]["scoring"] for m in (metrics, others)]
    assert scoring[0]["repeats"] == scoring[1]["repeats"]
    assert scoring[0]["test"] == pytest.approx(scoring[1]["test"])
    assert metrics["folds"] == []
    tables = []
    for number, folder in enumerate((cut, one)):
        predict_file(folder, judgments, tmp_path / f"{number}.parquet")
        tables.append(pq.read_table(tmp_path / f"{number}.parquet"))
    np.testing.assert_allclose(*(table.column("predicted_y") for table in tables), rtol=1e-9)
    plans = [sorted(p.name for p in (folder / "plan").iterdir()) for folder in (cut, one)]
    assert plans[0] == plans[1]
    assert "multi-selection" in (cut / "report.html").read_text()


def test_says_what_it_did_and_left_out(judgments, tmp_path, in_slabs):
    assert (
        "3 slabs of up to 2 columns" in prepare(job(judgments, tmp_path)).job.describe()["search"]
    )
    folder, said = in_slabs
    manifest = content(folder, "manifest.json")
    note = next(n for n in manifest["notes"] if "5 attributes were searched in 3 slabs on" in n)
    assert "no cross-validation; baselines left out: averages, copies, lasso" in note
    assert f"Note: {note} (N027)" in said
    # Each slab is a pass over the four files; then one for the chosen, and one of averages.
    for number in (1, 2, 3):
        assert stage(manifest, f"statistics {number} of 3")["n_read"] == 4
    assert set(manifest["judgments"]["train"]) == {"warm", "tall", "loud", "soft", "flat"}


def test_form_depends_on_the_spec_and_the_number_of_attributes(judgments, tmp_path, monkeypatch):
    def form(**changes):
        return prepare(job(judgments, tmp_path, **changes)).job.form

    assert form().slabs is not None
    for option in ({"psd": "nearest"}, {"algorithm": "scoring"}):
        assert form(multiselect=option).slabs is None
    few = {"data": {"folds": 0}, "multiselect": {"baselines": ["scoring"]}}
    made = form(**few)
    assert made.one_process_bytes(20_000, 0) == (2 * 2 + 6) * 8 * 20_000**2
    monkeypatch.setattr(slab_form, "ONE_PROCESS_BYTES", made.one_process_bytes(5, 0))
    assert form(**few).slabs is None
    assert form(**few | {"data": {"folds": 2}}).slabs is not None
    assert form(**few | {"multiselect": {"baselines": ["copies"]}}).slabs is None
    with pytest.raises(SpecError, match=r"`multiselect\.ridge` needs cross"):
        form(multiselect={"ridge": [0.1, 0.2]})
