"""The job of a method whose statistics are the co-moments of rows of numbers and categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from distfms.data.batches import ColumnPlan, RowBatch, require_observed
from distfms.data.columns import as_floats
from distfms.data.footers import betraying
from distfms.data.partition import Dataset
from distfms.engine.memory import counted
from distfms.errors import DataError, SpecError
from distfms.methods.contract import (
    Content,
    Context,
    FinishedRun,
    Inputs,
    Judged,
    PartialReader,
    Stage,
)
from distfms.methods.remarks import remarks
from distfms.methods.row_predictor import judge_rows
from distfms.methods.rows import (
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
from distfms.methods.statistics_job import StatisticsJob
from distfms.spec import Section
from distfms.stats.base import Bundle, Fields, Folded, Statistic
from distfms.stats.comoments import CoMoments

T = TypeVar("T", bound=Statistic)

CATEGORIES = "statistics/categories.json"
CLASSES = "statistics/classes.json"
#: Levels that a category is taken to have when a job's size is projected.
LEVELS_GUESSED = 32


class RowJob(StatisticsJob):
    """A method on co-moments of rows, features first and then targets.

    Levels of `categorical` features and `text_targets` are read before the statistics.
    """

    #: What missing values count as.
    missing_said: str = "Missing values replaced with the column's mean"

    def __init__(self, options: Section, inputs: Inputs, seed: int) -> None:
        self.options, self.inputs, self.seed = options, inputs, seed
        self.roles = section_roles(inputs.train, inputs.section, classes=self.takes_text(options))
        if not self.roles.target:
            raise SpecError("`data.target` is missing: name the column to predict.")
        self.categorical = self.roles.text_features
        self.text_targets = self.roles.text_targets
        self.judged_by = {"accuracy": True, "mse": False} if self.has_classes else {"mse": False}

    @staticmethod
    def takes_text(options: Any) -> bool:
        """Return whether the target may be text, which names classes."""
        return False

    #: Values of a target that stand for classes where it is taken as a number.
    coded_classes: ClassVar[list[int]] = []

    def class_option(self) -> str:
        """Return how to ask for classes; empty where the target is not taken as a number."""
        return ""

    # --- what the driver asks ---

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        others = (*self.roles.target, self.roles.weight, self.roles.id, self.roles.query)
        return [*self.roles.features, *dict.fromkeys(c for c in others if c is not None)]

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        section, matrices = self.inputs.section, 3 if self.inputs.section.missing == "mean" else 1
        n_columns = self.guessed_columns() + len(self.roles.target)
        return 8 * matrices * n_columns**2 * (max(section.folds, 1) + 1)

    def guessed_columns(self) -> int:
        """Return the number of rows of features in a batch, before the levels are known."""
        return len(self.roles.features) + (LEVELS_GUESSED - 1) * len(self.categorical)

    # --- reading ---

    def first_stages(self) -> Sequence[Stage]:
        """Return the stage that reads the levels of categories, where there are any."""
        has_levels = self.categorical or self.text_targets
        return [Stage("categories", self._categories)] if has_levels else []

    def _categories(self, context: Context) -> Mapping[str, Content]:
        columns = (*self.categorical, *self.text_targets)
        bundle = context.reduce(lambda dataset, _: CategoryReader(dataset.reader, columns))
        levels = require_levels(bundle["categories"].train())
        datasets = self.inputs.datasets
        for text in identifier_remarks(levels, sum(d.n_rows for d in datasets)):
            context.note(text)
        return {CATEGORIES: {"levels": levels}}

    def plan(self, context: Context) -> ColumnPlan:
        """Return which columns are read and which rows of a batch they become."""
        has_levels = self.categorical or self.text_targets
        levels = context.read_json(CATEGORIES)["levels"] if has_levels else {}
        return ColumnPlan.of(self.roles, levels)

    def target_levels(self, context: Context) -> Sequence[str] | None:
        """Return the texts that a batch has the positions of in place of the target."""
        if not self.text_targets:
            return None
        levels: Sequence[str] = context.read_json(CATEGORIES)["levels"][self.text_targets[0]]
        return levels

    def target_plan(self, context: Context) -> ColumnPlan:
        """Return a plan of the target alone; where features decide which rows there are, of all."""
        plan = self.plan(context)
        return plan if self.inputs.section.missing == "drop" else plan.restricted(())

    # --- classes of the target ---

    @property
    def has_classes(self) -> bool:
        """Whether the target holds classes or levels, which a stage lists."""
        return False

    @property
    def coded_target(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return a picklable function from values of the target to what models predict of it."""
        return np.asarray

    def judge(self, context: Context, models: Sequence[FinishedRun]) -> Judged:
        """Score the predictions of models on rows."""
        return judge_rows(
            self.name, self.roles, context, models, self.has_classes, self.coded_target
        )

    def read_classes(self, context: Context, what: str, most: int | None = None) -> dict[str, Any]:
        """Return the content of ``classes.json``; `what` wants `most` classes, for messages."""
        counts = self.summary_of_target(context, "classes", ClassCounts, class_counts)
        target, names = self.roles.target[0], self.target_levels(context)
        classes = find_classes(counts, target, what, most, names)
        weight = dict(zip(counts.train().values, counts.train().weight, strict=True))
        return {
            "target": target,
            "classes": classes.tolist(),
            "names": None if names is None else [class_name(value, names) for value in classes],
            "train_weight": [float(weight[value]) for value in classes],
        }

    def summary_of_target(
        self, context: Context, kind: str, statistic: type[T], summarise: Any
    ) -> Folded[T]:
        """Summarise the target of all rows by a pass."""
        plan = self.target_plan(context)
        found: Folded[T] = context.reduce(
            lambda *of: SummaryReader(self.source(plan, *of), kind, {kind: statistic}, summarise)
        )[kind]
        return found

    def classes(self, context: Context) -> tuple[float, ...] | None:
        """Return the classes or levels of the target, ascending, where it has any."""
        return tuple(context.read_json(CLASSES)["classes"]) if self.has_classes else None

    def class_names(self, context: Context) -> list[Any] | None:
        """Return the classes as the data have them: text or numbers."""
        if not self.has_classes:
            return None
        content = context.read_json(CLASSES)
        names: list[Any] = content["names"] or content["classes"]
        return names

    def class_texts(self, context: Context) -> list[str]:
        """Return the classes as readers see them."""
        names = self.class_names(context) or ()
        return [name if isinstance(name, str) else class_name(name) for name in names]

    # --- co-moments ---

    def source(self, plan: ColumnPlan, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        return RowSource(dataset.reader, self.inputs.section, self.seed, held_out, plan)

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> PartialReader:
        """Return the reader of co-moments and counts."""
        return moment_reader(self.source(self.plan(context), dataset, held_out))

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> PartialReader | None:
        """Return the reader of co-moments of features and targets."""
        return RowJob.reader(self, context, dataset, held_out)

    def summary_names(self, context: Context) -> Sequence[str]:
        """Return the columns of a batch and the targets."""
        return (*self.plan(context).feature_names, *self.roles.target)

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse too few rows and columns without values; count and note what was left out."""
        plan = self.plan(context)
        moments: Folded[CoMoments] = statistics["moments"]
        train = moments.train()
        self.require_rows(train.n_samples, moments.test.n_samples)
        require_observed(plan.feature_names, train.observed_weight[: plan.n_features])
        self.tell_counts(context, plan, statistics["counts"])

    def require_rows(self, n_train: int, n_test: int) -> None:
        """Refuse too few rows to learn from."""
        if n_train < 2:
            raise DataError(
                f"There are {n_train} rows to train on in {self.inputs.train.place} "
                f"(held out: {n_test}); at least 2 are needed. Add rows, or lower `data.test`."
            )

    def first_values(self) -> dict[str, str]:
        """Return what `check` says of targets that may be classes, by their first rows."""
        part, names = self.inputs.train.partitions[0], list(self.roles.target)
        if not self.class_option():
            return {}
        table = self.inputs.train.reader.read(part, names)
        columns = np.array([as_floats(column.combine_chunks()) for column in table.columns])
        said = self._few_values(distinct_values(columns))
        return {f"first {part.n_rows:,} rows": " ".join(said)} if said else {}

    def _few_values(self, values: np.ndarray) -> list[str]:
        """Say which targets have a few whole values (P, 11) that are taken as numbers."""
        option = self.class_option()
        return [
            f"The target {name!r} has {len(few)} whole values ({', '.join(map(str, few))}), which "
            f"are used as numbers. If they are classes, set {option}."
            for name, own in zip(self.roles.target, values, strict=True)
            if option and (few := few_whole(own)) and few != self.coded_classes
        ]

    def tell_counts(self, context: Context, plan: ColumnPlan, counts: Folded[RowCounts]) -> None:
        """Account for rows read and left out, and for values filled in."""
        everything = counts.train().merge(counts.test)
        missing = missing_by_source(plan, everything.n_missing)
        context.account(
            objects={"train": counts.train().n_rows, "test": counts.test.n_rows},
            dropped={"rows": everything.n_dropped} if everything.n_dropped else {},
            imputed=missing,
        )
        if everything.n_dropped:
            what = "the target" if self.inputs.section.policy == "mean" else "a value"
            left = "row was" if everything.n_dropped == 1 else "rows were"
            context.note(f"{everything.n_dropped:,} {left} left out because {what} is missing.")
        if everything.n_weightless:
            context.note(f"{counted(everything.n_weightless, 'row')} of weight 0 are ignored.")
        if missing:
            listed = ", ".join(f"{name} {count:,}" for name, count in missing.items())
            context.note(f"{self.missing_said}: {listed}.")
        data, section = self.inputs.datasets, self.inputs.section
        known = betraying(self.inputs.train, section, self.roles.features)
        assert everything.signs is not None
        seen = remarks(everything.signs, plan, data, section.missing, known)
        for text in (*seen, *self._few_values(everything.values)):
            context.note(text)


# --- classes of a target ------------------------------------------------------------------------

MAX_CLASSES = 1000
"""Most classes that a target may have."""

#: More classes than this may be numbers that were meant to be predicted as such.
_MANY_CLASSES = 20


@dataclass(frozen=True, eq=False)
class ClassCounts(Fields):
    """Distinct values of a target; a mergeable statistic."""

    values: np.ndarray
    weight: np.ndarray

    @classmethod
    def from_rows(cls, target: np.ndarray, weight: np.ndarray | None) -> ClassCounts:
        """Count the values of rows."""
        values, index = np.unique(target, return_inverse=True)
        total = np.bincount(index, weight, len(values)).astype(float)
        # One more than allowed stays, so that the excess is seen.
        return cls(values[: MAX_CLASSES + 1], total[: MAX_CLASSES + 1])

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Return the counts of the rows of both."""
        together = np.concatenate((self.values, other.values))
        return self.from_rows(together, np.concatenate((self.weight, other.weight)))


def find_classes(
    counts: Folded[ClassCounts],
    target: str,
    what: str,
    most: int | None = None,
    levels: Sequence[str] | None = None,
) -> np.ndarray:
    """Return the classes of a target, ascending.

    `what` wants them and can do with `most`, for messages; `levels` name them, where values are
    positions among these. Fewer than two classes, too many, or others in held-out rows are refused.
    """
    train, test = counts.train(), counts.test
    classes = train.values[train.weight > 0]
    if len(classes) > MAX_CLASSES:
        raise DataError(
            f"The target {target!r} has more than {MAX_CLASSES} values, so it does not hold "
            f"classes: {what} is not for it."
        )
    if len(classes) < 2 or (most is not None and len(classes) > most):
        few = ", ".join(class_name(value, levels) for value in classes[:6])
        wanted = "two classes; with more use softmax" if most == 2 else "classes"
        raise DataError(
            f"{what[:1].upper()}{what[1:]} needs a target of {wanted}; {target!r} has "
            f"{len(classes)} values among the training rows ({few})."
        )
    unknown = np.setdiff1d(test.values[test.weight > 0], classes)
    if len(unknown):
        many = f" {what[:1].upper()}{what[1:]} treats each of the {len(classes)} values as a class."
        raise DataError(
            f"The value {class_name(unknown[0], levels)} of the target {target!r} occurs only in "
            "held-out rows, so no model can learn it. Drop these rows, or hold out "
            f"others.{many if len(classes) > _MANY_CLASSES else ''}"
        )
    return classes


def class_name(value: float, levels: Sequence[str] | None = None) -> str:
    """Write a class: its number, or what stands at this position among the levels."""
    return f"{value:g}" if levels is None else levels[int(value)]


def class_counts(batch: RowBatch, part: int) -> dict[str, ClassCounts]:
    """Count the values of the only target in a part of a batch."""
    rows = batch.part_slices[part]
    weight = None if batch.weight is None else batch.weight[rows]
    return {"classes": ClassCounts.from_rows(batch.target[0, rows], weight)}
