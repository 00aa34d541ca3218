"""Tables of the report of a group sequence, and what they and its figures read of the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.content import as_entries, as_mapping, as_number, curve_points
from distfms.report.measures import without_empty_columns
from distfms.report.page import Block, Column, Table

_TITLES = {
    "fr": "forward regression (fr)",
    "omp": "matching pursuit (omp)",
    "omp-single": "omp, best single column",
    "omp-no-whiten": "omp, not whitened",
    "oracle": "oracle order",
    "sparse": "group lasso",
    "random": "random order",
}
_VARIANTS = {"-doubling": ", doubling", "-blind": ", cost-blind"}
_STEPS_SHOWN = 500


def timeliness_blocks(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Block]:
    """Rank the rules by timeliness; no table where none has any."""
    by_name = as_mapping(metrics.get("timeliness"))
    keys = ("timeliness", "alpha", "stopping_cost", "alpha_timeliness", "test_alpha_timeliness")
    ranked = []
    for name, value in by_name.items():
        entry = {"timeliness": value} if as_number(value) is not None else as_mapping(value)
        numbers = [as_number(entry.get(key)) for key in keys]
        if any(found is not None for found in numbers):
            ranked.append((name, numbers))
    if not ranked:
        return []
    ranked.sort(key=lambda item: -(item[1][0] or 0.0))
    own = own_name(selection, metrics)
    return [
        without_empty_columns(
            [
                Column("Rule", "text"),
                Column("Timeliness", "number"),
                Column("α", "percent"),
                Column("Stopping cost", "number"),
                Column("α-timeliness", "number"),
                Column("Held out", "number"),
            ],
            [[rule_title(name), *numbers] for name, numbers in ranked],
            "Timeliness: the area under explained variance against cost, divided by the whole area "
            "(1: all is explained at no cost). The stopping cost is where a rule reaches the share "
            "α of the final training objective; α-timeliness is the same area up to where omp "
            "reaches it, on the training and on held-out rows. The chosen rule is bold.",
            emphasis=[i for i, (name, _) in enumerate(ranked) if name == own],
        )
    ]


def sequence_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """List the steps of a sequence with their costs and gains."""
    rows: list[list[Any]] = []
    for i, step in enumerate(steps[:_STEPS_SHOWN], start=1):
        gain, cost = as_number(step.get("gain")), as_number(step.get("cost"))
        rows.append(
            [
                i,
                str(step.get("group")),
                n_columns(step),
                cost,
                as_number(step.get("spent")),
                gain,
                None if gain is None or not cost else gain / cost,
                as_number(step.get("explained_variance")),
            ]
        )
    more = len(steps) - len(rows)
    return without_empty_columns(
        [
            Column("Step", "number"),
            Column("Group", "text"),
            Column("Columns", "number"),
            Column("Cost", "number"),
            Column("Spent", "number"),
            Column("Gain", "number"),
            Column("Gain per cost", "number"),
            Column("Explained", "percent"),
        ],
        rows,
        "The sequence with its costs and gains, on the training rows."
        + (f" The first {len(rows)} steps; {more} more are in selection.json." if more else ""),
    )


# --- reading the files ---


def own_curve(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the chosen sequence's curve; the sequence itself serves where metrics have none."""
    name = own_name(selection, metrics)
    for curve in as_entries(metrics.get("curves")):
        if curve.get("name") == name:
            return curve
    return {"name": name, "points": selection.get("sequence") or ()}


def own_name(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Find the curve of the chosen sequence: by the name of its rule, else by its costs."""
    criterion = str(selection.get("criterion") or "fr")
    curves = as_entries(metrics.get("curves"))
    names = [str(curve.get("name")) for curve in curves]
    if selection.get("rule") in names:
        return str(selection["rule"])
    plain = selection.get("cost_aware", True) and not selection.get("doubling")
    if plain and criterion in names:
        return criterion
    spent = [as_number(s.get("spent")) for s in as_entries(selection.get("sequence"))]
    # A rule's variants carry its name, so they are looked at first; a curve may begin at nothing.
    for name, curve in sorted(
        zip(names, curves, strict=True), key=lambda item: criterion not in item[0]
    ):
        costs = [as_number(p.get("spent")) for p in curve_points(curve)]
        if spent and costs[-len(spent) :] == spent:
            return name
    return criterion


def rule_title(name: str) -> str:
    """Name of a rule for readers; variants by their endings."""
    endings = ""
    for ending, words in _VARIANTS.items():
        if name.endswith(ending):
            name, endings = name.removesuffix(ending), words + endings
    return f"{name}{endings}" if endings else _TITLES.get(name, name)


def timeliness_of(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the timeliness entry of the chosen sequence."""
    by_name = as_mapping(metrics.get("timeliness"))
    found = as_mapping(by_name.get(own_name(selection, metrics)))
    if found:
        return found
    own = selection.get("timeliness")
    return {"timeliness": own} if as_number(own) is not None else as_mapping(own)


def n_columns(step: Mapping[str, Any]) -> int | None:
    """Count the columns of a step, if it says."""
    columns = step.get("columns")
    if isinstance(columns, list | tuple):
        return len(columns)
    found = as_number(columns)
    return None if found is None else round(found)
