"""Applying a run's model to a dataset, partition by partition: to a file, or to a file of each.

In a folder of predictions, finished files are kept.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from distfms.data.files.convert import converted
from distfms.data.files.dataset import PartitionReader, open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.data.files.partition import LONE, Dataset, Partition
from distfms.data.files.storage import list_files
from distfms.data.files.write import CsvFile, GroupedFile, write_table
from distfms.data.rows.folds import FoldPlan, assign_parts
from distfms.data.rows.roles import require_columns
from distfms.engine import make_executor
from distfms.engine.base import Executor
from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import counted
from distfms.errors import SpecError
from distfms.methods.frame.contract import checked_budget
from distfms.runs.finished import PREFIX, Run, RunFiles, checked_stop, read_run
from distfms.runs.folder import digest, encode, parse_json, write_atomic
from distfms.spec import EngineSection, LongForm, expanded
from distfms.store import places
from distfms.store.places import Location
from distfms.store.remote import RemotePath

#: What made the predictions; readers of Parquet pass over names that begin with an underscore.
_NOTE = "_predictions.json"

#: Name of a file of predictions: what it depends on (see `_key`), and the sha256 of the content.
_OWN = re.compile(r"(.+-[0-9]{5,}-[0-9a-f]{16})-([0-9a-f]{16})\.parquet", re.DOTALL)

#: What a killed writer of such a file, or of the note, has left.
_LEFT = re.compile(rf"(?:.*/)?\.(?:{_NOTE}|{_OWN.pattern})\.[0-9]+-[0-9a-f]+\.tmp", re.DOTALL)

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
    formulas: bool = False,
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
        with such a file for each partition of the data; see
        `predict_folder`.
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
    formulas : bool
        Whether texts in CSV may begin as formulas of a spreadsheet do (``= + - @``); otherwise an
        apostrophe comes first.
    engine : EngineSection, optional
        Where to predict; default: on this machine.
    storage_options : mapping, optional
        Passed to fsspec for those of these places that are URLs.
    registry : path or URL, optional
        See :func:`distfms.runs.finished.open_registry`.

    Returns
    -------
    str
        What was done, for the user.
    """
    budget = checked_budget(budget, "--budget")
    rows = checked_stop(stop, mean_budget, confidence)
    options = expanded(storage_options or {})
    into_folder, out = os.fspath(out).endswith("/"), os.fspath(out).rstrip("/") or "/"
    target = places.locate(out, options)
    files = read_run(run, storage_options, registry)
    method, finished = files.open(allow)
    dataset = open_rows(data, options or None, files)
    predictor = method.applied(finished, dataset, budget, rows)
    parts = _Parts.of(files, dataset) if with_folds else None
    _refuse_place(target, data, options, into_folder)
    predict = partial(_predicted, predictor, parts)
    with single_threaded_blas(), make_executor(engine or EngineSection()) as executor:
        if executor.name != "local":
            executor.probe([file.path for file in dataset.files if Path(file.path).exists()])
        if into_folder:
            made_with: dict[str, Any] = {
                "model": files.digest(),
                "budget": budget,
                "with_folds": with_folds,
            }
            root = places.absolute(places.locate(os.path.expanduser(data), options))
            made_with |= {} if rows is None else {"stop": vars(rows)}
            note = {"called": files.called, "data": str(root), **made_with}
            counts = predict_folder(predict, dataset, target, note, executor)
        else:
            counts = _predict_one(predict, dataset.partitions, target, executor, formulas)
    of_model = f"; {files.called}" if files.called.startswith(PREFIX) else ""
    columns = ", ".join(predictor.columns)
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
    section, copies = spec["data"], Copies()
    if section.get("long") is not None:
        form = LongForm(**section["long"]).model_copy(update={"labels": None})
        files = list_files(data, options)
        if {form.object, form.attribute, form.value} <= {*copies.columns(files[0])}:
            folder, _ = converted(
                files, form, seed=int(spec["seed"]), copies=copies, labelled=False
            )
            data, options = str(folder), None
    return open_dataset(
        data,
        storage_options=options,
        without_rows="there is nothing to predict",
        numbers=section.get("numbers", ()),
        texts=section.get("text", ()),
        forms=run.forms(),
        kinds=run.frame_forms().kinds,
    )


