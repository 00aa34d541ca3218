"""What ``metrics.json`` says, for any method: curves, measures, classes, options tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, count, measure_title, number, percent
from distfms.report.page import Block, Figure, KeyNumber, PageSection, Table, Text
from distfms.report.plots import Line, line_chart
from distfms.stats.base import over_folds

# --- curves ---------------------------------------------------------------------------------------


#: The rows that measures are of, the most trusted first.
ROWS = {"test": "held-out rows", "validation": "cross-validation", "train": "training rows"}
#: Colours, dashes and markers that can be told apart.
_N_STYLES = 8


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
    found = list(curves)
    return next((r for r in ROWS if all(curve.has(r, measure) for curve in found)), "train")


def comparison_chart(
    curves: Sequence[Curve],
    rows: str,
    measure: str,
    title: Callable[[str], str],
    styles: Mapping[str, int],
    chosen: str,
) -> list[Line]:
    """Return a line for each rule, the chosen one bold; known rules keep their colours."""
    taken = {styles[curve.name] for curve in curves if curve.name in styles}
    free = cycle([s for s in range(_N_STYLES) if s not in taken] or [_N_STYLES - 1])
    own = {c.name: styles[c.name] if c.name in styles else next(free) for c in curves}
    return [
        Line(title(c.name), c.x, c.values(rows, measure), style=own[c.name], bold=c.name == chosen)
        for c in curves
    ]


def value_range(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the least and the greatest value of some lines with their bands and marks."""
    values = [
        value
        for line in lines
        for ys in (line.y, line.lower or (), line.upper or (), [y for _, y in line.marks])
        for y in ys
        if (value := as_number(y)) is not None
    ]
    return min(values, default=0.0), max(values, default=1.0)


def fences(lines: Sequence[Line]) -> tuple[float | None, float | None]:
    """Return limits that leave out values far outside (Tukey's outer fences); None where none are.

    One point that diverges would flatten all others.
    """
    values = [value for line in lines for y in line.y if (value := as_number(y)) is not None]
    if not values:
        return None, None
    first, third = np.percentile(values, [25, 75]).tolist()
    fence = 3.0 * (third - first)
    kept = [v for v in values if first - fence <= v <= third + fence]
    if len(kept) == len(values):
        return None, None
    margin = 0.05 * (max(kept) - min(kept))
    return min(kept) - margin, max(kept) + margin


def more(n: int, shown: int, where: str, which: str = "") -> str:
    """Return a sentence about what a table or chart leaves out; empty if it leaves out nothing."""
    if n <= shown:
        return ""
    first = f"{shown} {which}".strip()
    return f" The first {first}; {number(n - shown)} more are {where}."


# --- errors of measures --------------------------------------------------------------------------


def error_of(
    metrics: Mapping[str, Any], rows: str, folds: Sequence[Mapping[str, Any]], measure: str
) -> float | None:
    """Return the standard error of a measure on some rows, by its spread over the folds.

    Each entry of `folds` has a fold's measure. Held-out rows are taken for another fold, of their
    own number. None where nothing is known.
    """
    sizes = {own.get("fold"): own.get("n_rows") for own in metrics["folds"]}
    known = [own for own in folds if sizes.get(own.get("fold"))]
    known = [own for own in known if as_number(own.get(measure)) is not None]
    if rows not in ("validation", "test") or len(known) < 2:
        return None
    weights = np.array([sizes[own["fold"]] for own in known])
    means = over_folds(np.array([own[measure] for own in known]), weights)
    if rows == "validation":
        return float(means.standard_error)
    test = metrics["test"]
    n_rows = test.get("n_rows", test.get("n_objects"))
    return float(means.deviation * np.sqrt(weights.mean() / n_rows))


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
        # Means of counts over folds tell nothing about a model.
        found = {
            name: _over_folds(folds, name)
            for name in dict.fromkeys(name for fold in folds for name in fold)
            if name not in ("fold", "weight") and not name.startswith("n_")
        }
        rows[f"Mean of {len(folds)} folds, each held out once"] = {
            n: v[0] for n, v in found.items()
        }
        rows["± between folds"] = {name: spread for name, (_, spread) in found.items()}
    if metrics["test"]:
        rows[f"Held-out {noun}"] = dict(metrics["test"])
    return rows


