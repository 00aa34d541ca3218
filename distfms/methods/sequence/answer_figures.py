"""What a sequence answers: groups in their order, what they explain, where to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.sequence.evaluate import NATURAL, advised, point_of, steps_of
from distfms.methods.sequence.options import ORACLE
from distfms.methods.sequence.stopping_figures import in_one_sentence
from distfms.report.formatting import count, interval, measure_title, number, percent
from distfms.report.headline import (
    UNMEASURED,
    called,
    constant_answer,
    error_of_auroc,
    lines,
    no_better,
    of_classes,
    sentence,
)
from distfms.report.metrics import (
    ROWS,
    auroc_of,
    class_numbers,
    curves_of,
    decided,
    error_of,
    measured,
    trusted,
    value_range,
)
from distfms.report.page import Block, Choices, Figure, KeyNumber, KeyNumbers
from distfms.report.plots import Line, line_chart
from distfms.report.sections import notes, usage

Step = Mapping[str, Any]


_TITLES = {
    "fr": "forward regression (fr)",
    "omp": "matching pursuit (omp)",
    "omp-single": "omp, best single column",
    "omp-no-whiten": "omp, not whitened",
    "gain": "gain of LightGBM (gain)",
    "oracle": "oracle order",
    "random": "random order",
    "sparse": "cost-weighted group lasso (sparse)",
}


_VARIANTS = {"-doubling": ", doubling", "-blind": ", cost-blind"}


_GROUPS_NAMED = 12


#: Where a run is told to stop, by the rule of ``stop`` in ``metrics.json``.
WHY = {
    "one_standard_error": "the fewest groups that do as well as the best number of them",
    "training_plateau": "where the curve on the training rows levels off",
    "budget": "what the budget pays for",
    "tuned": "the number of groups that tuning chose",
}


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to measure, and what it tells of other rows."""
    stop = run.metrics["stop"]
    n_all = len(run.selection["sequence"])
    n_groups = stop["n_groups"]
    constant = constant_answer(run.metrics)
    if not n_groups:
        buy = "The budget buys nothing of use" if stop["rule"] == "budget" else "Measure nothing"
        answer = sentence(f"{buy}: no group predicts better than always answering {constant}")
        return lines(answer, _trees_are_better(run))
    stopped = _stopped(run)
    unmeasured = UNMEASURED if stopped.reading == ROWS["train"] else ""
    if worth := _worth_no_more(run):
        return lines(no_better(constant, worth), unmeasured, _trees_are_better(run))
    answer = sentence(*_measured(run, n_groups, n_all))
    return lines(answer, unmeasured, _trees_are_better(run), in_one_sentence(run))


def _worth_no_more(run: FinishedRun) -> str:
    """Say what a model is worth that a constant is within a standard error of; else nothing."""
    share, error, _ = stopped = _stopped(run)
    if share is not None and error is not None and share <= error:
        return f"the model explains {stopped} of {_target(run)}"
    if len(run.metrics.get("classes", {}).get("names", ())) != 2:
        return ""
    auroc = auroc_of(run.metrics)
    error = error_of_auroc(run.metrics)
    if auroc is None or error is None or auroc - 0.5 > error:
        return ""
    return of_classes(run.metrics)[0]


def _measured(run: FinishedRun, n_groups: int, n_all: int) -> list[str]:
    """Return the clauses of a sentence: which groups, what they tell, for what, beside what."""
    is_of_classes = bool(run.metrics.get("classes"))
    if is_of_classes:
        tells = of_classes(run.metrics)[0]
    else:
        explain = "it explains" if n_groups == 1 else "they explain"
        tells = f"{explain} {_stopped(run)} of {_target(run)}"
    if n_groups == n_all:
        groups = f"all {number(n_all)} groups"
        if n_all == 1:
            groups = called(run.selection["sequence"][0]["group"])
        return [f"Measure {groups}: {tells}", _beside(run)]
    groups = f"{number(n_groups)} of {number(n_all)} groups"
    cost = _cost_clause(run)
    if not is_of_classes:
        whole = f"; all {number(n_all)} explain {_by_all(run)}"
        return [f"Measure {groups}: {tells}", cost, whole, _beside(run)]
    if run.metrics["stop"]["rule"] != "one_standard_error":
        return [f"Measure {groups}: {tells}", cost, _beside(run)]
    verb = "does" if n_groups == 1 else "do"
    answer = f"{groups} {verb} as well as all of them: {tells}"
    return [answer, cost, _beside(run)]


