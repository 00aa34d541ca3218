"""Train on data that grew, compare with the model in place, and promote or refuse."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.engine.memory import counted
from distfms.engine.storage import Location, reading
from distfms.errors import SpecError
from distfms.methods.contract import RETRAINING, Content, Context, FinishedRun, Stage
from distfms.registry import Registry
from distfms.retrain.compare import compare, require_metric
from distfms.retrain.drift import Drift, Summaries, history, summarise
from distfms.retrain.gate import Condition, conditions
from distfms.retrain.place import (
    DRIFT,
    Changes,
    InPlace,
    columns_of,
    made_before,
    require_same_question,
)
from distfms.retrain.selection import changed_choices
from distfms.runs.driver import Prepared, prepare, run_prepared
from distfms.runs.events import Display, Say
from distfms.runs.finished import open_run
from distfms.runs.job_spec import JobSpec
from distfms.runs.manifest import MANIFEST
from distfms.spec import RetrainSection

#: Files of a run that no version needs: they can be computed again.
_LEFT_OUT = ("statistics/", "plan", "report.html")

#: Seconds for which others wait for a retraining that was killed.
_LOCK_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a retraining did.

    Attributes
    ----------
    version : int or None
        The version that is in place now.
    promoted : bool
    folder : Path or RemotePath, or None
        The run; None where there was nothing to do.
    reasons : tuple of str
        Why the new model was refused.
    """

    version: int | None
    promoted: bool
    folder: Location | None = None
    reasons: tuple[str, ...] = ()


def retrain(
    spec: JobSpec,
    registry: Registry,
    *,
    anew: bool = False,
    say: Say = lambda line: None,
    progress: Display = lambda event: None,
    on_silence: Say | None = None,
) -> Outcome:
    """Train on the data as they are, and put the model in place if the gate of the spec lets it.

    Parameters
    ----------
    spec : JobSpec
        Its name is that of the model.
    registry : Registry
    anew : bool
        Whether to replace the model in place without comparing the two.
    say, progress, on_silence
        See :func:`distfms.runs.driver.run_job`.

    Returns
    -------
    Outcome

    Raises
    ------
    SpecError, DataError
        If spec or data are not as they should be, or the model in place answers another question.
    EngineError
        If workers or storage fail, or another is working on the model; the same command goes on.
    """
    section = spec.retrain or RetrainSection()
    spec = replace(spec, retrain=section)
    if not spec.data.test and spec.data.test_path is None:
        raise SpecError(
            "`distfms retrain` compares models on rows that neither learned from, and the spec "
            "holds none out. Set `data.test` (such as 0.2), or `data.test_path`."
        )
    prepared = prepare(spec, say)
    require_metric(section.gate, prepared.job.judged_by)
    owner = f"{getpass.getuser()}@{socket.gethostname()}, process {os.getpid()}"
    with registry.locked(spec.name, owner, _LOCK_S) as extend:
        in_place = InPlace.read(registry, spec.name, spec.options.functions)
        if in_place is not None and not anew:
            made = made_before(registry, spec.name, prepared.identity)
            if made is not None:
                here = "in place" if made == in_place.number else "which was replaced by another"
                say(
                    f"Nothing to do: version {made} of {spec.name!r}, {here}, was made from the "
                    "same spec and data."
                )
                return Outcome(in_place.number, False)
            require_same_question(prepared, in_place)
            # Raises now what would stop the comparison.
            prepared.method.predictor(in_place.run, prepared.opened.inputs.train, None)
        retraining = Retraining(prepared, in_place, anew)
        staged = replace(prepared, more=(Stage("retrain", retraining.stage),))
        result = run_prepared(staged, None, say, progress, on_silence)
        extend()
        return _promote(spec, registry, result.folder, in_place, say)


