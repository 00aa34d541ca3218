"""The method as the driver knows it: its job, and prediction with a finished run's model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from distfms.data.dataset import ParquetDataset
from distfms.methods.contract import FinishedRun, Inputs, Job, Method
from distfms.methods.row_predictor import RowPredictor, plan_of_model
from distfms.methods.sequence import figures
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.glm_job import GlmSequenceJob
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.procedure import MEASURES
from distfms.methods.sequence.slab_job import choose_form


@dataclass(frozen=True, eq=False)
class PrefixOf:
    """Picklable function from values by name to the predictions of a prefix.

    A missing value counts as the column's training mean: it says nothing, and so it moves nothing.
    """

    model: AnytimePredictor
    n_groups: int

    def __call__(self, values: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
        """Return predictions (n_rows, n_outputs)."""
        if not self.n_groups:  # nothing is read, but the rows are there
            mean = self.model.predict(np.zeros((1, len(self.model.feature_names))), budget=-1.0)
            return np.tile(mean.reshape(1, -1), (n_rows, 1))
        found = self.model.predict(values, budget=float(self.model.spent[self.n_groups - 1]))
        return found.reshape(n_rows, -1)


def make_predictor(run: FinishedRun, dataset: ParquetDataset, budget: float | None) -> RowPredictor:
    """Find the columns of the longest affordable prefix in a dataset."""
    model, stop = AnytimePredictor.from_arrays(run.weights, run.model), run.model["stop"]
    n_groups = stop["n_groups"] if budget is None else model.affordable(budget)
    needed = [n for step in run.selection["sequence"][:n_groups] for n in step["columns"]]
    return RowPredictor(
        dataset.reader,
        plan_of_model(dataset, needed, run.model["sources"], run.model["id"]),
        tuple(f"predicted_{name}" for name in run.selection["targets"]),
        PrefixOf(model, n_groups),
        _spending(model, n_groups, budget, stop["rule"]),
        run.model["classes"] or (),
    )


def _spending(model: AnytimePredictor, n_groups: int, budget: float | None, rule: str) -> str:
    """Return what the predictions cost, and why."""
    spent, n_all = float(np.append(0.0, model.spent)[n_groups]), len(model.groups)
    given = "" if budget is None else f" of the budget {budget:g}"
    line = f"Spends {spent:g}{given} a row on {n_groups} of {n_all} groups"
    if budget is None:
        line += f": {figures.WHY[rule]}"
        if n_groups < n_all:
            line += f" (`--budget {np.ceil(model.spent[-1]):.0f}` uses all)"
    mean = "every row is predicted by the mean of the training rows"
    if budget is None or n_groups == n_all or spent >= 0.5 * budget:
        return line if n_groups else f"{line}: {mean}"
    cost = float(model.spent[n_groups]) - spent
    why = f"the {'next' if n_groups else 'first'} one, {model.groups[n_groups]}, costs {cost:g}"
    what = f"most of the budget is left, as {why}" if n_groups else f"{why}, so {mean}"
    return f"{line}: {what}; a run with `sequence.budget: {budget:g}` selects for this budget"


#: What `tune` may vary.
TUNABLE = ("ridge", "criterion", "cost_aware", "doubling", "max_groups")

_STATES = "it says what there is to measure and what that costs, not how to choose"
_AFTERWARDS = "it concerns what is compared with the sequence, not the sequence"
#: Why other options cannot be tuned.
NOT_TUNABLE = {
    **dict.fromkeys(("groups", "prefix_separator", "costs", "cost_file", "shared_costs"), _STATES),
    "class_weights": "it states what matters; scores do not know of it",
    "family": "its values explain different things",
    "budget": "it states what may be spent; one order without it answers every budget",
    "max_refits": "it bounds the work, and more refits are never worse",
    "baselines": _AFTERWARDS,
    "alpha": _AFTERWARDS,
}


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job of the family, in slabs of groups where one process is too small."""
    form = SequenceJob if options.family == "gaussian" else GlmSequenceJob
    return choose_form(form(options, inputs, seed))


METHOD = Method(
    name="sequence",
    Options=SequenceOptions,
    make_job=make_job,
    predictor=make_predictor,
    sections=figures.sections,
    headline=figures.headline,
    subtitle=figures.SUBTITLE,
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
)
