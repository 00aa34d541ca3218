"""The report of a model on landmarks, from the JSON files of its run folder."""

from __future__ import annotations

from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.landmarks.answer_figures import explained_share, headline, judged, reading_of
from distfms.report.formatting import count, measure_title, number, percent
from distfms.report.metrics import (
    ROWS,
    class_numbers,
    class_section,
    curves_of,
    decided,
    measure_tables,
    measured,
    more,
    value_range,
)
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, PageSection, Table
from distfms.report.plots import Bar, Line, bar_chart, line_chart
from distfms.report.sections import notes, usage

__all__ = ["SUBTITLE", "headline", "sections"]

SUBTITLE = "Learning with similarities to landmarks"

_LANDMARKS_SHOWN, _COLUMNS_SHOWN, _BARS_SHOWN = 500, 50, 12
#: References are drawn up to this multiple of the highest point of a curve.
_MOST_ABOVE = 1.2
_MEASURES = (
    "Measures of the model with all its landmarks. Folds share landmarks and scales, which do not "
    "depend on the target; each fold learns its own metric. What a fold says of the model is of "
    "what the other folds choose: similarity, metric, width, ridge and number of landmarks."
)


def sections(run: FinishedRun) -> list[PageSection]:
    """Return the sections of the report."""
    return [
        PageSection("", _answer_blocks(run)),
        PageSection("Beside other models", [_baseline_table(run)]),
        PageSection("What the folds compared", [_candidate_table(run)]),
        PageSection("The landmarks", [_landmark_table(run)]),
        PageSection("Quality of the similarities", [_goodness_table(run)]),
        class_section(run.metrics),
        PageSection("The model", measure_tables(run.metrics, _MEASURES)),
    ]


# --- the first screen ----------------------------------------------------------------------------


def _answer_blocks(run: FinishedRun) -> list[Block]:
    """Return the first screen: the error by number, the columns that matter, how to use it."""
    return [
        _key_numbers(run),
        _error_figure(run),
        *_column_figure(run),
        *usage(run.called, run.manifest, [*run.model["sources"]]),
        decided(run.metrics, "Landmarks, metric and weights come", ROWS[reading_of(run)]),
        *notes(run.manifest),
    ]


def _column_figure(run: FinishedRun) -> list[Figure]:
    """Return how much columns weigh in the metric, where they weigh differently."""
    weights = run.selection["metric"].get("weights", {})
    if len(weights) < 2:
        return []
    chart = bar_chart(
        [Bar(name, share, percent(share)) for name, share in weights.items()],
        title="Share of each column in the squared distances of the metric",
        xlabel="share of squared distances",
        n_bars=_BARS_SHOWN,
        x_percent=True,
    )
    caption = "The columns that matter to the metric: their shares in squared distances of rows."
    return [Figure(chart, caption + more(len(weights), _BARS_SHOWN, "in selection.json"))]


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    rows = ROWS[reading_of(run)]
    measure = run.metrics["measure"]
    title = measure_title(measure)
    selection = run.selection
    n_landmarks = len(selection["landmarks"])
    source = f"of {count(selection['n_candidates'], 'candidate')}, {selection['similarity']}"
    numbers = [
        KeyNumber(number(n_landmarks), "landmarks", source),
        KeyNumber(number(judged(run)[measure]), title, rows),
    ]
    share = explained_share(run)
    if share is not None:
        numbers.append(KeyNumber(percent(share), "of the variance explained", rows))
    for name, value in _references(run).items():
        if not name.startswith(("kernel regression", "constant")):
            numbers.append(KeyNumber(number(value), title, name))
    return KeyNumbers([*numbers, *class_numbers(run.metrics)])


def _references(run: FinishedRun) -> dict[str, float]:
    """Return the errors of what is no model on landmarks."""
    curves = {curve["name"] for curve in run.metrics["curves"]}
    errors = dict[str, float]()
    for name, entry in run.metrics["baselines"].items():
        error = measured(entry, reading_of(run), run.metrics["measure"])
        if name not in curves and error is not None:
            errors[name] = error
    return errors


