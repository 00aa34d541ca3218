"""What finds, fits and judges models: on statistics alone, or reading rows for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import Fold, FoldWork
from distfms.methods.frame.judge import Judge, LossSums
from distfms.methods.frame.moments import Solved
from distfms.methods.frame.outcomes import Numbers
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.evaluate import RANKED, kept_prefixes
from distfms.methods.sequence.fits import Key, Search, by_passes, with_trees
from distfms.methods.sequence.judged import LOSS_OF, PrefixScores, losses_of, measures_of, pooled
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import LinearModels, Path, PrefixModels
from distfms.methods.sequence.procedure import FOUND, SequenceProcedure
from distfms.methods.sequence.rules import Rules
from distfms.report.formatting import percent
from distfms.stats.base import HELD_OUT, merge_tree
from distfms.stats.folds import Answer, FoldAnswers

#: Most scores of a row with which a pass tells classes apart by every prefix.
_MOST_DETAILED = 12


#: Number of a fold and of a rule, or point of a grid.
Unit = tuple[int, int]
#: Models to judge, and the folds, or held-out rows (`HELD_OUT`), to judge them on.
Asked = tuple[PrefixModels, Sequence[int]]


@dataclass(frozen=True, eq=False)
class Models:
    """Paths by rule, with their models, and those by (fold, number of the rule) without a fold."""

    paths: Mapping[str, Any]
    of_folds: Mapping[Unit, Any]


@dataclass(frozen=True, eq=False)
class Scores:
    """Measures of prefixes 0..K by (rows, rule), rows being ``train`` or ``test``.

    `folds` are answers by rule and fold, None without cross-validation. `sums` are what the judge
    added up: of kept prefixes by the same keys and by (fold, number of the rule), and of others.
    """

    curves: Mapping[tuple[str, str], Answer]
    folds: FoldAnswers | None
    sums: Mapping[Any, LossSums]


class Learner(ABC):
    """What fits the models of a job, whose options are those that were chosen.

    Attributes
    ----------
    rules : Rules
    procedure : SequenceProcedure
    whole : Fold
        All training rows.
    """

    def __init__(self, run: Run, job: Job, data: SequenceData) -> None:
        self.run, self.job, self.data = run, job, data
        self.rules = Rules.of(job.options, data.form.costs)
        self.procedure = data.procedure(job.options)
        self.whole = Fold(data.statistics.train(), {})

    @abstractmethod
    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate points of a grid; within a step."""

    @abstractmethod
    def search(self) -> dict[str, Any]:
        """Return the paths of all rules by name; within a step."""

    @abstractmethod
    def models(self, orders: Mapping[str, Any]) -> Models:
        """Return the models of these paths, and those without each fold."""

    @abstractmethod
    def scores(self, models: Models, others: Mapping[Any, Asked]) -> Scores:
        """Judge all models, and others in the same pass; within a step."""

    def explained(self, path: Path) -> np.ndarray:
        """Return what the prefixes 0..K of a path explain of the training rows."""
        if isinstance(path, SequencePath):
            measures = path.held_out(self.whole.train["moments"])
            return measures["explained_variance"]
        return path.curve_value

    def solved(self, models: Models) -> Solved:
        """Return paths with the statistics that they are of."""
        return Solved(self.procedure, self.data.statistics, self.whole.train, None, models.paths)

    @property
    def parts(self) -> dict[str, Sequence[int]]:
        """Parts of a batch that are training rows, and held-out ones."""
        return {"train": range(max(self.job.n_folds, 1)), "test": [HELD_OUT]}

    def on_rows(self, paths: Mapping[str, Path]) -> dict[Any, tuple[Path, Sequence[int]]]:
        """Return paths, by (rows, rule), with the parts of a batch that are these rows."""
        return {
            (rows, name): (paths[name], numbers)
            for rows, numbers in self.parts.items()
            for name in paths
        }

    def folds(self) -> list[Fold]:
        """Return the folds without which something can be learned."""
        work = FoldWork.of_job(self.job, None, (), [self.procedure])
        return list(work.folds(self.data.statistics))

    def ordered(self, searches: Mapping[Key, Search]) -> dict[Key, Any]:
        """Return the paths of searches, with linear models."""
        procedure = self.procedure
        gains: Mapping[Any, Any] = self.data.gains
        searches = {
            key: replace(s, procedure=replace(s.procedure, gains=gains.get(s.left_out, ())))
            for key, s in searches.items()
        }
        if procedure.family == "gaussian":
            return {k: s.procedure.search(s.problem, s.rule) for k, s in searches.items()}
        return by_passes(self.run, self.data, procedure.problem_on(self.whole), searches)

    @cached_property
    def judge(self) -> Judge:
        """What measures models on rows.

        Regressions have `NATURAL` measures, too: accuracy where each target has two values, and
        NDCG where rows have queries.
        """
        data = self.data
        outcome = data.outcome
        if outcome is not None:
            # Where a pass judges, it tells all of the prefix that will be chosen by its losses.
            is_detailed = data.memory is None and len(data.output_names) <= _MOST_DETAILED
            in_detail = slice(None) if is_detailed else slice(-1, None)
            return Judge(outcome, in_detail)
        counts = data.statistics["counts"]
        roles = data.form.roles
        values = counts.train().merge(counts.test).values
        threshold = None
        if (np.isfinite(values).sum(axis=1) == 2).all():
            threshold = np.nanmean(values, axis=1)
        is_ranking = roles.query is not None and len(roles.target) == 1
        cutoffs = (RANKED,) if is_ranking else ()
        return Judge(Numbers(threshold=threshold), cutoffs=cutoffs)

    @property
    def needs_rows(self) -> bool:
        """Whether rows have measures that statistics do not tell."""
        outcome = self.judge.outcome
        is_of_two = isinstance(outcome, Numbers) and outcome.threshold is not None
        return is_of_two or bool(self.judge.cutoffs)

    def measured(
        self, paths: Mapping[Key, tuple[Path, Sequence[int]]], others: Mapping[Key, Asked]
    ) -> tuple[dict[Key, Answer], dict[Key, LossSums]]:
        """Measure all prefixes of paths on parts, and judge other models in the same pass."""
        kept = {key: kept_prefixes(path) for key, (path, _) in paths.items()}
        asked = {key: (path.models_at(kept[key]), parts) for key, (path, parts) in paths.items()}
        sums = self.judged({**asked, **others})
        curves = dict[Key, Answer]()
        for key, (path, _) in paths.items():
            measures = self.measures_of(sums[key]).items()
            curves[key] = {name: path.of_prefixes(kept[key], values) for name, values in measures}
        return curves, sums

    def judged_at(
        self, paths: Mapping[Key, tuple[Path, int, Sequence[int]]], sums: Mapping[Key, LossSums]
    ) -> dict[Key, LossSums]:
        """Judge a prefix of each path, of whose kept prefixes these are the sums."""
        if self.judge.in_detail.start is not None:  # the sums do not tell classes apart
            return self.judged({k: (p.models_at([n]), parts) for k, (p, n, parts) in paths.items()})
        at_prefix = {}
        for key, (path, prefix, _) in paths.items():
            place = np.searchsorted(kept_prefixes(path), prefix, side="right") - 1
            at_prefix[key] = sums[key].of_model(int(place))
        return at_prefix

    def judged(self, asked: Mapping[Key, Asked]) -> dict[Key, LossSums]:
        """Judge models on folds, or on held-out rows: in memory, or by one pass."""
        data = self.data
        if not asked or (data.memory is not None and not self.judge.cutoffs):
            return {key: self.judged_here(*question) for key, question in asked.items()}
        questions = {}
        for key, (models, parts) in asked.items():
            scores = PrefixScores(models)
            questions[key] = self.judge.question(scores, parts, scores.n_scores)
        source = partial(data.form.source, data.plan)
        by_part = Judge.by_pass(self.run, source, questions)
        return {key: merge_tree(of_parts.parts) for key, of_parts in by_part.items()}

    def measures_of(self, sums: LossSums) -> dict[str, np.ndarray]:
        """Return the measures of models of prefixes; see `judged.measures_of`."""
        return measures_of(self.judge, sums, self.data.class_shares)

    def pooled(self, answers: FoldAnswers) -> FoldAnswers:
        """Return answers whose shares are those of all folds together; see `judged.pooled`."""
        # Several targets have no common unit, in which their losses could be added up.
        if len(self.data.form.roles.target) > 1:
            return answers
        return pooled(answers, self.procedure.share)

    def judged_here(
        self, models: PrefixModels, parts: Sequence[int], data: SequenceData | None = None
    ) -> LossSums:
        """Judge models on the rows in memory of folds, or on held-out ones; not as rankings."""
        data = data or self.data
        assert data.sample is not None
        scores = PrefixScores(models)
        rows = data.sample.rows_of(data.plan, parts)
        return self.judge.of_rows(scores, rows, scores.n_scores)


