"""Opening a job's data: paths, embedded data, judgments in long form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distfms.data.builtin import BUILTIN, builtin_dataset
from distfms.data.convert import CONVERSION, convert_long_judgments
from distfms.data.dataset import ParquetDataset, open_dataset
from distfms.errors import SpecError
from distfms.methods.contract import Inputs
from distfms.runs.job_spec import JobSpec
from distfms.spec import DataSection, LongForm, expand_variables, nearest


@dataclass(frozen=True)
class Opened:
    """A job's data, opened.

    Attributes
    ----------
    inputs : Inputs
        With the data section resolved to the files that are read.
    fingerprints : tuple of str
        Of the files that the spec names (not of what was converted from them).
    notes : tuple of str
        What the user should know about the opening.
    """

    inputs: Inputs
    fingerprints: tuple[str, ...]
    notes: tuple[str, ...] = ()


def open_inputs(spec: JobSpec, say: Callable[[str], None]) -> Opened:
    """Open the data of a job.

    Parameters
    ----------
    spec : JobSpec
    say : callable
        Told, in one line, of work that takes a while.

    Raises
    ------
    DataError, SpecError
        If the data are not there or not readable.
    """
    section = spec.data
    if section.builtin is not None:
        return _open_builtin(section, say)
    if section.long is not None:
        return _open_long(spec, section.long, say)
    train = _open(section, section.path)
    test = None if section.test_path is None else _open(section, section.test_path)
    fingerprints = [train.fingerprint] + ([test.fingerprint] if test is not None else [])
    return Opened(Inputs(train, test, section), tuple(fingerprints))


def _expanded(path: str | Sequence[str]) -> str | list[str]:
    if isinstance(path, str):
        return expand_variables(path)
    return [expand_variables(part) for part in path]


def _open(section: DataSection, path: Any) -> ParquetDataset:
    return open_dataset(
        _expanded(path),
        max_rows=section.max_partition_rows,
        max_bytes=section.max_partition_bytes,
        storage_options=section.storage_options or None,
    )


def _open_builtin(section: DataSection, say: Callable[[str], None]) -> Opened:
    name = str(section.builtin)
    if name not in BUILTIN:
        raise SpecError(f"There is no embedded dataset `{name}`.{nearest(name, list(BUILTIN))}")
    entry = BUILTIN[name]
    folder = builtin_dataset(name, options=section.options)
    say(f"Embedded data {name}: {folder}")
    resolved = section.model_copy(
        update={
            "target": section.target or (entry.target,),
            "id": section.id or entry.id,
        }
    )
    train = _open(section, str(folder))
    return Opened(Inputs(train, None, resolved), (f"builtin:{folder.name}",))


def _open_long(spec: JobSpec, long: LongForm, say: Callable[[str], None]) -> Opened:
    source = _expanded(spec.data.path or "")
    labels = None if long.labels is None else expand_variables(long.labels)
    fingerprints = [_source_fingerprint(source, spec.data)]
    if labels is not None:
        fingerprints.append(_source_fingerprint(labels, spec.data))
    key = json.dumps([fingerprints, long.model_dump(), spec.seed], sort_keys=True)
    name = "judgments-" + hashlib.sha256(key.encode()).hexdigest()[:16]
    out = Path(spec.output) / ".data" / name
    if not out.exists():
        say(f"Converting long judgments to {out} (once)")
        convert_long_judgments(
            source,
            out,
            object=long.object,
            attribute=long.attribute,
            value=long.value,
            worker=long.worker,
            labels=labels,
            label=long.label,
            label_from=long.label_from,
            duplicates=long.duplicates,
            max_judgments=long.max_judgments,
            seed=spec.seed,
        )
    report = json.loads((out / CONVERSION).read_text(encoding="utf-8"))
    section = spec.data.model_copy(
        update={"path": str(out), "long": None, "target": (report["label"],), "id": long.object}
    )
    opened = Inputs(_open(section, str(out)), None, section)
    return Opened(opened, tuple(fingerprints), tuple(_left_out(report)))


def _left_out(report: Mapping[str, Any]) -> list[str]:
    """Say what the conversion did not take over."""
    kinds = {
        "n_unlabelled": "objects without a label",
        "n_unjudged_labels": "labels of objects that nobody judged",
        "n_without_value": "rows without a value",
        "n_duplicates": "second judgments by one worker",
    }
    found = [f"{report[key]:,} {text}" for key, text in kinds.items() if report.get(key)]
    return [f"Left out when converting the judgments: {', '.join(found)}."] if found else []


def _source_fingerprint(path: str | list[str], section: DataSection) -> str:
    """Fingerprint of judgment files, which may also be CSV."""
    if isinstance(path, str) and Path(path).suffix.lower() == ".csv" and Path(path).is_file():
        stat = Path(path).stat()
        return f"csv:{Path(path).name}:{stat.st_size}:{stat.st_mtime_ns}"
    return _open(section, path).fingerprint
