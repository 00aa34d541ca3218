"""The method as the driver knows it, and its job for more attributes than one process can pair.

That one computes, keeps and searches the covariance in slabs of attributes; see `methods.slab_job`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from distfms.data.partition import Dataset
from distfms.engine.storage import Location
from distfms.methods import slab_job
from distfms.methods.contract import Chosen, Context, FinishedRun, Inputs, Job, Method
from distfms.methods.curves import regrouped
from distfms.methods.multiselect.evaluate import attribute_entries
from distfms.methods.multiselect.greedy import AttributeSlab, Question, answer, select
from distfms.methods.multiselect.job import MultiselectJob
from distfms.methods.multiselect.objective import Problem, SelectionPath
from distfms.methods.multiselect.options import MEASURES, NOT_TUNABLE, TUNABLE, MultiselectOptions
from distfms.methods.multiselect.procedure import Rule
from distfms.methods.multiselect.read import judgment_reader, make_predictor
from distfms.methods.rows import SummaryReader
from distfms.methods.slabs import Pool, StoredMatrix
from distfms.stats.base import Bundle
from distfms.stats.judgments import JudgmentEstimates

#: Rules that do not need the whole covariance in one place.
IN_SLABS = ("full", "scoring")

#: Estimates that are not one number for each attribute, or for all of them.
_MATRICES = ("second_moment", "external", "noise_covariance")


def one_process_bytes(job: MultiselectJob, n_attributes: int, n_folds: int) -> int:
    """Project what a job in one process would hold at least, where no judgment is missing.

    That is the statistics of every fold and of the held-out objects, as a file and as arrays, and
    what is derived from them.
    """
    n_parts = max(n_folds, 1) + 1
    of_raters = 4 if job.layout.knows_raters else 0  # pairs of different ones, and of the same
    n_matrices = 2 * n_parts * (1 + of_raters) + 6
    return 8 * n_matrices * n_attributes**2


class MultiselectSlabsJob(slab_job.SlabsJob):
    """Feature multi-selection with the covariance in slabs."""

    name: ClassVar[str] = "multiselect"
    items = "attributes"

    def __init__(self, job: MultiselectJob) -> None:
        rules, n = job.settings.rules, len(job.layout.names)
        left_out = [rule.name for rule in rules if rule.name not in IN_SLABS]
        whole = MultiselectJob(job.options, slab_job.without_folds(job).inputs, job.seed)
        kept = tuple(rule for rule in rules if rule.name in IN_SLABS)
        whole.settings = replace(whole.settings, rules=kept)
        needed = one_process_bytes(job, n, job.inputs.section.folds)
        super().__init__(whole, needed, left_out, [1] * n)

    # --- sizes ---

    @property
    def _most_bought(self) -> int:
        """Most attributes that a path can buy."""
        settings = self.whole.settings
        return min(int(settings.budget / settings.costs.min()), len(settings.names))

    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab.

        The co-moments of complete judgments become Σ in place; while a slab of judgments with gaps
        is loaded there are three arrays more. The search keeps a few rows for what is selected.
        """
        return 2 * self.slab_bytes() + 8 * self.slab_columns() * 3 * self._most_bought

    def chosen_bytes(self) -> int:
        """Project what the job on the selected attributes holds: each path buys from few."""
        settings = self.whole.settings
        n = min(len(settings.rules) * self._most_bought, len(settings.names))
        return one_process_bytes(self.whole, n, 0)

    # --- statistics ---

    def slab_reader(
        self, context: Context, number: int, dataset: Dataset, held_out: bool
    ) -> SummaryReader:
        """Return the reader of the statistics of a slab."""
        own = slice(*self.starts[number : number + 2])
        return judgment_reader(self.whole.source(dataset, held_out), own)

    def slab_arrays(
        self, context: Context, number: int, statistics: Bundle
    ) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        """Return the rows of the covariance, and what is known of each attribute."""
        slab, settings = statistics["judgments"].train(), self.whole.settings
        own = slice(*self.starts[number : number + 2])
        estimates = slab.estimates(settings.internal_variance[own], settings.names[own])
        numbers = [field.name for field in fields(estimates) if field.name not in _MATRICES]
        columns = {name: np.asarray(getattr(estimates, name)) for name in numbers}
        return {"external": estimates.external}, columns

    def _estimates(self, context: Context) -> JudgmentEstimates:
        without = dict.fromkeys(_MATRICES, np.zeros((0, 0)))
        return JudgmentEstimates(**self.known_columns(context) | without)

    # --- selection ---

    def outline(self, context: Context) -> Problem:
        """Return the problem of all attributes without their covariance."""
        settings, estimates = self.whole.settings, self._estimates(context)
        problem = Problem.from_estimates(
            estimates, names=settings.names, costs=settings.costs, psd="none"
        )
        problem = replace(problem, external_variance=estimates.external_variance)
        return settings.with_ridge(problem)

    def shards(self, outline: Problem, locations: Sequence[Location]) -> list[Any]:
        """Return the slabs of attributes."""
        return [
            AttributeSlab.of(outline, *own, StoredMatrix(location, "external"))
            for own, location in zip(pairwise(self.starts), locations, strict=True)
        ]

    def search(
        self, procedure: Any, outline: Problem, rule: Rule, pool: Pool, shards: list[Any]
    ) -> SelectionPath:
        """Return the path of a rule; Scoring needs no covariance and no actors."""
        settings = self.whole.settings
        on: Any = {"pool": pool, "slabs": shards} if rule.objective == "full" else {}
        return select(outline, settings.budget, rule.objective, settings.criterion, **on)

    def selection(
        self, context: Context, outline: Problem, paths: Mapping[str, SelectionPath], pool: Pool
    ) -> Mapping[str, Any]:
        """Return the content of ``selection.json``."""
        path, settings = paths["full"], self.whole.settings
        context.count(n_candidates=path.n_candidates)
        bought = np.unique(path.attributes)
        rows = pool.step(answer, Question([], "among", (bought,)))
        problem = outline.take(bought, np.concatenate(rows))
        content = self.restricted(context, bought).path_content(problem, path.on(bought))
        estimates = self._estimates(context)
        return {
            **content,
            "constant": [settings.names[a] for a in np.flatnonzero(~outline.candidates).tolist()],
            "attributes": attribute_entries(
                settings.names, settings.costs, estimates, estimates.n_judgments
            ),
        }

    def chosen(self, outline: Problem, paths: Mapping[str, SelectionPath]) -> np.ndarray:
        """Return the attributes that some path has bought."""
        return np.unique(np.concatenate([path.attributes for path in paths.values()]))

    def restricted_path(
        self, outline: Problem, path: SelectionPath, chosen: np.ndarray
    ) -> SelectionPath:
        """Write a path as one on the chosen attributes."""
        return path.on(chosen)

    def restricted(self, context: Context, chosen: np.ndarray) -> MultiselectJob:
        """Return the ordinary job on the chosen attributes."""
        job: MultiselectJob = copy(self.whole)
        variance = self.outline(context).mean_variance
        job.settings = replace(self.whole.settings.restricted(chosen), variance=variance)
        job.layout = self.whole.layout.restricted(job.settings.names)
        return job

    def check(self, context: Context, job: MultiselectJob, statistics: Bundle) -> None:
        """Account for the judgments of all attributes, not of the chosen ones only."""
        job.check(context, statistics)
        totals = self._estimates(context).n_judgments.tolist()
        by_name = dict(zip(self.whole.layout.names, totals, strict=True))
        context.account(judgments={"total": int(sum(totals)), "train": by_name})


