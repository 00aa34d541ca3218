"""The report of a multi-selection, from the JSON files of its run folder.

The figures of attributes are the paper's Figures 1 and 2, and those of losses its Figures 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.multiselect.tables import (
    attribute_table,
    baseline_tables,
    chosen_point,
    explained_share,
    held_out_variance,
    is_possible,
    own_curve,
    own_name,
    path_tables,
    repeats_of,
    title_of,
)
from distfms.methods.tuning_figures import tuning_section
from distfms.report.content import (
    as_entries,
    as_mapping,
    as_number,
    curve_points,
    has_numbers,
)
from distfms.report.formatting import MISSING, count, number, percent
from distfms.report.measures import measure_tables
from distfms.report.page import (
    Block,
    Figure,
    KeyNumber,
    KeyNumbers,
    Section,
    Text,
)
from distfms.report.plots import (
    Bar,
    Line,
    Point,
    SecondScale,
    VerticalMark,
    bar_chart,
    line_chart,
    scatter_chart,
)
from distfms.report.provenance import notes, provenance_sections

SUBTITLE = "Feature multi-selection"

_STYLES = {"full": 0, "scoring": 1, "averages": 2, "copies": 3}
#: The measured losses a curve may have, the most trusted first.
_READINGS = {
    "test_loss": "held-out objects",
    "validation_loss": "cross-validation",
    "projected_loss": "projected from the training objects",
}
_MEASURES = (
    "Measures of the model. projected_loss is the unbiased estimate of the mean squared error with "
    "the chosen numbers of judgments; mse is measured on the judgments that the data hold."
)
_STATUSES = {
    "no_positive_gain": "The search ended before the budget: no further judgment lowers the loss.",
    "unaffordable": "The rest of the budget pays for no further judgment that would help.",
}
_TOO_FEW = "cannot be estimated: too few objects"
_CUT_SCALE = "The scale does not begin at zero."
_BARS_SHOWN = 30


def headline(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Say in one sentence what the budget buys.

    Parameters
    ----------
    selection, metrics : mapping
        Content of ``selection.json`` and ``metrics.json``.

    Returns
    -------
    str
    """
    n_judgments = sum(repeats_of(selection).values())
    if not n_judgments:
        return "No judgment is worth its cost: none lowers the loss"
    share, how = _explained(selection, metrics)
    whose = f"{count(n_judgments, 'judgment')} an object"
    spent = as_number(selection.get("spent"))
    one_each = spent is None or spent == n_judgments
    what = f"{count(len(repeats_of(selection)), 'attribute')} judged"
    if how == _TOO_FEW:
        bought = whose if one_each else f"A budget of {number(spent)} for {whose}"
        return f"{bought}: too few objects to estimate what that explains"
    if share is not None:
        bought = percent(share) if share > 0 else "none"
        what = f"{bought} of the label's variance"
    if one_each:
        return f"{whose} {'buys' if n_judgments == 1 else 'buy'} {what}"
    return f"A budget of {number(spent)} buys {what}, with {whose}"


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
    found = [
        Section("", [_key_numbers(selection, metrics), *_all_notes(selection, manifest)]),
        _loss_section(selection, metrics),
        _repeats_section(selection),
        _attributes_section(selection),
        Section("The model", [*measure_tables(metrics, _MEASURES), *_interval(metrics)]),
        tuning_section(metrics),
        *provenance_sections(manifest),
    ]
    return [section for section in found if section.blocks]


# --- the answer ---------------------------------------------------------------------------------


