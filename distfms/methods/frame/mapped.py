"""Co-moments of more columns than memory has room for: read in passes, kept in mapped files.

Each pass computes some rows of the matrices, of every fold, and is a step of its own. The rows are
put together in files beside those of the steps, which last as long as the arrays. What comes after
works on them as it works on arrays in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from distfms.data.files.partition import Dataset
from distfms.engine.memory import format_bytes
from distfms.methods.frame.contract import Inputs, PartialReader, Run
from distfms.stats.base import Bundle, Folded
from distfms.stats.mapped import SUFFIX, Assembly

#: Memory of the work in one process beyond which matrices are mapped files. Fixed, as the last bits
#: of the result must not depend on the machine.
ONE_PROCESS_BYTES = 4 * 2**30
#: Matrices of a part where values may be missing.
MATRICES_WITH_GAPS = 4
#: Largest partial statistic of a pass, with all folds: it decides how many passes there are.
PASS_BYTES = 2**30
#: Most rows of the matrices that a pass computes.
PASS_ROWS = 2048


@dataclass(frozen=True)
class MappedForm:
    """How large the mapped matrices of a job are, known before data are read.

    Attributes
    ----------
    n_columns : int
        Features and targets, as far as they are known.
    n_parts : int
        Folds and held-out rows.
    n_matrices : int
        Of each part: more than one where values may be missing.
    one_process_bytes : int
        What the job would take in memory.
    """

    n_columns: int
    n_parts: int
    n_matrices: int
    one_process_bytes: int

    @classmethod
    def of(
        cls, inputs: Inputs, n_columns: int, one_process_bytes: int, models_bytes: int
    ) -> MappedForm | None:
        """Return how matrices are mapped; None where the work fits, or the models do not."""
        if not one_process_bytes > ONE_PROCESS_BYTES >= models_bytes:
            return None
        n_matrices = MATRICES_WITH_GAPS if inputs.section.missing == "mean" else 1
        return cls(n_columns, inputs.n_parts, n_matrices, one_process_bytes)

    @property
    def pass_rows(self) -> int:
        """Rows of the matrices that a pass computes."""
        row_bytes = 8 * self.n_columns * self.n_parts * self.n_matrices
        return max(1, min(PASS_ROWS, PASS_BYTES // row_bytes))

    @property
    def n_passes(self) -> int:
        """Number of passes."""
        return -(-self.n_columns // self.pass_rows)

    @property
    def statistics_bytes(self) -> int:
        """Size of the partial statistic of a pass in memory."""
        return 8 * self.n_columns * self.n_parts * self.n_matrices * self.pass_rows

    @property
    def file_bytes(self) -> int:
        """Size of all matrices in files."""
        return 8 * self.n_columns**2 * self.n_parts * self.n_matrices

    def describe(self) -> dict[str, str]:
        """Return what the job will do: label → text."""
        return {
            "search": (
                f"on a mapped file of the products of {self.n_columns:,} columns, read in "
                f"{self.n_passes} passes over the data; about {format_bytes(2 * self.file_bytes)} "
                f"on disk in place of {format_bytes(self.one_process_bytes)} in memory"
            )
        }

    def note(self) -> str:
        """Return what the user should know once the statistics are read."""
        return (
            "The products of columns were kept in mapped files: in memory the job would have "
            f"needed {format_bytes(self.one_process_bytes)}."
        )

    def read(
        self, run: Run, n_columns: int, reader: Callable[[slice, Dataset, bool], PartialReader]
    ) -> Bundle:
        """Read ``moments`` and ``counts`` in passes; steps ``statistics 1 of n`` and so on.

        `reader` makes of (rows of the matrices, dataset, whether all its rows are held out) what
        reads them, of this many columns.
        """
        starts = range(0, n_columns, self.pass_rows)
        counts: Folded | None = None
        assemblies: list[Assembly] = []
        for number, start in enumerate(starts, 1):
            rows = slice(start, min(start + self.pass_rows, n_columns))
            name = f"statistics {number} of {len(starts)}"
            # Partials of all passes together are D × D numbers for each partition: not cached.
            read = partial(run.reduce, partial(reader, rows), cache=False)
            bundle: Bundle = run.step(name, read)
            if counts is None:
                counts = bundle["counts"]
                folder = _folder(run, name)
                assemblies = [Assembly(folder) for _ in bundle["moments"].parts]
            for assembly, part in zip(assemblies, bundle["moments"].parts, strict=True):
                assembly.add(part)
            del bundle  # before the next is read
        assert counts is not None
        moments = tuple(assembly.value() for assembly in assemblies)
        return Bundle({"moments": Folded(moments), "counts": counts})


def _folder(run: Run, step: str) -> str | Path:
    """Return where mapped files go: beside that of a step, without those of earlier attempts."""
    place = run.place(step)
    if not isinstance(place, Path):
        return tempfile.gettempdir()
    for abandoned in place.parent.glob(f"*{SUFFIX}"):
        abandoned.unlink(missing_ok=True)
    return place.parent
