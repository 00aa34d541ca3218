"""How a search on more attributes than one process can pair is cut into slabs.

A search keeps a state for each slab, a run of attributes that is cut the same way whoever holds it.
Each step tells all slabs what was chosen last, in a few numbers for each chosen attribute, and each
slab answers with its best candidate, among which the driver picks. As each slab does the same
operations on an actor as in the driver's process, the result is the same to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from distfms.engine.memory import COLUMN_BYTES, format_bytes

#: Columns of a slab. It decides about the last bits of a result, and so depends on nothing.
SLAB_COLUMNS = 2048

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
        return [*range(0, self.n_attributes, SLAB_COLUMNS), self.n_attributes]

    @property
    def n_slabs(self) -> int:
        """Number of slabs."""
        return len(self.starts) - 1

    @property
    def slab_columns(self) -> int:
        """Columns of the widest slab."""
        return min(self.n_attributes, SLAB_COLUMNS)

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
