"""Finished runs, in a folder or a registry: which is meant, reading it, telling MLflow of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from numbers import Real
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from distfms.data.files.formats.base import FORMS, Forms
from distfms.data.files.frames import FrameForms
from distfms.errors import DistfmsError, SpecError, checked_budget, shown
from distfms.methods import METHODS, load_method
from distfms.methods.frame.contract import RETRAINING, FinishedRun, Method, RowStop
from distfms.methods.frame.row_predictor import levels_of
from distfms.runs.folder import (
    INPUTS,
    LATEST,
    MANIFEST,
    Manifest,
    RunFolder,
    each_run,
    parse_json,
    parse_manifest,
    read_manifest,
    write_atomic,
)
from distfms.spec import expanded, parse_yaml
from distfms.stats.base import from_bytes
from distfms.store.places import Location, absolute, locate, read_regular, reading
from distfms.store.remote import RemotePath

if TYPE_CHECKING:
    from distfms.registry import Registry, Version

PREFIX = "registry:"
_NAMED = re.compile(r"([^@]+)(?:@([0-9]{1,8}))?")


def parse_model(text: str) -> tuple[str, int | None]:
    """Return name and version of ``NAME`` or ``NAME@version``; no version for the current one."""
    match = _NAMED.fullmatch(text.removeprefix(PREFIX))
    if match is None:
        raise SpecError(f"{text[:100]!r} is not a model name. Write NAME, or NAME@3 for version 3.")
    return match[1], int(match[2]) if match[2] else None


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested mappings as one with dotted names."""
    flattened = dict[str, Any]()
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            flattened |= {
                f"{key}.{inner}": inner_value for inner, inner_value in flat(value).items()
            }
        else:
            flattened[key] = value
    return flattened


_MODEL = ("selection.json", "model.json", "weights.npz", "metrics.json")

#: A run's folder, as users name it.
Run = str | os.PathLike[str] | RemotePath


