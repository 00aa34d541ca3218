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
from functools import partial
from typing import Any, ClassVar

import numpy as np

from distfms.engine.memory import COLUMN_BYTES, format_bytes
from distfms.engine.storage import Location, absolute, open_binary
from distfms.errors import SpecError
from distfms.methods.contract import (
    Content,
    Context,
    Job,
    Stage,
    run_stage,
)
from distfms.stats.base import load_npz

#: Memory of the work in one process beyond which ``blocks: auto`` uses slabs. Fixed, as the
#: result (its curves and baselines) must not depend on the machine.
ONE_PROCESS_BYTES = 4 * 2**30

#: Arrays of a slab in memory while it is computed with missing values; there are four of them.
MATRICES_WITH_GAPS = 4


def slab_file(what: str, number: int) -> str:
    """Name in the run folder of what a slab's stage writes."""
    return f"statistics/{what}-{number:05d}.npz"


def slab_location(context: Context, what: str, number: int) -> Location:
    """Say where an actor on any node finds a file of a slab; see `load_slab`."""
    return absolute(context.folder) / slab_file(what, number)


def load_slab(location: Location) -> dict[str, np.ndarray]:
    """Read a file of a slab, on an actor."""
    with open_binary(location) as stream:
        return load_npz(stream)


def join_paths(paths: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Arrays of the paths of several rules as one set of arrays, ``rule/name``."""
    return {
        f"{rule}/{name}": np.asarray(value)
        for rule, arrays in paths.items()
        for name, value in arrays.items()
    }


def split_paths(arrays: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Inverse of `join_paths`."""
    paths: dict[str, dict[str, np.ndarray]] = {}
    for key, array in arrays.items():
        rule, _, name = key.rpartition("/")
        paths.setdefault(rule, {})[name] = array
    return paths


class SlabsJob(Job):
    """A job whose statistics are computed and searched in slabs.

    Parameters
    ----------
    whole : Job
        The same job for one process. Its stages before ``statistics`` come first here as well;
        those after ``select`` are done for the chosen columns.
    """

    #: What a column is called in this method.
    columns_are: ClassVar[str]

    def __init__(self, whole: Job) -> None:
        self.whole = whole
        self.options, self.inputs, self.seed = whole.options, whole.inputs, whole.seed

    # --- what a method says of its slabs ---

    @property
    @abstractmethod
    def n_slabs(self) -> int:
        """Number of slabs."""

    @abstractmethod
    def slab_bytes(self) -> int:
        """Project the largest slab without missing values, in memory and on disk."""

    @abstractmethod
    def slab_columns(self) -> int:
        """Most columns of a slab."""

    @abstractmethod
    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab."""

    @abstractmethod
    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""

    @abstractmethod
    def one_process_bytes(self) -> int:
        """Project what the whole job would take in one process."""

    @abstractmethod
    def compute_slab(self, number: int, context: Context) -> Mapping[str, Content]:
        """Stage of one slab: the files to write."""

    @abstractmethod
    def select(self, context: Context) -> Mapping[str, Content]:
        """Stage of the search."""

    @abstractmethod
    def chosen(self, context: Context) -> Job:
        """Return the ordinary job on the columns that some search has chosen."""

    def choose(self, context: Context) -> Mapping[str, Content]:
        """Stage of the statistics of the chosen columns."""
        return run_stage(self.chosen(context), "statistics", context)

    # --- what the driver asks ---

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
            *(Stage(name, partial(_run_on_chosen, self, name)) for name in names[last + 1 :]),
        ]

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        n, most = self.n_slabs, format_bytes(self.driver_bytes())
        return {
            **self.whole.describe(),
            "search": (
                f"on actors: {n_slabs_said(n)} of up to {self.slab_columns():,} "
                f"{self.columns_are}, {format_bytes(self.slab_bytes())} each on disk and up to "
                f"{format_bytes(self.shard_bytes())} on an actor, in as many passes over the data; "
                f"one process would take {format_bytes(self.one_process_bytes())}"
            ),
            "driver": f"up to {most} beside what workers take: one slab, or what is chosen",
        }

    def matrices(self) -> int:
        """Arrays of one slab's size that a partial statistic may have."""
        return MATRICES_WITH_GAPS

    def driver_bytes(self) -> int:
        """Project what the driver itself holds at most.

        That is one slab with its file and what is copied on the way, or the statistics, paths and
        models of the chosen columns; and what is known of the data's columns.
        """
        held = max((self.matrices() + 4) * self.slab_bytes(), self.chosen_bytes())
        return held + COLUMN_BYTES * len(self.columns())

    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        return self.matrices() * self.slab_bytes()

    def kept_bytes(self) -> int:
        """Size of the statistics in the run folder."""
        return self.n_slabs * self.slab_bytes() + self.chosen_bytes()

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        return self.whole.columns()

    def check_tuning(self) -> None:
        """Refuse `tune`: there is no cross-validation in slabs."""
        raise SpecError(
            f"`tune` compares by cross-validation, which `{self.name}` does not do in slabs. Set "
            f"`{self.name}.blocks: never` if the machine has the memory, or leave `tune` out."
        )


def n_slabs_said(n_slabs: int) -> str:
    """Write a number of slabs."""
    return f"{n_slabs} slab{'s' if n_slabs > 1 else ''}"


def _run_on_chosen(job: SlabsJob, name: str, context: Context) -> Mapping[str, Content]:
    """Run a stage of the ordinary job on the chosen columns."""
    return run_stage(job.chosen(context), name, context)
