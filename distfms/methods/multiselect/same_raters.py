"""Whose judgments are bought: of raters of their own, or of the same for several attributes.

Rater j judges every attribute that is bought j times or more, so that averages of r[a] and r[b]
judgments have min(r[a], r[b]) raters in common, and with N the noise covariance of one rater's
judgments the averages have the covariance

    C[a, b] = Σ[a, b] + N[a, b] / max(r[a], r[b]),    N[a, a] = v[a].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.solve.buying import BuyFrom
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged
from distfms.stats.raters import by_rater

#: Most attributes for which judgments are bought from the same raters: a step takes O(s³) for s
#: attributes bought so far.
MOST_ATTRIBUTES = 500

#: Objects whose judgments are spread by rater at a time.
_OBJECTS_AT_A_TIME = 4096

HOW_TO_TELL = (
    "set the column of raters in `data.long.worker`, give lists of rater ids in columns "
    "`NAME__raters` (or `raters`, for all attributes), or set `multiselect.raters: positions` if "
    "the j-th judgments of all attributes of an object are one rater's"
)


def check_buying(n_attributes: int, are_known: bool) -> None:
    """Refuse to buy from the same raters where that cannot be judged, or takes too long."""
    if not are_known:
        raise SpecError(
            "`multiselect.buy_from: same` needs known raters, to estimate the errors that a "
            f"rater's judgments share: {HOW_TO_TELL}."
        )
    if n_attributes > MOST_ATTRIBUTES:
        raise SpecError(
            f"`multiselect.buy_from: same` is offered for up to {MOST_ATTRIBUTES} attributes; "
            f"there are {n_attributes:,}. Buy from `independent` raters, or take fewer `features`."
        )


def raters_in_words(are_known: bool, buy_from: BuyFrom) -> str:
    """Say what is known of raters, for `check`, and how to tell where nothing is."""
    if not are_known:
        return (
            f"unknown, treated as independent. If a rater judges several attributes, {HOW_TO_TELL}"
        )
    whose = "raters of their own" if buy_from == "independent" else "the same raters"
    return f"known; the judgments to be bought come from {whose}"


def rater_remarks(train: JudgmentStatistics, buy_from: BuyFrom) -> list[str]:
    """Return what the user should know of who judged the training objects.

    Refuse judgments of which one rater gave all of every object: N cannot be told from Σ.
    """
    if train.raters is None:
        return []
    n_unknown, n_second, n_alone = train.raters.counts.tolist()
    pairs = np.triu(np.ones((train.n_attributes,) * 2, dtype=bool), 1)
    together = train.raters.together[pairs]
    apart = train.raters.apart[pairs]
    if together.any() and not apart.any():
        raise DataError(
            "No object has judgments of two attributes by different raters, so correlations of "
            "attributes and shared errors of raters cannot be told apart. Collect a second rater's "
            "judgments of some objects, or set `multiselect.raters: ignore` to assign everything "
            "to the attributes."
        )
    n_inseparable = int(np.count_nonzero(together & ~apart))
    n_strange = int(np.count_nonzero(~together)) if buy_from == "same" else 0
    counted = {
        "judgments have no rater id; each counts as a different rater's": n_unknown,
        "judgments repeat a rater's judgment of the same attribute and count as another "
        "rater's": n_second,
        "objects were judged by only one rater, once per attribute; they do not show how "
        "attributes vary together": n_alone,
        "pairs of attributes were judged only by the same rater; they count as "
        "uncorrelated": n_inseparable,
        "pairs of attributes were never judged by the same rater; their noise counts as "
        "independent": n_strange,
    }
    return [f"{n:,} {text}." for text, n in counted.items() if n]


def assigned(
    spread: np.ndarray, repeats: np.ndarray, buy_from: BuyFrom
) -> tuple[np.ndarray, np.ndarray]:
    """Choose, of the judgments that objects have, those that the selection asks for.

    From the ``same`` raters: in the order of how many attributes they have judged, the first r[a]
    of an object's raters count for attribute a. From ``independent`` ones: every rater counts for
    one attribute, and those with most judgments to buy choose first.

    Parameters
    ----------
    spread : ndarray of shape (n_raters, d, n)
        From :func:`distfms.stats.raters.by_rater`.
    repeats : ndarray of int, shape (d,)
        At least 1.

    Returns
    -------
    order : ndarray of int, shape (n_raters, n)
        Raters of each object in the order in which they are asked.
    taken : ndarray of bool, shape (n_raters, d, n)
        The judgments that count, by rater in that order.
    """
    present = ~np.isnan(spread)
    n_raters = len(present)
    numbers = np.arange(n_raters)[:, None]
    if buy_from == "same":
        n_judged = present.sum(axis=1)
        order = np.argsort(-n_judged, axis=0, kind="stable")
        ordered = np.take_along_axis(present, order[:, None], axis=0)
        is_asked = numbers[:, None] < repeats[:, None]
        return order, ordered & is_asked
    taken = np.zeros_like(present)
    is_free = np.ones_like(present[:, 0])
    most_first = np.argsort(-repeats, kind="stable")
    for attribute in most_first.tolist():
        is_able = present[:, attribute] & is_free
        n_able = np.cumsum(is_able, axis=0)
        is_taken = is_able & (n_able <= repeats[attribute])
        taken[:, attribute] = is_taken
        is_free &= ~is_taken
    order = np.broadcast_to(numbers, is_free.shape)
    return order, taken


def averages_of_raters(
    judgments: Sequence[Ragged], raters: Sequence[Ragged], repeats: np.ndarray, buy_from: BuyFrom
) -> np.ndarray:
    """Average the judgments that the selection asks for, shape (d, n); NaN where some lack."""
    n = judgments[0].n_rows
    n_wanted = repeats[:, None]
    averages = [np.empty((len(judgments), 0))]
    for start in range(0, n, _OBJECTS_AT_A_TIME):
        stop = min(start + _OBJECTS_AT_A_TIME, n)
        values = [attribute.rows(start, stop) for attribute in judgments]
        codes = [attribute.rows(start, stop) for attribute in raters]
        spread, _, _ = by_rater(values, codes)
        order, is_taken = assigned(spread, repeats, buy_from)
        ordered = np.take_along_axis(spread, order[:, None], axis=0)
        taken = np.where(is_taken, ordered, 0.0)
        total = taken.sum(axis=0)
        n_taken = is_taken.sum(axis=0)
        average = total / n_wanted
        averages.append(np.where(n_taken == n_wanted, average, np.nan))
    return np.concatenate(averages, axis=1)
