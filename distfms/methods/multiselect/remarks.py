"""What a user should know of the data behind a selection, in sentences for the report."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distfms.methods.multiselect.training import Settings
from distfms.stats.base import Folded
from distfms.stats.judgments import JudgmentStatistics


def selection_remarks(train: JudgmentStatistics, projected_loss: float) -> list[str]:
    """Say what the user should know before trusting a selection.

    Parameters
    ----------
    train : JudgmentStatistics
        Of the training objects.
    projected_loss : float
        Of the selection.

    Returns
    -------
    list of str
        Sentences for the report.
    """
    found = []
    missing = train.n_objects - train.n_judged
    if missing.any():
        attributes = _counted(int(np.count_nonzero(missing)), "attribute")
        found.append(
            f"{attributes} without judgments of some training objects "
            f"({_counted(int(missing.sum()), 'cell')} in all); covariances rest on the objects "
            "that have both attributes."
        )
    weight, pairs = train.means.pair_weight, len(missing) * (len(missing) - 1) // 2
    together = pairs if weight is None else int(np.count_nonzero(np.triu(weight[:-1, :-1], 1)))
    if together < pairs:
        found.append(
            f"{_counted(pairs - together, 'pair')} of attributes (of {pairs:,}) never judged on "
            "the same object; their covariance is taken for 0."
        )
    if projected_loss < 0:
        found.append(
            "The projected loss is negative: there are too few objects for so many attributes, and "
            "the selection follows their noise. Trust the held-out losses, and try a "
            "`multiselect.ridge`, fewer attributes or more objects."
        )
    return found


def evaluation_remarks(
    settings: Settings, judgments: Folded[JudgmentStatistics], folds: Sequence[int]
) -> list[str]:
    """Say which attributes cannot be followed into every fold and the held-out objects.

    Parameters
    ----------
    settings : Settings
    judgments : Folded of JudgmentStatistics
    folds : sequence of int
        Those that are cross-validated over.

    Returns
    -------
    list of str
        Sentences for the report.
    """
    lost, unjudged = np.zeros((2, len(settings.names)), dtype=bool)
    for f in folds:
        lost |= ~settings.estimable(judgments.train_without(f))
        unjudged |= judgments.folds[f].n_judged == 0
    found = []
    if lost.any():
        found.append(
            f"Without one of the folds, {_named(settings.names, lost)} cannot be "
            "estimated; the cross-validation then selects among the others, and the projected loss "
            "has no interval."
        )
    if unjudged.any():
        found.append(
            f"Some folds hold no judgment of {_named(settings.names, unjudged)}; "
            "losses of models that use it are averaged over the other folds."
        )
    test = judgments.test
    if test.n_objects > 1 and (test.n_judged == 0).any():
        found.append(
            f"No held-out object has a judgment of {_named(settings.names, test.n_judged == 0)}; "
            "models that use it have no held-out loss."
        )
    return found


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _named(names: Sequence[str], marked: np.ndarray) -> str:
    chosen = [repr(names[int(a)]) for a in np.flatnonzero(marked)]
    return ", ".join(chosen[:5]) + (f" and {len(chosen) - 5} more" if len(chosen) > 5 else "")
