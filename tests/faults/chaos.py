"""Commands that are killed at their n-th file event, and what readers then see."""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distfms.cli import main
from distfms.registry import Registry
from distfms.store.places import files_below, is_temporary, locate
from distfms.store.remote import RemotePath
from tests.e2e.retrain_jobs import growing_job, write_day

#: Audit events of Python that change a file, which is their first argument.
_CHANGES = {"os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PRELOAD = [__name__, "dask.threaded", "s3fs", "distfms.methods.sequence.flow"]


@dataclass
class _Events:
    """Counts changes of files below a folder and requests to storage; kills the process at one."""

    root: str
    at: int
    n: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def happen(self) -> None:
        self.n = next(self.numbers)
        if self.n == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES or (event == "open" and arguments[2] & _WRITES):
            path = arguments[0]
            if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.root):
                self.happen()

    def around(self, function: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.happen()
            try:
                return function(*arguments, **options)
            finally:
                self.happen()

        return counted


def _obey(arguments: list[str], cwd: str, environment: Mapping[str, str], at: int) -> None:
    os.environ.update(environment)
    os.chdir(cwd)
    events = _Events(f"{cwd}/", at)
    os.fsync = events.around(os.fsync)
    RemotePath.ask = events.around(RemotePath.ask)  # type: ignore[method-assign]
    sys.addaudithook(events.audit)
    with open(f"{cwd}.said", "w") as said, redirect_stdout(said), redirect_stderr(said):
        try:
            main(arguments)
        finally:
            Path(f"{cwd}.events").write_text(str(events.n))


@dataclass(frozen=True)
class Seen:
    """What readers see: the current model, versions, predictions and finished runs, as hashes.

    There may be several versions and runs of the same content: one that was trained, and not
    promoted before the kill, is made again.
    """

    current: str | None
    versions: frozenset[str]
    predictions: Mapping[str, str]
    runs: frozenset[str]

    def require_between(self, before: Seen, after: Seen) -> None:
        """Check that nothing was lost of before, and that nothing is there but of after."""
        assert self.current in (before.current, after.current)
        assert before.versions <= self.versions <= after.versions
        assert before.predictions.items() <= self.predictions.items() <= after.predictions.items()
        assert before.runs <= self.runs <= after.runs


class Life:
    """A model is trained, predicts, is retrained on grown data, promoted and rolled back."""

    def __init__(self, folder: Path, output: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.output = output
        self._environment = environment
        self._write(1)
        retrain = {"gate": {"max_regression": 10.0, "max_drift": 10.0}}
        spec = growing_job(folder / "data", Path("unused"), retrain=retrain).to_mapping()

        (folder / "job.yaml").write_text(json.dumps({**spec, "output": output}))

    def commands(self) -> Iterator[list[str]]:
        """Yield the commands; the data grow on the way."""
        predict = [
            "predict",
            f"{self.output}/growing",
            "data",
            "--out",
            f"{self.output}/predicted/",
        ]
        models = ["--registry", f"{self.output}/registry"]
        yield ["run", "job.yaml"]
        yield predict
        yield ["retrain", "job.yaml"]
        self._write(2)
        yield ["retrain", "job.yaml"]
        yield ["models", "promote", "growing@1", *models]
        yield ["models", "rollback", "growing", *models]

    def _write(self, day: int) -> None:
        """Write a day, always with the same time stamp."""
        path = write_day(self.folder / "data", f"2026-01-0{day}", day, n=60)
        os.utime(path, (day, day))

    def obey(self, command: list[str], at: int = 0) -> int | None:
        """Carry out a command, kill it at an event unless that is 0; return its exit code."""
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(_PRELOAD)
        process = server.Process(
            target=_obey, args=(command, str(self.folder), dict(self._environment), at)
        )
        process.start()
        process.join(120)
        return process.exitcode

    @property
    def said(self) -> str:
        """What the last command printed."""
        return Path(f"{self.folder}.said").read_text()

    @property
    def n_events(self) -> int:
        """Events of the last command that came to its end."""
        return int(Path(f"{self.folder}.events").read_text())

    def seen(self) -> Seen:
        """Read everything as other processes do."""
        place = locate(self.output)
        registry = Registry(place / "registry")
        current = None
        versions = {}
        if "growing" in registry.names():
            for version in registry.versions("growing"):
                files = registry.read("growing", version.number)[1]
                versions[version.number] = _hash(files["weights.npz"])
            found = registry.last("growing").version
            current = found and versions[found]
        predictions = {
            entry.name: _hash(entry.place.read_bytes())
            for entry in files_below(place / "predicted")
            if not is_temporary(entry.name) and entry.name != "_predictions.json"
        }
        runs = frozenset(self._finished(place / "growing"))
        return Seen(current, frozenset(versions.values()), predictions, runs)

    @staticmethod
    def _finished(place: Any) -> Iterator[str]:
        """Yield a hash of the results of each finished run, whose files must be whole."""

        files = {entry.name: entry.place for entry in files_below(place)}
        for name in files:
            folder, _, last = name.rpartition("/")
            if last != "manifest.json" or "latest" in folder:
                continue
            manifest = json.loads(files[name].read_bytes())
            listed = {n: sha for stage in manifest["stages"] for n, sha in stage["files"].items()}
            for file, sha in listed.items():
                if f"{folder}/{file}" in files:
                    assert hashlib.sha256(files[f"{folder}/{file}"].read_bytes()).hexdigest() == sha
                else:
                    assert any(other.startswith(f"{folder}/{file}/") for other in files)
            if manifest["status"] == "done":
                yield listed["weights.npz"]


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
