"""The method as the driver knows it, and its job for more columns than one process can pair.

In that job, see `methods.slab_job`, columns are in the order of their groups, so that a slab of
whole groups is a run of columns. The sequence has to end before the products of its columns are too
many for one process: models and curves need them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import require_observed
from distfms.data.partition import Dataset
from distfms.engine.memory import format_bytes
from distfms.engine.storage import Location
from distfms.methods import slab_job
from distfms.methods.contract import Chosen, Context, FinishedRun, Inputs, Job, Method
from distfms.methods.curves import regrouped
from distfms.methods.row_predictor import RowPredictor, plan_of_model
from distfms.methods.rows import SummaryReader, moment_reader
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.evaluate import advised, fitted_together, steps_of
from distfms.methods.sequence.glm_job import GlmSequenceJob
from distfms.methods.sequence.greedy import GroupSlab
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.problem import (
    FeatureGroups,
    SequenceOutline,
    outline_from_columns,
    require_varying_targets,
)
from distfms.methods.sequence.procedure import MEASURES
from distfms.methods.sequence.residual import SequencePath
from distfms.methods.slabs import Pool, load_arrays
from distfms.methods.statistics_job import Solved
from distfms.stats.base import Bundle
from distfms.stats.comoments import CoMoments


@dataclass(frozen=True)
class Sizes:
    """What decides how large a job is; `widths` has the columns of each group."""

    widths: tuple[int, ...]
    n_targets: int
    n_searches: int
    max_groups: int
    n_folds: int = 0
    has_gaps: bool = False

    @classmethod
    def of(cls, job: SequenceJob) -> Sizes:
        """Return the sizes of a job."""
        guessed = list(job.guessed_widths().values())
        return cls(
            tuple(sum(guessed[c] for c in group) for group in job.groups.columns),
            len(job.roles.target),
            len(job.searched),
            job.options.max_groups or len(job.groups),
            job.inputs.section.folds,
            job.inputs.section.missing == "mean",
        )

    def support(self) -> int:
        """Return the most columns that a sequence has."""
        return sum(sorted(self.widths, reverse=True)[: self.max_groups])

    def one_process_bytes(self) -> int:
        """Project what the job in one process holds."""
        return self._job_bytes(sum(self.widths), self.n_folds)

    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""
        n_columns = min(self.n_searches * self.support(), sum(self.widths))
        return self._job_bytes(n_columns, 0)

    def _job_bytes(self, n_columns: int, n_folds: int) -> int:
        """Project what a job in one process holds: statistics twice, and models of all prefixes."""
        matrices, n_parts = 3 if self.has_gaps else 1, max(n_folds, 1) + 1
        n_matrices = 2 * matrices * n_parts + matrices + 3
        models = 3 * (self.max_groups + 1) * n_columns * self.n_targets
        return 8 * (n_matrices * (n_columns + self.n_targets) ** 2 + models)


@dataclass(frozen=True)
class StoredGroups:
    """The groups ``[first, last)`` of the outline, whose co-moments an actor loads."""

    location: Location
    outline: SequenceOutline
    first: int
    last: int

    def load(self) -> GroupSlab:
        """Read the file."""
        slab = CoMoments.from_arrays(load_arrays(self.location))
        return GroupSlab.from_comoments(slab, self.outline, self.first, self.last)


class SequenceSlabsJob(slab_job.SlabsJob):
    """Group sequencing with the Gram matrix in slabs."""

    name: ClassVar[str] = "sequence"
    items = "groups"

    def __init__(self, job: SequenceJob, sizes: Sizes) -> None:
        whole = on_groups(job, range(len(job.groups)))
        super().__init__(whole, sizes.one_process_bytes(), (), sizes.widths)
        self.sizes, self.n_targets = sizes, sizes.n_targets
        self.matrices = slab_job.MATRICES_WITH_GAPS if sizes.has_gaps else 1

    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""
        return self.sizes.chosen_bytes()

    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab: its rows, and those of the factor."""
        return self.slab_bytes() + 8 * self.slab_columns() * 2 * self.sizes.support()

    # --- statistics ---

    def _columns(self, context: Context, number: int) -> slice:
        """Return the columns of a slab; the last has the targets too."""
        procedure, (first, last) = self.whole.procedure(context), self.starts[number : number + 2]
        groups, n_columns = procedure.groups.columns, len(procedure.feature_names)
        stop = groups[last][0] if last < len(groups) else n_columns + self.n_targets
        return slice(groups[first][0], stop)

    def slab_reader(
        self, context: Context, number: int, dataset: Dataset, held_out: bool
    ) -> SummaryReader:
        """Return the reader of the statistics of a slab."""
        plan = self.whole.plan(context)
        source = self.whole.source(plan, dataset, held_out)
        return moment_reader(source, self._columns(context, number))

    def slab_arrays(
        self, context: Context, number: int, statistics: Bundle
    ) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        """Return the rows of the co-moments, and what is known of their columns."""
        plan, own = self.whole.plan(context), self._columns(context, number)
        slab: CoMoments = statistics["moments"].train()
        if number == 0:
            self.whole.require_rows(slab.n_samples, statistics["counts"].test.n_rows)
            self.whole.tell_counts(context, plan, statistics["counts"])
        require_observed(plan.value_names[own], slab.observed_weight[own])
        columns = {
            "mean": slab.mean[own],
            "variance": np.diagonal(slab.comoment, own.start) / slab.weight,
            "constant": slab.constant_columns(),
        }
        if own.stop == plan.n_columns:
            require_varying_targets(columns["constant"][-self.n_targets :], plan.roles.target)
        # Missing values count as the mean: what only a merge needs is not kept.
        imputed = replace(slab, pair_weight=None, cross=None, cross_columns=None, observed=None)
        return imputed.to_arrays(), columns

    # --- selection ---

    def outline(self, context: Context) -> SequenceOutline:
        """Return the problem without its matrix."""
        known, posed = self.known_columns(context), self.whole.procedure(context).posed
        return outline_from_columns(known["mean"], known["variance"], known["constant"], **posed)

    def shards(self, outline: SequenceOutline, locations: Sequence[Location]) -> list[Any]:
        """Return slabs with what is left of their groups, without those that have none."""
        edges = np.searchsorted(self._positions(outline), self.starts).tolist()
        return [
            StoredGroups(location, outline, first, last)
            for location, (first, last) in zip(locations, pairwise(edges), strict=True)
            if first < last
        ]

    def _positions(self, outline: SequenceOutline) -> np.ndarray:
        """Return where the groups that are not constant are among all."""
        position = {name: g for g, name in enumerate(self.whole.groups.names)}
        return np.array([position[name] for name in outline.groups.names])

    def selection(
        self, context: Context, outline: SequenceOutline, paths: Mapping[str, Any], pool: Pool
    ) -> Mapping[str, Any]:
        """Return the content of ``selection.json``."""
        solved = Solved(self.whole.procedure(context), Bundle({}), {}, outline, paths)
        return dict(self.whole.selection(context, solved))

    def chosen(self, outline: SequenceOutline, paths: Mapping[str, SequencePath]) -> np.ndarray:
        """Return the groups that some sequence has chosen."""
        orders = np.concatenate([path.order for path in paths.values()])
        return self._positions(outline)[np.unique(orders)]

    def restricted_path(
        self, outline: SequenceOutline, path: SequencePath, chosen: np.ndarray
    ) -> SequencePath:
        """Write a path as one on the chosen groups."""
        own = np.searchsorted(self._positions(outline), chosen)
        columns = np.concatenate([outline.groups.columns[g] for g in own])
        return replace(
            path,
            order=np.searchsorted(own, path.order),
            support=np.searchsorted(columns, path.support),
        )

    def restricted(self, context: Context, chosen: np.ndarray) -> SequenceJob:
        """Return the ordinary job on the chosen groups, of the rows that count among all."""
        job = on_groups(self.whole, chosen.tolist())
        if self.inputs.section.missing == "drop":
            job.everything = self.whole.plan(context)
        return job


