"""What ``metrics.json`` says, for any method: curves, measures, classes, options tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, count, measure_title, number, percent
from distfms.report.page import Block, Figure, KeyNumber, PageSection, Table, Text
from distfms.report.plots import Line, line_chart
from distfms.stats.base import FoldMeans, over_folds

# --- curves ---------------------------------------------------------------------------------------


#: The rows that measures are of, the most trusted first.
ROWS = {"test": "held-out rows", "validation": "cross-validation", "train": "training rows"}


@dataclass(frozen=True, eq=False)
class Curve:
    """A rule's curve: measures by rows and name at points along a budget."""

    name: str
    points: Sequence[Mapping[str, Any]]

    @property
    def x(self) -> list[float]:
        """Budgets of the points."""
        return [point["budget"] for point in self.points]

    def values(self, rows: str, measure: str) -> list[float | None]:
        """Return a measure at all points; None where there is none."""
        return [measured(point, rows, measure) for point in self.points]

    def has(self, rows: str, measure: str) -> bool:
        """Return whether any point has a measure."""
        return any(value is not None for value in self.values(rows, measure))

    def line(self, rows: str, measure: str, title: str, **looks: Any) -> Line:
        """Return the curve as a line of a chart.

        Parameters
        ----------
        rows, measure, title : str
        **looks
            Of :class:`~distfms.report.plots.Line`. A bold line gets the band ``lower``, ``upper``.
        """
        if looks.get("bold") and self.has(rows, "lower"):
            looks |= {bound: self.values(rows, bound) for bound in ("lower", "upper")}
        return Line(title, self.x, self.values(rows, measure), **looks)


def measured(point: Mapping[str, Any], rows: str, measure: str) -> float | None:
    """Return a measure of a point of a curve, or of a baseline; None where there is none."""
    return as_number((point.get(rows) or {}).get(measure))


def curves_of(metrics: Mapping[str, Any]) -> dict[str, Curve]:
    """Return the curves of ``metrics.json`` that have points, by name."""
    return {e["name"]: Curve(e["name"], e["points"]) for e in metrics["curves"] if e["points"]}


def trusted(curves: Iterable[Curve], measure: str) -> str:
    """Return the rows to judge by: the most trusted on which all curves have the measure."""
    curves = list(curves)
    for rows in ROWS:
        if all(curve.has(rows, measure) for curve in curves):
            return rows
    return "train"


