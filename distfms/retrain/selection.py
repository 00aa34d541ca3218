"""What two models of one method chose: what entered, what left, and the gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.methods.contract import FinishedRun

#: Entries that a report lists.
_LISTED = 100


@dataclass(frozen=True)
class Choice:
    """What a model made of one item.

    `amount` is repeats of an attribute, the place of a group or landmark, or a weight; `gain` what
    it adds to the objective where the method says so.
    """

    amount: float
    gain: float | None = None


def choices(run: FinishedRun) -> dict[str, Choice]:
    """Return what a model uses, by name."""
    selection = run.selection
    if "repeats" in selection:
        objective = np.array([0.0, *(step["objective"] for step in selection["path"])])
        gains: dict[str, float] = {}
        for step, gain in zip(selection["path"], np.diff(objective).tolist(), strict=True):
            gains[step["attribute"]] = gains.get(step["attribute"], 0.0) + gain
        return {a: Choice(n, gains.get(a)) for a, n in selection["repeats"].items()}
    if "sequence" in selection:
        steps = selection["sequence"][: run.model["stop"]["n_groups"]]
        explained = np.array([0.0, *(step["explained_variance"] for step in steps)])
        gained = zip(steps, np.diff(explained).tolist(), strict=True)
        return {s["group"]: Choice(n, gain) for n, (s, gain) in enumerate(gained, 1)}
    if "landmarks" in selection:
        return {str(name): Choice(n) for n, name in enumerate(selection["landmarks"], 1)}
    return {name: Choice(w) for name, w in selection["coefficients"].items() if w}


def changed_choices(before: FinishedRun, now: FinishedRun) -> list[dict[str, Any]]:
    """Return what entered, what left and what is chosen otherwise, those of most gain first."""
    old, new = choices(before), choices(now)
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
    return sorted(found, key=_by_gain)[:_LISTED]


def _by_gain(entry: Mapping[str, Any]) -> float:
    return -(entry["gain"] or 0.0)
