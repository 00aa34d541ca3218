"""Jobs of learning to rank with similarities."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import content
from tests.e2e.landmarks_jobs import ranked_rows, ranking_job
from tests.reference import landmarks as literal


@pytest.fixture(scope="module")
def columns():
    return ranked_rows()


@pytest.fixture(scope="module")
def data(columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranked") / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=17)  # queries straddle row groups
    return path


def test_a_ranking_is_a_regression_on_gains_judged_by_ndcg(data, columns, tmp_path):
    section = {"max_partition_rows": 40}
    # What is kept of a regression on the same rows is not what a ranking needs.
    run_job(ranking_job(data, tmp_path, data=section, landmarks={"task": "regression"}))
    folder = run_job(ranking_job(data, tmp_path, data=section)).folder
    metrics, selection = (content(folder, f"{n}.json") for n in ("metrics", "selection"))
    X = np.column_stack([columns[f"x{j}"] for j in range(3)])
    grade, query = columns["grade"], columns["q"]
    parts = assign_parts(query.astype(object), n_folds=3, test=0.3, seed=0)
    eta = literal.normalised_gains(grade, query)
    train = parts < 3
    Z = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    marks = Z[selection["landmarks"]]
    K = literal.embedding("gaussian", Z, marks, selection["parameters"])

    def scores(rows):
        centre = K[rows].mean(axis=0)
        A = K[rows] - centre
        norm = literal.embedding("gaussian", marks, marks, selection["parameters"])
        penalty = 1e-3 * len(A) * (norm + 1e-6 * np.eye(40))
        w = np.linalg.solve(A.T @ A + penalty, A.T @ (eta[rows] - eta[rows].mean()))
        return (K - centre) @ w + eta[rows].mean()

    whole = scores(train)
    for name, rows in (("train", train), ("test", ~train)):
        mse = np.mean((whole[rows] - eta[rows]) ** 2)
        assert metrics[name]["mse"] == pytest.approx(mse, rel=1e-5)
        for k in (1, 3, 5, 10, None):
            wanted = literal.mean_ndcg(whole[rows], grade[rows], query[rows], k)
            assert metrics[name][f"ndcg@{k}" if k else "ndcg"] == pytest.approx(wanted, rel=1e-9)
    for entry in metrics["folds"]:
        own = parts == entry["fold"]
        wanted = literal.mean_ndcg(scores(train & ~own)[own], grade[own], query[own], 5)
        assert entry["ndcg@5"] == pytest.approx(wanted, rel=1e-9)
    n_empty = sum(grade[query == q].max() == 0 for q in np.unique(query))
    assert "models" not in metrics["folds"][0]
    assert f"{n_empty} of 60 queries have no relevant row" in " ".join(
        content(folder, "manifest.json")["notes"]
    )
    assert "NDCG of whole lists" in (folder / "report.html").read_text()
    predict_file(folder, str(data), tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[:2] == ["q", "predicted_grade"]
    np.testing.assert_allclose(table.column("predicted_grade"), whole, rtol=1e-5)


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
