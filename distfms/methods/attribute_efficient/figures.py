"""The report of attribute-efficient regression, from the JSON files of its run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FinishedRun
from distfms.report.formatting import count, interval, number, percent
from distfms.report.headline import UNMEASURED, called, constant_answer, lines, no_better, sentence
from distfms.report.metrics import (
    ROWS,
    Curve,
    class_numbers,
    class_section,
    curves_of,
    decided,
    error_of,
    fences,
    measure_tables,
    measured,
    more,
    trusted,
)
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, PageSection, Table, Text
from distfms.report.plots import line_chart
from distfms.report.sections import notes, usage

SUBTITLE = "Attribute-efficient regression"

Json = Mapping[str, Any]

_TITLES = {
    "pairs": "Pairs of attributes",
    "ddaerr": "DDAERR",
    "two_phase_ddaerr": "Two-phase DDAERR",
    "aerr": "AERR",
    "ddaelr": "DDAELR",
    "two_phase_ddaelr": "Two-phase DDAELR",
    "aelr": "AELR",
    "online": "online, all attributes",
    "offline": "best weights within the bound, all attributes",
    "imputed": "ridge, means for missing values",
    "normal": "A normal model of the observed cells",
    "mixed": "The mean of a linear model and LightGBM on the observed cells",
    "mean": "The mean of the target",
    "lightgbm": "LightGBM on the observed cells",
    "full_ridge": "ridge on rows in full that cost as much",
    "full_lightgbm": "LightGBM on rows in full that cost as much",
}
#: Names in the headline of what is compared on the same rows, and of what rows in full explain.
_BESIDE = {
    "imputed": "a ridge on these cells",
    "normal": "a normal model of these cells",
    "lightgbm": "LightGBM on these cells",
    "pairs": "a linear model of pairs",
}
_FULL = {"full_ridge": "ridge", "full_lightgbm": "LightGBM"}
_ROWS_SHOWN = 1000
_ROWS = {**ROWS, "train": "training rows, as none are held out"}
#: Difference of relative losses up to which two models are level.
_LEVEL = 0.01
_LOSS = "relative_loss"
_POINTS = (
    "Points of the curves. Algorithms that observe all attributes use fewer examples for the same "
    "number of attributes; their last points use all examples."
)
_ENDS = (
    "Relative loss, {}, of what learns from the same cells (LightGBM from 50,000 rows at most, a "
    "ridge from means in place of missing values), or from rows in full that cost no more. Ahead: "
    "how much less it is than that of the model, in cross-validation."
)


def headline(run: FinishedRun) -> str:
    """Return in one sentence whether to use the model, what it saw, and how good it is."""
    selection = run.selection
    target = called(run.model["target"])
    n_rows = count(selection["examples"], "row")
    share = selection["attributes_seen"] / max(selection["attributes_in_all"], 1)
    seen = f"{percent(share)} of the cells of {n_rows}"
    constant = constant_answer(run.metrics) if selection["intercept"] else "0"
    if selection["algorithm"] == "mean":
        return sentence(f"Use no model: from {seen} none predicts {target} better than its mean")
    rows, loss = _judged(run)
    if loss is None:
        return sentence(f"This model of {target} was learned from {seen}")
    unmeasured = UNMEASURED if rows == "train" else ""
    error = error_of(run.metrics, rows, run.metrics["folds"], _LOSS)
    explained = 1 - loss
    tells = f"explains {interval(explained, error)} of {target}"
    answer = no_better(constant, f"the model {tells}")
    if explained > (error or 0.0):
        answer = sentence(f"From {seen} this model {tells}", _beside(run))
    return lines(answer, unmeasured, _better(run))


def _beside(run: FinishedRun) -> str:
    """Say how well LightGBM, or else a ridge, does on the same cells."""
    for name in ("lightgbm", "imputed"):
        comparison = _compared(run, name)
        if comparison is not None:
            share, *_ = comparison
            return f"; {_BESIDE[name]} {share}"
    return ""


def _better(run: FinishedRun) -> str:
    """Say which other model, of the same cells or of rows in full, explains most, if clearly so."""
    most = _LEVEL
    answer = ""
    for name, title in {**_BESIDE, **_FULL}.items():
        comparison = _compared(run, name)
        if comparison is None:
            continue
        share, ahead, error = comparison
        if ahead <= max(most, error):
            continue
        most = ahead
        answer = f"{title[0].upper()}{title[1:]} explains more: {share}"
        if name in _FULL:
            n_rows = count(run.metrics["baselines"][name]["examples"], "whole row")
            answer = f"Buy {n_rows} instead: for the same cost {title} explains {share}"
    return sentence(answer) if answer else ""


def _compared(run: FinishedRun, name: str) -> tuple[str, float, float] | None:
    """Return what another model explains, how much more, and the standard error of that.

    There is nothing where rows cannot compare them.
    """
    point = run.metrics["baselines"].get(name, {})
    rows, loss_of_model = _judged(run)
    loss = measured(point, rows, _LOSS)
    if loss_of_model is None or loss is None or (rows == "train" and name != "imputed"):
        return None
    error = error_of(run.metrics, rows, point.get("folds", ()), _LOSS)
    error_of_difference = measured(point, "validation", "ahead_error") or 0.0
    return interval(1 - loss, error), loss_of_model - loss, error_of_difference


def _judged(run: FinishedRun) -> tuple[str, float | None]:
    """Return the rows that the model is judged by, the most trusted ones, and its loss there."""
    folds = [fold for fold in run.metrics["folds"] if fold.get(_LOSS) is not None]
    if run.metrics["test"] is not None or not folds:
        rows = "train" if run.metrics["test"] is None else "test"
        return rows, measured(run.metrics, rows, _LOSS)
    losses = np.array([fold[_LOSS] for fold in folds])
    return "validation", float(np.average(losses, weights=[fold["n_rows"] for fold in folds]))


def sections(run: FinishedRun) -> list[PageSection]:
    """Return the sections of the report."""
    measures = measure_tables(
        run.metrics,
        "Measures of the model. The relative loss is the mean squared error divided by "
        f"that of predicting {_constant(run)}.",
    )
    curves = _curve_blocks(run)
    return [
        PageSection(
            "",
            [
                _key_numbers(run),
                *curves[:1],
                *usage(run.called, run.manifest, [*run.model["sources"]]),
                decided(run.metrics, "The weights come", _ROWS[_judged(run)[0]]),
                *notes(run.manifest),
            ],
        ),
        PageSection("What attributes buy", [*curves[1:], _draw_numbers(run.selection)]),
        class_section(run.metrics),
        PageSection("The model", [*measures, _coefficient_table(run.selection)]),
    ]


def _constant(run: FinishedRun) -> str:
    return "the mean" if run.selection["intercept"] else "0"


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    selection = run.selection
    drawn = selection["attributes_per_example"]
    d = len(selection["coefficients"])
    scanned = selection["scanned_for"]
    passed = f"; a pass over all of them found {scanned}" if scanned else ""
    if first := selection.get("first_examples"):
        passed += f"; those of the first {count(first, 'example')} were drawn alike"
    judged, loss = _judged(run)
    of_each = "all there are" if drawn is None else f"{drawn} of {d} drawn"
    return KeyNumbers(
        [
            KeyNumber(
                number(loss),
                "relative loss",
                f"mean squared error over that of predicting {_constant(run)}, {_ROWS[judged]}",
            ),
            KeyNumber(
                number(selection["attributes_seen"]),
                "attributes observed",
                f"of {number(selection['attributes_in_all'])}; {of_each} of each of "
                f"{count(selection['examples'], 'example')}{passed}",
            ),
            *class_numbers(run.metrics),
        ]
    )


def _draw_numbers(selection: Json) -> KeyNumbers:
    """Return what the paper's theory says of these attributes."""
    ratio = selection["improvement_ratio"]
    saved = f"drawing by second moments saves up to a factor of {number(1 / ratio, 2)}"
    return KeyNumbers([KeyNumber(number(ratio, 2), "improvement ratio ρ", saved)])


