"""The report of a multi-selection, from the JSON files of its run folder.

The figures of attributes are the paper's Figures 1 and 2, and those of losses its Figures 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distfms.methods.contract import FinishedRun
from distfms.report.curves import Curve, comparison_chart, more, of_name, value_range
from distfms.report.formatting import as_number, count, number, percent
from distfms.report.measures import measure_rows, measure_tables, without_empty_columns
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
#: The losses a curve may have, the most trusted first: on which objects, and how they are drawn.
_READINGS = {
    "test_loss": "on held-out objects",
    "validation_loss": "in cross-validation",
    "projected_loss": "projected from the training objects",
}
_LOOKS: dict[str, dict[str, Any]] = {
    "projected_loss": {"style": 0, "dashed": True},
    "validation_loss": {"style": 1, "bold": True},
    "test_loss": {"style": 2},
}
_STATUSES = {
    "no_positive_gain": "The search ended before the budget: no further judgment lowers the loss.",
    "unaffordable": "The rest of the budget pays for no further judgment that would help.",
}
_MEASURES = {
    "n_objects": "Objects",
    "label_variance": "Variance of the label",
    "projected_loss": "Loss",
    "r2": "Share explained",
    "mse": "Plain error",
}
#: Objects from which a share of the label's variance can be stated at all.
_FEW_OBJECTS = 20
_NAMES_SAID = 3
_BARS_SHOWN = 30
_PATH_SHOWN = 60
_ATTRIBUTES_SHOWN = 1000
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to buy, and what it explains of other objects."""
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
    if loss.explained is None:
        return f"Buy {bought}; {loss.why_not}"
    if loss.key == "projected_loss":
        return f"Buy {bought}; no other objects show what they explain"
    share = percent(max(loss.explained, 0.0))
    where = _READINGS[loss.key]
    return f"Buy {bought}: they explain {share} of the label's variance {where}"


def sections(run: FinishedRun) -> list[Section]:
    """Return the sections of the report."""
    return [
        Section("", [_key_numbers(run), *_notes(run)]),
        Section("What a budget buys", _loss_blocks(run)),
        Section("What to buy", _repeats_blocks(run)),
        Section("The attributes", _attribute_blocks(run.selection)),
        Section("The model", _model_blocks(run)),
        tuning_section(run.metrics),
    ]


