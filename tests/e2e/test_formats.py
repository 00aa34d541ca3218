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


def test_commands_read_json_lines(tmp_path, monkeypatch, distfms):
    """From the first spec to predictions; a bad line is named, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    path = add_day(tmp_path, 1, "jsonl")
    assert distfms("init", path, "--method", "sequence").code == 0
    assert f'path: "{path}"' in (tmp_path / "job.yaml").read_text()
    changes = ["target=y", "missing=mean", "id=id"]
    spec = ["job.yaml", *(word for change in changes for word in ("--set", f"data.{change}"))]
    assert distfms("check", *spec).out.endswith("The spec is valid.\n")
    assert distfms("run", *spec, "--out", "run").code == 0
    assert distfms("predict", "run", path, "--out", "p.csv").code == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 151

    with path.open("a") as stream:
        stream.write('\n{"id": 7, "a": [1, 2], "y": 1}\n')
    refused = distfms("run", *spec, "--out", "other")
    assert refused.code == 2
    assert refused.err == (
        f"Error: The file {path} has a list in column 'a', line 151: a column holds numbers, text, "
        "or true and false. Give each value a key of its own, or leave it out.\n"
    )
    assert not (tmp_path / "other").exists()
