"""The job of a method whose selection works on mergeable statistics alone.

The stages are: what comes first (such as the levels of categories), statistics, [tune], select,
model, evaluate, what comes last (such as a plan), report. A method gives the reader of its
statistics, its pure procedure, and the content of the files; everything else is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.partition import Dataset
from distfms.engine.storage import remove_tree
from distfms.methods.contract import (
    Answer,
    Content,
    Context,
    FoldAnswers,
    PartialReader,
    Stage,
    TunableJob,
)
from distfms.methods.cross_validation import (
    Fold,
    FoldWork,
    Members,
    evaluate_on_folds,
)
from distfms.methods.curves import number_or_none, points_of
from distfms.stats.base import Bundle, Statistic, over_folds

STATISTICS = "statistics/statistics.npz"
PATHS = "statistics/paths.npz"
#: Folder of what comparing options makes of folds, for the evaluation after it.
KEPT = "statistics/folds"


@dataclass(frozen=True)
class NamedRule:
    """A way to choose, of the spec or a baseline, that is no more than its name."""

    name: str


class Procedure(ABC):
    """The pure part of a method: from merged statistics to a path of choices and its scores.

    A frozen, picklable value without data or files, which travels to actors.

    Attributes
    ----------
    rules : sequence
        The ways to choose, hashable and with a `name`: that of the spec, then the baselines.
    """

    rules: Sequence[Any]

    @abstractmethod
    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows that statistics sum up, and their weight."""

    def learnable(self, train: Members) -> bool:
        """Return whether some rows, two or more, suffice for `problem`."""
        return True

    @abstractmethod
    def problem(self, train: Members) -> Any:
        """Return the selection problem of some rows.

        Raises
        ------
        DataError
            If nothing can be learned from them.
        """

    def problem_on(self, fold: Fold) -> Any:
        """Return the problem of all rows but a fold's; items with equal problems share it."""
        return fold.once("problem", lambda: self.problem(fold.train))

    @abstractmethod
    def search(self, problem: Any, rule: Any) -> Any:
        """Return the path of choices of a rule; one path answers every budget."""

    @abstractmethod
    def grid(self, path: Any) -> np.ndarray:
        """Return the budgets, ascending, at which the path's curve has its points."""

    @abstractmethod
    def score(self, problem: Any, path: Any, held_out: Members, budgets: np.ndarray) -> Answer:
        """Score what each budget affords of a path on other rows, or on the same.

        Parameters
        ----------
        problem, path : what `problem` and `search` returned
        held_out : mapping of str to Statistic
        budgets : ndarray of shape (n,)

        Returns
        -------
        mapping of str to ndarray of shape (n,)
            Measures by name; NaN where one does not exist.
        """

    def evaluate(self, fold: Fold, rule: Any, budgets: np.ndarray) -> Answer:
        """Search without a fold by a rule, and score the path on the fold."""
        problem = self.problem_on(fold)
        return self.score(problem, self.search(problem, rule), fold.held_out, budgets)

    def tuned_values(self, fold: Fold, ends: Sequence[Any], measure: str) -> np.ndarray:
        """Return a measure on a fold, shape (n,), for n values of the job's `nested` option.

        The procedure's own options have the greatest of them.
        """
        return self.evaluate(fold, self.rules[0], np.array(ends))[measure]

    @abstractmethod
    def store(self, problem: Any, paths: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the paths by rule, and the expensive parts of the problem, as named arrays."""

    @abstractmethod
    def restore(self, whole: Fold, arrays: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        """Return problem and paths of all training rows; inverse of `store`."""

    def n_operations(self) -> float:
        """Return about how many multiplications a search by one rule takes."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Solved:
    """What `select` found on all training rows.

    `statistics` are by fold, `train` of all training rows, `paths` by the names of the rules, the
    chosen one first.
    """

    procedure: Any
    statistics: Bundle
    train: Members
    problem: Any
    paths: Mapping[str, Any]

    @property
    def path(self) -> Any:
        """Path of the chosen rule."""
        return next(iter(self.paths.values()))

    @property
    def test(self) -> Members | None:
        """Statistics of the held-out rows; None if there are fewer than two."""
        members = {name: part.test for name, part in self.statistics.members.items()}
        return members if self.procedure.size(members)[0] > 1 else None


def scored(procedure: Procedure, fold: Fold, item: tuple[Any, np.ndarray]) -> Answer:
    """Score a rule at its budgets on a fold."""
    return procedure.evaluate(fold, *item)


@dataclass(frozen=True, eq=False)
class TunedItem:
    """Points of a grid that one path answers, as they differ in the nested option only."""

    procedure: Procedure
    ends: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Tuned:
    """Picklable function from a fold and a `TunedItem` to the measure at its ends."""

    measure: str

    def __call__(self, fold: Fold, item: TunedItem) -> Answer:
        """Measure the points of an item."""
        return {"values": item.procedure.tuned_values(fold, item.ends, self.measure)}


class StatisticsJob(TunableJob):
    """A method on statistics, applied to one spec.

    Attributes
    ----------
    nested : str or None
        Option of which a path for a greater value answers the smaller ones, such as a budget.
    rows : str
        What a row is called in messages.
    """

    nested: ClassVar[str | None] = None
    rows: ClassVar[str] = "rows"
    #: What `select` found, and the context of the run that found it.
    _found: tuple[Context, Solved] | None = None

    # --- what a method gives ---

    @abstractmethod
    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> PartialReader:
        """Return the reader of a dataset's partitions; `held_out` if all its rows are."""

    @abstractmethod
    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what nothing can be learned from; count and note what was read.

        Raises
        ------
        DataError
        """

    @abstractmethod
    def procedure(self, context: Context) -> Any:
        """Return the method's pure part."""

    @abstractmethod
    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""

    @abstractmethod
    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return ``model.json`` and ``weights.npz``."""

    def first_stages(self) -> Sequence[Stage]:
        """Return the stages before the statistics."""
        return ()

    def last_stages(self) -> Sequence[Stage]:
        """Return the stages after the evaluation."""
        return ()

    def search(self, context: Context, procedure: Any, problem: Any) -> Sequence[Any]:
        """Return the paths of all rules, in their order, found in the driver's process.

        What a problem holds is sent nowhere: copies of its matrices are laid out differently in
        memory, which changes last bits.
        """
        return [procedure.search(problem, rule) for rule in procedure.rules]

    def on_folds(self, context: Context, solved: Solved) -> Any:
        """Return the procedure that the cross-validation evaluates."""
        return solved.procedure

    # --- stages ---

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order, without the report."""
        return [
            *self.first_stages(),
            Stage("statistics", self._statistics),
            Stage("select", self._select),
            Stage("model", lambda context: self.model(context, self.solved(context))),
            Stage("evaluate", self._evaluate),
            *self.last_stages(),
        ]

    def _statistics(self, context: Context) -> Mapping[str, Content]:
        statistics = context.reduce(partial(self.reader, context))
        self.check(context, statistics)
        # What else can be wrong with the data shows here, before anything is written.
        self.procedure(context).problem(TrainMembers(statistics))
        return {STATISTICS: statistics.to_arrays()}

    def _select(self, context: Context) -> Mapping[str, Content]:
        procedure, statistics = self.procedure(context), self.statistics(context)
        whole = Fold(TrainMembers(statistics), {})
        problem = procedure.problem_on(whole)
        found = self.search(context, procedure, problem)
        paths = {rule.name: path for rule, path in zip(procedure.rules, found, strict=True)}
        solved = Solved(procedure, statistics, whole.train, problem, paths)
        selection = self.selection(context, solved)
        stored = procedure.store(problem, paths)
        # In the order of a file, on which last bits depend.
        arrays = {name: np.asarray(array, order="C") for name, array in stored.items()}
        self._keep_restored(context, procedure, statistics, whole, arrays)
        return {PATHS: stored, "selection.json": selection}

    def _keep_restored(
        self,
        context: Context,
        procedure: Procedure,
        statistics: Bundle,
        whole: Fold,
        arrays: Mapping[str, np.ndarray],
    ) -> Solved:
        problem, paths = procedure.restore(whole, arrays)
        solved = Solved(procedure, statistics, whole.train, problem, paths)
        self._found = context, solved
        return solved

    def _evaluate(self, context: Context) -> Mapping[str, Content]:
        solved = self.solved(context)
        return {"metrics.json": self.metrics(context, solved, self.validate(context, solved))}

    # --- what earlier stages wrote ---

    def statistics(self, context: Context) -> Bundle:
        """Return the statistics by fold."""
        if self._found is not None and self._found[0] is context:
            return self._found[1].statistics
        return Bundle.from_arrays(context.read_arrays(STATISTICS), self.part_types(context))

    def part_types(self, context: Context) -> Mapping[str, type[Statistic]]:
        """Return the class of each statistic that the readers make."""
        return self.reader(context, self.inputs.train, False).part_types

    def solved(self, context: Context) -> Solved:
        """Return what `select` found."""
        if self._found is not None and self._found[0] is context:
            return self._found[1]
        statistics = self.statistics(context)
        whole = Fold(TrainMembers(statistics), {})
        arrays = context.read_arrays(PATHS)
        return self._keep_restored(context, self.procedure(context), statistics, whole, arrays)

    def held_out(self, context: Context) -> Members:
        """Return the statistics of the held-out rows of the context's data."""
        if context.inputs is self.inputs:
            statistics = self.statistics(context)
        else:
            reader: Any = partial(self.summary_reader, context)
            statistics = context.reduce(reader)
        return {name: part.test for name, part in statistics.members.items()}

    # --- cross-validation ---

    def validate(self, context: Context, solved: Solved) -> FoldAnswers | None:
        """Evaluate all rules on the folds; None without two folds of two rows or more."""
        n_folds = self.inputs.section.folds
        if n_folds < 2:
            return None
        procedure = self.on_folds(context, solved)
        items = [(rule, procedure.grid(solved.paths[rule.name])) for rule in procedure.rules]
        work = self._fold_work(context, partial(scored, procedure), items, [procedure] * len(items))
        work = work if self.tuned else replace(work, kept_at=None)
        found = self.evaluate_folds(context, work)
        if work.kept_at is not None:
            remove_tree(work.kept_at)
        if len(found.folds) < n_folds:
            context.note(
                f"{n_folds - len(found.folds)} of {n_folds} folds are left out of the "
                f"cross-validation: they or the others have fewer than two {self.rows}, or the "
                "target of the others is constant. Choose fewer folds."
            )
        return found if len(found.folds) > 1 else None

    def _fold_work(
        self, context: Context, evaluate: Any, items: Sequence[Any], procedures: Sequence[Procedure]
    ) -> FoldWork:
        n_folds = self.inputs.section.folds
        return FoldWork(
            file=STATISTICS,
            part_types=self.part_types(context),
            size=procedures[0].size,
            learnable=procedures[0].learnable,
            evaluate=evaluate,
            items=items,
            n_folds=n_folds,
            held_bytes=self.fold_bytes(),
            n_operations=n_folds * sum(procedure.n_operations() for procedure in procedures),
            kept_at=context.folder / KEPT,
        )

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate every item on every fold, on actors where that pays."""
        return evaluate_on_folds(context, work, saved)

    def fold_bytes(self) -> int:
        """Return what an actor of the cross-validation holds: all folds, and one merged."""
        return 2 * self.statistics_bytes()

    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate the points of a grid on folds; see :class:`distfms.methods.contract.Job`."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for number, point in enumerate(points):
            key = tuple((name, value) for name, value in point.items() if name != self.nested)
            groups.setdefault(key, []).append(number)
        items = [self._tuned_item(context, [points[n] for n in own]) for own in groups.values()]
        work = self._fold_work(context, Tuned(measure), items, [item.procedure for item in items])
        found = self.evaluate_folds(context, work, saved)
        values = np.empty((len(points), len(found.folds)))
        for own, answers in zip(groups.values(), found.answers, strict=True):
            for f, answer in enumerate(answers):
                values[own, f] = answer["values"]
        return found, values

    def _tuned_item(self, context: Context, points: Sequence[Mapping[str, Any]]) -> TunedItem:
        options = {**self.options.model_dump(), **points[0]}
        ends: tuple[Any, ...] = ()
        if self.nested is not None:
            ends = tuple(point.get(self.nested, options[self.nested]) for point in points)
            options[self.nested] = max(ends, key=lambda end: np.inf if end is None else end)
        changed = type(self.options).model_validate(options)
        procedure = type(self)(changed, self.inputs, self.seed).procedure(context)
        return TunedItem(procedure, ends)

    # --- metrics ---

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``: scores of every rule's path."""
        curves = [
            self._curve(context, solved, number, name, validated)
            for number, name in enumerate(solved.paths)
        ]
        last = {curve["name"]: curve["points"][-1] for curve in curves}
        chosen, *baselines = solved.paths
        return {
            **self.head(solved, validated, last[chosen]),
            "curves": curves,
            "baselines": {name: last[name] for name in baselines},
        }

    def head(
        self, solved: Solved, validated: FoldAnswers | None, measures: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return what all metrics begin with: measures of the model on each set of rows."""
        parts = {"train": solved.train, "test": solved.test}
        return {
            **{
                part: {**measures[part], "n_rows": solved.procedure.size(members)[0]}
                if members is not None and part in measures
                else None
                for part, members in parts.items()
            },
            "folds": [] if validated is None else fold_entries(validated),
        }

    def scores(
        self, context: Context, solved: Solved, path: Any, grid: np.ndarray
    ) -> dict[str, Answer]:
        """Score a path on the training rows, and on held-out rows where there are any."""
        score = partial(solved.procedure.score, solved.problem, path)
        found = {"train": score(solved.train, grid)}
        return found if solved.test is None else {**found, "test": score(solved.test, grid)}

    def _curve(
        self,
        context: Context,
        solved: Solved,
        number: int,
        name: str,
        validated: FoldAnswers | None,
    ) -> dict[str, Any]:
        """Return the points of a rule's path: its scores on each set of rows."""
        procedure, path = solved.procedure, solved.paths[name]
        grid = procedure.grid(path)
        columns = self.scores(context, solved, path, grid)
        if validated is not None:
            columns["validation"] = means_of_folds(validated, number, columns["train"])
        return {"name": name, "points": points_of({"budget": grid}, columns)}


class TrainMembers(Mapping[str, Any]):
    """Statistics of all training rows, each merged from the folds when it is first asked for."""

    def __init__(self, statistics: Bundle) -> None:
        self._parts, self._merged = statistics.members, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        """Return the merged statistic of this name."""
        if name not in self._merged:
            self._merged[name] = self._parts[name].train()
        return self._merged[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._parts)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self._parts)


def means_of_folds(validated: FoldAnswers, item: int, names: Iterable[str]) -> Answer:
    """Return the weighted means over the folds of an item's measures."""
    answers, weight = validated.answers[item], validated.weight
    return {
        name: over_folds(np.stack([own[name] for own in answers], axis=-1), weight).mean
        for name in names
    }


def fold_entries(validated: FoldAnswers) -> list[dict[str, Any]]:
    """Return for each fold the scores of all that the chosen rule's path affords."""
    return [
        {
            "fold": fold,
            **{
                name: number_or_none(values[-1])
                for name, values in answer.items()
                if not name.startswith("fold/")
            },
            "n_rows": validated.n_rows[f],
            "weight": validated.weight[f],
        }
        for f, (fold, answer) in enumerate(zip(validated.folds, validated.answers[0], strict=True))
    ]
