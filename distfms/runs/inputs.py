"""Opening a job's data: paths, embedded data, judgments in long form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from distfms.data.files.age import remember
from distfms.data.files.builtin import builtin_dataset, builtin_entry
from distfms.data.files.convert import converted, file_version
from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.data.files.partition import Dataset, digest
from distfms.data.files.storage import list_files, refuse_copies
from distfms.data.rows.roles import require_columns
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import Inputs
from distfms.runs.job_spec import JobSpec
from distfms.spec import DataSection, LongForm, expanded
from distfms.store.kept import KEPT
from distfms.store.places import Location
from distfms.store.remote import RemotePath


@dataclass(frozen=True)
class Origin:
    """Where a job's data came from, beside what is read of them.

    `fingerprints` are of the files that the spec names (not of what was converted from them);
    `notes` are for the user; `forgotten` are the names of files that are too old to count;
    `source` is the user's own file where others were made from it, empty for embedded data.
    """

    fingerprints: tuple[str, ...]
    notes: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    source: str | None = None


def open_inputs(spec: JobSpec, root: Location, say: Callable[[str], None]) -> tuple[Inputs, Origin]:
    """Open the data of a job; converted files are kept below ``root``, beside all runs.

    The section of the inputs has the roles that columns of embedded or converted data have.
    """
    copies = Copies(root / KEPT, spec.output.cache_bytes, say)
    section = spec.data
    path = expanded(section.path)
    options = expanded(section.storage_options)
    origin = Origin(())
    if section.builtin is not None:
        say(f"Embedded data: {section.builtin}")
        entry = builtin_entry(section.builtin)
        origin = Origin((), source="")
        roles: dict[str, Any] = {"target": section.target or (entry.target,)}
        section = section.model_copy(update={**roles, "id": section.id or entry.id})
    elif section.long is not None:
        path, origin = _long_rows(section, section.long, spec.seed, copies)
        roles = {"target": (section.long.target,), "id": section.long.object}
        section = section.model_copy(update=roles)
    open_rows = partial(_open, section, spec.partition_rows, copies)
    if section.builtin is not None:
        opened = builtin_dataset(section, spec.partition_rows)
    elif isinstance(path, RemotePath):
        # Where the converted files are, the way to the storage is that of the output.
        opened = open_rows(str(path), path.storage_options)
    else:
        opened = open_rows(path, options)
    test, unlabelled = (
        None if other is None else open_rows(expanded(other), options, opened)
        for other in (section.test_path, section.unlabelled_path)
    )
    if test is not None:
        _refuse_overlap(opened, test)
    notes = origin.notes if section.long else opened.notes
    train = opened
    by_age = False
    if spec.retrain is not None:
        forgetting = spec.retrain.forget
        by_age = bool(forgetting.half_life)
        train = remember(opened, forgetting, section.time)
        n_left_out = len(opened.partitions) - len(train.partitions)
        if n_left_out:
            note = (
                f"{counted(n_left_out, 'partition')} of {len(opened.partitions)} left out: older "
                f"than `retrain.forget.window`, {forgetting.window}."
            )
            notes = (*notes, note)
    kept = {file.name for file in train.files}
    forgotten = [file.name for file in opened.files if file.n_rows and file.name not in kept]
    fingerprints = [data.fingerprint for data in (opened, test, unlabelled) if data is not None]
    origin = replace(
        origin,
        fingerprints=origin.fingerprints or tuple(fingerprints),
        notes=notes,
        forgotten=tuple(forgotten),
    )
    return Inputs(train, test, section, unlabelled, by_age), origin


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
    max_rows: int,
    copies: Copies,
    path: Any,
    storage_options: Mapping[str, Any],
    like: Dataset | None = None,
) -> Dataset:
    """Open data; what does not tell its types is read `like` other data."""
    kinds = None if like is None else dict(zip(like.schema.names, like.schema.types, strict=True))
    dataset = open_dataset(
        path,
        max_rows=max_rows,
        max_bytes=section.max_partition_bytes,
        storage_options=storage_options or None,
        copies=copies,
        numbers=section.numbers,
        texts=section.text,
        forms=None if like is None else like.forms,
        kinds=kinds,
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


def _long_rows(
    section: DataSection, form: LongForm, seed: int, copies: Copies
) -> tuple[Location, Origin]:
    """Convert judgments in long form; return the folder, and where they come from."""
    options = expanded(section.storage_options)
    labels_path = expanded(form.labels)
    files = list_files(expanded(section.path), options)
    labels = list_files(labels_path, options) if labels_path else ()
    folder, counts = converted(files, form, labels=labels, seed=seed, copies=copies)
    fingerprints = tuple(digest(*map(file_version, f)) for f in (files, labels) if f)
    return folder, Origin(fingerprints, tuple(_left_out(counts)), source=files[0].path)


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
