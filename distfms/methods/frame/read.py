"""One read: statistics by fold and of held-out rows, and one bounded sample of rows with them.

A method reads its rows once (texts and classes need a pass before). What it sums up of each part is
its own; `SummaryReader.sampled` adds the sample of each part as the member `SAMPLE`. Rows are drawn
by their hashes, so that a sample does not depend on how the rows are divided, and its first m rows
are a sample, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan, RowBatch, SourceColumn
from distfms.data.rows.folds import mix, with_seed
from distfms.solve import trees
from distfms.solve.trees import MOST_ROWS, MOST_VALUES
from distfms.stats.sample import RowSample

SAMPLE = "sample"
"""Name of the member with the sample of each part."""

#: No number of rows bounds a sample: a share of all does.
_ALL = 2**62


# --- what a sample has --------------------------------------------------------------------------


def sample_share(
    n_rows: float, n_columns: int, most_rows: int = MOST_ROWS, most_values: int = MOST_VALUES
) -> float:
    """Return the share to sample of rows of so many columns: 1, ¾, ½, ⅜, ¼ and so on.

    There are few shares, so that most partitions that are new change nothing in those before.
    """
    most = min(most_rows, most_values // max(n_columns, 1))
    share = 1.0
    while share * n_rows > most:
        if 0.75 * share * n_rows <= most:
            return 0.75 * share
        share /= 2.0
    return share


def fill_column_rows(rows: np.ndarray, column: SourceColumn, inputs: np.ndarray) -> None:
    """Fill the rows of a batch that are of a column from its inputs (n,)."""
    is_missing = np.isnan(inputs)
    if column.flag:
        rows[-1] = is_missing
    if column.levels is not None:
        for code in range(len(column.levels)):
            rows[code] = np.where(is_missing, np.nan, inputs == code)
        return
    rows[0] = inputs
    if column.limits:
        lowest, highest = column.limits
        rows[0] = np.clip(inputs, lowest, highest)
    for place, knot in enumerate(column.knots, start=1):
        rows[place] = np.maximum(rows[0] - knot, 0.0)


def features_of(plan: ColumnPlan, inputs: np.ndarray) -> np.ndarray:
    """Return features (d, n) as batches have them, from those of `inputs_of` (S, n)."""
    features = np.empty((plan.n_features, inputs.shape[1]))
    for column, values in zip(plan.columns, inputs, strict=False):
        fill_column_rows(features[column.start : column.stop], column, values)
    return features


def spans_of(plan: ColumnPlan) -> np.ndarray:
    """Return first row, last row + 1 and the number of levels of each feature (S, 3).

    Of a number, which has no levels, the first row has the values; knots and flags follow.
    """
    columns = plan.columns[: len(plan.roles.features)]
    spans = [(column.start, column.stop, len(column.levels or ())) for column in columns]
    return np.array(spans, dtype=np.intp).reshape(-1, 3)


def inputs_of(batch: RowBatch, plan: ColumnPlan, rows: Any) -> np.ndarray:
    """Return features of some rows as the data have them, (S, n).

    Numbers, and codes of categories; NaN where missing.
    """
    values = batch.values[:, rows]
    return trees.inputs_of(values, np.arange(len(values)), spans_of(plan)).T


# --- reading ------------------------------------------------------------------------------------


def row_draws(batch: RowBatch, rows: slice, seed: int, by_values: bool) -> np.ndarray:
    """Hash some rows of a batch, whatever the partitions are; the least are drawn first.

    Without ids, the file's name and the row's number in it decide; with ids these and, as several
    rows may have one id, the features where it is `by_values`. Targets have no say.
    """
    if batch.rows.id is None:
        return batch.rows.draws(seed)[rows]
    hashes = batch.rows.keys[rows]
    for values in batch.features[:, rows] if by_values else ():
        plain = np.where(np.isnan(values), 0.0, values + 0.0)  # no sign of zero, one gap
        hashes = mix(hashes ^ plain.view(np.uint64))
    return with_seed(mix(hashes), seed)


@dataclass(frozen=True, eq=False)
class Sampled:
    """Picklable function from a batch and a part to statistics and a sample."""

    plan: ColumnPlan
    share: float
    seed: int
    by_values: bool
    summarise: Callable[[RowBatch, int], Mapping[str, Any]]

    def __call__(self, batch: RowBatch, part: int) -> dict[str, Any]:
        """Summarise and sample a part of a batch."""
        # Moments use the batch as scratch, so the sample comes before.
        sample = self.sample(batch, batch.part_slices[part])
        return {SAMPLE: sample, **self.summarise(batch, part)}

    def sample(self, batch: RowBatch, rows: slice) -> RowSample:
        """Sample rows: inputs, targets and weights, with keys for row numbers.

        Their ids, or else their queries, name them.
        """
        draws = row_draws(batch, rows, self.seed, self.by_values)
        places = np.arange(rows.start, rows.stop)
        if self.share < 1.0:
            is_drawn = draws < np.uint64(self.share * 2.0**64)
            places = places[is_drawn]
            draws = draws[is_drawn]
        weight = np.ones(len(places)) if batch.weight is None else batch.weight[places]
        inputs = inputs_of(batch, self.plan, places)
        values = np.vstack((inputs, batch.target[:, places], weight))
        origin = batch.rows
        ids = origin.query if origin.id is None else origin.id
        if ids is not None:
            ids = ids[places]
            if ids.dtype.kind not in "iu":
                ids = ids.astype(str)
        keys = origin.keys[places].view(np.int64)
        return RowSample.from_rows(_ALL, draws, keys, values, ids)