@dataclass(frozen=True)
class RunFiles:
    """The files of a finished run, or of a version that a registry has of one.

    `place` is the run's folder or the version's; `called` names it for users.
    """

    place: Location
    called: str
    files: Mapping[str, bytes]
    manifest: Manifest

    def open(self, allow: Iterable[str] = ()) -> tuple[Method, FinishedRun]:
        """Parse them; the model may call the functions in `allow`, as ``module:function``."""
        if self.manifest.method not in METHODS:
            raise SpecError(
                f"{self.called} is a run of `{self.manifest.method}`, a method this distfms does "
                "not have."
            )
        content = {
            name: parse_json(self.place / f"{name}.json", self.files[f"{name}.json"])
            for name in ("selection", "metrics", "model")
        }
        retraining = None
        try:
            weights = from_bytes(self.files["weights.npz"])
        except (ValueError, AttributeError, EOFError, MemoryError, BadZipFile) as error:
            raise SpecError(
                f"{self.place / 'weights.npz'} is damaged ({error}). Run the job again, or use "
                "another version."
            ) from error
        if RETRAINING in self.files:
            retraining = parse_json(self.place / RETRAINING, self.files[RETRAINING])
        run = FinishedRun(
            **content,
            manifest={**self.manifest.content(), "inputs": self.inputs()},
            weights=weights,
            retraining=retraining,
            allow=frozenset(allow),
            called=self.found_at,
        )
        return load_method(self.manifest.method), run

    def _read(self) -> Mapping[str, Any]:
        return parse_json(self.place / INPUTS, self.files[INPUTS])

    def inputs(self) -> list[dict[str, Any]]:
        """Return what was read, file by file."""
        entries: list[dict[str, Any]] = self._read()["inputs"]
        return entries

    def forms(self) -> Forms | None:
        """Return how text of the training data was read."""
        content = self._read()["forms"]
        return FORMS.validate_python(content) if content else None

    def frame_forms(self) -> FrameForms:
        """Return how columns of frames are read for the model."""
        model = parse_json(self.place / "model.json", self.files["model.json"])
        levels = {name: levels_of(source) for name, source in model.get("sources", {}).items()}
        texts = frozenset(self.spec()["data"].get("text", ()))
        return FrameForms.of(levels, self.forms() or Forms(), texts)

    @property
    def found_at(self) -> str:
        """How `load` finds it from any folder; empty where it is kept nowhere."""
        if self.called.startswith(PREFIX):
            return self.called
        return str(absolute(self.place)) if self.manifest.attempt else ""

    def spec(self) -> dict[str, Any]:
        """Parse the resolved spec of the job."""
        place = self.place / "spec.yaml"
        payload = self.files.get(place.name) or place.read_bytes()
        return parse_yaml(payload.decode(), str(place))

    def digest(self) -> str:
        """Return the sha256 of all that predictions depend on: the model, and how data are read."""
        spec = self.spec()
        reading = {**spec["data"], "path": None, "test_path": None}
        hashes = [hashlib.sha256(self.files[name]).hexdigest() for name in _MODEL]
        text = json.dumps([reading, spec["seed"], hashes], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def read_run(
    run: Run, storage_options: Mapping[str, Any] | None = None, registry: str | None = None
) -> RunFiles:
    """Read the files of a finished run from its folder, or from a registry.

    ``run`` may be ``registry:NAME`` or ``registry:NAME@version``.

    Raises
    ------
    SpecError
        If this is not a run folder, the run is unfinished, a file is damaged, or the registry has
        no such model.
    EngineError
        If remote storage does not answer.
    """
    if isinstance(run, str) and run.startswith(PREFIX):
        from distfms.registry import open_registry

        return read_version(open_registry(registry, storage_options), *parse_model(run))[1]
    path = find_run(run, storage_options)
    manifest = read_manifest(path)
    if manifest is None:
        raise SpecError(
            f"{path} is not a run folder: it has no manifest.json. Name the folder that "
            "`distfms run` printed, such as runs/NAME/2026-01-31T12-00-00Z-1a2b3c4d."
        )
    return _whole(path, manifest)


def read_version(
    registry: Registry, name: str, number: int | None = None
) -> tuple[Version, RunFiles]:
    """Read a version of a model, or the current one."""
    version, files = registry.read(name, number)
    place = registry.files(name, version)
    called = f"{PREFIX}{name}@{version.number}"
    for file in (MANIFEST, *_MODEL):
        if file not in files:
            raise SpecError(f"{called} is not the model of a run: it has no {file}.")
    manifest = parse_manifest(place, files[MANIFEST])
    return version, RunFiles(place, called, _unpacked(place, files), manifest)


#: A version has the list of its inputs compressed: it may be larger than all else.
_PACKED = f"{INPUTS}.gz"
#: Bytes that such a list may have: of a million files.
_MOST_BYTES = 2**29


def packed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a run as a registry keeps them, the same bytes for the same files."""
    payloads = {name: payload for name, payload in files.items() if name != INPUTS}
    return payloads | {_PACKED: gzip.compress(files[INPUTS], mtime=0)}


def _unpacked(place: Location, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    if _PACKED not in files:
        return files
    try:
        with gzip.open(BytesIO(files[_PACKED])) as stream:
            inputs = stream.read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{place / _PACKED} is damaged ({error}). Use another version.") from error
    return {**files, INPUTS: inputs}


def checked_stop(
    stop: str | None = None, mean_budget: float | None = None, confidence: float | None = None
) -> RowStop | None:
    """Return how rows stop, as a user has said it; None for all at one prefix."""
    if stop not in (None, "rows", "prefix"):
        raise SpecError(f"stop is {stop!r}; choose from 'rows' and 'prefix'.")
    if stop != "rows":
        if mean_budget is not None or confidence is not None:
            raise SpecError(
                "A mean budget, or a confidence, is for rows that stop one by one: `--stop rows`, "
                "or stop='rows' in Python."
            )
        return None
    if mean_budget is not None and confidence is not None:
        raise SpecError("Rows stop by a mean budget or by a confidence: give one of them.")
    if confidence is not None and not (isinstance(confidence, Real) and 0 < confidence <= 1):
        raise SpecError(f"The confidence is {shown(confidence)}; it must be above 0, at most 1.")
    return RowStop(checked_budget(mean_budget, "The mean budget"), confidence)


@contextmanager
def well_formed(called: str) -> Iterator[None]:
    """Explain what use of a model leads to whose files are whole and hold something else."""
    try:
        yield
    except DistfmsError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise SpecError(
            f"The model {called} cannot be used ({type(error).__name__}: {error}): its files are "
            "malformed, or a function that it calls has failed. Run the job again, or name another "
            "version."
        ) from error


def open_run(run: Run) -> tuple[Method, FinishedRun]:
    """Read and parse a finished run; see `read_run`."""
    return read_run(run).open()


def find_run(run: Run, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the folder of a run; of all runs of a job, or their ``latest``, the last finished."""
    path = locate(run, expanded(storage_options or {}))
    base = path.parent if path.name == LATEST else path
    with reading(path):
        if path.name != LATEST and (path / MANIFEST).exists():
            return path
        for folder, manifest in each_run(base):
            if folder.name != LATEST and manifest.status == "done":
                return folder
    return path


def read_written(run: RunFolder, allow: Iterable[str] = ()) -> FinishedRun:
    """Read what a run that is not yet done has written, once its model is."""
    return _whole(run.path, run.manifest()).open(allow)[1]


def _whole(path: Location, manifest: Manifest) -> RunFiles:
    """Read the files of a finished run, each once, and check that they are what it wrote."""
    written = {**manifest.files(), INPUTS: manifest.inputs_sha256}
    payloads: dict[str, bytes] = {}
    for name in (*_MODEL, INPUTS, *({RETRAINING} & written.keys())):
        if name not in written:
            raise SpecError(
                f"The run {path} is unfinished: {name} is missing. Run the job's command again to "
                "resume it."
            )
        with reading(path / name), suppress(FileNotFoundError):
            payloads[name] = read_regular(path / name) or b""
        if hashlib.sha256(payloads.get(name, b"")).hexdigest() != written[name]:
            raise SpecError(
                f"{path / name} was changed after the run wrote it (its sha256 differs). Run the "
                f"job again with --out {path} to repeat that step."
            )
    return RunFiles(path, str(path), payloads, manifest)


def headline(run: Run) -> str:
    """Return a run's result in one sentence."""
    method, finished = open_run(run)
    with well_formed(str(run)):
        return method.headline(finished)


def redraw(run: Run, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Draw a run's report again and return its place."""
    path = find_run(run, storage_options)
    method, finished = open_run(path)
    target = path / "report.html"
    with well_formed(str(path)):
        page = method.page(finished).encode()
    folder = RunFolder(path)
    # A driver may be at the last steps; what it enters in the manifest must not be lost.
    with folder.locked():
        write_atomic(target, page)
        stages = folder.manifest().stages
        for stage in stages:
            if target.name in stage.files:
                stage.files[target.name] = hashlib.sha256(page).hexdigest()
        folder.update(stages=[stage.model_dump() for stage in stages])
    return target
