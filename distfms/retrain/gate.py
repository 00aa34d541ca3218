"""The gate: the current model, what has changed in the data, and whether to promote a new model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from distfms.data.files.partition import LONE, Dataset
from distfms.errors import SpecError, nearest
from distfms.methods.frame.contract import FinishedRun, Inputs, Job, Judged, Method, Run
from distfms.registry import Record, Registry
from distfms.report.formatting import measure_title
from distfms.retrain.drift import Summaries
from distfms.runs.driver import describe_inputs
from distfms.runs.finished import read_version
from distfms.runs.prepare import Prepared
from distfms.spec import GateSection
from distfms.stats.base import from_bytes
from distfms.store.places import File

Json = Mapping[str, Any]

# --- the current model ----------------------------------------------------------------------------

#: Summaries of partitions, in a run.
DRIFT = "statistics/drift.npz"

_ANEW = (
    "Retrain under another `name`, or with --anew, which promotes the new model without a "
    "comparison."
)


@dataclass(frozen=True, eq=False)
class InPlace:
    """The current version: its number, its run, and its spec."""

    number: int
    run: FinishedRun
    spec: Mapping[str, Any]
    summaries: Mapping[str, Any]

    def summaries_of(self, names: Sequence[str]) -> Summaries | None:
        """Return those of its partitions, where they are of the columns of these names."""
        if "files" not in self.summaries or self.summaries["names"].tolist() != names:
            return None
        return Summaries(*(self.summaries[name] for name in Summaries._fields))

    @classmethod
    def read(
        cls, registry: Registry, name: str, allow: Iterable[str], anew: bool
    ) -> InPlace | None:
        """Read the current version; of a damaged one, to be replaced anew, only its number."""
        number = registry.last(name).version
        if number is None:
            return None
        try:
            version, found = read_version(registry, name)
            summaries = from_bytes(found.files[DRIFT]) if DRIFT in found.files else {}
            return cls(version.number, found.open(allow)[1], found.spec(), summaries)
        except SpecError as error:
            if not anew:
                raise
            registry.note(f"Replacing version {number} without reading it. {error}")
            return cls(number, FinishedRun({}, {}, {}, {"inputs": []}, {}), {}, {})


def made_before(registry: Registry, name: str, identity: str) -> tuple[int | None, bool]:
    """Return the last version of an identity that was ever promoted, and whether it was withdrawn.

    A version is withdrawn by a rollback, or by the promotion of an older one; not by a newer one.
    """
    promoted, withdrawn, current = set[int | None](), set[int | None](), None
    for change in registry.history(name):
        if change.version != current:
            if change.kind == "rollback" or (change.version or 0) < (current or 0):
                withdrawn.add(current)
            current = change.version
            promoted.add(current)
            withdrawn.discard(current)
    versions = [v for v in registry.versions(name) if v.facts.get("identity") == identity]
    made = next((v.number for v in reversed(versions) if v.number in promoted), None)
    return made, made in withdrawn


#: Files that a message names.
_LISTED = 5
#: In place of the version of a file that is gone.
GONE = "gone"


class Refusal(Record):
    """Files that have drifted: name → version, and whether somebody has accepted it."""

    files: dict[str, tuple[str, bool]] = Field(default_factory=dict)

    @classmethod
    def read(cls, registry: Registry, name: str) -> Refusal:
        """Read the last record of a model."""
        return registry.log(name, cls).last() or cls(number=0)

    def write(self, registry: Registry, name: str, files: dict[str, tuple[str, bool]]) -> Refusal:
        """Write the next record, unless it would say the same."""
        log = registry.log(name, Refusal)
        new = Refusal(number=log.next_number(), files=self.files | files)
        if new.files != self.files:
            log.create(new)
        return new

    @property
    def accepted(self) -> set[str]:
        """Names of files that somebody has accepted as they are, or as gone."""
        return {name for name, (_, is_accepted) in self.files.items() if is_accepted}

    def accept(
        self,
        registry: Registry,
        name: str,
        files: Sequence[File],
        named: Sequence[str],
        before: Sequence[Json] = (),
    ) -> Refusal:
        """Accept files by their names in the data, or parts of their paths.

        Also those that the current model has learned from and that are gone: `before` are its
        inputs.
        """
        known = {file["name"]: (GONE, True) for file in before}
        known |= {file.name: (file.version, True) for file in files}
        found = dict[str, tuple[str, bool]]()
        for one in named:
            own = {file: v for file, v in known.items() if f"/{one}/" in f"/{file}/"}
            if not own:
                raise SpecError(f"There is no file {one!r} to accept.{nearest(one, known)}")
            found |= own
        return self.write(registry, name, found)


def require_same_question(prepared: Prepared, in_place: InPlace) -> None:
    """Refuse to compare a model with one that answers another question, or knew the held-out rows.

    Raises
    ------
    SpecError
    """
    spec, before = prepared.spec.to_mapping(), in_place.spec
    if before["method"] != spec["method"]:
        raise SpecError(
            f"Version {in_place.number} of {spec['name']!r}, the current model, is of the method "
            f"`{before['method']}`, and the spec's is `{spec['method']}`. {_ANEW}"
        )
    data = ("target", "id", "query", "weight", "test", "long")
    places = [("", "seed"), *(("data", key) for key in data)]
    places += [(spec["method"], option) for option in prepared.method.question]
    for section, key in places:
        # The seed stands in no section.
        found = [(own.get(section, own) or {}).get(key) for own in (before, spec)]
        if section == spec["method"] and found[0] != found[1]:
            chosen = in_place.run.selection.get(key), getattr(prepared.job.options, key)
            found = [c if own == "auto" else own for own, c in zip(found, chosen, strict=True)]
        was, now = (json.dumps(value, ensure_ascii=False) for value in found)
        if was != now:
            raise SpecError(
                f"`{f'{section}.{key}'.strip('.')}` is {now} in the spec and was {was} for version "
                f"{in_place.number} of {spec['name']!r}, the current model: it decides what is "
                f"predicted, selected from or held out. {_ANEW}"
            )
    _require_same_columns(prepared, in_place)
    _require_same_parts(prepared, in_place)


def _require_same_parts(prepared: Prepared, in_place: InPlace) -> None:
    """Refuse data whose held-out rows, which no id decides, are others than they were."""
    section, inputs = prepared.opened.inputs.section, prepared.opened.inputs
    if section.query or section.id or not section.test:
        return
    # Models of earlier versions of this package have no keys: names were.
    before = in_place.run.manifest["inputs"]
    known = {own["footer"] for own in before}
    was = {(own["footer"], own.get("key", own["name"])) for own in before}
    for file in inputs.train.files:
        if file.footer in known and (file.footer, file.key) not in was:
            raise SpecError(
                f"Other rows of {file.path} are held out now than for version {in_place.number} "
                f"of {prepared.spec.name!r}, the current model, which may have learned from them: "
                "without `data.id`, the names of files below `data.path` decide. Name files and "
                f"`data.path` as before. {_ANEW}"
            )


def _require_same_columns(prepared: Prepared, in_place: InPlace) -> None:
    before, now = (in_place.run.retraining or {}).get("columns"), columns_of(prepared)
    if before is None or before == now:
        return
    gone, new = (", ".join(sorted(set(a) - set(b))) for a, b in ((before, now), (now, before)))
    other = ", ".join(
        f"{n} ({before[n]}, now {now[n]})" for n in before if n in now and before[n] != now[n]
    )
    found = (("gone", gone), ("new", new), ("of another type", other))
    listed = "; ".join(f"{what}: {names}" for what, names in found if names)
    raise SpecError(
        f"The columns of the data differ from those of version {in_place.number} of "
        f"{prepared.spec.name!r}, the current model ({listed}). Restore them, or name the columns "
        f"to learn from in `data.features`. {_ANEW}"
    )


def columns_of(prepared: Prepared) -> dict[str, str]:
    """Return the types of the columns that a job reads."""
    schema = prepared.opened.inputs.train.schema
    return {name: str(schema.field(name).type) for name in prepared.job.columns}


# --- the data -------------------------------------------------------------------------------------


def changes_of(
    before: Sequence[Json],
    inputs: Inputs,
    forgotten: Sequence[str],
    same: Callable[[str], bool],
    accepted: Collection[str] = (),
) -> dict[str, Any]:
    """Compare the inputs of a manifest with the data as they are.

    A file is unchanged where name, footer and stamp (etag, or time of modification) are the
    same. Where only the stamp differs, as in a copy, its rows decide: `same` compares their
    statistics. What the window has passed has not vanished. Rows of files that are `accepted` are
    not lost.

    Returns
    -------
    dict
        Names of files that are ``new``, ``changed`` and ``vanished``; ``n_new_rows`` of new and
        changed files; ``n_lost_rows``, rows fewer in changed and vanished ones, which are ``lost``;
        ``n_before``, rows behind the current model.
    """

    def is_changed(old: Json, new: Json) -> bool:
        touched = old.get("version", new["version"]) != new["version"]
        return old["footer"] != new["footer"] or (touched and not same(new["name"]))

    def called(file: Json) -> Any:
        """Tell files apart by name; the only one of training or held-out data needs none."""
        return file["held_out"] if file.get("key") == LONE else file["name"]

    known = {called(file): file for file in before}
    now = {called(file): file for file in describe_inputs(inputs)["inputs"]}
    new = [file["name"] for own, file in now.items() if own not in known]
    both = [(known[own], file) for own, file in now.items() if own in known]
    changed = [(old, file) for old, file in both if is_changed(old, file)]
    left = [file for own, file in known.items() if own not in now]
    vanished = [file for file in left if file["name"] not in forgotten]
    unmeant = [file for file in vanished if file["name"] not in accepted]
    pairs = [(old, file) for old, file in changed if file["name"] not in accepted]
    fewer = [max(old["n_rows"] - file["n_rows"], 0) for old, file in pairs]
    shorter = [file["name"] for (_, file), n in zip(pairs, fewer, strict=True) if n]
    added = {*new, *(file["name"] for _, file in changed)}
    return {
        "new": new,
        "changed": [file["name"] for _, file in changed],
        "vanished": [file["name"] for file in vanished],
        "n_new_rows": sum(file["n_rows"] for file in now.values() if file["name"] in added),
        "lost": [*(file["name"] for file in unmeant), *shorter],
        "n_lost_rows": sum(file["n_rows"] for file in unmeant) + sum(fewer),
        "n_before": sum(file["n_rows"] for file in before),
    }


# --- two models on the same rows ------------------------------------------------------------------


def gain_of(before: float, now: float, rises: bool) -> float:
    """Return the share by which a loss falls, or what a score rises by; NaN where unknown."""
    if rises:
        return now - before
    if before == now:
        return 0.0
    return (before - now) / abs(before) if before else math.nan


def compare(
    job: Job, run: Run, judge: Callable[[Run], Judged], newest: Sequence[str], gate: GateSection
) -> list[dict[str, Any]]:
    """Compare the current model with a new one, on all held-out rows and on the newest.

    Parameters
    ----------
    job : Job
    run : Run
    judge : callable
        Scores the current model, then the new one, on the held-out rows of a run's data.
    newest : sequence of str
        Names of new and changed files.
    gate : GateSection

    Returns
    -------
    list of dict
        For each set of ``rows`` (``held_out``, ``newest``) with a row held out: ``n_rows``, the
        ``metric``, what the model ``in_place`` and the ``new`` one score by it, whether more is
        better (``rises``), and the ``gain``.
    """
    found = []
    for rows, inputs in (("held_out", job.inputs), ("newest", _only(job.inputs, newest))):
        if inputs is None:
            continue
        n_rows, scores = judge(run.on(inputs))
        if n_rows:
            metric = gate.metric or next(iter(scores[0]))
            require_metric(gate, tuple(scores[0]))
            (before, now), rises = (own[metric] for own in scores), job.judged_by[metric]
            entry = {"rows": rows, "n_rows": n_rows, "metric": metric, "in_place": before}
            gain = gain_of(before, now, rises)
            found.append({**entry, "new": now, "rises": rises, "gain": gain})
    return found


def checked(
    gate: GateSection, changes: Json, compared: Sequence[Json], drift: Json | None
) -> list[dict[str, Any]]:
    """Check all conditions of the gate, for a model that follows another.

    Each has its ``text``, what was ``found`` in words, and whether it ``holds``.
    """
    conditions: list[dict[str, Any]] = []

    def require(text: str, found: str, holds: bool) -> None:
        conditions.append({"text": text, "found": found, "holds": holds})

    if changes["new"] or changes["changed"]:
        rows, enough = changes["n_new_rows"], gate.min_rows
        text = f"at least {enough:,} rows in new and changed files"
        require(text, f"{rows:,} new rows", rows >= enough)
    lost = changes["n_lost_rows"] / max(changes["n_before"], 1)
    most = f"at most {gate.max_lost:.1%} of the rows behind the current model lost"
    is_kept = lost <= gate.max_lost
    said = f"{lost:.1%} of its rows lost"
    if not is_kept:
        options = " ".join(f"--accept {name}" for name in changes.get("lost", ())[:_LISTED])
        said += f". If that is meant: distfms retrain SPEC {options}"
    require(most, said, is_kept)
    for entry in compared:
        gain, where = entry["gain"], f"{entry['rows'].replace('_', '-')} rows"
        metric = measure_title(entry["metric"])
        said = f"{metric} {_in_words(gain)} on {where}"
        worse = f"{metric} on {where} at most {gate.max_regression:.2%} worse"
        require(worse, said, gain >= -gate.max_regression)
        if gate.min_gain is not None and entry["rows"] == gate.on:
            better = f"{metric} on {where} better by at least {gate.min_gain:.2%}"
            require(better, said, gain >= gate.min_gain)
    if gate.min_gain is not None and gate.on not in [entry["rows"] for entry in compared]:
        better = f"better by at least {gate.min_gain:.2%} on {gate.on.replace('_', '-')} rows"
        require(better, f"no {gate.on.replace('_', '-')} row", False)
    if gate.max_drift is not None and drift is not None:
        said = _DRIFTED[drift["quantity"]].format(drift["column"], drift["largest"])
        bound = f"no column drifts by more than {gate.max_drift:g} in any new file"
        require(bound, f"{said} in {drift['name']}", drift["largest"] <= gate.max_drift)
        if again := drift["refused"]:
            said = f"{', '.join(again)} drifted when last seen"
            require("no file refused before, unless fixed or accepted (--accept FILE)", said, False)
    return conditions


#: What drifted how far, in words.
_DRIFTED = {
    "mean": "{} drifted by {:.3g} standard deviations",
    "spread": "the spread of {} changed by {:.3g} (as a logarithm)",
    "correlation": "the correlation of {} with the target changed by {:.3g}",
    "disagreement": "the disagreement of raters on {} changed by {:.3g} (as a logarithm)",
}


def _in_words(gain: float) -> str:
    if math.isnan(gain):
        return "cannot be compared"
    return f"{abs(gain):.2%} {'better' if gain > 0 else 'worse'}" if gain else "as good"


def require_metric(gate: GateSection, known: Collection[str]) -> None:
    """Refuse a metric of the gate that a job's models are not compared by."""
    if gate.metric is not None and gate.metric not in known:
        raise SpecError(
            f"`retrain.gate.metric` is {gate.metric!r}; models of this job are compared by "
            f"{' or '.join(known)}."
        )


