"""Notes on columns that spoil an answer: gaps that are not random, values far off, row numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from distfms.data.files.partition import Dataset, place_of
from distfms.data.rows.batches import ColumnPlan
from distfms.errors import DataError
from distfms.stats.comoments import CONSTANT_RTOL
from distfms.stats.signs import ColumnSigns

#: Columns that a note names at most.
_NAMED = 8
_LIKE_AN_ID = re.compile(r"(^|[\W_])(id|idx|index|key|row|uid|unnamed)([\W_]|\d|$)", re.IGNORECASE)
#: Rows from which as many whole numbers as rows are no accident.
_MANY = 100

_ASSUMED = {
    "mean": "Their mean is not what is missing",
    "drop": "The rows that are left are not like those that were left out",
    "pairs": "Learning from pairs assumes that they are missing at random",
}


def remarks(
    signs: ColumnSigns, plan: ColumnPlan, datasets: Sequence[Dataset], missing: str
) -> list[str]:
    """Return the notes on the columns of a plan."""
    of_values = value_remarks(signs, plan.value_names, plan.n_features, datasets)
    of_rows = row_remarks(signs, plan, datasets)
    return [*of_values, *of_rows, *gap_remark(signs, plan, missing)]


def value_remarks(
    signs: ColumnSigns, names: Sequence[str], n_features: int, datasets: Sequence[Dataset]
) -> list[str]:
    """Return the notes on values of columns, of which so many are features; see below."""
    far = far_remarks(signs, names, datasets)
    return far + unresolved_remarks(signs, names, n_features)


def far_remarks(signs: ColumnSigns, names: Sequence[str], datasets: Iterable[Dataset]) -> list[str]:
    """Name values that are very far from all others of their column."""
    far = signs.far_values()
    paths = {
        place_of(part.fingerprint): part.called
        for data in (datasets if far else ())
        for part in data.partitions
    }
    return [
        f"The column {names[column]!r} holds the value {value:g} (in {paths.get(place, 'the data')}"
        f"), {away:.2g} standard deviations of all other values away from their mean. It looks "
        "damaged and decides what is learned of the column: correct it, remove it, or exclude the "
        "column."
        for column, (value, away, place) in far.items()
    ]


def unresolved_remarks(signs: ColumnSigns, names: Sequence[str], n_features: int) -> list[str]:
    """Name columns that are ignored since their differences are rounding errors of their mean.

    Raises
    ------
    DataError
        If no feature is left.
    """
    unresolved = np.flatnonzero(signs.unresolved).tolist()
    texts = [
        f"The column {names[column]!r} varies by less than {CONSTANT_RTOL:g} of its mean "
        f"({signs.moments.mean[column]:.6g}), so it counts as constant and is ignored. Subtract "
        f"{signs.moments.mean[column]:.6g} from it where the data are written, before it is "
        "rounded, or exclude it."
        for column in unresolved
    ]
    if n_features and signs.moments.constant_columns()[:n_features].all() and texts:
        raise DataError(f"No feature is left to learn from. {texts[0]}")
    return texts


def row_remarks(signs: ColumnSigns, plan: ColumnPlan, datasets: Sequence[Dataset]) -> list[str]:
    """Name features that tell the row: sorted without a tie, or different in each row."""
    n_rows = sum(data.n_rows for data in datasets)
    reasons = dict[str, str]()
    order = signs.ordered
    moments = signs.moments
    for column in plan.columns[: len(plan.roles.features)]:
        if column.levels is not None:
            continue
        row = column.start
        name = column.name
        width = moments.maximum[row] - moments.minimum[row] + 1
        # Where all rows were looked at, as many numbers as rows are no accident.
        named = width == n_rows == moments.weight[row]
        named |= width > 0.9 * n_rows and _LIKE_AN_ID.search(name) is not None
        if order[row]:
            rises = "rises" if order[row] > 0 else "falls"
            reasons[name] = f"{rises} with every row, like a row number or a time"
        elif signs.differ[row] and named and n_rows >= _MANY:
            reasons[name] = f"holds whole numbers that all differ, in {n_rows:,} rows, like an id"
    return [
        f"The column {name!r} {reason}. A model that uses such a column does not generalise: "
        f"exclude it (`exclude: [{name!r}]`), or set it as `data.id` or `data.time`."
        for name, reason in reasons.items()
    ]


def gap_remark(signs: ColumnSigns, plan: ColumnPlan, missing: str) -> list[str]:
    """Name features whose gaps depend on the target or on other features."""
    sources = np.full(plan.n_columns, -1)
    for number, column in enumerate(plan.columns):
        n_values = 1 if column.is_target else len(column.levels or (1,))
        sources[column.start : column.start + n_values] = number  # knots and flags follow
    gaps: dict[str, str] = {}
    for feature, row, size in signs.dependent_gaps(sources):
        name = plan.columns[sources[feature]].name
        direction = "higher" if size > 0 else "lower"
        condition = f"{plan.value_names[row]!r} is {direction}"
        gaps.setdefault(name, f"{name!r} where {condition} ({size:+.2f} standard deviations)")
    if not gaps:
        return []
    listed = ", ".join([*gaps.values()][:_NAMED])
    n_unlisted = len(gaps) - _NAMED
    if n_unlisted > 0:
        listed += f", and {n_unlisted} more"
    return [
        f"Values are not missing at random: {listed}. {_ASSUMED[missing]}, so the answer may be "
        "biased: find out why they are missing, or add columns that say where."
    ]
