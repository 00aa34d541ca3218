"""The gate: two models on rows that neither learned from, and whether the new one is promoted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distfms.data.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.contract import Context, FinishedRun, Inputs, Job, Method
from distfms.registry import Registry
from distfms.report.formatting import measure_title
from distfms.retrain.place import Changes
from distfms.runs.finished import read_version
from distfms.spec import GateSection


@dataclass(frozen=True)
class Comparison:
    """Two models on the same rows: `rows` is ``held_out`` or ``newest``.

    `in_place` and `new` are what each scores by `metric`, of which more is better where `rises`.
    """

    rows: str
    n_rows: int
    metric: str
    in_place: float
    new: float
    rises: bool = False

    @property
    def gain(self) -> float:
        """Share by which a loss falls, or what a score rises by; NaN where that is unknown."""
        if self.rises:
            return self.new - self.in_place
        if self.in_place == self.new:
            return 0.0
        return (self.in_place - self.new) / abs(self.in_place) if self.in_place else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self), "gain": self.gain}


@dataclass(frozen=True)
class Condition:
    """A condition of the gate, what was found in words, and whether it holds."""

    text: str
    found: str
    holds: bool


def conditions(
    gate: GateSection,
    changes: Changes,
    compared: Sequence[Comparison],
    drift: Mapping[str, Any] | None,
) -> list[Condition]:
    """Check all conditions of the gate, for a model that follows another."""
    found: list[Condition] = []

    def require(text: str, said: str, holds: bool) -> None:
        found.append(Condition(text, said, holds))

    if changes.new or changes.changed:
        rows = changes.n_new_rows
        require(
            f"at least {gate.min_rows:,} rows in new and changed files",
            f"{rows:,} new rows",
            rows >= gate.min_rows,
        )
    lost = changes.n_lost_rows / max(changes.n_before, 1)
    most = f"at most {gate.max_lost:.1%} of the rows behind the current model lost"
    require(most, f"{lost:.1%} of its rows lost", lost <= gate.max_lost)
    for comparison in compared:
        gain, where = comparison.gain, f"{comparison.rows.replace('_', '-')} rows"
        metric = measure_title(comparison.metric)
        said = f"{metric} {_in_words(gain)} on {where}"
        worse = f"{metric} on {where} at most {gate.max_regression:.2%} worse"
        require(worse, said, gain >= -gate.max_regression)
        if gate.min_gain is not None and comparison.rows == gate.on:
            better = f"{metric} on {where} better by at least {gate.min_gain:.2%}"
            require(better, said, gain >= gate.min_gain)
    if gate.min_gain is not None and gate.on not in [comparison.rows for comparison in compared]:
        better = f"better by at least {gate.min_gain:.2%} on {gate.on.replace('_', '-')} rows"
        require(better, f"no {gate.on.replace('_', '-')} row", False)
    if gate.max_drift is not None and drift is not None:
        said = _DRIFTED[drift["quantity"]].format(drift["column"], drift["largest"])
        bound = f"no column drifts by more than {gate.max_drift:g} in any new file"
        require(bound, f"{said} in {drift['name']}", drift["largest"] <= gate.max_drift)
        if again := drift["refused"]:
            said = f"{', '.join(again)} drifted when last seen"
            require(
                "no file refused before, unless fixed or accepted (--accept FILE)",
                said,
                False,
            )
    return found


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


def compare(
    job: Job,
    context: Context,
    models: Sequence[FinishedRun],
    newest: Sequence[str],
    gate: GateSection,
) -> list[Comparison]:
    """Compare the current model with a new one, on all held-out rows and on the newest.

    Parameters
    ----------
    job : Job
    context : Context
    models : sequence of FinishedRun
        The current one, then the new one.
    newest : sequence of str
        Names of new and changed files.
    gate : GateSection

    Returns
    -------
    list of Comparison
        Without sets of rows in which no row is held out.
    """
    found = []
    for rows, inputs in (("held_out", job.inputs), ("newest", _only(job.inputs, newest))):
        if inputs is None:
            continue
        n_rows, scores = job.judge(context.on(inputs), models)
        if n_rows:
            metric = gate.metric or next(iter(scores[0]))
            require_metric(gate, tuple(scores[0]))
            before, now = (own[metric] for own in scores)
            rises = job.judged_by[metric]
            found.append(Comparison(rows, n_rows, metric, before, now, rises))
    return found


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
        last = b or a
        assert last is not None
        found.append(
            {
                "name": name,
                "change": "entered" if a is None else "left" if b is None else "changed",
                "before": a and a.amount,
                "now": b and b.amount,
                "gain": last.gain,
            }
        )
    return sorted(found, key=lambda entry: -(entry["gain"] or 0.0))[:_LISTED]


def chosen_in(registry: Registry, name: str, number: int) -> dict[str, float | None]:
    """Return the amounts, as ``chosen.ITEM``, and weights, ``weight.ITEM``, of a version."""
    method, run = read_version(registry, name, number)[1].open()
    chosen = method.chosen(run)
    weights = {f"weight.{item}": one.weight for item, one in chosen.items()}
    return {f"chosen.{item}": one.amount for item, one in chosen.items()} | weights
