"""Jobs on data in files of other formats than Parquet."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from distfms.errors import SpecError
from distfms.runs.driver import run_job
from distfms.runs.predict import predict_file
from tests.e2e.jobs import RESULTS, content
from tests.e2e.retrain_jobs import again, growing_job, write_day


def write_text(path, frame):
    """Write a frame in the format that a path says; JSON lines without what is missing."""
    path.parent.mkdir(exist_ok=True)
    if ".csv" in path.name:
        text = frame.to_csv(index=False)
    else:
        rows = frame.to_dict("records")
        lines = [json.dumps({k: v for k, v in row.items() if v == v}) for row in rows]
        text = "\n".join(lines)
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def add_day(folder, number, ending):
    """Write a day's rows as Parquet with one row group, and the same in another format."""
    path = write_day(folder / "parquet", f"day-{number}", number, n=150)
    rows = pd.read_parquet(path)
    rows.loc[number::20, "d"] = np.nan
    rows["e"] = np.where(rows.e > 0, "high", "low")
    rows.to_parquet(path, index=False)
    return write_text(folder / "text" / f"day-{number}.{ending}", rows)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_learned_from_and_predicted_as_parquet_is(tmp_path, monkeypatch, ending):
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    add_day(tmp_path, 1, ending)
    add_day(tmp_path, 2, f"{ending}.gz")
    spec = growing_job(tmp_path / "text", tmp_path / "runs", data={"missing": "mean"})
    first = again(spec).folder
    expected = run_job(
        growing_job(tmp_path / "parquet", tmp_path / "others", data={"missing": "mean"})
    ).folder
    weights = [name for name in RESULTS if (first / name).exists() and name != "metrics.json"]
    assert weights
    for name in weights:
        assert (first / name).read_bytes() == (expected / name).read_bytes()

    new = add_day(tmp_path, 3, ending)
    told = content(again(spec).folder, "retrain.json")["data"]
    assert (told["new"], told["changed"], told["n_read"]) == ([f"text/day-3.{ending}"], [], 1)

    for path in (new, tmp_path / "parquet" / "day-3.parquet"):
        predict_file(first, str(path), tmp_path / f"{path.suffix[1:]}-predicted.csv")
    of_text, of_parquet = (
        (tmp_path / f"{k}-predicted.csv").read_text() for k in (ending, "parquet")
    )
    assert of_text == of_parquet
    if ending == "csv":
        before = new.read_bytes()
        with pytest.raises(SpecError, match=r"day-3\.csv is part of the data to predict"):
            predict_file(first, str(tmp_path / "text" / "*.csv"), new)
        assert new.read_bytes() == before
