"""The gate: whether a new model takes the place of the one that is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distfms.retrain.place import Changes
from distfms.spec import GateSection

#: Measures of which more is better, in shares of at most 1; all others are losses.
SCORES = ("r2", "accuracy", "explained_variance", "explained_deviance")


@dataclass(frozen=True)
class Comparison:
    """Two models on the same rows: `rows` is ``held_out`` or ``newest``.

    `in_place` and `new` are what each scores by `metric`.
    """

    rows: str
    n_rows: int
    metric: str
    in_place: float
    new: float

    @property
    def gain(self) -> float:
        """Share by which a loss falls, or what a score rises by; NaN where that is unknown."""
        if self.metric in SCORES:
            return self.new - self.in_place
        if self.in_place == self.new:
            return 0.0
        return (self.in_place - self.new) / abs(self.in_place) if self.in_place else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self), "gain": self.gain}


@dataclass(frozen=True)
class Condition:
    """A condition of the gate, what was found, and whether it holds."""

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
    found = []
    if changes.new or changes.changed:
        found.append(
            Condition(
                f"at least {gate.min_rows:,} rows in new and changed files",
                f"{changes.n_new_rows:,}",
                changes.n_new_rows >= gate.min_rows,
            )
        )
    lost = changes.n_lost_rows / max(changes.n_before, 1)
    found.append(
        Condition(
            f"at most {gate.max_lost:.1%} of the rows behind the model in place lost",
            f"{lost:.1%}",
            lost <= gate.max_lost,
        )
    )
    for comparison in compared:
        found += _gains(gate, comparison)
    if gate.min_gain is not None and gate.on not in [comparison.rows for comparison in compared]:
        condition = f"better by at least {gate.min_gain:.2%} on {gate.on.replace('_', '-')} rows"
        found.append(Condition(condition, "no such row is held out", False))
    if gate.max_drift is not None and drift is not None:
        found.append(
            Condition(
                f"no column drifts by more than {gate.max_drift:g}",
                f"{drift['largest']:.3g} ({drift['column']}, {drift['quantity']})",
                drift["largest"] <= gate.max_drift,
            )
        )
    return found


def _gains(gate: GateSection, comparison: Comparison) -> list[Condition]:
    gain, where = comparison.gain, f"{comparison.rows.replace('_', '-')} rows"
    said = "unknown" if math.isnan(gain) else f"{gain:+.2%}"
    found = [
        Condition(
            f"{comparison.metric} on {where} at most {gate.max_regression:.2%} worse",
            said,
            gain >= -gate.max_regression,
        )
    ]
    if gate.min_gain is not None and comparison.rows == gate.on:
        condition = f"{comparison.metric} on {where} better by at least {gate.min_gain:.2%}"
        found.append(Condition(condition, said, gain >= gate.min_gain))
    return found
