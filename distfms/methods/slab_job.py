"""Jobs on more columns than one process can pair: statistics in slabs, a search on actors.

The matrix of statistics is computed a slab of its rows at a time, each slab a pass over the data
and a stage of its own, and written to the run folder. Actors load the slabs and search. Nobody
ever holds the whole matrix: the driver holds one slab while it is written, and a few numbers for
each column otherwise. What comes after the search concerns the chosen columns only, and is the
ordinary job on these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from distfms.data.partition import Dataset
from distfms.engine.memory import COLUMN_BYTES, format_bytes
from distfms.engine.storage import Location
from distfms.methods.contract import (
    Content,
    Context,
    FinishedRun,
    Job,
    Judged,
    PartialReader,
    Stage,
    run_stage,
)
from distfms.methods.row_predictor import judge_rows
from distfms.methods.slabs import Pool, slab_starts
from distfms.methods.statistics_job import PATHS, STATISTICS, StatisticsJob
from distfms.stats.base import Bundle

#: Memory of the work in one process beyond which it is done in slabs. Fixed, as the result (its
#: curves and baselines) must not depend on the machine.
ONE_PROCESS_BYTES = 4 * 2**30

#: Arrays of a slab in memory while it is computed with missing values; there are four of them.
MATRICES_WITH_GAPS = 4

CHOSEN = "statistics/chosen.npz"


def slab_file(what: str, number: int) -> str:
    """Return the name in the run folder of what a slab's stage writes."""
    return f"statistics/{what}-{number:05d}.npz"


