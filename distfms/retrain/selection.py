"""What two models of one method chose: what entered, what left, and the gain."""

from __future__ import annotations

from typing import Any

from distfms.methods.contract import FinishedRun, Method
from distfms.registry import Registry
from distfms.runs.finished import read_version

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
