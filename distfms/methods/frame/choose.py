"""How folds choose, and what is reported of a choice: the one place that compares losses.

Candidates are rows of a matrix of losses, from the simplest on; its columns are folds. What differs
in kind (a model, an order, a ridge, a similarity, a way to buy) is chosen by `best`; what differs
in amount (a stop, a number, a budget) by `fewest`. The losses that chose a candidate do not report
it: `chosen_without` chooses with the other folds in turn, and each choice is scored on the fold
that had no part in it. The models that the other folds judge have learned from this fold, though,
so that a choice that fits the one fits the others; of few rows the losses of models that learned
from neither tell the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from distfms.errors import DataError
from distfms.stats.base import over_folds

#: Standard deviation of normal values in units of their median absolute deviation.
NORMAL_MAD = 1.4826
#: From losses of shape (n_candidates, n_folds) and the weights of the folds to the one chosen.
Rule = Callable[[np.ndarray, np.ndarray], int]


def best(losses: np.ndarray, weights: ArrayLike) -> int:
    """Return the candidate with the least mean loss over folds; the first of equals.

    Parameters
    ----------
    losses : ndarray of shape (n_candidates, n_folds)
        Less is better. A candidate without a finite loss on every fold of positive weight is not
        chosen: its mean cannot be compared with the others'.
    weights : sequence of float, length n_folds
        Weight of the rows of each fold.

    Raises
    ------
    DataError
        If no candidate can be chosen.
    """
    means = _comparable_means(losses, weights)
    return int(np.argmin(means))


def fewest(losses: np.ndarray, weights: ArrayLike) -> int:
    """Return the first candidate that is not behind the best by more than a standard error.

    The standard error is that of the differences between the two, paired by fold; what all
    candidates find hard in a fold does not count. It is at most twice what the median deviation of
    the differences says, so that one odd fold, in which a candidate fails, does not excuse it. With
    one fold there is none, and the best is taken. Parameters and errors are those of `best`.

    References
    ----------
    Breiman, Friedman, Olshen, Stone, "Classification and Regression Trees" (1984), Section 3.4.3,
    where the standard error is that of the best candidate alone.
    """
    means = _comparable_means(losses, weights)
    least = int(np.argmin(means))
    differences = losses - losses[least]
    behind = over_folds(differences, weights)
    allowed = np.minimum(np.nan_to_num(behind.standard_error), _most_allowed(differences))
    is_close = np.isfinite(means) & (behind.mean <= allowed)
    return int(np.argmax(is_close))


def _most_allowed(differences: np.ndarray) -> np.ndarray:
    """Return twice the standard error of means (n_candidates,) by median deviations over folds."""
    n_folds = differences.shape[1]
    finite = np.where(np.isfinite(differences), differences, 0.0)
    medians = np.median(finite, axis=1, keepdims=True)
    deviations = NORMAL_MAD * np.median(np.abs(finite - medians), axis=1)
    return 2.0 * deviations / np.sqrt(max(n_folds - 1, 1))


def is_better(losses: np.ndarray, other_losses: np.ndarray, weights: ArrayLike) -> bool:
    """Return whether losses by fold are less than others by more than a standard error.

    Both have shape (n_folds,); the standard error is that of the differences, paired by fold.
    """
    gain = over_folds(other_losses - losses, weights)
    return bool(gain.mean > gain.standard_error)


@dataclass(frozen=True)
class InTurn:
    """The rule that chooses within groups of candidates first, then among what it chose there.

    Attributes
    ----------
    groups : tuple of tuple of int
        Candidates, from the simplest on.
    within : tuple of Rule
        For each group.
    among : Rule
    """

    groups: tuple[tuple[int, ...], ...]
    within: tuple[Rule, ...]
    among: Rule

    def __call__(self, losses: np.ndarray, weights: np.ndarray) -> int:
        """Return the candidate that is chosen; raises as `best` does."""
        chosen = []
        for group, rule in zip(self.groups, self.within, strict=True):
            candidates = np.array(group)
            place = rule(losses[candidates], weights) if len(group) > 1 else 0
            chosen.append(group[place])
        return chosen[self.among(losses[chosen], weights)]


def chosen_without(
    losses: np.ndarray, weights: ArrayLike, rule: Rule = best, of_pairs: np.ndarray | None = None
) -> np.ndarray:
    """Choose with the losses of all folds but one, for each fold in turn.

    Parameters
    ----------
    losses : ndarray of shape (n_candidates, n_folds)
        Of everything that was chosen on these folds, kinds and amounts together.
    weights : sequence of float, length n_folds
    rule : callable, optional
        The whole of the choice, as it was made on all folds.
    of_pairs : ndarray of shape (n_candidates, n_folds, n_folds), optional
        At [:, j, k] losses on fold j of what learned without j and k: these choose without k.

    Returns
    -------
    ndarray of int, shape (n_folds,)
        The candidate that is chosen without each fold. With one fold, that of all folds.

    Notes
    -----
    The least of many mean losses is less than the loss of the model on new rows, as it was chosen
    for being least. The mean of ``losses[choices, folds]`` is the cross-validated loss of the
    choice itself; what is left is that the folds' models learn from fewer rows. That is exact with
    `of_pairs`. Else the model that fold j judges has learned from fold k: where the rows of j and k
    agree by chance, it is better on j just as that of the others is on k. Of noise, 60 rows of ten
    numbers with two classes, headlines of sequences claimed 4.7 points of AUROC so, .5 with pairs.

    References
    ----------
    Stone, "Cross-validatory choice and assessment of statistical predictions" (1974), Section 3;
    Tibshirani and Tibshirani, "A bias correction for the minimum error rate in cross-validation"
    (2009).
    """
    fold_weights = np.asarray(weights, dtype=np.float64)
    n_folds = len(fold_weights)
    if n_folds < 2:
        return np.full(n_folds, rule(losses, fold_weights))
    choices = np.empty(n_folds, dtype=np.intp)
    for fold in range(n_folds):
        is_kept = np.arange(n_folds) != fold
        compared = losses if of_pairs is None else of_pairs[:, :, fold]
        choices[fold] = rule(compared[:, is_kept], fold_weights[is_kept])
    return choices


def _comparable_means(losses: np.ndarray, weights: ArrayLike) -> np.ndarray:
    """Return the mean losses, infinite for candidates without a finite one on every fold."""
    counted = np.asarray(weights, dtype=np.float64) > 0
    is_known = np.isfinite(losses[:, counted]).all(axis=1)
    if not (is_known.any() and counted.any()):
        raise DataError(
            "Nothing could be measured on every fold: some folds have too few rows, or a constant "
            "target. Choose fewer folds (`data.folds`)."
        )
    return np.where(is_known, over_folds(losses, weights).mean, np.inf)