def _target(run: FinishedRun) -> str:
    names = run.model["target_names"]
    name = called(names[0]) if len(names) == 1 else f"{number(len(names))} targets"
    kind = "deviance" if run.metrics.get("classes") else "variation"
    return f"the {kind} of {name}"


def _cost_clause(run: FinishedRun) -> str:
    """Say which share of the cost of all groups is spent, where they do not all cost the same."""
    steps = run.selection["sequence"]
    if not steps[-1]["spent"] or len({step["cost"] for step in steps}) == 1:
        return ""
    return f" for {percent(run.metrics['stop']['spent'] / steps[-1]['spent'])} of the cost"


def _beside(run: FinishedRun) -> str:
    """Say how well boosted trees do by the same measure."""
    reference = run.metrics.get("reference")
    if not reference:
        return ""
    if run.metrics.get("classes"):
        return of_classes(run.metrics)[1]
    share = _judged(reference, reference["folds"], run)
    n_rows = reference["n_train"]
    rows = f" of {count(n_rows, 'row')}" if n_rows < run.metrics["train"]["n_rows"] else ""
    return f"; LightGBM on all columns{rows} {share}"


def _trees_are_better(run: FinishedRun) -> str:
    """Say that boosted trees do much better."""
    if not run.metrics.get("reference", {}).get("is_far"):
        return ""
    return "LightGBM on all columns does better: try `model: lightgbm`."


def answer_blocks(run: FinishedRun) -> list[Block]:
    """Return the first screen: what to compute in which order, and what that explains."""
    selection = run.selection
    steps = steps_of(selection, advised(run.metrics))
    named = [(step["group"], f"costs {number(step['cost'])}") for step in steps[:_GROUPS_NAMED]]
    n_more = len(selection["sequence"]) - len(named)
    ending = f"{number(n_more)} more, in the order of the sequence below" if n_more else ""
    columns = [name for step in steps for name in step["columns"]]
    return [
        _key_numbers(run),
        Choices(named, ending),
        *([_answer_figure(run)] if len(selection["sequence"]) > 1 else []),
        *usage(run.called, run.manifest, columns),
        decided(run.metrics, "Order and models come", explained(run, 0)[1]),
        *notes(run.manifest, [*selection["notes"], *_free(run)]),
    ]


def _free(run: FinishedRun) -> list[str]:
    """Say once that nobody has set costs."""
    steps = run.selection["sequence"]
    if len(steps) < 2 or any(step["cost"] != 1 for step in steps):
        return []
    return ["Every group costs 1: set `sequence.costs` to what each really costs."]


def _answer_figure(run: FinishedRun) -> Figure:
    """Draw the chosen curve with the group of each step, before the other rules."""
    measure = share_name(run)
    curves = curves_of(run.metrics)
    chosen = curves[run.selection["rule"]]
    rows = trusted([chosen], measure)
    lines = []
    for curve in curves.values():
        if curve is not chosen and not curve.name.startswith(ORACLE):
            line = curve.line(rows, measure, rule_title(curve.name), faint=True)
            if any(value is not None for value in line.y):
                lines.append(line)
    steps = run.selection["sequence"]
    start = 0
    names = []
    for point in chosen.points:
        names.append(names_of(steps[start : point["n_groups"]]))
        start = point["n_groups"]
    line = chosen.line(rows, measure, rule_title(chosen.name), style=0, bold=True, names=names)
    line = replace(line, marks=ring(run, line))
    caption = (
        f"{measure_title(measure, True)} against the cost spent ({ROWS[rows]}), with the group "
        "that is computed at each step. Ring: where to stop."
    )
    if lines:
        caption += " Thin lines: other rules."
    chart = curve_chart([*lines, line], run, measure, "by the groups in their order")
    return Figure(chart, caption)


def _key_numbers(run: FinishedRun) -> KeyNumbers:
    steps = run.selection["sequence"]
    stop = run.metrics["stop"]
    stopped = _stopped(run)
    reading = stopped.reading
    groups = f"{number(stop['n_groups'])} of {count(len(steps), 'group')}"
    return KeyNumbers(
        [
            KeyNumber(str(stopped), f"of the {what(run)} explained", f"by {groups}; {reading}"),
            KeyNumber(
                number(stop["spent"]),
                "cost of these groups",
                f"{WHY[stop['rule']]} ({count(stop['best_n_groups'], 'group')})",
            ),
            *class_numbers(run.metrics),
            KeyNumber(
                str(_by_all(run)),
                "explained by all groups",
                f"{reading}; they cost {number(steps[-1]['spent'])}",
            ),
        ]
    )


