"""Jobs on more columns than one process can pair: statistics in blocks, a search on actors.

The matrix of statistics is computed a block of its rows at a time, each block a pass over the data
and a stage of its own, and written to the run folder. Actors load the blocks and search. Nobody
ever holds the whole matrix: the driver holds one block while it is written, and a few numbers for
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

#: Memory of the work in one process beyond which ``blocks: auto`` uses blocks. Fixed, as the
#: result (its curves and baselines) must not depend on the machine.
ONE_PROCESS_BYTES = 4 * 2**30

#: Arrays of a block in memory while it is computed with missing values; there are four of them.
MATRICES_WITH_GAPS = 4


def block_file(what: str, number: int) -> str:
    """Name in the run folder of what a block's stage writes."""
    return f"statistics/{what}-{number:05d}.npz"


def block_location(context: Context, what: str, number: int) -> Location:
    """Say where an actor on any node finds a file of a block; see `load_block`."""
    return absolute(context.folder) / block_file(what, number)


def load_block(location: Location) -> dict[str, np.ndarray]:
    """Read a file of a block, on an actor."""
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


class BlocksJob(Job):
    """A job whose statistics are computed and searched in blocks.

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

    # --- what a method says of its blocks ---

    @property
    @abstractmethod
    def n_blocks(self) -> int:
        """Number of blocks."""

    @abstractmethod
    def block_bytes(self) -> int:
        """Project the largest block without missing values, in memory and on disk."""

    @abstractmethod
    def block_columns(self) -> int:
        """Most columns of a block."""

    @abstractmethod
    def shard_bytes(self) -> int:
        """Project what an actor holds of one block."""

    @abstractmethod
    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""

    @abstractmethod
    def one_process_bytes(self) -> int:
        """Project what the whole job would take in one process."""

    @abstractmethod
    def compute_block(self, number: int, context: Context) -> Mapping[str, Content]:
        """Stage of one block: the files to write."""

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
        """Return the stages in order; one for each block, so that a killed run loses one."""
        whole = self.whole.stages()
        names = [stage.name for stage in whole]
        n, first, last = self.n_blocks, names.index("statistics"), names.index("select")
        return [
            *whole[:first],
            *(
                Stage(f"statistics {k + 1} of {n}", partial(self.compute_block, k))
                for k in range(n)
            ),
            Stage("select", self.select),
            Stage("chosen", self.choose),
            *(Stage(name, partial(_run_on_chosen, self, name)) for name in names[last + 1 :]),
        ]

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        n, most = self.n_blocks, format_bytes(self.driver_bytes())
        return {
            **self.whole.describe(),
            "search": (
                f"on actors: {n_blocks_said(n)} of up to {self.block_columns():,} "
                f"{self.columns_are}, {format_bytes(self.block_bytes())} each on disk and up to "
                f"{format_bytes(self.shard_bytes())} on an actor, in as many passes over the data; "
                f"one process would take {format_bytes(self.one_process_bytes())}"
            ),
            "driver": f"up to {most} beside what workers take: one block, or what is chosen",
        }

    def matrices(self) -> int:
        """Arrays of one block's size that a partial statistic may have."""
        return MATRICES_WITH_GAPS

    def driver_bytes(self) -> int:
        """Project what the driver itself holds at most.

        That is one block with its file and what is copied on the way, or the statistics, paths and
        models of the chosen columns; and what is known of the data's columns.
        """
        held = max((self.matrices() + 4) * self.block_bytes(), self.chosen_bytes())
        return held + COLUMN_BYTES * len(self.columns())

    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        return self.matrices() * self.block_bytes()

    def kept_bytes(self) -> int:
        """Size of the statistics in the run folder."""
        return self.n_blocks * self.block_bytes() + self.chosen_bytes()

    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""
        return self.whole.columns()

    def check_tuning(self) -> None:
        """Refuse `tune`: there is no cross-validation in blocks."""
        raise SpecError(
            f"`tune` compares by cross-validation, which `{self.name}` does not do in blocks. Set "
            f"`{self.name}.blocks: never` if the machine has the memory, or leave `tune` out."
        )


def n_blocks_said(n_blocks: int) -> str:
    """Write a number of blocks."""
    return f"{n_blocks} block{'s' if n_blocks > 1 else ''}"


def _run_on_chosen(job: BlocksJob, name: str, context: Context) -> Mapping[str, Content]:
    """Run a stage of the ordinary job on the chosen columns."""
    return run_stage(job.chosen(context), name, context)
