"""What is known of a job on landmarks before any row is read, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distfms.data.files.partition import Dataset
from distfms.engine.pool import NO_GAIN, ON_RAY
from distfms.errors import SpecError
from distfms.methods.frame.contract import Inputs, Job
from distfms.methods.frame.passes import Passes
from distfms.methods.frame.ranking import WHOLE
from distfms.methods.frame.read import sample_share
from distfms.methods.frame.row_data import RowForm
from distfms.methods.landmarks.candidates import (
    CONSTANT,
    LANDMARKS_JUDGED,
    LOGISTIC_RIDGES,
    RIDGES,
    WIDTHS,
)
from distfms.methods.landmarks.fit import ERRORS
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import KERNELS, PRECOMPUTED, Similarity
from distfms.methods.landmarks.squared import LandmarkProcedure
from distfms.spec import Grid, parse_section

#: Positions of a ranking that measures count: the first few, or more than there are.
CUTOFFS = (1, 3, 5, 10, WHOLE)
RANKING_MEASURES = (*(f"ndcg@{cutoff}" for cutoff in CUTOFFS[:-1]), "ndcg")
#: Rows that candidates are compared on, and how many numbers these have at most.
COMPARED_ROWS, COMPARED_VALUES = 3072, 2**21
#: Columns up to which metrics are learned where the spec does not ask for them.
MOST_SCALED = 500
#: Rows, and numbers in them, that are kept in memory: all rows where they are no more.
SAMPLED_ROWS, SAMPLED_VALUES = 50_000, 5_000_000
#: Numbers that rows in memory may take once they are embedded for passes, a gibibyte.
EMBEDDED_VALUES = 2**27


def share_of(n_rows: float, n_columns: int, n_needed: float) -> float:
    """Return the share of rows to sample, of which so many are needed."""
    n_spare = int(2 * n_needed)
    most_values = max(SAMPLED_VALUES, n_spare * n_columns)
    return sample_share(n_rows, n_columns, max(SAMPLED_ROWS, n_spare), most_values)


def make_job(options: LandmarksOptions, inputs: Inputs, seed: int) -> Job:
    """Check options against columns; no row is read."""
    if options.task == "auto":
        content = options.model_dump()
        content["task"] = "classification" if inputs.names_classes else "regression"
        if inputs.names_classes and options.loss == "epsilon_insensitive":
            content["loss"] = "hinge"
        options = parse_section(LandmarksOptions, content, "landmarks")
    form = LandmarkForm.of_options(options, inputs, seed)
    _check(form)
    return form.job(
        "landmarks",
        options,
        describe=form.describe,
        judged_by={"accuracy": True, "mse": False} if form.has_classes else {"mse": False},
        task_bytes=form.task_bytes,
        folds_cost=True,
        tuned_by=form.measures,
        nested=None if form.by_passes else "keep",
        for_actors=form.for_actors,
        candidates=form.candidates,
        passes=form.passes,
    )


def _check(form: LandmarkForm) -> None:
    names = {similarity.name for similarity in form.similarities}
    if len(form.roles.target) > 1:
        raise SpecError(
            f"`data.target` names {len(form.roles.target)} columns; landmarks predict one."
        )
    if len(names) > 1 and PRECOMPUTED in names:
        raise SpecError(
            "`landmarks.similarity` lists `precomputed` beside others: the features are either "
            "similarities or values to compare."
        )
    if PRECOMPUTED in names and form.roles.text_features:
        raise SpecError(
            f"With the similarity `precomputed` all features are numbers; "
            f"{form.roles.text_features[0]!r} holds texts. Leave it out with `data.exclude`."
        )
    is_ranking = form.options.task == "ranking"
    if len(form.similarities) > 1 and is_ranking and form.inputs.section.folds < 2:
        raise SpecError(
            "`landmarks.similarity` is a list for cross-validation to choose from by NDCG: set "
            "`data.folds` to at least 2, or name one similarity."
        )
    if is_ranking and form.roles.query is None:
        raise SpecError(
            "The task `ranking` ranks the rows of a query: name the column of the query in "
            "`data.query`."
        )


def check_tried(name: str, tried: Job, first: Job) -> None:
    """Refuse more landmarks than there are: all such are the same point."""
    if name not in ("landmarks", "keep"):
        return
    most = (tried if name == "keep" else first).form.most_landmarks
    number = getattr(tried.options, name) or 0
    if number > most:
        raise SpecError(
            f"`landmarks.{name}` is {number}, but there are {most} "
            "landmarks. Raise their number in the section `landmarks`, or leave it out there."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LandmarkForm(RowForm):
    """Rows that are compared with landmarks; `options` are those of the spec."""

    options: LandmarksOptions

    @classmethod
    def of_options(cls, options: LandmarksOptions, inputs: Inputs, seed: int) -> LandmarkForm:
        """Resolve the roles of columns.

        Raises
        ------
        SpecError, DataError
        """
        rows = RowForm.of(inputs, seed, classes=options.task == "classification")
        content = {**vars(rows), "options": options}
        if options.task in ("regression", "sparse"):
            content["class_option"] = "`landmarks.task: classification` (or `ordinal`)"
        return cls(**content)

    @cached_property
    def similarities(self) -> tuple[Similarity, ...]:
        """Similarities that are compared, as the spec has them."""
        return tuple(section.similarity for section in self.options.listed)

    @property
    def metric_kinds(self) -> tuple[str, ...]:
        """Kinds of metrics that kernels are compared under; none where these are as they are."""
        kind, n_columns = self.options.metric, self.guessed_columns
        if kind != "auto":
            return () if kind == "none" else (kind,)
        return ("none", "diagonal") if n_columns <= MOST_SCALED else ("none",)

    @property
    def learned(self) -> tuple[str, ...]:
        """Labels of the similarities whose metric, width and ridge are learned from the target."""
        learns = self.options.metric != "none" and self.options.task != "ranking"
        kernels = [similarity for similarity in self.similarities if similarity.name in KERNELS]
        return tuple(kernel.label for kernel in kernels) if learns else ()

    @property
    def is_ranking(self) -> bool:
        """Whether the rows of queries are ranked."""
        return self.options.task == "ranking"

    @property
    def has_classes(self) -> bool:
        """Whether the target holds classes or levels."""
        return self.options.task in ("ordinal", "classification")

    @property
    def by_passes(self) -> bool:
        """Whether models are fitted by passes over the rows."""
        return self.options.chosen_loss != "squared"

    @property
    def measures(self) -> tuple[str, ...]:
        """What models are measured by."""
        if self.by_passes:
            return ERRORS if self.has_classes else ERRORS[:-1]
        return ("mse", *(RANKING_MEASURES if self.options.task == "ranking" else ()))

    @property
    def main_measure(self) -> str:
        """That by which similarities are compared."""
        tasks = {"ranking": "ndcg@5", "classification": "error"}
        return tasks.get(self.options.task, "mae" if self.by_passes else "mse")

    # --- sizes ---

    @property
    def most_landmarks(self) -> int:
        """Most landmarks that there are, before the rows are known."""
        if self.options.is_precomputed:
            return len(self.roles.features)
        pool = self.inputs.unlabelled or self.inputs.train
        most = self.options.most_landmarks(self.inputs.train.n_rows, self.guessed_columns)
        return most if self.options.landmarks == most else min(most, pool.n_rows)

    @property
    def n_similarities(self) -> int:
        """Number of similarities that rows are read with, after one of `auto` was chosen."""
        return 1 if self.options.is_auto else len(self.similarities)

    @property
    def compared_rows(self) -> int:
        """Most rows that candidates are compared on."""
        return max(min(COMPARED_ROWS, COMPARED_VALUES // max(self.guessed_columns, 1)), 64)

    def sample_share(self, dataset: Dataset, n_columns: int) -> float:
        """Return the share of rows of so many columns that are sampled."""
        trained = max(1.0 - self.inputs.section.test, 0.1)
        return share_of(dataset.n_rows, n_columns, self.most_landmarks / trained)

    def is_in_memory(self, n_columns: int) -> bool:
        """Return whether all rows are kept in memory, and count alike whatever their age."""
        shares = [self.sample_share(dataset, n_columns) for dataset in self.inputs.datasets]
        has_order = not self.is_ranking or self.roles.id is None  # of the rows of queries
        n_embedded = self.row_values * self.inputs.train.n_rows if self.by_passes else 0
        is_small = min(shares) >= 1.0 and n_embedded <= EMBEDDED_VALUES
        return is_small and has_order and not self.inputs.by_age

    @property
    def row_values(self) -> int:
        """How many numbers a row takes while models are fitted by passes."""
        return self.n_similarities * self.most_landmarks + 2

    @property
    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        n_folds = self.inputs.section.folds
        n_parts = self.inputs.n_parts
        n_matrices = n_parts * self.n_similarities
        if n_folds > 1 and self.learned:
            n_matrices += (n_folds + 1) * self.n_similarities  # two parts for each fold
        moments = n_matrices * (self.most_landmarks + 1) ** 2
        sample = 0.0
        for dataset in self.inputs.datasets:
            share = self.sample_share(dataset, self.guessed_columns)
            sample += share * dataset.n_rows * (self.guessed_columns + 4)
        return 8 * max(moments, int(sample))

    @property
    def task_bytes(self) -> int:
        """What comparing candidates takes: copies of similarities, and of rows."""
        n_rows = min(self.compared_rows, self.inputs.train.n_rows)
        n_values = 7 * LANDMARKS_JUDGED + 4 * self.guessed_columns
        return 8 * n_rows * n_values

    def for_actors(self, n_tried: int = 1) -> dict[str, float]:
        """Return what actors may do; see `Job.for_actors`."""
        embeddings = {"embeddings": ON_RAY}
        if self.is_in_memory(self.guessed_columns):
            embeddings = {}
        if self.by_passes:
            if embeddings:
                n_values = self.row_values * self.inputs.train.n_rows
                embeddings["passes"] = Passes.n_operations(n_values)
            return embeddings
        procedure = LandmarkProcedure((), self.options, self.most_landmarks)
        candidates = {"candidates": NO_GAIN} if procedure.is_greedy else {}
        folds = self.inputs.on_folds(max(self.n_similarities, n_tried) * procedure.n_operations())
        return {**embeddings, **candidates, **folds}

    def candidates(self, options: LandmarksOptions) -> list[Grid]:
        """Return what folds choose from; see `Job.candidates`."""
        if options.task == "ranking":
            return []
        ridges = LOGISTIC_RIDGES if self.has_classes else RIDGES
        ends = f"{ridges[0]:g} to {ridges[-1]:g}"
        grids: list[Grid] = [{"similarity": (CONSTANT,)}]
        for similarity in self.similarities:
            grid: dict[str, Any] = {"similarity": (similarity.label,)}
            if similarity.name in KERNELS and self.metric_kinds:
                grid["metric"] = self.metric_kinds
                if dict(similarity.parameters).get("sigma") is None:
                    grid["width"] = WIDTHS
            grids.append(grid | {f"ridge ({len(ridges)} values)": (ends,)})
        return grids

    @property
    def passes(self) -> tuple[int, int | None]:
        """Fewest and most passes over the rows; see `Job.passes`."""
        fewest = self.n_first_passes + 1
        if self.is_in_memory(self.guessed_columns):
            return fewest, fewest
        return fewest + 2, None if self.by_passes else fewest + 4

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        options, n = self.options, self.most_landmarks
        landmarks = f"{n:,}" + " at most" * options.counts
        if options.task == "sparse" or options.keep:
            landmarks += f", of which {options.n_kept(n):,} are kept"
        lines = {
            "method": f"landmarks, {options.task}, {options.chosen_loss} loss",
            "target": self.roles.target[0],
            **self.first_values(),
            "similarity": "; ".join(similarity.label for similarity in self.similarities),
            "metric": options.metric if self.learned else "none",
            "landmarks": landmarks,
        }
        if self.by_passes:
            lines["rows"] = Passes.describe(8 * self.row_values * self.inputs.train.n_rows)
        return lines
