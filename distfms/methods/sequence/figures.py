"""The report of a group sequence, from the JSON files of its run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.sequence.answer_figures import (
    all_fitted,
    answer_blocks,
    curve_chart,
    explained,
    names_of,
    rule_title,
    share_name,
    what,
)
from distfms.methods.sequence.answer_figures import headline as headline
from distfms.methods.sequence.evaluate import NATURAL, steps_of
from distfms.methods.sequence.options import ORACLE
from distfms.methods.sequence.stopping_figures import stopping_section
from distfms.report.formatting import as_number, number
from distfms.report.metrics import ROWS, Curve, class_section, curves_of, measure_tables, more
from distfms.report.page import Block, Figure, PageSection, Table, Text
from distfms.solve.costs import longest_affordable

SUBTITLE = "Feature-group sequencing"


#: Columns of the table of timeliness, by their names in ``metrics.json``.
_TIMELINESS = {
    "timeliness": "Timeliness",
    "alpha": "α",
    "stopping_cost": "Cost at α",
    "alpha_timeliness": "α-timeliness",
    "test_alpha_timeliness": "Held out",
}
_STEPS_SHOWN = 500


def sections(run: FinishedRun) -> list[PageSection]:
    """Return the sections of the report."""
    metrics = run.metrics
    return [
        PageSection("", answer_blocks(run)),
        PageSection("What a cost buys", _curve_blocks(run)),
        stopping_section(run),
        PageSection("The sequence", _sequence_blocks(run)),
        class_section(metrics),
        PageSection("The model", measure_tables(metrics, "Measures of the model with all groups.")),
    ]


# --- the answer ---------------------------------------------------------------------------------


# --- curves -------------------------------------------------------------------------------------


def _curve_blocks(run: FinishedRun) -> list[Block]:
    curves = curves_of(run.metrics)
    chosen = curves[run.selection["rule"]]
    blocks = list[Block]()
    for measure in (share_name(run), *NATURAL):
        if _rows_of(chosen, measure):
            oracle = curves.get(ORACLE, curves.get(f"{ORACLE}:{chosen.name}"))
            blocks.append(_chosen_figure(run, chosen, measure, oracle))
    if run.metrics.get("budgets"):
        blocks.append(_budget_table(run))
    return [*blocks, _timeliness_table(run)]


def _rows_of(curve: Curve, measure: str) -> list[str]:
    """Return the rows on which a curve has a measure."""
    return [rows for rows in ROWS if curve.has(rows, measure)]


def _budget_table(run: FinishedRun) -> Table:
    """List what the best model of each budget explains, beside the prefix that it pays for."""
    entries = run.metrics["budgets"]
    spent = [step["spent"] for step in run.selection["sequence"]]

    def row(entry: Mapping[str, Any]) -> dict[str, Any]:
        steps = steps_of(run.selection, entry["model"])
        return {
            "Budget": entry["budget"],
            "Groups": names_of(steps),
            "Cost": steps[-1]["spent"] if steps else 0.0,
            "Explained": explained(run, entry["model"])[0],
            "By the sequence": explained(run, longest_affordable(spent, entry["budget"]))[0],
        }

    return Table(
        [row(entry) for entry in entries],
        f"The {what(run)} that the best groups for each budget explain "
        f"({explained(run, entries[-1]['model'])[1]}), next to the groups of the sequence within "
        "the budget. Bold: a set selected for a budget is better than the sequence.",
        {"Explained": "percent", "By the sequence": "percent"},
        emphasis=[i for i, entry in enumerate(entries) if entry["model"] > len(spent)],
    )


def _chosen_figure(run: FinishedRun, curve: Curve, measure: str, oracle: Curve | None) -> Figure:
    judged_on = _rows_of(curve, measure)[::-1]
    alone = len(judged_on) == 1
    lines = [
        curve.line(
            rows, measure, ROWS[rows], style=i,
            dashed=rows == "train" and not alone, bold=rows == "test" or alone,
        )
        for i, rows in enumerate(judged_on)
    ]  # fmt: skip
    caption = "The chosen sequence alone. Where the lines separate, later groups are overfitting."
    if not all_fitted(run):
        caption += " Lines join the prefixes that models were fitted to."
    is_share = measure == share_name(run)
    if is_share and oracle is not None:
        title = f"{rule_title('oracle')}, training rows"
        lines.append(oracle.line("train", measure, title, style=6, dashed=True))
        caption += (
            " The oracle order sorts the steps by their actual gain per cost, as if gains did not "
            "depend on the order: an approximate bound for this rule."
        )
    return Figure(curve_chart(lines, run, measure, "of the chosen sequence"), caption)


def _timeliness_table(run: FinishedRun) -> Table:
    """Rank the rules by timeliness."""
    by_name = run.metrics["timeliness"]
    ranked = sorted(by_name, key=lambda name: -(as_number(by_name[name]["timeliness"]) or 0.0))
    reference = "omp" if "omp" in by_name else rule_title(run.selection["rule"])
    rows = []
    for name in ranked:
        row: dict[str, Any] = {"Rule": rule_title(name)}
        for key, title in _TIMELINESS.items():
            row[title] = as_number(by_name[name][key])
        rows.append(row)
    return Table(
        rows,
        f"Timeliness: area under explained {what(run)} against cost, as a share of the whole (1: "
        "all explained at no cost), with straight lines between groups. Cost at α: cost at which a "
        f"rule reaches the share α of the final training objective. α-timeliness: the same area "
        f"up to the cost at which {reference} reaches it, on training and held-out rows. Bold: the "
        "chosen rule.",
        {"α": "percent"},
        emphasis=[i for i, name in enumerate(ranked) if name == run.selection["rule"]],
    )


# --- the sequence -------------------------------------------------------------------------------


def _sequence_blocks(run: FinishedRun) -> list[Block]:
    """List the first steps with their costs and gains, where these are known."""
    steps = run.selection["sequence"]
    rows = []
    for place, step in enumerate(steps[:_STEPS_SHOWN], 1):
        gain = step["gain"]
        has_rate = gain is not None and step["cost"]
        rows.append(
            {
                "Step": place,
                "Group": step["group"],
                "Columns": len(step["columns"]),
                "Cost": step["cost"],
                "Spent": step["spent"],
                "Gain": gain,
                "Gain per cost": gain / step["cost"] if has_rate else None,
                "Explained": step["explained_variance"],
            }
        )
    caption = "The sequence with its costs and gains, on the training rows."
    if not all_fitted(run):
        caption += " Groups without a gain were fitted together with those that follow."
    caption += more(len(steps), _STEPS_SHOWN, "in selection.json")
    return [Text(_rule(run.selection)), Table(rows, caption, {"Explained": "percent"})]


def _rule(selection: Mapping[str, Any]) -> str:
    parts = [
        f"Rule: {rule_title(selection['criterion'])}",
        "gain per cost" if selection["cost_aware"] else "cost-blind",
        *(["doubling"] if selection["doubling"] else []),
        f"ridge {number(selection['ridge'])}",
        f"{selection['family']} family",
    ]
    return f"{', '.join(parts)}. If interrupted, predict with the groups computed so far."
