"""Rows of numbers and categories: what is known of them before they are read, and reading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, require_observed
from distfms.data.rows.columns import as_floats
from distfms.data.rows.folds import require_divided
from distfms.data.rows.roles import Roles, is_categorical
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import FinishedRun, Inputs, Job, Judged, Run, Summary
from distfms.methods.frame.finished import by_predictions
from distfms.methods.frame.remarks import remarks
from distfms.methods.frame.rows import (
    CategoryReader,
    RowCounts,
    RowSource,
    SummaryReader,
    distinct_values,
    few_whole,
    identifier_remarks,
    missing_by_source,
    moment_reader,
    require_levels,
    section_roles,
)
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments

#: Levels of categories by column.
Levels = Mapping[str, Sequence[str]]
#: Levels that a category is taken to have when a job's size is projected.
LEVELS_GUESSED = 32


def names_classes(inputs: Inputs) -> bool:
    """Whether the only target holds texts, which name classes."""
    targets = inputs.section.target
    if targets is None or len(targets) != 1:
        return False
    schema = inputs.train.schema
    (name,) = targets
    return name in schema.names and is_categorical(schema.field(name).type)


@dataclass(frozen=True, eq=False)
class RowForm:
    """The rows of a job, features first and then targets, before any is read.

    Attributes
    ----------
    inputs : Inputs
    seed : int
    roles : Roles
    class_option : str
        How to ask for classes; empty where the target is not taken as a number.
    coded_classes : tuple of int
        Values of a target that stand for classes where it is taken as a number.
    missing_said : str
        What missing values count as.
    """

    inputs: Inputs
    seed: int
    roles: Roles
    class_option: str = ""
    coded_classes: tuple[int, ...] = ()
    missing_said: str = "Missing values replaced with the column's mean"

    @classmethod
    def of(cls, inputs: Inputs, seed: int, *, classes: bool = False, **facts: Any) -> RowForm:
        """Resolve the roles of columns; `classes` says whether the target may be text.

        Raises
        ------
        SpecError, DataError
        """
        roles = section_roles(inputs.train, inputs.section, classes=classes)
        if not roles.target:
            raise SpecError("`data.target` is missing: name the column to predict.")
        return cls(inputs, seed, roles, **facts)

    @property
    def n_first_passes(self) -> int:
        """Passes that texts and classes take before any other."""
        has_texts = bool(self.roles.text_features or self.roles.text_targets)
        return has_texts + self.has_classes

    @property
    def has_classes(self) -> bool:
        """Whether values of the target are read first, as they stand for classes."""
        return False

    def job(self, name: str, options: Any, **facts: Any) -> Job:
        """Return the record of a job on these rows; `facts` are those that differ."""
        usual: dict[str, Any] = {
            "columns": self.columns,
            "features": self.roles.features,
            "statistics_bytes": self.statistics_bytes,
            "form": self,
        }
        usual |= facts
        return Job(name=name, options=options, inputs=self.inputs, seed=self.seed, **usual)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the job reads."""
        roles = self.roles
        optional = (*roles.target, roles.weight, roles.id, roles.query)
        return (*roles.features, *dict.fromkeys(name for name in optional if name is not None))

    @property
    def statistics_bytes(self) -> int:
        """Size of one partial statistic of co-moments in memory."""
        matrices = 3 if self.inputs.section.missing == "mean" else 1
        n_columns = self.guessed_columns + len(self.roles.target)
        return 8 * matrices * n_columns**2 * self.inputs.n_parts

    @property
    def guessed_columns(self) -> int:
        """Number of rows of features in a batch, before the levels are known."""
        return len(self.roles.features) + (LEVELS_GUESSED - 1) * len(self.roles.text_features)

    def plan(self, levels: Levels) -> ColumnPlan:
        """Return which columns are read and which rows of a batch they become."""
        return ColumnPlan.of(self.roles, levels)

    def target_plan(self, plan: ColumnPlan) -> ColumnPlan:
        """Return a plan of the target alone; where features decide which rows there are, of all."""
        return plan if self.inputs.section.missing == "drop" else plan.restricted(())

    def source(self, plan: ColumnPlan, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        return RowSource(dataset.reader, self.inputs.section, self.seed, held_out, plan)

    def first_values(self) -> dict[str, str]:
        """Return what `check` says of targets that may be classes, by their first rows."""
        if not self.class_option:
            return {}
        train = self.inputs.train
        part = train.partitions[0]
        table = train.reader.read(part, list(self.roles.target))
        columns = np.array([as_floats(column.combine_chunks()) for column in table.columns])
        remarks_on_values = self.few_values(distinct_values(columns))
        if not remarks_on_values:
            return {}
        return {f"first {part.n_rows:,} rows": " ".join(remarks_on_values)}

    def few_values(self, values: np.ndarray) -> list[str]:
        """Say which targets have a few whole values (P, 11) that are taken as numbers."""
        option = self.class_option
        return [
            f"The target {name!r} has {len(few)} whole values ({', '.join(map(str, few))}), which "
            f"are used as numbers. If they are classes, set {option}."
            for name, row in zip(self.roles.target, values, strict=True)
            if option and (few := few_whole(row)) and few != list(self.coded_classes)
        ]

    def judge(self, method: str, **facts: Any) -> Callable[[Run, Sequence[FinishedRun]], Judged]:
        """Return what scores a method's models on held-out rows; see `by_predictions`."""
        return partial(by_predictions, method, self.roles, **facts)

    def summary(self, plan: ColumnPlan) -> Summary:
        """Return how partitions are compared, by co-moments of features and targets."""
        names = (*plan.feature_names, *self.roles.target)
        return Summary(names, lambda *rows: moment_reader(self.source(plan, *rows)))


# --- reading --------------------------------------------------------------------------------------


def read_levels(run: Run, form: RowForm) -> Levels:
    """Return the levels of features and targets that are categories; step ``categories``."""
    columns = (*form.roles.text_features, *form.roles.text_targets)

    def categories() -> dict[str, list[str]]:
        weight = form.roles.weight
        bundle = run.reduce(lambda dataset, _: CategoryReader(dataset.reader, columns, weight))
        levels = require_levels(bundle["categories"].train())
        for text in identifier_remarks(levels, sum(d.n_rows for d in form.inputs.datasets)):
            run.note(text)
        return levels

    return run.step("categories", categories) if columns else {}


def check_moments(run: Run, form: RowForm, plan: ColumnPlan, statistics: Bundle) -> None:
    """Refuse too few rows and columns without values; count and note what was left out."""
    moments: Folded[CoMoments] = statistics["moments"]
    train = moments.train()
    require_rows(form, [part.n_samples for part in moments.parts])
    require_observed(plan.feature_names, train.observed_weight[: plan.n_features])
    tell_counts(run, form, plan, statistics["counts"])


def require_rows(form: RowForm, n_rows: Sequence[int]) -> None:
    """Refuse too few rows to learn from, given those of each fold and the held-out ones."""
    refuse_dropped(form, sum(n_rows))
    require_divided(n_rows, form.roles.fold_key, form.inputs.train.place)


def refuse_dropped(form: RowForm, n_rows: int) -> None:
    """Say which columns cost how many rows where `missing: drop` left none of them."""
    import pyarrow.compute as pc

    if n_rows or form.inputs.section.missing != "drop":
        return
    train = form.inputs.train
    names = [*form.roles.features, *form.roles.target]
    table = train.reader.read(train.partitions[0], names)
    n_missing = {}
    for name, column in zip(names, table.columns, strict=True):
        is_missing = pc.is_null(column, nan_is_null=True)
        n_missing[name] = pc.sum(is_missing).as_py() or 0
    worst = sorted(names, key=lambda name: -n_missing[name])[:5]
    listed = ", ".join(f"{name!r} {n_missing[name]:,}" for name in worst if n_missing[name])
    raise DataError(
        f"`data.missing: drop` leaves no row of {train.place}. The first {table.num_rows:,} rows "
        f"lack this many values: {listed}. Leave such columns out with `data.exclude`, or set "
        "`data.missing: mean`."
    )


def tell_counts(run: Run, form: RowForm, plan: ColumnPlan, counts: Folded[RowCounts]) -> None:
    """Account for rows read and left out, and for values filled in."""
    everything = counts.train().merge(counts.test)
    missing = missing_by_source(plan, everything.n_missing)
    run.account(
        objects={"train": counts.train().n_rows, "test": counts.test.n_rows},
        dropped={"rows": everything.n_dropped} if everything.n_dropped else {},
        imputed=missing,
    )
    if everything.n_dropped:
        missing_value = "the target" if form.inputs.section.policy == "mean" else "a value"
        rows_were = "row was" if everything.n_dropped == 1 else "rows were"
        run.note(
            f"{everything.n_dropped:,} {rows_were} left out because {missing_value} is missing."
        )
    if everything.n_weightless:
        run.note(f"{counted(everything.n_weightless, 'row')} of weight 0 are ignored.")
    if missing:
        listed = ", ".join(f"{name} {count:,}" for name, count in missing.items())
        run.note(f"{form.missing_said}: {listed}.")
    inputs = form.inputs
    oddities = remarks(everything.signs, plan, inputs.datasets, inputs.section.missing)
    for text in (*oddities, *form.few_values(everything.values)):
        run.note(text)


def summary_of_target(
    run: Run, form: RowForm, plan: ColumnPlan, kind: str, summarise: Any
) -> Folded[Any]:
    """Summarise the target of all rows by a pass."""
    target = form.target_plan(plan)
    bundle = run.reduce(lambda *rows: SummaryReader(form.source(target, *rows), kind, summarise))
    return bundle[kind]
