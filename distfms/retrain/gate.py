"""The gate: the current model, what has changed in the data, and whether to promote a new model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distfms.data.files.partition import LONE, Dataset
from distfms.errors import SpecError
from distfms.methods.frame.contract import FinishedRun, Inputs, Job, Judged, Method, Run
from distfms.registry import Registry
from distfms.report.formatting import measure_title
from distfms.retrain.drift import Summaries
from distfms.runs.facts import describe_inputs
from distfms.runs.finished import read_version
from distfms.runs.prepare import Prepared
from distfms.spec import GateSection
from distfms.stats.base import from_bytes

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
            version, content = read_version(registry, name)
            summaries = from_bytes(content.files[DRIFT]) if DRIFT in content.files else {}
            return cls(version.number, content.open(allow)[1], content.spec(), summaries)
        except SpecError as error:
            if not anew:
                raise
            registry.note(f"Replacing version {number} without reading it. {error}")
            return cls(number, FinishedRun({}, {}, {}, {"inputs": []}, {}), {}, {})


def made_before(registry: Registry, name: str, identity: str) -> tuple[int | None, bool]:
    """Return the last version of an identity that was ever promoted, and whether it was withdrawn.

    A version is withdrawn by a rollback, or by the promotion of an older one; not by a newer one.
    """
    promoted = set[int | None]()
    withdrawn = set[int | None]()
    current: int | None = None
    for change in registry.history(name):
        if change.version == current:
            continue
        is_older = (change.version or 0) < (current or 0)
        if change.kind == "rollback" or is_older:
            withdrawn.add(current)
        current = change.version
        promoted.add(current)
        withdrawn.discard(current)
    for version in reversed(registry.versions(name)):
        if version.facts.get("identity") == identity and version.number in promoted:
            return version.number, version.number in withdrawn
    return None, False


#: Files that a message names.
_NAMED = 5


def require_same_question(prepared: Prepared, in_place: InPlace) -> None:
    """Refuse to compare a model with one that answers another question, or knew the held-out rows.

    Raises
    ------
    SpecError
    """
    spec = prepared.spec.to_mapping()
    before = in_place.spec
    if before["method"] != spec["method"]:
        raise SpecError(
            f"Version {in_place.number} of {spec['name']!r}, the current model, is of the method "
            f"`{before['method']}`, and the spec's is `{spec['method']}`. {_ANEW}"
        )
    places = [("", "seed")]
    places += [("data", key) for key in ("target", "id", "query", "weight", "test", "long")]
    places += [(spec["method"], option) for option in prepared.method.question]
    for section, key in places:
        was = _value_in(before, section, key)
        now = _value_in(spec, section, key)
        if section == spec["method"] and now != was:
            was = in_place.run.selection.get(key) if was == "auto" else was
            now = getattr(prepared.job.options, key) if now == "auto" else now
        was_text = json.dumps(was, ensure_ascii=False)
        now_text = json.dumps(now, ensure_ascii=False)
        if was_text != now_text:
            option = f"{section}.{key}" if section else key
            raise SpecError(
                f"`{option}` is {now_text} in the spec and was {was_text} for version "
                f"{in_place.number} of {spec['name']!r}, the current model: it decides what is "
                f"predicted, selected from or held out. {_ANEW}"
            )
    _require_same_columns(prepared, in_place)
    _require_same_parts(prepared, in_place)


def _value_in(spec: Mapping[str, Any], section: str, key: str) -> Any:
    content = (spec.get(section) or {}) if section else spec
    return content.get(key)


def _require_same_parts(prepared: Prepared, in_place: InPlace) -> None:
    """Refuse data whose held-out rows, which no id decides, are others than they were."""
    inputs = prepared.job.inputs
    section = inputs.section
    if section.query or section.id or not section.test:
        return
    before = in_place.run.manifest["inputs"]
    footers = {file["footer"] for file in before}
    places = {(file["footer"], file["key"]) for file in before}
    for file in inputs.train.files:
        if file.footer in footers and (file.footer, file.key) not in places:
            raise SpecError(
                f"Other rows of {file.called} are held out now than for version {in_place.number} "
                f"of {prepared.spec.name!r}, the current model, which may have learned from them: "
                "without `data.id`, the names of files below `data.path` decide. Name files and "
                f"`data.path` as before. {_ANEW}"
            )


def _require_same_columns(prepared: Prepared, in_place: InPlace) -> None:
    before = (in_place.run.retraining or {}).get("columns")
    now = columns_of(prepared)
    if before is None or before == now:
        return
    retyped = [
        f"{name} ({before[name]}, now {now[name]})"
        for name in before
        if name in now and before[name] != now[name]
    ]
    differences = {
        "gone": sorted(before.keys() - now.keys()),
        "new": sorted(now.keys() - before.keys()),
        "of another type": retyped,
    }
    listed = "; ".join(
        f"{kind}: {', '.join(names)}" for kind, names in differences.items() if names
    )
    raise SpecError(
        f"The columns of the data differ from those of version {in_place.number} of "
        f"{prepared.spec.name!r}, the current model ({listed}). Restore them, or name the columns "
        f"to learn from in `data.features`. {_ANEW}"
    )


def columns_of(prepared: Prepared) -> dict[str, str]:
    """Return the types of the columns that a job reads."""
    schema = prepared.job.inputs.train.schema
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
    old_files = {_identity(file): file for file in before}
    new_files = {_identity(file): file for file in describe_inputs(inputs)["inputs"]}
    new = [file["name"] for key, file in new_files.items() if key not in old_files]
    changed = []
    lost = []
    n_lost_rows = 0
    for key, file in new_files.items():
        old = old_files.get(key)
        if old is None or not _is_changed(old, file, same):
            continue
        name = file["name"]
        changed.append(name)
        n_fewer = old["n_rows"] - file["n_rows"]
        if n_fewer > 0 and name not in accepted:
            lost.append(name)
            n_lost_rows += n_fewer
    vanished = []
    lost_files = []
    for key, file in old_files.items():
        name = file["name"]
        if key in new_files or name in forgotten:
            continue
        vanished.append(name)
        if name not in accepted:
            lost_files.append(name)
            n_lost_rows += file["n_rows"]
    added = {*new, *changed}
    return {
        "new": new,
        "changed": changed,
        "vanished": vanished,
        "n_new_rows": sum(file["n_rows"] for file in new_files.values() if file["name"] in added),
        "lost": [*lost_files, *lost],
        "n_lost_rows": n_lost_rows,
        "n_before": sum(file["n_rows"] for file in before),
    }


def _identity(file: Json) -> Any:
    """Tell files apart by name; the only one of training or held-out data needs none."""
    return file["held_out"] if file["key"] == LONE else file["name"]


def _is_changed(old: Json, new: Json, same: Callable[[str], bool]) -> bool:
    if old["footer"] != new["footer"]:
        return True
    return old["version"] != new["version"] and not same(new["name"])


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
    compared = []
    for rows, inputs in (("held_out", job.inputs), ("newest", _only(job.inputs, newest))):
        if inputs is None:
            continue
        n_rows, (before, now) = judge(run.on(inputs))
        if not n_rows:
            continue
        metric = gate.metric or next(iter(before))
        require_metric(gate, tuple(before))
        rises = job.judged_by[metric]
        compared.append(
            {
                "rows": rows,
                "n_rows": n_rows,
                "metric": metric,
                "in_place": before[metric],
                "new": now[metric],
                "rises": rises,
                "gain": gain_of(before[metric], now[metric], rises),
            }
        )
    return compared


def checked(
    gate: GateSection, changes: Json, compared: Sequence[Json], drift: Json | None
) -> list[dict[str, Any]]:
    """Check all conditions of the gate, for a model that follows another.

    Each has its ``text``, what was ``found`` in words, and whether it ``holds``.
    """
    conditions = [*_of_rows(gate, changes), *_of_losses(gate, compared)]
    if gate.max_drift is not None and drift is not None:
        conditions += _of_drift(gate.max_drift, drift)
    return [{"text": text, "found": finding, "holds": holds} for text, finding, holds in conditions]


#: What is required, what was found, and whether it holds.
Condition = tuple[str, str, bool]

_NEW_ROWS = "at least {:,} rows in new and changed files"
_LOST_ROWS = "at most {:.1%} of the rows behind the current model lost"
_NO_WORSE = "{} on {} rows at most {:.2%} worse"
_BETTER = "{} on {} rows better by at least {:.2%}"


def _of_rows(gate: GateSection, changes: Json) -> Iterator[Condition]:
    if changes["new"] or changes["changed"]:
        n_rows = changes["n_new_rows"]
        text = _NEW_ROWS.format(gate.min_rows)
        yield text, f"{n_rows:,} new rows", n_rows >= gate.min_rows
    lost = changes["n_lost_rows"] / max(changes["n_before"], 1)
    finding = f"{lost:.1%} of its rows lost"
    if lost > gate.max_lost:
        options = " ".join(f"--accept {name}" for name in changes["lost"][:_NAMED])
        finding += f". If that is meant: distfms retrain SPEC {options}"
    yield _LOST_ROWS.format(gate.max_lost), finding, lost <= gate.max_lost


def _of_losses(gate: GateSection, compared: Sequence[Json]) -> Iterator[Condition]:
    for entry in compared:
        yield from _of_loss(gate, entry)
    if gate.min_gain is not None and gate.on not in [entry["rows"] for entry in compared]:
        rows = gate.on.replace("_", "-")
        text = f"better by at least {gate.min_gain:.2%} on {rows} rows"
        yield text, f"no {rows} row", False


def _of_loss(gate: GateSection, entry: Json) -> Iterator[Condition]:
    gain = entry["gain"]
    least = gate.min_gain
    metric = measure_title(entry["metric"])
    rows = entry["rows"].replace("_", "-")
    finding = f"{metric} {_in_words(gain)} on {rows} rows"
    text = _NO_WORSE.format(metric, rows, gate.max_regression)
    yield text, finding, gain >= -gate.max_regression
    if least is not None and entry["rows"] == gate.on:
        yield _BETTER.format(metric, rows, least), finding, gain >= least


def _of_drift(most: float, drift: Json) -> Iterator[Condition]:
    bound = f"no column drifts by more than {most:g} in any new file"
    shift = _DRIFTED[drift["quantity"]].format(drift["column"], drift["largest"])
    yield bound, f"{shift} in {drift['name']}", drift["largest"] <= most
    if drift["refused"]:
        text = "no file refused before, unless fixed or accepted (--accept FILE)"
        yield text, f"{', '.join(drift['refused'])} drifted when last seen", False


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
    if not gain:
        return "as good"
    return f"{abs(gain):.2%} {'better' if gain > 0 else 'worse'}"


def require_metric(gate: GateSection, metrics: Collection[str]) -> None:
    """Refuse a metric of the gate that a job's models are not compared by."""
    if gate.metric is not None and gate.metric not in metrics:
        raise SpecError(
            f"`retrain.gate.metric` is {gate.metric!r}; models of this job are compared by "
            f"{' or '.join(metrics)}."
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
    old = method.chosen(before)
    new = method.chosen(now)
    are_counts = any(isinstance(choice.amount, int) for choice in new.values())
    changes: list[dict[str, Any]] = []
    for name in dict.fromkeys((*new, *old)):
        old_choice = old.get(name)
        new_choice = new.get(name)
        if old_choice is None:
            change = "entered"
        elif new_choice is None:
            change = "left"
        elif are_counts and old_choice.amount != new_choice.amount:
            change = "changed"
        else:
            continue
        entry = {
            "name": name,
            "change": change,
            "before": old_choice and old_choice.amount,
            "now": new_choice and new_choice.amount,
            "gain": (new_choice or old[name]).gain,
        }
        changes.append(entry)
    return sorted(changes, key=lambda entry: -(entry["gain"] or 0.0))[:_LISTED]


def chosen_in(registry: Registry, name: str, number: int) -> dict[str, float | None]:
    """Return the amounts, as ``chosen.ITEM``, and weights, ``weight.ITEM``, of a version."""
    method, run = read_version(registry, name, number)[1].open()
    chosen = method.chosen(run)
    amounts = {f"chosen.{item}": choice.amount for item, choice in chosen.items()}
    weights = {f"weight.{item}": choice.weight for item, choice in chosen.items()}
    return amounts | weights
