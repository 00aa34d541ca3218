"""Jobs on data in CSV files."""

import pandas as pd
import pytest

from distfms.errors import SpecError
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import RESULTS, content
from tests.e2e.retrain_jobs import again, growing_job, write_day


def add_day(folder, number, ending="csv"):
    """Write a day's rows as Parquet with one row group, and the same as CSV."""
    path = write_day(folder / "parquet", f"day-{number}", number, n=150)
    rows = pd.read_parquet(path)
    rows.to_parquet(path, index=False)
    (folder / "csv").mkdir(exist_ok=True)
    text = folder / "csv" / f"day-{number}.{ending}"
    rows.to_csv(text, index=False)
    return text


def test_csv_is_learned_from_and_predicted_as_parquet_is(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    add_day(tmp_path, 1)
    add_day(tmp_path, 2, "csv.gz")
    spec = growing_job(tmp_path / "csv", tmp_path / "runs")
    first = again(spec).folder
    expected = run_job(growing_job(tmp_path / "parquet", tmp_path / "others")).folder
    weights = [name for name in RESULTS if (first / name).exists() and name != "metrics.json"]
    assert weights
    for name in weights:
        assert (first / name).read_bytes() == (expected / name).read_bytes()

    new = add_day(tmp_path, 3)
    told = content(again(spec).folder, "retrain.json")["data"]
    assert (told["new"], told["changed"], told["n_read"]) == (["csv/day-3.csv"], [], 1)

    for path in (new, tmp_path / "parquet" / "day-3.parquet"):
        predict_file(first, str(path), tmp_path / f"{path.suffix[1:]}-predicted.csv")
    of_csv, of_parquet = ((tmp_path / f"{k}-predicted.csv").read_text() for k in ("csv", "parquet"))
    assert of_csv == of_parquet
    before = new.read_bytes()
    with pytest.raises(SpecError, match=r"day-3\.csv is part of the data to predict"):
        predict_file(first, str(tmp_path / "csv" / "*.csv"), new)
    assert new.read_bytes() == before
