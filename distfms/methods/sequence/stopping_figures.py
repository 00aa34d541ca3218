"""What the report says of rows that stop where they need no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FinishedRun
from distfms.report.formatting import count, interval, measure_title, number, percent
from distfms.report.headline import sentence
from distfms.report.page import Figure, PageSection, Text
from distfms.report.plots import Bar, Line, bar_chart, line_chart
from distfms.stats.base import student_t

_LEVEL = 0.95


def in_one_sentence(run: FinishedRun) -> str:
    """Say below the headline what stopping row by row is worth, where it is advised."""
    rows = run.metrics["stop"].get("rows", {})
    is_news = rows.get("advised", False) and _is_as_good(rows) and _cost_share(rows)[0] < 1.0
    if not is_news:
        return ""
    cost = interval(*_cost_share(rows))
    share, n_groups = _commonest_stop(run)
    return sentence(
        f"Stopping row by row does as well for {cost} of that cost",
        f": {percent(share)} of rows stop {_after(run, n_groups)}",
    )


def _is_as_good(rows: Mapping[str, Any]) -> bool:
    """Return whether the loss row by row is that of the recommended prefix, or less."""
    measure = rows["measure"]
    validation = rows["validation"]
    error = validation[f"error_of_{measure}"] or 0.0
    return bool(validation[measure] <= rows["prefix"]["validation"][measure] + error)


def _cost_share(rows: Mapping[str, Any]) -> tuple[float, float]:
    """Return what rows cost as a share of the recommended prefix, and its standard error."""
    whole = rows["prefix"]["budget"]
    validation = rows["validation"]
    if not whole:
        return float("inf"), 0.0
    return validation["mean_cost"] / whole, (validation["error_of_mean_cost"] or 0.0) / whole


def _worth(run: FinishedRun) -> str:
    """Compare the default policy with the recommended prefix, on the folds."""
    rows = run.metrics["stop"]["rows"]
    measure = rows["measure"]
    validation = rows["validation"]
    title = measure_title(measure)
    error = validation[f"error_of_{measure}"]
    loss = number(validation[measure], 3)
    if error:
        loss += f" ± {number(error, 2)}"
    if _is_as_good(rows):
        comparison = f"the same {title} ({loss})"
    else:
        at_prefix = number(rows["prefix"]["validation"][measure], 3)
        comparison = f"a greater {title} ({loss}; at one prefix {at_prefix})"
    cost = f"a mean cost of {number(validation['mean_cost'])}"
    if rows["prefix"]["budget"]:
        cost = f"{interval(*_cost_share(rows))} of the cost"
    share, n_groups = _commonest_stop(run)
    return f"{comparison} for {cost}: {percent(share)} of rows stop {_after(run, n_groups)}"


def _commonest_stop(run: FinishedRun) -> tuple[float, int]:
    """Return where most rows stop, of those that stop before others do: their share, its groups."""
    shares = run.metrics["stop"]["rows"]["share"]
    stages = np.flatnonzero(shares)
    most = max(stages[: max(len(stages) - 1, 1)], key=lambda stage: shares[stage])
    return shares[most], run.metrics["stopping_prefixes"][most]["n_groups"]


def _after(run: FinishedRun, n_groups: int) -> str:
    if not n_groups:
        return "without any group"
    return f"after {run.selection['sequence'][n_groups - 1]['group']}"


def stopping_section(run: FinishedRun) -> PageSection:
    """Draw the losses of policies and prefixes against mean cost, and where rows stop."""
    if not (policies := run.metrics.get("stopping")):
        return PageSection("")
    prefixes = run.metrics["stopping_prefixes"]
    rows = run.metrics["stop"]["rows"]
    measure = rows["measure"]
    gain = rows["gain"] or 0.0
    title = measure_title(measure)
    n_folds = len(run.metrics["folds"])
    width = float(student_t(_LEVEL, max(n_folds - 1, 1)))
    lines = [
        _line("each row on its own", policies, measure, width, rows["validation"]),
        _line("all rows at one prefix", prefixes, measure, width),
    ]
    text = "" if rows["advised"] else "One prefix for all rows is as good here. "
    text += (
        f"A row may stop where its own prediction says that the next groups are not worth "
        f"their cost: {_worth(run)}. If the same mean cost were spent on prefixes drawn at random, "
        f"the {title} would be higher by {number(gain, 3)} ± {number(rows['error_of_gain'], 2)} "
        "(measured on folds that had no part in the choice). `distfms predict … --stop rows` stops "
        "row by row; "
        "`--mean-budget` and `--confidence` set another place to stop."
    )
    bars = [
        Bar(_after(run, prefix["n_groups"]), share, percent(share))
        for prefix, share in zip(prefixes, rows["share"], strict=True)
        if share > 0
    ]
    return PageSection(
        "Where each row stops",
        [
            Text(text),
            Figure(
                line_chart(
                    lines,
                    title=f"{measure_title(measure, True)} against mean cost",
                    xlabel="mean cost of a row",
                    ylabel=title,
                ),
                f"{measure_title(measure, True)} in cross-validation against the mean cost, with "
                f"{percent(_LEVEL)} intervals over {count(n_folds, 'fold')}. Ring: the default.",
            ),
            Figure(
                bar_chart(bars, title="Where rows stop", xlabel="share of rows"),
                "Share of the rows that stop after each group by the default policy.",
            ),
        ],
    )


def _line(
    name: str, points: Any, measure: str, width: float, ring: Mapping[str, Any] | None = None
) -> Line:
    measures = [point["validation"] for point in points]
    x = [of_point["mean_cost"] for of_point in measures]
    y = np.array([of_point[measure] for of_point in measures], dtype=float)
    errors = np.array([of_point[f"error_of_{measure}"] for of_point in measures], dtype=float)
    low = (y - errors * width).tolist()
    high = (y + errors * width).tolist()
    marks = [] if ring is None else [(ring["mean_cost"], ring[measure])]
    return Line(name, x, y.tolist(), low, high, bold=ring is not None, marks=marks)
