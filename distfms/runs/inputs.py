"""Opening a job's data: paths, embedded data, judgments in long form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from distfms.data.files.age import remember
from distfms.data.files.builtin import BUILTIN, builtin_dataset
from distfms.data.files.convert import converted, file_version
from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.data.files.known_footers import KnownFooters
from distfms.data.files.partition import Dataset, digest
from distfms.data.files.storage import list_files, refuse_copies
from distfms.data.rows.roles import require_columns
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import Inputs
from distfms.runs.job_spec import JobSpec
from distfms.spec import DataSection, expanded
from distfms.store.kept import KEPT
from distfms.store.places import Location


@dataclass(frozen=True)
class Opened:
    """A job's data, opened.

    The section of `inputs` is resolved to the files that are read; `fingerprints` are of the files
    that the spec names (not of what was converted from them); `notes` are for the user;
    `forgotten` are the names of files that are too old to count; `footers` can be kept; `source` is
    the user's own file where others were made from it, empty for embedded data.
    """

    inputs: Inputs
    fingerprints: tuple[str, ...]
    notes: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    footers: tuple[KnownFooters, ...] = ()
    source: str | None = None


def open_inputs(spec: JobSpec, root: Location, say: Callable[[str], None]) -> Opened:
    """Open the data of a job; converted files are kept below ``root``, beside all runs."""
    opened = _open_all(spec, root, say)
    if spec.retrain is None:
        return opened
    inputs = opened.inputs
    forgetting = spec.retrain.forget
    train = remember(inputs.train, forgetting, inputs.section.time)
    kept = {file.name for file in train.files}
    rows_of = {file.name: file.n_rows for file in inputs.train.files}
    forgotten = tuple(name for name, n_rows in rows_of.items() if n_rows and name not in kept)
    notes = list(opened.notes)
    n_partitions = len(inputs.train.partitions)
    n_left_out = n_partitions - len(train.partitions)
    if n_left_out:
        notes.append(
            f"{counted(n_left_out, 'partition')} of {n_partitions} left out: older than "
            f"`retrain.forget.window`, {forgetting.window}."
        )
    inputs = replace(inputs, train=train, by_age=bool(forgetting.half_life))
    return replace(opened, inputs=inputs, notes=tuple(notes), forgotten=forgotten)


def _open_all(spec: JobSpec, root: Location, say: Callable[[str], None]) -> Opened:
    section = _resolved(spec)
    copies = Copies(root / KEPT, spec.output.cache_bytes, say)
    if section.long is not None:
        return _open_long(spec, section, copies)
    footers = tuple(
        _known(root, place) for place in (section.path, section.test_path, section.unlabelled_path)
    )
    if section.builtin is None:
        train = _open(section, section.path, copies, footers[0])
    else:
        say(f"Embedded data: {section.builtin}")
        train = builtin_dataset(section)
        entry = BUILTIN[section.builtin]
        columns = {"target": section.target or (entry.target,), "id": section.id or entry.id}
        section = section.model_copy(update=columns)
    test, unlabelled = (
        None if named is None else _open(section, named, copies, known_footers, train)
        for named, known_footers in zip(
            (section.test_path, section.unlabelled_path), footers[1:], strict=True
        )
    )
    if test is not None:
        _refuse_overlap(train, test)
    fingerprints = [data.fingerprint for data in (train, test, unlabelled) if data is not None]
    return Opened(
        Inputs(train, test, section, unlabelled),
        tuple(fingerprints),
        train.notes,
        footers=footers,
        source=None if section.builtin is None else "",
    )


def _known(root: Location, path: Any) -> KnownFooters:
    """Return what is known of the footers below a path, or of several."""
    text = json.dumps(path, default=str)
    return KnownFooters(root / KEPT, digest(text))


def _resolved(spec: JobSpec) -> DataSection:
    """Return the section with what environment variables stand for, and with the method's limit."""
    section = spec.data
    places = ("path", "test_path", "unlabelled_path", "storage_options")
    update = {name: expanded(getattr(section, name)) for name in places}
    update["max_partition_rows"] = spec.partition_rows
    if section.long is not None:
        update["long"] = section.long.model_copy(update={"labels": expanded(section.long.labels)})
    return section.model_copy(update=update)


def _refuse_overlap(train: Dataset, test: Dataset) -> None:
    shared = {file.path for file in train.files} & {file.path for file in test.files}
    if shared:
        raise SpecError(
            f"The file {min(shared)} is in both `data.path` and `data.test_path`; a loss on "
            "training rows is no test. Separate the files, or hold rows out with `data.test`."
        )
    refuse_copies(test.files, train.files)


def _open(
    section: DataSection,
    path: Any,
    copies: Copies,
    known: KnownFooters | None = None,
    like: Dataset | None = None,
) -> Dataset:
    """Open data; what does not tell its types is read `like` other data."""
    dataset = open_dataset(
        path,
        max_rows=section.max_partition_rows,
        max_bytes=section.max_partition_bytes,
        storage_options=section.storage_options or None,
        copies=copies,
        numbers=section.numbers,
        texts=section.text,
        forms=None if like is None else like.forms,
        kinds=None
        if like is None
        else dict(zip(like.schema.names, like.schema.types, strict=True)),
        known=known,
    )
    require_columns(dataset.schema, section.numbers, "one of `numbers`")
    require_columns(dataset.schema, section.text, "one of `text`")
    if section.time is not None and dataset.forms is not None:
        _refuse_two_readings(dataset, section.time)
    return dataset


def _refuse_two_readings(dataset: Dataset, time: str) -> None:
    """Refuse times that can be read in two ways: which rows are old would be a guess."""
    forms = dataset.forms.times.get(time, ())
    if len(forms) > 1:
        readings = [f"{datetime(2026, 3, 5):{form}} as 5 March ({form})" for form in forms]
        raise DataError(
            f"All times in column {time!r} (`data.time`) of {dataset.place} can be read in several "
            f"ways: {' or '.join(readings)}. Write them as 2026-03-05."
        )


def _open_long(spec: JobSpec, data: DataSection, copies: Copies) -> Opened:
    long = data.long
    assert data.path is not None
    assert long is not None
    files = list_files(data.path, data.storage_options)
    labels = list_files(long.labels, data.storage_options) if long.labels else ()
    folder, counts = converted(files, long, labels=labels, seed=spec.seed, copies=copies)
    # Where the converted files are, the way to the storage is that of the output.
    options = {} if isinstance(folder, Path) else expanded(spec.output.storage_options)
    place = {"path": str(folder), "storage_options": options, "long": None}
    roles = {"target": (counts["label"],), "id": long.object}
    section = data.model_copy(update={**place, **roles})
    train = _open(section, str(folder), copies)
    fingerprints = [digest(*map(file_version, listed)) for listed in (files, labels) if listed]
    return Opened(
        Inputs(train, None, section),
        tuple(fingerprints),
        tuple(_left_out(counts)),
        source=files[0].path,
    )


def _left_out(report: Mapping[str, Any]) -> list[str]:
    """Return what the conversion left out."""
    kinds = {
        "n_unlabelled": "objects without a label",
        "n_unjudged_labels": "labels of objects without judgments",
        "n_without_value": "rows without a value",
        "n_duplicates": "second judgments by the same rater",
    }
    counts = [f"{report[key]:,} {text}" for key, text in kinds.items() if report.get(key)]
    notes = [f"Left out when converting the judgments: {', '.join(counts)}."] if counts else []
    if spread := report.get("n_spread"):
        named = counted(spread, "object")
        notes.append(
            f"Several files hold judgments of {named}; each object counts with its first file."
        )
    return notes
