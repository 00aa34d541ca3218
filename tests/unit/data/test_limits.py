"""`<5` among numbers counts as its bound, in files and frames."""

import numpy as np
import pandas as pd
import pytest

import distfms
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec

N = 60


def frame():
    rng = np.random.default_rng(0)
    lab = np.abs(rng.normal(size=N)) + 0.1
    written = [f"{value:.2f}" if value >= 0.5 else "<0.5" for value in lab]
    return pd.DataFrame({"lab": [">9", *written[1:]], "b": rng.normal(size=N), "y": lab})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_bounds_are_numbers_in_files_and_frames(ending, tmp_path):
    rows = frame()
    path = tmp_path / f"rows.{ending}"
    getattr(rows, f"to_{ending}")(path, index=False)
    data = {"path": str(path), "target": "y", "numbers": ["lab"], "folds": 0}
    section = {"model": "linear", "baselines": []}
    spec = {"name": "limits", "method": "sequence", "data": data, "sequence": section}
    folder = run_job(build_spec({**spec, "output": str(tmp_path / "runs")})).folder
    model = distfms.load(folder)
    notes = model.run.manifest["notes"]
    assert any("count as their bound" in note for note in notes)
    written = model.predict({"lab": ["<0.5", ">9"], "b": [0.0, 0.0]})["predicted_y"].to_pylist()
    numbers = model.predict({"lab": [0.5, 9.0], "b": [0.0, 0.0]})["predicted_y"].to_pylist()
    assert written == numbers
    np.testing.assert_array_equal(
        model.predict(rows)["predicted_y"], model.predict(path)["predicted_y"]
    )
