"""What a job of group sequencing has read before it chooses anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.errors import SpecError
from distfms.methods.frame.classes import Classes, count_classes
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import HELD_OUT
from distfms.methods.frame.mapped import MappedForm, read_mapped
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.row_data import Levels, check_moments, read_levels
from distfms.methods.frame.rows import SummaryReader, moment_reader, moment_reader_with
from distfms.methods.sequence.choice import Candidate
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.options import ExpandSection, SequenceOptions
from distfms.methods.sequence.problem import FeatureGroups, outline_from_comoments
from distfms.methods.sequence.procedure import RIDGES, SequenceProcedure
from distfms.methods.sequence.read import expanded, knots_of, weights_of_classes
from distfms.methods.sequence.read_sample import (
    ROWS,
    Sample,
    TreeRows,
    in_order,
    sampled_rows,
    spans_of,
)
from distfms.methods.sequence.rules import Rules
from distfms.solve.losses import FAMILIES
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments

#: Share of its deviation in all training rows below which a column counts as constant.
_LEAST_SCALE = 0.1


@dataclass(frozen=True, eq=False)
class SequenceData:
    """What was read of the rows.

    Attributes
    ----------
    form : SequenceForm
    plain, plan : ColumnPlan
        Of the columns as the data have them, and with those that were derived.
    classes : Classes or None
        Of the target.
    statistics : Bundle
        ``moments`` and ``counts`` by fold.
    step : str
        Whose value the statistics are; empty where they are in this process alone.
    gains : mapping of int to tuple of (str, float)
        What boosted trees gain by each group, without the rows of a fold (−1: of none).
    rivals : sequence of Candidate
        What the chosen kind of models was chosen among, beside itself.
    fitted : mapping of (tuple of int, int) to str
        Boosted trees that are known already, by their features and the fold without which they are.
    ridges : Ridges, optional
        What folds say of ridges, where one was chosen.
    sample : Sample, optional
        Rows in memory.
    """

    form: SequenceForm
    plain: ColumnPlan
    plan: ColumnPlan
    classes: Classes | None = None
    statistics: Bundle = field(default_factory=lambda: Bundle({}))
    step: str = "statistics"
    gains: Mapping[int, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    rivals: Sequence[Candidate] = ()
    fitted: Mapping[tuple[tuple[int, ...], int], str] = field(default_factory=dict)
    ridges: Any = None
    sample: Sample | None = None

    @property
    def class_values(self) -> tuple[float, ...] | None:
        """The classes as numbers, where there are any."""
        return None if self.classes is None else self.classes.values

    @cached_property
    def class_weights(self) -> tuple[float, ...] | None:
        """What a row of each class weighs in a fit."""
        wanted, classes = self.form.options.class_weights, self.classes
        if wanted is None or classes is None:
            return None
        return weights_of_classes(wanted, classes.train_weight, classes.texts)

    @cached_property
    def class_shares(self) -> np.ndarray | None:
        """Shares of the classes among all training rows, as rows weigh in a fit."""
        if self.classes is None or self.form.options.family not in ("logistic", "softmax"):
            return None
        weight = np.array(self.classes.train_weight)
        if self.class_weights is not None:
            weight = weight * np.array(self.class_weights)
        return weight / weight.sum()

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what models predict: targets, or classes of a target."""
        if self.classes is None or self.form.options.family != "softmax":
            return self.form.roles.target
        return tuple(self.classes.texts)

    @cached_property
    def outcome(self) -> Responses | None:
        """What scores say of the target, where models are not of its squared error."""
        family = self.form.options.family
        if family == "gaussian":
            return None
        return Responses(FAMILIES[family], self.class_values, self.class_weights)

    @property
    def prior(self) -> np.ndarray:
        """What weights of classes add to scores."""
        return np.zeros(1) if self.outcome is None else self.outcome.prior

    @cached_property
    def rows(self) -> TreeRows | None:
        """Training rows in memory, where a job keeps any."""
        return None if self.sample is None else TreeRows.of_block(self.sample.train, self.outcome)

    @property
    def memory(self) -> Sample | None:
        """All rows, where they are in memory and do not count less with age."""
        return self.sample if self.form.is_in_memory else None

    @cached_property
    def least_scale(self) -> np.ndarray | None:
        """The deviation below which each column (D,) counts as constant.

        One that hardly varies without a fold would have a coefficient that explodes on the fold.
        """
        if "moments" not in self.statistics.members:
            return None
        moments = self.statistics["moments"].train()
        if not moments.weight > 0:
            return None
        variance = np.diagonal(moments.comoment) / moments.weight
        deviations = np.sqrt(np.clip(variance, 0.0, None))
        return _LEAST_SCALE * deviations[: len(self.plan.feature_names)]

    def procedure(self, options: SequenceOptions) -> SequenceProcedure:
        """Return the pure part with some options."""
        form, rows = self.form, list(self.plan.column_groups.values())
        columns = (tuple(sorted(r for c in own for r in rows[c])) for own in form.groups.columns)
        rules = Rules.of(options, form.costs)
        budgets = tuple(float(rule.budget or 0.0) for rule in rules.of_budgets)
        return SequenceProcedure(
            rules=rules.searched,
            feature_names=self.plan.feature_names,
            target_names=self.plan.roles.target,
            groups=FeatureGroups(form.groups.names, tuple(columns)),
            costs=form.costs,
            ridge=RIDGES[-1] if options.ridge == "auto" else options.ridge,
            max_groups=options.max_groups,
            seed=form.seed,
            family=options.family,
            n_outputs=len(self.output_names),
            model=options.model,
            ladder=replace(options.ladder, budgets=budgets),
            least_scale=self.least_scale,
        )


