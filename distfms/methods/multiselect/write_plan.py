"""Writing the acquisition plan, one file per partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distfms.data.dataset import Partition
from distfms.data.write import write_table
from distfms.engine.storage import Location, files_below
from distfms.engine.storage_errors import writing
from distfms.methods.multiselect.plan import acquisition_plan
from distfms.methods.multiselect.read import JudgmentSource


class PlanTotals(NamedTuple):
    """What one partition's objects still need.

    Attributes
    ----------
    judgments : int
    cost : float
    """

    judgments: int
    cost: float


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
    """

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: Location

    def __call__(self, partition: Partition) -> PlanTotals:
        """Write ``part-NNNNN.parquet`` and return its totals."""
        import pyarrow as pa

        block = self.source.read(partition)
        taught = np.arange(block.part_slices[-1].start)
        if block.weight is not None:
            taught = taught[block.weight[: taught.size] > 0]
        counts = np.array([ragged.counts()[taught] for ragged in block.attributes]).T
        plan = acquisition_plan(
            counts.reshape(taught.size, len(self.repeats)),
            self.repeats,
            self.costs,
            self.source.layout.names,
            (block.row_ids if block.rows.id is None else block.rows.id)[taught],
        )
        columns: dict[str, Any] = {**plan.columns()}
        # By the types of the data, so that parts in which nothing is lacking fit the others.
        columns["object"] = pa.array(plan.object, type=self._identifier_type(partition))
        columns["attribute"] = pa.array(plan.attribute, type=pa.string())
        write_table(self.folder / _file(partition), pa.table(columns))
        return PlanTotals(plan.total_judgments, plan.total_cost)

    def remove_others(self, partitions: Sequence[Partition]) -> None:
        """Remove what an earlier attempt with other files has left in the folder.

        Raises
        ------
        EngineError
            If the storage does not answer.
        """
        own = {_file(partition) for partition in partitions}
        with writing(self.folder):
            for entry in files_below(self.folder):
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
