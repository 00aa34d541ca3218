"""The report of a group sequence, from the JSON files of its run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from distfms.methods.sequence.tables import (
    n_columns,
    own_curve,
    own_name,
    rule_title,
    sequence_table,
    timeliness_blocks,
    timeliness_of,
)
from distfms.methods.tuning_figures import tuning_section
from distfms.report.content import (
    as_entries,
    as_mapping,
    as_number,
    curve_points,
    has_numbers,
)
from distfms.report.formatting import count, number, percent
from distfms.report.measures import measure_tables
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, Section, Text
from distfms.report.plots import Bar, Line, VerticalMark, bar_chart, line_chart
from distfms.report.provenance import notes, provenance_sections

SUBTITLE = "Feature-group sequencing"

_STYLES = {"fr": 0, "omp": 1, "omp-single": 2, "omp-no-whiten": 3, "oracle": 6, "sparse": 4}
#: The shares a curve may have, the most trusted first.
_READINGS = {
    "test": "held-out rows",
    "validation": "cross-validation",
    "explained_variance": "training rows",
}
_BARS_SHOWN = 30
_LINES_SHOWN = 8
#: Share of the explained variance that is looked for where the curve has no plateau (α = 1).
_MOST = 0.95
#: Explained variance that later groups may lose on other rows before it is said.
_LOSS = 0.01
#: Measures of held-out rows beside the explained variance, as a figure names them.
_SCORES = {"accuracy": "Accuracy", "ndcg@5": "NDCG@5"}


def headline(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Say in one sentence how early the sequence explains most of what it can.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``.

    Returns
    -------
    str
    """
    steps = as_entries(selection.get("sequence"))
    if not steps:
        return "No group explains anything of the target"
    total = as_number(steps[-1].get("spent"))
    stop = _stop(selection, metrics)
    if stop is None or not total:
        share, _ = _final(selection, metrics)
        return f"{_groups(len(steps))} explain {percent(share)} of the variance"
    alpha, cost = stop
    n_groups = _groups_until(steps, cost)
    what = "of what the one group explains" if len(steps) == 1 else _of_all(len(steps))
    return (
        f"{percent(alpha)} {what} is there after {_groups(n_groups)}, "
        f"at {percent(min(1.0, cost / total))} of the whole cost"
    )


def sections(
    selection: Mapping[str, Any], metrics: Mapping[str, Any], manifest: Mapping[str, Any]
) -> list[Section]:
    """Return the sections of the report.

    Parameters
    ----------
    selection, metrics, manifest : mapping
        Content of the JSON files of the run folder. Optional keys may be missing.

    Returns
    -------
    list of Section
    """
    said = [str(note) for note in selection.get("notes") or ()]
    said += _overfitting(curve_points(own_curve(selection, metrics)))
    found = [
        Section("", [_key_numbers(selection, metrics), *notes(manifest, said)]),
        Section("What a cost buys", _curve_blocks(selection, metrics)),
        Section("The sequence", _sequence_blocks(selection)),
        Section("The model", measure_tables(metrics, "Measures of the model with all groups.")),
        tuning_section(metrics),
        *provenance_sections(manifest),
    ]
    return [section for section in found if section.blocks]


