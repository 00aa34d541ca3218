"""How well classes are told apart: confusion counts and binned scores, which add up over rows.

Scores are counted on the scale of log-odds in bins of equal width from −16 to 16, so that curves
over all thresholds come from sums. Rows of one bin count as ties, half right; `auroc` returns how
far that can be from the value of unbinned scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

#: Log-odds of the outermost bins.
_LIMIT = 16.0
_N_BINS = 2048
CLASS_SUMS = ("confusion", "events", "others")
"""Names of `class_sums`."""
_CALIBRATION_GROUPS = 10


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 − p)), within the limit of the bins."""
    with np.errstate(divide="ignore"):
        found = np.log(probability) - np.log1p(-probability)
    return np.clip(found, -_LIMIT, _LIMIT)


def class_sums(
    target: np.ndarray,
    decoded: np.ndarray,
    weight: np.ndarray,
    n_classes: int,
    scores: np.ndarray,
    events: np.ndarray,
) -> dict[str, np.ndarray]:
    """Count rows by true and predicted class, and by score.

    Parameters
    ----------
    target, decoded : ndarray of shape (n,)
        Numbers of the true and the predicted class, 0 … r − 1.
    weight : ndarray of shape (n,)
        Not negative.
    n_classes : int
        r.
    scores : ndarray of shape (S, n)
        Larger where an event is more likely: log-odds where there are probabilities.
    events : ndarray of bool, shape (S, n)
        What each score is to tell: that the row is of a class, or above a level.

    Returns
    -------
    dict of str to ndarray
        ``confusion`` (r, r), weights by true and then by predicted class; ``events`` and
        ``others`` (S, 2048), weights by bin of rows with and without the event. All add up.
    """
    cells = target.astype(np.intp) * n_classes + decoded.astype(np.intp)
    place = np.clip((scores + _LIMIT) * (_N_BINS / (2 * _LIMIT)), 0, _N_BINS - 1).astype(np.intp)
    place += _N_BINS * np.arange(len(scores))[:, np.newaxis]

    def counted(rows: np.ndarray) -> np.ndarray:
        found = np.bincount(place.ravel(), (weight * rows).ravel(), scores.shape[0] * _N_BINS)
        return found.reshape(-1, _N_BINS)

    return {
        "confusion": np.bincount(cells, weight, n_classes**2).reshape(n_classes, n_classes),
        "events": counted(events),
        "others": counted(~events),
    }


def auroc(events: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the area under the ROC curve of binned scores, and the error that binning can make.

    Both of shape (…) for counts of shape (…, 2048); NaN where one side has no row.
    """
    pairs = events.sum(axis=-1) * others.sum(axis=-1)
    ties = (events * others).sum(axis=-1) / 2
    lower = ((np.cumsum(others, axis=-1) - others) * events).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return (lower + ties) / pairs, ties / pairs


def class_measures(sums: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return balanced accuracy, macro F1 and AUROC of a model; NaN where there is no row.

    The first is the mean recall of the classes that occur, the second the mean over classes that
    occur or are predicted; AUROC is the mean over the scores.
    """
    confusion, (area, _) = sums["confusion"], auroc(sums["events"], sums["others"])
    right, true = np.diagonal(confusion), confusion.sum(axis=1)
    both = true + confusion.sum(axis=0)
    shares = {
        "balanced_accuracy": right[true > 0] / true[true > 0],
        "macro_f1": 2 * right[both > 0] / both[both > 0],
        "auroc": area[np.isfinite(area)],
    }
    return {name: float(own.mean()) if own.size else np.nan for name, own in shares.items()}


def class_report(
    sums: Mapping[str, np.ndarray], names: list[Any], rows: str, *, calibrated: bool
) -> dict[str, Any]:
    """Return what ``metrics.json`` says of the classes by one model.

    `rows` says which rows were counted; `calibrated` whether the scores are log-odds of
    probabilities, which may then be compared with shares. Fewer scores than classes are those of
    the last ones.
    """

    def number(value: Any) -> float | None:
        return float(value) if np.isfinite(value) else None

    confusion, events, others = (sums[name] for name in CLASS_SUMS)
    area, error = auroc(events, others)
    share = confusion.sum(axis=1) / confusion.sum()
    return {
        "rows": rows,
        "names": names,
        "confusion": confusion.tolist(),
        "largest_share": float(share.max()),
        "auroc_by_class": [None] * (len(names) - len(area)) + [number(a) for a in area],
        "auroc_error": float(np.nan_to_num(error).max()),
        "bin_width": 2 * _LIMIT / _N_BINS,
        "calibration": _calibration(events, others) if calibrated else [],
        **{name: number(value) for name, value in class_measures(sums).items()},
    }


def _calibration(events: np.ndarray, others: np.ndarray) -> list[dict[str, float]]:
    """Compare probabilities with shares of rows, all scores together, in tenths of probability."""
    middle = (np.arange(_N_BINS) + 0.5) * (2 * _LIMIT / _N_BINS) - _LIMIT
    probability = 1.0 / (1.0 + np.exp(-middle))
    group = (probability * _CALIBRATION_GROUPS).astype(np.intp)
    own, whole = events.sum(axis=0), (events + others).sum(axis=0)
    sums = [np.bincount(group, a, _CALIBRATION_GROUPS) for a in (own, whole, whole * probability)]
    return [
        {"predicted": float(p / w), "observed": float(o / w), "weight": float(w)}
        for o, w, p in zip(*sums, strict=True)
        if w > 0
    ]
