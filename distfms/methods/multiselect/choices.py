"""The ridge, and the way to select, that cross-validation chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.moments import points_on_folds
from distfms.methods.frame.tuning import Choice as Tuned
from distfms.methods.frame.tuning import changed_options, choose_options, compared
from distfms.methods.multiselect.options import MEASURES, MultiselectOptions
from distfms.report.formatting import options_text
from distfms.stats.base import Bundle, over_folds

#: Ridges of `auto`, in the order of preference.
RIDGES = (0.01, 0.001, 0.1, 0.0)

Choice = dict[str, Any]


def choices(options: MultiselectOptions, n_folds: int) -> list[Choice]:
    """List what there is to choose from, as options, the preferred first.

    Raises
    ------
    SpecError
        If there is no cross-validation to choose by.
    """
    ways: tuple[str, ...] = (options.selection,)
    if options.selection == "auto":
        ways = ("greedy", "lasso") if n_folds > 1 else ("greedy",)
    if options.ridge == "auto":
        ridges: tuple[float, ...] = RIDGES if n_folds > 1 else (0.0,)
    else:
        ridges = options.ridge if isinstance(options.ridge, tuple) else (options.ridge,)
    found: list[Choice] = [{"selection": way, "ridge": ridge} for way in ways for ridge in ridges]
    if len(found) > 1 and n_folds < 2:
        raise SpecError(
            "`multiselect.ridge` needs cross-validation, which this job does not have. Set "
            "`data.folds` to at least 2, or give one value; a search in slabs has no folds."
        )
    return found


def best_choice(tried: Sequence[Choice], values: np.ndarray, weight: Sequence[float]) -> int:
    """Choose the ridge of each way to select, then the way; `values` are losses by fold."""
    ends = []
    for way in dict.fromkeys(choice["selection"] for choice in tried):
        own = [i for i, choice in enumerate(tried) if choice["selection"] == way]
        ends.append(own[first_within_error(values[own], weight)])
    return ends[first_within_error(values[ends], weight)]


def first_within_error(values: np.ndarray, weight: Sequence[float]) -> int:
    """Find the first whose mean loss exceeds the least by at most one standard error.

    That error is of the mean difference over the folds, which is smaller than that of a loss
    where all find the same fold hard. `values` has shape (n, n_folds); without any mean it is 0.
    """
    mean = over_folds(values, weight).mean
    least = int(np.argmin(np.where(np.isnan(mean), np.inf, mean)))
    behind = over_folds(values - values[least], weight)
    return int(np.argmax(behind.mean <= behind.standard_error))


# --- on the folds of a job ------------------------------------------------------------------------


def with_tuned(run: Run, job: Job, statistics: Bundle) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with the best options of a grid, and the comparison; step ``tune``.

    Each point has the best of what it leaves open.
    """

    def answers(
        points: Sequence[Mapping[str, Any]], measure: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        left_open = [choices(changed_options(job.options, p), job.n_folds) for p in points]
        tried = [{**p, **c} for p, own in zip(points, left_open, strict=True) for c in own]
        found, values = losses_on_folds(run, job, statistics, tried, measure)
        parts = np.split(values, np.cumsum([len(own) for own in left_open])[:-1])
        pairs = zip(left_open, parts, strict=True)
        best = [part[best_choice(own, part, found.weight)] for own, part in pairs]
        return found, np.array(best)

    options, tuning = choose_options(run, job, answers)
    return replace(job, options=options), tuning


def with_choice(run: Run, job: Job, statistics: Bundle) -> tuple[Job, dict[str, Any] | None]:
    """Return the job with one ridge and one way to select, and the comparison; step ``ridge``.

    Without a step where there is nothing to choose from.
    """
    tried = choices(job.options, job.n_folds)
    if len(tried) == 1:
        return job, None
    told = run.step("ridge", lambda: _compared_choices(run, job, statistics, tried))
    return replace(job, options=changed_options(job.options, told["chosen"])), told


def _compared_choices(
    run: Run, job: Job, statistics: Bundle, tried: Sequence[Choice]
) -> dict[str, Any]:
    measure = next(iter(MEASURES))
    found, values = losses_on_folds(run, job, statistics, tried, measure)
    best, n_folds = best_choice(tried, values, found.weight), len(found.folds)
    how = "by cross-validation" if n_folds > 1 else "with fewer than two folds to choose by"
    run.note(f"Chosen {how}: {options_text(tried[best])}.")
    means = over_folds(values, found.weight)
    least = int(np.argmin(np.where(np.isnan(means.mean), np.inf, means.mean)))
    choice = Tuned(means.mean, means.standard_error, least, best)
    said = {"measure": measure, "higher_is_better": False, "rule": "by_difference"}
    return said | compared(tried, found, values, choice)


def losses_on_folds(
    run: Run, job: Job, statistics: Bundle, points: Sequence[Mapping[str, Any]], measure: str
) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points on folds; a path for a greater budget answers smaller ones."""
    procedure_of = job.form.procedure
    return points_on_folds(run, job, statistics, procedure_of, points, measure, nested="budget")
