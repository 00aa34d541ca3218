"""Sections about a retraining: what was decided and why, what drifted, what was chosen anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.formatting import count, integer, measure_title, number, percent
from distfms.report.page import Block, Figure, KeyValues, Section, Table, Text
from distfms.report.plots import Line, line_chart

_ROWS = {"held_out": "All held-out rows", "newest": "Held-out rows of new files"}
_QUANTITIES = {
    "mean": "Mean",
    "spread": "Spread",
    "correlation": "Correlation",
    "disagreement": "Disagreement",
}


def refusal(content: Mapping[str, Any] | None) -> str | None:
    """Return why a model was refused, in one sentence; None of a run that was not."""
    failed = [c["found"] for c in (content or {}).get("conditions", ()) if not c["holds"]]
    return f"Refused: {'; '.join(failed)}" if failed else None


def retraining_sections(content: Mapping[str, Any] | None) -> list[Section]:
    """Return the sections of a run that was a retraining; none of another."""
    if content is None:
        return []
    found = [_decision(content)]
    if content["drift"]:
        found.append(_drift(content["drift"]))
    if content["selection"]:
        found.append(_selection(content))
    return found


def _decision(content: Mapping[str, Any]) -> Section:
    before = content["in_place"]
    if before is None:
        text = "This model is the first."
    elif content["anew"]:
        text = f"Promoted with --anew, without a comparison with version {before}."
    elif content.get("made") is not None:
        text = (
            f"The data are again those of version {content['made']}: its model replaces version "
            f"{before} without a comparison."
        )
    elif content["promote"]:
        text = f"Promoted: all conditions hold. This model replaces version {before}."
    else:
        text = f"{refusal(content)}. Version {before} stays the current model."
    data = content["data"]
    facts = {
        "Files, new": _listed(data["new"]),
        "Files, changed": _listed(data["changed"]),
        "Files, vanished": _listed(data["vanished"]),
        "Partitions": f"{integer(data['n_read'])} read, {integer(data['n_cached'])} from the cache",
    }
    blocks: list[Block] = [Text(text, tone="note"), KeyValues(facts)]
    if content["conditions"]:
        rows = [
            {"Condition": c["text"], "Found": c["found"], "Holds": c["holds"]}
            for c in content["conditions"]
        ]
        blocks.append(Table(rows, "Conditions for promotion."))
    if content["compared"]:
        version = f"Version {before}"
        rows = [
            {
                "Rows": _ROWS[c["rows"]],
                "Number": c["n_rows"],
                "Measure": measure_title(c["metric"], True),
                version: c["in_place"],
                "This model": c["new"],
                "Gain": c["gain"],
            }
            for c in content["compared"]
        ]
        caption = "Both models, on rows that neither learned from."
        kinds = {version: "measure", "This model": "measure", "Gain": "percent"}
        blocks.append(Table(rows, caption, kinds))
    return Section("Retraining", blocks)


def _listed(names: Sequence[str]) -> str:
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{integer(len(names))}: {some}" if names else "none"


def _drift(drift: Mapping[str, Any]) -> Section:
    known = [q for q in _QUANTITIES if any(c[q]["shift"] is not None for c in drift["columns"])]
    rows = [
        {"Column": c["name"], **{_QUANTITIES[q]: _shift(c[q]) for q in known}}
        for c in drift["columns"]
    ]
    which = "the new partitions are"  # of a run by a distfms that pooled them
    if "sets" in drift:
        many = count(len(drift["sets"]), "new file or day", "new files or days")
        which = f"{drift['name']} is (the furthest of {many})"
    table = Table(
        rows,
        f"How far {which} from the data behind the current model, ± the {percent(drift['level'])} "
        "interval of chance. Mean: in standard deviations. Spread, and disagreement of raters: "
        "logarithm of the ratio of standard deviations. Correlation with the target: difference. "
        f"The {count(len(rows), 'column')} of {integer(drift['n_columns'])} with the largest "
        "drift.",
    )
    return Section("Drift by column", [table, _history(drift["history"])])


def _history(history: Mapping[str, Any]) -> Figure:
    lines = []
    for name, means in history["lines"].items():
        points = list(enumerate(means, 1))
        new = [p for p, is_new in zip(points, history["is_new"], strict=True) if is_new]
        x, y = zip(*points, strict=True)
        lines.append(Line(name, x, y, marks=[p for p in new if p[1] is not None]))
    svg = line_chart(
        lines,
        title="Means of the columns with the largest drift, by partition",
        xlabel="partition, in the order of the data",
        ylabel="mean, in standard deviations",
    )
    caption = (
        "Means of the columns with the largest drift, in standard deviations from the mean of the "
        "partitions behind the current model. Rings: new partitions."
    )
    return Figure(svg, caption)


def _shift(entry: Mapping[str, Any]) -> str:
    if entry["shift"] is None:
        return number(None)
    half = "" if entry["half_width"] is None else f" ± {number(entry['half_width'], 2)}"
    return f"{number(entry['shift'], 3)}{half}"


def _selection(content: Mapping[str, Any]) -> Section:
    keys = ("name", "change", "before", "now", "gain")
    titles = ("", "Change", f"Version {content['in_place']}", "This model", "Gain")
    rows = [
        {title: entry[key] for title, key in zip(titles, keys, strict=True)}
        for entry in content["selection"]
    ]
    caption = (
        "Differences between the current model and this one: what each selected, and the gain in "
        "the objective there; for dropped entries, the gain in the current model."
    )
    return Section("Changes in the selection", [Table(rows, caption, {"Gain": "measure"})])
