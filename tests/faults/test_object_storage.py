"""Runs on object storage: killed, overtaken, refused, and storage that fails."""

import json
import math
import socket
import time
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import DataError, DistfmsError, EngineError, SpecError
from distfms.runs.context import RunContext
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from distfms.runs.job_spec import build_spec
from distfms.runs.steps import Steps
from distfms.store.places import files_below, locate, write_whole
from tests.e2e.jobs import STAGES, judgments_job, results, stage
from tests.faults.dying import killed
from tests.remote_systems import FaultyFileSystem, registered


def slow(*values):
    """Values of a test that quick runs leave out."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def bucket(s3_variables, tmp_path):
    """URL of a new bucket of a service that the environment names."""
    return s3_variables.bucket(f"lab-{tmp_path.name.lower().replace('_', '-')}"[:60].strip("-"))


@pytest.fixture
def memory(tmp_path):
    """URL of a folder in this process, on storage that can be told to fail."""
    FaultyFileSystem.reset()
    with registered("memory", FaultyFileSystem):
        yield f"memory://{tmp_path.name}"
    FaultyFileSystem.reset()
    FaultyFileSystem.store.clear()


def job(path, url, options=None, **changes):
    """Spec of the small job with its output at a URL."""
    spec = judgments_job(path, Path("unused"), **changes)
    output = {"path": url, "storage_options": options or {}}
    return build_spec({**spec.to_mapping(), "output": output})


def fetched(folder, tmp_path):
    """Bytes of a run's results, as `tests.e2e.jobs.results` gives them."""
    copy = tmp_path / "copy" / folder.name
    for entry in files_below(folder):
        (copy / entry.name).parent.mkdir(parents=True, exist_ok=True)
        (copy / entry.name).write_bytes(entry.place.read_bytes())
    return results(copy)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def events(folder):
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    return [json.loads(line)["event"] for line in lines]


def snapshot(folder):
    return {e.name: e.place.read_bytes() for e in files_below(folder) if e.name != "events.jsonl"}


# --- killed -------------------------------------------------------------------------------------


