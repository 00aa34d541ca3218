"""What methods on mergeable statistics have in common: search, folds, scores, and their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import Fold, FoldWork
from distfms.methods.frame.curves import points_of
from distfms.stats.base import Bundle, Members
from distfms.stats.folds import Answer, FoldAnswers

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

    def search_all(self, run: Run, problem: Any) -> dict[str, Any]:
        """Return the paths of all rules by name, found in the driver's process.

        Of the problem no more than its shards is sent, where actors evaluate candidates.
        """
        paths = {}
        for rule in self.rules:
            with run.candidates(self.shards(problem, rule)) as actors:
                paths[rule.name] = self.search(problem, rule, **actors)
        return paths

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
        members = self.statistics.test()
        return members if self.procedure.size(members)[0] > 1 else None

    @property
    def sets(self) -> dict[str, Members]:
        """Statistics of the sets of rows that there are, by name."""
        test = self.test
        return {"train": self.train} if test is None else {"train": self.train, "test": test}

    def on_folds(
        self,
        run: Run,
        job: Job,
        procedure: Any = None,
        rows: str = "rows",
        evaluate: Callable[[FoldWork], FoldAnswers] | None = None,
    ) -> FoldAnswers | None:
        """Evaluate all rules on the folds; None without two folds of two rows or more.

        `procedure` is what is evaluated, by default that which found the paths; `rows` what a row
        is called.
        """
        if job.n_folds < 2:
            return None
        procedure = procedure or self.procedure
        items = [(rule, procedure.grid(self.paths[rule.name])) for rule in procedure.rules]
        work = FoldWork.of_job(job, partial(scored, procedure), items, [procedure] * len(items))
        validated = evaluate(work) if evaluate else work.on_actors(run, self.statistics)
        n_ignored = job.n_folds - len(validated.folds)
        if n_ignored:
            run.note(
                f"{n_ignored} of {job.n_folds} folds are left out of the cross-validation: they or "
                f"the others have fewer than two {rows}, or the target of the others is constant. "
                "Choose fewer folds."
            )
        return validated if len(validated.folds) > 1 else None

    # --- metrics ---

    def metrics(
        self, validated: FoldAnswers | None, scores: Scores | None = None
    ) -> dict[str, Any]:
        """Return what ``metrics.json`` has of every method, by default of the `scores`."""
        scores = scores or self.scores()
        curves = list[dict[str, Any]]()
        for number, (name, path) in enumerate(self.paths.items()):
            columns = dict(scores[name])
            if validated is not None:
                measures = columns["train"]
                columns["validation"] = {m: validated.means(number, m).mean for m in measures}
            budgets = np.maximum(self.procedure.grid(path), 0.0)
            points = points_of({"budget": budgets}, columns)
            curves.append({"name": name, "points": points})
        last = {curve["name"]: curve["points"][-1] for curve in curves}
        chosen, *baselines = self.paths
        return {
            **self.head(validated, last[chosen]),
            "curves": curves,
            "baselines": {name: last[name] for name in baselines},
        }

    def scores(self) -> Scores:
        """Score all paths on the training rows, and on held-out rows where there are any."""
        sets = self.sets
        scores = {}
        for name, path in self.paths.items():
            budgets = self.procedure.grid(path)
            scores[name] = {
                rows: self.procedure.score(self.problem, path, members, budgets)
                for rows, members in sets.items()
            }
        return scores

    def head(self, validated: FoldAnswers | None, measures: Mapping[str, Any]) -> dict[str, Any]:
        """Return what all metrics begin with: measures of the model on each set of rows."""
        head: dict[str, Any] = {"train": None, "test": None}
        for rows, members in self.sets.items():
            if rows in measures:
                n_rows, _ = self.procedure.size(members)
                head[rows] = {**measures[rows], "n_rows": n_rows}
        head["folds"] = [] if validated is None else validated.entries()
        return head


def scored(procedure: Procedure, fold: Fold, item: tuple[Any, np.ndarray]) -> Answer:
    """Score a rule at its budgets on a fold."""
    return procedure.evaluate(fold, *item)


#: Points of a grid that one path answers: a procedure, and the values of the nested option.
TunedItem = tuple[Any, tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Tuned:
    """Picklable function from a fold and a `TunedItem` to the measure at its ends."""

    measure: str

    @classmethod
    def work(cls, job: Job, items: Sequence[TunedItem], measure: str) -> FoldWork:
        """Return the work of measuring the points of items on the folds of a job."""
        return FoldWork.of_job(job, cls(measure), items, [procedure for procedure, _ in items])

    def __call__(self, fold: Fold, item: TunedItem) -> Answer:
        """Measure the points of an item."""
        procedure, ends = item
        return {"values": procedure.tuned_values(fold, ends, self.measure)}


# --- cross-validation ---------------------------------------------------------------------------


def points_on_folds(
    run: Run,
    job: Job,
    statistics: Bundle,
    procedure_of: Callable[[Any], Any],
    points: Sequence[Mapping[str, Any]],
    measure: str,
    evaluate: Callable[[FoldWork], FoldAnswers] | None = None,
) -> tuple[FoldAnswers, np.ndarray]:
    """Evaluate points of a grid on folds, those that differ in the nested option by one path.

    Returns
    -------
    on_folds : FoldAnswers
    values : ndarray of shape (n_points, n_folds)
        The measure; NaN where it does not exist.
    """
    groups = _points_of_paths(points, job.nested)
    items = []
    for numbers in groups:
        of_group = [points[number] for number in numbers]
        items.append(_tuned_item(job, procedure_of, of_group))
    work = Tuned.work(job, items, measure)
    on_folds = evaluate(work) if evaluate else work.on_actors(run, statistics)
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
    job: Job, procedure_of: Callable[[Any], Any], points: Sequence[Mapping[str, Any]]
) -> TunedItem:
    """Return the item of points that differ in the nested option: a path to the greatest value."""
    ends: tuple[Any, ...] = ()
    changes = dict(points[0])
    nested = job.nested
    if nested is not None:
        ends = tuple(point.get(nested, getattr(job.options, nested)) for point in points)
        changes[nested] = max(ends, key=lambda end: np.inf if end is None else end)
    return procedure_of(job.options.changed(**changes)), ends