def _only(inputs: Inputs, names: Sequence[str]) -> Inputs | None:
    """Return the data of some files; None where that is nothing, or all there is."""
    train, *test = (_files_of(dataset, names) for dataset in inputs.datasets)
    if train is None or train.n_rows == inputs.train.n_rows:
        return None
    return replace(inputs, train=train, test=test[0] if test else None)


def _files_of(dataset: Dataset, names: Sequence[str]) -> Dataset | None:
    partitions = [part for part in dataset.partitions if part.name in names]
    return dataset.restricted(partitions) if partitions else None


#: Entries that a report lists.
_LISTED = 100


def changed_choices(method: Method, before: FinishedRun, now: FinishedRun) -> list[dict[str, Any]]:
    """Return what entered, what left and what is chosen otherwise, those of most gain first."""
    old, new = method.chosen(before), method.chosen(now)
    whole = any(isinstance(choice.amount, int) for choice in new.values())
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys((*new, *old)):
        a, b = old.get(name), new.get(name)
        if a and b and (a.amount == b.amount or not whole):
            continue
        change = "entered" if a is None else "left" if b is None else "changed"
        amounts = {"before": a and a.amount, "now": b and b.amount}
        found.append({"name": name, "change": change, **amounts, "gain": (b or old[name]).gain})
    return sorted(found, key=lambda entry: -(entry["gain"] or 0.0))[:_LISTED]


def chosen_in(registry: Registry, name: str, number: int) -> dict[str, float | None]:
    """Return the amounts, as ``chosen.ITEM``, and weights, ``weight.ITEM``, of a version."""
    method, run = read_version(registry, name, number)[1].open()
    chosen = method.chosen(run)
    weights = {f"weight.{item}": one.weight for item, one in chosen.items()}
    return {f"chosen.{item}": one.amount for item, one in chosen.items()} | weights
