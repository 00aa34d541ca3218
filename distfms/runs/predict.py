"""Applying a run's model to a dataset, partition by partition: to a file, or to a file of each."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path, PurePath
from typing import Any

from distfms.data.files.convert import converted
from distfms.data.files.dataset import PartitionReader, open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.data.files.partition import LONE, Dataset, Partition
from distfms.data.files.storage import list_files
from distfms.data.files.write import CsvFile, GroupedFile
from distfms.data.rows.folds import FoldPlan, assign_parts
from distfms.data.rows.roles import require_columns
from distfms.engine import make_executor
from distfms.engine.base import Executor
from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import counted
from distfms.errors import SpecError, checked_budget
from distfms.runs.finished import PREFIX, Run, RunFiles, checked_stop, read_run, well_formed
from distfms.runs.folder import encode, parse_json, write_atomic
from distfms.spec import EngineSection, LongForm, expanded
from distfms.store import places
from distfms.store.places import Location
from distfms.store.remote import RemotePath

#: What made the predictions; readers of Parquet pass over names that begin with an underscore.
_NOTE = "_predictions.json"

#: Name of a file of predictions: file and row group, then a hash of all that they depend on.
_PREDICTIONS = re.compile(r".+-[0-9]{5,}-[0-9a-f]{16}\.parquet", re.DOTALL)

#: From a partition to the table of its predictions and what users should know of it.
Predict = Callable[[Partition], tuple[Any, Counter[str]]]

#: Partitions in memory at once, per worker.
_AHEAD = 2


def predict_file(
    run: Run,
    data: str,
    out: str | os.PathLike[str],
    *,
    budget: float | None = None,
    stop: str | None = None,
    mean_budget: float | None = None,
    confidence: float | None = None,
    allow: Iterable[str] = (),
    with_folds: bool = False,
    engine: EngineSection | None = None,
    storage_options: Mapping[str, Any] | None = None,
    registry: str | None = None,
) -> str:
    """Predict every row of a dataset and write the predictions to a Parquet or CSV file or folder.

    Parameters
    ----------
    run : path or URL
        Folder of a finished run, or of all runs of a job for the last of them; or
        ``registry:NAME`` or ``registry:NAME@version``.
    data : str
        Folder, file, glob or URL, in any format that jobs read.
    out : path or URL
        File to write, CSV if its name ends so: the id column where the data has it, else the
        row number, and the prediction; in the order of the data. If it ends in ``/``, a folder
        with such a file for each partition of the data, of which those that are there are kept.
    budget : float, optional
        Cost a row, for models with prefixes: the longest one that it pays for predicts, and only
        its columns are read. Default: the whole model.
    stop : {"prefix", "rows"}, optional
        ``rows``: a row stops at the prefix after which more is not worth its cost; see
        `distfms.load`. Columns ``n_groups`` and ``cost`` are added.
    mean_budget, confidence : float, optional
        Of rows that stop.
    allow : iterable of str
        Functions, as ``module:function``, that the model may call; see `distfms.load`.
    with_folds : bool
        Whether to add the part of the job that each row belongs to: ``held_out``, and its
        ``fold``, null where there is none.
    engine : EngineSection, optional
        Where to predict; default: on this machine.
    storage_options : mapping, optional
        Passed to fsspec for those of these places that are URLs.
    registry : path or URL, optional
        See :func:`distfms.registry.open_registry`.

    Returns
    -------
    str
        What was done, for the user.
    """
    budget = checked_budget(budget, "--budget")
    rows = checked_stop(stop, mean_budget, confidence)
    options = expanded(storage_options or {})
    into_folder = os.fspath(out).endswith("/")
    out = os.fspath(out).rstrip("/") or "/"
    target = places.locate(out, options)
    files = read_run(run, storage_options, registry)
    method, finished = files.open(allow)
    with well_formed(files.called):
        dataset = open_rows(data, options or None, files)
        predictor = method.applied(finished, dataset, budget, rows)
        parts = _Parts.of(files, dataset) if with_folds else None
    _refuse_place(target, data, options, into_folder)
    predict = partial(_predicted, files.called, predictor, parts)
    with single_threaded_blas(), make_executor(engine or EngineSection()) as executor:
        if into_folder:
            made_with = [files.digest(), budget, with_folds, rows and vars(rows)]
            root = places.absolute(places.locate(os.path.expanduser(data), options))
            note = {"called": files.called, "data": str(root)}
            folder = _Folder(target, predict, made_with)
            counts = folder.write(dataset, note, executor)
        else:
            tables = _in_order(executor, predict, dataset.partitions)
            counts = _write_file(tables, target)
    of_model = f"; {files.called}" if files.called.startswith(PREFIX) else ""
    columns = ", ".join(predictor.columns) or "none"
    lines = [
        f"{counted(dataset.n_rows, 'prediction')} in {out} (columns read: {columns}{of_model})"
    ]
    # What part of a model with prefixes the budget pays for.
    lines += filter(None, [getattr(predictor, "spending", "")])
    lines += [f"Note: {note}" for note in dataset.notes]
    lines += [f"{label}: {count:,}" for label, count in counts.items() if count]
    return "\n".join(lines)


def open_rows(data: str, options: Mapping[str, Any] | None, run: RunFiles) -> Dataset:
    """Open data to predict, read as those of a run; judgments in long form are converted first."""
    spec = run.spec()
    section = spec["data"]
    copies = Copies()
    if section.get("long") is not None:
        form = LongForm(**section["long"]).model_copy(update={"labels": None})
        files = list_files(data, options)
        if {form.object, form.attribute, form.value} <= {*copies.columns(files[0])}:
            folder, _ = converted(
                files, form, seed=int(spec["seed"]), copies=copies, labelled=False
            )
            data = str(folder)
            options = None
    return open_dataset(
        data,
        storage_options=options,
        without_rows="there is nothing to predict",
        numbers=section.get("numbers", ()),
        texts=section.get("text", ()),
        forms=run.forms(),
        kinds=run.frame_forms().kinds,
    )


def _in_order(
    executor: Executor, predict: Predict, partitions: Sequence[Partition]
) -> Iterator[tuple[Any, Counter[str]]]:
    """Yield the predictions of partitions, of which few are in memory at once."""
    step = _AHEAD * executor.workers
    for start in range(0, len(partitions), step):
        yield from executor.map(predict, partitions[start : start + step])


def _predicted(
    called: str, predictor: Any, parts: _Parts | None, partition: Partition
) -> tuple[Any, Counter[str]]:
    """Predict a partition, of a large one some rows after the others, and count what is to say."""
    import pyarrow as pa

    with well_formed(called):
        if predictor.columns:
            tables = predictor.reader.each_batch(
                partition,
                predictor.columns,
                lambda reader, piece: replace(predictor, reader=reader)(piece),
            )
            table = pa.concat_tables(tables)
        else:
            table = predictor(partition)
    counts = Counter(predictor.remarks(table))
    return table if parts is None else parts.beside(table, partition), counts


@dataclass(frozen=True)
class _Parts:
    """Which fold of a job, or its held-out rows, the rows of a dataset belong to.

    `held_out` are the files that were the job's test data.
    """

    reader: PartitionReader
    key: str | None
    plan: FoldPlan
    held_out: frozenset[str]
    #: What decided the folds of rows without an id, by the path of their file.
    file_keys: Mapping[str, str]

    @classmethod
    def of(cls, run: RunFiles, dataset: Dataset) -> _Parts:
        """Read how a run divided its rows; without a key they have to be those of its files."""
        spec = run.spec()
        section = spec["data"]
        key = section["query"] or section["id"]
        inputs = run.inputs()
        file_keys = _file_keys(inputs, dataset)
        tested = {file["footer"] for file in inputs if file.get("held_out")}
        if key is not None:
            require_columns(dataset.schema, [key], "what decided the folds of the run")
        elif len(file_keys) < len(dataset.files):
            raise SpecError(
                "--with-folds: the run's data have no id or query, so a row's position in the "
                "files decides its fold. Name the files as in the run's spec."
            )
        plan = FoldPlan(section["folds"], section["test"], int(spec["seed"]))
        held_out = frozenset(file.path for file in dataset.files if file.footer in tested)
        return cls(dataset.reader, key, plan, held_out, file_keys)

    def beside(self, table: Any, partition: Partition) -> Any:
        """Add the columns ``held_out`` and ``fold``."""
        import pyarrow as pa

        plan = self.plan
        keys = None
        if self.key is not None:
            keys = self.reader.read(partition, [self.key]).column(0)
        keyed = replace(partition, key=self.file_keys.get(partition.path, ""))
        row_parts = assign_parts(keys, partition=keyed, **vars(plan))
        if partition.path in self.held_out:
            row_parts[:] = plan.test_part
        held_out = row_parts == plan.test_part
        without_fold = held_out if plan.n_folds else row_parts >= 0
        folds = pa.array(row_parts, pa.int16(), mask=without_fold)
        table = table.append_column("held_out", pa.array(held_out))
        return table.append_column("fold", folds)


def _file_keys(inputs: Sequence[Mapping[str, Any]], dataset: Dataset) -> dict[str, str]:
    """Return the keys that files had in a run, by path, of those files that it had read.

    A file that was read by itself may have another name now.
    """
    named_keys = {(file["name"], file["footer"]): file["key"] for file in inputs}
    alone = {file["footer"]: LONE for file in inputs if file["key"] == LONE}
    keys = {f.path: named_keys.get((f.name, f.footer), alone.get(f.footer)) for f in dataset.files}
    return {path: key for path, key in keys.items() if key is not None}


def _refuse_place(out: Location, data: str, options: Mapping[str, Any], into_folder: bool) -> None:
    """Refuse to write where the predictions would hurt the data."""
    with places.reading(out):
        if not into_folder and out.is_dir():
            raise SpecError(
                f"--out {out} is a folder. Name a Parquet or CSV file to write, or write {out}/ "
                "for a file of each partition."
            )
    suffix = PurePath(out.name).suffix.lower()
    if not into_folder and suffix not in ("", ".parquet", ".pq", ".csv"):
        raise SpecError(f"--out {out} ends in {suffix}; use .parquet or .csv.")
    target = _real(out)
    folder = _real(places.locate(os.path.expanduser(data), options))
    is_within = f"{target}/".startswith(f"{folder}/")
    if is_within or target in {_real(file.place) for file in list_files(data, options)}:
        raise SpecError(f"--out {out} is part of the data to predict, {data}. Name another place.")


def _real(place: Location) -> str:
    return str(place) if isinstance(place, RemotePath) else os.path.realpath(place)


@contextmanager
def _written(out: Location) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a table to a file which appears whole at the end."""
    is_csv = out.name.lower().endswith(".csv")
    kind = CsvFile if is_csv else GroupedFile
    try:
        with places.whole_file(out) as temporary, kind(temporary) as file:
            yield file.write
    except OSError as error:
        raise places.unwritable(out, error, "--out", "name another file") from error


