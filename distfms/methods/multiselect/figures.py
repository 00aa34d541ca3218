"""The report of a multi-selection, from the JSON files of its run folder.

The figures of attributes are the paper's Figures 1 and 2, and those of losses its Figures 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.contract import FinishedRun
from distfms.report.curves import Curve, comparison_chart, more, of_name, value_range
from distfms.report.formatting import MISSING, as_number, count, number, percent
from distfms.report.measures import measure_tables, without_empty_columns
from distfms.report.page import Block, Column, Figure, KeyNumber, KeyNumbers, Section, Table, Text
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
from distfms.report.provenance import notes
from distfms.report.tuning import tuning_section

SUBTITLE = "Feature multi-selection"

Json = Mapping[str, Any]

_TITLES = {"full": "Full", "scoring": "Scoring", "averages": "Averages", "copies": "Copies"}
_STYLES = {"full": 0, "scoring": 1, "averages": 2, "copies": 3}
#: The losses a curve may have, the most trusted first.
_READINGS = {
    "test_loss": "held-out objects",
    "validation_loss": "cross-validation",
    "projected_loss": "projected from the training objects",
}
_STATUSES = {
    "no_positive_gain": "The search ended before the budget: no further judgment lowers the loss.",
    "unaffordable": "The rest of the budget pays for no further judgment that would help.",
}
_TOO_FEW = "too few objects to estimate it"
_NAMES_SAID = 3
_BARS_SHOWN = 30
_PATH_SHOWN = 60
_ATTRIBUTES_SHOWN = 1000
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to buy, and what it explains."""
    repeats = repeats_of(run.selection)
    if not repeats:
        return "No judgment is worth its cost: none lowers the loss"
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    parts = [f"{r} of {name}" for name, r in ranked[:_NAMES_SAID]]
    parts[0] = f"{count(ranked[0][1], 'judgment')} of {ranked[0][0]}"
    rest = ranked[_NAMES_SAID:]
    if rest:
        others = count(len(rest), "other attribute")
        parts.append(f"{number(sum(r for _, r in rest))} of {others}")
    bought = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    loss = Loss.of(run)
    if not loss.is_possible:
        return f"Buy {bought}: {_TOO_FEW}"
    return f"Buy {bought}: {percent(loss.explained)} of the label's variance explained"


def sections(run: FinishedRun) -> list[Section]:
    """Return the sections of the report."""
    selection, metrics = run.selection, run.metrics
    measures = measure_tables(
        metrics,
        "Measures of the model. projected_loss is the unbiased estimate of the mean squared error "
        "with the chosen numbers of judgments; mse is measured on the judgments in the data.",
    )
    return [
        Section("", [_key_numbers(run), *_notes(run)]),
        Section("What a budget buys", _loss_blocks(run)),
        Section("What to buy", _repeats_blocks(selection)),
        Section("The attributes", _attribute_blocks(selection)),
        Section("The model", [*measures, *_interval(metrics["train"])]),
        tuning_section(metrics),
    ]


