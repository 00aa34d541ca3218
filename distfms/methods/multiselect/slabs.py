"""The covariance in slabs of attributes, and a search on actors.

The matrix of statistics is computed a slab of its rows at a time, each slab a pass over the data
and a step of its own. Actors load the slabs and search. Nobody ever holds the whole matrix: the
driver holds one slab while it is written, and a few numbers for each attribute otherwise. The rest
concerns the chosen attributes only, and is what the method does on these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.multiselect.evaluate import attribute_entries, path_content
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.procedure import Selected, Training
from distfms.methods.multiselect.read import slab_reader
from distfms.methods.multiselect.statistics import read_judgments
from distfms.solve.buying import Problem
from distfms.solve.purchases import AttributeSlab, Question, answer, select
from distfms.stats.base import Bundle
from distfms.stats.codec import load
from distfms.stats.judgments import JudgmentEstimates
from distfms.store.places import Location, open_binary

#: Estimates that are not one number for each attribute, or for all of them.
_MATRICES = ("second_moment", "external", "noise_covariance")


@dataclass(frozen=True, eq=False)
class Slabs:
    """Estimates of all attributes, without their matrices, and the slabs of the covariance."""

    estimates: JudgmentEstimates
    matrices: Sequence[StoredMatrix | np.ndarray]


@dataclass(frozen=True)
class StoredMatrix:
    """Rows of a matrix in the file of a slab's step, for an actor on any node to load."""

    place: Location

    def load(self) -> np.ndarray:
        """Read the array."""
        with open_binary(self.place) as stream:
            matrix: np.ndarray = load(stream)["external"]
        return matrix


def read_in_slabs(run: Run, form: JudgmentForm) -> Slabs:
    """Read the statistics slab by slab; steps ``statistics 1 of n`` and so on."""
    assert form.slabs is not None
    columns = []
    matrices = []
    for number, bounds in enumerate(pairwise(form.slabs.starts), 1):
        name = f"statistics {number} of {form.slabs.n_slabs}"
        slab = run.step(name, partial(_read_slab, run, form, slice(*bounds)))
        columns.append(slab["columns"])
        place = run.place(name)
        matrices.append(slab["external"] if place is None else StoredMatrix(place))
        del slab  # before the next slab is read
    joined = dict[str, Any]()
    for name, array in columns[0].items():
        if array.ndim:
            joined[name] = np.concatenate([of_slab[name] for of_slab in columns])
        else:
            joined[name] = array.item()
    no_matrices = dict.fromkeys(_MATRICES, np.zeros((0, 0)))
    return Slabs(JudgmentEstimates(**joined | no_matrices), matrices)


def _read_slab(run: Run, form: JudgmentForm, attributes: slice) -> dict[str, Any]:
    """Return the matrix of a slab, and what is known of each of its attributes."""

    def reader(dataset: Dataset, held_out: bool) -> SummaryReader:
        return slab_reader(form.source(dataset, held_out), attributes)

    # Partials of all slabs together are D × D numbers for each partition: not cached.
    train = run.reduce(reader, cache=False)["judgments"].train()
    estimates = train.estimates(form.internal_variance[attributes], form.names[attributes])
    names = [field.name for field in fields(estimates) if field.name not in _MATRICES]
    columns = {name: np.asarray(getattr(estimates, name)) for name in names}
    return {"external": estimates.external, "columns": columns}


def search_in_slabs(run: Run, job: Job, slabs: Slabs) -> Selected:
    """Search by every rule on actors; Scoring needs no covariance and no actors."""
    form = job.form
    options = job.options
    outline = _outline(job, slabs)
    procedure = form.procedure(options)
    shards = [
        AttributeSlab.of(outline, *bounds, matrix)
        for bounds, matrix in zip(pairwise(form.slabs.starts), slabs.matrices, strict=True)
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