def _curve_blocks(run: FinishedRun) -> list[Block]:
    curves = list(curves_of(run.metrics).values())
    if not curves:
        return [Text("There are no curves: `repeats` is 0.")]
    rows = trusted(curves, _LOSS)
    chosen = run.selection["algorithm"]
    if all(len(curve.points) == 1 for curve in curves):
        return [_comparison_table(curves, rows, chosen, _ENDS.format(_ROWS[rows]))]
    lines = []
    for curve in curves:
        is_chosen = curve.name == chosen
        lines.append(curve.line(rows, _LOSS, _TITLES[curve.name], bold=is_chosen))
    drawn = [seen for curve in curves for seen in curve.x]
    chart = line_chart(
        lines,
        title="Relative loss against attributes observed",
        xlabel="attributes observed",
        ylabel="relative loss",
        log_x=max(drawn) > 30 * min(drawn),
        y_limits=fences(lines),
    )
    n_repeats = curves[0].points[0]["repeats"]
    is_tuned = "step_factor" in run.selection.get("tuning", {}).get("chosen", {})
    factor = ", with the step_factor that was chosen" if is_tuned else ""
    caption = (
        f"Mean relative loss on {_ROWS[rows]}, against the attributes observed while learning, of "
        f"{count(n_repeats, 'repeat')} with other orders and draws. Online algorithms take the "
        f"steps of the theory for each size{factor}. Values beyond the scale are in the table."
    )
    return [Figure(chart, caption), _comparison_table(curves, rows, chosen, _POINTS)]


def _comparison_table(curves: Sequence[Curve], judged: str, chosen: str, caption: str) -> Table:
    rows = [
        {
            "Algorithm": _TITLES[curve.name],
            "Examples": point["examples"],
            "Attributes observed": point["budget"],
            "Relative loss": measured(point, judged, _LOSS),
            "± between repeats": measured(point, judged, "deviation"),
            "Ahead": measured(point, "validation", "ahead"),
            "Standard error": measured(point, "validation", "ahead_error"),
        }
        for curve in curves
        for point in curve.points
    ]
    return Table(
        rows,
        caption,
        emphasis=[i for i, row in enumerate(rows) if row["Algorithm"] == _TITLES[chosen]],
    )


def _coefficient_table(selection: Json) -> Table:
    gains = selection.get("gains", {})
    weights = selection["coefficients"]
    ranked = sorted({**weights, **gains}.items(), key=lambda item: -abs(item[1]))
    rows = []
    for name, _ in ranked[:_ROWS_SHOWN]:
        row = {"Attribute": name, "Coefficient": weights[name]}
        rows.append(row | {"Gain": gains[name]} if gains else row)
    caption = "What trees gain by each attribute, and the linear model. " if gains else ""
    caption += "Coefficients in the original units of the attributes, the largest first."
    caption += more(len(ranked), len(rows), "in selection.json")
    return Table(rows, caption, {"Gain": "measure", "Coefficient": "measure"})
