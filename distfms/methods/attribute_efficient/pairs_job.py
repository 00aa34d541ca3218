"""Regression from pairs of attributes as a job: draws, moments of pairs by fold, one solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from distfms.data.partition import Dataset
from distfms.engine.memory import format_bytes
from distfms.methods.attribute_efficient.draws import Draws, drawing_weights
from distfms.methods.attribute_efficient.evaluation import LearningProcedure
from distfms.methods.attribute_efficient.job import AttributeEfficientJob
from distfms.methods.attribute_efficient.lessons import (
    Learned,
    learned_from,
    stream,
    weights_after,
)
from distfms.methods.attribute_efficient.options import MOST_PAIRS, AttributeEfficientOptions
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, LEAST_FOLDS
from distfms.methods.attribute_efficient.read import first_phase_reader, pairs_reader
from distfms.methods.attribute_efficient.sampling import improvement_ratio
from distfms.methods.contract import Content, Context, Inputs, Stage
from distfms.methods.cross_validation import Members
from distfms.methods.rows import SummaryReader
from distfms.methods.statistics_job import NamedRule, Solved, TrainMembers
from distfms.report.formatting import count
from distfms.stats.base import Bundle

#: Weights of the draws.
DRAWS = "statistics/draws.npz"


class PairsProcedure(LearningProcedure):
    """What the pairs of some rows teach."""

    def search(self, problem: Members, rule: NamedRule) -> Learned:
        """Solve from the pairs of all rows, or of those without a fold."""
        return learned_from(problem["pairs"], self.options.penalty)


class PairsJob(AttributeEfficientJob):
    """Ridge or lasso from pairs of observed attributes, applied to one spec."""

    compared_by = "pairs"
    missing_said = "Missing values count as not observed, as if they were missing at random"

    def __init__(self, options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options.model_copy(update={"solver": "pairs"}), inputs, seed)
        if self._plan.n_features > MOST_PAIRS and "repeats" not in options.model_fields_set:
            self.options = self.options.model_copy(update={"repeats": 0})

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        folds = self.inputs.section.folds
        n_parts = folds if folds >= LEAST_FOLDS else INNER_FOLDS * max(folds, 1)
        return 24 * (self._plan.n_features + 1) ** 2 * n_parts + super().statistics_bytes()

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text, from one partition of the data."""
        said = dict(super().describe())
        del said["chains"]
        d, drawn = self._plan.n_features, self.options.attributes_per_example
        what = f"{drawn} of {d} attributes" if drawn else "all that is there"
        said["method"] = f"{self.options.penalty} from pairs of attributes, of {what} in each row"
        if drawn is None:
            del said["attributes"]
        said["moments of pairs"] = f"{format_bytes(self.statistics_bytes())} in memory"
        return said

    # --- statistics ---

    def first_stages(self) -> Sequence[Stage]:
        """Return the stage that finds which attributes are drawn more often."""
        return [Stage("draws", self._draws)] if self.options.draws != "uniform" else []

    def _draws(self, context: Context) -> Mapping[str, Content]:
        if self.options.draws == "moments":
            bundle = context.reduce(partial(AttributeEfficientJob.reader, self, context))
            moments = bundle["moments"].train().second_moment[:-1]
            return {DRAWS: {"weights": drawing_weights(moments)}}
        alike = Draws(self.options.attributes_per_example, stream(self.seed, 0), phases=True)
        bundle = context.reduce(lambda *of: first_phase_reader(self.source(self._plan, *of), alike))
        return {DRAWS: {"weights": weights_after(bundle["observed"].train())}}

    def draws(self, context: Context) -> Draws:
        """Return which attributes are drawn of rows."""
        weights = None
        if self.options.draws != "uniform":
            weights = context.read_arrays(DRAWS)["weights"]
        phases, drawn = self.options.draws == "two_phase", self.options.attributes_per_example
        return Draws(drawn, stream(self.seed, 0), weights, phases)

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of moments, norms, counts and pairs."""
        return pairs_reader(self.source(self._plan, dataset, held_out), self.draws(context))

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> SummaryReader | None:
        """Return the reader of the statistics: what was observed is what partitions differ in."""
        return self.reader(context, dataset, held_out)

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what nothing can be learned from; say what was not observed."""
        train = TrainMembers(statistics)
        self._check_values(train, statistics["counts"].test.n_rows)
        self.tell_counts(context, self._plan, statistics["counts"])
        unseen = int((train["observed"].n_observed[:-1] == 0).sum())
        if unseen:
            context.note(
                f"{count(unseen, 'attribute was', 'attributes were')} not observed in any row, and "
                "the weights are 0."
            )

    # --- learning ---

    def fill(self, members: Members) -> np.ndarray:
        """Return the means of what was observed, shape (d,)."""
        mean: np.ndarray = members["observed"].mean[:-1]
        return mean

    def row_fill(self, members: Members) -> np.ndarray:
        """Keep missing values missing where none are drawn."""
        if self.options.attributes_per_example is None:
            return np.full(self._plan.n_features, np.nan)
        return self.fill(members)

    def procedure(self, context: Context) -> PairsProcedure:
        """Return what is learned, of some rows."""
        return PairsProcedure(self.options, stream(self.seed, 0), self._operations())

    def search(
        self, context: Context, procedure: LearningProcedure, problem: Members
    ) -> Sequence[Learned]:
        """Solve from the pairs of all training rows."""
        return [procedure.search(problem, rule) for rule in procedure.rules]

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        found = super().selection(context, solved)
        for name in ("chains", "bound", "norm", "step"):
            del found[name]
        moments = solved.train["observed"].second_moment[:-1]
        names = self._plan.feature_names
        return {
            **found,
            "draws": self.options.draws,
            "noise_level": solved.path.noise_level,
            "second_moments": dict(zip(names, moments.tolist(), strict=True)),
            "improvement_ratio": improvement_ratio(self.options.penalty, moments),
        }
