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
from distfms.data.rows.roles import Roles
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import FinishedRun, Inputs, Job, Judged, Run, Summary
from distfms.methods.frame.finished import by_predictions, by_statistics
from distfms.methods.frame.remarks import remarks
from distfms.methods.frame.rows import (
    CategoryReader,
    RowCounts,
    RowSource,
    SummaryReader,
    distinct_values,
    few_whole,
    identifier_remarks,
    require_levels,
    section_roles,
)
from distfms.stats.base import Bundle, Folded, Members
from distfms.stats.comoments import CoMoments

#: Levels of categories by column.
Levels = Mapping[str, Sequence[str]]
#: Levels that a category is taken to have when a job's size is projected.
LEVELS_GUESSED = 32


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
    def guessed_widths(self) -> dict[str, int]:
        """Rows of a batch of each feature, before the levels are known."""
        texts = self.roles.text_features
        return {name: LEVELS_GUESSED if name in texts else 1 for name in self.roles.features}

    @property
    def guessed_columns(self) -> int:
        """Number of rows of features in a batch, before the levels are known."""
        return sum(self.guessed_widths.values())

    def plan(self, levels: Levels) -> ColumnPlan:
        """Return which columns are read and which rows of a batch they become."""
        return ColumnPlan.of(self.roles, levels)

    def sources(self, plan: ColumnPlan) -> dict[str, Any]:
        """Return the levels of each feature, None for a number, for ``model.json``.

        Where a feature has other rows too, it is a mapping with the ``levels``.
        """
        sources: dict[str, Any] = {}
        for column in plan.columns[: len(plan.roles.features)]:
            levels = None if column.levels is None else list(column.levels)
            sources[column.name] = levels
            if column.expanded:
                sources[column.name] = {
                    "levels": levels,
                    "knots": list(column.knots),
                    "missing": column.flag,
                    "limits": list(column.limits),
                }
        return sources

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

    def judge_by_statistics(
        self,
        method: str,
        plan: ColumnPlan,
        statistics: Bundle,
        size: Callable[[Members], tuple[int, float]],
        score: Callable[[FinishedRun, Members], Mapping[str, float]],
    ) -> Callable[[Run, Sequence[FinishedRun]], Judged]:
        """Return what does the same by co-moments, of models of columns as the data have them."""
        reader = self.summary(plan).reader
        on_moments = by_statistics(self.inputs, statistics, reader, size, score)
        by_rows = self.judge(method)

        def judge(run: Run, models: Sequence[FinishedRun]) -> Judged:
            for model in models:
                sources = model.model["sources"].values()
                if any(isinstance(source, Mapping) for source in sources):  # columns were derived
                    return by_rows(run, models)
            return on_moments(run, models)

        return judge

    def summary(self, plan: ColumnPlan) -> Summary:
        """Return how partitions are compared, by co-moments of features and targets."""
        names = (*plan.feature_names, *self.roles.target)
        return Summary(names, lambda *rows: self.source(plan, *rows).moments())

    # --- reading ---

    def read_levels(self, run: Run) -> Levels:
        """Return the levels of features and targets that are categories; step ``categories``."""
        columns = (*self.roles.text_features, *self.roles.text_targets)

        def categories() -> dict[str, list[str]]:
            weight = self.roles.weight
            bundle = run.reduce(lambda dataset, _: CategoryReader(dataset.reader, columns, weight))
            levels = require_levels(bundle["categories"].train())
            for text in identifier_remarks(levels, sum(d.n_rows for d in self.inputs.datasets)):
                run.note(text)
            return levels

        return run.step("categories", categories) if columns else {}

    def check_moments(self, run: Run, plan: ColumnPlan, statistics: Bundle) -> None:
        """Refuse too few rows and columns without values; count and note what was left out."""
        moments: Folded[CoMoments] = statistics["moments"]
        train = moments.train()
        self.require_rows([part.n_samples for part in moments.parts])
        require_observed(plan.feature_names, train.observed_weight[: plan.n_features])
        self.tell_counts(run, plan, statistics["counts"])

    def require_rows(self, n_rows: Sequence[int]) -> None:
        """Refuse too few rows to learn from, given those of each fold and the held-out ones."""
        self.refuse_dropped(sum(n_rows))
        require_divided(n_rows, self.roles.fold_key, self.inputs.train.place)

    def refuse_dropped(self, n_rows: int) -> None:
        """Say which columns cost how many rows where `missing: drop` left none of them."""
        import pyarrow.compute as pc

        if n_rows or self.inputs.section.missing != "drop":
            return
        train = self.inputs.train
        names = [*self.roles.features, *self.roles.target]
        table = train.reader.read(train.partitions[0], names)
        n_missing = {}
        for name, column in zip(names, table.columns, strict=True):
            is_missing = pc.is_null(column, nan_is_null=True)
            n_missing[name] = pc.sum(is_missing).as_py() or 0
        worst = sorted(names, key=lambda name: -n_missing[name])[:5]
        listed = ", ".join(f"{name!r} {n_missing[name]:,}" for name in worst if n_missing[name])
        raise DataError(
            f"`data.missing: drop` leaves no row of {train.place}. The first {table.num_rows:,} "
            f"rows lack this many values: {listed}. Leave such columns out with `data.exclude`, "
            "or set `data.missing: mean`."
        )

    def tell_counts(self, run: Run, plan: ColumnPlan, counts: Folded[RowCounts]) -> None:
        """Account for rows read and left out, and for values filled in."""
        everything = counts.train().merge(counts.test)
        missing = everything.missing_by_source(plan)
        run.account(
            objects={"train": counts.train().n_rows, "test": counts.test.n_rows},
            dropped={"rows": everything.n_dropped} if everything.n_dropped else {},
            imputed=missing,
        )
        if everything.n_dropped:
            missing_value = "the target" if self.inputs.section.policy == "mean" else "a value"
            rows_were = "row was" if everything.n_dropped == 1 else "rows were"
            run.note(
                f"{everything.n_dropped:,} {rows_were} left out because {missing_value} is missing."
            )
        if everything.n_weightless:
            run.note(f"{counted(everything.n_weightless, 'row')} of weight 0 are ignored.")
        if missing:
            listed = ", ".join(f"{name} {count:,}" for name, count in missing.items())
            run.note(f"{self.missing_said}: {listed}.")
        inputs = self.inputs
        oddities = remarks(everything.signs, plan, inputs.datasets, inputs.section.missing)
        for text in (*oddities, *self.few_values(everything.values)):
            run.note(text)

    def read_target(self, run: Run, plan: ColumnPlan, kind: str, summarise: Any) -> Folded[Any]:
        """Summarise the target of all rows by a pass; features say which rows have no gap."""
        target = plan if self.inputs.section.missing == "drop" else plan.restricted(())

        def reader(*rows: Any) -> SummaryReader:
            return SummaryReader(self.source(target, *rows), kind, summarise)

        return run.reduce(reader)[kind]