def read_columns(run: Run, form: SequenceForm) -> SequenceData:
    """Read levels of text, knots and classes; steps ``categories``, ``expand``, ``classes``."""
    levels = read_levels(run, form)
    plain = plan = form.plan(levels)
    if isinstance(form.options.expand, ExpandSection):
        plan = expanded(run, form, form.options.expand, plain)
    data = SequenceData(form, plain, plan)
    if not form.has_classes:
        return data
    classes = run.step("classes", lambda: _classes(run, data, levels))
    if form.options.family == "softmax" and len(classes.values) == 2:
        form = replace(form, options=form.options.model_copy(update={"family": "logistic"}))
    plain, plan = classes.planned(plain), classes.planned(plan)
    return replace(data, form=form, plain=plain, plan=plan, classes=classes)


def read_statistics(run: Run, data: SequenceData) -> SequenceData:
    """Read co-moments, and the rows that trees learn from, in one pass.

    Steps ``statistics`` and ``rows``; where co-moments are in mapped files, these take passes of
    their own.
    """
    share = data.form.sample_share
    if data.form.mapped is not None:
        return _with_rows(run, _with_files(run, data, data.form.mapped), share)
    if not share:
        return replace(data, statistics=run.step("statistics", lambda: _statistics(run, data)))
    bundles = list[Bundle]()

    def read() -> Bundle:
        if not bundles:
            summarise = _sampling(data, share)
            bundle = run.reduce(
                lambda *of: moment_reader_with(
                    data.form.source(data.plan, *of), {"sample": share}, summarise
                )
            )
            bundles.append(bundle)
        return bundles[0]

    def statistics() -> Bundle:
        members = {name: part for name, part in read().members.items() if name != ROWS}
        return _checked(run, data, Bundle(members))

    moments = run.step("statistics", statistics)
    block = run.step("rows", lambda: _block_of(read()))
    return replace(data, statistics=moments, sample=_sample_of(data, block, share))


def _with_files(run: Run, data: SequenceData, files: MappedForm) -> SequenceData:
    """Read co-moments into mapped files; steps ``statistics 1 of n`` …, and ``statistics``."""

    def reader(rows: slice, *of: Any) -> SummaryReader:
        return moment_reader(data.form.source(data.plan, *of), rows)

    statistics = read_mapped(run, files, data.plan.n_columns, reader)

    def checked() -> Bundle:
        _checked(run, data, statistics)
        run.note(files.note())
        return Bundle({"counts": statistics["counts"]})

    run.step("statistics", checked)
    return replace(data, statistics=statistics, step="")


def _with_rows(run: Run, data: SequenceData, share: float) -> SequenceData:
    """Read the rows that are kept, if any, in a pass; step ``rows``."""
    if not share:
        return data
    summarise = _sampling(data, share)

    def read() -> np.ndarray:
        bundle = run.reduce(
            lambda *of: SummaryReader(
                data.form.source(data.plan, *of), ROWS, summarise, {"sample": share}
            )
        )
        return _block_of(bundle)

    return replace(data, sample=_sample_of(data, run.step("rows", read), share))


