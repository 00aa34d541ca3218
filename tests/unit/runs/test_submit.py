"""What travels with a submitted job, under which name, and how it is followed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs import entry, submit
from distfms.runs.job_spec import build_spec, load_spec
from distfms.runs.ray_jobs import JobState


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
    return JobState(id, status, message, {}, None, None)


class Head:
    """Jobs of a head that exists in memory."""

    address = "http://127.0.0.1:8265"

    def __init__(self, *states, logs=""):
        self.states = {s.id: s for s in states}
        self.text = logs
        self.submitted = []

    def list(self, prefix=""):
        return [s for s in self.states.values() if s.id.startswith(prefix)]

    def submit(self, entrypoint, id, runtime_env, metadata):
        if id in self.states:
            raise EngineError(f"Job with submission_id {id} already exists.")
        folder = Path(runtime_env["working_dir"])
        files = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
        self.submitted.append(
            {
                "entrypoint": entrypoint,
                "id": id,
                "files": {name: path.read_bytes() for name, path in files.items()},
                "metadata": metadata,
                "env_vars": runtime_env.get("env_vars", {}),
            }
        )
        self.states[id] = state(id, "PENDING")

    def logs(self, id):
        return self.text


@pytest.fixture(autouse=True)
def ray_engine(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123-very-secret")


def hand_in(head, job, said=None):
    return submit.submit(head, job, local=True, say=(said if said is not None else []).append)


# --- what travels -------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [{}, {"DISTFMS_LOG": "json"}], ids=str)
def test_the_kind_of_log_travels(wish, monkeypatch):
    monkeypatch.delenv("DISTFMS_LOG", raising=False)
    for name, value in wish.items():
        monkeypatch.setenv(name, value)
    head = Head()
    hand_in(head, spec())
    assert head.submitted[0]["env_vars"] == wish


def test_package_and_spec_travel_without_junk():
    head = Head()
    hand_in(head, spec())
    sent = head.submitted[0]
    names = set(sent["files"])
    assert {"entry.py", "spec.yaml", "distfms/cli.py", "distfms/runs/driver.py"} <= names
    assert not [n for n in names if n.endswith(".pyc") or n.startswith(("tests", "."))]
    assert sum(map(len, sent["files"].values())) < 5e6
    assert sent["metadata"]["method"] == "multiselect"
    everything = json.dumps([sent["entrypoint"], sent["id"], sent["metadata"]]).encode()
    assert b"very-secret" not in everything + b"".join(sent["files"].values())


def test_staged_package_is_the_one_that_runs(tmp_path):
    submit.stage_package(tmp_path)
    code = "import distfms, distfms.runs.entry; print(distfms.__file__, distfms.__version__)"
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
    said = []
    content = submit.resolved(job, local=False, say=said.append)
    assert content["data"]["path"] == [f"{tmp_path}/near", "s3://bucket/x", "/mnt/data/y"]
    assert content["output"] == f"{tmp_path}/runs"
    engine = content["engine"]
    assert (engine["kind"], engine["address"], engine["retries"]) == ("ray", "auto", 7)
    assert engine.get("workers") is None
    assert len(said) == 1
    assert f"{tmp_path}/near, {tmp_path}/runs" in said[0]
    submit.resolved(job, local=True, say=said.append)
    assert len(said) == 1


def test_what_travels_is_a_spec(tmp_path):
    head = Head()
    hand_in(head, spec())
    (tmp_path / "spec.yaml").write_bytes(head.submitted[0]["files"]["spec.yaml"])
    read = load_spec(tmp_path / "spec.yaml")
    assert (read.engine.kind, read.engine.address) == ("ray", "auto")
    assert read.data == spec().data


def test_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("PLACE", raising=False)
    with pytest.raises(SpecError, match="PLACE"):
        hand_in(Head(), spec(data={"path": "${PLACE}/x", "target": "y"}))


def test_output_on_object_storage_travels_without_secrets():
    options = {"secret": "${NOT_SET_HERE}", "client_kwargs": {"endpoint_url": "http://s3:9000"}}
    output = {"path": "s3://bucket/runs", "storage_options": options}
    content = submit.resolved(spec(output=output), local=False, say=pytest.fail)
    # The cluster looks its own variables up.
    assert content["output"] == output
    assert submit.resolved(spec(output="gs://b/x"), local=False, say=pytest.fail)["output"] == (
        "gs://b/x"
    )
    for clear in ({"secret": "hush"}, {"client_kwargs": {"aws_session_token": "hush"}}):
        with pytest.raises(SpecError, match=r"output\.storage_options\..*in clear") as caught:
            hand_in(Head(), spec(output={"path": "s3://bucket/runs", "storage_options": clear}))
        assert "hush" not in str(caught.value)


# --- names and attempts -------------------------------------------------------------------------


def test_name_is_made_of_spec_and_attempt():
    head = Head()
    first = hand_in(head, spec())
    assert first.id.startswith("distfms-small-")
    assert first.id.endswith("-1")
    assert hand_in(Head(), spec(engine={"workers": 5, "retries": 1})).id == first.id
    others = [spec(seed=1), spec(output="/data/other"), spec(multiselect={"budget": 13})]
    assert len({hand_in(Head(), other).id for other in others} | {first.id}) == 4


@pytest.mark.parametrize("status", ["FAILED", "STOPPED", "SUCCEEDED"])
def test_next_attempt(status):
    head = Head()
    first = hand_in(head, spec()).id
    head.states[first] = state(first, status)
    second = hand_in(head, spec())
    assert second.id == first[:-1] + "2"
    head.states[second.id] = state(second.id, status)
    assert hand_in(head, spec()).id == first[:-1] + "3"
    assert len(head.submitted) == 3


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_job_under_way_is_joined(status):
    head, said = Head(), []
    first = hand_in(head, spec()).id
    head.states[first] = state(first, status)
    again = hand_in(head, spec(), said)
    assert (again.id, again.joined) == (first, True)
    assert len(head.submitted) == 1
    assert status.lower() in said[0]


def test_two_submit_at_the_same_moment():
    head = Head()
    known = head.list
    first = hand_in(head, spec()).id
    answers = [[], None]

    def late(prefix=""):
        answer = answers.pop(0)
        return known(prefix) if answer is None else answer

    head.list = late
    second = hand_in(head, spec())
    assert (second.id, second.joined) == (first, True)


# --- following ----------------------------------------------------------------------------------

LOG = "one\ntwo\nthree\nfour\n"


class Followed(Head):
    """A job whose log stream and status come from scripts."""

    def __init__(self, streams, states, logs=LOG):
        super().__init__(logs=logs)
        self.streams, self.script = list(streams), list(states)

    async def tail(self, id):
        if not self.streams:
            return
        for piece in self.streams.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def state(self, id):
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, JobState) else state(id, found)


def followed(head):
    written = []
    return submit.wait(head, "job", written.append, poll_s=0.02), "".join(written)


def test_ended_stream_is_no_end():
    head = Followed([["one\n"], ["one\n", "two\n"]], ["PENDING", *["RUNNING"] * 5, "SUCCEEDED"])
    end, text = followed(head)
    assert end.status == "SUCCEEDED"
    assert text == LOG
    assert head.streams == []


def test_broken_stream_is_opened_again():
    broken = [["one\n", RuntimeError("WebSocket closed")], [OSError("gone")], ["one\ntwo\n"]]
    head = Followed(broken, [*["RUNNING"] * 8, "FAILED"])
    end, text = followed(head)
    assert end.status == "FAILED"
    assert text == LOG
    assert head.streams == []


def test_stream_that_brings_all_is_written_once():
    assert followed(Followed([[LOG]], [*["RUNNING"] * 2, "SUCCEEDED"]))[1] == LOG


def test_head_that_is_silent_for_a_while():
    silent = EngineError("The head does not answer")
    head = Followed([], ["RUNNING", silent, silent, "RUNNING", "SUCCEEDED"])
    assert followed(head)[0].status == "SUCCEEDED"


def test_head_that_stays_silent(monkeypatch):
    monkeypatch.setattr(submit, "_PATIENCE_S", 0.1)
    head = Followed([], ["RUNNING", EngineError("The head does not answer")])
    with pytest.raises(EngineError, match="does not answer"):
        followed(head)


def follow(head, said=None):
    submit.follow(head, "job", lambda text: None, (said if said is not None else []).append)


def test_outcomes():
    said = []
    follow(Followed([], ["SUCCEEDED"]), said)
    assert said == ["job: SUCCEEDED"]
    logs = "Reading\nError: the column y is missing\nmore\n"
    with pytest.raises(EngineError, match="job failed: the column y is missing") as error:
        follow(Followed([], ["FAILED"], logs))
    assert error.value.exit_code == 1
    with pytest.raises(EngineError, match=r"failed: .*ZeroDivisionError"):
        follow(Followed([], ["FAILED"], "Running entrypoint\nTraceback\nZeroDivisionError: 1/0\n"))
    with pytest.raises(EngineError, match=r"failed: no space for the package .*jobs logs job"):
        follow(Followed([], [state("job", "FAILED", "no space for\nthe package")], "setting up\n"))
    with pytest.raises(EngineError, match="was stopped"):
        follow(Followed([], ["STOPPED"]))


def test_interrupt_says_that_the_job_goes_on(monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "wait", interrupted)
    said = []
    with pytest.raises(KeyboardInterrupt):
        follow(Head(), said)
    assert "distfms jobs stop job" in said[0]


# --- the entry point ----------------------------------------------------------------------------


def test_cluster_without_a_dependency(monkeypatch, capsys):
    requires = ["pyarrow>=17", "absent.one>=2", "pandas", 'moto[s3]; extra == "test"', "absent-two"]
    monkeypatch.setattr(entry.metadata, "requires", lambda name: requires)
    assert entry.main(["spec.yaml"]) == 2
    assert "lacks absent.one, absent-two." in capsys.readouterr().err


def test_cluster_with_an_old_python(monkeypatch, capsys):
    monkeypatch.setattr(entry, "_PYTHON", (99, 0))
    assert entry.main(["spec.yaml"]) == 2
    assert "needs 99.0 or later" in capsys.readouterr().err


def test_exit_codes(tmp_path, capsys):
    assert entry.main([str(tmp_path / "none.yaml"), "--engine", "local"]) == 2
    assert "Error: There is no spec file" in capsys.readouterr().err


def test_run_by_the_entry_point(tmp_path, capsys):
    from tests.e2e.jobs import judgments_job, write_judgments

    job = judgments_job(write_judgments(tmp_path / "data"), tmp_path / "runs")
    (tmp_path / "spec.yaml").write_text(job.to_yaml())
    given = [str(tmp_path / "spec.yaml"), "--engine", "local", "--set", "multiselect.budget=9"]
    assert entry.main(given) == 0
    folder = next((tmp_path / "runs" / "small").iterdir())
    assert json.loads((folder / "selection.json").read_text())["budget"] == 9
    assert f"Report: {folder}/report.html" in capsys.readouterr().out