def _key_numbers(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> KeyNumbers:
    repeats = repeats_of(selection)
    share, how = _explained(selection, metrics)
    loss, reading = _final_loss(selection, metrics)
    variance = _variance_of(reading, selection, metrics)
    n_attributes = len(selection.get("attributes") or ()) or None
    return KeyNumbers(
        [
            KeyNumber(percent(share), "of the label's variance explained", how),
            KeyNumber(
                number(selection.get("spent")),
                f"spent of a budget of {number(selection.get('budget'))}",
                f"on {count(sum(repeats.values()), 'judgment')} an object",
            ),
            KeyNumber(
                number(len(repeats)),
                "attribute judged" if len(repeats) == 1 else "attributes judged",
                f"of {number(n_attributes)} offered" if n_attributes else "",
            ),
            _loss_tile(loss, reading, variance),
        ]
    )


def _loss_tile(loss: float | None, reading: str, variance: float | None) -> KeyNumber:
    if loss is not None and not is_possible(loss, variance):
        note = f"{_TOO_FEW} (the estimate, {reading}, is {number(loss)})"
        return KeyNumber(MISSING, "mean squared error", note)
    note = f"{reading}; {number(variance)} without judgments" if reading else ""
    return KeyNumber(number(loss), "mean squared error", note)


def _all_notes(selection: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[Text]:
    constant = [str(name) for name in selection.get("constant") or ()]
    others = []
    if constant:
        named = ", ".join(constant[:10]) + (" and others" if len(constant) > 10 else "")
        others.append(
            f"{count(len(constant), 'attribute')} never varied and took no part: {named}."
        )
    others += [text for key, text in _STATUSES.items() if selection.get("status") == key]
    return notes(manifest, others)


def _final_loss(
    selection: Mapping[str, Any], metrics: Mapping[str, Any]
) -> tuple[float | None, str]:
    """Return the most trusted loss of the selection, and where it comes from."""
    test = as_number(as_mapping(metrics.get("test")).get("projected_loss"))
    if test is None:
        test = as_number(as_mapping(metrics.get("test")).get("mse"))
    if test is not None:
        return test, _READINGS["test_loss"]
    validated = as_number(chosen_point(selection, metrics).get("validation_loss"))
    if validated is not None:
        return validated, _READINGS["validation_loss"]
    projected = as_number(selection.get("projected_loss"))
    return projected, _READINGS["projected_loss"] if projected is not None else ""


def _explained(
    selection: Mapping[str, Any], metrics: Mapping[str, Any]
) -> tuple[float | None, str]:
    """Return the share explained, and where it comes from or why there is none."""
    loss, reading = _final_loss(selection, metrics)
    variance = _variance_of(reading, selection, metrics)
    if loss is None or not variance:
        return None, ""
    return explained_share(loss, variance), reading if is_possible(loss, variance) else _TOO_FEW


def _variance_of(
    reading: str, selection: Mapping[str, Any], metrics: Mapping[str, Any]
) -> float | None:
    """Label variance of the objects that a loss was read from."""
    if reading == _READINGS["test_loss"]:
        return held_out_variance(selection, metrics)
    return as_number(selection.get("label_variance"))


# --- losses -------------------------------------------------------------------------------------


def _loss_section(selection: Mapping[str, Any], metrics: Mapping[str, Any]) -> Section:
    blocks: list[Block] = []
    own = own_curve(selection, metrics)
    if curve_points(own):
        blocks.append(_own_figure(selection, metrics, own))
    curves = [c for c in metrics.get("curves") or () if curve_points(c)]
    if len(curves) > 1:
        blocks.append(_comparison_figure(selection, metrics, curves))
    baselines = baseline_tables(selection, metrics)
    return Section("What a budget buys", [*blocks, *baselines])


def _own_figure(
    selection: Mapping[str, Any], metrics: Mapping[str, Any], curve: Mapping[str, Any]
) -> Figure:
    points = curve_points(curve)
    lines = _own_lines(points, _refined_point(selection, metrics))
    variance = as_number(selection.get("label_variance"))
    name = title_of(curve)
    sentences = [
        f"Mean squared error of {name} against the budget of one object. The projected loss is "
        "what the training objects promise; it is optimistic where attributes are many and objects "
        "few."
    ]
    if has_numbers(points, "lower"):
        sentences.append("The band is the interval of the cross-validated loss.")
    if _refined_point(selection, metrics):
        sentences.append(
            "Lines are those of the greedy pass; circles show the selection that it became by "
            "exchanging judgments."
        )
    if variance:
        sentences.append(
            "The right-hand scale is the share of the label's variance among the training objects "
            "that stays unexplained."
        )
    elsewhere = held_out_variance(selection, metrics)
    if has_numbers(points, "test_loss") and elsewhere != variance:
        sentences.append(f"Among the held-out objects the label's variance is {number(elsewhere)}.")
    if _loss_limits(lines, variance)[0] > 0:
        sentences.append(_CUT_SCALE)
    chart = _loss_chart(selection, lines, f"Loss of {name} against the budget", variance)
    return Figure(chart, " ".join(sentences))


def _refined_point(
    selection: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return the point of a selection that is off its path, or None."""
    return chosen_point(selection, metrics) if selection.get("refined") else None


def _own_lines(
    points: Sequence[Mapping[str, Any]], refined: Mapping[str, Any] | None
) -> list[Line]:
    """Lines of the losses of one way to spend, with a circle each for a selection off the path."""

    def line(name: str, key: str, **looks: Any) -> Line:
        end = as_number((refined or {}).get(key))
        at = as_number((refined or {}).get("budget"))
        marks = [] if end is None or at is None else [(at, end)]
        return Line(name, _budgets(points), [p.get(key) for p in points], marks=marks, **looks)

    lines = [line("projected", "projected_loss", style=0, dashed=True)]
    if has_numbers(points, "validation_loss"):
        lower, upper = [p.get("lower") for p in points], [p.get("upper") for p in points]
        band = {"lower": lower, "upper": upper}
        lines.append(line("cross-validated", "validation_loss", **band, style=1, bold=True))
    if has_numbers(points, "test_loss"):
        lines.append(line("held-out objects", "test_loss", style=2))
    return lines


def _comparison_figure(
    selection: Mapping[str, Any],
    metrics: Mapping[str, Any],
    curves: Sequence[Mapping[str, Any]],
) -> Figure:
    key, reading = next(
        (key, text)
        for key, text in _READINGS.items()
        if key == "projected_loss" or all(has_numbers(curve_points(c), key) for c in curves)
    )
    own = own_name(selection)
    lines = []
    for i, curve in enumerate(curves):
        points = curve_points(curve)
        name = str(curve.get("name"))
        lines.append(
            Line(
                title_of(curve),
                _budgets(points),
                [p.get(key) for p in points],
                style=_STYLES.get(name, 4 + i % 4),
                bold=name == own,
            )
        )
    variance = _variance_of(reading, selection, metrics)
    cut = f" {_CUT_SCALE}" if _loss_limits(lines, variance)[0] > 0 else ""
    return Figure(
        _loss_chart(selection, lines, "Loss of all ways to spend the budget", variance),
        f"All ways to spend the same budget, by their loss: {reading}. The chosen one is the "
        f"thicker line.{cut}",
    )


def _budgets(points: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the budgets of a curve's points; what was spent where they name none."""
    return [p.get("spent") if p.get("budget") is None else p["budget"] for p in points]


def _loss_chart(
    selection: Mapping[str, Any], lines: Sequence[Line], title: str, variance: float | None
) -> str:
    budget = as_number(selection.get("budget"))
    marks = [] if budget is None else [VerticalMark(budget, f"budget {number(budget)}")]
    return line_chart(
        lines,
        title=title,
        xlabel="budget of one object",
        ylabel="mean squared error",
        marks=marks,
        second_scale=SecondScale("of the label's variance", variance) if variance else None,
        y_limits=_loss_limits(lines, variance),
    )


def _loss_limits(lines: Sequence[Line], variance: float | None) -> tuple[float, float]:
    """Range of a chart of losses: from zero, unless all of them are far from it."""
    values = [
        v
        for line in lines
        for ys in (line.y, line.lower or (), line.upper or (), [y for _, y in line.marks])
        for y in ys
        if (v := as_number(y)) is not None
    ]
    top, bottom = max(values, default=1.0), min(values, default=0.0)
    if variance:
        # A loss far above the label's own variance is told by leaving the chart, if not all are.
        top, bottom = min(top, max(1.3 * variance, 1.1 * bottom)), max(bottom, -0.25 * variance)
    if 0 <= bottom < 0.5 * top or bottom >= top:
        top, bottom = max(top, 0.0) or 1.0, 0.0
    margin = 0.06 * (top - bottom)
    return (bottom - margin if bottom else 0.0), top + margin


# --- what to buy --------------------------------------------------------------------------------


def _repeats_section(selection: Mapping[str, Any]) -> Section:
    repeats = repeats_of(selection)
    if not repeats:
        return Section("What to buy", [])
    costs = {
        str(a.get("name")): as_number(a.get("cost"))
        for a in as_entries(selection.get("attributes"))
    }
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    bars = [Bar(name, r, _bar_label(r, costs.get(name))) for name, r in ranked]
    more = len(bars) - _BARS_SHOWN
    rest = f" The {_BARS_SHOWN} with most; {more} more are in the table." if more > 0 else ""
    blocks: list[Block] = [
        Figure(
            bar_chart(
                bars,
                title="Judgments to buy of each attribute",
                xlabel="judgments of one object",
                n_bars=_BARS_SHOWN,
            ),
            f"How many judgments of each attribute to buy for one object.{rest}",
        )
    ]
    return Section("What to buy", [*blocks, *path_tables(selection)])


def _bar_label(repeats: int, cost: float | None) -> str:
    if cost is None or cost == 1:
        return str(repeats)
    return f"{repeats} × {number(cost)} = {number(repeats * cost)}"


# --- attributes ---------------------------------------------------------------------------------


def _attributes_section(selection: Mapping[str, Any]) -> Section:
    attributes = as_entries(selection.get("attributes"))
    if not attributes:
        return Section("The attributes", [])
    return Section(
        "The attributes",
        [*_attribute_figure(selection, attributes), attribute_table(selection, attributes)],
    )


def _attribute_figure(
    selection: Mapping[str, Any], attributes: Sequence[Mapping[str, Any]]
) -> list[Figure]:
    repeats = repeats_of(selection)
    points = []
    for attribute in attributes:
        b, v, sigma = (as_number(attribute.get(key)) for key in ("b", "v", "sigma"))
        if b is None or v is None or not sigma:
            continue
        name = str(attribute.get("name"))
        r = repeats.get(name, 0)
        tip = f"{name}: b̂/σ̂ = {number(b / sigma)}, v̂/σ̂ = {number(v / sigma)}, r = {r}"
        points.append(Point(name, v / sigma, b / sigma, r, tip))
    if not points:
        return []
    left = len(attributes) - len(points)
    noise = [p.x for p in points]
    spread = min(noise) > 0 and max(noise) > 30 * min(noise)
    svg = scatter_chart(
        points,
        title="Correlation with the label against the noise of the judgments, by attribute",
        xlabel="rater disagreement  v̂ / σ̂",
        ylabel="correlation with the label  b̂ / σ̂",
        log_x=spread,
    )
    undrawn = (
        f" {count(left, 'attribute')} without external variance (σ̂ = 0) cannot be drawn."
        if left
        else ""
    )
    return [
        Figure(
            svg,
            "Each attribute by how much raters disagree about it (left: little) and how closely it "
            "goes with the label (far from 0: closely). Filled points are bought, their area shows "
            f"how often; hollow ones are not.{undrawn}",
        )
    ]


def _interval(metrics: Mapping[str, Any]) -> list[Text]:
    train = as_mapping(metrics.get("train"))
    interval = as_mapping(train.get("projected_loss_interval"))
    ends = [as_number(interval.get(key)) for key in ("level", "lower", "upper")]
    if any(end is None for end in ends):
        return []
    level, lower, upper = ends
    estimate = as_number(interval.get("estimate"))
    of = "of the training objects" if estimate is None else f"of the selection, {number(estimate)},"
    # With psd: nearest the two losses are of different covariances; without, they are one.
    table = as_number(train.get("projected_loss"))
    why = ""
    if estimate is not None and table is not None and not math.isclose(estimate, table):
        why = (
            " It is of the covariance made positive semi-definite, on which the selection was "
            "made; the table's is of the covariance as estimated."
        )
    return [
        Text(
            f"The projected loss {of} lies between {number(lower)} and {number(upper)} with "
            f"{percent(level)} confidence (jackknife over the folds).{why}"
        )
    ]
