"""What a job of group sequencing has read before it chooses anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan
from distfms.errors import SpecError, nearest
from distfms.methods.frame.classes import Classes
from distfms.methods.frame.outcomes import Responses
from distfms.methods.sequence.choice import Candidate
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.problem import FeatureGroups, Path
from distfms.methods.sequence.procedure import RIDGES, SequenceProcedure
from distfms.methods.sequence.rules import Rules
from distfms.methods.sequence.sample import Sample, TreeRows
from distfms.solve.losses import FAMILIES
from distfms.stats.base import HELD_OUT, Bundle, Folded
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
    ridges: Any = None
    sample: Sample | None = None

    @property
    def class_values(self) -> tuple[float, ...] | None:
        """The classes as numbers, where there are any."""
        return None if self.classes is None else self.classes.values

    @cached_property
    def class_weights(self) -> tuple[float, ...] | None:
        """What a row of each class weighs in a fit."""
        weights = self.form.options.class_weights
        classes = self.classes
        if weights is None or classes is None:
            return None
        return weights_of_classes(weights, classes.train_weight, classes.texts)

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
        return None if self.sample is None else self.sample.for_trees(self.outcome)

    @property
    def memory(self) -> Sample | None:
        """All rows, where they are in memory and do not count less with age."""
        sample = self.sample
        if sample is None or not sample.is_all or self.form.inputs.by_age:
            return None
        return sample

    def gaps_among(self, columns: np.ndarray) -> list[int]:
        """Return the places, among these columns, of those of which values are missing."""
        missing = self.statistics["counts"].train().missing_by_source(self.plain)
        by_source = self.plan.column_groups
        with_gaps = list(chain(*(by_source[name] for name in missing)))
        return np.flatnonzero(np.isin(columns, with_gaps)).tolist()

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
        form = self.form
        rows = list(self.plan.column_groups.values())
        columns = []
        for group in form.groups.columns:
            rows_of_group = chain(*(rows[column] for column in group))
            columns.append(tuple(sorted(rows_of_group)))
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


def weights_of_classes(
    weights: Mapping[str, float] | str, totals: Sequence[float], names: Sequence[str]
) -> tuple[float, ...]:
    """Return what a row of each class weighs in fits, from what the rows of each weigh together."""
    if isinstance(weights, str):  # balanced
        return tuple(sum(totals) / (len(totals) * total) for total in totals)
    for name in weights:
        if name not in names:
            raise SpecError(
                f"`sequence.class_weights` names {name!r}, which is not a class of the "
                f"target.{nearest(name, names)}"
            )
    return tuple(weights.get(name, 1.0) for name in names)


def knots_of(values: np.ndarray, n_knots: int) -> list[float]:
    """Return the inner quantiles of values, at most so many, each between two values."""
    present = values[np.isfinite(values)]
    if not len(present):
        return []
    levels = np.arange(1, n_knots + 1) / (n_knots + 1)
    knots = np.unique(np.quantile(present, levels, method="inverted_cdf"))
    is_inner = (knots > present.min()) & (knots < present.max())
    return knots[is_inner].tolist()


def on_sample(data: SequenceData) -> SequenceData:
    """Return what kinds and ridges are compared on: the rows in memory, as if these were all."""
    if data.sample is None or data.memory is not None:
        return data
    return thinned(data, data.sample.n_train)


def splines_of_sample(data: SequenceData) -> SequenceData:
    """Return splines of the rows in memory, with co-moments of these, none of held-out rows."""
    assert data.sample is not None
    plan = with_knots(data, data.form.expand.splines)
    return thinned(replace(data, plan=plan), data.sample.n_train)


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


def with_knots(data: SequenceData, n_knots: int, flagged: Sequence[str] = ()) -> ColumnPlan:
    """Return the plan with knots of numbers at quantiles of the rows in memory, and flags."""
    assert data.sample is not None
    is_train = data.sample.fold != HELD_OUT
    knots = dict[str, list[float]]()
    limits = dict[str, tuple[float, float]]()
    for column, inputs in zip(data.plan.columns, data.sample.inputs, strict=False):
        if column.levels is not None:
            continue
        values = inputs[is_train]
        of_column = knots_of(values, n_knots)
        if of_column:
            knots[column.name] = of_column
            limits[column.name] = (float(np.nanmin(values)), float(np.nanmax(values)))
    return data.plan.expanded(knots, flagged, limits)


def step_entries(plan: ColumnPlan, path: Path, explained: np.ndarray) -> list[dict[str, Any]]:
    """Return entries of ``selection.json`` for the steps of a path.

    `explained` (K + 1,) are the shares of the training rows.
    """
    source = {name: column.name for column in plan.columns for name in column.value_names}
    columns = path.columns
    spent = path.spent
    details = path.step_details()
    fitted = set(path.fitted.tolist())
    entries = []
    for k, group in enumerate(path.groups):
        names = dict.fromkeys(source[name] for name in columns[k])
        entry = {
            "group": group,
            "columns": list(names),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(explained[k + 1]),
        }
        for name, values in details.items():
            entry[name] = values[k].item()
        if k + 1 not in fitted:
            entry["gain"] = None
        entries.append(entry)
    return entries