def explained(run: FinishedRun, model: int) -> tuple[float | None, str]:
    """Return the most trusted share that a model explains, and where it comes from."""
    judged = _judged(point_of(run.metrics, model), (), run)
    return judged.share, judged.reading


class Judged(NamedTuple):
    """The most trusted share of a point of a curve, its error, and the rows that it is of."""

    share: float | None
    error: float | None
    reading: str

    def __str__(self) -> str:
        return interval(self.share, self.error)


def _judged(
    point: Mapping[str, Any], folds: Sequence[Mapping[str, Any]], run: FinishedRun
) -> Judged:
    """Return the most trusted share of a point, with its error by what folds say."""
    name = share_name(run)
    judged_on = (rows for rows in ROWS if measured(point, rows, name) is not None)
    rows = next(judged_on, "train")
    error = error_of(run.metrics, rows, folds, name)
    return Judged(measured(point, rows, name), error, ROWS[rows])


def _stopped(run: FinishedRun) -> Judged:
    """Return what is explained where predictions stop, as folds report that chose nothing."""
    point = dict(point_of(run.metrics, advised(run.metrics)))
    if "validation" in run.metrics["stop"]:
        point["validation"] = run.metrics["stop"]["validation"]
    return _judged(point, run.metrics.get("folds_at_stop", ()), run)


def _by_all(run: FinishedRun) -> Judged:
    """Return what the model of all groups explains."""
    point = point_of(run.metrics, len(run.selection["sequence"]))
    return _judged(point, run.metrics["folds"], run)


def what(run: FinishedRun) -> str:
    """Return what shares are of, by the loss of the family."""
    return "variance" if run.selection["family"] == "gaussian" else "deviance"


def share_name(run: FinishedRun) -> str:
    """Return the name of the measure that says what is explained."""
    return f"explained_{what(run)}"


def curve_chart(lines: Sequence[Line], run: FinishedRun, measure: str, of: str) -> str:
    """Draw curves of a measure against the cost spent."""
    stop = run.metrics["stop"]
    limits: tuple[float | None, float | None] = (None, None)
    bottom, top = value_range(lines)
    if measure not in NATURAL:
        # An extrapolating prefix can be far below nothing explained; the chart need not follow it.
        limits = (max(min(0.0, bottom), -0.5), 1.08 * top if top > 0 else None)
    return line_chart(
        # Between two prefixes the prediction is that of the earlier. What groups between two that
        # were fitted would add is unknown.
        [replace(line, step=line.step or all_fitted(run)) for line in lines],
        title=f"{measure_title(measure, True)} {of}",
        xlabel="cost spent",
        ylabel=measure_title(measure),
        marks={f"stop after {count(stop['n_groups'], 'group')}": stop["spent"]},
        y_limits=limits,
        y_percent=not measure.startswith("ndcg"),
    )


def ring(run: FinishedRun, line: Line) -> list[tuple[float, float]]:
    """Return where to stop, on the line of the chosen sequence."""
    stop = run.metrics["stop"]["spent"]
    reached = [y for x, y in zip(line.x, line.y, strict=True) if x <= stop * (1 + 1e-9)]
    return [(stop, reached[-1])] if reached and reached[-1] is not None else []


def all_fitted(run: FinishedRun) -> bool:
    """Return whether a model was fitted after each group."""
    return all(step["gain"] is not None for step in run.selection["sequence"])


def names_of(steps: Sequence[Step]) -> str:
    """Name the groups of some steps."""
    names = ", ".join(step["group"] for step in steps[:_GROUPS_NAMED])
    if len(steps) > _GROUPS_NAMED:
        names += f" and {len(steps) - _GROUPS_NAMED} more"
    return names


def rule_title(name: str) -> str:
    """Return what readers call a rule; variants by their endings."""
    if name.startswith(f"{ORACLE}:"):
        return f"{_TITLES[ORACLE]} of {rule_title(name.removeprefix(f'{ORACLE}:'))}"
    endings = ""
    for ending, words in _VARIANTS.items():
        if name.endswith(ending):
            name, endings = name.removesuffix(ending), words + endings
    return f"{name}{endings}" if endings else _TITLES.get(name, name)
