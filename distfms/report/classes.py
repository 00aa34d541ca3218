"""How a model tells classes apart, for any method: table of classes, confusions, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.report.formatting import number, percent
from distfms.report.measures import without_empty_columns
from distfms.report.page import Block, Column, Figure, KeyNumber, KeyNumbers, Section, Table
from distfms.report.plots import Line, line_chart

#: Classes whose confusions make a matrix; of more, the most frequent confusions are listed.
_IN_MATRIX = 12
_CONFUSIONS_SHOWN = 30
_ROWS = {
    "test": "held-out rows",
    "validation": "rows of each fold by the model of the others",
    "train": "training rows",
}


def class_section(metrics: Mapping[str, Any], model: str) -> Section:
    """Return the section about the classes of a target; empty where it has none.

    ``metrics["classes"]`` is a `distfms.stats.classification.class_report`; `model` says by which
    model.
    """
    found = metrics.get("classes")
    if not found:
        return Section("", [])
    confusion = np.array(found["confusion"])
    where = f"{_ROWS[found['rows']]}, by {model}"
    blocks: list[Block] = [_key_numbers(found, confusion), _class_table(found, confusion, where)]
    blocks.append(_confusions(found["names"], confusion, where))
    if len(found["calibration"]) > 1:
        blocks.append(_calibration_figure(found, where))
    return Section("The classes", blocks)


def _key_numbers(found: Mapping[str, Any], confusion: np.ndarray) -> KeyNumbers:
    right = float(np.trace(confusion) / confusion.sum())
    largest = found["names"][int(confusion.sum(axis=1).argmax())]
    return KeyNumbers(
        [
            KeyNumber(
                percent(right),
                "of the rows are classified correctly",
                f"always {largest} would be right for {percent(found['largest_share'])}",
            ),
            KeyNumber(percent(found["balanced_accuracy"]), "mean recall of the classes"),
            KeyNumber(number(found["macro_f1"], 3), "macro F1"),
            KeyNumber(
                number(found["auroc"], 3),
                "AUROC",
                f"exact to {number(max(found['auroc_error'], 1e-4), 1)}",
            ),
        ]
    )


def _class_table(found: Mapping[str, Any], confusion: np.ndarray, where: str) -> Table:
    """List the classes with their recall and precision."""
    areas, rows = found["auroc_by_class"], []
    for k, name in enumerate(found["names"]):
        true, predicted, right = confusion[k].sum(), confusion[:, k].sum(), confusion[k, k]
        shares = [_share(true, confusion.sum()), _share(right, true), _share(right, predicted)]
        rows.append([name, float(true), *shares, areas[k]])
    shares_of = [Column(title, "percent") for title in ("Share", "Recall", "Precision")]
    columns = [Column("Class", "text"), Column("Rows", "number"), *shares_of]
    return without_empty_columns(
        [*columns, Column("AUROC", "number")],
        rows,
        f"The classes: {where}. Recall is the share of the rows of a class that are predicted as "
        "it, precision the share of the rows predicted as it that are of it, AUROC how often "
        f"{_event(found)} has a higher score than another row. Scores are counted in bins of "
        f"{number(found['bin_width'])} on the scale of log-odds.",
    )


def _event(found: Mapping[str, Any]) -> str:
    """Return what a score tells: one of r − 1 scores, that the row is of a level or above it."""
    is_level = found["auroc_by_class"][0] is None and len(found["names"]) > 2
    return "a row of this level or above it" if is_level else "a row of it"


def _confusions(names: Sequence[str], confusion: np.ndarray, where: str) -> Table:
    """Return the matrix of classes and predictions, or the most frequent confusions."""
    if len(names) <= _IN_MATRIX:
        rows = [[name, *row] for name, row in zip(names, confusion.tolist(), strict=True)]
        columns = [Column("Class", "text"), *(Column(f"→ {name}", "number") for name in names)]
        return Table(columns, rows, f"Rows by class and by what is predicted (→): {where}.")
    wrong = confusion - np.diag(np.diagonal(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_CONFUSIONS_SHOWN]
    rows = [
        [names[i], names[j], float(wrong[i, j])]
        for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[i, j] > 0
    ]
    columns = [Column("Class", "text"), Column("Predicted", "text"), Column("Rows", "number")]
    return Table(columns, rows, f"The most frequent confusions: {where}. All are in metrics.json.")


def _calibration_figure(found: Mapping[str, Any], where: str) -> Figure:
    points = found["calibration"]
    lines = [
        Line(
            "share of rows",
            [point["predicted"] for point in points],
            [point["observed"] for point in points],
            bold=True,
        ),
        Line("well calibrated", [0.0, 1.0], [0.0, 1.0], style=6, dashed=True),
    ]
    chart = line_chart(
        lines,
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
        f"Calibration, {of}: how often a row is of a class, against the predicted probability, in "
        f"tenths of probability; {where}.",
    )


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
