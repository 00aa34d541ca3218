"""Train on data that grew, compare with the current model, and promote or refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.age import partition_dates
from distfms.data.files.partition import Partition
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import RETRAINING, Finished, FinishedRun, Summary
from distfms.registry import Registry
from distfms.report.sections import refusal
from distfms.retrain.drift import Summaries, history, same_rows, summarise, worst
from distfms.retrain.gate import (
    DRIFT,
    InPlace,
    changed_choices,
    changes_of,
    checked,
    columns_of,
    compare,
    made_before,
    require_metric,
    require_same_question,
)
from distfms.retrain.refusal import Refusal
from distfms.runs.context import RunContext
from distfms.runs.driver import run_prepared
from distfms.runs.events import Display, Say
from distfms.runs.finished import open_run, packed, well_formed
from distfms.runs.folder import INPUTS, MANIFEST
from distfms.runs.job_folder import keep_last
from distfms.runs.job_spec import JobSpec
from distfms.runs.prepare import Prepared, prepare
from distfms.spec import GateSection, RetrainSection
from distfms.store.places import Location, reading

#: Files of a run that no version needs: they can be computed again.
_LEFT_OUT = ("statistics/", "plan", "report.html")


@dataclass(frozen=True)
class Outcome:
    """What a retraining did.

    Attributes
    ----------
    version : int or None
        The version that is current now.
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
    accept: Sequence[str] = (),
    say: Say = lambda line: None,
    progress: Display = lambda event: None,
    on_silence: Say | None = None,
) -> Outcome:
    """Train on the data as they are, and promote the model if the gate of the spec lets it.

    Parameters
    ----------
    spec : JobSpec
        Its name is that of the model.
    registry : Registry
    anew : bool
        Whether to replace the current model without comparing the two.
    accept : sequence of str
        Names of files that the gate no longer refuses for their drift, or for being gone.
    say, progress, on_silence
        See :func:`distfms.runs.driver.run_job`.

    Returns
    -------
    Outcome

    Raises
    ------
    SpecError, DataError
        If spec or data are not as they should be, or the current model answers another question.
    EngineError
        If workers or storage fail, or another version was promoted meanwhile; the same command goes
        on.
    """
    section = spec.retrain or RetrainSection()
    spec = replace(spec, retrain=section)
    if not spec.data.test and spec.data.test_path is None:
        raise SpecError(
            "`distfms retrain` compares models on held-out rows, and the spec holds none out. Set "
            "`data.test` (such as 0.2) or `data.test_path`."
        )
    prepared = prepare(spec, say)
    require_metric(section.gate, prepared.job.judged_by)
    registry = replace(registry, note=lambda line: say(f"Note: {line}"))
    registry.require_writable(spec.name)
    in_place = InPlace.read(registry, spec.name, spec.options.functions, anew)
    made = None
    train = prepared.job.inputs.train
    number = None if in_place is None else in_place.number
    if not anew:
        made, withdrawn = made_before(registry, spec.name, prepared.identity)
        if made is not None and (made == number or withdrawn):
            what = "which was rolled back" if withdrawn else "the current model"
            say(
                f"Nothing to do: version {made} of {spec.name!r}, {what}, has the same spec "
                "and data."
            )
            return Outcome(number, False)
        if made is not None:
            say(f"The data are again those of version {made}: promoting it again.")
    if in_place is not None and not anew:
        with well_formed(in_place.run.called):
            require_same_question(prepared, in_place)
            # Raises now what would stop the comparison.
            prepared.method.predictor(in_place.run, train, None)
    refusal = Refusal.read(registry, spec.name)
    files = [*accept]
    if anew:
        files += [file.name for file in train.files if file.name in refusal.files]
    before = () if in_place is None else in_place.run.manifest["inputs"]
    refusal = refusal.accept(registry, spec.name, train.files, files, before)
    retraining = Retraining(prepared, section.gate, in_place, refusal, anew, made)
    result = run_prepared(replace(prepared, after=retraining.step), None, say, progress, on_silence)
    outcome = _promote(retraining, registry, result.folder, say)
    keep_last(prepared.root / spec.name, spec.output.keep_runs, result.folder, registry)
    return outcome


