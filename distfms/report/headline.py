"""The answer of a report in one sentence, and at most one more that warns or advises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.report.formatting import fixed, interval, percent, shorten
from distfms.report.metrics import auroc_of, error_of, told_apart

#: Characters of a sentence.
MOST = 140
UNMEASURED = "Measured on the training rows only: set `data.folds` or `data.test` to judge others."
_NAME_WIDTH = 20
_TREES = "; LightGBM on all columns"


def sentence(answer: str, *clauses: str) -> str:
    """End an answer with the clauses, in order, that fit into :data:`MOST` characters."""
    for clause in clauses:
        if len(answer) + len(clause) < MOST:
            answer += clause
    return f"{answer}."


def lines(answer: str, *advice: str) -> str:
    """Put the first advice there is on a line below the answer."""
    return "\n".join([answer, *filter(None, advice)][:2])


def called(name: str) -> str:
    """Set a name of the user's off from the sentence."""
    return f"`{shorten(name, _NAME_WIDTH)}`"


def no_better(constant: str, worth: str, comparison: str = "as good") -> str:
    """Say that a constant is as good as the model, and what that is worth."""
    return f"Do not use this model: always answering {constant} is {comparison}; {worth}."


def constant_answer(metrics: Mapping[str, Any]) -> str:
    """Return what the best constant model answers: the most frequent class, or the mean."""
    classes = metrics.get("classes")
    if not classes:
        return "the mean"
    n_true = np.array(classes["confusion"]).sum(axis=1)
    return called(classes["names"][int(n_true.argmax())])


def of_classes(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Say how well classes are told apart, and how well by LightGBM on all columns, if it is there.

    AUROC of two classes, the share of correct rows of more; errors are by the spread over folds.
    """
    classes = metrics["classes"]
    confusion = np.array(classes["confusion"])
    auroc = auroc_of(metrics)
    if len(confusion) == 2 and auroc is not None:
        error = error_of_auroc(metrics)
        decimals = 3 if error is not None and error < 0.005 else 2
        spread = "" if error is None else f" ± {fixed(error, decimals)}"
        answer = f"AUROC {fixed(auroc, decimals)}{spread}"
        auroc_of_trees = _of_trees(metrics, "auroc")
        if auroc_of_trees is None:
            return answer, ""
        return answer, f"{_TREES} {fixed(auroc_of_trees, decimals)}"
    correct = float(np.trace(confusion) / confusion.sum())
    share = told_apart(metrics, classes.get("folds", ()), "accuracy", correct)
    error = _error_of_classes(metrics, "accuracy")
    constant = percent(classes["largest_share"], 0)
    answer = f"{interval(share, error)} of rows correct (a constant: {constant})"
    accuracy_of_trees = _of_trees(metrics, "accuracy")
    if accuracy_of_trees is None:
        return answer, ""
    return answer, f"{_TREES} {percent(accuracy_of_trees)}"


def _of_trees(metrics: Mapping[str, Any], measure: str) -> float | None:
    trees = metrics.get("reference", {})
    of_all = trees.get(metrics["classes"]["rows"], {}).get(measure)
    return told_apart(metrics, trees.get("folds", ()), measure, of_all)


def error_of_auroc(metrics: Mapping[str, Any]) -> float | None:
    """Return the standard error of an AUROC by its spread over folds.

    Where some fold lacks rows of a class it is at least what so few rows allow.
    """
    classes = metrics["classes"]
    error = _error_of_classes(metrics, "auroc")
    is_of_all = all(fold["auroc"] is not None for fold in classes.get("folds", ()))
    of_rows = classes.get("sampling_error")
    if error is None or of_rows is None or is_of_all:
        return error
    return max(error, of_rows)


def _error_of_classes(metrics: Mapping[str, Any], measure: str) -> float | None:
    classes = metrics["classes"]
    return error_of(metrics, classes["rows"], classes.get("folds", ()), measure)
