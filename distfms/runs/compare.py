"""Two finished runs side by side on one page: what they chose, their scores, their curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distfms.engine.storage import writing
from distfms.errors import SpecError
from distfms.methods.frame.contract import FinishedRun, Method
from distfms.report.formatting import as_number, measure_title
from distfms.report.metrics import ROWS, curves_of, measure_rows, trusted
from distfms.report.page import Block, Figure, Page, PageSection, Table, Text
from distfms.report.plots import line_chart
from distfms.runs.finished import Run, read_run
from distfms.runs.folder import write_atomic

_Opened = tuple[Method, FinishedRun]


def compare(runs: Sequence[Run], out: str | Path, registry: str | None = None) -> Path:
    """Write a page with runs side by side; return its place.

    Raises
    ------
    SpecError
        If a run cannot be read.
    """
    files = [read_run(run, registry=registry) for run in runs]
    names = ["/".join(own.called.rstrip("/").split("/")[-2:]) for own in files]
    if len(set(names)) < len(names):
        raise SpecError("These are the same run. Name two.")
    opened = dict(zip(names, (own.open() for own in files), strict=True))
    answers = "\n\n".join(f"`{n}` {m.headline(run)}." for n, (m, run) in opened.items())
    sections = [
        PageSection("", [Text(answers)]),
        PageSection("Choices", [_choices(opened)]),
        PageSection("Scores", _scores(opened)),
        PageSection("Curves", _curves(opened)),
    ]
    shown = [section for section in sections if section.blocks]
    page = Page("compare", "Runs side by side", " and ".join(names), shown)
    with writing(place := Path(out)):
        write_atomic(place, page.render().encode())
    return place


def _choices(opened: Mapping[str, _Opened]) -> Table:
    """List what either run chose, with the repeats, places or weights that it has in each."""
    chosen = {name: method.chosen(run) for name, (method, run) in opened.items()}
    items = dict.fromkeys(item for own in chosen.values() for item in own)
    rows: list[dict[str, Any]] = [
        {"": item, **{n: own[item].amount if item in own else None for n, own in chosen.items()}}
        for item in items
    ]
    caption = "Repeats of an attribute, place of a group, or weight of a landmark or column."
    return Table(rows, caption, dict.fromkeys(opened, "measure"))


def _scores(opened: Mapping[str, _Opened]) -> list[Table]:
    """List the measures of all runs on rows that they did not learn from."""
    found = {name: [*measure_rows(run.metrics).items()][1:] for name, (_, run) in opened.items()}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, own in found.items():
        for label, measures in own:
            for measure, value in measures.items():
                if (known := as_number(value)) is not None:
                    titles = {"Measure": measure_title(measure, True), "Rows": label}
                    rows.setdefault((measure, label), titles)[name] = known
    caption = "Scores of the models; ±: standard deviation between folds."
    kinds = dict.fromkeys(opened, "measure")
    return [Table([rows[key] for key in sorted(rows)], caption, kinds)] if rows else []


def _curves(opened: Mapping[str, _Opened]) -> list[Block]:
    """Draw the curves that were chosen, where they are of one measure."""
    drawn = {n: [*curves_of(run.metrics).values()][:1] for n, (_, run) in opened.items()}
    known = {name: own[0] for name, own in drawn.items() if own}
    measures = [list(curve.points[-1]["train"]) for curve in known.values()]
    shared = [m for m in measures[0] if all(m in own for own in measures)] if measures else []
    if len(known) < len(opened) or not shared:
        return []
    rows = trusted(known.values(), shared[0])
    lines = [c.line(rows, shared[0], name, style=i) for i, (name, c) in enumerate(known.items())]
    title = measure_title(shared[0])
    chart = line_chart(lines, title=f"{title} of the runs", xlabel="budget", ylabel=title)
    return [Figure(chart, f"{measure_title(shared[0], True)} against the budget: {ROWS[rows]}.")]
