"""The answer of a report in one sentence, and at most one more that warns or advises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.report.formatting import as_number, fixed, interval, percent, shorten
from distfms.report.metrics import error_of

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


def no_better(constant: str) -> str:
    """Say that a constant is as good as the model."""
    return sentence(f"Do not use this model: always answering {constant} is as good")


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
    trees = metrics.get("reference", {}).get(classes["rows"], {})
    confusion = np.array(classes["confusion"])
    auroc = as_number(classes["auroc"])
    by_trees = ""
    if len(confusion) == 2 and auroc is not None:
        error = _error_of_classes(metrics, "auroc")
        decimals = 3 if error is not None and error < 0.005 else 2
        spread = "" if error is None else f" ± {fixed(error, decimals)}"
        answer = f"AUROC {fixed(auroc, decimals)}{spread}"
        auroc_of_trees = as_number(trees.get("auroc"))
        if auroc_of_trees is not None:
            by_trees = f"{_TREES} {fixed(auroc_of_trees, decimals)}"
        return answer, by_trees
    share = float(np.trace(confusion) / confusion.sum())
    error = _error_of_classes(metrics, "accuracy")
    constant = percent(classes["largest_share"], 0)
    answer = f"{interval(share, error)} of rows correct (a constant: {constant})"
    accuracy_of_trees = as_number(trees.get("accuracy"))
    if accuracy_of_trees is not None:
        by_trees = f"{_TREES} {percent(accuracy_of_trees)}"
    return answer, by_trees


def _error_of_classes(metrics: Mapping[str, Any], measure: str) -> float | None:
    classes = metrics["classes"]
    return error_of(metrics, classes["rows"], classes.get("folds", ()), measure)
