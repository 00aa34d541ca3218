"""How well classes are told apart: confusion counts and binned scores, which add up over rows.

Scores, log-odds where there are probabilities, are counted in bins, so that curves over all
thresholds come from sums. Bins are 1/64 wide about 0 and widen as scores grow, up to ±109: log-odds
of rare events are far from 0, and there ratios count. Rows of one bin count as ties, half right;
`auroc` returns how far that can be from the value of unbinned scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Bins are of equal width on the scale of asinh(score / _BEND), within ±_END.
_BEND, _END = 4.0, 4.0
_N_BINS = 2048
#: Scores of the edges of the bins.
_EDGES = _BEND * np.sinh(np.linspace(-_END, _END, _N_BINS + 1))
CLASS_SUMS = ("confusion", "events", "others")
"""Names of `class_sums`."""
_CALIBRATION_GROUPS = 10


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 − p)), within the outermost bins."""
    with np.errstate(divide="ignore"):
        found = np.log(probability) - np.log1p(-probability)
    return np.clip(found, _EDGES[0], _EDGES[-1])


def _place(scores: np.ndarray) -> np.ndarray:
    """Return where scores are among the bins, 0 to their number."""
    return (np.arcsinh(scores / _BEND) / _END + 1.0) * (_N_BINS / 2)


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
    place = np.clip(_place(scores), 0, _N_BINS - 1).astype(np.intp)
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


def average_precision(events: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the area under the curve of precision against recall, by steps, of binned scores.

    Of shape (…) for counts of shape (…, 2048); NaN where there is no event.
    """
    right, wrong = _above(events), _above(others)
    with np.errstate(invalid="ignore"):
        precision = np.nan_to_num(right / (right + wrong))[..., :-1]
        return np.asarray((events * precision).sum(axis=-1) / events.sum(axis=-1))


def _above(counts: np.ndarray) -> np.ndarray:
    """Return the counts of rows in each bin or above it, (…, 2049); 0 above the last."""
    above = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1]
    return np.concatenate((above, np.zeros_like(above[..., :1])), axis=-1)


def best_threshold(sums: Mapping[str, np.ndarray], rule: str | Sequence[float]) -> float:
    """Return the probability from which on the second of two classes is best predicted.

    Parameters
    ----------
    sums : mapping of str to ndarray
        See `class_sums`; the scores are log-odds.
    rule : {"f1", "balanced"} or pair of float
        What is to be greatest: F1 of the second class, or balanced accuracy. Or what it costs to
        predict the second class of a row of the first, and the first of a row of the second: the
        sum over the rows is to be least.

    Returns
    -------
    float
        Between 0 and 1; of several equally good, the one nearest to ½.
    """
    right, wrong = _above(sums["events"][-1]), _above(sums["others"][-1])
    n_events, n_others = right[0], wrong[0]
    with np.errstate(invalid="ignore"):
        if rule == "f1":
            value = 2 * right / (right + wrong + n_events)
        elif isinstance(rule, str):
            value = right / n_events - wrong / n_others
        else:
            value = -(rule[0] * wrong + rule[1] * (n_events - right))
    value = np.nan_to_num(value, nan=-np.inf)
    best = _EDGES[value >= value.max() - 1e-12 * abs(value.max())]
    return float(1.0 / (1.0 + np.exp(-best[np.abs(best).argmin()])))


def at_threshold(sums: Mapping[str, np.ndarray], threshold: float) -> dict[str, np.ndarray]:
    """Return the sums of two classes with the second predicted from this probability on.

    Bins are not divided: the threshold is taken for the nearest edge of one.
    """
    edge = round(float(_place(log_odds(np.array(threshold)))))
    events, others = sums["events"][-1], sums["others"][-1]
    rows = [[own[:edge].sum(), own[edge:].sum()] for own in (others, events)]
    return {**sums, "confusion": np.array(rows)}


def class_measures(sums: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return balanced accuracy, macro F1, AUROC and AUPRC of a model; NaN where there is no row.

    The first is the mean recall of the classes that occur, the second the mean over classes that
    occur or are predicted; AUROC and AUPRC (average precision) are means over the scores.
    """
    confusion, (area, _) = sums["confusion"], auroc(sums["events"], sums["others"])
    right, true = np.diagonal(confusion), confusion.sum(axis=1)
    both = true + confusion.sum(axis=0)
    precision = average_precision(sums["events"], sums["others"])
    shares = {
        "balanced_accuracy": right[true > 0] / true[true > 0],
        "macro_f1": 2 * right[both > 0] / both[both > 0],
        "auroc": area[np.isfinite(area)],
        "auprc": precision[np.isfinite(precision)],
    }
    return {name: float(own.mean()) if own.size else np.nan for name, own in shares.items()}


def class_report(
    sums: Mapping[str, np.ndarray],
    names: list[Any],
    rows: str,
    *,
    calibrated: bool,
    threshold: float = 0.5,
) -> dict[str, Any]:
    """Return what ``metrics.json`` says of the classes by one model.

    `rows` says which rows were counted; `calibrated` whether the scores are log-odds of
    probabilities, which may then be compared with shares. Fewer scores than classes are those of
    the last ones. Of two classes the second is predicted from the probability `threshold` on.
    """
    if threshold != 0.5:
        sums = at_threshold(sums, threshold)

    def number(value: Any) -> float | None:
        return float(value) if np.isfinite(value) else None

    confusion, events, others = (sums[name] for name in CLASS_SUMS)
    area, error = auroc(events, others)
    share = confusion.sum(axis=1) / confusion.sum()
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    right = np.diagonal(confusion)
    return {
        "rows": rows,
        "names": names,
        "confusion": confusion.tolist(),
        "threshold": threshold,
        "f1_by_class": [2 * r / b if b else None for r, b in zip(right, both, strict=True)],
        "largest_share": float(share.max()),
        "auroc_by_class": [None] * (len(names) - len(area)) + [number(a) for a in area],
        "auroc_error": float(np.nan_to_num(error).max()),
        "calibration": _calibration(events, others) if calibrated else [],
        **{name: number(value) for name, value in class_measures(sums).items()},
    }


def _calibration(events: np.ndarray, others: np.ndarray) -> list[dict[str, float]]:
    """Compare probabilities with shares of rows, all scores together, in tenths of probability."""
    middle = (_EDGES[1:] + _EDGES[:-1]) / 2
    probability = 1.0 / (1.0 + np.exp(-middle))
    group = np.minimum(probability * _CALIBRATION_GROUPS, _CALIBRATION_GROUPS - 1).astype(np.intp)
    own, whole = events.sum(axis=0), (events + others).sum(axis=0)
    sums = [np.bincount(group, a, _CALIBRATION_GROUPS) for a in (own, whole, whole * probability)]
    return [
        {"predicted": float(p / w), "observed": float(o / w), "weight": float(w)}
        for o, w, p in zip(*sums, strict=True)
        if w > 0
    ]