class SlabsJob(Job):
    """A job whose statistics are computed and searched in slabs.

    `whole` is the same job for one process, with the rules that can be searched in slabs. Its
    stages before ``statistics`` come first here as well; those after ``select`` are done on the
    chosen columns. `widths` has the columns of each item (attribute, group), as far as they are
    known before data are read, and `starts` the first item of each slab, and the number of items.
    """

    #: What is chosen, in this method.
    items: ClassVar[str]
    widths: Sequence[int]
    n_targets = 1
    matrices = MATRICES_WITH_GAPS

    def __init__(
        self, whole: Any, one_process_bytes: int, left_out: Sequence[str], widths: Sequence[int]
    ) -> None:
        self.whole = without_folds(whole)
        self.options, self.inputs, self.seed = whole.options, self.whole.inputs, whole.seed
        self.one_process_bytes, self.left_out, self.widths = one_process_bytes, left_out, widths
        self.starts, self.judged_by = slab_starts(widths), {"mse": False}

    # --- what a method gives ---

    @abstractmethod
    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab."""

    @abstractmethod
    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""

    @abstractmethod
    def slab_reader(
        self, context: Context, number: int, dataset: Dataset, held_out: bool
    ) -> PartialReader:
        """Return the reader of the statistics of a slab."""

    @abstractmethod
    def slab_arrays(
        self, context: Context, number: int, statistics: Bundle
    ) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
        """Check a slab's statistics; return what actors need, and what is known of its columns.

        Raises
        ------
        DataError
        """

    @abstractmethod
    def outline(self, context: Context) -> Any:
        """Return the selection problem without its matrix, from `known_columns`."""

    @abstractmethod
    def shards(self, outline: Any, locations: Sequence[Location]) -> list[Any]:
        """Return what actors build their states from, the slabs being stored at the locations."""

    @abstractmethod
    def selection(
        self, context: Context, outline: Any, paths: Mapping[str, Any], pool: Pool
    ) -> Mapping[str, Any]:
        """Return the content of ``selection.json``."""

    @abstractmethod
    def chosen(self, outline: Any, paths: Mapping[str, Any]) -> np.ndarray:
        """Return the items that some path has chosen, ascending."""

    @abstractmethod
    def restricted_path(self, outline: Any, path: Any, chosen: np.ndarray) -> Any:
        """Write a path as one on the chosen items."""

    @abstractmethod
    def restricted(self, context: Context, chosen: np.ndarray) -> Any:
        """Return the ordinary job on the chosen items."""

    def search(self, procedure: Any, outline: Any, rule: Any, pool: Pool, shards: list[Any]) -> Any:
        """Return the path of a rule."""
        return procedure.search(outline, rule, pool=pool, slabs=shards)

    def check(self, context: Context, job: Any, statistics: Bundle) -> None:
        """Check and account for the statistics of the chosen items."""

    # --- stages ---

    def stages(self) -> Sequence[Stage]:
        """Return the stages in order; one for each slab, so that a killed run loses one."""
        whole = self.whole.stages()
        names = [stage.name for stage in whole]
        n, first, last = self.n_slabs, names.index("statistics"), names.index("select")
        return [
            *whole[:first],
            *(Stage(f"statistics {k + 1} of {n}", partial(self.compute_slab, k)) for k in range(n)),
            Stage("select", self.select),
            Stage("chosen", self.choose),
            *(Stage(name, partial(self.run_on_chosen, name)) for name in names[last + 1 :]),
        ]

    def compute_slab(self, number: int, context: Context) -> Mapping[str, Content]:
        """Read the statistics of one slab."""
        # Partials of all slabs together are D × D numbers for each partition: not for the cache.
        statistics = context.reduce(partial(self.slab_reader, context, number), cache=False)
        slab, columns = self.slab_arrays(context, number, statistics)
        return {slab_file("slab", number): slab, slab_file("columns", number): columns}

    def known_columns(self, context: Context) -> dict[str, Any]:
        """Join what is known of the columns of all slabs."""
        parts = [context.read_arrays(slab_file("columns", k)) for k in range(self.n_slabs)]
        return {
            name: np.concatenate([part[name] for part in parts if name in part])
            if array.ndim
            else array.item()
            for name, array in parts[0].items()
        }

    def select(self, context: Context) -> Mapping[str, Content]:
        """Search on actors, by every rule."""
        outline, procedure = self.outline(context), self.whole.procedure(context)
        folder = context.folder
        locations = [folder / slab_file("slab", k) for k in range(self.n_slabs)]
        shards = self.shards(outline, locations)
        with context.pool(len(shards), self.shard_bytes()) as pool:
            paths = {
                rule.name: self.search(procedure, outline, rule, pool, shards)
                for rule in procedure.rules
            }
            selection = self.selection(context, outline, paths, pool)
        left_out = f"; baselines left out: {', '.join(self.left_out)}" if self.left_out else ""
        context.note(
            f"{len(self.widths):,} {self.items} were searched in {self._slabs_said} on actors (one "
            f"process would have needed {format_bytes(self.one_process_bytes)}). There is no "
            f"cross-validation{left_out}."
        )
        chosen = self.chosen(outline, paths)
        own = {name: self.restricted_path(outline, path, chosen) for name, path in paths.items()}
        return {
            "selection.json": selection,
            PATHS: procedure.store(outline, own),
            CHOSEN: {"chosen": chosen},
        }

    def choose(self, context: Context) -> Mapping[str, Content]:
        """Read the statistics of the chosen columns."""
        job = self.chosen_job(context)
        statistics = context.reduce(partial(job.reader, context))
        self.check(context, job, statistics)
        return {STATISTICS: statistics.to_arrays()}

    def chosen_job(self, context: Context) -> StatisticsJob:
        """Return the ordinary job on what `select` has chosen."""
        job: StatisticsJob = self.restricted(context, context.read_arrays(CHOSEN)["chosen"])
        return job

    def run_on_chosen(self, name: str, context: Context) -> Mapping[str, Content]:
        """Run a stage of the ordinary job on the chosen columns."""
        return run_stage(self.chosen_job(context), name, context)

    # --- what the driver asks ---

    @property
    def n_slabs(self) -> int:
        """Number of slabs."""
        return len(self.starts) - 1

    @property
    def _slabs_said(self) -> str:
        return f"{self.n_slabs} slab{'s' if self.n_slabs > 1 else ''}"

    def slab_columns(self) -> int:
        """Project the columns of the widest slab."""
        return max(sum(self.widths[first:last]) for first, last in pairwise(self.starts))

    def slab_bytes(self) -> int:
        """Project the largest slab without missing values, in memory and on disk."""
        return 8 * self.slab_columns() * (sum(self.widths) + self.n_targets)

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        most = format_bytes(self.driver_bytes())
        return {
            **self.whole.describe(),
            "search": (
                f"on actors: {self._slabs_said} of up to {self.slab_columns():,} columns, "
                f"{format_bytes(self.slab_bytes())} each on disk and up to "
                f"{format_bytes(self.shard_bytes())} on an actor, in as many passes over the data; "
                f"one process would need {format_bytes(self.one_process_bytes)}"
            ),
            "driver": f"up to {most} besides the workers: one slab, or the chosen columns",
        }

    def driver_bytes(self) -> int:
        """Project what the driver itself holds at most.

        That is one slab with its file and what is copied on the way, or the statistics, paths and
        models of the chosen columns; and what is known of the data's columns.
        """
        held = max((self.matrices + 4) * self.slab_bytes(), self.chosen_bytes())
        return held + COLUMN_BYTES * len(self.columns())

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        return self.matrices * self.slab_bytes()

    def judge(self, context: Context, models: Sequence[FinishedRun]) -> Judged:
        """Score the predictions of models on rows: nobody holds the statistics of all columns."""
        return judge_rows(self.name, self.whole.roles, context, models)

    def kept_bytes(self) -> int:
        """Return the size of the statistics in the run folder."""
        return self.n_slabs * self.slab_bytes() + self.chosen_bytes()

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        return self.whole.columns()


def without_folds(job: Any) -> Any:
    """Return a copy of a job that is not cross-validated."""
    other = copy(job)
    other.inputs = job.inputs.with_folds(0)
    return other