def make_job(options: MultiselectOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job, in slabs of attributes where they are too many for one process."""
    job = MultiselectJob(options, inputs, seed)
    able = options.algorithm == "full" and options.psd == "none" and not options.refine
    able = able and options.buy_from == "independent" and options.selection != "lasso"
    needed = one_process_bytes(job, len(job.layout.names), inputs.section.folds)
    return MultiselectSlabsJob(job) if able and needed > slab_job.ONE_PROCESS_BYTES else job


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the repeats of attributes, and what they add to the objective."""
    path, gains = run.selection["path"], dict[str, float]()
    for step, gain in zip(
        path, np.diff([0.0, *(step["objective"] for step in path)]).tolist(), strict=True
    ):
        gains[step["attribute"]] = gains.get(step["attribute"], 0.0) + gain
    weights = dict(zip(run.model["attributes"], run.weights["weights"].tolist(), strict=True))
    repeats = run.selection["repeats"].items()
    return {name: Chosen(n, gains.get(name), weights.get(name)) for name, n in repeats}


def _from_1(run: FinishedRun) -> FinishedRun:
    kinds = {"projected_loss": "train", "validation_loss": "validation", "test_loss": "test"}
    places = {name: (rows, "projected_loss") for name, rows in kinds.items()}
    return regrouped(run, places | {name: ("validation", name) for name in ("lower", "upper")})


METHOD = Method(
    name="multiselect",
    Options=MultiselectOptions,
    make_job=make_job,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.multiselect.figures",
    starter={"budget": 20, "costs": {}},
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
    upgrades=(_from_1,),
)