def repeats_of(selection: Json) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase."""
    order = dict.fromkeys(step["attribute"] for step in selection["path"])
    bought = [*order, *(name for name in selection["repeats"] if name not in order)]
    return {name: r for name in bought if (r := selection["repeats"].get(name, 0)) > 0}


# --- the answer ---------------------------------------------------------------------------------


class Loss:
    """The most trusted loss of the selection, and where it comes from.

    Parameters
    ----------
    value, variance : float
        The loss, and the label's variance among the same objects.
    reading : str
    """

    def __init__(self, value: float, variance: float, reading: str) -> None:
        self.value, self.variance, self.reading = value, variance, reading

    @classmethod
    def of(cls, run: FinishedRun) -> Loss:
        """Find it in the files of a run."""
        test, chosen = run.metrics["test"], run.metrics["chosen"]
        if test is not None:
            for key in ("projected_loss", "mse"):
                value = as_number(test[key])
                if value is not None:
                    return cls(value, test["label_variance"], _READINGS["test_loss"])
        variance = run.selection["label_variance"]
        for key in ("validation_loss", "projected_loss"):
            value = as_number(chosen.get(key))
            if value is not None:
                return cls(value, variance, _READINGS[key])
        projected = run.selection["projected_loss"]
        return cls(projected, variance, _READINGS["projected_loss"])

    @property
    def is_possible(self) -> bool:
        """Whether a model can have it: an unbiased estimate from few objects falls below 0."""
        return self.value >= -_ROUNDING * self.variance

    @property
    def explained(self) -> float | None:
        """Share of the label's variance that it leaves explained, at most 1."""
        if not self.is_possible or not self.variance:
            return None
        return min(1 - self.value / self.variance, 1.0)


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    selection, repeats, loss = run.selection, repeats_of(run.selection), Loss.of(run)
    how = loss.reading if loss.is_possible else _TOO_FEW
    found = f"{loss.reading}; {number(loss.variance)} without judgments"
    if not loss.is_possible:
        found = f"{_TOO_FEW} (the estimate, {loss.reading}, is {number(loss.value)})"
    judged = "attribute judged" if len(repeats) == 1 else "attributes judged"
    return KeyNumbers(
        [
            KeyNumber(percent(loss.explained), "of the label's variance explained", how),
            KeyNumber(
                number(selection["spent"]),
                f"spent of a budget of {number(selection['budget'])}",
                f"on {count(sum(repeats.values()), 'judgment')} of each object",
            ),
            KeyNumber(
                number(len(repeats)), judged, f"of {number(len(selection['attributes']))} offered"
            ),
            KeyNumber(
                number(loss.value) if loss.is_possible else MISSING, "mean squared error", found
            ),
        ]
    )


def _notes(run: FinishedRun) -> list[Text]:
    constant, others = run.selection["constant"], []
    if constant:
        named = ", ".join(constant[:10]) + (" and others" if len(constant) > 10 else "")
        others.append(
            f"{count(len(constant), 'attribute')} never varied and took no part: {named}."
        )
    others += [text for key, text in _STATUSES.items() if run.selection["status"] == key]
    return notes(run.manifest, others)


# --- losses -------------------------------------------------------------------------------------


def _loss_blocks(run: FinishedRun) -> list[Block]:
    selection, metrics = run.selection, run.metrics
    curves = [Curve.of(entry, "budget") for entry in metrics["curves"] if entry["points"]]
    blocks: list[Block] = []
    own = of_name(curves, selection["algorithm"])
    if own is not None:
        blocks.append(_own_figure(run, own))
    if len(curves) > 1:
        blocks.append(_comparison_figure(run, curves))
    return [*blocks, *_baseline_tables(run)]


def _own_figure(run: FinishedRun, curve: Curve) -> Figure:
    selection, test = run.selection, run.metrics["test"]
    refined = run.metrics["chosen"] if selection["refined"] else {}
    variance, name = selection["label_variance"], _title(curve.name)
    looks: dict[str, dict[str, Any]] = {
        "projected_loss": {"style": 0, "dashed": True},
        "validation_loss": {"style": 1, "bold": True},
        "test_loss": {"style": 2},
    }
    names = {"projected_loss": "projected", "validation_loss": "cross-validated"}
    lines = [
        curve.line(key, names.get(key, _READINGS[key]), marked=refined.get(key), **look)
        for key, look in looks.items()
        if curve.has(key)
    ]
    caption = [
        f"Mean squared error of {name} against the budget of one object. The projected loss is "
        "what the training objects promise; it is optimistic where attributes are many and objects "
        "few. The right-hand scale is the share of the label's variance among the training objects "
        "that stays unexplained."
    ]
    if curve.has("lower"):
        caption.append("The band is the interval of the cross-validated loss.")
    if refined:
        caption.append(
            "Lines are those of the greedy pass; circles show the selection that it became by "
            "exchanging judgments."
        )
    if test is not None and curve.has("test_loss"):
        elsewhere = number(test["label_variance"])
        caption.append(f"Among the held-out objects the label's variance is {elsewhere}.")
    return _loss_figure(run, lines, f"Loss of {name} against the budget", variance, caption)


def _comparison_figure(run: FinishedRun, curves: Sequence[Curve]) -> Figure:
    key = next(key for key in _READINGS if all(curve.has(key) for curve in curves))
    lines = comparison_chart(curves, key, _title, _STYLES, run.selection["algorithm"])
    caption = (
        f"All ways to spend the same budget, by their loss: {_READINGS[key]}. The chosen one is "
        "the thicker line."
    )
    test = run.metrics["test"]
    held_out = key == "test_loss" and test is not None
    variance = test["label_variance"] if held_out else run.selection["label_variance"]
    return _loss_figure(run, lines, "Loss of all ways to spend the budget", variance, [caption])


