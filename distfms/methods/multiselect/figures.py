"""The report of a multi-selection, from the JSON files of its run folder.

The figures of attributes are the paper's Figures 1 and 2, and those of losses its Figures 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.multiselect.answer_figures import (
    FEW_OBJECTS,
    READINGS,
    answer_blocks,
    title_of,
)
from distfms.methods.multiselect.answer_figures import headline as headline
from distfms.report.formatting import count, number
from distfms.report.metrics import (
    Curve,
    curves_of,
    measure_rows,
    measured,
    more,
    tables_of,
    trusted,
    value_range,
)
from distfms.report.page import Block, Figure, PageSection, Table, Text
from distfms.report.plots import Line, line_chart

SUBTITLE = "Feature multi-selection"

_LOSS = "projected_loss"
_LOOKS: dict[str, dict[str, Any]] = {
    "train": {"style": 0, "dashed": True},
    "validation": {"style": 1, "bold": True},
    "test": {"style": 2},
}
_MEASURES = {
    "n_objects": "Objects",
    "label_variance": "Variance of the label",
    "projected_loss": "Loss",
    "loss_of_mean": "Loss of the mean label",
    "r2": "Share explained",
    "mse": "Plain error",
}
_ATTRIBUTES_SHOWN = 1000
#: Attributes with a name in the figure.
_NAMED = 14
#: Attributes whose noise correlations are shown, at most.
_SHOWN_TOGETHER = 20
_BOUGHT_FROM = {
    "loss_independent": "bought from independent raters",
    "loss_same": "bought from the same raters",
}


def sections(run: FinishedRun) -> list[PageSection]:
    """Return the sections of the report."""
    return [
        PageSection("", answer_blocks(run)),
        PageSection("What a budget buys", _loss_blocks(run)),
        PageSection("The attributes", _attribute_blocks(run)),
        PageSection("Who judges", rater_blocks(run)),
        PageSection("The model", _model_blocks(run)),
    ]


# --- losses -------------------------------------------------------------------------------------


def _loss_blocks(run: FinishedRun) -> list[Block]:
    curves = curves_of(run.metrics)
    chosen = curves.get(run.selection["algorithm"])
    blocks: list[Block] = [] if chosen is None else [_own_figure(run, chosen)]
    drawn = list(curves.values())
    if len(drawn) > 1:
        rows = trusted(drawn, _LOSS)
        caption = f"Mean squared error of all ways to spend the same budget, {READINGS[rows]}."
        blocks.append(_comparison_figure(run, drawn, rows, caption))
    return [*blocks, *_baseline_tables(run)]


def _own_figure(run: FinishedRun, curve: Curve) -> Figure:
    name = title_of(curve.name)
    lines = [
        curve.line(rows, _LOSS, READINGS[rows], **look)
        for rows, look in _LOOKS.items()
        if curve.has(rows, _LOSS)
    ]
    caption = [
        f"Mean squared error of {name} against the budget for one object. The loss projected from "
        "the training objects is optimistic with many attributes and few objects."
    ]
    if curve.has("validation", "lower"):
        caption.append("The band is the confidence interval of the cross-validated loss.")
    return _loss_figure(run, lines, f"Loss of {name} against the budget", caption)


def _comparison_figure(
    run: FinishedRun, curves: Sequence[Curve], rows: str, caption: str
) -> Figure:
    lines = []
    for curve in curves:
        is_chosen = curve.name == run.selection["algorithm"]
        losses = curve.values(rows, _LOSS)
        lines.append(Line(title_of(curve.name), curve.x, losses, bold=is_chosen))
    caption = f"{caption} Thick line: the chosen way."
    return _loss_figure(run, lines, "Loss of all ways to spend the budget", [caption])


def _loss_figure(run: FinishedRun, lines: Sequence[Line], title: str, caption: list[str]) -> Figure:
    budget = run.selection["budget"]
    variance = run.selection["label_variance"]
    bottom, top = value_range(lines)
    # A loss far from the label's own variance leaves the chart, unless all do.
    top = min(top, max(1.3 * variance, 1.1 * bottom))
    bottom = max(bottom, -0.25 * variance)
    if cut := 0.5 * top <= bottom < top:
        caption.append("The scale does not begin at zero.")
    chart = line_chart(
        lines,
        title=title,
        xlabel="budget for one object",
        ylabel="mean squared error",
        marks={f"budget {number(budget)}": budget},
        y_limits=(0.97 * bottom if cut else min(bottom, 0.0), max(1.03 * top, 0.0) or 1.0),
    )
    return Figure(chart, " ".join(caption))


def _baseline_tables(run: FinishedRun) -> list[Table]:
    """Compare the selection with the baselines at the whole budget."""
    selection = run.selection
    metrics = run.metrics
    if not metrics["baselines"]:
        return []
    chosen = {**metrics["chosen"], "repeats": selection["repeats"], "spent": selection["spent"]}
    rows = [
        {
            "Way to spend": title_of(name),
            "Spent": entry["spent"],
            "Attributes": len(entry["repeats"]),
            "Projected loss": measured(entry, "train", _LOSS),
            "Cross-validated loss": measured(entry, "validation", _LOSS),
            "Held-out loss": measured(entry, "test", _LOSS),
        }
        for name, entry in {selection["algorithm"]: chosen, **metrics["baselines"]}.items()
    ]
    variances = f"{number(selection['label_variance'])} among the training objects"
    if metrics["test"] is not None:
        variances += f", {number(metrics['test']['label_variance'])} among those held out"
    caption = (
        "The selection (bold) and the baselines at the whole budget. Without any judgment the loss "
        f"is the variance of the label: {variances}."
    )
    return [Table(rows, caption, emphasis=(0,))]


# --- attributes ---------------------------------------------------------------------------------


def _attribute_blocks(run: FinishedRun) -> list[Block]:
    rows = _attribute_rows(run)
    caption = (
        "All attributes, the most bought first. Buy: judgments to buy for one object; weight: "
        "multiplies the average of the judgments (the mean where there are none) in the "
        f"prediction of {run.model['target']}, whose intercept is "
        f"{number(run.model['intercept'], 6)}; correlation with the label as if judged without "
        "noise; reliability: share of the variance of an average that is between objects, as in a "
        "D-study, for what is bought or, where nothing is, one judgment; b̂: covariance with the "
        "label; v̂: variance between raters of one object; σ̂: "
        "standard deviation between objects; have: judgments of an object on average; without: "
        "objects that have none."
    )
    caption += more(len(rows), _ATTRIBUTES_SHOWN, "in selection.json")
    table = Table(rows[:_ATTRIBUTES_SHOWN], caption)
    return [*_attribute_figures(rows), table]


def _reliability(attribute: Mapping[str, Any], n_judgments: int) -> float | None:
    """Return the share of the variance of an average that is between objects (of a D-study)."""
    between = attribute["sigma"] ** 2
    return between / (between + attribute["v"] / n_judgments) if between else None


def _attribute_rows(run: FinishedRun) -> list[dict[str, Any]]:
    """Return what is known of each attribute, the most bought first."""
    selection = run.selection
    deviation = math.sqrt(run.selection["label_variance"])
    weights = dict(zip(run.model["attributes"], run.weights["weights"].tolist(), strict=True))
    rows = [
        {
            "Attribute": a["name"],
            "Buy": selection["repeats"].get(a["name"], 0),
            "Weight": weights.get(a["name"]),
            "Correlation": a["b"] / (a["sigma"] * deviation) if a["sigma"] and deviation else None,
            "v̂/σ̂²": a["v"] / a["sigma"] ** 2 if a["sigma"] else None,
            "Reliability": _reliability(a, max(1, selection["repeats"].get(a["name"], 0))),
            "b̂": a["b"],
            "v̂": a["v"],
            "σ̂": a["sigma"],
            "Cost": a["cost"],
            "Mean": a["mean"],
            "Have": a["mean_judgments"],
            "Without": a["n_missing"],
        }
        for a in selection["attributes"]
    ]
    return sorted(rows, key=lambda row: (-row["Buy"], -abs(row["Correlation"] or 0.0)))


def _attribute_figures(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Draw attributes, the most bought with their names."""
    drawn = [row for row in rows if row["Correlation"] is not None]
    if not drawn:
        return []
    named = {row["Attribute"] for row in drawn[:_NAMED]}
    drawn.sort(key=lambda row: row["v̂"] / row["σ̂"])
    noise = [row["v̂"] / row["σ̂"] for row in drawn]
    correlations = [row["Correlation"] for row in drawn]
    tips = []
    for row in drawn:
        facts = f"correlation {number(row['Correlation'])}, r = {row['Buy']}"
        tips.append(f"{row['Attribute']}: {facts}")
    attributes = Line(
        "attributes",
        noise,
        correlations,
        names=[row["Attribute"] if row["Attribute"] in named else "" for row in drawn],
        sizes=[row["Buy"] for row in drawn],
        tips=tips,
    )
    lines = [attributes]
    if min(correlations) < 0 < max(correlations):
        lines.append(Line("", [noise[0], noise[-1]], [0.0, 0.0], faint=True))
    chart = line_chart(
        lines,
        title="Correlation with the label against the noise of the judgments, by attribute",
        xlabel="rater disagreement  v̂ / σ̂",
        ylabel="correlation with the label",
        log_x=noise[0] > 0 and noise[-1] > 30 * noise[0],
    )
    caption = (
        "Attributes by rater disagreement (left: little) and by correlation with the label (far "
        "from 0: strong). Filled circles: bought, larger for more judgments. Hollow circles: not "
        "bought."
    )
    n_left = len(rows) - len(drawn)
    if n_left:
        which = count(n_left, "attribute")
        caption += f" {which} without variance between objects (σ̂ = 0) cannot be drawn."
    return [Figure(chart, caption)]


