"""Searches on more columns than one process can pair: statistics in slabs, a search on actors.

The matrix of statistics is computed a slab of its rows at a time, each slab a pass over the data
and a step of its own. Actors load the slabs and search. Nobody ever holds the whole matrix: the
driver holds one slab while it is written, and a few numbers for each column otherwise. What comes
after the search concerns the chosen columns only, and is what the method does on these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.engine.memory import COLUMN_BYTES, format_bytes
from distfms.methods.frame import slabs
from distfms.methods.frame.contract import PartialReader, Run
from distfms.methods.frame.slabs import Arrays, Place
from distfms.stats.base import Bundle

#: Memory of the work in one process beyond which it is done in slabs. Fixed, as the result (its
#: curves and baselines) must not depend on the machine.
ONE_PROCESS_BYTES = 4 * 2**30

#: Arrays of a slab in memory while it is computed with missing values.
_MATRICES = 4
#: Copies of a slab that an actor holds, and rows for each attribute that is chosen.
_COPIES, _KEPT_ROWS = 2, 3


@dataclass(frozen=True)
class SlabForm:
    """How a job is cut into slabs, known before data are read.

    Attributes
    ----------
    n_attributes : int
        Attributes to choose from, a column each.
    one_process_bytes, chosen_bytes : int
        What the job on all, and on the chosen attributes, holds in one process.
    n_columns : int
        Columns of the data.
    most_chosen : int
        Most attributes that a search keeps rows of, on an actor.
    left_out : tuple of str
        Baselines that cannot be searched in slabs.
    """

    n_attributes: int
    one_process_bytes: int
    chosen_bytes: int
    n_columns: int
    most_chosen: int
    left_out: tuple[str, ...] = ()

    @property
    def starts(self) -> list[int]:
        """First attribute of each slab, and the number of attributes."""
        return [*range(0, self.n_attributes, slabs.SLAB_COLUMNS), self.n_attributes]

    @property
    def n_slabs(self) -> int:
        """Number of slabs."""
        return len(self.starts) - 1

    @property
    def slab_columns(self) -> int:
        """Columns of the widest slab."""
        return min(self.n_attributes, slabs.SLAB_COLUMNS)

    @property
    def slab_bytes(self) -> int:
        """Size of the largest slab without missing values, in memory and on disk."""
        return 8 * self.slab_columns * (self.n_attributes + 1)

    @property
    def shard_bytes(self) -> int:
        """What an actor holds of one slab, and of what is selected."""
        kept = 8 * self.slab_columns * _KEPT_ROWS * self.most_chosen
        return _COPIES * self.slab_bytes + kept

    @property
    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        return _MATRICES * self.slab_bytes

    @property
    def kept_bytes(self) -> int:
        """Size of the statistics in the run folder."""
        return self.n_slabs * self.slab_bytes + self.chosen_bytes

    @property
    def driver_bytes(self) -> int:
        """What the driver itself holds at most.

        That is one slab with its file and what is copied on the way, or the statistics, paths and
        models of the chosen columns; and what is known of the data's columns.
        """
        held = max((_MATRICES + 4) * self.slab_bytes, self.chosen_bytes)
        return held + COLUMN_BYTES * self.n_columns

    @property
    def _slabs_in_words(self) -> str:
        return "1 slab" if self.n_slabs == 1 else f"{self.n_slabs} slabs"

    def describe(self) -> dict[str, str]:
        """Return what the job will do: label → text."""
        return {
            "search": (
                f"on actors: {self._slabs_in_words} of up to {self.slab_columns:,} columns, "
                f"{format_bytes(self.slab_bytes)} each on disk and up to "
                f"{format_bytes(self.shard_bytes)} on an actor, in as many passes over the data; "
                f"one process would need {format_bytes(self.one_process_bytes)}"
            ),
            "driver": (
                f"up to {format_bytes(self.driver_bytes)} besides the workers: one slab, or the "
                "chosen columns"
            ),
        }

    def note(self) -> str:
        """Return what the user should know once the search is done."""
        left_out = f"; baselines left out: {', '.join(self.left_out)}" if self.left_out else ""
        size = format_bytes(self.one_process_bytes)
        return (
            f"{self.n_attributes:,} attributes were searched in {self._slabs_in_words} on actors "
            f"(one process would have needed {size}). There is no cross-validation{left_out}."
        )


def read_slabs(
    run: Run,
    form: SlabForm,
    reader: Callable[[int, Dataset, bool], PartialReader],
    arrays: Callable[[int, Bundle], tuple[Arrays, Arrays]],
) -> tuple[dict[str, Any], list[Place]]:
    """Read the statistics slab by slab; steps ``statistics 1 of n`` and so on.

    Parameters
    ----------
    run : Run
    form : SlabForm
    reader : callable
        From (number of the slab, dataset, whether all its rows are held out) to the reader.
    arrays : callable
        Checks a slab's statistics: (number, statistics) → what actors need, and what is known of
        each of its columns.

    Returns
    -------
    columns : dict
        What is known of the columns of all slabs, joined; numbers are those of the first slab.
    places : list
        Where `load_arrays` finds the actors' arrays of each slab: its file, or the arrays
        themselves where nothing is kept.
    """
    columns = []
    places = list[Place]()
    for number in range(form.n_slabs):
        make = partial(_read_slab, run, number, reader, arrays)
        name = f"statistics {number + 1} of {form.n_slabs}"
        slab = run.step(name, make)
        columns.append(slab["columns"])
        places.append(run.place(name) or slab["slab"])
        del slab  # before the next slab is read
    joined = {}
    for name, array in columns[0].items():
        if array.ndim:
            joined[name] = np.concatenate([part[name] for part in columns if name in part])
        else:
            joined[name] = array.item()
    return joined, places


def _read_slab(
    run: Run,
    number: int,
    reader: Callable[[int, Dataset, bool], PartialReader],
    arrays: Callable[[int, Bundle], tuple[Arrays, Arrays]],
) -> dict[str, Arrays]:
    # Partials of all slabs together are D × D numbers for each partition: not cached.
    statistics = run.reduce(partial(reader, number), cache=False)
    slab, columns = arrays(number, statistics)
    return {"slab": slab, "columns": columns}
