"""The covariance in slabs of attributes, and a search on actors; see `slab_search`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.frame.slab_search import read_slabs
from distfms.methods.frame.slabs import Arrays, Place, StoredMatrix
from distfms.methods.multiselect.evaluate import attribute_entries, path_content
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.procedure import Selected, Training
from distfms.methods.multiselect.read import slab_reader
from distfms.methods.multiselect.statistics import read_judgments
from distfms.solve.buying import Problem
from distfms.solve.purchases import AttributeSlab, Question, answer, select
from distfms.stats.base import Bundle
from distfms.stats.judgments import JudgmentEstimates

#: Estimates that are not one number for each attribute, or for all of them.
_MATRICES = ("second_moment", "external", "noise_covariance")


@dataclass(frozen=True, eq=False)
class Slabs:
    """Estimates of all attributes, without their matrices, and where the slabs of these are."""

    estimates: JudgmentEstimates
    places: Sequence[Place]


def read_in_slabs(run: Run, form: JudgmentForm) -> Slabs:
    """Read the statistics slab by slab; steps ``statistics 1 of n`` and so on."""
    assert form.slabs is not None
    slab_slices = [slice(*pair) for pair in pairwise(form.slabs.starts)]
    names = [field.name for field in fields(JudgmentEstimates) if field.name not in _MATRICES]

    def reader(number: int, dataset: Dataset, held_out: bool) -> SummaryReader:
        source = form.source(dataset, held_out)
        return slab_reader(source, slab_slices[number])

    def arrays(number: int, statistics: Bundle) -> tuple[Arrays, Arrays]:
        attributes = slab_slices[number]
        variance = form.internal_variance[attributes]
        train = statistics["judgments"].train()
        estimates = train.estimates(variance, form.names[attributes])
        columns = {name: np.asarray(getattr(estimates, name)) for name in names}
        matrices = {"external": estimates.external}
        return matrices, columns

    columns, places = read_slabs(run, form.slabs, reader, arrays)
    no_matrices = dict.fromkeys(_MATRICES, np.zeros((0, 0)))
    return Slabs(JudgmentEstimates(**columns | no_matrices), places)


def search_in_slabs(run: Run, job: Job, slabs: Slabs) -> Selected:
    """Search by every rule on actors; Scoring needs no covariance and no actors."""
    form = job.form
    options = job.options
    outline = _outline(job, slabs)
    procedure = form.procedure(options)
    shards = [
        AttributeSlab.of(outline, *bounds, StoredMatrix(place, "external"))
        for bounds, place in zip(pairwise(form.slabs.starts), slabs.places, strict=True)
    ]
    with run.pool(len(shards), form.slabs.shard_bytes, what="candidates") as pool:
        on: dict[str, Any] = {"full": {"pool": pool, "shards": shards}, "scoring": {}}
        paths = {
            rule.name: select(
                outline, options.budget, rule.objective, options.criterion, **on[rule.objective]
            )
            for rule in procedure.rules
        }
        path = paths["full"]
        bought = np.unique(path.attributes)
        rows = pool.step(answer, Question([], "among", (bought,)))
    problem = outline.take(bought, np.concatenate(rows))
    run.count(n_candidates=path.n_candidates)
    run.note(form.slabs.note())
    entries = attribute_entries(form.names, form.costs, slabs.estimates)
    constant = [form.names[a] for a in np.flatnonzero(~outline.candidates).tolist()]
    content = path_content(procedure, problem, path.on(bought))
    chosen = np.unique(np.concatenate([path.attributes for path in paths.values()]))
    return Selected(
        paths={name: path.on(chosen) for name, path in paths.items()},
        content=content | {"constant": constant, "attributes": entries},
        chosen=chosen,
    )


def on_chosen(run: Run, job: Job, slabs: Slabs, selected: Selected) -> tuple[Job, Bundle]:
    """Return the job on the attributes that some path has bought, and statistics of these.

    Step ``chosen``, which accounts for the judgments of all attributes.
    """
    form: JudgmentForm = job.form
    assert selected.chosen is not None
    chosen_form = form.on(selected.chosen)

    def read() -> Bundle:
        statistics = read_judgments(run, chosen_form)
        totals = slabs.estimates.n_judgments.tolist()
        by_name = dict(zip(form.names, totals, strict=True))
        run.account(judgments={"total": int(sum(totals)), "train": by_name})
        return statistics

    return replace(job, form=chosen_form), run.step("chosen", read)


def _outline(job: Job, slabs: Slabs) -> Problem:
    """Return the problem of all attributes without their covariance."""
    form = job.form
    estimates = slabs.estimates
    problem = Problem.from_estimates(estimates, names=form.names, costs=form.costs, psd="none")
    training = Training(np.arange(problem.n_attributes), estimates, problem)
    return form.procedure(job.options).with_ridge(training).problem
