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
from distfms.methods.frame.cross_validation import (
    Fold,
    FoldWork,
    Members,
    evaluate_here,
    evaluate_on_folds,
)
from distfms.methods.frame.judging import HELD_OUT, TRAIN, Asked, judged, one_part
from distfms.methods.frame.moments import (
    NamedRule,
    Scores,
    Solved,
    TunedItem,
    fold_work,
    points_on_folds,
    scored,
    scores_of,
    search_all,
)
from distfms.methods.frame.passes import Passes, Sums
from distfms.methods.frame.tuning import Choice, changed_options, choose
from distfms.methods.landmarks.fit import FitPass, JudgePass, PassProblem, PassProcedure
from distfms.methods.landmarks.form import RANKING_MEASURES
from distfms.methods.landmarks.losses import loss_of
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import (
    EmbeddedReader,
    LandmarkData,
    Models,
    ranked,
    split_learned,
)
from distfms.methods.landmarks.similarity import of_source
from distfms.methods.landmarks.squared import (
    COLUMNS,
    DENSE,
    MEASURES,
    LandmarkPath,
    LandmarkProcedure,
)

#: What models are known by where they are judged.
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

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold; within a step."""
        return evaluate_on_folds(self.run, self.data.statistics, self.split(work))

    def split(self, work: FoldWork) -> FoldWork:
        """Return work on folds whose metrics were learned without them."""
        return replace(work, split=partial(split_learned, self.data.form.learned))

    def scores(self, solved: Solved) -> Scores:
        """Score all paths on the training rows, and on held-out rows where there are any."""
        return scores_of(solved)

    def with_first(self, best: str) -> Squared:
        """Return the learner with another similarity first."""
        return replace(self, labels=tuple(sorted(self.labels, key=lambda label: label != best)))

    def compared(self, options: LandmarksOptions) -> tuple[FoldAnswers, Choice]:
        """Compare the similarities on folds with some options; within a step.

        By ridges of their own, so that a grid of ridges has one answer.
        """
        measure = self.data.form.main_measure
        procedure = self.procedure(changed_options(options, {"ridge": None}))
        ends = np.array([float(procedure.keep)])
        items = [(rule, ends) for rule in procedure.rules[: len(self.labels)]]
        work = fold_work(self.job, partial(scored, procedure), items, [procedure] * len(items))
        found = self.on_folds(work)
        values = np.array([[answer[measure][0] for answer in own] for own in found.answers])
        return found, choose(values, found.weight, "best", MEASURES[measure])

    def points(
        self, points: Sequence[Mapping[str, Any]], measure: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid on folds, each by the similarity that is best there."""
        several, best = len(self.labels) > 1, dict[str, str]()

        def procedure(options: LandmarksOptions) -> LandmarkProcedure:
            key = options.model_dump_json(exclude={"ridge"})
            if several and key not in best:
                best[key] = self.labels[self.compared(options)[1].best]
            return (self.with_first(best[key]) if several else self).procedure(options)

        return points_on_folds(
            self.run, self.job, self.data.statistics, procedure, points, measure,
            None if several else self.nested, self.on_folds,
        )  # fmt: skip


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

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate items on folds one after another; within a step."""
        with ExitStack() as stack:  # rows are embedded once, unless folds have their metrics
            is_shared = not self.data.form.learned
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
        data, procedure, embedding = self.data, solved.procedure, self.data.embedding()
        parts = {"train": [TRAIN], "test": [HELD_OUT]}
        asked = {
            (label, rows): (partial(embedding.judge, procedure.judge(path)), parts[rows])
            for label, path in solved.paths.items()
            for rows in solved.sets
        }
        found: dict[str, dict[str, Answer]] = {label: {} for label in solved.paths}
        for (label, rows), own in judged(self.run, data.source, asked).items():
            path, sums = solved.paths[label], own["errors"].arrays
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
    """What decides about a ranking; models are among its answers, as a pass has to judge them."""

    def score(
        self, problem: Any, path: Any, held_out: Members, budgets: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Score models of so many landmarks; `models` (n, L) are their weights."""
        sizes = np.minimum(budgets, len(path.order)).astype(int).tolist()
        found = super().score(problem, path, held_out, budgets)
        return {**found, "models": self.weights(problem, path, sizes)}

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure models of several numbers of landmarks; return those that a pass has to judge."""
        return super().tuned_values(
            fold, ends, "models" if measure in RANKING_MEASURES else measure
        )


@dataclass(frozen=True, eq=False)
class ByRanking(Squared):
    """Models that rank the rows of queries."""

    def procedure(self, options: LandmarksOptions) -> LandmarkProcedure:
        """Return the pure part with some options."""
        return RankingProcedure(**vars(super().procedure(options)))

    def scores(self, solved: Solved) -> Scores:
        """Score all paths on the training rows, and on held-out rows where there are any."""
        found, n_folds = super().scores(solved), max(self.job.n_folds, 1)
        parts = {"train": [*range(n_folds)], "test": [-1]}
        ndcg = self._ranked(
            {
                (label, rows): ([(label, answer["models"])], parts[rows])
                for label, own in found.items()
                for rows, answer in own.items()
            }
        )
        return {
            label: {rows: _with_ndcg(answer, ndcg[label, rows]) for rows, answer in own.items()}
            for label, own in found.items()
        }

    def on_folds(self, work: FoldWork) -> FoldAnswers:
        """Evaluate every item on every fold: models by statistics, their rankings by one pass."""
        found = super().on_folds(work)
        measure = getattr(work.evaluate, "measure", None)
        if measure not in (None, *RANKING_MEASURES):
            return found
        name = "models" if measure is None else "values"
        models = dict[int, Models]()
        for at, fold in enumerate(found.folds):
            own = zip(work.items, found.answers, strict=True)
            models[fold] = [(_label(item), answers[at][name]) for item, answers in own]
        ndcg = self._ranked({fold: (own, [fold]) for fold, own in models.items()})
        answers: list[list[Answer]] = [[] for _ in work.items]
        for at, fold in enumerate(found.folds):
            ends = np.cumsum([len(own) for _, own in models[fold]])[:-1]
            for i, mean in enumerate(np.split(ndcg[fold], ends, axis=1)):
                answer = _with_ndcg(found.answers[i][at], mean)
                answers[i].append(answer if measure is None else {"values": answer[measure]})
        return replace(found, answers=tuple(map(tuple, answers)))

    def _ranked(self, asked: Mapping[Key, tuple[Models, Sequence[int]]]) -> dict[Key, np.ndarray]:
        """Return NDCG (C, M) of models on folds or held-out rows (−1), by one pass."""
        data, rank = self.data, partial(ranked, self.data.embedding().maps)
        wanted: dict[Key, Asked] = {
            key: (partial(rank, models), [one_part(number) for number in parts])
            for key, (models, parts) in asked.items()
        }
        found = judged(self.run, data.source, wanted)
        return {key: own["ranking"].mean for key, own in found.items()}


def _label(item: Any) -> str:
    """Return the similarity of an item: points of a grid, or a rule and its budgets."""
    rule = item.procedure.rules[0] if isinstance(item, TunedItem) else item[0]
    return str(rule.name)


def _with_ndcg(answer: Answer, mean: np.ndarray) -> Answer:
    """Return an answer with NDCG (C, M) of its models in their place."""
    kept = {name: a for name, a in answer.items() if name != "models"}
    return {**kept, **dict(zip(RANKING_MEASURES, mean, strict=True))}
