"""Applying a run's model to a dataset, partition by partition."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Protocol, runtime_checkable

from distfms.data.dataset import ParquetDataset, Partition, PartitionReader, open_dataset
from distfms.data.folds import FoldPlan, assign_parts
from distfms.data.roles import require_columns
from distfms.data.write import CsvFile, GroupedFile
from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import counted
from distfms.engine.open import make_executor
from distfms.engine.remote import RemotePath, is_url
from distfms.engine.storage import Location, locate, reading, unwritable, whole_file
from distfms.errors import SpecError
from distfms.methods.contract import FinishedRun
from distfms.runs.finished import Run, find_run, open_run
from distfms.runs.storage_options import expanded
from distfms.spec import parse_yaml

#: Partitions in memory at once, per worker.
_AHEAD = 2


@runtime_checkable
class SpendsBudget(Protocol):
    """What a predictor offers whose model has prefixes."""

    spending: str
    """What part of the model the budget pays for."""


def predict_file(
    run: Run,
    data: str,
    out: str | os.PathLike[str],
    *,
    budget: float | None = None,
    with_folds: bool = False,
    workers: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Predict every row of a dataset and write the predictions to one Parquet or CSV file.

    Parameters
    ----------
    run : path or URL
        Folder of a finished run, or of all runs of a job for the last of them.
    data : str
        Parquet folder, file, glob or URL.
    out : path or URL
        File to write, CSV if its name ends so: the id column where the data has it, else the
        row number, and the prediction; in the order of the data.
    budget : float, optional
        Cost a row, for models with prefixes: the longest one that it pays for predicts, and only
        its columns are read. Default: the whole model.
    with_folds : bool
        Whether to add the part of the job that each row belongs to: ``held_out``, and its
        ``fold``, null where there is none.
    workers : int, optional
        Partitions side by side; by default the number of usable cores.
    storage_options : mapping, optional
        Passed to fsspec for those of the three that are URLs.

    Returns
    -------
    str
        What was done, for the user.
    """
    if budget is not None and not (math.isfinite(budget) and budget >= 0):
        raise SpecError(f"--budget is {budget:g}; it must be a finite number of at least 0.")
    options = expanded(storage_options or {})
    target = locate(out, options)
    method, finished = open_run(folder := find_run(run, storage_options))
    dataset = open_dataset(
        data, storage_options=options or None, without_rows="there is nothing to predict"
    )
    predictor = method.predictor(finished, dataset, budget)
    parts = _Parts.of(folder, finished, dataset) if with_folds else None
    _refuse_place(target, data, dataset)
    n_rows, remarks = 0, dict[str, int]()
    with (
        single_threaded_blas(),
        make_executor("local", workers) as executor,
        _written(target) as write,
    ):
        step = _AHEAD * executor.workers
        for start in range(0, len(dataset.partitions), step):
            for table in executor.map(
                partial(_predicted, predictor, parts), dataset.partitions[start : start + step]
            ):
                write(table)
                n_rows += table.num_rows
                for label, count in predictor.remarks(table).items():
                    remarks[label] = remarks.get(label, 0) + count
    lines = [
        f"{counted(n_rows, 'prediction')} in {out} (columns read: {', '.join(predictor.columns)})"
    ]
    if isinstance(predictor, SpendsBudget) and predictor.spending:
        lines.append(predictor.spending)
    lines += [f"{label}: {count:,}" for label, count in remarks.items() if count]
    return "\n".join(lines)


def _predicted(predictor: Any, parts: _Parts | None, partition: Partition) -> Any:
    """Predict a partition; of a large one some rows after the others."""
    import pyarrow as pa

    if not partition.batch_rows or not predictor.columns:
        table = predictor(partition)
    else:
        pieces = predictor.reader.batches(partition, predictor.columns)
        table = pa.concat_tables(
            replace(predictor, reader=reader)(piece) for reader, piece in pieces
        )
    return table if parts is None else parts.beside(table, partition)


@dataclass(frozen=True)
class _Parts:
    """Which fold of a job, or its held-out share, the rows of a dataset belong to."""

    reader: PartitionReader
    key: str | None
    plan: FoldPlan

    @classmethod
    def of(cls, run: Location, finished: FinishedRun, dataset: ParquetDataset) -> _Parts:
        """Read how a run divided its rows; without a key they have to be those of its files."""
        spec = parse_yaml((run / "spec.yaml").read_bytes().decode(), str(run / "spec.yaml"))
        section, long = spec["data"], spec["data"].get("long") or {}
        key = section["query"] or section["id"] or long.get("object")
        known = {(file["name"], file["footer"]) for file in finished.manifest["inputs"]}
        if key is not None:
            require_columns(dataset.schema, [key], "what decided the folds of the run")
        elif not known.issuperset((file.name, file.footer) for file in dataset.files):
            raise SpecError(
                "--with-folds: the run's data have no id or query, so the place of a row in the "
                "files it was made from decides its fold. Name those files as in its spec."
            )
        return cls(
            dataset.reader, key, FoldPlan(section["folds"], section["test"], int(spec["seed"]))
        )

    def beside(self, table: Any, partition: Partition) -> Any:
        """Add the columns ``held_out`` and ``fold``."""
        import pyarrow as pa

        plan = self.plan
        keys = None if self.key is None else self.reader.read(partition, [self.key]).column(0)
        found = assign_parts(
            keys, partition=partition, n_folds=plan.n_folds, test=plan.test, seed=plan.seed
        )
        held_out = found == plan.test_part
        none = held_out if plan.n_folds else found >= 0
        table = table.append_column("held_out", pa.array(held_out))
        return table.append_column("fold", pa.array(found, pa.int16(), mask=none))


def _refuse_place(out: Location, data: str, dataset: ParquetDataset) -> None:
    """Refuse to write where the predictions would hurt the data."""
    with reading(out):
        if out.is_dir():
            raise SpecError(f"--out {out} is a folder. Name a Parquet or CSV file to write.")
    suffix = PurePath(out.name).suffix.lower()
    if suffix not in ("", ".parquet", ".pq", ".csv"):
        raise SpecError(
            f"--out {out} ends in {suffix}; predictions are written as .parquet or .csv."
        )
    files = {file.path for file in dataset.files}
    if isinstance(out, RemotePath):
        # By URL, as another storage may have a file of the same path.
        folder = str(locate(data)) if is_url(data) else ""
        inside = bool(folder) and str(out).startswith(f"{folder}/")
        read = str(out) == folder or (inside and out.inside in files)
    else:
        target = out.resolve()
        inside = Path(data).is_dir() and Path(data).resolve() in target.parents
        read = any(Path(file).resolve() == target for file in files)
    if read:
        raise SpecError(f"--out {out} is a file of the data to predict. Name another file.")
    if inside:
        raise SpecError(
            f"--out {out} lies in the data folder {data} and would become part of the data. "
            "Name a file elsewhere."
        )


@contextmanager
def _written(out: Location) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a table to a file which appears whole at the end."""
    kind = CsvFile if out.name.lower().endswith(".csv") else GroupedFile
    try:
        with whole_file(out) as temporary, kind(temporary) as file:
            yield file.write
    except OSError as error:
        raise unwritable(out, error, "--out", "name another file") from error