@dataclass(frozen=True)
class Retraining:
    """What the stage `retrain` of a run needs: the job, and the model in place."""

    prepared: Prepared
    in_place: InPlace | None
    anew: bool

    def stage(self, context: Context) -> Mapping[str, Content]:
        """Compare with the model in place and decide."""
        prepared, in_place = self.prepared, self.in_place
        gate = (prepared.spec.retrain or RetrainSection()).gate
        before = [] if in_place is None else in_place.run.manifest["inputs"]
        inputs, forgotten = prepared.opened.inputs, prepared.opened.forgotten
        changes = Changes.between(before, inputs, forgotten)
        newest = (*changes.new, *changes.changed)
        summaries, drift = self._drift(context, newest)
        checked: list[Condition] = []
        compared, selection = [], []
        if in_place is not None and not self.anew:
            new = FinishedRun.of(context, prepared.spec.options.functions)
            compared = compare(prepared.job, context, (in_place.run, new), newest, gate)
            checked = conditions(gate, changes, compared, drift)
            selection = changed_choices(prepared.method, in_place.run, new)
        counts = _counts(context)
        context.account(**counts)
        content = {
            "in_place": None if in_place is None else in_place.number,
            "anew": self.anew,
            "promote": all(condition.holds for condition in checked),
            "conditions": [asdict(condition) for condition in checked],
            "compared": [comparison.to_json() for comparison in compared],
            "data": {**asdict(changes), **counts, "forgotten": len(forgotten)},
            "drift": drift,
            "selection": selection,
            "columns": columns_of(prepared),
        }
        files: dict[str, Content] = {RETRAINING: content}
        if summaries is not None:
            names = self.prepared.job.summary_names(context)
            files[DRIFT] = {"names": np.array(names), **summaries.to_arrays()}
        return files

    def _drift(
        self, context: Context, newest: tuple[str, ...]
    ) -> tuple[Summaries | None, dict[str, Any] | None]:
        """Summarise all partitions, reading only those not known, and compare the newest."""
        job, train = self.prepared.job, self.prepared.opened.inputs.train
        read = job.summary_reader(context, train, False)
        if read is None:
            return None, None
        names, known = list(job.summary_names(context)), dict[str, Mapping[str, Any]]()
        stored = {} if self.in_place is None else self.in_place.summaries
        if stored and stored["names"].tolist() == names:
            known = dict(zip(stored["keys"].tolist(), Summaries.rows_of(stored), strict=True))
        lacking = [part for part in train.partitions if part.fingerprint not in known]
        of_one = partial(summarise, job.compared_by)
        for summary in context.each_partition(read, lacking, of_one) if lacking else ():
            known[summary["keys"]] = summary
        summaries = Summaries.of([known[part.fingerprint] for part in train.partitions])
        is_new = np.array([part.name in newest for part in train.partitions])
        if self.in_place is None or self.anew or is_new.all() or not is_new.any():
            return summaries, None
        drift = Drift.between(summaries.take(~is_new), summaries.take(is_new))
        content = drift.to_json(names)
        drawn = [column["name"] for column in content["columns"]]
        content["history"] = history(summaries, is_new, names, drawn)
        return summaries, content


def _counts(context: Context) -> dict[str, int]:
    """Count partitions that a stage read, and those that came from the cache whenever needed."""
    manifest = context.manifest()
    most = max((stage.get("n_read", 0) for stage in manifest["stages"]), default=0)
    n_read = min(most, manifest["n_partitions"])  # passes read them again and again
    return {"n_read": n_read, "n_cached": manifest["n_partitions"] - n_read}


def _promote(
    spec: JobSpec, registry: Registry, folder: Location, in_place: InPlace | None, say: Say
) -> Outcome:
    """Add a finished run to the registry, and put it in place if the gate let it."""
    _, run = open_run(folder)
    content = run.retraining or {}
    reasons = tuple(
        f"{condition['text']}: found {condition['found']}"
        for condition in content["conditions"]
        if not condition["holds"]
    )
    number = None if in_place is None else in_place.number
    if reasons:
        say(f"Refused: version {number} of {spec.name!r} stays in place. Not met:")
        for reason in reasons:
            say(f"  {reason}")
        return Outcome(number, False, folder, reasons)
    written = [name for stage in run.manifest["stages"] for name in stage["files"]]
    kept = [name for name in written if not name.startswith(_LEFT_OUT) or name == DRIFT]
    with reading(folder):
        files = {name: (folder / name).read_bytes() for name in (*kept, MANIFEST, "spec.yaml")}
    facts = {
        "method": spec.method,
        "identity": run.manifest["identity"],
        "run": str(folder),
        "n_rows": run.manifest["n_rows"],
        "test": {k: v for k, v in (run.metrics["test"] or {}).items() if isinstance(v, float)},
    }
    version = registry.add(spec.name, files, facts, number)
    # A run that was resumed may have been compared with the version before.
    registry.promote(spec.name, version.number, expected=content["in_place"])
    data = content["data"]
    say(
        f"Version {version.number} of {spec.name!r} is in place "
        f"({counted(data['n_read'], 'partition')} read, {data['n_cached']:,} from the cache)."
    )
    return Outcome(version.number, True, folder)