def value_range(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the least and the greatest value of some lines with their bands and marks."""
    ys = list[Any]()
    for line in lines:
        ys += [*line.y, *(line.lower or ()), *(line.upper or ())]
        ys += [y for _, y in line.marks]
    values = _numbers_in(ys)
    return min(values, default=0.0), max(values, default=1.0)


def fences(lines: Sequence[Line]) -> tuple[float | None, float | None]:
    """Return limits that leave out values far outside (Tukey's outer fences); None where none are.

    One point that diverges would flatten all others.
    """
    values = _numbers_in(y for line in lines for y in line.y)
    if not values:
        return None, None
    first, third = np.percentile(values, [25, 75]).tolist()
    fence = 3.0 * (third - first)
    inside = [value for value in values if first - fence <= value <= third + fence]
    if len(inside) == len(values):
        return None, None
    margin = 0.05 * (max(inside) - min(inside))
    return min(inside) - margin, max(inside) + margin


def _numbers_in(values: Iterable[Any]) -> list[float]:
    numbers = [as_number(value) for value in values]
    return [value for value in numbers if value is not None]


def more(n: int, shown: int, place: str, noun: str = "") -> str:
    """Return a sentence about what a table or chart leaves out; empty if it leaves out nothing.

    `place` says of those that are left out in which file they are.
    """
    if n <= shown:
        return ""
    first = f"{shown} {noun}".strip()
    return f" The first {first}; {number(n - shown)} more are {place}."


# --- errors of measures --------------------------------------------------------------------------


def error_of(
    metrics: Mapping[str, Any], rows: str, folds: Sequence[Mapping[str, Any]], measure: str
) -> float | None:
    """Return the standard error of a measure on some rows, by its spread over the folds.

    Each entry of `folds` has a fold's measure. Held-out rows are taken for another fold, of their
    own number. None where nothing is known.
    """
    if rows not in ("validation", "test"):
        return None
    means, n_rows = means_over(metrics, folds, measure)
    if means.n_known < 2:
        return None
    if rows == "validation":
        return float(means.standard_error)
    test = metrics["test"]
    n_test = test.get("n_rows", test.get("n_objects"))
    return float(means.deviation * np.sqrt(n_rows / n_test))


def means_over(
    metrics: Mapping[str, Any], folds: Sequence[Mapping[str, Any]], measure: str
) -> tuple[FoldMeans, float]:
    """Return the mean of a measure over folds that have it, and the mean number of their rows."""
    sizes = {fold.get("fold"): fold.get("n_rows") for fold in metrics["folds"]}
    values = list[float]()
    weights = list[float]()
    for fold in folds:
        value = as_number(fold.get(measure))
        n_rows = sizes.get(fold.get("fold"))
        if value is not None and n_rows:
            values.append(value)
            weights.append(n_rows)
    return over_folds(np.array(values), weights), float(np.mean(weights or [0.0]))


def told_apart(
    metrics: Mapping[str, Any], folds: Sequence[Mapping[str, Any]], measure: str, otherwise: Any
) -> float | None:
    """Return the mean over folds of how well classes are told apart; `otherwise` of other rows.

    Scores of several models are not compared: a fold with more rows of a class is predicted by a
    model that learned from fewer of them, so that all rows together make guesses worse than chance.
    """
    if metrics["classes"]["rows"] == "validation" and folds:
        otherwise = float(means_over(metrics, folds, measure)[0].mean)
    return as_number(otherwise)


def auroc_of(metrics: Mapping[str, Any]) -> float | None:
    """Return the AUROC of the model that predictions use."""
    classes = metrics["classes"]
    return told_apart(metrics, classes.get("folds", ()), "auroc", classes["auroc"])


# --- measures -------------------------------------------------------------------------------------

_Measures = dict[str, dict[str, Any]]


def measure_rows(metrics: Mapping[str, Any], noun: str = "rows") -> _Measures:
    """Return the measures of each set of rows.

    ``metrics`` has ``train``, ``test`` (each ``{name: value}`` or null) and ``folds`` (a list of
    such, each with its ``weight``).
    """
    rows = {f"Training {noun}": dict(metrics["train"])}
    folds = metrics["folds"]
    if folds:
        means = dict[str, Any]()
        spreads = dict[str, Any]()
        for name in dict.fromkeys(name for fold in folds for name in fold):
            # Means of counts over folds tell nothing about a model.
            if name not in ("fold", "weight") and not name.startswith("n_"):
                means[name], spreads[name] = _mean_and_spread(folds, name)
        rows[f"Mean of {len(folds)} folds, each held out once"] = means
        rows["± between folds"] = spreads
    if metrics["test"]:
        rows[f"Held-out {noun}"] = dict(metrics["test"])
    return rows


def decided(metrics: Mapping[str, Any], choice: str, scored: str, noun: str = "row") -> Text:
    """Say which rows decided a choice, and of which ones scores are: held out, or `scored`."""

    def rows(which: str, part: str) -> str:
        return count(metrics[part][f"n_{noun}s"], f"{which} {noun}")

    text = f"{choice} from {rows('training', 'train')}"
    if metrics["folds"]:
        text += f", cross-validated on {count(len(metrics['folds']), 'fold')} of them"
    if metrics["test"]:
        scored = f"{rows('held-out', 'test')}, used for nothing else"
    return Text(f"{text}. Scores above come from {scored}.")


def measure_tables(metrics: Mapping[str, Any], caption: str) -> list[Table]:
    """Put the measures of training, folds and held-out rows below one another."""
    return tables_of(measure_rows(metrics), {}, caption)


def tables_of(rows: _Measures, titles: Mapping[str, str], caption: str) -> list[Table]:
    """Put the measures of sets of rows below one another.

    Columns are those of `titles` first, with these titles, then others by their names. Columns and
    rows that would be empty are left out; no measure makes no table.
    """
    names = dict.fromkeys([*titles, *(name for measures in rows.values() for name in measures)])
    columns = {name: titles.get(name) or measure_title(name, True) for name in names}
    table = []
    for label, measures in rows.items():
        numbers = {title: as_number(measures.get(name)) for name, title in columns.items()}
        if any(as_number(value) is not None for value in measures.values()):
            table.append({"": label, **numbers})
    return [Table(table, caption)] if table else []


def _mean_and_spread(
    folds: Sequence[Mapping[str, Any]], name: str
) -> tuple[float | None, float | None]:
    """Mean over the folds that have a number, and standard deviation between them."""
    values = np.array([as_number(fold.get(name)) for fold in folds], dtype=float)
    weights = [fold["weight"] for fold in folds]
    means = over_folds(values, weights)
    return as_number(float(means.mean)), as_number(float(means.deviation))


# --- classes --------------------------------------------------------------------------------------

#: Classes whose confusions make a table that can be read.
_IN_MATRIX = 20
_ROWS_OF_CLASSES = {
    "test": "held-out rows",
    "validation": "rows of each fold, predicted by the model of the others",
    "train": "training rows",
}


def class_section(metrics: Mapping[str, Any]) -> PageSection:
    """Return the section about the classes of a target; empty where it has none.

    ``metrics["classes"]`` is a `distfms.stats.classification.class_report`.
    """
    classes = metrics.get("classes")
    if not classes:
        return PageSection("")
    confusion = np.array(classes["confusion"])
    rows = f"{_ROWS_OF_CLASSES[classes['rows']]}; the model that predictions use"
    blocks: list[Block] = [_class_text(metrics, confusion), _class_table(classes, confusion, rows)]
    if len(classes["names"]) <= _IN_MATRIX:
        blocks.append(_confusion_table(classes, rows))
    if len(classes["calibration"]) > 1:
        blocks.append(_calibration_figure(classes, rows))
    return PageSection("The classes", blocks)


def _class_text(metrics: Mapping[str, Any], confusion: np.ndarray) -> Text:
    classes = metrics["classes"]
    names = classes["names"]
    n_true = confusion.sum(axis=1)
    largest = names[int(n_true.argmax())]
    right = percent(np.trace(confusion) / confusion.sum())
    text = (
        f"{right} of the rows are classified correctly; "
        f"predicting {largest} for all rows would be right for "
        f"{percent(classes['largest_share'])}. "
        f"Mean recall over classes {percent(classes['balanced_accuracy'])}, macro F1 "
        f"{number(classes['macro_f1'], 3)}, AUROC {number(auroc_of(metrics), 3)} "
        f"(±{number(classes['auroc_error'], 1)}, as scores are binned)"
    )
    text += f", AUPRC {number(classes['auprc'], 3)}." if "auprc" in classes else "."
    threshold = classes.get("threshold", 0.5)
    if threshold != 0.5:
        text += f" Predicts {names[1]} where its probability is at least {number(threshold, 3)}."
    return Text(text)


def _confusion_table(classes: Mapping[str, Any], rows: str) -> Table:
    names = classes["names"]
    titles = ["Class", *(f"→ {name}" for name in names)]
    table = []
    for name, counts in zip(names, classes["confusion"], strict=True):
        table.append(dict(zip(titles, [name, *counts], strict=True)))
    return Table(table, f"Rows by class and by predicted class (→): {rows}.")


def class_numbers(metrics: Mapping[str, Any]) -> list[KeyNumber]:
    """Return AUROC and recall for the first screen; nothing where there are no classes."""
    classes = metrics.get("classes")
    if not classes:
        return []
    confusion = np.array(classes["confusion"])
    with np.errstate(invalid="ignore"):
        recalls = np.diagonal(confusion) / confusion.sum(axis=1)
    rows = ROWS[classes["rows"]]
    names = classes["names"]
    auroc = KeyNumber(number(auroc_of(metrics), 3), "AUROC", rows)
    if len(recalls) == 2:
        shares = " · ".join(percent(share) for share in recalls.tolist())
        note = f"{' · '.join(names)}; {rows}"
        return [auroc, KeyNumber(shares, "recall of each class", note)]
    worst = int(np.nanargmin(recalls))
    lowest = percent(recalls[worst].item())
    note = f"of class {names[worst]}; {rows}"
    return [auroc, KeyNumber(lowest, "lowest recall of any class", note)]


def _class_table(classes: Mapping[str, Any], confusion: np.ndarray, rows: str) -> Table:
    """List the classes with their recall and precision."""
    n_right = np.diagonal(confusion)
    n_true = confusion.sum(axis=1)
    n_predicted = confusion.sum(axis=0)
    auroc = classes["auroc_by_class"]
    with np.errstate(invalid="ignore"):
        columns = {
            "Rows": n_true,
            "Share": n_true / n_true.sum(),
            "Recall": n_right / n_true,
            "Precision": n_right / n_predicted,
            "F1": 2 * n_right / (n_true + n_predicted),
            "AUROC": np.array(auroc, dtype=float),
        }
    table = []
    for place, name in enumerate(classes["names"]):
        row = {title: as_number(values[place].item()) for title, values in columns.items()}
        table.append({"Class": name, **row})
    # One of r − 1 scores tells levels from those below them.
    is_level = auroc[0] is None and len(table) > 2
    event = "a row of this level or above" if is_level else "a row of the class"
    return Table(
        table,
        f"The classes: {rows}. Recall: share of the rows of a class that are predicted as it. "
        "Precision: share of the rows predicted as a class that belong to it. F1: their harmonic "
        f"mean. AUROC: how often {event} scores higher than any other row.",
        dict.fromkeys(("Share", "Recall", "Precision"), "percent"),
    )


def _calibration_figure(classes: Mapping[str, Any], rows: str) -> Figure:
    points = classes["calibration"]
    predicted = [point["predicted"] for point in points]
    observed = [point["observed"] for point in points]
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
    has_two = classes["auroc_by_class"][0] is None
    subject = f"class {classes['names'][1]}" if has_two else "all classes together"
    return Figure(
        chart,
        f"Calibration, {subject}: share of rows that belong to the class, by predicted probability "
        f"in steps of 0.1; {rows}.",
    )
