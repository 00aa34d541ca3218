"""The acquisition plan: judgments that training objects lack, for a crowd to give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.files.partition import Partition
from distfms.data.files.write import write_table
from distfms.data.rows.columns import as_arrow
from distfms.data.rows.judgments import JudgmentBatch
from distfms.methods.multiselect.read import JudgmentSource
from distfms.methods.multiselect.same_raters import assigned
from distfms.solve.buying import BuyFrom
from distfms.stats.raters import by_rater
from distfms.store.places import Location

if TYPE_CHECKING:
    import pyarrow as pa

#: Folder in the run folder.
PLAN = "plan"


def acquisition_plan(
    counts: ArrayLike,
    repeats: ArrayLike,
    costs: ArrayLike,
    names: Sequence[str],
    objects: ArrayLike,
) -> dict[str, np.ndarray]:
    """List how many more judgments of each object to collect.

    From the judgments that each object has, shape (n, d), to columns with one row for each object
    and attribute that lacks some, by object, then by attribute: ``more`` is max(0, r[a] − k_i[a]),
    ``cost`` that of these judgments.
    """
    have = np.asarray(counts, dtype=np.int64)
    want = np.asarray(repeats, dtype=np.int64)
    rows, attributes = np.nonzero(have < want)
    n_lacking = (want - have)[rows, attributes]
    return {
        "object": np.asarray(objects)[rows],
        "attribute": np.asarray(names, dtype=np.str_)[attributes],
        "have": have[rows, attributes],
        "want": want[attributes],
        "more": n_lacking,
        "cost": n_lacking * np.asarray(costs, dtype=float)[attributes],
    }


def plan_of(
    batch: JudgmentBatch,
    rows: np.ndarray,
    repeats: ArrayLike,
    costs: ArrayLike,
    objects: ArrayLike,
    buy_from: BuyFrom,
) -> dict[str, np.ndarray]:
    """List the judgments that some objects of a batch lack; see :func:`acquisition_plan`.

    Where raters are known, a judgment counts if the selection would ask its rater for it. From the
    ``same`` raters there is one row for each judgment that lacks, by object, then by rater:
    ``rater_slot`` counts the raters of an object from 1, those first who have judged most, and
    ``rater_id`` is the id of one who has judged, None for anybody new.
    """
    judgments = [ragged.take(rows) for ragged in batch.attributes]
    r = np.asarray(repeats, dtype=np.int64)
    if batch.raters is None or not judgments:
        counts = np.array([ragged.counts() for ragged in judgments], dtype=np.int64)
        by_object = counts.reshape(r.size, rows.size).T
        return acquisition_plan(by_object, r, costs, batch.names, objects)
    codes = [of_attribute.take(rows) for of_attribute in batch.raters]
    spread, raters, _ = by_rater(judgments, codes)
    order, taken = assigned(spread, r, buy_from)
    if buy_from == "independent":
        return acquisition_plan(taken.sum(axis=0).T, r, costs, batch.names, objects)
    ordered = np.take_along_axis(raters, order, axis=0)
    return _by_slot(batch, ordered, taken, r, costs, objects)


def _by_slot(
    batch: JudgmentBatch,
    raters: np.ndarray,
    taken: np.ndarray,
    repeats: np.ndarray,
    costs: ArrayLike,
    objects: ArrayLike,
) -> dict[str, np.ndarray]:
    """List the judgments that raters lack; `raters` are their codes in order, (n_raters, n)."""
    n_raters, n_objects = raters.shape
    n_slots = max(int(repeats.max()), n_raters)
    code_of_slot = np.full((n_slots, n_objects), -1)
    code_of_slot[:n_raters] = raters
    lacks = np.zeros((n_slots, repeats.size, n_objects), dtype=bool)
    for slot in range(n_slots):
        lacks[slot, repeats > slot] = True
    lacks[:n_raters] &= ~taken
    numbers, slots, attributes = np.nonzero(lacks.transpose(2, 0, 1))
    codes = code_of_slot[slots, numbers]
    is_new = (codes < 0) | (codes >= len(batch.rater_names))
    ids = np.array([*batch.rater_names, None], dtype=object)
    return {
        "object": np.asarray(objects)[numbers],
        "rater_slot": slots + 1,
        "rater_id": ids[np.where(is_new, -1, codes)],
        "attribute": np.asarray(batch.names, dtype=np.str_)[attributes],
        "more": np.ones(numbers.size, dtype=np.int64),
        "cost": np.asarray(costs, dtype=float)[attributes],
    }


def object_column(id_column: str | None) -> str:
    """Name the plan's column of objects: by their own column, unless another bears its name."""
    taken = ("attribute", "have", "want", "more", "cost", "rater_slot", "rater_id")
    return "object" if id_column is None or id_column in taken else id_column


@dataclass(frozen=True)
class WritePlan:
    """Picklable function that writes the plan of one partition's training objects."""

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: Location
    id_type: pa.DataType
    buy_from: BuyFrom = "independent"

    def __call__(self, partition: Partition) -> tuple[int, float]:
        """Write ``part-NNNNN`` and return its totals."""
        import pyarrow as pa

        batch = self.source.read(partition)
        n_taught = batch.part_slices[-1].start
        taught = np.arange(n_taught)
        if batch.weight is not None:
            has_weight = batch.weight[:n_taught] > 0
            taught = taught[has_weight]
        ids = batch.row_ids if batch.rows.id is None else batch.rows.id
        objects = ids[taught]
        plan = plan_of(batch, taught, self.repeats, self.costs, objects, self.buy_from)
        columns = {name: as_arrow(values) for name, values in plan.items()}
        # By the type of the data, so that parts in which nothing is lacking fit the others.
        columns["object"] = columns["object"].cast(self.id_type)
        if "rater_id" in columns:
            columns["rater_id"] = columns["rater_id"].cast(pa.string())
        table = pa.table(columns)
        names = [object_column(self.source.roles.id), *table.column_names[1:]]
        table = table.rename_columns(names)
        place = self.folder / f"part-{partition.index:05d}.parquet"
        write_table(place, table)
        n_judgments = int(plan["more"].sum())
        cost = float(plan["cost"].sum())
        return n_judgments, cost
