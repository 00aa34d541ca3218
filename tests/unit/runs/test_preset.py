"""`preset: paper` is what a spec with the paper's options is, and the spec's own options win."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.prepare import prepare

NEEDED = {
    "multiselect": {"budget": 5},
    "attribute_efficient": {"attributes_per_example": 4, "positive": 3},
}


def spec(method, options=None, data=None, **top):
    own = {**NEEDED.get(method, {}), **(options or {})}
    source = {"path": "rows", "target": "y", "test": 0.25, **(data or {})}
    return build_spec({"name": "it", "method": method, "data": source, method: own, **top})


SETS = {
    "multiselect": ({"ridge": 0.0, "psd": "data_units"}, {}),
    "sequence": ({"criterion": "omp", "ridge": 1e-5, "stopping": "prefix"}, {}),
    "landmarks": ({"metric": "none", "loss": "epsilon_insensitive"}, {}),
    "attribute_efficient": ({"solver": "online", "repeats": 100}, {"folds": 10}),
}


@pytest.mark.parametrize("method", SETS)
def test_a_preset_is_its_options_written_out(method):
    made = spec(method, preset="paper")
    options, data = SETS[method]
    assert options.items() <= made.options.model_dump().items()
    assert data.items() <= made.data.model_dump().items()
    listed = {name: own for name, own in made.preset.items() if own}
    given = {**NEEDED.get(method, {}), **listed.pop(method)}
    alike = spec(method, given, listed.pop("data", {}), **listed)
    assert made.to_mapping() == alike.to_mapping()
    assert made.identity(["x"]) == alike.identity(["x"])
    assert not spec(method).preset


def test_what_the_spec_says_wins():
    made = spec("multiselect", {"psd": "none"}, preset="paper")
    assert (made.options.psd, made.options.ridge) == ("none", 0.0)
    assert "psd" not in made.preset["multiselect"]
    grid = {"step_factor": [1.0, 2.0]}
    made = spec("attribute_efficient", {"bound": 2.0}, preset="paper")
    assert list(made.tune.grid) == ["step_factor"]
    made = spec("attribute_efficient", preset="paper", tune={"grid": grid})
    assert made.tune.grid == {"step_factor": (1.0, 2.0)}
    made = spec("attribute_efficient", {"bound": 2.0, "step_factor": 3.0}, preset="paper")
    assert (made.tune, made.options.solver) == (None, "online")
    assert not spec("attribute_efficient", {"solver": "pairs"}, preset="paper").preset
    assert (
        "sparse" not in spec("sequence", {"family": "logistic"}, preset="paper").options.baselines
    )


@pytest.mark.parametrize("family", ["auto", "logistic"])
def test_the_preset_of_sequences_takes_classes_of_texts(family, tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=60) for name in "abc"}
    columns["y"] = np.where(columns["a"] + rng.normal(size=60) > 0, "yes", "no")
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    data = {"path": str(tmp_path / "rows.parquet"), "folds": 0}
    prepared = prepare(spec("sequence", {"family": family}, data, preset="paper"))
    assert prepared.job.options.family in ("logistic", "softmax")
    assert "sparse" not in prepared.job.options.baselines


def test_check_says_what_a_preset_set():
    content = ["preset=paper", "data.test=0.25"]
    described = prepare(load_spec("jobs/landmarks-digits.yaml", content)).describe()
    assert "landmarks.metric none" in described["preset"]