def test_killed_again_and_again(judgments, judgments_run, bucket, tmp_path):
    """In the middle of a pass, then after a stage's files and before the manifest names them."""
    killed(judgments, bucket, "partials", "3")
    killed(judgments, bucket, "between", "plan")
    result = run_job(job(judgments, bucket))
    assert result.resumed
    assert list(result.skipped) == STAGES[: STAGES.index("plan")]
    assert fetched(result.folder, tmp_path) == results(judgments_run)
    entry = stage(manifest(result.folder), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (1, 3)
    assert (manifest(result.folder)["attempt"], manifest(result.folder)["status"]) == (3, "done")
    # What the second driver had put at the ends of its stages, and all of the third's.
    found = events(result.folder)
    assert found.count("stage_done") == len(STAGES)
    assert (found[0], found[-1]) == ("begin", "done")
    hidden = [e.name for e in files_below(result.folder) if e.name.startswith(".")]
    assert hidden == [f".owners/{number:08d}.json" for number in (1, 2, 3)]


@pytest.mark.parametrize("storage", ["tmp_path", "memory"])
def test_damaged_files_are_found_and_made_again(
    judgments, judgments_run, tmp_path, request, storage
):
    place = locate(request.getfixturevalue(storage))
    spec = job(judgments, str(place))
    folder = run_job(spec).folder
    write_whole(folder / "selection.json", b"{}")
    (folder / "plan" / "part-00001.parquet").unlink()
    partial = next(e.place for e in files_below(place / ".kept/partials"))
    write_whole(partial, partial.read_bytes()[:-1])
    result = run_job(spec, out=str(folder))
    assert [s for s in STAGES if s not in result.skipped] == ["plan", "model", "report"]
    assert fetched(folder, tmp_path) == results(judgments_run)
    again = run_job(spec).folder
    counts = stage(manifest(again), "statistics")
    assert (counts["n_read"], counts["n_cached"]) == (1, 3)


# --- two drivers --------------------------------------------------------------------------------


def overtaken(spec, monkeypatch, at):
    """The first driver hangs before it writes a step; a second one ends the run meanwhile."""
    enter = Steps.enter
    second = []

    def hang(self, told, *rest):
        if told.name == at and not second:
            second.append(None)
            second[0] = run_job(spec)
            second.append(snapshot(self.run.path))
        return enter(self, told, *rest)

    monkeypatch.setattr(Steps, "enter", hang)
    with pytest.raises(EngineError, match=r"taken over.*attempt 2; this one was attempt 1"):
        run_job(spec)
    assert snapshot(second[0].folder) == second[1]
    return second[0]


@pytest.mark.parametrize(
    ("storage", "at"),
    [
        ("memory", "statistics"),
        ("tmp_path", "plan"),
        slow("bucket", "plan"),
        *(slow("tmp_path", at) for at in ("statistics", "model", "report")),
    ],
)
def test_overtaken_driver_harms_nothing(
    judgments, judgments_run, tmp_path, monkeypatch, request, storage, at
):
    """Wherever two machines do not see each other's locks."""
    monkeypatch.setattr(RunFolder, "locked", lambda self: nullcontext())
    place = str(request.getfixturevalue(storage))
    result = overtaken(job(judgments, place), monkeypatch, at)
    # Between the two of them, every partition was read once.
    n_read = stage(manifest(result.folder), "statistics")["n_read"]
    assert (result.resumed, n_read) == (True, 0 if at == "statistics" else 4)
    assert list(result.skipped) == STAGES[: STAGES.index(at)]
    assert fetched(result.folder, tmp_path) == results(judgments_run)
    assert (manifest(result.folder)["attempt"], manifest(result.folder)["status"]) == (2, "done")
    assert events(result.folder)[-1] == "done"


def test_overtaken_driver_does_not_begin_to_write_a_folder(judgments, memory, monkeypatch):
    """What tasks write by themselves is looked after before they start."""
    spec = job(judgments, memory)
    second = []
    map_ = RunContext.map

    def hang(self, function, items):
        if type(function).__name__ == "WritePlan" and not second:
            second.append(None)
            second[0] = run_job(spec).folder
            FaultyFileSystem.seen.clear()
        return map_(self, function, items)

    monkeypatch.setattr(RunContext, "map", hang)
    with pytest.raises(EngineError, match="taken over"):
        run_job(spec)
    assert FaultyFileSystem.seen == []
    assert manifest(second[0])["status"] == "done"


# --- storage that fails -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "lasting"),
    [(1, True), (9, True), (20, False), *(slow(n, k) for n in range(33) for k in (True, False))],
)
def test_a_put_that_fails(judgments, judgments_run, memory, tmp_path, n, lasting):
    spec = job(judgments, memory, engine={"cache": False})
    FaultyFileSystem.reset(failing=n, lasting=lasting)
    text = ""
    try:
        run_job(spec)
    except DistfmsError as error:
        text = f"{error.exit_code} {error}"
    if text:
        assert text.startswith("1 memory://")
        assert "the storage has failed" in text
        assert "run the same command again to resume" in text
    else:
        failed = FaultyFileSystem.seen[n:] if lasting else FaultyFileSystem.seen[n - 1 : n]
        # Only lines of events were lost, or the job has no put with that number.
        assert all(name.endswith("events.jsonl") for name in failed)
    FaultyFileSystem.reset()
    result = run_job(spec)
    assert fetched(result.folder, tmp_path) == results(judgments_run)
    assert stage(manifest(result.folder), "statistics")["n_read"] == 4


def test_cache_that_fails_costs_one_warning(judgments, judgments_run, memory, tmp_path):
    messages = []
    spec = job(judgments, memory, engine={"workers": 1})

    tried = []

    def failing_below(self, path, value, **options):
        if ".kept" in path:
            tried.append(path)
            raise OSError(5, "no room here")
        return put(self, path, value, **options)

    put = FaultyFileSystem.pipe_file
    FaultyFileSystem.pipe_file = failing_below
    try:
        folder = run_job(spec, progress=messages.append).folder
    finally:
        FaultyFileSystem.pipe_file = put
    assert fetched(folder, tmp_path) == results(judgments_run)
    assert stage(manifest(folder), "statistics")["n_read"] == 4
    warnings = [event for event in messages if event["event"] == "cache_unwritable"]
    assert len(warnings) == 1
    assert "no room here" in warnings[0]["error"]
    # After the first, no task waits for it.
    assert len(tried) == 1