@dataclass(frozen=True)
class Retraining:
    """What the step `retrain` of a run needs: the job, and the current model.

    `refusal` has the files that have drifted; `made` is the version that was made from the same
    spec and data, and replaced since.
    """

    prepared: Prepared
    gate: GateSection
    in_place: InPlace | None
    refusal: Refusal
    anew: bool
    made: int | None

    def step(self, run: RunContext, finished: Finished, new: FinishedRun) -> None:
        """Compare a new model with the current one and decide; step ``retrain``."""
        run.steps.files("retrain", partial(self._decide, run, finished, new))

    def _decide(self, run: RunContext, finished: Finished, new: FinishedRun) -> dict[str, Any]:
        prepared = self.prepared
        in_place = self.in_place
        old = None if self.anew else in_place
        before = [] if in_place is None else in_place.run.manifest["inputs"]
        inputs = prepared.job.inputs
        forgotten = prepared.origin.forgotten
        names = [] if finished.summary is None else list(finished.summary.names)
        stored = None if in_place is None else in_place.summaries_of(names)
        summaries = self._summaries(run, finished.summary, stored)
        same = partial(same_rows, stored, summaries)
        changes = changes_of(before, inputs, forgotten, same, self.refusal.accepted)
        newest = (*changes["new"], *changes["changed"])
        conditions: list[dict[str, Any]] = []
        compared: list[dict[str, Any]] = []
        selection: list[dict[str, Any]] = []
        drift = None
        if old is not None:
            if summaries is not None:
                drift = self._drift(summaries, stored, newest, names)
            models = (old.run, new)
            compared = compare(
                prepared.job,
                run,
                lambda held_out: finished.judge(held_out, models),
                newest,
                self.gate,
            )
            if self.made is None:
                conditions = checked(self.gate, changes, compared, drift)
            selection = changed_choices(prepared.method, old.run, new)
        counts = _counts(new.manifest)
        run.account(**counts)
        content = {
            "in_place": None if in_place is None else in_place.number,
            "anew": self.anew,
            "made": self.made,
            "promote": all(condition["holds"] for condition in conditions),
            "conditions": conditions,
            "compared": compared,
            "data": {**changes, **counts, "forgotten": len(forgotten)},
            "drift": drift,
            "selection": selection,
            "columns": columns_of(prepared),
        }
        if summaries is None:
            return {RETRAINING: content}
        return {RETRAINING: content, DRIFT: {"names": np.array(names), **summaries._asdict()}}

    def _summaries(
        self, run: RunContext, summary: Summary | None, stored: Summaries | None
    ) -> Summaries | None:
        """Summarise all partitions, reading only those not known; None where a job has none."""
        train = self.prepared.job.inputs.train
        if summary is None:
            return None
        read = summary.reader(train, False)
        rows = () if stored is None else Summaries.rows_of(stored._asdict())
        by_key: dict[str, Mapping[str, Any]] = {row["keys"]: row for row in rows}
        lacking = [part for part in train.partitions if part.fingerprint not in by_key]
        of_one = partial(summarise, summary.member)
        if lacking:
            by_key |= {row["keys"]: row for row in run.each_partition(read, lacking, of_one)}
        # A file that was renamed keeps its fingerprint.
        summaries = [{**by_key[p.fingerprint], "files": p.name} for p in train.partitions]
        return Summaries.of(summaries)

    def _drift(
        self,
        summaries: Summaries,
        stored: Summaries | None,
        newest: Sequence[str],
        names: Sequence[str],
    ) -> dict[str, Any] | None:
        """Compare each new file, or day, with what the current model has learned from."""
        train = self.prepared.job.inputs.train
        accepted_or_not = self.refusal.files
        is_new = np.isin(summaries.files, newest)
        before = stored
        if stored is None and not is_new.all():
            before = summaries.take(~is_new)
        versions = {}
        for file in train.files:
            if file.name in newest and accepted_or_not.get(file.name) != (file.version, True):
                versions[file.name] = file.version
        parts = tuple(part for part in train.partitions if part.name in versions)
        if before is None or not parts:
            return None
        labels = self._labels(parts)
        numbers = np.flatnonzero(np.isin(summaries.files, [*versions]))
        sets = {}
        for label in dict.fromkeys(labels):
            sets[label] = summaries.take(numbers[np.array(labels) == label])
        content, shifts = worst(before, sets, names)
        drawn = [column["name"] for column in content["columns"]]
        content["history"] = history(before, summaries, is_new, names, drawn)
        most = self.gate.max_drift or np.inf
        far = set[str]()
        for label, summary in sets.items():
            if shifts[label] > most:
                far.update(summary.files.tolist())
        drifted = {name: version for name, version in versions.items() if name in far}
        refused = [
            name
            for name, version in versions.items()
            if name not in far and accepted_or_not.get(name) == (version, False)
        ]
        return {**content, "sets": shifts, "drifted": drifted, "refused": sorted(refused)}

    def _labels(self, parts: tuple[Partition, ...]) -> list[str]:
        """Return the days of partitions, or the names of their files where there are no times."""
        inputs = self.prepared.job.inputs
        if inputs.section.time is not None:
            with suppress(DataError):  # where footers have no times
                days = partition_dates(inputs.train.restricted(parts), inputs.section.time)
                return [f"{day:%Y-%m-%d}" for day in days]
        return [part.name for part in parts]