def _block_of(bundle: Bundle) -> np.ndarray:
    """Return the sampled rows, training rows first."""
    sampled = bundle[ROWS]
    return np.concatenate((in_order(sampled.train()), in_order(sampled.test)), axis=1)


def _sample_of(data: SequenceData, block: np.ndarray, share: float) -> Sample:
    return Sample(block, share, data.form.inputs.section.folds)


def _sampling(data: SequenceData, share: float) -> Callable[[RowBatch, int], Mapping[str, Any]]:
    """Return what samples the rows of a batch."""
    return partial(sampled_rows, spans_of(data.plan), data.form.seed, share)


def on_sample(data: SequenceData) -> SequenceData:
    """Return what kinds and ridges are compared on: the rows in memory, as if these were all."""
    if data.sample is None or data.memory is not None:
        return data
    return thinned(data, data.sample.train.shape[1])


def splines_of_sample(data: SequenceData) -> SequenceData:
    """Return splines of the rows in memory, with co-moments of these, none of held-out rows."""
    assert data.sample is not None
    n_rows = data.sample.train.shape[1]
    return thinned(replace(data, plan=with_knots(data)), n_rows)


def thinned(data: SequenceData, n_rows: int) -> SequenceData:
    """Return data as if so many of the training rows in memory were all rows."""
    assert data.sample is not None
    sample = data.sample.thinned(n_rows)
    statistics = moments_of_sample(data, sample)
    return replace(data, statistics=statistics, step="", ridges=None, sample=sample)


def moments_of_sample(data: SequenceData, sample: Sample) -> Bundle:
    """Return the co-moments of rows in memory, beside the counts of all rows."""
    n_folds = data.statistics["counts"].n_folds
    parts = []
    for part in (*range(n_folds), HELD_OUT):
        rows = sample.rows_of(data.plan, [part])
        values = np.vstack((rows.features, rows.target))
        parts.append(CoMoments.from_block(values, rows.weight))
    return Bundle({"moments": Folded(tuple(parts)), "counts": data.statistics["counts"]})


def with_knots(data: SequenceData) -> ColumnPlan:
    """Return the plan with knots of numbers at quantiles of the rows in memory."""
    assert data.rows is not None
    n_knots = data.form.expand.splines
    knots, limits = dict[str, list[float]](), dict[str, tuple[float, float]]()
    for column, values in zip(data.plan.columns, data.rows.inputs.T, strict=False):
        if column.levels is None and (found := knots_of(values, n_knots)):
            knots[column.name] = found
            limits[column.name] = (float(np.nanmin(values)), float(np.nanmax(values)))
    return data.plan.expanded(knots, (), limits)


def read_splines(run: Run, data: SequenceData) -> SequenceData:
    """Return data with co-moments of splines of all rows; step ``statistics of splines``."""
    data = replace(data, plan=with_knots(data), ridges=None)
    step = "statistics of splines"

    def statistics() -> Bundle:
        if data.memory is not None:
            return moments_of_sample(data, data.memory)
        return _statistics(run, data)

    return replace(data, statistics=run.step(step, statistics), step=step)


def _statistics(run: Run, data: SequenceData) -> Bundle:
    found = run.reduce(lambda *of: moment_reader(data.form.source(data.plan, *of)))
    return _checked(run, data, found)


def _checked(run: Run, data: SequenceData, found: Bundle) -> Bundle:
    check_moments(run, data.form, data.plan, found)
    # What else can be wrong with the data shows here, before anything is written.
    procedure = replace(data, statistics=found).procedure(data.form.options)
    outline_from_comoments(found["moments"].train(), **procedure.posed)
    return found


def _classes(run: Run, data: SequenceData, levels: Levels) -> Classes:
    options = data.form.options
    most = 2 if options.family == "logistic" else None
    what = f"`sequence.family` {options.family}"
    found = count_classes(run, data.form, levels, data.plan, what, most)
    if options.threshold != 0.5 and len(found.values) != 2:
        raise SpecError(
            f"`sequence.threshold` is for two classes; {found.target!r} has "
            f"{len(found.values)}. Leave it out: the most probable class is predicted."
        )
    return found