def closed_endpoint():
    """Storage options of a server that is not there."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    once = {"retries": {"max_attempts": 1}}
    return {
        "key": "${AWS_ACCESS_KEY_ID}",
        "secret": "${AWS_SECRET_ACCESS_KEY}",
        "client_kwargs": {"endpoint_url": endpoint},
        "config_kwargs": once,
    }


LONG = {"object": "object", "attribute": "attribute", "value": "value", "label": "label"}


@pytest.mark.parametrize("side", ["output", "data", "long"])
@pytest.mark.parametrize(
    ("url", "kind", "message"),
    [
        ("s3://denied/x", (SpecError, EngineError), "[Dd]enied.*check the credentials"),
        ("s3://no-such-bucket/x", (SpecError, DataError), "bucket or container exists|no file or"),
        ("s3://nobody-there/x", EngineError, r"127\.0\.0\.1:\d+.*storage is reachable"),
    ],
)
def test_refusals_of_s3(judgments, s3_variables, tmp_path, side, url, kind, message):
    """One paragraph, with what to look at, on whichever side the storage is."""
    options = closed_endpoint() if "nobody" in url else {}
    spec = job(judgments, url, options) if side == "output" else judgments_job(judgments, tmp_path)
    if side != "output":
        content = spec.to_mapping()
        content["data"] |= {"path": url, "storage_options": options}
        if side == "long":
            content["data"] = {"path": f"{url}.csv", "long": LONG, "storage_options": options}
        spec = build_spec(content)
    with pytest.raises(kind, match=message) as caught:
        run_job(spec)
    assert "not-to-be-shown" not in str(caught.value)
    assert url in str(caught.value)
    assert not (tmp_path / "small").exists()


@pytest.mark.slow
def test_unreachable_endpoint_as_it_is_without_being_told(judgments, s3_variables):
    options = {key: value for key, value in closed_endpoint().items() if key != "config_kwargs"}
    begun = time.monotonic()
    with pytest.raises(EngineError, match="storage is reachable"):
        run_job(job(judgments, "s3://bucket/runs", options))
    assert time.monotonic() - begun < 60


class BrokenError(Exception):
    """What a client raises that has errors of its own."""


@pytest.mark.parametrize("n_opened", [2, 4, 7])
def test_a_server_that_dies_while_data_are_read(judgments, memory, tmp_path, monkeypatch, n_opened):
    """While footers are read, or partitions."""
    for path in sorted(judgments.iterdir()):
        (locate(f"{memory}/data") / path.name).put(path)
    content = judgments_job(judgments, tmp_path, engine={"retries": 1, "workers": 1}).to_mapping()
    content["data"]["path"] = f"{memory}/data"
    opened = []
    open_ = FaultyFileSystem._open

    def dying(self, path, *rest, **options):
        opened.append(path)
        if len(opened) > n_opened:
            raise BrokenError("the server has gone")
        return open_(self, path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(FaultyFileSystem, "_open", dying)
        with pytest.raises(EngineError, match="BrokenError: the server has gone") as caught:
            run_job(build_spec(content))
    assert "run the same command again" in str(caught.value)
    assert len(results(run_job(build_spec(content)).folder)) > 1


def test_nothing_is_left_where_nothing_was_achieved(judgments, memory, tmp_path):
    table = pq.read_table(judgments / "part-0.parquet")
    labels = pa.array([math.inf, *table["y"].to_pylist()[1:]])
    pq.write_table(table.set_column(1, "y", labels), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="y"):
        run_job(job(tmp_path / "bad.parquet", memory))
    assert FaultyFileSystem.n_puts > 2
    assert files_below(locate(memory)) == []


def test_folder_of_something_else_is_refused(judgments, memory):
    place = locate(f"{memory}/mine")
    (place / "notes.txt").put(b"mine")
    with pytest.raises(SpecError, match="files that no run wrote"):
        run_job(job(judgments, memory), out=str(place))
    with pytest.raises(SpecError, match="is a file"):
        run_job(job(judgments, memory), out=str(place / "notes.txt"))
    folder = run_job(job(judgments, memory)).folder
    with pytest.raises(SpecError, match="another spec"):
        run_job(job(judgments, memory, multiselect={"budget": 3}), out=str(folder))
    assert (place / "notes.txt").read_bytes() == b"mine"
