"""What methods on mergeable statistics have in common: search, folds, scores, and their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Answer, FoldAnswers, Job, Run
from distfms.methods.frame.cross_validation import (
    Fold,
    FoldWork,
    Members,
    evaluate_on_folds,
    held_out,
)
from distfms.methods.frame.curves import number_or_none, points_of
from distfms.stats.base import Bundle

#: Scores of a path by rule, then by set of rows.
Scores = Mapping[str, Mapping[str, Answer]]


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
    def search(self, problem: Any, rule: Any, /) -> Any:
        """Return the path of choices of a rule; one path answers every budget.

        A procedure with `shards` takes them and the pool that they are on as options.
        """

    def shards(self, problem: Any, rule: Any) -> Sequence[Any]:
        """Return the shards that a rule's candidates are in; none: its search is not cut."""
        return ()

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

    def n_operations(self) -> float:
        """Return about how many multiplications a search by one rule takes."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Solved:
    """What a search found on all training rows.

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
        members = held_out(self.statistics)
        return members if self.procedure.size(members)[0] > 1 else None

    @property
    def sets(self) -> dict[str, Members]:
        """Statistics of the sets of rows that there are, by name."""
        test = self.test
        return {"train": self.train} if test is None else {"train": self.train, "test": test}


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


def search_all(run: Run, procedure: Any, problem: Any) -> dict[str, Any]:
    """Return the paths of all rules by name, found in the driver's process.

    Of the problem no more than its shards is sent, where actors evaluate candidates.
    """
    paths = {}
    for rule in procedure.rules:
        with run.candidates(procedure.shards(problem, rule)) as actors:
            paths[rule.name] = procedure.search(problem, rule, **actors)
    return paths


# --- cross-validation ---------------------------------------------------------------------------


def fold_work(
    job: Job, evaluate: Any, items: Sequence[Any], procedures: Sequence[Procedure]
) -> FoldWork:
    """Return the work of evaluating items on the folds of a job, by procedures one for each."""
    return FoldWork(
        size=procedures[0].size,
        learnable=procedures[0].learnable,
        evaluate=evaluate,
        items=items,
        n_folds=job.n_folds,
        held_bytes=2 * job.statistics_bytes,  # all folds, and one merged
        n_operations=job.n_folds * sum(procedure.n_operations() for procedure in procedures),
    )


def actors_on_moments(n_folds: int, n_rules: int, n_operations: float) -> dict[str, float]:
    """Return the multiplications of the folds, by rules of so many each, as `Job.for_actors` does.

    Trying a grid takes as many for each of its points.
    """
    return {"folds": n_folds * n_rules * n_operations} if n_folds > 1 else {}


def points_on_folds(
    run: Run,
    job: Job,
    statistics: Bundle,
    procedure_of: Callable[[Any], Any],
    points: Sequence[Mapping[str, Any]],
    measure: str,
    nested: str | None = None,
    evaluate: Callable[[FoldWork], FoldAnswers] | None = None,
) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points of a grid on folds, those that differ in the nested option by one path.

    Returns
    -------
    on_folds : FoldAnswers
    values : ndarray of shape (n_points, n_folds)
        The measure; NaN where it does not exist.
    """
    groups = _points_of_paths(points, nested)
    items = []
    for numbers in groups:
        of_group = [points[number] for number in numbers]
        items.append(_tuned_item(job.options, procedure_of, of_group, nested))
    work = fold_work(job, Tuned(measure), items, [item.procedure for item in items])
    on_folds = evaluate(work) if evaluate else evaluate_on_folds(run, statistics, work)
    values = np.empty((len(points), len(on_folds.folds)))
    for numbers, answers in zip(groups, on_folds.answers, strict=True):
        for fold, answer in enumerate(answers):
            values[numbers, fold] = answer["values"]
    return on_folds, values


def _points_of_paths(points: Sequence[Mapping[str, Any]], nested: str | None) -> list[list[int]]:
    """Return the numbers of points that differ in the nested option only, by the others."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, point in enumerate(points):
        key = tuple((name, value) for name, value in point.items() if name != nested)
        groups.setdefault(key, []).append(number)
    return list(groups.values())


