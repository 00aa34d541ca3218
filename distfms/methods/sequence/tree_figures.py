"""The part of a report about a tree of sequences: which test first, then what, for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.sequence.evaluate import advised, steps_of
from distfms.report.formatting import number, percent
from distfms.report.page import Block, Figure, PageSection, Table, Text
from distfms.report.plots import Line, line_chart, tree_chart

#: Groups of an order that the chart names, and the table.
_IN_CHART, _IN_TABLE = 4, 12


def tree_section(run: FinishedRun, what: str) -> list[PageSection]:
    """Return the section about the tree, where the run has one."""
    found, own = run.metrics.get("contexts"), run.selection.get("contexts")
    if found is None or own is None:
        return []
    root, cost = ", ".join(own["root"]), own["cost"]
    pairs = list(zip(own["leaves"], found["leaves"], strict=True))
    orders = [_order(own["root"], *pair) for pair in pairs]
    names = [f"{leaf['name']} ({percent(leaf['share'])} of rows)" for leaf, _ in pairs]
    shown = [" → ".join([*o[:_IN_CHART], *["…"] * (len(o) > _IN_CHART)]) for o in orders]
    blocks: list[Block] = [
        Text(
            f"Buy {root} first, for {number(cost)}; its values say which sequence goes on. Leaves "
            f"explain {percent(found['gain'], 1)} ± {percent(found['standard_error'], 1)} more of "
            f"the {what} than one sequence for all rows, in cross-validation, on average over the "
            "budgets below."
        ),
        Figure(
            tree_chart(root, list(zip(names, shown, strict=True)), title="The tree of sequences"),
            f"Which group first, then what, for whom: {root}, and the order of each leaf.",
        ),
        Table(
            [
                _row(leaf, metrics, order, cost)
                for (leaf, metrics), order in zip(pairs, orders, strict=True)
            ],
            "The leaves. Groups: in their order, as many as predictions use by default. Cost: what "
            "they cost in all, with those bought first.",
            {"Rows": "percent"},
        ),
        _curve(found, what),
    ]
    return [PageSection("For whom which order", blocks)]


def _order(root: Sequence[str], leaf: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """Return the groups of a leaf after those that are bought first."""
    groups = [step["group"] for step in steps_of(leaf, advised(metrics))]
    return [group for group in groups if group not in root]


def _row(
    leaf: Mapping[str, Any], metrics: Mapping[str, Any], order: Sequence[str], cost: float
) -> dict[str, Any]:
    rest = f" and {len(order) - _IN_TABLE} more" if len(order) > _IN_TABLE else ""
    return {
        "Leaf": leaf["name"],
        "Rows": leaf["share"],
        "Groups": (", ".join(order[:_IN_TABLE]) or "none") + rest,
        "Cost": cost + metrics["stop"]["spent"],
    }


def _share(of: Mapping[str, Any], what: str) -> tuple[float | None, str]:
    share = f"explained_{what}"
    if share in of["test"]:
        return of["test"][share], "held-out rows"
    return of["validation"][share], "cross-validation"


def _curve(found: Mapping[str, Any], what: str) -> Figure:
    entries = found["budgets"]
    x, reading = [entry["budget"] for entry in entries], _share(entries[0]["tree"], what)[1]
    lines = [
        Line(
            name, x, [_share(entry[of], what)[0] for entry in entries], bold=of == "tree", step=True
        )
        for of, name in (("tree", "tree of sequences"), ("one", "one sequence"))
    ]
    chart = line_chart(
        lines,
        title=f"Explained {what} of the tree and of one sequence by budget",
        xlabel="budget",
        ylabel=f"explained {what}",
        y_percent=True,
    )
    better = [number(entry["budget"]) for entry in entries if entry["better"]]
    return Figure(
        chart,
        f"The {what} that the tree and one sequence explain within each budget ({reading}). Leaves "
        f"predict at the budgets at which they are better by more than a standard error of "
        f"cross-validation: {', '.join(better)}.",
    )
