"""The ridge, and the way to select, that cross-validation chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Stage, run_stage
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.statistics_job import StatisticsJob
from distfms.methods.tuning import Choice as Tuned
from distfms.methods.tuning import compared
from distfms.report.formatting import options_text
from distfms.stats.base import over_folds

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
    ways = ("greedy", "lasso") if options.selection == "auto" else (options.selection,)
    if options.ridge == "auto":
        ridges: tuple[float, ...] = RIDGES if n_folds > 1 else (0.0,)
    else:
        ridges = options.ridge if isinstance(options.ridge, tuple) else (options.ridge,)
    found: list[Choice] = [{"selection": way, "ridge": ridge} for way in ways for ridge in ridges]
    if len(found) > 1 and n_folds < 2:
        key = "ridge" if len(ridges) > 1 else "selection"
        raise SpecError(
            f"`multiselect.{key}` needs cross-validation, which this job does not have. Set "
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


class ChoosingJob(StatisticsJob):
    """A job of which cross-validation chooses some options, the `choices`, before it selects."""

    choices: Sequence[Choice]

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order; from `select` on those of the job that is chosen."""
        stages = super().stages()
        if len(self.choices) == 1:
            return stages
        later = [Stage(s.name, partial(self._as_chosen, s.name)) for s in stages[1:]]
        return [stages[0], *later]

    def _as_chosen(self, name: str, context: Context) -> Mapping[str, Content]:
        if name == "select":
            tuning = self._tuning(context)
            choice: Choice = tuning["chosen"]
        else:
            selection = context.read_json("selection.json")
            choice = {key: selection[key] for key in self.choices[0]}
            tuning = selection["tuning"]
        files = dict(run_stage(self.with_options(choice), name, context))
        for file in {"selection.json", "metrics.json"} & files.keys():
            files[file] = {**files[file], "tuning": tuning}  # type: ignore[dict-item]
        return files

    def _tuning(self, context: Context) -> dict[str, Any]:
        """Compare what there is to choose from, and say what is chosen."""
        found, values = super().tune_answers(context, self.choices, "projected_loss", "")
        best = best_choice(self.choices, values, found.weight)
        how = (
            "by cross-validation"
            if len(found.folds) > 1
            else "with fewer than two folds to choose by"
        )
        context.note(f"Chosen {how}: {options_text(self.choices[best])}.")
        means = over_folds(values, found.weight)
        least = int(np.argmin(np.where(np.isnan(means.mean), np.inf, means.mean)))
        choice = Tuned(means.mean, means.standard_error, least, best)
        said = {"measure": "projected_loss", "higher_is_better": False, "rule": "by_difference"}
        return said | compared(self.choices, found, values, choice)

    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid on folds, each with the best of what it leaves open."""
        left_open = [choices(self.changed_options(p), self.inputs.section.folds) for p in points]
        tried = [{**p, **c} for p, own in zip(points, left_open, strict=True) for c in own]
        found, values = super().tune_answers(context, tried, measure, saved)
        parts = np.split(values, np.cumsum([len(own) for own in left_open])[:-1])
        pairs = zip(left_open, parts, strict=True)
        best = [part[best_choice(own, part, found.weight)] for own, part in pairs]
        return found, np.array(best)
