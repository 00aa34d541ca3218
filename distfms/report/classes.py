"""How a model tells classes apart, for any method: table of classes, confusions, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, number, percent
from distfms.report.page import Block, Figure, Section, Table, Text
from distfms.report.plots import Line, line_chart

#: Classes whose confusions make a table that can be read.
_IN_MATRIX = 20
_ROWS = {
    "test": "held-out rows",
    "validation": "rows of each fold, predicted by the model of the others",
    "train": "training rows",
}


def class_section(metrics: Mapping[str, Any], model: str) -> Section:
    """Return the section about the classes of a target; empty where it has none.

    ``metrics["classes"]`` is a `distfms.stats.classification.class_report`; `model` says by which
    model.
    """
    found = metrics.get("classes")
    if not found:
        return Section("")
    confusion, names = np.array(found["confusion"]), found["names"]
    where = f"{_ROWS[found['rows']]}; {model}"
    largest = names[int(confusion.sum(axis=1).argmax())]
    text = (
        f"{percent(np.trace(confusion) / confusion.sum())} of the rows are classified correctly; "
        f"predicting {largest} for all rows would be right for {percent(found['largest_share'])}. "
        f"Mean recall of the classes {percent(found['balanced_accuracy'])}, macro F1 "
        f"{number(found['macro_f1'], 3)}, AUROC {number(found['auroc'], 3)} "
        f"(±{number(found['auroc_error'], 1)}, as scores are binned with width "
        f"{number(found['bin_width'])})"
    )
    text += f", AUPRC {number(found['auprc'], 3)}." if "auprc" in found else "."
    if (threshold := found.get("threshold", 0.5)) != 0.5:
        text += f" Predicts {names[1]} where its probability is at least {number(threshold, 3)}."
    blocks: list[Block] = [Text(text), _class_table(found, confusion, where)]
    if len(names) <= _IN_MATRIX:
        titles = ["Class", *(f"→ {name}" for name in names)]
        counts = zip(names, confusion.tolist(), strict=True)
        rows = [dict(zip(titles, [name, *row], strict=True)) for name, row in counts]
        caption = f"Rows by class and by predicted class (→): {where}."
        blocks.append(Table(rows, caption))
    if len(found["calibration"]) > 1:
        blocks.append(_calibration_figure(found, where))
    return Section("The classes", blocks)


def _class_table(found: Mapping[str, Any], confusion: np.ndarray, where: str) -> Table:
    """List the classes with their recall and precision."""
    right, true, predicted = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore"):
        shares = [true / true.sum(), right / true, right / predicted]
        f1 = 2 * right / (true + predicted)
    measures = [true, *shares, f1, np.array(found["auroc_by_class"], dtype=float)]
    titles = ("Class", "Rows", "Share", "Recall", "Precision", "F1", "AUROC")
    numbers = [[as_number(value) for value in own.tolist()] for own in measures]
    rows = [
        dict(zip(titles, row, strict=True)) for row in zip(found["names"], *numbers, strict=True)
    ]
    # One of r − 1 scores tells levels from those below them.
    is_level = found["auroc_by_class"][0] is None and len(rows) > 2
    event = "a row of this level or above" if is_level else "a row of the class"
    return Table(
        rows,
        f"The classes: {where}. Recall: share of the rows of a class that are predicted as it. "
        "Precision: share of the rows predicted as a class that belong to it. F1: their harmonic "
        f"mean. AUROC: how often {event} scores higher than any other row.",
        dict.fromkeys(titles[2:5], "percent"),
    )


def _calibration_figure(found: Mapping[str, Any], where: str) -> Figure:
    predicted, observed = (
        [point[name] for point in found["calibration"]] for name in ("predicted", "observed")
    )
    chart = line_chart(
        [
            Line("share of rows", predicted, observed, bold=True),
            Line("well calibrated", [0.0, 1.0], [0.0, 1.0], style=6, dashed=True),
        ],
        title="Shares of rows against predicted probabilities",
        xlabel="predicted probability",
        ylabel="share of rows",
        y_limits=(0.0, 1.0),
        y_percent=True,
    )
    two = found["auroc_by_class"][0] is None
    of = f"class {found['names'][1]}" if two else "all classes together"
    return Figure(
        chart,
        f"Calibration, {of}: share of rows that belong to the class, by predicted probability in "
        f"steps of 0.1; {where}.",
    )
