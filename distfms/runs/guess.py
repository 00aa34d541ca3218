"""Which column of a file that nobody has described is what is to be predicted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

_WORDS_OF_TARGETS = """
    target label y class outcome response result diagnosis progression died dead death mortality
    survived survival relapse readmitted default churn churned fraud spam price preis cost kosten
    sales revenue umsatz turnover income salary wage rent quality rating score grade relevance
    risk disease diabetes cancer tumor malignant species variety malware clicked purchased
    converted conversion medv mpg charges yield demand
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


class Described(Protocol):
    """What is asked of a column; see `distfms.runs.look.Column`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def n_levels(self) -> int: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def suspect(self) -> str: ...  # noqa: D102


C = TypeVar("C", bound=Described)


def by_likelihood(columns: Sequence[C]) -> list[C]:
    """Return columns in the order in which they may be the target, the likeliest first."""
    last = len(columns) - 1
    points = {}
    for number, column in enumerate(columns):
        points[column.name] = points_of(column, is_first=number == 0, is_last=number == last)
    return sorted(columns, key=lambda column: -points[column.name])


def points_of(column: Described, *, is_first: bool, is_last: bool) -> float:
    """Return how likely a column is the target, by its name, its place and its values."""
    points = 0.0
    words = words_of(column.name)
    if not words.isdisjoint(_OF_TARGETS) or any(w.endswith(("price", "preis")) for w in words):
        points += _WORD
    if not words.isdisjoint(_OF_OTHERS) or column.unit == "%" or column.suspect:
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
    """Return the words of a name, in lower case: of ``SalePrice (USD)`` sale, price and usd."""
    divided = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return set(re.findall(r"[^\W\d_]+", divided.lower()))
