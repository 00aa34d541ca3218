"""The Python of the README and the tutorial of `jobs/` run as they stand."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 60))
Y = X[:, 0] + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=120)
COLUMNS = ["hdl", "ldl", "glucose_fasting", "ecg_1", "ecg_2"]
FRAME = pd.DataFrame(X[:, :5], columns=COLUMNS)
JUDGMENTS = X[:, :6, None] + RNG.normal(size=(120, 6, 3))
#: What stands around the blocks, by a word that is in one of them.
AROUND = {
    "FeatureMultiSelector": {"X": JUDGMENTS, "y": Y, "X_test": JUDGMENTS, "y_test": Y},
    "GroupSequencer": {"frame": FRAME, "risk": Y},
    "LandmarkRegressor": {"X": X[:, :5], "y": Y},
    "X, y": {"X": X, "y": Y},
    "model.ask()": {
        "tests": COLUMNS,
        "volunteers": range(30),
        "measure": lambda patient, name: FRAME[name][patient],
        "outcome": lambda patient: Y[patient],
    },
    "registry:patients": {"frame": FRAME},
}


@pytest.mark.parametrize("block", BLOCKS, ids=[re.sub(r"\W+", "-", b)[:40] for b in BLOCKS])
def test_python_of_the_readme_runs(block, tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    if "registry:patients" in block:
        FRAME.assign(risk=Y).to_parquet("patients.parquet")
        data = {"path": "patients.parquet", "target": "risk", "test": 0.2}
        spec = {"name": "patients", "method": "sequence", "data": data, "retrain": {}}
        Path("job.yaml").write_text(json.dumps(spec))
        assert distfms("retrain", "job.yaml").code == 0
    scope = next(found for word, found in AROUND.items() if word in block)
    exec(block, dict(scope))


def test_the_tutorial_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = runpy.run_path(str(ROOT / "jobs" / "tutorial.py"))
    assert "the same again: True" in capsys.readouterr().out
    assert found["classifier"].score(found["A_test"], found["c_test"]) > 0.9
