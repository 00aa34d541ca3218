"""How often a default job of each method reads its data."""

import numpy as np
import pandas as pd
import pytest

from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from tests.e2e.jobs import content, write_judgments

#: Passes that a default job may make: texts and classes first, then moments and a sample.
MOST = {"multiselect": 2, "sequence": 3, "landmarks": 4, "attribute_efficient": 3}
SECTIONS = {"multiselect": {"budget": 6}, "attribute_efficient": {"attributes_per_example": 2}}


def rows(n=120):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    return frame.assign(y=frame["a"] - frame["b"] + 0.5 * rng.normal(size=n))


@pytest.mark.parametrize("method", MOST)
def test_a_default_job_makes_few_passes(tmp_path, method):
    data = tmp_path / "data"
    if method == "multiselect":
        write_judgments(data, 80)
    else:
        data.mkdir()
        rows().to_parquet(data / "rows.parquet")
    section = {"path": str(data), "target": "y"}
    if method == "multiselect":
        section["id"] = "id"
    job = {"name": "job", "method": method, "data": section, "output": str(tmp_path / "runs")}
    spec = build_spec({**job, method: SECTIONS.get(method, {})})
    manifest = content(run_job(spec).folder, "manifest.json")
    assert 1 <= manifest["passes"] <= MOST[method]
    assert manifest["passes"] == sum(stage.get("n_passes", 0) for stage in manifest["stages"])