def _counts(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Count partitions that a step read, and those that came from the cache whenever needed."""
    most = max((stage.get("n_read", 0) for stage in manifest["stages"]), default=0)
    n_read = min(most, manifest["n_partitions"])  # passes read them again and again
    return {"n_read": n_read, "n_cached": manifest["n_partitions"] - n_read}


def _promote(retraining: Retraining, registry: Registry, folder: Location, say: Say) -> Outcome:
    """Add a finished run to the registry and promote it, if the gate let it."""
    spec = retraining.prepared.spec
    in_place = retraining.in_place
    _, run = open_run(folder)
    content = run.retraining or {}
    reasons = tuple(
        f"{condition['text']}: found {condition['found']}"
        for condition in content["conditions"]
        if not condition["holds"]
    )
    number = None if in_place is None else in_place.number
    if reasons:
        say(f"{refusal(content)}. Version {number} of {spec.name!r} stays the current model:")
        for reason in reasons:
            say(f"  {reason}")
        if drifted := (content["drift"] or {}).get("drifted"):
            refused = {name: (version, False) for name, version in drifted.items()}
            retraining.refusal.write(registry, spec.name, refused)
            say("If a file is correct, accept it with --accept FILE.")
        return Outcome(number, False, folder, reasons)
    names = [MANIFEST, INPUTS, "spec.yaml"]
    for stage in run.manifest["stages"]:
        names += [n for n in stage["files"] if n == DRIFT or not n.startswith(_LEFT_OUT)]
    with reading(folder):
        files = packed({name: (folder / name).read_bytes() for name in names})
    facts = {
        "method": spec.method,
        "identity": run.manifest["identity"],
        "run": str(folder),
        "n_rows": run.manifest["n_rows"],
        "test": {k: v for k, v in (run.metrics["test"] or {}).items() if isinstance(v, float)},
    }
    version = registry.add(spec.name, files, facts, number)
    # A run that was resumed may have been compared with the version before.
    because = "retrained with --anew" if content["anew"] else "retrained"
    registry.promote(spec.name, version.number, expected=content["in_place"], because=because)
    data = content["data"]
    say(
        f"Version {version.number} of {spec.name!r} is the current model "
        f"({counted(data['n_read'], 'partition')} read, {data['n_cached']:,} from the cache)."
    )
    return Outcome(version.number, True, folder)