def _loss_figure(
    run: FinishedRun, lines: Sequence[Line], title: str, variance: float, caption: list[str]
) -> Figure:
    budget, limits = run.selection["budget"], _loss_limits(lines, variance)
    chart = line_chart(
        lines,
        title=title,
        xlabel="budget of one object",
        ylabel="mean squared error",
        marks=[VerticalMark(budget, f"budget {number(budget)}")],
        second_scale=SecondScale("of the label's variance", variance) if variance else None,
        y_limits=limits,
    )
    if limits[0] > 0:
        caption.append("The scale does not begin at zero.")
    return Figure(chart, " ".join(caption))


def _loss_limits(lines: Sequence[Line], variance: float) -> tuple[float, float]:
    """Range of a chart of losses: from zero, unless all of them are far from it."""
    bottom, top = value_range(lines)
    if variance:
        # A loss far above the label's own variance is told by leaving the chart, if not all are.
        top, bottom = min(top, max(1.3 * variance, 1.1 * bottom)), max(bottom, -0.25 * variance)
    if 0 <= bottom < 0.5 * top or bottom >= top:
        top, bottom = max(top, 0.0) or 1.0, 0.0
    margin = 0.06 * (top - bottom)
    return (bottom - margin if bottom else 0.0), top + margin


def _baseline_tables(run: FinishedRun) -> list[Table]:
    """Compare the selection with the baselines at the whole budget."""
    selection, metrics = run.selection, run.metrics
    if not metrics["baselines"]:
        return []
    own = {**metrics["chosen"], "repeats": selection["repeats"], "spent": selection["spent"]}
    held_out = (metrics["test"] or selection)["label_variance"]
    rows = []
    for name, entry in {selection["algorithm"]: own, **metrics["baselines"]}.items():
        losses = [as_number(entry.get(key)) for key in reversed(_READINGS)]
        last = next((loss for loss in reversed(losses) if loss is not None), math.nan)
        variance = selection["label_variance"] if losses[-1] is None else held_out
        n_judged = sum(1 for r in entry["repeats"].values() if r)
        share = Loss(last, variance, "").explained
        rows.append([_title(name), entry["spent"], n_judged, *losses, share])
    titles = ("Spent", "Attributes", "Projected loss", "Cross-validated", "Held out")
    columns = [
        Column("Way to spend", "text"),
        *(Column(title, "number") for title in titles),
        Column("Variance explained", "percent"),
    ]
    caption = (
        "The selection (bold) and the baselines at the whole budget. The share explained is that "
        "of the last loss in the row, of the label's variance among the same objects."
    )
    return [without_empty_columns(columns, rows, caption, emphasis=(0,))]


def _title(name: str) -> str:
    if name.startswith("single:"):
        return f"only {name.removeprefix('single:').strip()}"
    return _TITLES.get(name, name)


# --- what to buy --------------------------------------------------------------------------------


def _repeats_blocks(selection: Json) -> list[Block]:
    repeats = repeats_of(selection)
    if not repeats:
        return []
    costs = {a["name"]: a["cost"] for a in selection["attributes"]}
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    bars = [
        Bar(name, r, str(r) if cost == 1 else f"{r} × {number(cost)} = {number(r * cost)}")
        for name, r in ranked
        for cost in (costs[name],)
    ]
    chart = bar_chart(
        bars,
        title="Judgments to buy of each attribute",
        xlabel="judgments of one object",
        n_bars=_BARS_SHOWN,
    )
    caption = "How many judgments of each attribute to buy for one object."
    rest = more(len(bars), _BARS_SHOWN, "in the table", "with most judgments")
    return [Figure(chart, caption + rest), *_path_tables(selection)]