def decided(metrics: Mapping[str, Any], what: str, read: str, noun: str = "row") -> Text:
    """Say which rows decided `what`, and which ones scores are of: those held out, or what `read`.

    Runs of earlier versions did not count them.
    """

    def rows(which: str, part: str) -> str:
        n = (metrics[part] or {}).get(f"n_{noun}s")
        return f"the {which} {noun}s" if n is None else count(n, f"{which} {noun}")

    text = f"{what} from {rows('training', 'train')}"
    if metrics["folds"]:
        text += f", cross-validated on {count(len(metrics['folds']), 'fold')} of them"
    held = f"{rows('held-out', 'test')}, used for nothing else" if metrics["test"] else read
    return Text(f"{text}. Scores above are of {held}.")


def measure_tables(metrics: Mapping[str, Any], caption: str) -> list[Table]:
    """Put the measures of training, folds and held-out rows below one another."""
    return tables_of(measure_rows(metrics), {}, caption)


def tables_of(rows: _Measures, titles: Mapping[str, str], caption: str) -> list[Table]:
    """Put the measures of sets of rows below one another.

    Columns are those of `titles` first, with these titles, then others by their names. Columns and
    rows that would be empty are left out; no measure makes no table.
    """
    names = dict.fromkeys([*titles, *(name for own in rows.values() for name in own)])
    known = {name: titles.get(name) or measure_title(name, True) for name in names}
    table = [
        {"": label, **{title: as_number(own.get(name)) for name, title in known.items()}}
        for label, own in rows.items()
        if any(as_number(value) is not None for value in own.values())
    ]
    kinds = dict.fromkeys(known.values(), "measure")
    return [Table(table, caption, kinds)] if table else []


def _over_folds(folds: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
    """Mean over the folds that have a number, and standard deviation between them."""
    values = [as_number(fold.get(name)) for fold in folds]
    known = np.array([np.nan if value is None else value for value in values])
    found = over_folds(known, [fold["weight"] for fold in folds])
    return as_number(float(found.mean)), as_number(float(found.deviation))


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
    found = metrics.get("classes")
    if not found:
        return PageSection("")
    confusion, names = np.array(found["confusion"]), found["names"]
    where = f"{_ROWS_OF_CLASSES[found['rows']]}; the model that predictions use"
    largest = names[int(confusion.sum(axis=1).argmax())]
    text = (
        f"{percent(np.trace(confusion) / confusion.sum())} of the rows are classified correctly; "
        f"predicting {largest} for all rows would be right for {percent(found['largest_share'])}. "
        f"Mean recall of the classes {percent(found['balanced_accuracy'])}, macro F1 "
        f"{number(found['macro_f1'], 3)}, AUROC {number(found['auroc'], 3)} "
        f"(±{number(found['auroc_error'], 1)}, as scores are binned)"
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
    return PageSection("The classes", blocks)


def class_numbers(metrics: Mapping[str, Any]) -> list[KeyNumber]:
    """Return AUROC and recall for the first screen; nothing where there are no classes."""
    found = metrics.get("classes")
    if not found:
        return []
    confusion, where = np.array(found["confusion"]), found["rows"]
    true = confusion.sum(axis=1)
    with np.errstate(invalid="ignore"):
        recall = np.diagonal(confusion) / true
    worst, title = int(np.nanargmin(recall)), "lowest recall of a class"
    value, how = percent(recall[worst].item()), f"of class {found['names'][worst]}; {ROWS[where]}"
    numbers = [KeyNumber(value, title, how)]
    if len(recall) == 2:
        shares = " · ".join(percent(share) for share in recall.tolist())
        how = f"of {' and '.join(found['names'])}; {ROWS[where]}"
        numbers = [KeyNumber(shares, "recall of the classes", how)]
    return [KeyNumber(number(found["auroc"], 3), "AUROC", ROWS[where]), *numbers]


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
