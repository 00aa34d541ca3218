"""What learns from rows: the online learner, chain by chain, or a solve from pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.methods.attribute_efficient.candidates import fill_of
from distfms.methods.attribute_efficient.cells import NORMAL, PAIRS
from distfms.methods.attribute_efficient.draws import Draws, drawing_weights, weights_after
from distfms.methods.attribute_efficient.from_pairs import FoldPairs, Learned
from distfms.methods.attribute_efficient.lessons import Lesson, design_of, learn, norm_of, stream
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.procedure import LearningProcedure
from distfms.methods.attribute_efficient.read import (
    TrainingRows,
    first_phase_reader,
    statistics_reader,
)
from distfms.methods.frame.contract import Job, Run, Summary
from distfms.methods.frame.passes import keeps_rows
from distfms.methods.frame.rows import SummaryReader
from distfms.report.formatting import count
from distfms.stats.base import Members


@dataclass(frozen=True, eq=False)
class Learner:
    """Learns row by row or, where there are draws, at once from the pairs that these observe."""

    job: Job
    draws: Draws | None = None

    def reader(self, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of moments, norms and counts, and of pairs with what is observed."""
        source = self.job.form.labelled(dataset, held_out)
        return statistics_reader(source, self.draws, self.job.inputs.train.n_rows)

    @property
    def summary(self) -> Summary | None:
        """How partitions are compared, by pairs; online, the products may be too many."""
        if self.draws is None:
            return None
        names = (*self.job.features, *self.job.form.roles.target)
        return Summary(names, self.reader, "pairs")


def check_online(run: Run, job: Job, train: Members) -> None:
    """Refuse targets beyond the bound; say what the theory assumes."""
    options: AttributeEfficientOptions = job.options
    design_of(options, train)
    largest = norm_of(options.penalty, train)
    if isinstance(options.norm, float) and largest > options.norm:
        run.note(
            f"The theory assumes attributes of norm {options.norm:g} at most, but norms go up to "
            f"{largest:g}: its steps are too long. Leave `norm` out, or set a larger one or a "
            "`step_factor`."
        )
    if options.scanned_for:
        n_values = train["counts"].n_rows * len(job.features)
        run.note(
            f"A pass over all {n_values:,} attributes of the training rows found "
            f"{options.scanned_for}; they do not count as observed."
        )


def check_pairs(run: Run, train: Members) -> None:
    """Refuse what cannot be solved; say what was not observed."""
    FoldPairs([*train["pairs"].folds.values()])
    unseen = int((train["observed"].weight[:-1] == 0).sum())
    if unseen:
        run.note(
            f"{count(unseen, 'attribute was', 'attributes were')} not observed in any row, and the "
            "weights are 0."
        )


def learner_of(run: Run, job: Job) -> Learner:
    """Return what learns, for pairs with the draws; step ``draws``, but for alike ones."""
    options: AttributeEfficientOptions = job.options
    if options.solver == "online":
        return Learner(job)
    alike = Draws(options.attributes_per_example, stream(job.seed, 0))
    alike = replace(alike, phases=options.sampling == "two_phase")
    if options.sampling == "uniform":
        return Learner(job, alike)
    weights = run.step("draws", lambda: drawing_weights_of(run, job, alike))
    return Learner(job, replace(alike, weights=weights))


def drawing_weights_of(run: Run, job: Job, alike: Draws) -> np.ndarray:
    """Find which attributes are drawn more often, by moments of all rows or of a first phase."""
    if not alike.phases:
        moments = run.reduce(Learner(job).reader)["moments"].train()
        return drawing_weights(moments.second_moment[:-1])
    first = run.reduce(lambda *rows: first_phase_reader(job.form.labelled(*rows), alike))
    observed = first["observed"].train()
    return weights_after(observed.second_moment, observed.weight)


def procedure_of(
    job: Job, options: AttributeEfficientOptions, draws: Draws | None = None
) -> LearningProcedure:
    """Return what is learned of some rows, with some options; of pairs, with what they are of."""
    form = job.form
    linear = NORMAL if draws is not None and form.has_normal_model(options) else PAIRS
    names = tuple(form.compared(options))
    key = stream(job.seed, 0)
    return LearningProcedure(options, key, form.operations(options), names, draws, linear)


def training_rows(job: Job, fill: np.ndarray) -> TrainingRows:
    """Return the training rows in the order of learning; missing values are taken for `fill`."""
    dataset = job.inputs.train
    source = job.form.labelled(dataset, False)
    rows = TrainingRows(source, tuple(dataset.partitions), fill, job.seed, keep=False)
    # Several actors of one machine keep rows of their own.
    return replace(rows, keep=keeps_rows(4 * rows.n_bytes))


def learned_by_chains(
    run: Run, job: Job, train: Members, lessons: Sequence[Lesson]
) -> list[Learned]:
    """Learn lessons, side by side on actors where these pay."""
    if not lessons:
        return []
    rows = training_rows(job, fill_of(train))
    pool = run.pool(
        len(lessons),
        0,
        what="chains",
        shared_bytes=rows.n_bytes if rows.keep else 0,
        n_operations=len(lessons) * job.form.operations(job.options),
    )
    with pool as actors:
        actors.start(partial(_share_rows, rows), range(actors.n_actors))
        return list(actors.map(_learn, lessons))


def _share_rows(rows: TrainingRows, shard: int) -> TrainingRows:
    return rows


def _learn(rows: TrainingRows, lesson: Lesson) -> Learned:
    return learn(lesson, rows)
