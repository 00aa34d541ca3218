"""Acquisition plan: which judgments to collect before the refit (step 3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.dataset import Partition
from distfms.data.write import write_table
from distfms.engine.storage import Location, absolute, files_below
from distfms.engine.storage_errors import writing
from distfms.errors import SpecError
from distfms.methods.contract import Context
from distfms.methods.multiselect.objective import check_repeats
from distfms.methods.multiselect.read import JudgmentSource

#: Folder in the run folder.
PLAN = "plan"


def acquisition_plan(
    counts: ArrayLike,
    repeats: ArrayLike,
    costs: ArrayLike,
    names: Sequence[str],
    objects: ArrayLike | None = None,
) -> dict[str, np.ndarray]:
    """List how many more judgments of each object to collect.

    Parameters
    ----------
    counts : array_like of int, shape (n, d)
        Judgments k_i[a] that each object has.
    repeats : array_like of int, shape (d,)
        Selection r.
    costs : array_like of shape (d,)
        Cost of one judgment.
    names : sequence of str, length d
    objects : array_like of shape (n,), optional
        Identifiers; default: 0 … n−1.

    Returns
    -------
    dict of str to ndarray of shape (n_rows,)
        Columns ``object, attribute, have, want, more, cost``: one row for each object and
        attribute that lacks some, by object, then by attribute; ``more`` is max(0, r[a] − k_i[a])
        and ``cost`` that of these judgments.

    Raises
    ------
    SpecError
        Lengths disagree.
    """
    have = np.asarray(counts, dtype=np.int64)
    want = check_repeats(repeats, len(names))
    if have.ndim != 2 or have.shape[1] != len(names):
        raise SpecError(f"counts has shape {have.shape}; it needs {len(names)} columns.")
    identifiers = np.arange(have.shape[0]) if objects is None else np.asarray(objects)
    if identifiers.shape != (have.shape[0],):
        raise SpecError(f"There are {have.shape[0]} objects but {identifiers.size} identifiers.")
    support = np.flatnonzero(want > 0)
    lacking = want[support] - have[:, support]
    rows, columns = np.nonzero(lacking > 0)
    attributes = support[columns]
    more = lacking[rows, columns]
    return {
        "object": identifiers[rows],
        "attribute": np.asarray(names, dtype=np.str_)[attributes],
        "have": have[rows, attributes],
        "want": want[attributes],
        "more": more,
        "cost": more * np.asarray(costs, dtype=float)[attributes],
    }


@dataclass(frozen=True)
class WritePlan:
    """Picklable function that writes the plan of one partition's training objects.

    Attributes
    ----------
    source : JudgmentSource
        With the layout of the selected attributes only.
    repeats : tuple of int
    costs : tuple of float
        Of one judgment of each of them.
    folder : Path or RemotePath
        Of the run.
    """

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: Location

    def write(self, context: Context, partitions: Sequence[Partition]) -> tuple[int, float]:
        """Write a file for each partition; return how many judgments lack, and their cost."""
        totals = context.map(self, partitions)
        self._remove_others(partitions)
        return sum(judgments for judgments, _ in totals), sum(cost for _, cost in totals)

    def __call__(self, partition: Partition) -> tuple[int, float]:
        """Write ``part-NNNNN.parquet`` and return its totals."""
        import pyarrow as pa

        batch = self.source.read(partition)
        taught = np.arange(batch.part_slices[-1].start)
        if batch.weight is not None:
            taught = taught[batch.weight[: taught.size] > 0]
        counts = np.array([ragged.counts()[taught] for ragged in batch.attributes]).T
        plan = acquisition_plan(
            counts.reshape(taught.size, len(self.repeats)),
            self.repeats,
            self.costs,
            self.source.layout.names,
            (batch.row_ids if batch.rows.id is None else batch.rows.id)[taught],
        )
        columns: dict[str, Any] = {**plan}
        # By the types of the data, so that parts in which nothing is lacking fit the others.
        columns["object"] = pa.array(plan["object"], type=self._identifier_type(partition))
        columns["attribute"] = pa.array(plan["attribute"], type=pa.string())
        write_table(self._place / _file(partition), pa.table(columns))
        return int(plan["more"].sum()), float(plan["cost"].sum())

    @property
    def _place(self) -> Location:
        return absolute(self.folder) / PLAN

    def _remove_others(self, partitions: Sequence[Partition]) -> None:
        """Remove what an earlier attempt with other files has left in the folder."""
        own = {_file(partition) for partition in partitions}
        with writing(self._place):
            for entry in files_below(self._place):
                if entry.name not in own:
                    entry.place.unlink(missing_ok=True)

    def _identifier_type(self, partition: Partition) -> Any:
        import pyarrow as pa

        if self.source.roles.id is None:
            return pa.int64()
        with self.source.reader.open(partition) as file:
            dtype = file.schema_arrow.field(self.source.roles.id).type
        return dtype.value_type if pa.types.is_dictionary(dtype) else dtype


def _file(partition: Partition) -> str:
    return f"part-{partition.index:05d}.parquet"
