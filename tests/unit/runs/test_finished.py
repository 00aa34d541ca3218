"""Opening a finished run: what it asks of the storage, and what it refuses."""

import hashlib
import io
import os
import uuid
import zipfile
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from distfms.errors import EngineError, SpecError
from distfms.runs import finished
from distfms.runs.finished import open_run, read_run, redraw
from distfms.runs.folder import SCHEMA_VERSION, RunFolder
from distfms.stats.base import to_bytes
from distfms.store.places import locate, locked_file, remove_tree
from distfms.store.remote import RemotePath

FILES = {
    "selection.json": {"budget": 3},
    "model.json": {},
    "weights.npz": {"weights": np.ones(2)},
    "metrics.json": {"test": {}, "curves": [], "baselines": {}},
    "inputs.json": {"inputs": [], "forms": None},
}


def write(place, names=tuple(FILES), schema=SCHEMA_VERSION):
    folder = RunFolder(place)
    folder.claim(method="multiselect", schema=schema, distfms="0.1", stages=[])
    files = folder.write_files({name: FILES[name] for name in names})
    sha256 = files.get("inputs.json", "")
    folder.update(stages=[{"name": "all", "files": files}], inputs_sha256=sha256)
    return place


def test_a_run_is_held_by_who_has_claimed_it_last(tmp_path):
    first = RunFolder(tmp_path)
    second = RunFolder(tmp_path)
    first.claim()
    assert [first.holds_claim(), second.holds_claim()] == [True, False]


def test_every_file_is_fetched_once(monkeypatch):
    place = write(locate(f"memory://{uuid.uuid4().hex}"))
    fetched = Counter()
    read = RemotePath.read_bytes

    def counted(path):
        fetched[path.name] += 1
        return read(path)

    monkeypatch.setattr(RemotePath, "read_bytes", counted)
    _, run = open_run(place)
    assert run.selection == {"budget": 3}
    assert run.weights["weights"].tolist() == [1.0, 1.0]
    assert fetched == Counter([*FILES, "manifest.json"])
    remove_tree(place)


def test_predictions_depend_on_how_their_data_are_read(tmp_path):
    run = read_run(write(tmp_path))
    digests = set()
    for data in (b"numbers: [a]", b"numbers: []", b"numbers: [], path: elsewhere"):
        spec = b"data: {" + data + b"}\nseed: 0\n"
        digests.add(replace(run, files={**run.files, "spec.yaml": spec}).digest())
    assert len(digests) == 2


def bomb():
    """A few kilobytes that stand for 8 MB."""
    content = io.BytesIO()
    np.savez_compressed(content, weights=np.zeros(10**6))
    return content.getvalue()


def lie():
    """A file that says that it has an array of 73 TiB."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, archive.open("weights.npy", "w") as member:
        head = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
        np.lib.format.write_array_header_1_0(member, head)
    return content.getvalue()


@pytest.mark.parametrize(
    ("weights", "reason"),
    [(bomb(), "compressed"), (lie(), "allocate"), (b"PK", ""), (b"", ""), (b"\x93NUMPY\x01", "")],
)
def test_weights_that_no_run_writes(tmp_path, weights, reason):
    """Whoever can write a run folder can write its manifest, too."""
    place = write(tmp_path)
    (place / "weights.npz").write_bytes(weights)
    text = (place / "manifest.json").read_text()
    old = FILES["weights.npz"]
    new = weights
    text = text.replace(*(hashlib.sha256(c).hexdigest() for c in (to_bytes(old), new)))
    (place / "manifest.json").write_text(text)
    with pytest.raises(SpecError, match=rf"weights.npz is damaged \(.*{reason}"):
        open_run(place)


@pytest.mark.parametrize("name", FILES)
def test_not_what_the_run_wrote(tmp_path, name):
    place = write(tmp_path / "run")
    (place / name).write_bytes(b"{}")
    with pytest.raises(
        SpecError, match=r"was changed after the run wrote it \(its sha256 differs\)"
    ):
        open_run(place)
    (place / name).unlink()
    with pytest.raises(SpecError, match="was changed after the run wrote it"):
        open_run(place)
    os.mkfifo(place / name)
    with pytest.raises(SpecError, match="was changed after the run wrote it"):
        open_run(place)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["selection.json", "model.json"]}, r"is unfinished: weights\.npz is missing"),
        ({"schema": SCHEMA_VERSION + 1}, r"written by distfms 0\.1 in a form .* run the job again"),
    ],
)
def test_not_ended_or_of_another_form(tmp_path, options, message):
    with pytest.raises(SpecError, match=message):
        open_run(write(tmp_path / "run", **options))


def test_report_is_not_drawn_under_a_driver(tmp_path, monkeypatch):
    """It would enter the stages that it has read, without the one that the driver enters now."""
    place = write(tmp_path / "run")

    class Job:
        page = staticmethod(lambda run: "page")

    monkeypatch.setattr(finished, "open_run", lambda path: (Job, None))
    with (
        locked_file(place / ".lock"),
        pytest.raises(EngineError, match="Another process is writing"),
    ):
        redraw(place)
    assert not (place / "report.html").exists()
    assert redraw(place).read_text() == "page"
