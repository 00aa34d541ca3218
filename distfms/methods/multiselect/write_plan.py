"""Writing the acquisition plan, one file per partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distfms.data.dataset import Partition
from distfms.data.write import write_table
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
    folder : str
    """

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: str

    def __call__(self, partition: Partition) -> PlanTotals:
        """Write ``part-NNNNN.parquet`` and return its totals."""
        import pyarrow as pa

        block = self.source.read(partition)
        train = block.part_slices[-1].start
        counts = np.array([ragged.counts()[:train] for ragged in block.attributes]).T
        plan = acquisition_plan(
            counts.reshape(train, len(self.repeats)),
            self.repeats,
            self.costs,
            self.source.layout.names,
            self._identifiers(block, train),
        )
        columns: dict[str, Any] = {**plan.columns()}
        path = Path(self.folder) / f"part-{partition.index:05d}.parquet"
        write_table(path, pa.table(columns))
        return PlanTotals(plan.total_judgments, plan.total_cost)

    def _identifiers(self, block: Any, n: int) -> np.ndarray:
        if block.rows.id is not None:
            return block.rows.id[:n]
        return block.row_ids[:n]
