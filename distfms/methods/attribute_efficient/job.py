"""Attribute-efficient regression as a job: moments, chains, curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan, require_observed
from distfms.data.partition import Dataset
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.from_pairs import Learned
from distfms.methods.attribute_efficient.lessons import (
    LearningProcedure,
    Lesson,
    average,
    constant_of,
    curves,
    design_of,
    ends,
    fill_of,
    learn,
    lessons_of,
    linear_of,
    norm_of,
    on_rows,
    predictor_of,
    stream,
)
from distfms.methods.attribute_efficient.options import ONLINE_ONLY, AttributeEfficientOptions
from distfms.methods.attribute_efficient.predictors import Predictor
from distfms.methods.attribute_efficient.read import (
    LabelledSource,
    LossReader,
    TrainingRows,
    measures,
    plus_minus,
    statistics_reader,
)
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs
from distfms.methods.cross_validation import FoldWork, Members
from distfms.methods.curves import number_or_none
from distfms.methods.passes import keeps_rows, one_pass
from distfms.methods.row_job import RowJob
from distfms.methods.row_predictor import sources_of
from distfms.methods.rows import SummaryReader
from distfms.methods.statistics_job import Solved, TrainMembers
from distfms.report.formatting import number
from distfms.stats.base import Bundle, below, joined
from distfms.stats.classification import CLASS_SUMS, class_report

#: Weights that travel with a task of the pass over the rows that judges models.
_MODEL_VALUES = 4_000_000
#: Multiplications that take as long as one drawn attribute (measured: 0.1 µs at 6 · 10⁹ a second).
_DRAW = 600.0


class AttributeEfficientJob(RowJob):
    """Attribute-efficient ridge or lasso regression, applied to one spec."""

    name: ClassVar[str] = "attribute_efficient"
    coded_classes: ClassVar[list[int]] = [-1, 1]
    #: What may help a model that is worse than the mean.
    advice: ClassVar[str] = "try `intercept: true`, or a larger `step_factor`"
    options: AttributeEfficientOptions

    def __init__(self, options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options, inputs, seed)
        self._check_roles()
        self._plan = ColumnPlan.of(self.roles)
        options.require_attributes(len(self.roles.features))
        self.takes_gaps = options.solver != "online" and inputs.section.missing == "pairs"
        if options.attributes_per_example is None and not self.takes_gaps:
            raise SpecError(
                "`attribute_efficient.attributes_per_example` is missing: set the number of "
                "attributes to draw of each example. Only `solver: pairs` with `data.missing: "
                "pairs` does without it."
            )

    def _check_roles(self) -> None:
        if len(self.roles.target) != 1:
            raise SpecError(
                "Attribute-efficient regression needs one column as `data.target`; there are "
                f"{len(self.roles.target)}."
            )
        if self.roles.weight is not None:
            raise SpecError(
                "Attribute-efficient regression does not weigh rows: leave `data.weight` out."
            )
        if self.categorical:
            text = self.categorical[0]
            raise SpecError(
                f"The column {text!r} holds text, and attributes are numbers here. Encode it, "
                f"or leave it out with `exclude: [{text}]`."
            )

    # --- what the driver asks ---

    def check_tried(self, name: str, first: Any) -> None:
        """Refuse options of the online learner where the job solves from pairs."""
        if name in ONLINE_ONLY and first.options.solver == "pairs":
            raise SpecError(
                f"`attribute_efficient.{name}` is an option of the online learner, and this job "
                "solves from pairs, which chooses its constants itself. Set `solver: online`."
            )

    def plan(self, context: Context) -> ColumnPlan:
        """Return which columns are read; they are known before data are read."""
        return self._plan

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        return 56 * self._plan.n_columns * (max(self.inputs.section.folds, 1) + 1)

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text, from one partition of the data."""
        options, n_rows = self.options, self.inputs.train.n_rows
        first = self.inputs.train.partitions[0]
        source = self.source(self._plan, self.inputs.train, False)
        found = TrainMembers(statistics_reader(source)(first))
        self._check_values(found)
        moments, n_first = found["moments"].second_moment[:-1], found["counts"].n_rows
        ratio = design_of(options, found).improvement_ratio
        drawn = options.attributes_per_example or len(moments)
        split = f"{options.attributes_per_example} of {len(moments)} attributes of each example"
        scanned = f", after a pass over all for {options.scanned_for}" * bool(options.scanned_for)
        return {
            "method": f"{options.chosen}: {options.penalty} from {split}",
            "attributes": f"at most {drawn * n_rows:,} of "
            f"{len(moments) * n_rows:,} that the rows have{scanned}",
            "improvement ratio": f"{number(ratio, 2)}: drawing by second moments saves up to a "
            f"factor of {number(1.0 / ratio, 2)} here (from the first {n_first:,} rows)",
            "chains": str(options.chains),
            **self.first_values(),
        }

    def class_option(self) -> str:
        """Return how to ask for classes."""
        asked = self.options.positive is not None
        return "" if asked else "`attribute_efficient.positive` to one of them"

    def fold_bytes(self) -> int:
        """Return what an actor of the cross-validation holds: statistics, and rows."""
        rows = self._rows()
        return 2 * self.statistics_bytes() + (rows.n_bytes if rows.keep else 0)

    # --- statistics ---

    def source(self, plan: ColumnPlan, dataset: Dataset, held_out: bool) -> LabelledSource:
        """Return all that is needed to read a partition of a dataset."""
        return LabelledSource(
            **vars(super().source(plan, dataset, held_out)), positive=self.options.positive
        )

    @property
    def coded_target(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return what learns the target as plus and minus one, where it is labels."""
        positive = self.options.positive
        return super().coded_target if positive is None else partial(plus_minus, positive)

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of moments, norms and counts."""
        return statistics_reader(self.source(self._plan, dataset, held_out))

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> SummaryReader | None:
        """Return nothing: the products of all attributes may be too many."""
        return None

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what nothing can be learned from; say what the theory assumes."""
        train = TrainMembers(statistics)
        self._check_values(train, statistics["counts"].test.n_rows)
        design_of(self.options, train)
        self.tell_counts(context, self._plan, statistics["counts"])
        self._tell_assumptions(context, train)

    def _check_values(self, train: Members, n_test: int = 0) -> None:
        """Refuse rows that nothing can be learned from."""
        moments = train["moments"]
        self.require_rows(train["counts"].n_rows, n_test)
        require_observed(self._plan.feature_names, moments.weight[:-1])
        target, lowest, highest = self.roles.target[0], moments.minimum[-1], moments.maximum[-1]
        if lowest == highest:
            label = "has the same label" if self.options.positive is not None else "is the same"
            raise DataError(
                f"The target {target!r} {label} in all training rows: there is nothing to learn."
            )
        if not moments.second_moment[:-1].any():
            raise DataError("All attributes are 0 in all training rows: there is nothing to learn.")

    def _tell_assumptions(self, context: Context, train: Members) -> None:
        options, n_rows = self.options, train["counts"].n_rows
        largest = norm_of(options.penalty, train)
        if not options.scale and largest > 1.0:
            context.note(
                f"The theory assumes attributes of norm 1 at most, but norms go up to {largest:g}: "
                "its steps are too long. Set `scale: true` or a `step_factor`."
            )
        if options.scanned_for:
            context.note(
                f"A pass over all {n_rows * self._plan.n_features:,} attributes of the "
                f"training rows found {options.scanned_for}; they do not count as observed. With "
                "`scale: false`, two-phase and uniform algorithms learn only from what they "
                "observe."
            )

    # --- learning ---

    def _rows(self, members: Members | None = None) -> TrainingRows:
        dataset = self.inputs.train
        fill = np.full(self._plan.n_features, np.nan)  # what was not observed stays missing
        if members is not None and not self.takes_gaps:
            fill = fill_of(members)
        source = self.source(self._plan, dataset, False)
        rows = TrainingRows(source, tuple(dataset.partitions), fill, self.seed, keep=False)
        # Several actors of one machine keep rows of their own.
        return replace(rows, keep=keeps_rows(4 * rows.n_bytes))

    def _learned(
        self, context: Context, members: Members, lessons: Sequence[Lesson]
    ) -> list[Learned]:
        """Learn lessons, the chains of all of them side by side on actors where they pay."""
        items = [(lesson, number) for lesson in lessons for number in range(lesson.n_chains)]
        if not items:
            return []
        rows = self._rows(members)
        pool = context.pool(
            len(items),
            0,
            shared_bytes=rows.n_bytes if rows.keep else 0,
            n_operations=len(items) * self._operations(),
        )
        with pool as actors:
            actors.start(partial(_share_rows, rows), range(actors.n_actors))
            found = iter(actors.map(_learn, items))
        return [average(list(islice(found, lesson.n_chains))) for lesson in lessons]

    def _operations(self) -> float:
        """Return about how many multiplications it takes to read all rows and learn from them."""
        drawn = (self.options.attributes_per_example or 0) * self.inputs.train.n_rows
        return _DRAW * drawn + self._rows().n_bytes

    def procedure(self, context: Context) -> LearningProcedure:
        """Return what is learned, of some rows."""
        key, operations = stream(self.seed, 0), self._operations()
        return LearningProcedure(self.options, key, operations, self.takes_gaps)

    def search(
        self, context: Context, procedure: LearningProcedure, problem: Members
    ) -> Sequence[Learned]:
        """Solve from the pairs of all training rows, or learn from these, chain by chain."""
        if "pairs" in problem:
            return super().search(context, procedure, problem)
        return self._learned(context, problem, [procedure.lesson(problem)])

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        learned, design = solved.path, design_of(self.options, solved.train)
        names, options = self._plan.feature_names, self.options
        in_all = learned.n_examples * len(names)
        scanned = in_all if options.scanned_for else 0
        context.account(attributes={"observed": learned.n_seen, "scanned": scanned})
        moments = solved.train["moments"].second_moment[:-1]
        return {
            "method": self.name,
            "algorithm": options.chosen,
            "penalty": options.penalty,
            "attributes_per_example": options.attributes_per_example,
            "examples": learned.n_examples,
            "attributes_seen": learned.n_seen,
            "attributes_in_all": in_all,
            "scanned_for": options.scanned_for,
            "chains": options.chains,
            "bound": design.bound,
            "norm": design.norm,
            "step": learned.step,
            "second_moments": dict(zip(names, moments.tolist(), strict=True)),
            "sampling": dict(zip(names, learned.sampling.tolist(), strict=True)),
            "improvement_ratio": design.improvement_ratio,
            "intercept": learned.intercept,
            "coefficients": dict(zip(names, learned.weights.tolist(), strict=True)),
        }

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the weights, and what missing values are taken for."""
        model = {
            "names": self._plan.feature_names,
            "sources": sources_of(self._plan),
            "id": self.roles.id,
            "target": self.roles.target[0],
            "positive": self.options.positive,
            "intercept": solved.path.intercept,
        }
        path, found = solved.path, linear_of([solved.path], solved.train)
        arrays = {"weights": path.weights, "fill": found.fill, "limits": found.limits}
        gaps = {} if path.gaps is None else joined({"gaps": path.gaps.to_arrays()})
        return {"model.json": model, "weights.npz": {**arrays, **gaps}}

    # --- folds ---

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate every item on every fold, on actors where that pays."""
        rows = self._rows(TrainMembers(self.statistics(context)))
        return super().evaluate_folds(
            context, replace(work, evaluate=partial(on_rows, rows, work.evaluate)), saved
        )

    # --- evaluation ---

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        members = solved.train
        lessons = [] if self.takes_gaps else lessons_of(self.options, members, self.seed)
        learned = self._learned(context, members, lessons)
        sums = self._errors(context, solved, learned)
        classes = bool(members["counts"].all_in(-1.0, 1.0)[0])
        found = {part: measures(of_part, classes) for part, of_part in sums.items()}
        mse, variance = found["train"]["mse"][0], members["moments"].variance[-1]
        if mse > variance:
            context.note(
                f"The mean of the target predicts the training rows better (mean squared error "
                f"{variance:.4g}) than the model ({mse:.4g}): {self.advice}."
            )
        judged = "train" if solved.test is None else "test"
        if solved.test is None:
            del found["test"]
        if self.takes_gaps:
            found_curves = ends(solved.paths, found, validated)
        else:
            losses = {part: of_part["relative_loss"][1:] for part, of_part in found.items()}
            found_curves = curves(lessons, learned, losses)
        own = {
            part: {name: number_or_none(values[0]) for name, values in of_part.items()}
            for part, of_part in found.items()
        }
        report = {}
        if classes:
            positive, told = self.options.positive, {n: sums[judged][n][0] for n in CLASS_SUMS}
            names = ["-1", "1"] if positive is None else ["others", f"{positive:g}"]
            report["classes"] = class_report(told, names, judged, calibrated=False)
        return {
            **self.head(solved, validated, own),
            **report,
            "curves": found_curves,
            "baselines": {c["name"]: c["points"][-1] for c in found_curves[1:]},
        }

    def _errors(
        self, context: Context, solved: Solved, others: Sequence[Learned]
    ) -> dict[str, dict[str, np.ndarray]]:
        """Sum the errors of models over training and held-out rows, some others in each pass."""
        step, members = max(1, _MODEL_VALUES // self._plan.n_columns), solved.train
        cut = [others[start : start + step] for start in range(0, len(others), step)] or [[]]
        groups: list[list[Predictor]] = [[linear_of(own, members)] if own else [] for own in cut]
        groups[0] = [*(predictor_of(own, members) for own in solved.paths.values()), *groups[0]]
        constant = constant_of(self.options, members["moments"])
        passes = [
            one_pass(
                context, lambda *of: LossReader(self.source(self._plan, *of), constant), models
            )
            for models in groups
        ]
        arrays = [sums.arrays for sums in passes]
        whole = {name: np.concatenate([own[name] for own in arrays]) for name in arrays[0]}
        return {part: below(f"{part}/", whole) for part in ("train", "test")}


def _share_rows(rows: TrainingRows, shard: int) -> TrainingRows:
    return rows


def _learn(rows: TrainingRows, item: tuple[Lesson, int]) -> Learned:
    lesson, number = item
    return learn(lesson, rows, number)