def _error_figure(run: FinishedRun) -> Figure:
    """Draw curves, and references that would not flatten them."""
    reading = reading_of(run)
    measure = run.metrics["measure"]
    curves = list(curves_of(run.metrics).values())
    lines = []
    for style, curve in enumerate(curves):
        is_chosen = curve.name == run.selection["similarity"]
        lines.append(curve.line(reading, measure, curve.name, style=style, bold=is_chosen))
    highest = _MOST_ABOVE * value_range(lines)[1]
    ends = [min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)]
    for name, error in _references(run).items():
        if error <= highest:
            lines.append(Line(name, ends, [error] * 2, style=len(lines), dashed=True))
    title = measure_title(measure)
    chart = line_chart(
        lines,
        title="Error against the number of landmarks",
        xlabel="landmarks",
        ylabel=title,
        log_x=True,
    )
    caption = f"{measure_title(measure, capital=True)} against the number of landmarks: "
    return Figure(chart, f"{caption}{ROWS[reading]}. Dashed: references, as far as they fit in.")


# --- tables --------------------------------------------------------------------------------------


def _baseline_table(run: FinishedRun) -> Table:
    parts = {"test": "Held out", "validation": "Mean of folds"}
    measure = run.metrics["measure"]
    model = {run.selection["similarity"]: run.metrics["curves"][0]["points"][-1]}
    rows = []
    for name, entry in {**model, **run.metrics["baselines"]}.items():
        row: dict[str, Any] = {"Model": name}
        for part, title in parts.items():
            row[title] = measured(entry, part, measure)
        of_sample = entry.get("test") or entry.get("validation") or {}
        row["Training rows"] = of_sample.get("n_train")
        row["Guarded"] = of_sample.get("n_guarded")
        rows.append(row)
    n_rows = count(run.metrics["train"]["n_rows"], "training row")
    caption = (
        f"{measure_title(measure, capital=True)} of the model and its references. There are "
        f"{n_rows}, of which references of a sample use those counted here. Rows whose "
        "similarities sum to zero are predicted by the mean and counted as guarded."
    )
    return Table(rows, caption, emphasis=[0])


def _candidate_table(run: FinishedRun) -> Table:
    """List the best candidate of each similarity and metric."""
    titles = {
        "similarity": "Similarity",
        "metric": "Metric",
        "width": "Width",
        "ridge": "Ridge",
        "loss": "Loss",
        "behind": "Behind the chosen",
        "standard_error": "± standard error",
    }
    rows = []
    chosen = []
    for number_of_row, entry in enumerate(run.metrics.get("candidates", [])):
        rows.append({title: entry[name] for name, title in titles.items()})
        if entry["chosen"]:
            chosen.append(number_of_row)
    caption = (
        "The best of each similarity and metric on rows of a sample that it did not learn from: "
        "log losses of classes, otherwise squared errors in units of the target's variance. Widths "
        "are in median distances between rows."
    )
    return Table(rows, caption, emphasis=chosen)


def _landmark_table(run: FinishedRun) -> Table:
    weights = run.weights["weights"][-1]
    titles = [f"Weight {score + 1}" for score in range(weights.shape[1])]
    landmarks = run.selection["landmarks"]
    rows = []
    for place, name in enumerate(landmarks[:_LANDMARKS_SHOWN]):
        of_landmark = weights[place].tolist()
        row = {"Order": place + 1, "Row": str(name)}
        row |= zip(titles, of_landmark, strict=True)
        rows.append(row)
    how = "in the order of choice" if run.selection["task"] == "sparse" else "in random order"
    caption = f"The landmarks {how}, and the weight of the similarity to each in every score."
    caption += more(len(landmarks), _LANDMARKS_SHOWN, "in selection.json")
    return Table(rows, caption, dict.fromkeys(titles, "measure"))


def _goodness_table(run: FinishedRun) -> Table:
    """List the goodness (ε₀, B) of each similarity for a ladder of landmarks."""
    reading = reading_of(run)
    rows = list[dict[str, Any]]()
    chosen = []
    for curve in curves_of(run.metrics).values():
        surrogate = "loss" if curve.has(reading, "loss") else "mse"
        for point in curve.points:
            row = {
                "Similarity": curve.name,
                "Landmarks": point["budget"],
                "Share τ": point["budget"] / run.selection["n_candidates"],
                "Loss ε₀": measured(point, reading, surrogate),
                "Bound B": measured(point, "train", "largest_weight"),
            }
            rows.append(row)
        if curve.name == run.selection["similarity"]:
            chosen.append(len(rows) - 1)
    caption = (
        "A similarity is (ε₀, B)-good for the task if weights of size at most B have a loss of "
        f"at most ε₀. Estimated with this number of landmarks: ε₀ is the loss ({ROWS[reading]}), "
        "B the largest weight where similarities are averaged, τ the share of the candidates "
        "that are used."
    )
    kinds = {"Share τ": "percent"}
    return Table(rows, caption, kinds, emphasis=chosen)
