"""The gate: whether a new model takes the place of the one that is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distfms.retrain.place import Changes
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
        said = f"{comparison.metric} {_in_words(gain)} on {where}"
        worse = f"{comparison.metric} on {where} at most {gate.max_regression:.2%} worse"
        require(worse, said, gain >= -gate.max_regression)
        if gate.min_gain is not None and comparison.rows == gate.on:
            better = f"{comparison.metric} on {where} better by at least {gate.min_gain:.2%}"
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
                "no file that was refused before, unless mended or accepted (--accept FILE)",
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
