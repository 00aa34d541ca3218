"""What a job of group sequencing has read before it chooses anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan
from distfms.errors import SpecError
from distfms.methods.frame.classes import Classes, count_classes
from distfms.methods.frame.contract import Run
from distfms.methods.frame.moments import TrainMembers
from distfms.methods.frame.row_data import Levels, check_moments, read_levels
from distfms.methods.frame.rows import moment_reader
from distfms.methods.frame.slabs import Place
from distfms.methods.sequence.choice import Candidate
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.options import ExpandSection, SequenceOptions
from distfms.methods.sequence.problem import FeatureGroups
from distfms.methods.sequence.procedure import RIDGES, SequenceProcedure
from distfms.methods.sequence.read import expanded, prior_of, weights_of_classes
from distfms.methods.sequence.rules import Rules
from distfms.stats.base import Bundle


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
        ``moments`` and ``counts`` by fold; in slabs empty.
    step : str
        Whose value the statistics are.
    known : mapping
        In slabs what is known of each column.
    places : sequence
        Where the slabs are.
    gains : mapping of int to tuple of (str, float)
        What boosted trees gain by each group, without the rows of a fold (−1: of none).
    rivals : sequence of Candidate
        What the chosen kind of models was chosen among, beside itself.
    fitted : mapping of (tuple of int, int) to str
        Boosted trees that are known already, by their features and the fold without which they are.
    """

    form: SequenceForm
    plain: ColumnPlan
    plan: ColumnPlan
    classes: Classes | None = None
    statistics: Bundle = field(default_factory=lambda: Bundle({}))
    step: str = "statistics"
    known: Any = None
    places: Sequence[Place] = ()
    gains: Mapping[int, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    rivals: Sequence[Candidate] = ()
    fitted: Mapping[tuple[tuple[int, ...], int], str] = field(default_factory=dict)

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

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what models predict: targets, or classes of a target."""
        if self.classes is None or self.form.options.family != "softmax":
            return self.form.roles.target
        return tuple(self.classes.texts)

    @property
    def prior(self) -> np.ndarray:
        """What weights of classes add to scores."""
        return prior_of(self.class_weights, self.form.options.family)

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
    """Read co-moments; step ``statistics``."""
    return replace(data, statistics=run.step("statistics", lambda: _statistics(run, data)))


def with_splines(run: Run, data: SequenceData) -> SequenceData:
    """Return data with co-moments of splines; steps ``expand`` and ``statistics of splines``.

    These put groups in order for trees, which are fitted to the columns as they are.
    """
    form = data.form
    data = replace(data, plan=expanded(run, form, form.expand, data.plain))
    step = "statistics of splines"
    found = run.step(step, lambda: _statistics(run, data))
    return replace(data, statistics=found, step=step)


def _statistics(run: Run, data: SequenceData) -> Bundle:
    found = run.reduce(lambda *of: moment_reader(data.form.source(data.plan, *of)))
    check_moments(run, data.form, data.plan, found)
    # What else can be wrong with the data shows here, before anything is written.
    data.procedure(data.form.options).problem(TrainMembers(found))
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