def _overfitting(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where more groups make the predictions of other rows worse."""
    known = [(value, p) for p in points if (value := as_number(p.get("validation"))) is not None]
    if not known:
        return []
    best, point = max(known, key=lambda item: item[0])
    if best - known[-1][0] <= _LOSS:
        return []
    n_groups = as_number(point.get("n_groups"))
    after = "" if n_groups is None else f" after {_groups(round(n_groups))},"
    return [
        f"In cross-validation the explained variance is best{after} at a cost of "
        f"{number(point.get('spent'))}: {percent(best, 1)}, against {percent(known[-1][0], 1)} of "
        "all groups. What comes later fits the training rows only; a larger ridge may help."
    ]


# --- the answer ---------------------------------------------------------------------------------


def _key_numbers(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> KeyNumbers:
    steps = as_entries(selection.get("sequence"))
    share, reading = _final(selection, metrics)
    total = as_number(steps[-1].get("spent")) if steps else None
    numbers = [
        KeyNumber(
            percent(share),
            "of the variance explained",
            f"by all {_groups(len(steps))}; {reading}" if reading else "",
        ),
        KeyNumber(number(total), "is the cost of all groups", f"{_columns(steps)}"),
    ]
    stop = _stop(selection, metrics)
    if stop is not None:
        alpha, cost = stop
        numbers.append(
            KeyNumber(
                number(cost),
                f"is where {percent(alpha)} of it is reached",
                f"after {_groups(_groups_until(steps, cost))}",
            )
        )
    timeliness = as_number(timeliness_of(selection, metrics).get("timeliness"))
    if timeliness is not None:
        numbers.append(
            KeyNumber(number(timeliness, 3), "timeliness", "1: all is explained at no cost")
        )
    return KeyNumbers(numbers)


def _groups(n_groups: int) -> str:
    return count(n_groups, "group")


def _of_all(n_groups: int) -> str:
    return f"of what all {_groups(n_groups)} explain"


def _columns(steps: Sequence[Mapping[str, Any]]) -> str:
    known = [n for step in steps if (n := n_columns(step)) is not None]
    return f"{_groups(len(steps))}, {count(sum(known), 'column')}" if known else ""


def _groups_until(steps: Sequence[Mapping[str, Any]], cost: float) -> int:
    """Count the groups that are computed once so much is spent, the one under way included."""
    tolerance = 1e-9 * max(1.0, abs(cost))
    before = [s for s in steps if (as_number(s.get("spent")) or 0.0) < cost - tolerance]
    return min(len(steps), len(before) + 1)


def _stop(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (α, cost at which the chosen sequence reaches it).

    Without a plateau α is 1, which needs all groups and says nothing; most of it is then asked for.
    """
    entry = timeliness_of(selection, metrics)
    alpha, cost = as_number(entry.get("alpha")), as_number(entry.get("stopping_cost"))
    if alpha is None or cost is None:
        return None
    return (alpha, cost) if alpha < 1 else _most(selection) or (alpha, cost)


def _most(selection: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (share, cost of the first prefix that has so much of what all groups explain)."""
    steps = as_entries(selection.get("sequence"))
    final = as_number(steps[-1].get("explained_variance")) if steps else None
    for step in steps:
        share, cost = as_number(step.get("explained_variance")), as_number(step.get("spent"))
        if final and cost is not None and share is not None and share >= _MOST * final:
            return _MOST, cost
    return None


def _final(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return the most trusted share that all groups explain, and where it comes from."""
    points = curve_points(own_curve(selection, metrics))
    for key, reading in _READINGS.items():
        share = as_number(points[-1].get(key)) if points else None
        if share is not None:
            return share, reading
    return None, ""


# --- curves -------------------------------------------------------------------------------------


def _curve_blocks(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    curves = [c for c in as_entries(metrics.get("curves")) if curve_points(c)]
    # The oracle reorders gains of the training rows; it is no rule that could be followed.
    rules = [c for c in curves if c.get("name") != "oracle"]
    if len(rules) > 1:
        blocks.append(_comparison_figure(selection, metrics, rules))
    own = own_curve(selection, metrics)
    if curve_points(own):
        oracle = next((c for c in curves if c.get("name") == "oracle"), {})
        blocks.append(_own_figure(selection, metrics, own, oracle))
        blocks.extend(_score_figure(selection, metrics, own, key) for key in _known_scores(own))
    return [*blocks, *timeliness_blocks(selection, metrics)]


def _comparison_figure(
    selection: Mapping[str, Any],
    metrics: Mapping[str, Any],
    curves: Sequence[Mapping[str, Any]],
) -> Figure:
    key, reading = next(
        (key, text)
        for key, text in _READINGS.items()
        if key == "explained_variance" or all(has_numbers(curve_points(c), key) for c in curves)
    )
    own = own_name(selection, metrics)
    first = sorted(curves, key=lambda c: (c.get("name") != own, c.get("name") not in _STYLES))
    shown = [c for c in curves if c in first[:_LINES_SHOWN]]
    taken = {_STYLES.get(str(c.get("name"))) for c in shown}
    free = [i for i in range(8) if i not in taken]
    lines, n_unknown = [], 0
    for curve in shown:
        name = str(curve.get("name"))
        style = _STYLES.get(name)
        if style is None:
            style = free[n_unknown % len(free)]
            n_unknown += 1
        lines.append(_line(curve, key, rule_title(name), style, name == own, metrics))
    left = len(curves) - len(shown)
    more = f" {left} more {'is' if left == 1 else 'are'} in metrics.json." if left else ""
    return Figure(
        _chart(lines, selection, metrics, "Explained variance of all rules against cost"),
        f"Explained variance against the cost spent, for all rules: {reading}. The chosen sequence "
        f"is the thicker line; rings mark where each rule is told to stop.{more}",
    )


def _line(
    curve: Mapping[str, Any],
    key: str,
    title: str,
    style: int,
    bold: bool,
    metrics: Mapping[str, Any],
) -> Line:
    points = curve_points(curve)
    x = [p.get("spent") for p in points]
    y = [p.get(key) for p in points]
    entry = as_mapping(as_mapping(metrics.get("timeliness")).get(str(curve.get("name"))))
    stop = as_number(entry.get("stopping_cost"))
    height = None if stop is None else _value_at(stop, x, y)
    marks = [] if stop is None or height is None else [(stop, height)]
    return Line(title, x, y, style=style, bold=bold, marks=marks)


def _value_at(cost: float, x: Sequence[Any], y: Sequence[Any]) -> float | None:
    """Value of a curve at a cost, linear between its points as timeliness takes it."""
    known = [
        (a, b)
        for a, b in ((as_number(p), as_number(q)) for p, q in zip(x, y, strict=True))
        if a is not None and b is not None
    ]
    for (x0, y0), (x1, y1) in pairwise(known):
        if x0 <= cost <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (cost - x0) / (x1 - x0)
    return None


def _own_figure(
    selection: Mapping[str, Any],
    metrics: Mapping[str, Any],
    curve: Mapping[str, Any],
    oracle: Mapping[str, Any],
) -> Figure:
    points = curve_points(curve)
    spent = [p.get("spent") for p in points]
    names = {
        "explained_variance": "training rows",
        "validation": "cross-validated",
        "test": "held-out rows",
    }
    lines = [
        Line(name, spent, [p.get(key) for p in points], style=i, dashed=i == 0, bold=key == "test")
        for i, (key, name) in enumerate(names.items())
        if has_numbers(points, key)
    ]
    if len(lines) == 1:
        lines = [Line(lines[0].name, lines[0].x, lines[0].y, style=0, bold=True)]
    said = (
        "The chosen sequence by itself. Where the lines part, later groups fit the training rows "
        "and not what is behind them."
    )
    points = curve_points(oracle)
    if points:
        x, y = ([p.get(key) for p in points] for key in ("spent", "explained_variance"))
        style = _STYLES["oracle"]
        lines.append(Line(f"{rule_title('oracle')}, training rows", x, y, style=style, dashed=True))
        said += (
            " The oracle order sorts the steps by what they turned out to gain per cost, as if the "
            "gains stayed what they were: an approximate bound of what this rule could reach."
        )
    return Figure(
        _chart(lines, selection, metrics, "Explained variance of the chosen sequence"), said
    )


def _known_scores(curve: Mapping[str, Any]) -> list[str]:
    return [key for key in _SCORES if has_numbers(curve_points(curve), key)]


def _score_figure(
    selection: Mapping[str, Any], metrics: Mapping[str, Any], curve: Mapping[str, Any], key: str
) -> Figure:
    points = [p for p in curve_points(curve) if as_number(p.get(key)) is not None]
    x, y = [p.get("spent") for p in points], [p.get(key) for p in points]
    name = _SCORES[key]
    stop = _stop(selection, metrics)
    chart = line_chart(
        [Line(name, x, y, style=0, bold=True)],
        title=f"{name} of the chosen sequence on held-out rows",
        xlabel="cost spent",
        ylabel=name,
        marks=[] if stop is None else [VerticalMark(stop[1], f"{percent(stop[0])} reached")],
        y_percent=key == "accuracy",
    )
    return Figure(chart, f"{name} of the chosen sequence on held-out rows, against the cost spent.")


def _chart(
    lines: Sequence[Line], selection: Mapping[str, Any], metrics: Mapping[str, Any], title: str
) -> str:
    stop = _stop(selection, metrics)
    marks = [] if stop is None else [VerticalMark(stop[1], f"{percent(stop[0])} reached")]
    values = [v for line in lines for y in line.y if (v := as_number(y)) is not None]
    top, bottom = max(values, default=1.0), min(values, default=0.0)
    return line_chart(
        lines,
        title=title,
        xlabel="cost spent",
        ylabel="explained variance",
        marks=marks,
        # An extrapolating prefix can be far below nothing explained; the chart need not follow it.
        y_limits=(max(min(0.0, bottom), -0.5), 1.08 * top if top > 0 else None),
        y_percent=True,
    )


# --- the sequence -------------------------------------------------------------------------------


def _sequence_blocks(selection: Mapping[str, Any]) -> list[Block]:
    steps = as_entries(selection.get("sequence"))
    if not steps:
        return []
    bars = [
        Bar(f"{i}. {step.get('group')}", share, f"+{percent(share, 2)} for {_price(step)}")
        for i, (step, share) in enumerate(zip(steps, _added_shares(steps), strict=True), start=1)
        if share is not None
    ]
    more = len(bars) - _BARS_SHOWN
    rest = f" The first {_BARS_SHOWN}; {more} more are in the table." if more > 0 else ""
    blocks: list[Block] = [Text(_rule(selection))]
    if bars:
        chart = bar_chart(
            bars,
            title="Explained variance that each group adds",
            xlabel="explained variance added",
            n_bars=_BARS_SHOWN,
        )
        caption = f"What each group adds to the explained variance, in order, and its cost.{rest}"
        blocks.append(Figure(chart, caption))
    return [*blocks, sequence_table(steps)]


def _price(step: Mapping[str, Any]) -> str:
    return number(step.get("cost"))


def _added_shares(steps: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Explained variance that each step adds to the one before."""
    shares = [0.0, *(as_number(step.get("explained_variance")) for step in steps)]
    return [None if a is None or b is None else b - a for a, b in pairwise(shares)]


def _rule(selection: Mapping[str, Any]) -> str:
    name = str(selection.get("criterion"))
    parts = [f"Rule: {rule_title(name)}"]
    parts.append("gain per cost" if selection.get("cost_aware", True) else "cost-blind")
    if selection.get("doubling"):
        parts.append("doubling")
    ridge = as_number(selection.get("ridge"))
    if ridge is not None:
        parts.append(f"ridge {number(ridge)}")
    if selection.get("family"):
        parts.append(f"{selection['family']} family")
    return f"{', '.join(parts)}. Interrupted at any cost, use the groups computed so far."
