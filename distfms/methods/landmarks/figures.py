"""The report of a model on landmarks, from the JSON files of its run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.landmarks.similarity import RANDOM, of_source
from distfms.report.formatting import as_number, count, interval, measure_title, number, percent
from distfms.report.metrics import (
    ROWS,
    class_numbers,
    class_section,
    curves_of,
    decided,
    error_of,
    measure_tables,
    measured,
    more,
    trusted,
    value_range,
)
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, PageSection, Table
from distfms.report.plots import Bar, Line, Point, bar_chart, line_chart, scatter_chart
from distfms.report.sections import notes, usage

SUBTITLE = "Learning with similarities to landmarks"

_LANDMARKS_SHOWN, _COLUMNS_SHOWN, _BARS_SHOWN = 500, 50, 12
#: References are drawn up to this multiple of the highest point of a curve.
_MOST_ABOVE = 1.2
_MEASURES = (
    "Measures of the model with all its landmarks. Folds share landmarks and scales, which do not "
    "depend on the target; each fold learns its own metric. What a fold says of the model is of "
    "what the other folds choose: similarity, metric, width, ridge and number of landmarks."
)


def headline(run: FinishedRun) -> str:
    """Return in one sentence how well the model predicts, or that it does not."""
    constant = run.metrics.get("constant", {"model_is_better": True})
    sentence = _how_well(run)
    if constant["model_is_better"]:
        return sentence
    sentence = sentence[0].lower() + sentence[1:]
    return f"No better than always answering {constant['answer']}: {sentence}"


def _how_well(run: FinishedRun) -> str:
    reading, measures, r2 = _judged(run)
    beside = _beside(run)
    what = f"{count(len(run.selection['landmarks']), 'landmark')} of {run.selection['similarity']}"
    if run.selection["metric"]["kind"] != "none":
        what += f" ({run.selection['metric']['kind']} metric)"
    enough = run.metrics.get("enough")
    if enough is not None and enough < len(run.selection["landmarks"]):
        beside = f"; {number(enough)} are within one standard error{beside}"
    if r2 is None:
        measure = run.metrics["measure"]
        if measure == "error":
            share = interval(1 - measures[measure], spread_of(run, reading, measure))
            right = f"{share} classified correctly ({ROWS[reading]})"
            return f"{right} with {what}{beside}"
        value = f"{measure_title(measure)} {number(measures[measure], 3)}"
        if error := spread_of(run, reading, measure):
            value += f" ± {number(error, 1)}"
        return f"{what}: {value} ({ROWS[reading]}){beside}"
    verb = "explains" if len(run.selection["landmarks"]) == 1 else "explain"
    share = interval(r2, spread_of(run, reading, "r2"))
    return f"{what} {verb} {share} of the variance ({ROWS[reading]}){beside}"


def spread_of(run: FinishedRun, reading: str, measure: str) -> float | None:
    """Return the standard error of a measure, over folds."""
    return error_of(run.metrics, reading, run.metrics["folds"], measure)


def _beside(run: FinishedRun) -> str:
    """Say where a linear model on the columns, or another reference, is as good or better."""
    linear, said = {"a linear model on the columns": run.metrics.get("linear")}, list[str]()
    for name, found in {**linear, **run.metrics.get("beside", {})}.items():
        if found and None not in found.values() and found["behind"] >= -found["standard_error"]:
            is_better = found["behind"] > found["standard_error"]
            how = "better" if is_better else "within one standard error"
            said.append(f"{name} is {how}")
    return f"; {' and '.join(said)} in cross-validation" if said else ""


def sections(run: FinishedRun) -> list[PageSection]:
    """Return the sections of the report."""
    return [
        PageSection("", _answer_blocks(run)),
        PageSection("Beside other models", [_baseline_table(run)]),
        PageSection("What the folds compared", _candidate_tables(run)),
        PageSection("The metric", _metric_tables(run)),
        PageSection("The landmarks", [_landmark_table(run)]),
        PageSection("How good the similarities are", [_goodness_table(run)]),
        class_section(run.metrics),
        PageSection(
            "The model", [*_predicted_figure(run), *measure_tables(run.metrics, _MEASURES)]
        ),
    ]


def _answer_blocks(run: FinishedRun) -> list[Block]:
    """Return the first screen: the columns that matter, the error by number, how to use it."""
    weights = run.selection["metric"].get("weights", {})
    bars = [Bar(name, share, percent(share)) for name, share in weights.items()]
    title = "Share of each column in the squared distances of the metric"
    label = "share of squared distances"
    chart = bar_chart(bars, title=title, xlabel=label, n_bars=_BARS_SHOWN, x_percent=True)
    caption = "The columns that matter to the metric: their shares in squared distances of rows."
    columns = Figure(chart, caption + more(len(bars), _BARS_SHOWN, "in the table"))
    return [
        _key_numbers(run),
        _error_figure(run),
        *([columns] if len(bars) > 1 else []),
        *usage(run.called, run.manifest, [*run.model["sources"]]),
        decided(run.metrics, "Landmarks, metric and weights come", ROWS[_reading(run)]),
        *notes(run.manifest),
    ]


def _reading(run: FinishedRun) -> str:
    """Return the rows whose errors are trusted most."""
    return trusted(curves_of(run.metrics).values(), run.metrics["measure"])


def _judged(run: FinishedRun) -> tuple[str, Mapping[str, Any], float | None]:
    """Return the rows that are trusted most, measures on them, and R² where the target is fitted.

    A ranking fits gains in place of the target, and its R² is of these.
    """
    reading, is_fitted = _reading(run), run.metrics["measure"] == "mse"
    measures = run.metrics["curves"][0]["points"][-1][reading]
    return reading, measures, as_number(measures.get("r2")) if is_fitted else None


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    reading, measures, r2 = _judged(run)
    selection, title = run.selection, measure_title(run.metrics["measure"])
    numbers = [
        KeyNumber(
            number(len(selection["landmarks"])),
            "landmarks",
            f"of {count(selection['n_candidates'], 'candidate')}, {selection['similarity']}",
        ),
        KeyNumber(number(measures[run.metrics["measure"]]), title, ROWS[reading]),
    ]
    if r2 is not None:
        numbers.append(KeyNumber(percent(r2), "of the variance explained", ROWS[reading]))
    for name, value in _references(run, reading).items():
        if not name.startswith(("kernel regression", "constant")):
            numbers.append(KeyNumber(number(value), title, name))
    return KeyNumbers([*numbers, *class_numbers(run.metrics)])


def _references(run: FinishedRun, reading: str) -> dict[str, float]:
    """Return the errors of what is no model on landmarks."""
    curves = {curve["name"] for curve in run.metrics["curves"]}
    values = {
        name: measured(entry, reading, run.metrics["measure"])
        for name, entry in run.metrics["baselines"].items()
        if name not in curves
    }
    return {name: value for name, value in values.items() if value is not None}


def _error_figure(run: FinishedRun) -> Figure:
    reading, curves = _reading(run), list(curves_of(run.metrics).values())
    chosen = run.selection["similarity"]
    measure, references = run.metrics["measure"], _references(run, reading)
    lines = [
        curve.line(reading, measure, curve.name, style=i, bold=curve.name == chosen)
        for i, curve in enumerate(curves)
    ]
    # A reference far above the curves would flatten them.
    highest = _MOST_ABOVE * value_range(lines)[1]
    ends = [min(curve.x[0] for curve in curves), max(curve.x[-1] for curve in curves)]
    sparse_beside = (
        f"kernel regression, {of_source(chosen, RANDOM)}"
        if run.selection["task"] == "sparse"
        else None
    )
    drawn = {n: v for n, v in references.items() if v <= highest or n == sparse_beside}
    lines += [
        Line(name, ends, [value] * 2, style=len(curves) + i, dashed=True)
        for i, (name, value) in enumerate(drawn.items())
    ]
    above = [f"{name} ({number(references[name], 3)})" for name in references.keys() - drawn.keys()]
    chart = line_chart(
        lines,
        title="Error against the number of landmarks",
        xlabel="landmarks",
        ylabel=measure_title(measure),
        log_x=True,
        y_limits=(0.0, None),
    )
    return Figure(
        chart,
        f"{measure_title(measure, capital=True)} against the number of landmarks: {ROWS[reading]}"
        + "."
        + " Dashed: references." * bool(drawn)
        + (f" Above the chart: {', '.join(sorted(above))}." if above else ""),
    )


def _baseline_table(run: FinishedRun) -> Table:
    parts, measure = {"test": "Held out", "validation": "Mean of folds"}, run.metrics["measure"]
    model = {run.selection["similarity"]: run.metrics["curves"][0]["points"][-1]}
    rows = [
        {
            "Model": name,
            **{t: measured(entry, part, measure) for part, t in parts.items()},
            "Training rows": sampled.get("n_train"),
            "Guarded": sampled.get("n_guarded"),
        }
        for name, entry in {**model, **run.metrics["baselines"]}.items()
        for sampled in (entry.get("test") or entry.get("validation") or {},)
    ]
    n_rows = count(run.metrics["train"]["n_rows"], "training row")
    return Table(
        rows,
        f"{measure_title(measure, capital=True)} of the model and its references. There are "
        f"{n_rows}, of which references of a sample use those counted here. Rows whose "
        "similarities sum to zero are predicted by the mean and counted as guarded.",
        dict.fromkeys(parts.values(), "measure"),
        emphasis=[0],
    )


def _candidate_tables(run: FinishedRun) -> list[Block]:
    """List the best candidate of each similarity and metric."""
    candidates = run.metrics.get("candidates", [])
    titles = {
        "similarity": "Similarity",
        "metric": "Metric",
        "width": "Width",
        "ridge": "Ridge",
        "loss": "Loss",
        "behind": "Behind the chosen",
        "standard_error": "± standard error",
    }
    rows = [{title: entry[name] for name, title in titles.items()} for entry in candidates]
    chosen = [number for number, entry in enumerate(candidates) if entry["chosen"]]
    caption = (
        "The best of each similarity and metric on rows of a sample that it did not learn from: "
        "log losses of classes, otherwise squared errors in units of the target's variance. Widths "
        "are in median distances between rows."
    )
    measures = ("Width", "Ridge", "Loss", "Behind the chosen", "± standard error")
    return [Table(rows, caption, dict.fromkeys(measures, "measure"), emphasis=chosen)]


def _metric_tables(run: FinishedRun) -> list[Block]:
    """List what the metric weighs."""
    metric, found = run.selection["metric"], list[Block]()
    if "weights" in metric:
        weights = list(metric["weights"].items())
        rest = more(len(weights), _COLUMNS_SHOWN, "in selection.json")
        found.append(
            Table(
                [{"Column": name, "Weight": share} for name, share in weights[:_COLUMNS_SHOWN]],
                f"Share of each column in squared distances of standardised rows.{rest}",
                {"Weight": "percent"},
            )
        )
    if "directions" in metric:
        rows = [
            {
                "Share": own["share"],
                "Direction": ", ".join(f"{n} {number(w, 2)}" for n, w in own["columns"].items()),
            }
            for own in metric["directions"]
        ]
        caption = "Leading directions, and their largest entries."
        found.append(Table(rows, caption, {"Share": "percent"}))
    return found


def _landmark_table(run: FinishedRun) -> Table:
    weights = run.weights["weights"][-1]
    n = weights.shape[1]
    titles = ["Weight"] if n == 1 else [f"Weight {p + 1}" for p in range(n)]
    rows = [
        {"Order": i, "Row": str(name), **dict(zip(titles, own, strict=True))}
        for i, (name, own) in enumerate(
            zip(run.selection["landmarks"][:_LANDMARKS_SHOWN], weights.tolist(), strict=False), 1
        )
    ]
    rest = more(len(run.selection["landmarks"]), _LANDMARKS_SHOWN, "in selection.json")
    how = "in the order of choice" if run.selection["task"] == "sparse" else "in random order"
    caption = f"The landmarks {how}, and the weight of the similarity to each.{rest}"
    return Table(rows, caption, dict.fromkeys(titles, "measure"))


def _goodness_table(run: FinishedRun) -> Table:
    """List the goodness (ε₀, B) of each similarity for a ladder of landmarks."""
    curves, reading = curves_of(run.metrics).values(), _reading(run)
    rows, emphasis = list[dict[str, Any]](), []
    for curve in curves:
        surrogate = "loss" if curve.has(reading, "loss") else "mse"
        loss, largest = curve.values(reading, surrogate), curve.values("train", "largest_weight")
        found = zip(curve.x, loss, largest, strict=True)
        rows += [
            {
                "Similarity": curve.name,
                "Landmarks": n,
                "Share τ": n / run.selection["n_candidates"],
                "Loss ε₀": epsilon,
                "Bound B": bound,
            }
            for n, epsilon, bound in found
        ]
        if curve.name == run.selection["similarity"]:
            emphasis.append(len(rows) - 1)
    return Table(
        rows,
        "A similarity is (ε₀, B)-good for the task if weights of size at most B have a loss of "
        f"at most ε₀. Estimated with this number of landmarks: ε₀ is the loss ({ROWS[reading]}), "
        "B the largest weight where similarities are averaged, τ the share of the candidates "
        "that are used.",
        {"Share τ": "percent", "Loss ε₀": "measure", "Bound B": "measure"},
        emphasis=emphasis,
    )


def _predicted_figure(run: FinishedRun) -> Sequence[Block]:
    found = run.metrics.get("predicted")
    if found is None:  # of classes
        return []
    points = [
        Point(f"row {i + 1}", true, predicted)
        for i, (true, predicted) in enumerate(zip(found["true"], found["predicted"], strict=True))
    ]
    chart = scatter_chart(
        points,
        title="Predicted against true values",
        xlabel="true value",
        ylabel="prediction",
        diagonal=True,
        n_labels=0,
    )
    rows = count(len(points), "sampled row")
    return [Figure(chart, f"Predictions against true values: {rows}, {ROWS[found['rows']]}.")]
