"""Errors that a user can act on.

Each message is one paragraph that says what is wrong, where (file, column, row group, attribute)
and what to do about it. The command line prints it without a traceback and exits with
``exit_code``. Errors about input are also ``ValueError``, as in Python and scikit-learn.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from distfms.credentials import without_credentials

#: Known names that a message lists when none of them is near.
_LISTED = 20


#: Control characters but for line feed and tab, changes of direction, halves of characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return a text whose control characters are written out, so that no terminal obeys them."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class DistfmsError(Exception):
    """Base of all errors that distfms raises deliberately; says no secrets of URLs."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(without_credentials(str(message))))


class SpecError(DistfmsError, ValueError):
    """The job spec, a command or a parameter is wrong."""

    exit_code = 2


class DataError(DistfmsError, ValueError):
    """The data cannot be used as the spec asks."""

    exit_code = 2


class NumericalError(DistfmsError):
    """A computation fails although its input is valid."""


class EngineError(DistfmsError):
    """Workers, clusters or storage failed while a job was running."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest a name instead of a wrong one, ignoring case, to end an error message.

    Parameters
    ----------
    name : str
    known : iterable of str

    Returns
    -------
    str
        A sentence with a leading space: the closest known name, or the list of known names.
    """
    names = list(known)
    lowered = {other.lower(): other for other in names}
    if near := difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.65):
        return f" Did you mean {lowered[near[0]]!r}?"
    listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    return f" Choose from {listed}." if names else ""


def plain_name(name: str) -> str:
    """Return how to write a name with letters, digits, dots, underscores and hyphens only."""
    near = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")
    example = f", as in `{near[:100]}`" if near else ""
    return f"use letters, digits, `.`, `_` and `-`{example}"


def first_of(names: Sequence[str]) -> str:
    """Return the first five names of a list, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def checked_budget(budget: Any, name: str) -> float | None:
    """Return what a row may cost, or how long it may take, as a user has given it by this name."""
    if budget is None:
        return None
    number = float(budget) if isinstance(budget, Real) else math.nan
    if not (math.isfinite(number) and number >= 0):
        raise SpecError(f"{name} is {shown(budget)}; it must be a finite number, at least 0.")
    return number


def shown(value: Any) -> str:
    """Write what a user has given in place of a number."""
    return f"{value:g}" if isinstance(value, Real) else repr(value)
