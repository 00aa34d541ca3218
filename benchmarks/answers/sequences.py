"""In which order to compute groups: what is missing to 1 of the area under value against cost.

Value is R² of numbers and AUROC of two classes; see `benchmarks.answers.peers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answers.peers import Table, one_split, read
from benchmarks.answers.tables import CLASSES, FOLDER, exists, rows_of

#: Of recipes and shipped tables, columns are groups with drawn prices.
TABLES = (
    *("diabetes", "friedman1", "friedman3", "2dplanes", "piston", "abalone", "house_8L"),
    *("puma8NH", "breast_cancer"),
)
#: Those with groups and costs of their own.
PRICED = ("breast_cancer",)
#: What a job does that names its data; estimators are linear unless they are told to choose.
OURS = {"model": "auto", "folds": "auto"}


def tables() -> list[str]:
    return [name for name in TABLES if exists(name)]


def cells(name: str, split: int, most: int) -> Iterator[tuple[str, float, float]]:
    """Yield each way's missing area, and its processor seconds."""
    if name in PRICED:
        table = read(FOLDER, name, most)
    else:
        X, y = rows_of(name, most)
        if name in CLASSES:
            table = Table.of_columns(X, y == 0, classes=True)
        else:
            table = Table.of_columns(X, y)
    for way, (area, spent) in one_split(table, split, OURS).items():
        yield way, 1.0 - area, spent
