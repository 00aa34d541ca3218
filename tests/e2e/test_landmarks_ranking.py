"""Jobs of learning to rank with similarities."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.runs.driver import run_job
from tests.e2e.jobs import content
from tests.e2e.landmarks_jobs import ranked_rows, ranking_job


@pytest.fixture(scope="module")
def columns():
    return ranked_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranked") / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=17)  # queries straddle row groups
    return path


def test_similarities_and_grids_are_compared_by_ndcg(data, tmp_path):
    section = {"similarity": ["linear", "gaussian"], "landmarks": 30}
    tune = {"grid": {"keep": [2, 30], "ridge": [1e-3, 1.0]}, "measure": "ndcg@5"}
    folder = run_job(ranking_job(data, tmp_path, landmarks=section, tune=tune)).folder
    selection, tuning = (content(folder, f"{n}.json") for n in ("selection", "tuning"))
    assert selection["similarity"] == "gaussian"
    assert tuning["chosen"]["keep"] == 30
    metrics = content(folder, "metrics.json")
    chosen = next(p for p in tuning["points"] if p["options"] == tuning["chosen"])
    last = metrics["curves"][0]["points"][-1]
    assert chosen["mean"] == pytest.approx(last["validation"]["ndcg@5"], rel=1e-9)
