"""What fits models and judges them: by co-moments, by passes over the rows, or as rankings.

A ranking is learned by squared loss to the normalised gains of the rows of each query. That is a
regression, for which co-moments suffice; NDCG takes the rows.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", section 3 and appendix F.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import n_processors
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import Fold, FoldWork
from distfms.methods.frame.judge import Judge, LossSums, judged_in_memory
from distfms.methods.frame.moments import NamedRule, Solved, Tuned
from distfms.methods.frame.outcomes import Margins, Numbers
from distfms.methods.frame.passes import Passes
from distfms.methods.landmarks.fit import FitPass, PassProblem, PassProcedure
from distfms.methods.landmarks.form import CUTOFFS, RANKING_MEASURES
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import LandmarkData
from distfms.methods.landmarks.read_similarities import EmbeddedReader, LinearScores, split_learned
from distfms.methods.landmarks.squared import MODELS, LandmarkPath, LandmarkProcedure
from distfms.solve.losses import AllMargins, EpsilonInsensitive, Loss, Margin, OrdinalMargin
from distfms.stats.base import HELD_OUT, explained, merge_tree
from distfms.stats.folds import Answer, FoldAnswers
from distfms.stats.sums import Sums

#: Sets of rows that are judged as a whole.
TRAIN, TEST = "train", "test"

MakePass = Callable[[Any], Sums]


@dataclass(frozen=True, eq=False)
class Asked:
    """Models on a similarity, and the rows that they are judged on: a fold, or a set of rows.

    Attributes
    ----------
    procedure : LandmarkProcedure
        That they were fitted by.
    label : str
    models : sequence of Linear, or ndarray
    rows : int or str
    """

    procedure: Any
    label: str
    models: Any
    rows: int | str


#: Models to judge, by rule (or number of an item of work) and rows.
Key = tuple[Any, int | str]


@dataclass(frozen=True, eq=False)
class Judged:
    """What the judge says of models by rule and rows: measures in place of them, and its sums."""

    answers: Mapping[Key, Answer]
    sums: Mapping[Key, LossSums]

    def on_sets(self) -> dict[str, dict[str, Answer]]:
        """Return measures by rule and set of rows."""
        by_rule: dict[str, dict[str, Answer]] = {}
        for (name, rows), answer in self.answers.items():
            if isinstance(rows, str):
                by_rule.setdefault(name, {})[rows] = answer
        return by_rule

    def on_folds(self, validated: FoldAnswers, names: Sequence[str]) -> FoldAnswers:
        """Return the answers of folds with measures in place of the models of rules."""
        rules = []
        for name in names:
            of_rule = [self.answers[name, fold] for fold in validated.folds]
            rules.append(tuple(of_rule))
        return replace(validated, answers=tuple(rules))

    def of_rule(self, name: str, rows: Sequence[int | str]) -> LossSums:
        """Return the sums of a rule over some folds, or a set of rows."""
        return merge_tree([self.sums[name, part] for part in rows])


@dataclass(frozen=True, eq=False)
class Squared:
    """Models of squared loss, by co-moments.

    Attributes
    ----------
    run : Run
    job : Job
    data : LandmarkData
    labels : tuple of str
        Of the similarities, the one of the model first.
    """

    run: Run
    job: Job
    data: LandmarkData
    labels: tuple[str, ...]

    def procedure(self, options: LandmarksOptions) -> Any:
        """Return the pure part with some options."""
        n_landmarks = len(self.data.landmarks.arrays["landmarks"])
        if options.landmarks != "auto" and not options.is_precomputed:  # `tune` may try fewer
            n_landmarks = min(n_landmarks, options.landmarks)
        rules = tuple(NamedRule(label) for label in self.labels)
        return LandmarkProcedure(rules, options, n_landmarks, self.data.maps)

    def search(self, procedure: Any, problem: Any) -> dict[str, LandmarkPath]:
        """Return the models of all similarities; within a step."""
        return procedure.search_all(self.run, problem)

    # --- folds ---

    def fitted_on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item without every fold: models, and what co-moments tell of them."""
        split = partial(split_learned, self.data.learned)
        return replace(work, split=split).on_actors(self.run, self.data.statistics)

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold, to choose; within a step."""
        return self.fitted_on_folds(work)

    def with_measures(self, answers: FoldAnswers, work: FoldWork) -> FoldAnswers:
        """Return answers with what rows of the folds say of their models in place of these."""
        tuned = work.evaluate if isinstance(work.evaluate, Tuned) else None
        asked = dict[Key, Asked]()
        for number, item in enumerate(work.items):
            first, _ = item  # the procedure of an option set, or a rule and its budgets
            procedure = first if tuned else None
            label = first.rules[0].name if tuned else first.name
            for fold, answer in zip(answers.folds, answers.answers[number], strict=True):
                models = answer["values" if tuned else MODELS]
                asked[number, fold] = Asked(procedure, label, models, fold)
        measures = self.measures_of(self.judged(asked))
        items = []
        for number, of_item in enumerate(answers.answers):
            judged = [measures[number, fold] for fold in answers.folds]
            if tuned:
                judged = [{"values": measured[tuned.measure]} for measured in judged]
            items.append(tuple(map(with_measured, of_item, judged)))
        return replace(answers, answers=tuple(items))

    # --- judging ---

    def judged_everywhere(self, solved: Solved, validated: FoldAnswers | None) -> Judged:
        """Judge the models of all paths on sets of rows, and those of folds, together."""
        answers = dict[Key, Answer]()
        for name, of_path in solved.scores().items():
            for rows, answer in of_path.items():
                answers[name, rows] = answer
        if validated is not None:
            for name, of_rule in zip(solved.paths, validated.answers, strict=True):
                answers |= dict(zip(product([name], validated.folds), of_rule, strict=True))
        asked = dict[Key, Asked]()
        for key, answer in answers.items():
            label = solved.paths[key[0]].label
            asked[key] = Asked(solved.procedure, label, answer[MODELS], key[1])
        sums = self.judged(asked)
        measures = self.measures_of(sums)
        measured = {key: with_measured(answers[key], measures[key]) for key in answers}
        return Judged(measured, sums)

    def judged(self, asked: Mapping[Key, Asked]) -> dict[Key, LossSums]:
        """Judge models, those of folds under the metrics that these have: in one pass at most."""
        data = self.data
        parts_of = {TRAIN: range(max(self.job.n_folds, 1)), TEST: [HELD_OUT]}
        questions = {}
        for key, of_key in asked.items():
            fold: int | None = None
            parts: Sequence[int]
            if isinstance(of_key.rows, int):
                fold = of_key.rows
                parts = [fold]
            else:
                parts = parts_of[of_key.rows]
            mapping = data.map_of(of_key.label, fold)
            scores = LinearScores(mapping, of_key.models, self.limits)
            questions[key] = self.judge(of_key).question(scores, parts, scores.n_scores)
        if data.memory is not None:
            judged = judged_in_memory(self.run, data.memory, questions)
        else:
            judged = Judge.by_pass(self.run, data.source, questions)
        return {key: merge_tree(folded.parts) for key, folded in judged.items()}

    @property
    def limits(self) -> Sequence[float]:
        """Least and greatest score."""
        if self.data.form.options.clip and not self.data.form.is_ranking:
            return self.data.landmarks.range.tolist()
        return (-np.inf, np.inf)

    def judge(self, asked: Asked) -> Judge:
        """Return what measures models on rows."""
        return Judge(Numbers(), centre=float(self.data.landmarks.range.mean()))

    def measures_of(self, judged: Mapping[Key, LossSums]) -> dict[Key, Answer]:
        """Return measures of models from what the judge has added up."""
        measures = dict[Key, Answer]()
        for key, sums in judged.items():
            mse = sums["mse"] / sums.weight
            # A fold of few rows may have a target that hardly varies: R² is of that of all folds.
            is_fold = isinstance(key[1], int)
            variance = self.data.deviation**2 if is_fold else float(sums.variance[0])
            measures[key] = {"mse": mse, "r2": explained(mse, variance)}
        return measures


def with_measured(answer: Answer, measures: Answer) -> Answer:
    """Return an answer with measures of its models in their place."""
    kept = {name: array for name, array in answer.items() if name not in (MODELS, "values")}
    return {**kept, **measures}


# --- other losses ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ByPasses(Squared):
    """Models of other losses, by passes over rows that stay in memory."""

    def procedure(self, options: LandmarksOptions) -> PassProcedure:
        """Return the pure part with some options."""
        n_classes = len(self.data.class_values or ())
        loss = loss_of(options, n_classes, self.data.deviation)
        return PassProcedure(super().procedure(options), loss)

    def search(self, procedure: Any, problem: PassProblem) -> dict[str, LandmarkPath]:
        """Return the models of all similarities, fitted by passes over the training rows."""
        with self._passes() as make_pass:
            paths = procedure.search_all(self.run, replace(problem, make_pass=make_pass))
        fits = next(iter(paths.values())).progress.get("fits", ())
        gaps = [fit["gap"] for fit in fits if fit["status"] != "converged"]
        if gaps:
            self.run.note(
                f"{len(gaps)} of {len(fits)} fits did not converge; their loss is up to "
                f"{max(gaps):.3g} above its minimum."
            )
        return paths

    def fitted_on_folds(self, work: FoldWork) -> FoldAnswers:
        """Fit every item without every fold, one after another."""
        split = partial(split_learned, self.data.learned)

        @contextmanager
        def with_pass(fold: Fold) -> Iterator[Fold]:
            with self._passes(fold.number) as make_pass:

                def fit(message: FitPass) -> Sums:
                    return make_pass(replace(message, left_out=fold.number))

                yield Fold({**fold.train, "make_pass": fit}, fold.held_out, fold.number)

        return replace(work, split=split).here(self.data.statistics, with_pass)

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold, to choose; within a step."""
        return self.with_measures(self.fitted_on_folds(work), work)

    @property
    def limits(self) -> Sequence[float]:
        """Least and greatest score."""
        if self.data.form.has_classes:
            return (-np.inf, np.inf)
        return super().limits

    def judge(self, asked: Asked) -> Judge:
        """Return what measures models on rows."""
        extras = [model.extra for model in asked.models]
        return Judge(Margins(asked.procedure.loss, extras, self.data.class_values))

    def measures_of(self, judged: Mapping[Key, LossSums]) -> dict[Key, Answer]:
        """Return measures of models from what the judge has added up."""
        judge = Judge(Numbers())
        return {key: judge.measures(sums) for key, sums in judged.items()}

    @contextmanager
    def _passes(self, fold: int | None = None) -> Iterator[MakePass]:
        """Make passes over the training rows: in this process, where these are in memory."""
        data = self.data
        embedding = data.embedding(fold)
        if data.memory is None:

            def reader(*of: Any) -> EmbeddedReader:
                return EmbeddedReader(data.source(*of), embedding)

            with Passes(self.run, reader, data.form.row_values) as make_pass:
                yield make_pass
            return
        with single_threaded_blas(), ThreadPoolExecutor(n_processors()) as threads:
            *train, _ = data.memory
            parts = [part for part, rows in enumerate(train) if rows.n_rows]
            embedded = list(threads.map(lambda part: embedding(train[part], part), parts))
            rows_of_parts = [[rows] for rows in embedded]
            yield lambda message: merge_tree(threads.map(message.sums, rows_of_parts))