# --- who judges -----------------------------------------------------------------------------------


def rater_blocks(run: FinishedRun) -> list[Block]:
    """Show what raters who judge several attributes share, and what it does to the loss."""
    train = run.metrics["train"]["raters"]
    test = (run.metrics["test"] or {}).get("raters")
    if not train["known"]:
        return [
            Text(
                "Raters are unknown, so judgments count as independent, as if no rater judged two "
                "attributes of an object. If some did, attributes share their raters' errors and "
                "these losses are wrong, mostly too small. `distfms check` shows how to name "
                "raters."
            )
        ]
    whose = "the same raters" if train["buy_from"] == "same" else "independent raters"
    rows = [
        {
            "Judgments": label,
            "Loss on training objects": train[key],
            "Held-out loss": test and test[key],
        }
        for key, label in _BOUGHT_FROM.items()
    ]
    caption = (
        f"Loss of the model, with judgments to be bought from {whose} (bold). Same raters: rater j "
        "judges every attribute bought j times or more. Independent raters: each gives one "
        "judgment of an object."
    )
    bold = [i for i, key in enumerate(_BOUGHT_FROM) if key == f"loss_{train['buy_from']}"]
    table = Table(rows, caption, emphasis=bold)
    noise = _noise_tables(train["noise_correlation"])
    return [*_left_out_tables(run.model.get("raters_left_out", ())), *noise, table]


