"""Ages of partitions: which are forgotten, and how much the others weigh."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.errors import DataError
from distfms.spec import Forgetting

_DATE = re.compile(r"(?<!\d)(\d{4})[-_]?(\d{2})[-_]?(\d{2})(?!\d)")
_DAY = 86_400.0


def remember(dataset: Dataset, forgetting: Forgetting, time: str | None = None) -> Dataset:
    """Return a dataset of the partitions that count, with what their rows weigh.

    Parameters
    ----------
    dataset : Dataset
    forgetting : Forgetting
    time : str, optional
        Column whose greatest value, from the footers, is the date of a partition; by default it is
        the first date (``2026-01-31``, ``20260131``) in the file's name.

    Raises
    ------
    DataError
        If ages are to be in days and a partition has no date, or one that is yet to come.
    """
    kept = np.ones(len(dataset.partitions), dtype=bool)
    weight = np.ones(len(kept))
    if forgetting.window is not None:
        length, unit = forgetting.window.split()
        kept = _ages(dataset, unit, time) < float(length)
    if forgetting.half_life is not None:
        length, unit = forgetting.half_life.split()
        weight = np.exp2(-_ages(dataset, unit, time) / float(length))
    # As if nothing else were there.
    counted = [dataset.partitions[number] for number in np.flatnonzero(kept)]
    offsets = accumulate([0, *(part.n_rows for part in counted[:-1])])
    rows = zip(counted, offsets, weight[kept].tolist(), strict=True)
    return dataset.restricted(
        [
            replace(p, index=i, row_offset=offset, weight=row_weight)
            for i, (p, offset, row_weight) in enumerate(rows)
        ]
    )


def _ages(dataset: Dataset, unit: str, time: str | None) -> np.ndarray:
    """Return the ages of partitions in days or, from the last one, in partitions."""
    if unit.startswith("partition"):
        return np.arange(len(dataset.partitions))[::-1].astype(float)
    dates = partition_dates(dataset, time)
    return np.array([(max(dates) - date).total_seconds() for date in dates]) / _DAY


def partition_dates(dataset: Dataset, time: str | None) -> list[datetime]:
    """Return the date of each partition, in UTC.

    Raises
    ------
    DataError
        If one has none, or one that is more than a day ahead of this machine's clock: everything
        else would be forgotten for its sake.
    """
    dates = [
        _date_in(part.name) if time is None else _latest(dataset, part, time)
        for part in dataset.partitions
    ]
    newest = int(np.argmax([date.timestamp() for date in dates]))
    now = datetime.now(UTC)
    if dates[newest] > now + timedelta(days=1):
        raise DataError(
            f"{dataset.partitions[newest].called} is dated {dates[newest]:%Y-%m-%d}, but this "
            f"machine's clock says {now:%Y-%m-%d}. Older data would be forgotten by mistake. "
            "Correct the date or the clock."
        )
    return dates


def _date_in(name: str) -> datetime:
    for match in _DATE.finditer(name):
        try:
            year, month, day = map(int, match.groups())
            return datetime(year, month, day, tzinfo=UTC)
        except ValueError:
            continue
    raise DataError(
        f"`retrain.forget` counts days, but the name {name} holds no date such as 2026-01-31. Put "
        "the date into the name of the file or its folder, set `data.time`, or count `partitions`."
    )


def _latest(dataset: Dataset, part: Partition, time: str) -> datetime:
    """Return the greatest time of a partition, from the footer."""
    with dataset.reader.open(part) as file:
        metadata = file.metadata
        # Of a field within a column only the last part of the path is its name.
        leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        columns = [leaf.name if leaf.name == leaf.path else None for leaf in leaves]
        if time not in columns:
            raise DataError(
                f"The file {part.called} has no column {time!r} (`data.time`): "
                "name one that all files have."
            )
        column = columns.index(time)
        statistics = [metadata.row_group(g).column(column).statistics for g in part.row_groups]
    values: Sequence[Any] = [s.max for s in statistics if s is not None and s.has_min_max]
    if not values or not isinstance(values[0], date):
        raise DataError(
            f"The column {time!r} (`data.time`) of {part.called} has no dates in the footer: "
            "write it as a date or timestamp, with statistics, or count `partitions`."
        )
    latest = max(values)
    if not isinstance(latest, datetime):
        latest = datetime(latest.year, latest.month, latest.day)
    return latest.astimezone(UTC) if latest.tzinfo else latest.replace(tzinfo=UTC)