def _predict_one(
    predict: Predict,
    partitions: Sequence[Partition],
    out: Location,
    executor: Executor,
    formulas: bool,
) -> Counter[str]:
    """Write the predictions of all partitions to one file, while the next ones are predicted."""
    counts = Counter[str]()
    step = _AHEAD * executor.workers
    with _written(out, formulas) as write, ThreadPoolExecutor(1) as behind:
        pending: list[Future[None]] = []
        for start in range(0, len(partitions), step):
            predicted = executor.map(predict, partitions[start : start + step])
            for future in pending:
                future.result()
            pending = [behind.submit(write, table) for table, _ in predicted]
            for _, found in predicted:
                counts.update(found)
        for future in pending:
            future.result()
    return counts


def _predicted(
    predictor: Any, parts: _Parts | None, partition: Partition
) -> tuple[Any, Counter[str]]:
    """Predict a partition, of a large one some rows after the others, and count what is to say."""
    import pyarrow as pa

    if predictor.columns:
        tables = predictor.reader.each_batch(
            partition, predictor.columns, lambda own, piece: replace(predictor, reader=own)(piece)
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
        section, long = spec["data"], spec["data"].get("long") or {}
        key = section["query"] or section["id"] or long.get("object")
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
        keys = None if self.key is None else self.reader.read(partition, [self.key]).column(0)
        own = replace(partition, key=self.file_keys.get(partition.path, ""))
        found = assign_parts(keys, partition=own, **vars(plan))
        if partition.path in self.held_out:
            found[:] = plan.test_part
        held_out = found == plan.test_part
        none = held_out if plan.n_folds else found >= 0
        table = table.append_column("held_out", pa.array(held_out))
        return table.append_column("fold", pa.array(found, pa.int16(), mask=none))


def _file_keys(inputs: Sequence[Mapping[str, Any]], dataset: Dataset) -> dict[str, str]:
    """Return the keys that files had in a run, by path, of those files that it had read.

    A file that was read by itself may have another name now.
    """
    known = {(own["name"], own["footer"]): own["key"] for own in inputs}
    alone = {own["footer"]: LONE for own in inputs if own["key"] == LONE}
    keys = {f.path: known.get((f.name, f.footer), alone.get(f.footer)) for f in dataset.files}
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
    folder = _real(places.locate(os.path.expanduser(data), options))
    files = {_real(file.place) for file in list_files(data, options)}
    if _real(out) in files or f"{_real(out)}/".startswith(f"{folder}/"):
        raise SpecError(f"--out {out} is part of the data to predict, {data}. Name another place.")


def _real(place: Location) -> str:
    return str(place) if isinstance(place, RemotePath) else os.path.realpath(place)


@contextmanager
def _written(out: Location, formulas: bool = False) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a table to a file which appears whole at the end."""
    is_csv = out.name.lower().endswith(".csv")
    kind = partial(CsvFile, formulas=formulas) if is_csv else GroupedFile
    try:
        with places.whole_file(out) as temporary, kind(temporary) as file:
            yield file.write
    except OSError as error:
        raise places.unwritable(out, error, "--out", "name another file") from error


# --- a folder with a file for each partition -----------------------------------------------------


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
    with places.reading(out):
        found = [entry.name for entry in places.files_below(out)]
    own: dict[str, list[str]] = defaultdict(list)
    for name in found:
        if match := _OWN.fullmatch(name):
            own[match[1]].append(name)
    note = {**made_with, "status": "running", "files": [file.name for file in dataset.files]}
    _refuse_others(out, [name for name in found if not places.is_temporary(name)], note)
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
        with places.writing(folder / name):
            (folder / name).unlink(missing_ok=True)


def _is_whole(place: Location) -> bool:
    """Whether a file of predictions has the content that its name tells."""
    match = _OWN.fullmatch(place.name)
    with places.reading(place), suppress(FileNotFoundError):
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
    with places.reading(out / _NOTE):
        before = parse_json(out / _NOTE, (out / _NOTE).read_bytes())
    for key in ("data", "model", "budget", "stop", "with_folds"):
        if before.get(key) != note.get(key):
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