def _tuned_item(
    options: Any,
    procedure_of: Callable[[Any], Any],
    points: Sequence[Mapping[str, Any]],
    nested: str | None,
) -> TunedItem:
    """Return the item of points that differ in the nested option: a path to the greatest value."""
    changed = {**options.model_dump(), **points[0]}
    ends: tuple[Any, ...] = ()
    if nested is not None:
        ends = tuple(point.get(nested, changed[nested]) for point in points)
        changed[nested] = max(ends, key=lambda end: np.inf if end is None else end)
    return TunedItem(procedure_of(type(options).model_validate(changed)), ends)


def on_folds(
    run: Run,
    job: Job,
    solved: Solved,
    procedure: Any = None,
    rows: str = "rows",
    evaluate: Callable[[FoldWork], FoldAnswers] | None = None,
) -> FoldAnswers | None:
    """Evaluate all rules on the folds; None without two folds of two rows or more.

    `procedure` is what is evaluated, by default that which found the paths; `rows` what a row is
    called.
    """
    if job.n_folds < 2:
        return None
    procedure = procedure or solved.procedure
    items = [(rule, procedure.grid(solved.paths[rule.name])) for rule in procedure.rules]
    work = fold_work(job, partial(scored, procedure), items, [procedure] * len(items))
    validated = evaluate(work) if evaluate else evaluate_on_folds(run, solved.statistics, work)
    n_ignored = job.n_folds - len(validated.folds)
    if n_ignored:
        run.note(
            f"{n_ignored} of {job.n_folds} folds are left out of the cross-validation: they or the "
            f"others have fewer than two {rows}, or the target of the others is constant. Choose "
            "fewer folds."
        )
    return validated if len(validated.folds) > 1 else None


# --- metrics ------------------------------------------------------------------------------------


def metrics_of(
    solved: Solved, validated: FoldAnswers | None, scores: Scores | None = None
) -> dict[str, Any]:
    """Return what ``metrics.json`` has of every method: scores of every rule's path.

    By default they are those of `scores_of`.
    """
    scores = scores or scores_of(solved)
    curves = list[dict[str, Any]]()
    for number, (name, path) in enumerate(solved.paths.items()):
        columns = dict(scores[name])
        if validated is not None:
            measures = columns["train"]
            columns["validation"] = {m: validated.means(number, m).mean for m in measures}
        budgets = np.maximum(solved.procedure.grid(path), 0.0)
        points = points_of({"budget": budgets}, columns)
        curves.append({"name": name, "points": points})
    last = {curve["name"]: curve["points"][-1] for curve in curves}
    chosen, *baselines = solved.paths
    return {
        **head_of(solved, validated, last[chosen]),
        "curves": curves,
        "baselines": {name: last[name] for name in baselines},
    }


def scores_of(solved: Solved) -> Scores:
    """Score all paths on the training rows, and on held-out rows where there are any."""
    procedure = solved.procedure
    sets = solved.sets
    scores = {}
    for name, path in solved.paths.items():
        budgets = procedure.grid(path)
        scores[name] = {
            rows: procedure.score(solved.problem, path, members, budgets)
            for rows, members in sets.items()
        }
    return scores


def head_of(
    solved: Solved, validated: FoldAnswers | None, measures: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what all metrics begin with: measures of the model on each set of rows."""
    head: dict[str, Any] = {"train": None, "test": None}
    for rows, members in solved.sets.items():
        if rows in measures:
            n_rows, _ = solved.procedure.size(members)
            head[rows] = {**measures[rows], "n_rows": n_rows}
    head["folds"] = [] if validated is None else fold_entries(validated)
    return head


def fold_entries(validated: FoldAnswers) -> list[dict[str, Any]]:
    """Return for each fold the scores of all that the chosen rule's path affords."""
    entries = []
    of_chosen_rule = validated.answers[0]
    for place, answer in enumerate(of_chosen_rule):
        measures = {name: v for name, v in answer.items() if not name.startswith("fold/")}
        entry = {
            "fold": validated.folds[place],
            **{name: number_or_none(values[-1]) for name, values in measures.items()},
            "n_rows": validated.n_rows[place],
            "weight": validated.weight[place],
        }
        entries.append(entry)
    return entries


class TrainMembers(Mapping[str, Any]):
    """Statistics of all training rows, each merged from the folds when it is first asked for."""

    def __init__(self, statistics: Bundle) -> None:
        self._parts = statistics.members
        self._merged = dict[str, Any]()

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
