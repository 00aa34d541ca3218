"""Predictions as a folder with a file for each partition, of which finished ones are kept."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distfms.data.partition import Dataset, Partition
from distfms.data.write import write_table
from distfms.engine.base import Executor
from distfms.engine.remote import RemotePath
from distfms.engine.storage import (
    Location,
    files_below,
    is_temporary,
    reading,
    writing,
)
from distfms.errors import SpecError
from distfms.runs.folder import digest, encode, parse_json, write_atomic

#: What made the predictions; readers of Parquet pass over names that begin with an underscore.
_NOTE = "_predictions.json"

#: Name of a file of predictions: what it depends on (see `_key`), and the sha256 of the content.
_OWN = re.compile(r"(.+-[0-9]{5,}-[0-9a-f]{16})-([0-9a-f]{16})\.parquet", re.DOTALL)

#: What a killed writer of such a file, or of the note, has left.
_LEFT = re.compile(rf"(?:.*/)?\.(?:{_NOTE}|{_OWN.pattern})\.[0-9]+-[0-9a-f]+\.tmp", re.DOTALL)

#: From a partition to the table of its predictions and what users should know of it.
Predict = Callable[[Partition], tuple[Any, Counter[str]]]


def predict_folder(
    predict: Predict,
    dataset: Dataset,
    out: Location,
    made_with: Mapping[str, Any],
    executor: Executor,
) -> Counter[str]:
    """Write the predictions of every partition to a file of its own.

    Files are named like those of the data, in the same folders, and by the hash of their content.
    A whole one that is there is kept, so that a command that was stopped goes on, and one on grown
    data predicts only what is new. Predictions of partitions that the data no longer have are
    removed at the end, and nothing else. ``_predictions.json`` has the counts when all is done.

    Raises
    ------
    SpecError
        If the folder holds something else, or predictions of other data or made otherwise.
    """
    with reading(out):
        found = [entry.name for entry in files_below(out)]
    own: dict[str, list[str]] = defaultdict(list)
    for name in found:
        if match := _OWN.fullmatch(name):
            own[match[1]].append(name)
    note = {**made_with, "status": "running", "files": [file.name for file in dataset.files]}
    _refuse_others(out, [name for name in found if not is_temporary(name)], note)
    write_atomic(out / _NOTE, encode(_NOTE, note))
    work = [(partition, own.pop(_key(partition), [])) for partition in dataset.partitions]
    written = executor.map(partial(_write, predict, out), work)
    gone = [name for names in own.values() for name in names]
    _remove(out, [*gone, *filter(_LEFT.fullmatch, found)])
    note |= {"status": "done", "n_rows": dataset.n_rows, "n_partitions": len(work)}
    write_atomic(out / _NOTE, encode(_NOTE, note))
    counts = Counter({"Removed predictions of files that are gone": len(gone)})
    return reduce(Counter.__add__, written, counts)


def _write(
    predict: Predict, folder: Location, work: tuple[Partition, Sequence[str]]
) -> Counter[str]:
    """Write the predictions of a partition, unless one of the files that may be of it is whole."""
    partition, found = work
    if any(_is_whole(folder / name) for name in found):
        return Counter({"Partitions predicted before": 1})
    table, counts = predict(partition)
    with TemporaryDirectory(prefix="distfms-") as scratch:
        made = Path(scratch) / "predictions"
        write_table(made, table)
        payload = made.read_bytes()
    name = f"{_key(partition)}-{hashlib.sha256(payload).hexdigest()[:16]}.parquet"
    write_atomic(folder / name, payload)
    _remove(folder, set(found) - {name})
    return counts + Counter({"Damaged predictions replaced": int(bool(found))})


def _remove(folder: Location, names: Iterable[str]) -> None:
    for name in names:
        with writing(folder / name):
            (folder / name).unlink(missing_ok=True)


def _is_whole(place: Location) -> bool:
    """Whether a file of predictions has the content that its name tells."""
    match = _OWN.fullmatch(place.name)
    with reading(place), suppress(FileNotFoundError):
        return match is not None and digest(place).startswith(match[2])
    return False


def _key(partition: Partition) -> str:
    """Return what begins the name of a partition's predictions: all that they depend on of it."""
    # Rows without id are numbered through all files; the name of what was listed comes first.
    content = f"{partition.row_offset} {partition.fingerprint}"
    stem = partition.name.partition("/")[2].removesuffix(".parquet")
    depends = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{stem}-{partition.row_groups[0]:05d}-{depends}"


def _refuse_others(out: Location, found: Sequence[str], note: Mapping[str, Any]) -> None:
    """Refuse a folder of something else than these predictions."""
    if not isinstance(out, RemotePath) and out.exists() and not out.is_dir():
        raise SpecError(f"--out {out}/ is a file. Name a folder, or remove the slash.")
    if _NOTE not in found:
        if found:
            raise SpecError(
                f"--out {out}/ holds {min(found)}, which is not a prediction. Name an empty or new "
                "folder."
            )
        return
    with reading(out / _NOTE):
        before = parse_json(out / _NOTE, (out / _NOTE).read_bytes())
    for key in ("data", "model", "budget", "with_folds"):
        if before.get(key) != note[key]:
            raise SpecError(
                f"--out {out}/ holds predictions of {before.get('data')} by "
                f"{before.get('called')}, whose {key} differs from this command's. Predict as "
                "before, or name a new folder."
            )
    if set(note["files"]).isdisjoint(before.get("files", ())):
        raise SpecError(
            f"--out {out}/ holds only predictions of files that are no longer in {note['data']}. "
            "Name a new folder."
        )
