"""Predictions as a folder with a file for each partition, of which finished ones are kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from distfms.data.dataset import Partition
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
from distfms.runs.folder import encode, parse_json, write_atomic

#: What made the predictions; readers of Parquet pass over names that begin with an underscore.
_NOTE = "_predictions.json"

#: From a partition to the table of its predictions and what users should know of it.
Predict = Callable[[Partition], tuple[Any, Counter[str]]]


def predict_folder(
    predict: Predict,
    partitions: Sequence[Partition],
    out: Location,
    made_with: Mapping[str, Any],
    executor: Executor,
) -> Counter[str]:
    """Write the predictions of every partition to a file of its own.

    Files are named like those of the data, in the same folders, and written whole. A file that is
    there is kept, so that a command that was stopped goes on, and one on grown data predicts only
    what is new; predictions of partitions that the data no longer have are removed at the end.
    ``_predictions.json`` has the counts when all is done.

    Raises
    ------
    SpecError
        If the folder holds something else, or predictions made otherwise.
    """
    n_rows = sum(partition.n_rows for partition in partitions)
    names = {_name(partition): partition for partition in partitions}
    with reading(out):
        found = {entry.name for entry in files_below(out)}
    _refuse_others(out, found, made_with)
    note = {**made_with, "status": "running"}
    write_atomic(out / _NOTE, encode(_NOTE, note))
    left = [partition for name, partition in names.items() if name not in found]
    counts = reduce(Counter.__add__, executor.map(_Write(predict, out), left), Counter[str]())
    for name in found - names.keys():
        if name.endswith(".parquet") or is_temporary(name):
            with writing(out / name):
                (out / name).unlink(missing_ok=True)
    note |= {"status": "done", "n_rows": n_rows, "n_partitions": len(partitions)}
    write_atomic(out / _NOTE, encode(_NOTE, note))
    return counts + Counter({"Partitions that had been predicted": len(partitions) - len(left)})


@dataclass(frozen=True)
class _Write:
    """Picklable task that writes the predictions of a partition and returns their counts."""

    predict: Predict
    folder: Location

    def __call__(self, partition: Partition) -> Counter[str]:
        table, counts = self.predict(partition)
        write_table(self.folder / _name(partition), table)
        return counts


def _name(partition: Partition) -> str:
    """Return the name of a partition's predictions, with all that they depend on of the data."""
    # Rows without id are numbered through all files; the name of what was listed comes first.
    key = f"{partition.row_offset} {partition.fingerprint}"
    stem = partition.name.partition("/")[2].removesuffix(".parquet")
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{stem}-{partition.row_groups[0]:05d}-{digest[:16]}.parquet"


def _refuse_others(out: Location, found: set[str], made_with: Mapping[str, Any]) -> None:
    """Refuse a folder of something else than these predictions."""
    if not isinstance(out, RemotePath) and out.exists() and not out.is_dir():
        raise SpecError(f"--out {out}/ is a file. Name a folder, or leave the slash out.")
    if _NOTE not in found:
        if found:
            raise SpecError(
                f"--out {out}/ holds {min(found)}, which is no prediction. Name an empty or a new "
                "folder."
            )
        return
    with reading(out / _NOTE):
        before = parse_json(out / _NOTE, (out / _NOTE).read_bytes())
    for key in ("model", "budget", "with_folds"):
        if before.get(key) != made_with[key]:
            raise SpecError(
                f"--out {out}/ holds predictions of {before.get('called')}, and its {key} is not "
                f"the one of this command ({made_with['called']}). Predict as before, or name a "
                "new folder."
            )
