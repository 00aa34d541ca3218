"""What travels with a submitted job, under which name, and how it is followed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from distfms.errors import EngineError
from distfms.runs import submit
from distfms.runs.job_spec import build_spec, load_spec

ADDRESS = "http://127.0.0.1:8265"


def spec(**changes):
    content = {
        "name": "small",
        "method": "multiselect",
        "data": {"path": "/data/judgments", "target": "y"},
        "multiselect": {"budget": 12},
        "output": "/data/runs",
    }
    return build_spec({**content, **changes})


def state(id, status, message=""):
    return SimpleNamespace(submission_id=id, status=SimpleNamespace(value=status), message=message)


class Head:
    """Jobs of a head that exists in memory, behind the methods of Ray's client."""

    def __init__(self):
        self.states = {}
        self.submitted = []

    def list_jobs(self):
        # Drivers that were not submitted have no id.
        return [state(None, "RUNNING"), *self.states.values()]

    def submit_job(self, entrypoint, submission_id, runtime_env, metadata):
        if submission_id in self.states:
            raise RuntimeError(f"Job with submission_id {submission_id} already exists.")
        folder = Path(runtime_env["working_dir"])
        files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        self.submitted.append(
            {
                "entrypoint": entrypoint,
                "id": submission_id,
                "files": {name: path.read_bytes() for name, path in files.items()},
                "metadata": metadata,
                "env_vars": runtime_env["env_vars"],
            }
        )
        self.states[submission_id] = state(submission_id, "PENDING")


def hand_in(head, job, said=None):
    say = (said if said is not None else []).append
    return submit.submit(head, ADDRESS, job, say=say)


# --- what travels -------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [{}, {"DISTFMS_LOG": "json"}], ids=str)
def test_the_kind_of_log_travels(wish, monkeypatch):
    monkeypatch.delenv("DISTFMS_LOG", raising=False)
    for name, value in wish.items():
        monkeypatch.setenv(name, value)
    head = Head()
    hand_in(head, spec())
    assert head.submitted[0]["env_vars"] == wish


def test_package_and_spec_travel_without_junk(tmp_path):
    head = Head()
    hand_in(head, spec())
    sent = head.submitted[0]
    names = set(sent["files"])
    assert {"spec.yaml", "distfms/cli/commands.py", "distfms/runs/driver.py"} <= names
    assert not [n for n in names if n.endswith(".pyc") or n.startswith(("tests", "."))]
    assert sum(map(len, sent["files"].values())) < 5e6
    assert sent["metadata"]["method"] == "multiselect"
    everything = json.dumps([sent["entrypoint"], sent["id"], sent["metadata"]]).encode()
    token = os.environ["RAY_AUTH_TOKEN"].encode()
    assert token not in everything + b"".join(sent["files"].values())
    (tmp_path / "spec.yaml").write_bytes(sent["files"]["spec.yaml"])
    read = load_spec(tmp_path / "spec.yaml")
    assert (read.engine.kind, read.engine.address) == ("ray", "auto")
    assert read.data == spec().data


def test_staged_package_is_the_one_that_runs(tmp_path):
    submit.stage(tmp_path, {})
    code = "import distfms, distfms.cli; print(distfms.__file__, distfms.__version__)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    path, version = result.stdout.split()
    assert Path(path).parent == tmp_path / "distfms"
    import distfms

    assert version == distfms.__version__


def test_spec_on_the_cluster(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLACE", "/mnt/data")
    job = spec(
        data={"path": ["near", "s3://bucket/x", "${PLACE}/y"], "target": "y"},
        engine={"kind": "dask", "address": "tcp://head:8786", "workers": 3, "retries": 7},
        output="runs",
    )
    content = submit.resolved(job)
    assert content["data"]["path"] == [f"{tmp_path}/near", "s3://bucket/x", "/mnt/data/y"]
    assert content["output"]["path"] == f"{tmp_path}/runs"
    engine = content["engine"]
    assert (engine["kind"], engine["address"], engine["retries"]) == ("ray", "auto", 7)
    assert engine.get("workers") is None


# --- names and attempts -------------------------------------------------------------------------


def test_name_is_made_of_spec_and_attempt():
    first = hand_in(Head(), spec())
    assert first.startswith("distfms-small-")
    assert first.endswith("-1")
    assert hand_in(Head(), spec(engine={"workers": 5, "retries": 1})) == first
    others = [spec(seed=1), spec(output="/data/other"), spec(multiselect={"budget": 13})]
    assert len({hand_in(Head(), other) for other in others} | {first}) == 4


@pytest.mark.parametrize("status", ["FAILED", "STOPPED", "SUCCEEDED", "PENDING", "RUNNING"])
def test_ended_jobs_are_tried_again_and_others_joined(status, monkeypatch):
    monkeypatch.setattr(submit, "stage", lambda folder, content: None)
    head = Head()
    messages = []
    first = hand_in(head, spec())
    for attempt in range(2, 12):
        last = next(reversed(head.states))
        head.states[last] = state(last, status)
        again = hand_in(head, spec(), messages)
        if status in ("PENDING", "RUNNING"):
            assert (again, len(head.submitted)) == (first, 1)
            assert status.lower() in messages[0]
            return
        assert again == f"{first[:-1]}{attempt}"
    assert len(head.submitted) == 11


# --- following ----------------------------------------------------------------------------------


class Followed:
    """A job whose looks go through some statuses (or errors) and logs."""

    def __init__(self, *looks, message=""):
        self.looks = list(looks)
        self.message = message

    def get_job_info(self, id):
        status, self.text = self.looks.pop(0)
        if isinstance(status, BaseException):
            raise status
        return state(id, status, self.message)

    def get_job_logs(self, id):
        return self.text


def follow(head, monkeypatch, said=None):
    """Follow a job without waiting; what was written."""
    written = []
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    submit.follow(head, ADDRESS, "job", written.append, (said if said is not None else []).append)
    return "".join(written)


def test_a_log_is_written_once(monkeypatch):
    messages = []
    lost = ConnectionError("nobody there")
    looks = [("PENDING", ""), ("RUNNING", "one\n"), (lost, ""), ("RUNNING", "one\nt")]
    head = Followed(*looks, ("RUNNING", ""), ("SUCCEEDED", "one\ntwo\n"))
    assert follow(head, monkeypatch, messages) == "one\ntwo\n"
    assert messages == ["job: SUCCEEDED"]


def test_head_that_stays_silent(monkeypatch):
    monkeypatch.setattr(submit, "_PATIENCE_S", -1.0)
    with pytest.raises(EngineError, match=r"does not answer.*ray job list"):
        follow(Followed(("RUNNING", ""), (ConnectionError(), "")), monkeypatch)


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_outcomes(status, monkeypatch):
    head = Followed((status, "Error: y\n"), message="no space for\nthe package")
    told = f"The job job {status.lower()}: no space for the package.*again to resume"
    with pytest.raises(EngineError, match=told) as error:
        follow(head, monkeypatch)
    assert error.value.exit_code == 1


def test_interrupt_says_that_the_job_goes_on(monkeypatch):
    messages = []
    with pytest.raises(KeyboardInterrupt):
        follow(Followed(("RUNNING", ""), (KeyboardInterrupt(), "")), monkeypatch, messages)
    assert "ray job stop job --address" in messages[0]