def _write_file(predicted: Iterable[tuple[Any, Counter[str]]], out: Location) -> Counter[str]:
    """Write predictions to one file, and return what is to say of them."""
    counts = Counter[str]()
    with _written(out) as write:
        for table, remarks in predicted:
            write(table)
            counts.update(remarks)
    return counts


# --- a folder with a file for each partition -----------------------------------------------------


@dataclass(frozen=True)
class _Folder:
    """A folder of predictions.

    Files are named like those of the data, in the same folders, and by a hash of all that they
    depend on, `made_with` besides the partition. One that is there is kept, so that a command that
    was stopped goes on, and one on grown data predicts only what is new.
    """

    out: Location
    predict: Predict
    made_with: Sequence[Any]

    def write(self, dataset: Dataset, note: Mapping[str, Any], executor: Executor) -> Counter[str]:
        """Bring the folder up to date.

        Other predictions there, as of partitions that the data no longer have or of another model,
        are removed at the end, and nothing else. ``_predictions.json`` has the counts when all is
        done.

        Raises
        ------
        SpecError
            If the folder holds something else, or predictions of other data.
        """
        with places.reading(self.out):
            names = {entry.name for entry in places.files_below(self.out)}
        self._refuse_others(names, note)
        self._note({**note, "status": "running"})
        missing = {self.name_of(partition): partition for partition in dataset.partitions}
        current = set(missing)
        for name in names:
            missing.pop(name, None)
        written = executor.map(self.write_partition, list(missing.items()))
        gone = {name for name in names - current if _PREDICTIONS.fullmatch(name)}
        for name in gone | set(filter(_is_left, names)):
            with places.writing(self.out / name):
                (self.out / name).unlink(missing_ok=True)
        counted_of = {"n_rows": dataset.n_rows, "n_partitions": len(current)}
        self._note({**note, "status": "done", **counted_of})
        counts = Counter(
            {
                "Partitions predicted before": len(current) - len(missing),
                "Removed predictions of other partitions or models": len(gone),
            }
        )
        return reduce(Counter.__add__, written, counts)

    def write_partition(self, work: tuple[str, Partition]) -> Counter[str]:
        """Write the predictions of a partition."""
        name, partition = work
        return _write_file([self.predict(partition)], self.out / name)

    def name_of(self, partition: Partition) -> str:
        """Return the name of a partition's predictions."""
        # Rows without id are numbered through all files; the name of what was listed comes first.
        content = [partition.row_offset, partition.fingerprint, *self.made_with]
        depends = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        stem = partition.name.partition("/")[2].removesuffix(".parquet")
        return f"{stem}-{partition.row_groups[0]:05d}-{depends}.parquet"

    def _note(self, content: Mapping[str, Any]) -> None:
        write_atomic(self.out / _NOTE, encode(_NOTE, content))

    def _refuse_others(self, names: Iterable[str], note: Mapping[str, Any]) -> None:
        """Refuse a folder of something else than predictions of the same data."""
        if isinstance(self.out, Path) and self.out.exists() and not self.out.is_dir():
            raise SpecError(f"--out {self.out}/ is a file. Name a folder, or remove the slash.")
        if _NOTE not in names:
            whole = [name for name in names if not places.is_temporary(name)]
            if whole:
                raise SpecError(
                    f"--out {self.out}/ holds {min(whole)}, which is not a prediction. Name an "
                    "empty or new folder."
                )
            return
        with places.reading(self.out / _NOTE):
            before = parse_json(self.out / _NOTE, (self.out / _NOTE).read_bytes())
        if before.get("data") != note["data"]:
            raise SpecError(
                f"--out {self.out}/ holds predictions of {before.get('data')}, which those of "
                f"{note['data']} would replace. Name a new folder."
            )


def _is_left(name: str) -> bool:
    """Whether a file is one that a killed writer of predictions has left."""
    meant = name.rpartition("/")[2][1:].removesuffix(".tmp").rpartition(".")[0]
    return places.is_temporary(name) and (meant == _NOTE or bool(_PREDICTIONS.fullmatch(meant)))