def _path_tables(selection: Json) -> list[Table]:
    """List the first purchases in order."""
    path, variance = selection["path"], selection["label_variance"]
    if not path:
        return []
    keys = ("count", "repeats", "cost", "spent", "projected_loss")
    rows = [
        [
            step["attribute"],
            *(step[key] for key in keys),
            Loss(step["projected_loss"], variance, "").explained,
        ]
        for step in path[:_PATH_SHOWN]
    ]
    titles = ("Number", "Its judgments so far", "Cost", "Spent", "Projected loss")
    columns = [
        Column("Judgments of", "text"),
        *(Column(title, "number") for title in titles),
        Column("Variance explained", "percent"),
    ]
    caption = "The order of purchase. Stopping anywhere gives the selection for that budget."
    if selection["refined"]:
        caption += " Exchanging judgments after the last step has improved the selection further."
    return [Table(columns, rows, caption + more(len(path), _PATH_SHOWN, "in selection.json"))]


# --- attributes ---------------------------------------------------------------------------------


def _attribute_blocks(selection: Json) -> list[Block]:
    repeats, points = repeats_of(selection), []
    deviation = math.sqrt(selection["label_variance"])
    for attribute in selection["attributes"]:
        name, b, v, sigma = (attribute[key] for key in ("name", "b", "v", "sigma"))
        if sigma and deviation:
            r, at = repeats.get(name, 0), (v / sigma, b / (sigma * deviation))
            tip = f"{name}: v̂/σ̂ = {number(at[0])}, correlation = {number(at[1])}, r = {r}"
            points.append(Point(name, *at, r, tip))
    figures: list[Block] = []
    if points:
        noise = [point.x for point in points]
        chart = scatter_chart(
            points,
            title="Correlation with the label against the noise of the judgments, by attribute",
            xlabel="rater disagreement  v̂ / σ̂",
            ylabel="correlation with the label",
            log_x=min(noise) > 0 and max(noise) > 30 * min(noise),
        )
        left = len(selection["attributes"]) - len(points)
        caption = (
            "Each attribute by how much raters disagree about it (left: little) and how closely it "
            "goes with the label (far from 0: closely). Filled points are bought, their area shows "
            "how often; hollow ones are not."
        )
        if left:
            which = count(left, "attribute")
            caption += f" {which} without variance between objects (σ̂ = 0) cannot be drawn."
        figures.append(Figure(chart, caption))
    return [*figures, _attribute_table(selection, repeats, deviation)]


def _attribute_table(selection: Json, repeats: Mapping[str, int], deviation: float) -> Table:
    """List the attributes, the most bought first."""
    rows: list[list[Any]] = []
    for a in selection["attributes"]:
        name, b, v, sigma = (a[key] for key in ("name", "b", "v", "sigma"))
        correlation = b / (sigma * deviation) if sigma and deviation else None
        noise = v / sigma**2 if sigma else None
        rest = (a[key] for key in ("cost", "mean", "mean_judgments", "n_missing"))
        rows.append([name, repeats.get(name, 0), correlation, noise, b, v, sigma, *rest])
    rows.sort(key=lambda row: (-row[1], -abs(row[2] or 0.0)))
    titles = ("r", "Correlation", "v̂/σ̂²", "b̂", "v̂", "σ̂", "Cost", "Mean", "k̄", "Missing")
    return Table(
        [Column("Attribute", "text"), *(Column(title, "number") for title in titles)],
        rows[:_ATTRIBUTES_SHOWN],
        "All attributes, the most bought first. r: judgments to buy; correlation with the label as "
        "if judged without noise; b̂: covariance with the label; v̂: variance between raters of one "
        "object; σ̂: standard deviation between objects; k̄: judgments an object has on average; "
        "missing: objects without any." + more(len(rows), _ATTRIBUTES_SHOWN, "in selection.json"),
    )


def _interval(train: Json) -> list[Text]:
    interval = train["projected_loss_interval"]
    if interval is None or as_number(interval["lower"]) is None:
        return []
    text = (
        f"The projected loss of the selection, {number(interval['estimate'])}, lies between "
        f"{number(interval['lower'])} and {number(interval['upper'])} with "
        f"{percent(interval['level'])} confidence (jackknife over the folds)."
    )
    # With psd: nearest the two losses are of different covariances; without, they are one.
    table = as_number(train["projected_loss"])
    if table is not None and not math.isclose(interval["estimate"], table):
        text += (
            " It is of the covariance made positive semi-definite, on which the selection was "
            "made; the table's is of the covariance as estimated."
        )
    return [Text(text)]