def on_groups(job: SequenceJob, groups: Sequence[int]) -> SequenceJob:
    """Return the job on some of the groups, its columns in the order of the groups."""
    members = [[job.roles.features[c] for c in job.groups.columns[g]] for g in groups]
    edges = [0, *np.cumsum([len(group) for group in members]).tolist()]
    features = tuple(chain(*members))
    other = copy(job)
    other.roles = replace(job.roles, features=features)
    other.groups = FeatureGroups(
        tuple(job.groups.names[g] for g in groups),
        tuple(tuple(range(*pair)) for pair in pairwise(edges)),
    )
    other.categorical = tuple(name for name in job.categorical if name in set(features))
    other.costs = job.costs.take(groups)
    return other


# --- prediction, and what the driver knows --------------------------------------------------------


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> RowPredictor:
    """Find the columns of the best model that a budget buys in a dataset."""
    model = AnytimePredictor.from_arrays(run.weights, run.model)
    number = advised(run.model) if budget is None else model.best(budget)
    steps = steps_of(run.selection, number)
    needed = [name for step in steps for name in step["columns"]]
    return RowPredictor(
        dataset.reader,
        plan_of_model(dataset, needed, run.model["sources"], run.model["id"]),
        tuple(f"predicted_{name}" for name in run.selection["targets"]),
        partial(model.predict, number),
        _spending(run, model, number, budget),
        run.model["classes"] or (),
        run.model["threshold"],
        model.models.gaps,
        np.exp(model.prior),
    )


