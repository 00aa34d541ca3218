"""How well classes are told apart: confusion counts and binned scores, which add up over rows.

Scores, log-odds where there are probabilities, are counted in bins, so that curves over all
thresholds come from sums. Bins are 1/64 wide about 0 and widen as scores grow, up to ±109: log-odds
of rare events are far from 0, and there ratios count. Rows of one bin count as ties, half right;
`auroc` returns how far that can be from the value of unbinned scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

#: Bins are of equal width on the scale of asinh(score / _BEND), within ±_END.
_BEND = 4.0
_END = 4.0
_N_BINS = 2048
#: Scores of the edges of the bins.
_EDGES = _BEND * np.sinh(np.linspace(-_END, _END, _N_BINS + 1))
CLASS_SUMS = ("confusion", "events", "others")
"""Names of `class_sums`."""
_CALIBRATION_GROUPS = 10


def log_odds(probability: np.ndarray) -> np.ndarray:
    """Return log(p / (1 − p)), within the outermost bins."""
    with np.errstate(divide="ignore"):
        odds = np.log(probability) - np.log1p(-probability)
    return np.clip(odds, _EDGES[0], _EDGES[-1])


def shares_of(outputs: np.ndarray) -> np.ndarray:
    """Return probabilities of all classes (n, r); of two a model may give that of the second."""
    return np.concatenate((1.0 - outputs, outputs), axis=1) if outputs.shape[1] == 1 else outputs


def decided(shares: np.ndarray, weights: Any, threshold: float) -> np.ndarray:
    """Return numbers of the predicted classes, from probabilities (n, r)."""
    if threshold != 0.5:
        return (shares[:, 1] >= threshold).astype(np.intp)
    return np.asarray((shares * weights).argmax(axis=1))


def _bin_numbers(scores: np.ndarray) -> np.ndarray:
    """Return where scores are among the edges, from 0 to the number of bins, as fractions."""
    scaled = np.arcsinh(scores / _BEND) / _END
    return (scaled + 1.0) * (_N_BINS / 2)


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
    confusion = np.bincount(cells, weight, n_classes**2)
    bins = np.clip(_bin_numbers(scores), 0, _N_BINS - 1).astype(np.intp)
    return {
        "confusion": confusion.reshape(n_classes, n_classes),
        "events": _counts_by_bin(bins, weight * events),
        "others": _counts_by_bin(bins, weight * ~events),
    }


def _counts_by_bin(bins: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Add up weights (S, n) by score and bin, to (S, 2048)."""
    n_scores = len(bins)
    first_bins = _N_BINS * np.arange(n_scores)
    cells = bins + first_bins[:, np.newaxis]
    counts = np.bincount(cells.ravel(), weight.ravel(), n_scores * _N_BINS)
    return counts.reshape(n_scores, _N_BINS)


