"""Jobs whose models take passes over the rows: those of other losses, and rankings.

A ranking is learned by squared loss to the normalised gains of the rows of each query. That is a
regression, for which co-moments suffice; NDCG takes one more pass.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", section 3 and appendix F.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import RowBatch
from distfms.errors import DataError, SpecError
from distfms.methods.contract import Answer, Content, Context, FoldAnswers, Stage
from distfms.methods.cross_validation import Fold, FoldWork, Members, evaluate_here
from distfms.methods.landmarks.fit import ERRORS, FitPass, JudgePass, PassProcedure
from distfms.methods.landmarks.job import LandmarkJob
from distfms.methods.landmarks.losses import Margin, OrdinalMargin, loss_of
from distfms.methods.landmarks.mapped_job import EmbeddedReader, query_keys, weighed
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import LandmarkProcedure, Linear
from distfms.methods.passes import Passes, Sums, one_pass, said_rows
from distfms.methods.ranking import NormalisedGains, QueryCounts, RankingScores
from distfms.methods.row_job import CLASSES
from distfms.methods.rows import SummaryReader
from distfms.methods.statistics_job import STATISTICS, Solved, TunedItem
from distfms.stats.base import Folded, below
from distfms.stats.classification import CLASS_SUMS, class_report


class PassLandmarkJob(LandmarkJob):
    """Learning with similarity functions by other losses than the squared one."""

    nested: ClassVar[str | None] = None
    reference_names = ("constant", "linear model on the columns")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.measures = ERRORS if self.has_classes else ERRORS[:-1]
        self.main_measure = "error" if self.options.task == "classification" else "mae"
        #: How classes are told apart, by similarity; names of sums begin with the part of the rows.
        self._told: dict[str, Sums] = {}

    @property
    def has_classes(self) -> bool:
        """Whether the target holds classes or levels."""
        return self.options.task in ("ordinal", "classification")

    def row_values(self) -> int:
        """Return how many numbers a row takes while models are fitted."""
        return len(self.similarities) * self.most_landmarks() + self.n_columns() + 2

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        n_bytes = 8 * self.row_values() * self.inputs.train.n_rows
        own = {"loss": self.options.chosen_loss, "passes": said_rows(n_bytes)}
        return {**super().describe(), **own}

    # --- classes ---

    def target_stages(self) -> Sequence[Stage]:
        """Return the stage that lists the classes, where there are any."""
        return [Stage("classes", self._classes)] if self.has_classes else []

    def _classes(self, context: Context) -> Mapping[str, Content]:
        levels = self.options.levels
        found = self.read_classes(context, f"the task `{self.options.task}`")
        unknown = np.setdiff1d(found["classes"], found["classes"] if levels is None else levels)
        if len(unknown):
            raise DataError(
                f"The target {self.roles.target[0]!r} has the value {unknown[0]:g}, which is not "
                f"among `landmarks.levels` ({', '.join(f'{level:g}' for level in levels or ())})."
            )
        return {CLASSES: {**found, "classes": list(levels or found["classes"])}}

    # --- selection ---

    def procedure(self, context: Context) -> PassProcedure:
        """Return the pure part, whose loss is known once the statistics are."""
        loss = None
        if (context.folder / STATISTICS).exists():
            moments = next(iter(self.statistics(context).members.values())).train()
            deviation = float(np.sqrt(moments.variance()[-1]))
            loss = loss_of(self.options, len(self.classes(context) or ()), deviation)
        return PassProcedure(**vars(super().procedure(context)), loss=loss)

    def _reader(self, context: Context, judges: bool, fold: int | None = None) -> Any:
        plan, maps, classes = self.plan(context), self.maps(context, fold), self.classes(context)
        return lambda *of: EmbeddedReader(self.source(plan, *of), maps, classes, judges)

    def _passes(self, context: Context, fold: int | None = None) -> Passes:
        return Passes(context, self._reader(context, False, fold), self.row_values())

    def search(self, context: Context, procedure: Any, problem: Any) -> Sequence[Any]:
        """Return the models of all similarities, fitted by passes over the training rows."""
        train = {rule.name: self.statistics(context)[rule.name].train() for rule in procedure.rules}
        with self._passes(context) as make_pass:
            whole = procedure.problem({**train, "make_pass": make_pass})
            return super().search(context, procedure, whole)

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``, with how far each fit came."""
        found = super().selection(context, solved)
        fits = found["fits"]
        unfinished = [fit for fit in fits if fit["status"] != "converged"]
        if unfinished:
            worst = max(fit["gap"] for fit in unfinished)
            context.note(
                f"{len(unfinished)} of {len(fits)} fits did not converge; their loss is up to "
                f"{worst:.3g} above its minimum."
            )
        return {**found, "loss": self.options.chosen_loss, "classes": self.class_names(context)}

    def decoding(
        self, context: Context, procedure: Any, models: Sequence[Linear]
    ) -> dict[str, Any]:
        """Return the classes or levels, and how scores become these."""
        found, loss = super().decoding(context, procedure, models), procedure.loss
        found["classes"] = self.class_names(context)
        if isinstance(loss, Margin):
            found["probabilities"] = loss.logistic
        if isinstance(loss, OrdinalMargin):
            found["thresholds"] = [loss.thresholds(model.extra).tolist() for model in models]
        return found

    # --- evaluation ---

    def _keep(self, label: str, sums: Sums) -> None:
        own = {n: a for n, a in sums.arrays.items() if n.rpartition("/")[2] in CLASS_SUMS}
        self._told[label] = self._told.get(label, Sums({})).merge(Sums(own))

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        content = super().metrics(context, solved, validated)
        if self.has_classes:
            parts = {"test": solved.test, "validation": validated, "train": True}
            rows = next(part for part, there in parts.items() if there is not None)
            sums = below(f"{rows}/", self._told[solved.path.label].arrays)
            calibrated = self.options.chosen_loss == "logistic"
            names = self.class_texts(context)
            content["classes"] = class_report(sums, names, rows, calibrated=calibrated)
        return content

    def scores(
        self, context: Context, solved: Solved, path: Any, grid: np.ndarray
    ) -> dict[str, Answer]:
        """Score models by one pass over all rows."""
        procedure, n_folds = solved.procedure, max(self.inputs.section.folds, 1)
        parts = dict.fromkeys(range(n_folds), "train")
        if solved.test is not None:
            parts[n_folds] = "test"
        models = procedure.models(solved.problem, path, ())
        judge = JudgePass(path.label, procedure.loss, models, parts)
        sums = one_pass(context, self._reader(context, True), judge)
        self._keep(path.label, sums)
        judged = {part: below(f"{part}/", sums.arrays) for part in parts.values()}
        return {
            part: procedure.score(solved.problem, path, {"judge": lambda _, own=own: own}, grid)
            for part, own in judged.items()
        }

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate items on folds one after another, by passes over rows that stay in memory."""

        @contextmanager
        def given(fold: Fold) -> Iterator[Fold]:
            opened = nullcontext(everywhere) if everywhere else self._passes(context, fold.number)
            with opened as make_pass:

                def judge(make: Any) -> Mapping[str, np.ndarray]:
                    message: JudgePass = make({fold.number: "validation"})
                    sums = make_pass(message)
                    self._keep(message.label, sums)
                    return below("validation/", sums.arrays)

                def fit(message: FitPass) -> Sums:
                    return make_pass(replace(message, left_out=fold.number))

                train = {**fold.train, "make_pass": fit}
                yield Fold(train, {**fold.held_out, "judge": judge}, fold.number)

        self._told.clear()
        with ExitStack() as stack:  # rows are embedded once, unless folds have their metrics
            everywhere = None if self.learned else stack.enter_context(self._passes(context))
            return evaluate_here(work, self.statistics(context), given)


#: Positions of a ranking that NDCG is reported for.
CUTOFFS = (1, 3, 5, 10)
RANKING_MEASURES = tuple(f"ndcg@{cutoff}" for cutoff in CUTOFFS)
QUERIES = "statistics/queries.npz"
#: Models that rank the rows of a part: labels of similarities, each with weights (M, L).
Models = Sequence[tuple[str, np.ndarray]]


# --- rankings: reading ----------------------------------------------------------------------------


def query_counts(batch: RowBatch, part: int) -> dict[str, QueryCounts]:
    """Count the relevances of a part by query."""
    own = weighed(batch, batch.part_slices[part])
    return {"queries": QueryCounts.from_rows(query_keys(batch, own), batch.target[0, own])}


def ranked(
    maps: Mapping[str, LandmarkMap], models: Sequence[Models], batch: RowBatch, part: int
) -> dict[str, RankingScores]:
    """Rank the rows of a part by its models."""
    own = weighed(batch, batch.part_slices[part])
    features = batch.features[:, own]
    scores = [np.empty((features.shape[1], 0))]
    for label, w in models[part]:
        mapping, k = maps[label], w.shape[1]
        mapping = mapping.restricted(range(k)) if k < mapping.n_landmarks else mapping
        scores.append(mapping.scores(features, w.T, np.zeros(1)))
    joined, keys = np.concatenate(scores, axis=1), query_keys(batch, own)
    return {"ranking": RankingScores.from_rows(keys, batch.target[0, own], joined, CUTOFFS)}


# --- rankings: the job ----------------------------------------------------------------------------


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


class RankingJob(LandmarkJob):
    """Learning to rank with similarity functions."""

    measures = (*LandmarkJob.measures, *RANKING_MEASURES)
    main_measure = "ndcg@5"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.roles.query is None:
            raise SpecError(
                "The task `ranking` ranks the rows of a query: name the column of the query in "
                "`data.query`."
            )

    def target_stages(self) -> Sequence[Stage]:
        """Return the stage that checks relevances."""
        return [Stage("queries", self._queries)]

    def _queries(self, context: Context) -> Mapping[str, Content]:
        counts = self.summary_of_target(context, "queries", QueryCounts, query_counts)
        gains = {"train": counts.train().gains(), "test": counts.test.gains()}
        n_empty = sum(int(np.count_nonzero(own.norms == 0)) for own in gains.values())
        if n_empty:
            n_queries = sum(len(own.norms) for own in gains.values())
            context.note(
                f"{n_empty:,} of {n_queries:,} queries have no relevant row and are left out of "
                "the mean NDCG."
            )
        return {
            QUERIES: {f"{n}/{key}": a for n, own in gains.items() for key, a in vars(own).items()}
        }

    def gains(self, context: Context) -> Sequence[NormalisedGains]:
        """Return the normalised gains of queries of training and held-out rows."""
        arrays = context.read_arrays(QUERIES)
        return [NormalisedGains(**below(f"{n}/", arrays)) for n in ("train", "test")]

    def procedure(self, context: Context) -> LandmarkProcedure:
        """Return the pure part."""
        return RankingProcedure(**vars(super().procedure(context)))

    # --- judging ---

    def _ranked(self, context: Context, models: Sequence[Models]) -> Folded[RankingScores]:
        """Rank all rows by the models of their part, in one pass."""
        plan, rank = self.plan(context), partial(ranked, self.maps(context), models)
        found: Folded[RankingScores] = context.reduce(
            lambda *of: SummaryReader(
                self.source(plan, *of), "ranking", {"ranking": RankingScores}, rank
            ),
            cache=False,
        )["ranking"]
        return found

    def scores(
        self, context: Context, solved: Solved, path: Any, grid: np.ndarray
    ) -> dict[str, Answer]:
        """Score a path on the training rows, and on held-out rows where there are any."""
        found = super().scores(context, solved, path, grid)
        own = [(path.label, found["train"]["models"])]
        ranked = self._ranked(context, [own] * (max(self.inputs.section.folds, 1) + 1))
        judged = {"train": ranked.train().mean, "test": ranked.test.mean}
        return {rows: _with_ndcg(answer, judged[rows]) for rows, answer in found.items()}

    def evaluate_folds(
        self, context: Context, work: FoldWork, saved: str | None = None
    ) -> FoldAnswers:
        """Evaluate every item on every fold: models by statistics, their rankings by one pass."""
        found = super().evaluate_folds(context, work, saved)
        measure = getattr(work.evaluate, "measure", None)
        if measure not in (None, *RANKING_MEASURES):
            return found
        name = "models" if measure is None else "values"
        models: list[Models] = [()] * (work.n_folds + 1)
        for at, fold in enumerate(found.folds):
            own = zip(work.items, found.answers, strict=True)
            models[fold] = [(_label(item), answers[at][name]) for item, answers in own]
        ranked = self._ranked(context, models)
        answers: list[list[Answer]] = [[] for _ in work.items]
        for at, fold in enumerate(found.folds):
            ends = np.cumsum([len(own) for _, own in models[fold]])[:-1]
            for i, mean in enumerate(np.split(ranked.folds[fold].mean, ends, axis=1)):
                answer = _with_ndcg(found.answers[i][at], mean)
                answers[i].append(answer if measure is None else {"values": answer[measure]})
        return replace(found, answers=tuple(map(tuple, answers)))


def _label(item: Any) -> str:
    """Return the similarity of an item: points of a grid, or a rule and its budgets."""
    rule = item.procedure.rules[0] if isinstance(item, TunedItem) else item[0]
    return str(rule.name)


def _with_ndcg(answer: Answer, mean: np.ndarray) -> Answer:
    """Return an answer with NDCG (C, M) of its models in their place."""
    kept = {name: a for name, a in answer.items() if name != "models"}
    return {**kept, **dict(zip(RANKING_MEASURES, mean, strict=True))}


def make_landmark_job(options: LandmarksOptions, inputs: Any, seed: int) -> LandmarkJob:
    """Return the job of the task and loss."""
    if options.task == "ranking":
        return RankingJob(options, inputs, seed)
    form = LandmarkJob if options.chosen_loss == "squared" else PassLandmarkJob
    return form(options, inputs, seed)