def _spending(run: FinishedRun, model: AnytimePredictor, number: int, budget: float | None) -> str:
    """Return what the predictions cost, and why."""
    from distfms.methods.sequence.figures import WHY, constant_model

    steps, n_all = steps_of(run.selection, number), len(model.groups)
    spent, n_groups = steps[-1]["spent"] if steps else 0.0, len(steps)
    given = "" if budget is None else f" of the budget {budget:g}"
    line = f"Spends {spent:g}{given} a row on {n_groups} of {n_all} groups"
    if budget is None:
        line += f": {WHY[run.model['stop']['rule']]}"
        if n_groups < n_all:
            line += f" (`--budget {np.ceil(model.spent[-1]):.0f}` uses all)"
    mean = f"every prediction is {constant_model(run)}"
    if budget is not None and number > n_all:
        own = run.selection["budgets"][number - n_all - 1]["budget"]
        return f"{line}, selected for a budget of {own:g}"
    if budget is None or n_groups == n_all or spent >= 0.5 * budget:
        return line if n_groups else f"{line}: {mean}"
    cost = float(model.spent[n_groups]) - spent
    why = f"the {'next' if n_groups else 'first'} one, {model.groups[n_groups]}, costs {cost:g}"
    what = f"most of the budget is left, as {why}" if n_groups else f"{why}, so {mean}"
    return f"{line}: {what}; a run with `sequence.budgets: [{budget:g}]` selects for this budget"


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the places of groups, and the variance that each explains where that is known."""
    steps = steps_of(run.selection, advised(run.model))
    gains = np.diff([0.0, *(step["explained_variance"] for step in steps)]).tolist()
    alone = [len(own) == 1 for own in fitted_together(steps) for _ in own]
    places = enumerate(zip(steps, gains, alone, strict=True), 1)
    return {step["group"]: Chosen(n, gain if own else None) for n, (step, gain, own) in places}


#: What `tune` may vary.
TUNABLE = ("ridge", "criterion", "cost_aware", "doubling", "max_groups")

_STATES = "it defines what can be measured and its cost, not how to choose"
#: Why other options cannot be tuned.
NOT_TUNABLE = {
    **dict.fromkeys(
        ("groups", "prefix_separator", "costs", "cost_file", "shared_costs", "requires"), _STATES
    ),
    "expand": "statistics are of its columns, and one reading of the rows is for all points",
    "class_weights": "deviances depend on it, so its values cannot be compared",
    "family": "its values explain different things",
    **dict.fromkeys(("model", "lightgbm"), "all prefixes count: run a job for each value"),
    **dict.fromkeys(("budget", "budgets"), "it is the limit of what may be spent"),
}


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job of the family, in slabs of groups where one process is too small."""
    if options.family != "gaussian" or options.model != "linear":
        return GlmSequenceJob(options, inputs, seed)
    job = SequenceJob(options, inputs, seed)
    sizes, most = Sizes.of(job), slab_job.ONE_PROCESS_BYTES
    needed = sizes.one_process_bytes()
    if needed > most >= sizes.chosen_bytes():
        return SequenceSlabsJob(job, sizes)
    if needed > most:
        job.advice = (
            f"in one process, about {format_bytes(needed)}; a lower `sequence.max_groups` may let "
            "it search in slabs on actors"
        )
    return job


def _from_1(run: FinishedRun) -> FinishedRun:
    share = "explained_variance"
    if run.selection["family"] != "gaussian":
        share = "explained_deviance"
    scores = {name: ("test", name) for name in ("accuracy", "ndcg@5")}
    scores |= {f"test_{name}": ("test", name) for name in ("mse", "deviance")}
    shares = {"validation": ("validation", share), "test": ("test", share)}
    trained = dict.fromkeys(("explained_variance", "explained_deviance"), ("train", share))
    found = regrouped(run, {**scores, **shares, **trained}, "spent")
    fitted = list(range(len(run.weights["intercept"])))
    added = {"models": "linear", "fitted": fitted, "threshold": 0.5}
    return replace(found, model={**run.model, **added})


METHOD = Method(
    name="sequence",
    Options=SequenceOptions,
    make_job=make_job,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.sequence.figures",
    starter={"groups": {}, "costs": {}, "budget": None},
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
    upgrades=(_from_1,),
    question=("groups", "prefix_separator", "family"),
)