class ByStatistics(Learner):
    """Linear regression: paths have all models, and statistics tell their errors."""

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate points of a grid; within a step."""
        return self.pooled(on_statistics(self.run, self.data, work))

    def search(self) -> dict[str, Any]:
        """Return the paths of all rules by name; within a step."""
        problem = self.procedure.problem_on(self.whole)
        return self.procedure.search_all(self.run, problem)

    def models(self, orders: Mapping[str, Any]) -> Models:
        """Return the paths themselves; actors search without each fold where they judge."""
        return Models(orders, {})

    def scores(self, models: Models, others: Mapping[Any, Asked]) -> Scores:
        """Judge all models; within a step. What statistics do not tell, one pass over rows does."""
        solved = self.solved(models)
        procedure = replace(self.procedure, with_models=self.needs_rows)
        folds = solved.on_folds(self.run, self.job, procedure, evaluate=self.on_folds)
        curves = dict[Any, Answer]()
        for rows, members in solved.sets.items():
            for name, path in models.paths.items():
                curves[rows, name] = path.held_out(members["moments"])
        if not self.needs_rows:
            return Scores(curves, folds, self.judged(others))
        asked = dict(others)
        if folds is not None:
            for item, of_folds in enumerate(folds.answers):
                for fold, answer in zip(folds.folds, of_folds, strict=True):
                    asked[fold, item] = (_models_in(answer), [fold])
        measures, sums = self.measured(self.on_rows(models.paths), asked)
        for key, exact in curves.items():
            # What statistics tell too is exact; it comes first.
            curves[key] = {**exact, **measures[key], **exact}
        if folds is not None:
            answers = []
            for item, of_folds in enumerate(folds.answers):
                both = []
                for fold, exact in zip(folds.folds, of_folds, strict=True):
                    both.append({**exact, **self.measures_of(sums[fold, item]), **exact})
                answers.append(tuple(both))
            folds = replace(folds, answers=tuple(answers))
        return Scores(curves, folds, sums)


def _models_in(answer: Answer) -> LinearModels:
    """Return the models that `SequenceProcedure.evaluate` answers with."""
    return LinearModels.from_arrays({n.removeprefix("fold/"): array for n, array in answer.items()})


class ByRows(Learner):
    """Models that rows are read for: generalised linear ones by passes, trees by tasks."""

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate points of a grid; within a step."""
        paths = self._without_folds([(item[0], item[0].rules[0]) for item in work.items])
        asked = {unit: (path, [unit[0]]) for unit, path in paths.items()}
        return self._answers(work, paths, self.measured(asked, {})[0])

    def search(self) -> dict[str, Any]:
        """Return the paths of all rules by name; within a step."""
        return self.ordered(self._of_rules())

    def models(self, orders: Mapping[str, Any]) -> Models:
        """Return the models of these paths, and those without each fold; step ``models``."""
        if self.procedure.model == "linear" and self.job.n_folds < 2:
            return Models(orders, {})
        return self.run.step("models", lambda: self._models(orders))

    def _models(self, orders: Mapping[str, Any]) -> Models:
        paths = self._refitted(self._of_rules(), orders)
        procedure = self.procedure
        if procedure.model != "linear":
            sample = self.data.sample
            if self.data.form.options.model == "auto" and sample and not sample.is_all:
                self.run.note(
                    f"LightGBM was fitted to {percent(sample.share)} of the training rows, drawn "
                    "by their hashes (`sequence.model: auto`). `model: lightgbm` takes all of them."
                )
        asked = []
        for rule in procedure.rules:
            budgets = procedure.grid(paths[rule.name])
            asked.append((procedure.scored_at(budgets), rule))
        return Models(paths, self._without_folds(asked))

    def scores(self, models: Models, others: Mapping[Any, Asked]) -> Scores:
        """Judge all models; within a step."""
        of_folds = {unit: (path, [unit[0]]) for unit, path in models.of_folds.items()}
        curves, sums = self.measured({**self.on_rows(models.paths), **of_folds}, others)

        def answers(work: FoldWork) -> FoldAnswers:
            return self._answers(work, models.of_folds, curves)

        folds = self.solved(models).on_folds(self.run, self.job, evaluate=answers)
        return Scores(curves, folds, sums)

    def losses_at(self, procedure: SequenceProcedure, budgets: Sequence[float]) -> np.ndarray:
        """Return the losses of no group and of what budgets pay for, (1 + n_budgets, n_folds).

        In the order of the first rule, searched and fitted without each fold.
        """
        fitting = procedure.scored_at(np.array(budgets))
        fitting = replace(fitting, ladder=replace(fitting.ladder, to_end=False))
        paths = self._without_folds([(fitting, fitting.rules[0])])
        name = LOSS_OF[fitting.share]
        of_folds = []
        for (fold, _), path in paths.items():
            prefixes = [0, *(path.affordable(budget) for budget in budgets)]
            sums = self.judged_here(path.models_at(prefixes), [fold])
            of_folds.append(self.measures_of(sums))
        return losses_of(of_folds, name)

    # --- paths ---

    def _without_folds(
        self, asked: Sequence[tuple[SequenceProcedure, OrderRule]]
    ) -> dict[Unit, Any]:
        """Return the paths by procedures and rules that are found and fitted without each fold."""
        searches = dict[Unit, Search]()
        for fold in self.folds():
            for number, (procedure, rule) in enumerate(asked):
                problem = procedure.problem_on(fold)
                searches[fold.number, number] = Search(procedure, rule, problem, fold.number)
        return self._refitted(searches, self.ordered(searches))

    def _of_rules(self) -> dict[str, Search]:
        procedure, problem = self.procedure, self.procedure.problem_on(self.whole)
        return {rule.name: Search(procedure, rule, problem) for rule in procedure.rules}

    def _refitted(self, searches: Mapping[Key, Search], paths: Mapping[Key, Any]) -> dict[Key, Any]:
        """Return the paths with the models that are asked for."""
        if self.procedure.model == "linear":
            return dict(paths)
        return with_trees(self.run, self.data, searches, paths)

    # --- folds ---

    def _answers(
        self, work: FoldWork, paths: Mapping[Unit, Path], curves: Mapping[Any, Answer]
    ) -> FoldAnswers:
        """Answer what is asked of paths that were found without folds, from their measures."""
        answers = dict[Unit, Answer]()
        members = self.data.statistics.members.items()
        for unit, path in paths.items():
            held_out = {name: part.folds[unit[0]] for name, part in members}
            fold = Fold({}, {**held_out, FOUND: (path, curves[unit])}, unit[0])
            answers[unit] = work.answer(fold, unit[1])
        return self.pooled(work.arranged(answers))


def on_statistics(run: Run, data: SequenceData, work: FoldWork) -> FoldAnswers:
    """Evaluate on folds of statistics; of rows in memory, in this process."""
    if not data.step:
        return work.here(data.statistics)
    return replace(work, step=data.step).on_actors(run, data.statistics)


def learner_of(run: Run, job: Job, data: SequenceData) -> Learner:
    """Return what fits the models that the options ask for."""
    return (ByStatistics if job.options.by_statistics else ByRows)(run, job, data)
