"""Attribute-efficient regression as a job: moments, chains, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.batches import ColumnPlan, require_observed
from distfms.data.categories import categorical_columns
from distfms.data.dataset import ParquetDataset
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.evaluation import (
    MOST_OFFLINE,
    OnFold,
    curves,
    design_of,
    lesson_of,
    size_of,
    trials,
)
from distfms.methods.attribute_efficient.lessons import (
    Learned,
    Lesson,
    average,
    learn,
    learn_chain,
    stream,
)
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.read import (
    LabelledSource,
    LossReader,
    MomentsReader,
    TrainingRows,
    measures,
)
from distfms.methods.attribute_efficient.sampling import improvement_ratio
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs, Job, Stage
from distfms.methods.cross_validation import FoldWork, Members, evaluate_on_folds
from distfms.methods.passes import keeps_rows, one_pass
from distfms.methods.row_predictor import sources_of
from distfms.methods.rows import section_roles, tell_counts
from distfms.methods.statistics_job import STATISTICS, TrainMembers, fold_entries, number_or_none
from distfms.report.formatting import count, number, percent
from distfms.stats.bundle import Bundle

LEARNED = "statistics/learned.npz"
#: Weights that travel with a task of the pass over the rows that judges models.
_MODEL_VALUES = 4_000_000
#: Multiplications that take as long as one drawn attribute (measured: 0.1 µs at 6 · 10⁹ a second).
_DRAW = 600.0


class AttributeEfficientJob(Job):
    """Attribute-efficient ridge or lasso regression, applied to one spec."""

    name = "attribute_efficient"

    def __init__(self, options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> None:
        self.options, self.inputs, self.seed = options, inputs, seed
        self.roles = section_roles(inputs.train, inputs.section)
        self._check_roles()
        d, drawn = len(self.roles.features), options.attributes_per_example
        if drawn > d:
            raise SpecError(
                f"`attribute_efficient.attributes_per_example` is {drawn}, but the data have only "
                f"{d} attributes. Choose at most {d}."
            )
        if options.image is not None and options.image[0] * options.image[1] != d:
            height, width = options.image
            raise SpecError(
                f"`attribute_efficient.image` is {height} × {width} = {height * width} pixels, but "
                f"the data have {d} attributes."
            )

    def _check_roles(self) -> None:
        if len(self.roles.target) != 1:
            raise SpecError(
                "Attribute-efficient regression wants one column as `data.target`; there are "
                f"{len(self.roles.target)}."
            )
        if self.roles.weight is not None:
            raise SpecError(
                "Attribute-efficient regression takes every row as one example: leave "
                "`data.weight` out."
            )
        texts = categorical_columns(self.inputs.train.schema, self.roles)
        if texts:
            raise SpecError(
                f"The column {texts[0]!r} holds text, and attributes are numbers here. Encode it, "
                f"or leave it out with `exclude: [{texts[0]}]`."
            )

    # --- what the driver asks ---

    @property
    def plan(self) -> ColumnPlan:
        """Which columns are read."""
        return ColumnPlan.from_schema(self.inputs.train.schema, self.roles)

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order, without the report."""
        return [
            Stage("statistics", self._statistics),
            Stage("learn", self._learn),
            Stage("evaluate", self._evaluate),
        ]

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        others = (*self.roles.target, self.roles.id, self.roles.query)
        return [*self.roles.features, *dict.fromkeys(c for c in others if c is not None)]

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        return 56 * self.plan.n_columns * (max(self.inputs.section.folds, 1) + 1)

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text, from one partition of the data."""
        options, n_rows = self.options, self.inputs.train.n_rows
        first = self.inputs.train.partitions[0]
        found = TrainMembers(MomentsReader(self._source(self.inputs.train, False))(first))
        self._check_values(found)
        moments = found["moments"].second_moment[:-1]
        split = f"{options.attributes_per_example} of {len(moments)} attributes of each example"
        return {
            "method": f"{options.chosen}: {options.penalty} from {split}",
            "attributes": f"at most {options.attributes_per_example * n_rows:,} of "
            f"{len(moments) * n_rows:,} that the rows have",
            "improvement ratio": said_ratio(improvement_ratio(options.penalty, moments))
            + f" (from the first {found['counts'].n_rows:,} rows)",
            "chains": str(options.chains),
        }

    def check_tuning(self) -> None:
        """Let `tune` compare options on folds."""

    def _source(self, dataset: ParquetDataset, held_out: bool) -> LabelledSource:
        section, positive = self.inputs.section, self.options.positive
        return LabelledSource(dataset.reader, section, self.seed, held_out, self.plan, positive)

    # --- statistics ---

    def _statistics(self, context: Context) -> Mapping[str, Content]:
        statistics = context.reduce(lambda *of: MomentsReader(self._source(*of)))
        train = TrainMembers(statistics)
        self._check_values(train)
        tell_counts(context, self.inputs.section, self.plan, statistics["counts"])
        self._tell_assumptions(context, train)
        return {STATISTICS: statistics.to_arrays()}

    def _check_values(self, train: Members) -> None:
        """Refuse rows that nothing can be learned from, and targets beyond the bound."""
        moments, n_rows = train["moments"], train["counts"].n_rows
        if n_rows < 2:
            raise DataError(
                f"There are {n_rows} rows to train on in {self.inputs.train.files[0].path}; at "
                "least 2 are needed. Add rows, or lower `data.test`."
            )
        require_observed(self.plan.feature_names, moments.n_observed[:-1])
        target, lowest, highest = self.roles.target[0], moments.minimum[-1], moments.maximum[-1]
        if lowest == highest:
            label = "has the same label" if self.options.positive is not None else "is the same"
            raise DataError(
                f"The target {target!r} {label} in all training rows: there is nothing to learn."
            )
        largest, bound = max(abs(lowest), abs(highest)), self.options.bound
        if bound is not None and largest > bound:
            raise DataError(
                f"The target {target!r} goes up to {largest:g} in absolute value, beyond "
                f"`attribute_efficient.bound` ({bound:g}), as no prediction can. Set `bound` to at "
                f"least {largest:g}, leave it out, or divide the target."
            )
        if not moments.second_moment[:-1].any():
            raise DataError("All attributes are 0 in all training rows: there is nothing to learn.")

    def _tell_assumptions(self, context: Context, train: Members) -> None:
        options, design = self.options, design_of(self.options, train)
        moments = train["moments"].second_moment[:-1]
        zero = int((moments == 0).sum())
        if zero:
            context.note(
                f"{count(zero, 'attribute is', 'attributes are')} 0 in all training rows: "
                "drawing by second moments leaves them out, and their weights are 0."
            )
        if not options.scale:
            row = float(np.sqrt(train["norms"].largest_square))
            largest = row
            if options.penalty == "lasso":
                found = train["moments"]
                largest = float(np.maximum(-found.minimum, found.maximum)[:-1].max())
            if largest > 1.0:
                context.note(
                    f"The theory assumes attributes of norm 1 at most, and the largest is "
                    f"{largest:g}: its steps are too long. Set `scale: true`, or a `step_factor`."
                )
        if design.sampling == "moments":
            context.note(
                "The second moments come from a pass over all rows, which the count of observed "
                "attributes leaves out; algorithms of two phases estimate them from what they "
                "observe."
            )

    # --- learning ---

    def _members(self, context: Context) -> Members:
        types = MomentsReader(self._source(self.inputs.train, False)).part_types
        return TrainMembers(Bundle.from_arrays(context.read_arrays(STATISTICS), types))

    def _rows(self, members: Members | None = None) -> TrainingRows:
        dataset = self.inputs.train
        fill = np.zeros(self.plan.n_features)
        if members is not None:
            fill = members["moments"].mean[:-1]
        rows = TrainingRows(
            self._source(dataset, False), tuple(dataset.partitions), fill, self.seed, keep=False
        )
        # Several actors of one machine keep rows of their own.
        return replace(rows, keep=keeps_rows(4 * rows.n_bytes))

    def _run(self, context: Context, members: Members, function: Any, items: Sequence[Any]) -> Any:
        """Apply a function of rows and an item to items, on actors where they pay."""
        if not items:
            return []
        rows = self._rows(members)
        drawn = self.options.attributes_per_example * members["counts"].n_rows
        pool = context.pool(
            len(items),
            0,
            shared_bytes=rows.n_bytes if rows.keep else 0,
            n_operations=len(items) * (_DRAW * drawn + rows.n_bytes),
        )
        with pool as actors:
            actors.start(partial(_share_rows, rows), range(actors.n_actors))
            return actors.map(function, items)

    def _learn(self, context: Context) -> Mapping[str, Content]:
        members = self._members(context)
        lesson = self._lesson(members, stream(self.seed, 0))
        items = [(lesson, chain) for chain in range(lesson.n_chains)]
        learned = average(self._run(context, members, _learn_chain, items))
        context.account(attributes={"observed": learned.n_seen})
        coefficients = dict(zip(self.plan.feature_names, learned.weights.tolist(), strict=True))
        model = {
            "names": list(coefficients),
            "sources": sources_of(self.plan),
            "id": self.roles.id,
            "target": self.roles.target[0],
            "positive": self.options.positive,
        }
        return {
            "selection.json": self._selection(members, lesson, learned, coefficients),
            "model.json": model,
            "weights.npz": {"weights": learned.weights, "fill": members["moments"].mean[:-1]},
        }

    def _lesson(self, members: Members, key: int) -> Lesson:
        design = design_of(self.options, members)
        return Lesson(design, key, members["counts"].n_rows, self.options.chains)

    def _selection(
        self, members: Members, lesson: Lesson, learned: Learned, coefficients: dict[str, float]
    ) -> dict[str, Any]:
        names, options = self.plan.feature_names, self.options
        moments = members["moments"].second_moment[:-1]
        q = np.zeros(len(names)) if learned.sampling is None else learned.sampling
        return {
            "method": self.name,
            "algorithm": options.chosen,
            "penalty": options.penalty,
            "attributes_per_example": options.attributes_per_example,
            "examples": learned.n_examples,
            "attributes_seen": learned.n_seen,
            "attributes_in_all": learned.n_examples * len(names),
            "chains": options.chains,
            "bound": lesson.design.bound,
            "norm": lesson.design.norm,
            "step": learned.step,
            "second_moments": dict(zip(names, moments.tolist(), strict=True)),
            "sampling": dict(zip(names, q.tolist(), strict=True)),
            "improvement_ratio": improvement_ratio(options.penalty, moments),
            "coefficients": coefficients,
            "image": options.image,
        }

    # --- folds ---

    def _fold_work(self, context: Context, items: Sequence[AttributeEfficientOptions]) -> FoldWork:
        members, n_folds = self._members(context), self.inputs.section.folds
        rows = self._rows(members)
        drawn = self.options.attributes_per_example * members["counts"].n_rows
        return FoldWork(
            file=STATISTICS,
            part_types=MomentsReader(rows.source).part_types,
            size=size_of,
            evaluate=OnFold(rows, stream(self.seed, 0), bool(members["counts"].plus_minus[0])),
            items=items,
            n_folds=n_folds,
            held_bytes=2 * self.statistics_bytes() + (rows.n_bytes if rows.keep else 0),
            n_operations=n_folds * (rows.n_bytes + len(items) * _DRAW * drawn),
        )

    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate the points of a grid on folds; see :class:`distfms.methods.contract.Job`."""
        given = self.options.model_dump()
        items = [type(self.options).model_validate({**given, **point}) for point in points]
        moments = self._members(context)["moments"]
        largest = max(-moments.minimum[-1], moments.maximum[-1])
        for item in items:
            if item.bound is not None and item.bound < largest:
                raise DataError(
                    f"A `bound` of {item.bound:g} is to be tried, but targets go up to "
                    f"{largest:g} in absolute value, as no prediction then can. Leave it out of "
                    "`tune.grid.bound`."
                )
        found = evaluate_on_folds(context, self._fold_work(context, items), saved)
        values = np.array([[a[measure][0] for a in answers] for answers in found.answers])
        return found, values

    # --- evaluation ---

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        members = self._members(context)
        tried = trials(self.options, members["counts"].n_rows, self.plan.n_features)
        if "offline" in self.options.compared and self.plan.n_features > MOST_OFFLINE:
            context.note(
                f"The best weights from all attributes are left out: {self.plan.n_features:,} "
                f"attributes make too large a matrix (at most {MOST_OFFLINE:,})."
            )
        lessons = [lesson_of(trial, self.options, members, self.seed) for trial in tried]
        learned = self._run(context, members, _learn_whole, lessons)
        own = context.read_arrays("weights.npz")
        weights = np.vstack([own["weights"], *(found.weights for found in learned)])
        sums = self._errors(context, weights, own["fill"])
        found = {
            part: measures(of_part, bool(members["counts"].plus_minus[0]))
            for part, of_part in sums.items()
        }
        n_rows = {part: int(of_part["n_rows"]) for part, of_part in sums.items()}
        judged = "test" if n_rows["test"] else "train"
        losses = found[judged]["relative_loss"][1:]
        found_curves = curves(tried, learned, losses)
        return {
            "metrics.json": {
                **{part: self._measured(found[part], n_rows[part]) for part in ("train", "test")},
                "folds": self._on_folds(context),
                "judged": judged,
                "curves": found_curves,
                "baselines": {c["name"]: c["points"][-1] for c in found_curves[1:]},
            }
        }

    def _errors(
        self, context: Context, weights: np.ndarray, fill: np.ndarray
    ) -> dict[str, dict[str, np.ndarray]]:
        """Sum the errors of models over training and held-out rows, some models in each pass."""
        step = max(1, _MODEL_VALUES // weights.shape[1])
        passes = [
            one_pass(
                context,
                lambda *of: LossReader(self._source(*of), fill),
                weights[start : start + step],
            )
            for start in range(0, len(weights), step)
        ]
        return {
            part: {
                **{name: passes[0][f"{part}/{name}"] for name in ("zero", "n_rows")},
                **{
                    name: np.concatenate([sums[f"{part}/{name}"] for sums in passes])
                    for name in ("squares", "correct")
                },
            }
            for part in ("train", "test")
        }

    def _measured(self, found: Mapping[str, np.ndarray], n_rows: int) -> dict[str, Any] | None:
        if not n_rows:
            return None
        return {name: number_or_none(v[0]) for name, v in found.items()} | {"n_rows": n_rows}

    def _on_folds(self, context: Context) -> list[dict[str, Any]]:
        if self.inputs.section.folds < 2:
            return []
        return fold_entries(evaluate_on_folds(context, self._fold_work(context, [self.options])))


def said_ratio(ratio: float) -> str:
    """Write what an improvement ratio promises."""
    return (
        f"{number(ratio, 2)}: drawing by second moments can save a factor of up to "
        f"{number(1.0 / ratio, 2)} here ({percent(1.0 - ratio, 0)} of the attributes)"
    )


def _share_rows(rows: TrainingRows, shard: int) -> TrainingRows:
    return rows


def _learn_chain(rows: TrainingRows, item: tuple[Lesson, int]) -> Learned:
    return learn_chain(*item, rows)


def _learn_whole(rows: TrainingRows, lesson: Lesson) -> Learned:
    return learn(lesson, rows)
