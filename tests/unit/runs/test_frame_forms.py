"""Models read frames as the command reads the files that they were learned from."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import distfms
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file

N = 60


@pytest.fixture(scope="module")
def rows():
    r = np.random.default_rng(0)
    crp = r.integers(1, 90, N) / 10
    return pd.DataFrame(
        {
            "crp": [f"<{v}" if v < 2 else str(v) for v in crp],
            "price": [f"$1,{v:03d}" for v in r.integers(0, 999, N)],
            "code": r.choice([1, 2, 7], N),
            "y": crp + r.normal(size=N) / 10,
        }
    )


@pytest.fixture(scope="module", params=["csv", "parquet"])
def run(request, rows, tmp_path_factory):
    place = tmp_path_factory.mktemp("frame-forms")
    data = place / f"d.{request.param}"
    rows.to_csv(data, index=False) if request.param == "csv" else rows.to_parquet(data)
    section = {"path": str(data), "target": "y", "folds": 0}
    section |= {"numbers": ["crp", "price"], "text": ["code"]}
    spec = build_spec(
        {
            "name": "j",
            "method": "sequence",
            "data": section,
            "sequence": {"model": "linear", "baselines": []},
            "engine": {"workers": 1},
            "output": str(place / "runs"),
        }
    )
    messages = []
    folder = run_job(spec, say=messages.append).folder
    assert any("such as `<" in line and "count as their bound" in line for line in messages)
    out = place / "p.parquet"
    predict_file(folder, str(data), out)
    return folder, pq.read_table(out)["predicted_y"].to_numpy()


def test_frames_are_read_as_files(rows, run):
    folder, expected = run
    model = distfms.load(folder)
    gaps = rows.assign(code=rows.code.astype(float))
    for frame in (rows, gaps, pl.from_pandas(rows), rows.to_dict("list")):
        results = model.predict(frame)["predicted_y"]
        np.testing.assert_array_equal(np.asarray(results), expected)
    bounds = [rows.head(2).assign(crp=crp) for crp in (["<0.5", ">9"], [0.5, 9.0])]
    of_texts, of_numbers = (model.predict(frame)["predicted_y"] for frame in bounds)
    np.testing.assert_array_equal(of_texts, of_numbers)
    estimator = distfms.load_estimator(folder)
    for frame in (rows, gaps, pl.from_pandas(rows), pl.from_pandas(rows).lazy()):
        np.testing.assert_array_equal(estimator.predict(frame), expected)


def test_columns_without_a_value_count_as_the_mean(rows, run, tmp_path):
    folder, _ = run
    frame = rows.head(3).assign(code=None)
    results = distfms.load(folder).predict(frame)["predicted_y"]
    for number, empty in enumerate((frame, frame.assign(code=np.nan))):
        empty.to_parquet(tmp_path / f"{number}.parquet")
        predict_file(folder, str(tmp_path / f"{number}.parquet"), tmp_path / "p.parquet")
        of_file = pq.read_table(tmp_path / "p.parquet")["predicted_y"]
        np.testing.assert_array_equal(of_file, results)


def test_what_is_no_number_is_named(rows, run):
    folder, _ = run
    with pytest.raises(distfms.DataError, match=r"column 'crp' of X has 'high', which is neither"):
        distfms.load(folder).predict(rows.head(2).assign(crp="high"))