def auroc(events: np.ndarray, non_events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the area under the ROC curve of binned scores, and the error that binning can make.

    Parameters
    ----------
    events, non_events : ndarray of shape (…, 2048)
        Weights by bin of rows with the event (e) and without it (o).

    Returns
    -------
    area, error : ndarray of shape (…)
        NaN where one side has no row.

    Notes
    -----
    The area is the chance that a row with the event has the larger score (Hanley and McNeil,
    "The meaning and use of the area under a ROC curve", 1982), ties counting half:
    Σ_b e_b (Σ_{a<b} o_a + o_b / 2) / (Σ e Σ o). The error is the part of the ties.
    """
    pairs = events.sum(axis=-1) * non_events.sum(axis=-1)
    ties = np.sum(events * non_events, axis=-1) / 2
    below = np.cumsum(non_events, axis=-1) - non_events
    lower = np.sum(below * events, axis=-1)
    with np.errstate(invalid="ignore"):
        return (lower + ties) / pairs, ties / pairs


def sampling_error(sums: Mapping[str, np.ndarray], n_rows: int) -> float | None:
    """Return the standard error of the area under the ROC curve that is due to so few rows.

    Parameters
    ----------
    sums : mapping of str to ndarray
        See `class_sums`, of one score.
    n_rows : int
        How many rows their weights are of.

    Returns
    -------
    float or None
        With area A, n₁ events and n₀ other rows, the root of (A(1 − A) + (n₁ − 1)(A/(2 − A) − A²)
        + (n₀ − 1)(2A²/(1 + A) − A²)) / (n₁n₀); None where one side has no row.

    References
    ----------
    Hanley, McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC)
    curve", Radiology 143 (1982), equation 2.
    """
    events, others = sums["events"][-1], sums["others"][-1]
    area = float(auroc(events, others)[0])
    if not np.isfinite(area):
        return None
    rows_per_weight = n_rows / (events.sum() + others.sum())
    n_events = rows_per_weight * events.sum()
    n_others = rows_per_weight * others.sum()
    of_events = max(n_events - 1, 0.0) * (area / (2 - area) - area**2)
    of_others = max(n_others - 1, 0.0) * (2 * area**2 / (1 + area) - area**2)
    variance = (area * (1 - area) + of_events + of_others) / (n_events * n_others)
    return float(np.sqrt(variance))


def average_precision(events: np.ndarray, non_events: np.ndarray) -> np.ndarray:
    """Return the area under the curve of precision against recall, by steps, of binned scores.

    Of shape (…) for counts of shape (…, 2048); NaN where there is no event. With e_b events in bin
    b it is Σ_b e_b P_b / Σ e, where P_b is the share of events among the rows from b on.
    """
    n_right = _at_least(events)
    n_wrong = _at_least(non_events)
    with np.errstate(invalid="ignore"):
        precision = np.nan_to_num(n_right / (n_right + n_wrong))
        total = np.sum(events * precision[..., :-1], axis=-1)
        return np.asarray(total / events.sum(axis=-1))


def _at_least(counts: np.ndarray) -> np.ndarray:
    """Return the counts of rows in each bin or above it, (…, 2049); 0 above the last."""
    descending = np.cumsum(counts[..., ::-1], axis=-1)
    above_last = np.zeros_like(counts[..., :1])
    return np.concatenate((descending[..., ::-1], above_last), axis=-1)


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
    n_right = _at_least(sums["events"][-1])
    n_wrong = _at_least(sums["others"][-1])
    with np.errstate(invalid="ignore"):
        value = _value_of_thresholds(n_right, n_wrong, rule)
    value = np.nan_to_num(value, nan=-np.inf)
    greatest = value.max()
    is_best = value >= greatest - 1e-12 * abs(greatest)
    best_odds = _EDGES[is_best]
    nearest = np.argmin(np.abs(best_odds))
    return float(1.0 / (1.0 + np.exp(-best_odds[nearest])))


def _value_of_thresholds(
    n_right: np.ndarray, n_wrong: np.ndarray, rule: str | Sequence[float]
) -> np.ndarray:
    """Return what is to be greatest: F1, the sum of recalls − 1, or the negative cost.

    `n_right` and `n_wrong` are the rows with and without the event that are predicted to have it,
    by threshold; the first threshold predicts it of all.
    """
    n_events = n_right[0]
    if rule == "f1":
        return 2 * n_right / (n_right + n_wrong + n_events)
    if isinstance(rule, str):
        return n_right / n_events - n_wrong / n_wrong[0]
    return -(rule[0] * n_wrong + rule[1] * (n_events - n_right))


def at_threshold(sums: Mapping[str, np.ndarray], threshold: float) -> dict[str, np.ndarray]:
    """Return the sums of two classes with the second predicted from this probability on.

    Bins are not divided: the threshold is taken for the nearest edge of one.
    """
    odds = log_odds(np.array(threshold))
    edge = round(float(_bin_numbers(odds)))
    counts = np.stack((sums["others"][-1], sums["events"][-1]))
    as_first = counts[:, :edge].sum(axis=1)
    as_second = counts[:, edge:].sum(axis=1)
    return {**sums, "confusion": np.column_stack((as_first, as_second))}


def class_measures(sums: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return balanced accuracy, macro F1, AUROC and AUPRC of a model; NaN where there is no row.

    With C the ``confusion``, the first is the mean recall C_kk / Σ_j C_kj of the classes that occur
    (Brodersen et al., "The balanced accuracy and its posterior distribution", 2010); the second the
    mean over classes that occur or are predicted of F1, 2 C_kk / Σ_j (C_kj + C_jk). AUROC and AUPRC
    (`average_precision`) are means over the scores.
    """
    confusion = sums["confusion"]
    area, _ = auroc(sums["events"], sums["others"])
    precision = average_precision(sums["events"], sums["others"])
    with np.errstate(invalid="ignore"):
        recall = np.diagonal(confusion) / confusion.sum(axis=1)
    return {
        "balanced_accuracy": _mean_of_known(recall),
        "macro_f1": _mean_of_known(_f1_by_class(confusion)),
        "auroc": _mean_of_known(area),
        "auprc": _mean_of_known(precision),
    }


def _f1_by_class(confusion: np.ndarray) -> np.ndarray:
    """Return 2 TP / (2 TP + FP + FN) of each class; NaN for one that neither occurs nor is said."""
    n_right = np.diagonal(confusion)
    n_true_or_predicted = confusion.sum(axis=0) + confusion.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return 2 * n_right / n_true_or_predicted


def _mean_of_known(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


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

    confusion = sums["confusion"]
    share = confusion.sum(axis=1) / confusion.sum()
    area, error = auroc(sums["events"], sums["others"])
    n_without_score = len(names) - len(area)
    report = {
        "rows": rows,
        "names": names,
        "confusion": confusion.tolist(),
        "threshold": threshold,
        "f1_by_class": _numbers(_f1_by_class(confusion)),
        "largest_share": float(share.max()),
        "auroc_by_class": [None] * n_without_score + _numbers(area),
        "auroc_error": float(np.nan_to_num(error).max()),
        "calibration": _calibration(sums) if calibrated else [],
    }
    measures = class_measures(sums)
    return report | dict(zip(measures, _numbers(measures.values()), strict=True))


def _numbers(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON has them: None for one that does not exist."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _calibration(sums: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Compare probabilities with shares of rows, all scores together, in tenths of probability.

    In each tenth Σ w p / Σ w, with the p of the middle of a bin, beside the share of events.
    """
    middle = (_EDGES[1:] + _EDGES[:-1]) / 2
    probability = 1.0 / (1.0 + np.exp(-middle))
    tenths = np.floor(probability * _CALIBRATION_GROUPS)
    groups = np.minimum(tenths, _CALIBRATION_GROUPS - 1).astype(np.intp)
    events = sums["events"].sum(axis=0)
    rows = (sums["events"] + sums["others"]).sum(axis=0)
    columns = [
        np.bincount(groups, weights, _CALIBRATION_GROUPS)
        for weights in (probability * rows, events, rows)
    ]
    entries = []
    for predicted, observed, weight in np.transpose(columns):
        if weight > 0:
            entries.append(
                {
                    "predicted": float(predicted / weight),
                    "observed": float(observed / weight),
                    "weight": float(weight),
                }
            )
    return entries
