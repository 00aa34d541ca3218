"""The report's section on options that were chosen by cross-validation, for any method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.tuning import said
from distfms.report.content import as_entries, as_mapping, as_number
from distfms.report.formatting import count, number
from distfms.report.page import Block, Column, Figure, Section, Table, Text
from distfms.report.plots import Bar, Line, bar_chart, line_chart

_LINES_SHOWN = 8
_BARS_SHOWN = 30
_ROWS_SHOWN = 100
#: Least values of a number for a line over it.
_LINE_VALUES = 3
#: Ratio of the largest to the smallest value from which a scale is logarithmic.
_WIDE = 50.0
_RULES = {
    "best": "The rule takes the best mean.",
    "one_standard_error": (
        "The rule takes the first point in the order of the grid, its simplest, whose mean is "
        "within one standard error of the best."
    ),
}


def tuning_section(metrics: Mapping[str, Any]) -> Section:
    """Return the section; without blocks where nothing was tuned.

    Parameters
    ----------
    metrics : mapping
        Content of ``metrics.json``.
    """
    tuning = as_mapping(metrics.get("tuning"))
    points = as_entries(tuning.get("points"))
    if not points:
        return Section("", [])
    blocks: list[Block] = [Text(_words(tuning, points)), _figure(tuning, points)]
    return Section("Options tried", [*blocks, _table(tuning, points)])


def _words(tuning: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> str:
    chosen = said(as_mapping(tuning.get("chosen")))
    n_folds = len(as_entries(tuning.get("folds")))
    better = "more" if tuning.get("higher_is_better") else "less"
    return (
        f"Chosen: {chosen}. {count(len(points), 'point')} of the grid were compared on "
        f"{count(n_folds, 'fold')} of the training rows by {tuning.get('measure')} ({better} is "
        f"better). {_RULES.get(str(tuning.get('rule')), '')} The mean of a point that was chosen "
        "for it is a little too good; held-out rows tell what to expect."
    )


# --- figure -------------------------------------------------------------------------------------


def _figure(tuning: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> Figure:
    over = _number_option(points)
    title = f"{tuning.get('measure')} of the points of the grid"
    if over is None:
        return _bars(tuning, points, title)
    lines = _lines(points, over)
    if len(lines) > _LINES_SHOWN:
        return _bars(tuning, points, title)
    values = [v for line in lines for v in line.x]
    svg = line_chart(
        lines,
        title=title,
        xlabel=over,
        ylabel=str(tuning.get("measure")),
        log_x=min(values) > 0 and max(values) >= _WIDE * min(values),
    )
    return Figure(
        svg,
        f"Mean of the folds, weighed by their rows, against {over}. The ring is the point that was "
        "chosen; its line has a band of one standard error.",
    )


def _number_option(points: Sequence[Mapping[str, Any]]) -> str | None:
    """Find the option that a line runs over: the number with the most values, the first of them.

    None where no option has three, or where a zero stands beside numbers of several magnitudes.
    """
    found: dict[str, list[float | None]] = {}
    for point in points:
        for name, value in as_mapping(point.get("options")).items():
            found.setdefault(name, []).append(as_number(value))
    # A point that ends nowhere (`max_groups: null`) has no place on a line.
    values = {
        name: {v for v in own if v is not None} for name, own in found.items() if None not in own
    }
    best = max(values, key=lambda name: len(values[name]), default=None)
    if best is None or len(values[best]) < _LINE_VALUES:
        return None
    own = sorted(values[best])
    positive = [v for v in own if v > 0]
    mixed = len(positive) < len(own) and positive[-1:] >= [_WIDE * v for v in positive[:1]]
    return None if mixed else best


def _lines(points: Sequence[Mapping[str, Any]], over: str) -> list[Line]:
    """One line for each combination of the other options."""
    by_rest: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        options = as_mapping(point.get("options"))
        if as_number(options.get(over)) is not None:
            rest = said({k: v for k, v in options.items() if k != over})
            by_rest.setdefault(rest, []).append(point)
    return [_line(name or "mean of the folds", own, over) for name, own in by_rest.items()]


def _line(name: str, points: Sequence[Mapping[str, Any]], over: str) -> Line:
    own = sorted(points, key=lambda p: as_number(p["options"][over]) or 0.0)
    x = [float(p["options"][over]) for p in own]
    mean = [as_number(p.get("mean")) for p in own]
    error = [as_number(p.get("standard_error")) for p in own]
    pairs = list(zip(mean, error, strict=True))
    chosen = any(p.get("chosen") for p in own)
    return Line(
        name,
        x,
        mean,
        lower=[None if m is None or e is None else m - e for m, e in pairs] if chosen else None,
        upper=[None if m is None or e is None else m + e for m, e in pairs] if chosen else None,
        bold=chosen,
        marks=[
            (at, m)
            for at, m, p in zip(x, mean, own, strict=True)
            if p.get("chosen") and m is not None
        ],
    )


def _bars(tuning: Mapping[str, Any], points: Sequence[Mapping[str, Any]], title: str) -> Figure:
    shown = _ranked(tuning, points)[:_BARS_SHOWN]
    bars = [
        Bar(
            said(as_mapping(p.get("options"))),
            as_number(p.get("mean")) or 0.0,
            f"{number(p.get('mean'))} ± {number(p.get('standard_error'), 2)}"
            + (", chosen" if p.get("chosen") else ""),
        )
        for p in shown
    ]
    more = len(points) - len(shown)
    rest = f" {more} more are in metrics.json." if more else ""
    return Figure(
        bar_chart(bars, title=title, xlabel=str(tuning.get("measure")), n_bars=_BARS_SHOWN),
        f"Mean of the folds ± one standard error, the best first.{rest}",
    )


def _ranked(
    tuning: Mapping[str, Any], points: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Points with a mean, the best first."""
    sign = -1.0 if tuning.get("higher_is_better") else 1.0
    known = [(mean, p) for p in points if (mean := as_number(p.get("mean"))) is not None]
    return [p for _, p in sorted(known, key=lambda item: sign * item[0])]


# --- table --------------------------------------------------------------------------------------


def _table(tuning: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> Table:
    few = list(points)
    if len(few) > _ROWS_SHOWN:
        best = _ranked(tuning, points)[:_ROWS_SHOWN]
        few = [p for p in points if p in best or p.get("chosen")]
    names = list(as_mapping(points[0].get("options")))
    rows = [
        [
            *(said({n: as_mapping(p.get("options")).get(n)}).removeprefix(f"{n} ") for n in names),
            as_number(p.get("mean")),
            as_number(p.get("standard_error")),
            "chosen" if p.get("chosen") else "best mean" if p.get("best") else "",
        ]
        for p in few
    ]
    columns = [
        *(Column(name, "text") for name in names),
        Column(f"Mean {tuning.get('measure')}", "measure"),
        Column("± standard error", "measure"),
        Column("", "text"),
    ]
    more = len(points) - len(few)
    rest = f" The best {len(few)}; {more} more are in metrics.json." if more else ""
    return Table(
        columns,
        rows,
        f"The points of the grid in its order, from the simplest on.{rest}",
        emphasis=[i for i, p in enumerate(few) if p.get("chosen")],
    )
