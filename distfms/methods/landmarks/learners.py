"""What fits models and judges them: by co-moments, by passes over the rows, or as rankings.

A ranking is learned by squared loss to the normalised gains of the rows of each query. That is a
regression, for which co-moments suffice; NDCG takes one more pass.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", section 3 and appendix F.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from distfms.methods.frame.contract import Answer, FoldAnswers, Job, Run
from distfms.methods.frame.cross_validation import Fold, FoldWork, evaluate_here, evaluate_on_folds
from distfms.methods.frame.judge import HELD_OUT, Judge, LossSums, Question, judged_by_pass
from distfms.methods.frame.moments import (
    NamedRule,
    Scores,
    Solved,
    TunedItem,
    points_on_folds,
    scores_of,
    search_all,
)
from distfms.methods.frame.outcomes import Numbers
from distfms.methods.frame.passes import Passes, Sums
from distfms.methods.landmarks.fit import FitPass, JudgePass, PassProblem, PassProcedure
from distfms.methods.landmarks.form import CUTOFFS, RANKING_MEASURES
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import (
    EmbeddedQuestion,
    EmbeddedReader,
    LandmarkData,
    Models,
    ScoresWithin,
    split_learned,
)
from distfms.methods.landmarks.similarity import of_source
from distfms.methods.landmarks.squared import (
    COLUMNS,
    DENSE,
    MODELS,
    LandmarkPath,
    LandmarkProcedure,
    squared_measures,
)
from distfms.solve.losses import AllMargins, EpsilonInsensitive, Loss, Margin, OrdinalMargin
from distfms.stats.base import Folded

#: Models of similarities with weights and intercepts (M, L + 1), and the parts they are judged on.
Asked = tuple[Models, Sequence[int]]
#: What models are known by where they are judged: a fold by its number.
Key = TypeVar("Key", bound=Hashable)


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

    #: Option of which a path for a greater value answers the smaller ones.
    nested: ClassVar[str | None] = "keep"
    #: What the models on no and on all columns are called.
    references: ClassVar[tuple[str, str]] = ("mean", "ridge on the columns")

    def procedure(self, options: LandmarksOptions) -> LandmarkProcedure:
        """Return the pure part with some options."""
        n_landmarks = len(self.data.landmarks.arrays["landmarks"])
        if options.landmarks != "auto" and not options.is_precomputed:  # `tune` may try fewer
            n_landmarks = min(n_landmarks, options.landmarks)
        dense = options.task == "sparse" and "all_landmarks" in options.baselines
        others = {DENSE: dense, COLUMNS: COLUMNS in options.baselines}
        labels = [of_source(label, options.landmarks_from) for label in self.labels]
        rules = tuple(NamedRule(n) for n in (*labels, *(n for n in others if others[n])))
        return LandmarkProcedure(rules, options, n_landmarks, self.data.maps)

    def search(self, procedure: Any, problem: Any) -> dict[str, LandmarkPath]:
        """Return the models of all similarities; within a step."""
        return search_all(self.run, procedure, problem)

    def by_moments(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold by co-moments; within a step."""
        return evaluate_on_folds(self.run, self.data.statistics, self.split(work))

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold, to choose; within a step."""
        return self.by_moments(work)

    def judged_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold as its predictions are; within a step."""
        answers = self.by_moments(work)
        return self.on_rows(answers, work, MODELS) if answers.folds else answers

    def on_rows(self, answers: FoldAnswers, work: FoldWork, name: str) -> FoldAnswers:
        """Return answers with measures of the models of this name, from the rows of the folds."""
        labels = [self.label_of(item) for item in work.items]
        asked = dict[int, Asked]()
        for place, fold in enumerate(answers.folds):
            models = [own[place][name] for own in answers.answers]
            asked[fold] = list(zip(labels, models, strict=True)), [fold]
        measured = self.measured(asked)
        found = list[tuple[Answer, ...]]()
        start = 0
        for item in answers.answers:
            end = start + len(item[0][name])
            own = [{n: a[start:end] for n, a in measured[fold].items()} for fold in answers.folds]
            found.append(tuple(judged_answer(*pair) for pair in zip(item, own, strict=True)))
            start = end
        return replace(answers, answers=tuple(found))

    def label_of(self, item: Any) -> str:
        """Return the similarity of an item: points of a grid, or a rule and its budgets."""
        rule = item.procedure.rules[0] if isinstance(item, TunedItem) else item[0]
        return self.labels[0] if rule.name == DENSE else str(rule.name)

    def split(self, work: FoldWork) -> FoldWork:
        """Return work on folds whose metrics were learned without them."""
        return replace(work, split=partial(split_learned, self.data.learned))

    def scores(self, solved: Solved) -> Scores:
        """Score all paths on the training rows, and on held-out rows where there are any."""
        found, parts = scores_of(solved), {"train": [*range(max(self.job.n_folds, 1))]}
        parts["test"] = [-1]
        asked = dict[tuple[str, str], Asked]()
        for name, of_path in found.items():
            for rows, answer in of_path.items():
                models = [(solved.paths[name].label, answer[MODELS])]
                asked[name, rows] = models, parts[rows]
        measured = self.measured(asked)
        return {
            name: {rows: judged_answer(own, measured[name, rows]) for rows, own in of_path.items()}
            for name, of_path in found.items()
        }

    def measured(self, asked: Mapping[Key, Asked]) -> dict[Key, Answer]:
        """Return measures (M,) of models on folds or held-out rows (−1), by one pass."""
        judge = Judge(Numbers(), centre=float(self.data.landmarks.range.mean()))
        # A fold of few rows may have a target that hardly varies: R² is of that of all folds.
        variance = self.data.deviation**2
        return {
            key: squared_measures(sums, variance if isinstance(key, int) else None)
            for key, sums in self.judged(judge, asked).items()
        }

    def judged(self, judge: Judge, asked: Mapping[Key, Asked]) -> dict[Key, LossSums]:
        """Judge models, those of folds under the metrics that these have, by one pass."""
        data = self.data
        limits = np.array([-np.inf, np.inf])
        if data.form.options.clip and data.form.options.task != "ranking":
            limits = data.landmarks.range
        questions = dict[Key, Question]()
        for key, (models, parts) in asked.items():
            maps = data.embedding(key if isinstance(key, int) else None).maps
            scores = ScoresWithin(maps, models, limits)
            questions[key] = Question(scores, judge, parts, scores.n_scores)
        sums = judged_by_pass(self.run, data.source, questions)
        return {key: of_asked(folded, asked[key][1]) for key, folded in sums.items()}

    def points(
        self, points: Sequence[Mapping[str, Any]], measure: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid on folds, R² relative to the variance of all of them."""
        by = "mse" if measure == "r2" else measure
        found, values = points_on_folds(
            self.run, self.job, self.data.statistics, self.procedure, points, by,
            self.nested, self.on_folds,
        )  # fmt: skip
        return found, 1.0 - values / self.data.deviation**2 if measure == "r2" else values


@dataclass(frozen=True, eq=False)
class ByPasses(Squared):
    """Models of other losses, by passes over rows that stay in memory."""

    nested = None
    references = ("constant", "linear model on the columns")

    def procedure(self, options: LandmarksOptions) -> PassProcedure:
        """Return the pure part with some options."""
        n_classes = len(self.data.class_values or ())
        loss = loss_of(options, n_classes, self.data.deviation)
        return PassProcedure(**vars(super().procedure(options)), loss=loss)

    def search(self, procedure: Any, problem: PassProblem) -> dict[str, LandmarkPath]:
        """Return the models of all similarities, fitted by passes over the training rows."""
        with self._passes() as make_pass:
            paths = search_all(self.run, procedure, replace(problem, make_pass=make_pass))
        fits = next(iter(paths.values())).progress.get("fits", ())
        gaps = [fit["gap"] for fit in fits if fit["status"] != "converged"]
        if gaps:
            self.run.note(
                f"{len(gaps)} of {len(fits)} fits did not converge; their loss is up to "
                f"{max(gaps):.3g} above its minimum."
            )
        return paths

    def judged_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold as its predictions are; within a step."""
        return self.on_folds(work)

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate items on folds one after another; within a step."""
        with ExitStack() as stack:  # rows are embedded once, unless folds have their metrics
            is_shared = not self.data.learned
            everywhere = stack.enter_context(self._passes()) if is_shared else None

            @contextmanager
            def given(fold: Fold) -> Iterator[Fold]:
                opened = nullcontext(everywhere) if everywhere else self._passes(fold.number)
                with opened as make_pass:

                    def judge(message: JudgePass) -> Mapping[str, np.ndarray]:
                        return make_pass(replace(message, part=fold.number)).arrays

                    def fit(message: FitPass) -> Sums:
                        return make_pass(replace(message, left_out=fold.number))

                    train = {**fold.train, "make_pass": fit}
                    yield Fold(train, {**fold.held_out, "judge": judge}, fold.number)

            return evaluate_here(self.split(work), self.data.statistics, given)

    def scores(self, solved: Solved) -> Scores:
        """Score all models by one pass over the rows."""
        procedure, embedding = solved.procedure, self.data.embedding()
        parts = {"train": range(max(self.job.n_folds, 1)), "test": [HELD_OUT]}
        questions: dict[tuple[str, str], Any] = {
            (label, rows): EmbeddedQuestion(embedding, procedure.judge(path), parts[rows])
            for label, path in solved.paths.items()
            for rows in solved.sets
        }
        found: dict[str, dict[str, Answer]] = {label: {} for label in solved.paths}
        for (label, rows), folded in judged_by_pass(self.run, self.data.source, questions).items():
            path = solved.paths[label]
            sums = of_asked(folded, parts[rows]).arrays
            members = {"judge": lambda _, sums=sums: sums}
            score = procedure.score(solved.problem, path, members, procedure.grid(path))
            found[label][rows] = score
        return found

    def _passes(self, fold: int | None = None) -> Passes:
        data, embedding = self.data, self.data.embedding(fold)
        return Passes(
            self.run, lambda *of: EmbeddedReader(data.source(*of), embedding), data.form.row_values
        )


# --- rankings -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankingProcedure(LandmarkProcedure):
    """What decides about a ranking, whose models a pass has to judge."""

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure models of several numbers of landmarks; return those that a pass has to judge."""
        return super().tuned_values(fold, ends, MODELS if measure in RANKING_MEASURES else measure)


@dataclass(frozen=True, eq=False)
class ByRanking(Squared):
    """Models that rank the rows of queries."""

    def procedure(self, options: LandmarksOptions) -> LandmarkProcedure:
        """Return the pure part with some options."""
        return RankingProcedure(**vars(super().procedure(options)))

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold: models by statistics, their rankings by one pass."""
        answers = self.by_moments(work)
        measure = getattr(work.evaluate, "measure", None)
        if measure is None:
            return self.on_rows(answers, work, MODELS)
        if measure not in RANKING_MEASURES:
            return answers
        judged = self.on_rows(answers, work, "values")
        values = (tuple({"values": one[measure]} for one in own) for own in judged.answers)
        return replace(judged, answers=tuple(values))

    def judged_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold as its predictions are; within a step."""
        return self.on_folds(work)

    def measured(self, asked: Mapping[Key, Asked]) -> dict[Key, Answer]:
        """Return NDCG (M,) of models on folds or held-out rows (−1), by one pass."""
        judge = Judge(Numbers(), cutoffs=CUTOFFS)
        answers = dict[Key, Answer]()
        for key, sums in self.judged(judge, asked).items():
            assert sums.ranking is not None
            answers[key] = dict(zip(RANKING_MEASURES, sums.ranking.mean, strict=True))
        return answers


def of_asked(folded: Folded[Any], parts: Sequence[int]) -> Any:
    """Return what was added up over the rows that were asked for: held out, or of folds."""
    return folded.test if HELD_OUT in parts else folded.train()


def judged_answer(answer: Answer, measured: Answer) -> Answer:
    """Return an answer with measures of its models in their place."""
    left = (MODELS, "values")
    return {**{name: a for name, a in answer.items() if name not in left}, **measured}


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