def repeats_of(selection: Json) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase."""
    order = dict.fromkeys(step["attribute"] for step in selection["path"])
    bought = [*order, *(name for name in selection["repeats"] if name not in order)]
    return {name: r for name in bought if (r := selection["repeats"].get(name, 0)) > 0}


# --- the answer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """A loss, the variance of the label among the same objects, and their number."""

    value: float
    variance: float
    n_objects: int
    key: str = "projected_loss"

    @classmethod
    def of(cls, run: FinishedRun) -> Loss:
        """Return the most trusted loss of the selection."""
        train, test, chosen = (run.metrics[key] for key in ("train", "test", "chosen"))
        if test is not None:
            for key in ("projected_loss", "mse"):
                value = as_number(test[key])
                if value is not None:
                    return cls(value, test["label_variance"], test["n_objects"], "test_loss")
        found = as_number(chosen.get("validation_loss"))
        variance, n = run.selection["label_variance"], train["n_objects"]
        if found is not None:
            return cls(found, variance, n, "validation_loss")
        return cls(run.selection["projected_loss"], variance, n)

    @property
    def explained(self) -> float | None:
        """Share of the label's variance that it leaves explained, where that can be said.

        An unbiased estimate from few objects may fall below 0, which no model's loss can.
        """
        impossible = self.value < -_ROUNDING * self.variance
        if impossible or self.n_objects < _FEW_OBJECTS or not self.variance:
            return None
        return min(1 - self.value / self.variance, 1.0)

    @property
    def why_not(self) -> str:
        """Why there is no share."""
        objects = count(self.n_objects, "object")
        are = "is" if self.n_objects == 1 else "are"
        return f"{objects} {are} too few to say what they explain"


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    selection, repeats, loss = run.selection, repeats_of(run.selection), Loss.of(run)
    share, where = loss.explained, _READINGS[loss.key]
    optimistic = ", which is optimistic" if loss.key == "projected_loss" else ""
    variance = f"{where}; {number(loss.variance)} without judgments"
    return KeyNumbers(
        [
            KeyNumber(
                percent(share),
                "of the label's variance explained",
                loss.why_not if share is None else where + optimistic,
            ),
            KeyNumber(
                number(selection["spent"]),
                f"spent of a budget of {number(selection['budget'])}",
                f"on {count(sum(repeats.values()), 'judgment')} of each object",
            ),
            KeyNumber(
                number(len(repeats)),
                "attribute judged" if len(repeats) == 1 else "attributes judged",
                f"of {number(len(selection['attributes']))} offered",
            ),
            KeyNumber(number(loss.value), "mean squared error, estimated", variance),
        ]
    )


def _notes(run: FinishedRun) -> list[Text]:
    constant, others = run.selection["constant"], []
    if constant:
        named = ", ".join(constant[:10]) + (" and others" if len(constant) > 10 else "")
        others.append(
            f"{count(len(constant), 'attribute')} never varied and played no part: {named}."
        )
    others += [text for key, text in _STATUSES.items() if run.selection["status"] == key]
    return notes(run.manifest, others)


# --- losses -------------------------------------------------------------------------------------


def _loss_blocks(run: FinishedRun) -> list[Block]:
    curves = [Curve.of(entry, "budget") for entry in run.metrics["curves"] if entry["points"]]
    own = of_name(curves, run.selection["algorithm"])
    blocks: list[Block] = [] if own is None else [_own_figure(run, own)]
    if len(curves) > 1:
        blocks.append(_comparison_figure(run, curves))
    return [*blocks, *_baseline_tables(run)]


def _own_figure(run: FinishedRun, curve: Curve) -> Figure:
    selection, test = run.selection, run.metrics["test"]
    refined = run.metrics["chosen"] if selection["refined"] else {}
    variance, name = selection["label_variance"], _title(curve.name)
    lines = [
        curve.line(key, _READINGS[key], marked=refined.get(key), **look)
        for key, look in _LOOKS.items()
        if curve.has(key)
    ]
    caption = [
        f"Mean squared error of {name} against the budget for one object. The loss projected from "
        "the training objects is optimistic where there are many attributes and few objects. The "
        "right-hand scale gives the share of the label's variance among the training objects."
    ]
    if curve.has("lower"):
        caption.append("The band is the confidence interval of the cross-validated loss.")
    if refined:
        caption.append(
            "Lines show the greedy search; circles show the selection after judgments were "
            "exchanged."
        )
    if test is not None and curve.has("test_loss"):
        elsewhere = number(test["label_variance"])
        caption.append(f"Among the held-out objects the label's variance is {elsewhere}.")
    return _loss_figure(run, lines, f"Loss of {name} against the budget", variance, caption)


def _comparison_figure(run: FinishedRun, curves: Sequence[Curve]) -> Figure:
    key = next(key for key in _READINGS if all(curve.has(key) for curve in curves))
    lines = comparison_chart(curves, key, _title, _STYLES, run.selection["algorithm"])
    caption = (
        f"Mean squared error of all ways to spend the same budget, {_READINGS[key]}. The thicker "
        "line is the chosen one."
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
        xlabel="budget for one object",
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
        # A loss far above the label's own variance leaves the chart, unless all do.
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
    rows = []
    for name, entry in {selection["algorithm"]: own, **metrics["baselines"]}.items():
        n_judged = sum(1 for r in entry["repeats"].values() if r)
        losses = [as_number(entry.get(key)) for key in reversed(_READINGS)]
        rows.append([_title(name), entry["spent"], n_judged, *losses])
    titles = ("Spent", "Attributes", "Projected loss", "Cross-validated loss", "Held-out loss")
    columns = [Column("Way to spend", "text"), *(Column(title, "number") for title in titles)]
    variances = f"{number(selection['label_variance'])} among the training objects"
    if metrics["test"] is not None:
        variances += f", {number(metrics['test']['label_variance'])} among those held out"
    caption = (
        "The selection (bold) and the baselines at the whole budget. Without any judgment the loss "
        f"is the variance of the label: {variances}."
    )
    return [without_empty_columns(columns, rows, caption, emphasis=(0,))]


def _title(name: str) -> str:
    if name.startswith("single:"):
        return f"only {name.removeprefix('single:').strip()}"
    return _TITLES.get(name, name)


# --- what to buy --------------------------------------------------------------------------------


def _repeats_blocks(run: FinishedRun) -> list[Block]:
    repeats = repeats_of(run.selection)
    if not repeats:
        return []
    costs = {a["name"]: a["cost"] for a in run.selection["attributes"]}
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
    return [Figure(chart, caption + rest), *_path_tables(run)]


def _path_tables(run: FinishedRun) -> list[Table]:
    """List the first purchases in order."""
    path, variance = run.selection["path"], run.selection["label_variance"]
    if not path:
        return []
    keys = ("count", "repeats", "cost", "spent", "projected_loss")
    n = run.metrics["train"]["n_objects"]
    rows = [
        [
            step["attribute"],
            *(step[key] for key in keys),
            Loss(step["projected_loss"], variance, n).explained,
        ]
        for step in path[:_PATH_SHOWN]
    ]
    titles = ("Judgments", "Of it so far", "Cost", "Spent so far", "Projected loss")
    columns = [
        Column("Attribute", "text"),
        *(Column(title, "number") for title in titles),
        Column("Projected share explained", "percent"),
    ]
    caption = "The order of purchase. Stopping anywhere gives the selection for that budget."
    if run.selection["refined"]:
        caption += " Exchanging judgments after the last step has improved the selection further."
    caption += more(len(path), _PATH_SHOWN, "in selection.json")
    return [without_empty_columns(columns, rows, caption)]


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
            "follows the label (far from 0: closely). Filled circles are bought, the larger the "
            "more often; hollow ones are not."
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
    titles = ("Buy", "Correlation", "v̂/σ̂²", "b̂", "v̂", "σ̂", "Cost", "Mean", "Have", "Without")
    return Table(
        [Column("Attribute", "text"), *(Column(title, "number") for title in titles)],
        rows[:_ATTRIBUTES_SHOWN],
        "All attributes, the most bought first. Buy: judgments to buy for one object; correlation "
        "with the label as if judged without noise; b̂: covariance with the label; v̂: variance "
        "between raters of one object; σ̂: standard deviation between objects; have: judgments of "
        "an object on average; without: objects that have none."
        + more(len(rows), _ATTRIBUTES_SHOWN, "in selection.json"),
    )


# --- the model ----------------------------------------------------------------------------------


def _model_blocks(run: FinishedRun) -> list[Block]:
    rows = measure_rows(run.metrics, "objects")
    for label in [label for label in ("Training objects", "Held-out objects") if label in rows]:
        own = rows[label]
        n_complete, error = own.pop("n_objects_with_all_judgments"), own.pop("mse")
        if own["n_objects"] < _FEW_OBJECTS:
            own["r2"] = None
        if error is not None:
            rows[f"{label} that hold all judgments"] = {"n_objects": n_complete, "mse": error}
    caption = (
        "What the model loses, each row on other objects. The loss is the unbiased estimate of the "
        "mean squared error with the judgments to be bought; the plain error is measured where "
        "objects hold as many."
    )
    measures = measure_tables(rows, _MEASURES, caption)
    return [*_coefficient_tables(run), *measures, *_interval(run.metrics["train"])]


def _coefficient_tables(run: FinishedRun) -> list[Table]:
    """List the weights, those that move the prediction most first."""
    sigma = {a["name"]: a["sigma"] for a in run.selection["attributes"]}
    numbers = (run.weights[key].tolist() for key in ("repeats", "weights", "means"))
    rows = [
        [name, r, weight, weight * sigma[name], mean]
        for name, r, weight, mean in zip(run.model["attributes"], *numbers, strict=True)
    ]
    rows.sort(key=lambda row: -abs(row[3]))
    titles = ("Judgments", "Weight", "Weight × σ̂", "Training mean")
    caption = (
        f"The model. A prediction of {run.model['target']} is {number(run.model['intercept'], 6)} "
        "plus, for each attribute, its weight times the average of its judgments; for an attribute "
        "without judgments the training mean takes the place of the average. Weight × σ̂ is what "
        "one standard deviation between objects changes."
    )
    columns = [Column("Attribute", "text"), *(Column(title, "measure") for title in titles)]
    rest = more(len(rows), _ATTRIBUTES_SHOWN, "in weights.npz")
    return [Table(columns, rows[:_ATTRIBUTES_SHOWN], caption + rest)] if rows else []


def _interval(train: Json) -> list[Text]:
    interval = train["projected_loss_interval"]
    if interval is None or as_number(interval["lower"]) is None:
        return []
    text = (
        f"With {percent(interval['level'])} confidence the projected loss of the selection, "
        f"{number(interval['estimate'])}, lies between {number(interval['lower'])} and "
        f"{number(interval['upper'])} (jackknife over the folds)."
    )
    # With psd: nearest the two losses are of different covariances; without, they are one.
    table = as_number(train["projected_loss"])
    if table is not None and not math.isclose(interval["estimate"], table):
        text += (
            " It is computed with the positive semi-definite covariance that the selection was "
            "made with, the loss in the table with the covariance as estimated."
        )
    return [Text(text)]