def _left_out_tables(entries: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the raters whose judgments do not count."""
    rows = [{"Rater": e["rater"], "Objects": e["objects"], "Times": e["times"]} for e in entries]
    caption = (
        "Raters left out, in training and predictions: all estimates are of the others' judgments. "
        "Times: mean squared difference from these, over that of the median rater."
    )
    return [Table(rows, caption)] if rows else []


def _noise_tables(correlations: Mapping[str, Mapping[str, float | None]]) -> list[Block]:
    """Return the noise correlations of the attributes that are bought."""
    names = list(correlations)[:_SHOWN_TOGETHER]
    if not names:
        return []
    rows = []
    n_known = 0
    for name in names:
        of_partners = [correlations[name].get(partner) for partner in names]
        n_known += sum(value is not None for value in of_partners)
        rows.append({"Attribute": name, **dict(zip(names, of_partners, strict=True))})
    if not n_known:
        return [Text("No rater judged two of the attributes that are bought.")]
    caption = (
        "How far one rater's judgments of two attributes of an object share errors: correlation of "
        "the judgments after removing the attributes themselves. Near 0: practically independent. "
        "Blank: no rater judged both."
    )
    return [Table(rows, caption + more(len(correlations), _SHOWN_TOGETHER, "in metrics.json"))]


# --- the model ----------------------------------------------------------------------------------


def _model_blocks(run: FinishedRun) -> list[Block]:
    rows = measure_rows(run.metrics, "objects")
    for label in [label for label in ("Training objects", "Held-out objects") if label in rows]:
        measures = rows[label]
        n_complete = measures.pop("n_objects_with_all_judgments")
        error = measures.pop("mse")
        if measures["n_objects"] < FEW_OBJECTS:
            measures["r2"] = None
        if error is not None:
            rows[f"{label} that hold all judgments"] = {"n_objects": n_complete, "mse": error}
    caption = (
        "Losses of the model, each row on different objects. Loss: unbiased estimate of the mean "
        "squared error with the judgments to buy. Plain error: measured on objects that hold as "
        "many."
    )
    return [*tables_of(rows, _MEASURES, caption)]
