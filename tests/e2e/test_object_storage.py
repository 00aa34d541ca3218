"""Data, runs, predictions and reports on S3, by the commands that are used for folders."""

import json

import pyarrow.parquet as pq
import pytest

from distfms.methods.multiselect import slab_form
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.store.places import files_below, locate
from tests.e2e.jobs import RESULTS, judgments_job


def put(s3, folder, url):
    for path in sorted(folder.iterdir()):
        (locate(url, s3.options) / path.name).put(path)
    return url


def test_commands_take_urls(judgments, judgments_run, s3_variables, tmp_path, distfms):
    def ended(*arguments):
        done = distfms(*arguments)
        return done.code, " ".join((done.out + done.err).split())

    data = judgments
    local = judgments_run
    bucket = s3_variables.bucket("commands")
    source = put(s3_variables, data, f"{bucket}/data")
    runs = f"{bucket}/runs"
    spec = tmp_path / "job.yaml"
    spec.write_text(judgments_job(data, tmp_path).to_yaml())
    sets = ["--set", f"data.path={source}", "--set", f"output={runs}"]
    code, said = ended("check", spec, *sets)
    assert code == 0, said
    assert f"of statistics to {runs}/small" in said
    # Checking writes nothing.
    assert not locate(runs).exists()
    code, said = ended("run", spec, *sets, "--out", f"{runs}/mine")
    assert code == 0, said
    assert f"Report: {runs}/mine/report.html" in said
    run = locate(f"{runs}/mine")
    for name in RESULTS:
        assert (run / name).read_bytes() == (local / name).read_bytes(), name
    inputs = json.loads((run / "inputs.json").read_bytes())["inputs"]
    assert {(entry["path"], entry["name"]) for entry in inputs} == {
        (f"commands/data/part-{k}.parquet", f"data/part-{k}.parquet") for k in range(4)
    }
    assert len({entry["footer"] for entry in inputs}) == 4

    code, said = ended("predict", run, source, "--out", f"{bucket}/predicted.parquet")
    assert code == 0, said
    (tmp_path / "there").write_bytes(locate(f"{bucket}/predicted.parquet").read_bytes())
    code, said = ended("predict", local, data, "--out", tmp_path / "here.parquet")
    assert pq.read_table(tmp_path / "there").equals(pq.read_table(tmp_path / "here.parquet"))
    for out, reason in (
        (f"{source}/part-0.parquet", "is part of the data to predict"),
        (f"{source}/more.parquet", "is part of the data to predict"),
        (runs, "is a folder"),
    ):
        code, said = ended("predict", run, source, "--out", out)
        assert (code, reason in said) == (2, True), said

    report = (run / "report.html").read_bytes()
    (run / "report.html").unlink()
    code, said = ended("report", run)
    assert (code, f"Report: {run}/report.html" in said) == (0, True), said
    assert (run / "report.html").read_bytes()[:1000] == report[:1000]
    assert ended("predict", f"{runs}/other", source, "--out", "x.parquet")[0] == 2


@pytest.mark.slow
def test_long_judgments_come_from_storage_and_are_converted_to_it(s3, s3_variables, tmp_path):
    table = [
        f"{o},{a},{w},{(o * 7 + w) % 5 + len(a)}"
        for o in range(60)
        for a in ("warm", "tall", "label")
        for w in range(2)
    ]
    (tmp_path / "long.csv").write_text("\n".join(["object,attribute,worker,value", *table]))
    bucket = s3.bucket("long-form")
    (locate(bucket, s3.options) / "long.csv").put(tmp_path / "long.csv")
    long = {"object": "object", "attribute": "attribute", "value": "value", "worker": "worker"}
    there = {"path": f"{bucket}/long.csv", "storage_options": s3.options_of_specs}

    def run(source, output, **options):
        content = {
            "name": "long",
            "method": "multiselect",
            "data": {**source, "long": {**long, "label": "label"}},
            "multiselect": {"budget": 3},
            "engine": {"workers": 1},
        }
        return run_job(build_spec({**content, "output": output}), **options).folder

    output = {"path": f"{bucket}/runs", "storage_options": s3.options_of_specs}
    folder = run(there, output)
    local = run({"path": str(tmp_path / "long.csv")}, str(tmp_path / "runs"))
    for name in RESULTS:
        assert (folder / name).read_bytes() == (local / name).read_bytes(), name
    # A second job finds the judgments converted, or converts them again where it must.
    conversions = locate(f"{bucket}/runs/.kept/judgments", s3.options)
    messages = []
    converted = files_below(conversions)
    run(there, output, say=messages.append)
    assert not [line for line in messages if "Converting" in line]
    for entry in (*converted, *files_below(tmp_path / "runs/.kept/judgments")):
        if entry.place.name == ".whole":
            entry.place.unlink()
    run(there, output, say=messages.append)
    run({"path": str(tmp_path / "long.csv")}, str(tmp_path / "runs"), say=messages.append)
    assert len([line for line in messages if "Converting" in line]) == 2
    assert [e.name for e in files_below(conversions)] == [e.name for e in converted]


@pytest.mark.slow
def test_actors_on_ray_load_slabs_from_s3(
    judgments, s3, s3_variables, tmp_path, ray_session, monkeypatch
):
    monkeypatch.setattr(slab_form, "SLAB_COLUMNS", 2)
    monkeypatch.setattr(slab_form, "ONE_PROCESS_BYTES", 0)
    url = s3.bucket("slabs")
    options = {"psd": "none", "plan": False}
    content = judgments_job(judgments, tmp_path, multiselect=options).to_mapping()
    local = run_job(build_spec(content)).folder
    content["engine"] = {"kind": "ray", "workers": 2}
    content["output"] = {"path": f"{url}/runs", "storage_options": s3.options_of_specs}
    folder = run_job(build_spec(content)).folder
    assert str(folder).startswith("s3://slabs/runs/small/")
    for name in (*RESULTS, "statistics/statistics 2 of 3.step"):
        assert (folder / name).read_bytes() == (local / name).read_bytes(), name
