"""Errors that a user can act on.

Each message is one paragraph that says what is wrong, where (file, column, row group, attribute)
and what to do about it. The command line prints it without a traceback and exits with
``exit_code``. What is wrong with an input is a ``ValueError`` too, as Python and scikit-learn have
it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from distfms.hidden import hidden_in_urls, printable

#: Known names that a message lists when none of them is near.
_LISTED = 20


class DistfmsError(Exception):
    """Base of every error that distfms raises on purpose; shows no secret of a URL."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(hidden_in_urls(str(message))))


class SpecError(DistfmsError, ValueError):
    """The job spec, or the use of a command or of a parameter, is wrong."""

    exit_code = 2


class DataError(DistfmsError, ValueError):
    """The data cannot be used as the spec asks."""

    exit_code = 2


class NumericalError(DistfmsError):
    """A computation cannot be carried out on otherwise well-formed numbers."""


class EngineError(DistfmsError):
    """Workers, clusters or storage failed while a job was running."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that is most like a wrong one, whatever its capitals.

    Parameters
    ----------
    name : str
    known : iterable of str

    Returns
    -------
    str or None
        None where nothing is near.
    """
    lowered = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[near[0]] if near else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Advise on a wrong name, for the end of an error message.

    Parameters
    ----------
    name : str
    known : iterable of str

    Returns
    -------
    str
        A sentence with a leading space: the nearest known name, or what there is.
    """
    names = list(known)
    near = closest(name, names)
    if near is not None:
        return f" Did you mean {near!r}?"
    listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    return f" There are: {listed}." if names else ""


def plain_name(name: str) -> str:
    """Return how to write a name of letters, digits, dots, underscores and hyphens."""
    near = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("._-")
    example = f", as in `{near[:100]}`" if near else ""
    return f"use letters, digits, `.`, `_` and `-`{example}"
