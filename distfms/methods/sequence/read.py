"""What group sequencing reads: classes, co-moments and one sample of rows in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.errors import SpecError
from distfms.methods.frame.classes import Classes
from distfms.methods.frame.contract import Run
from distfms.methods.frame.mapped import MappedForm
from distfms.methods.frame.read import SAMPLE
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.sequence.data import SequenceData, moments_of_sample, with_knots
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.options import ExpandSection
from distfms.methods.sequence.problem import outline_from_comoments
from distfms.methods.sequence.sample import Sample
from distfms.stats.base import Bundle

OF_SPLINES = "statistics of splines"
"""Step that reads co-moments of columns with knots."""


@dataclass(eq=False)
class FirstPass:
    """The pass that tells everything, which the first step that asks for it makes."""

    run: Run
    form: SequenceForm
    plan: ColumnPlan | None = None
    bundle: Bundle = field(default_factory=lambda: Bundle({}))

    def of(self, plan: ColumnPlan) -> Bundle:
        """Return statistics by fold and a sample; of mapped co-moments, counts and a sample."""
        if plan != self.plan:
            self.bundle = self.run.reduce(partial(self._reader, plan))
            self.plan = plan
        return self.bundle

    def _reader(self, plan: ColumnPlan, dataset: Dataset, held_out: bool) -> SummaryReader:
        source = self.form.source(plan, dataset, held_out)
        reader = source.moments()
        if self.form.mapped is not None:
            reader = source.counts()
        elif self.form.has_classes:
            summarise = partial(_with_classes, reader.summarise)
            reader = replace(reader, kind="moments and classes", summarise=summarise)
        return reader.sampled(self.form.sample_share)


def _with_classes(
    summarise: Callable[[RowBatch, int], Mapping[str, Any]], batch: RowBatch, part: int
) -> dict[str, Any]:
    # Moments use the batch as scratch, so classes come before.
    return {**Classes.counts(batch, part), **summarise(batch, part)}


def read_data(run: Run, form: SequenceForm) -> SequenceData:
    """Read levels of text, then classes, co-moments and a sample of rows in one pass.

    Steps ``categories``, ``classes``, ``statistics``, ``rows`` and ``expand``, as far as there are
    any. Co-moments in mapped files, and those of columns with knots where the sample is not all
    rows, take passes of their own.
    """
    first = FirstPass(run, form)
    data = _read_classes(first, form.read_levels(run))
    if form.mapped is None:
        data = replace(data, statistics=run.step("statistics", partial(_statistics, first, data)))
    if form.sample_share:
        data = replace(data, sample=run.step("rows", partial(_sample, first, data)))
    section = form.options.expand
    if form.has_derived and isinstance(section, ExpandSection):
        data = replace(data, plan=run.step("expand", partial(_expanded, first, data, section)))
    if form.mapped is not None:
        return _with_files(run, data, form.mapped)
    return data if data.plan == data.plain else read_splines(run, data)


def _read_classes(first: FirstPass, levels: Mapping[str, Sequence[str]]) -> SequenceData:
    form = first.form
    plan = form.plan(levels)
    if not form.has_classes:
        return SequenceData(form, plan, plan)
    options = form.options

    def find() -> Classes:
        counts = first.of(plan)["classes"]
        most = 2 if options.family == "logistic" else None
        what = f"`sequence.family` {options.family}"
        classes = Classes.of(first.run, form, levels, plan, counts, what, most)
        if options.threshold != 0.5 and len(classes.values) != 2:
            raise SpecError(
                f"`sequence.threshold` is for two classes; {classes.target!r} has "
                f"{len(classes.values)}. Leave it out: the most probable class is predicted."
            )
        return classes

    classes = first.run.step("classes", find)
    if options.family == "softmax" and len(classes.values) == 2:
        form = replace(form, options=options.model_copy(update={"family": "logistic"}))
    plan = classes.planned(plan)
    return SequenceData(form, plan, plan, classes)


def _statistics(first: FirstPass, data: SequenceData) -> Bundle:
    bundle = first.of(data.plain)
    statistics = Bundle({name: bundle[name] for name in ("moments", "counts")})
    return _checked(first.run, data, statistics)


def _sample(first: FirstPass, data: SequenceData) -> Sample:
    form = data.form
    sampled = first.of(data.plain)[SAMPLE]
    n_folds = form.inputs.section.folds
    return Sample.of_parts(sampled, len(form.roles.target), form.sample_share, n_folds)


def _expanded(first: FirstPass, data: SequenceData, section: ExpandSection) -> ColumnPlan:
    """Return the plan with knots of numbers, and flags of missing values."""
    flagged: Sequence[str] = ()
    if section.missing:
        counts = data.statistics.members.get("counts") or first.of(data.plain)["counts"]
        flagged = list(counts.train().missing_by_source(data.plain))
    return with_knots(data, section.splines, flagged)


def _with_files(run: Run, data: SequenceData, files: MappedForm) -> SequenceData:
    """Read co-moments into mapped files; steps ``statistics 1 of n`` …, and ``statistics``."""

    def reader(rows: slice, *of: Any) -> SummaryReader:
        return data.form.source(data.plan, *of).moments(rows)

    statistics = files.read(run, data.plan.n_columns, reader)

    def checked() -> Bundle:
        _checked(run, data, statistics)
        run.note(files.note())
        return Bundle({"counts": statistics["counts"]})

    run.step("statistics", checked)
    return replace(data, statistics=statistics, step="")


def read_splines(run: Run, data: SequenceData) -> SequenceData:
    """Return data with co-moments of the columns of its plan; step ``statistics of splines``."""

    def statistics() -> Bundle:
        if data.memory is not None:
            return moments_of_sample(data, data.memory)
        return run.reduce(lambda *of: data.form.source(data.plan, *of).moments())

    moments = run.step(OF_SPLINES, statistics)
    return replace(data, statistics=moments, step=OF_SPLINES, ridges=None)


def _checked(run: Run, data: SequenceData, statistics: Bundle) -> Bundle:
    data.form.check_moments(run, data.plan, statistics)
    # What else can be wrong with the data shows here, before anything is written.
    procedure = replace(data, statistics=statistics).procedure(data.form.options)
    outline_from_comoments(statistics["moments"].train(), **procedure.posed)
    return statistics