# --- rankings -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ByRanking(Squared):
    """Models that rank the rows of queries."""

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold: models by statistics, their rankings by rows."""
        answers = self.fitted_on_folds(work)
        if isinstance(work.evaluate, Tuned) and work.evaluate.measure not in RANKING_MEASURES:
            return answers
        return self.with_measures(answers, work)

    def judge(self, asked: Asked) -> Judge:
        """Return what measures models on rows."""
        return Judge(Numbers(), cutoffs=CUTOFFS)

    def measures_of(self, judged: Mapping[Key, LossSums]) -> dict[Key, Answer]:
        """Return NDCG of models from what the judge has added up."""
        measures = dict[Key, Answer]()
        for key, sums in judged.items():
            assert sums.ranking is not None
            measures[key] = dict(zip(RANKING_MEASURES, sums.ranking.mean, strict=True))
        return measures


def loss_of(options: LandmarksOptions, n_classes: int, deviation: float) -> Loss:
    """Return the loss that options ask for, of a target with this standard deviation.

    `n_classes` are its classes or levels, 0 where it is a number.
    """
    if not n_classes:
        epsilon = 0.1 * deviation if options.epsilon is None else options.epsilon
        width = options.smoothing * (deviation or 1.0)
        return EpsilonInsensitive(width, epsilon, has_intercept=options.intercept)
    if options.task == "ordinal":
        kind = AllMargins if options.loss == "all_margins" else OrdinalMargin
        return kind(
            options.smoothing,
            n_classes,
            options.gamma,
            options.spacing,
            has_intercept=options.intercept,
        )
    is_logistic = options.chosen_loss == "logistic"
    return Margin(options.smoothing, n_classes, is_logistic, has_intercept=options.intercept)
