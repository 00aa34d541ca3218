"""A column of a file that nobody has described, and how likely it is what is to be predicted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: Without the s of a plural.
_WORDS_OF_TARGETS = """
    target label y class klasse clase classe outcome response result ergebnis resultado résultat
    diagnosis progression died dead death mortality survived survival relapse readmitted default
    churn churned kündigung fraud spam price preis prix precio prezzo prijs preço cost kosten sale
    revenue umsatz turnover salary wage rent value quality rating bewertung score grade note
    punkte relevance satisfaction zufriedenheit risk disease diabete cancer tumor malignant
    species variety malware expectancy booked canceled cancelled approved clicked purchased
    converted conversion medv mpg charge yield strength
"""
_WORDS_OF_OTHERS = """
    id nr no number index row year jahr month monat day tag date datum time zeit timestamp zip plz
    postcode code lat latitude lon lng longitude pct percent prozent name sex gender age alter
    country city region state ward visit position smoker
"""
_OF_TARGETS = frozenset(_WORDS_OF_TARGETS.split())
_OF_OTHERS = frozenset(_WORDS_OF_OTHERS.split())
#: Points for a word, a currency, the last and the first column, two values, and against many texts.
_WORD = 6.0
_CURRENCY = 3.0
_LAST = 3.0
_FIRST = 1.5
_TWO_VALUES = 1.0
_MANY_TEXTS = 3.0
#: Most levels of a target of texts, as a rule.
_MOST_LEVELS = 12

Kind = Literal["number", "text", "time", "judgments", "other"]


@dataclass(frozen=True)
class Column:
    """One column in the sample.

    `levels` are its distinct values where there are few, `excluded` says why it should not be a
    feature, `is_scale` that whole numbers count or rate, `as_numbers` that it is text which is read
    as numbers, `nearly` that few values are none.
    """

    name: str
    kind: Kind
    n_levels: int
    n_missing: int
    levels: tuple[Any, ...] = ()
    whole: bool = False
    is_scale: bool = False
    excluded: str = ""
    suspect: str = ""
    as_numbers: bool = False
    nearly: str = ""
    unit: str = ""

    @property
    def has_classes(self) -> bool:
        """Whether values are classes rather than numbers, as far as one can see."""
        if self.kind == "text":
            return True
        are_codes = self.whole and bool(self.levels) and not self.is_scale
        return self.kind == "number" and (self.n_levels == 2 or are_codes)


def by_likelihood(columns: Sequence[Column]) -> list[Column]:
    """Return columns in the order in which they may be the target, the likeliest first."""
    last = len(columns) - 1
    points = {}
    for number, column in enumerate(columns):
        points[column.name] = points_of(column, is_first=number == 0, is_last=number == last)
    return sorted(columns, key=lambda column: -points[column.name])


def points_of(column: Column, *, is_first: bool, is_last: bool) -> float:
    """Return how likely a column is the target, by its name, its place and its values."""
    points = 0.0
    words = words_of(column.name)
    is_price = re.search(r"(?i)(price|preis|prijs)s?\b", column.name)
    is_called_so = bool(words & _OF_TARGETS or is_price)
    if is_called_so:
        points += _WORD
    if words & _OF_OTHERS or column.unit == "%" or (column.suspect and not is_called_so):
        points -= _WORD
    if column.unit and column.unit != "%":
        points += _CURRENCY
    if is_last:
        points += _LAST
    elif is_first:
        points += _FIRST
    if column.n_levels == 2:
        points += _TWO_VALUES
    if column.kind == "text" and column.n_levels > _MOST_LEVELS:
        points -= _MANY_TEXTS
    return points


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case: as of ``SalePrice (USD)``."""
    divided = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = re.findall(r"[^\W\d_]+", divided.lower())
    return {*words, *(word.removesuffix("s") for word in words)}
