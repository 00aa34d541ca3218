"""The stage `tune`: a grid of options by cross-validation, and the stages that follow its choice.

A job of any method is run with it: its statistics do not depend on the options that can be tuned,
and every later stage is that of the same job with the chosen options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.methods.contract import (
    Content,
    Context,
    FoldAnswers,
    Inputs,
    Job,
    Method,
    Stage,
    TunableJob,
    run_stage,
)
from distfms.methods.statistics_job import number_or_none
from distfms.methods.tuning import Choice, Point, choose, grid_points, renamed
from distfms.report.formatting import options_text
from distfms.spec import Section, TuneSection

TUNING = "tuning.json"
#: File of the answers so far, while the stage runs.
SAVED = ".tuning"


@dataclass(frozen=True, eq=False)
class Tuning:
    """A job whose options are chosen by cross-validation.

    `job` has the options as the section has them, and does all that comes before the choice.
    """

    method: Method
    job: TunableJob
    options: Section
    inputs: Inputs
    seed: int
    tune: TuneSection
    points: list[Point]

    @classmethod
    def of(
        cls, method: Method, options: Section, inputs: Inputs, seed: int, tune: TuneSection
    ) -> Tuning:
        """Check the values of a checked grid against the data."""
        job = _tunable(method.make_job(options, inputs, seed))
        tuning = cls(method, job, options, inputs, seed, tune, grid_points(tune.grid))
        for name, values in tune.grid.items():
            for place, value in enumerate(values):
                try:
                    changed = method.make_job(tuning._changed({name: value}), inputs, seed)
                    _tunable(changed).check_tried(name, job)
                except SpecError as error:
                    raise renamed(error, job.name, name, place) from error
        return tuning

    def with_options(self, point: Mapping[str, Any]) -> Job:
        """Return the job with some options changed, in the form that the statistics are for."""
        job = type(self.job)(self._changed(point), self.inputs, self.seed)
        job.tuned = tuple(point)
        return job

    def _changed(self, point: Mapping[str, Any]) -> Section:
        return type(self.options).model_validate({**self.options.model_dump(), **point})

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        tune, n_folds = self.tune, self.inputs.section.folds
        tried = "; ".join(said_values(name, values) for name, values in tune.grid.items())
        n_points = len(self.points)
        rule = "the best" if tune.rule == "best" else "the simplest within one standard error"
        return {
            **self.job.describe(),
            "tuned": (
                f"{tried}: {n_points:,} points on {n_folds} folds, "
                f"{n_points * n_folds:,} evaluations; {rule} by {tune.measure}"
            ),
        }

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order, `tune` after the one that the job names."""
        stages = list(self.job.stages())
        first = 1 + [stage.name for stage in stages].index(self.job.tuned_after)
        later = [Stage(s.name, partial(self._on_chosen, s.name)) for s in stages[first:]]
        return [*stages[:first], Stage("tune", self._tune), *later]

    def _tune(self, context: Context) -> Mapping[str, Content]:
        measure, n_folds = str(self.tune.measure), self.inputs.section.folds
        found, values = self.job.tune_answers(context, self.points, measure, SAVED)
        context.account(tuning={"fits": found.n_done, "kept": found.n_kept})
        n_usable = len(found.folds)
        if n_usable < n_folds:
            context.note(
                f"Folds with fewer than two rows play no part in tuning: {n_folds - n_usable} of "
                f"{n_folds}. Choose fewer folds."
            )
        if n_usable < 2:
            raise DataError(
                f"Only {n_usable} of {n_folds} folds hold two rows or more, so there is nothing "
                "to tune by. Choose fewer folds (`data.folds`) or add rows."
            )
        better = self.method.measures[measure]
        choice = choose(values, found.weight, self.tune.rule, better)
        chosen = self.points[choice.chosen]
        context.note(
            f"Chosen by cross-validation among {len(self.points):,} points: {options_text(chosen)}."
        )
        said = {"measure": measure, "higher_is_better": better, "rule": self.tune.rule}
        return {TUNING: said | compared(self.points, found, values, choice)}

    def _on_chosen(self, name: str, context: Context) -> Mapping[str, Content]:
        """Run a stage of the job with the chosen options, and enter the choice in its results."""
        if isinstance(context.folder, Path):  # at a URL nothing was kept
            (context.folder / SAVED).unlink(missing_ok=True)
        tuning = context.read_json(TUNING)
        job = self.with_options(tuning["chosen"])
        files = dict(run_stage(job, name, context))
        brief = {key: tuning[key] for key in ("measure", "rule", "chosen")}
        for file, entry in (("selection.json", brief), ("metrics.json", tuning)):
            content = files.get(file)
            if isinstance(content, Mapping):
                files[file] = {**content, "tuning": entry}
        return files


def compared(
    points: Sequence[Point], found: FoldAnswers, values: np.ndarray, choice: Choice
) -> dict[str, Any]:
    """Return entries of ``tuning.json``: the points, what the folds say of them, and the choice."""
    folds = zip(found.folds, found.n_rows, strict=True)
    return {
        "chosen": points[choice.chosen],
        "folds": [{"fold": fold, "n_rows": n_rows} for fold, n_rows in folds],
        "points": [
            {
                "options": point,
                "folds": [number_or_none(v) for v in values[i]],
                "mean": number_or_none(choice.mean[i]),
                "standard_error": number_or_none(choice.standard_error[i]),
                "best": i == choice.best,
                "chosen": i == choice.chosen,
            }
            for i, point in enumerate(points)
        ],
    }


def _tunable(job: Job) -> TunableJob:
    """Return the job, unless it is of a form that cannot compare options on folds."""
    job.check_tuning()
    assert isinstance(job, TunableJob)
    return job


def said_values(name: str, values: Sequence[Any]) -> str:
    """Write the values of an option as ``ridge 0.1, 1 and 10``."""
    texts = [options_text({name: value}).removeprefix(f"{name} ") for value in values]
    if len(texts) > 6:
        texts = [*texts[:3], "…", texts[-1]]
    return f"{name} {', '.join(texts)}"
