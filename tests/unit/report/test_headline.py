"""Headlines of runs of many kinds: one sentence that can be read aloud, and one that advises."""

import re

import numpy as np
import pandas as pd
import pytest

import distfms
from distfms.report.headline import MOST, lines, of_classes, sentence

N = 120
#: Words for the evidence, not for the answer.
NOT_SAID = re.compile(
    r"deviance|standard error|cross-validation|held-out|landmarks of|gaussian|DDAERR|ridge =|NaN|–",
    re.IGNORECASE,
)


def table(signal, n_groups, long_names=False):
    """Columns of which the first two tell the target, as far as the signal is above 0."""
    rng = np.random.default_rng(n_groups)
    values = rng.normal(size=(N, n_groups))
    suffix = " of all that was ever measured anywhere" * long_names
    frame = pd.DataFrame(values, columns=[f"column {k}{suffix}" for k in range(n_groups)])
    score = signal * values[:, : min(2, n_groups)].sum(axis=1) + rng.normal(size=N)
    return frame.assign(score=score)


def target_of(score, kind):
    if kind == "class":
        return np.where(score > 0, "a yes that is long enough to be cut", "no")
    if kind == "level":
        return pd.qcut(score, 3, labels=["low", "middle", "high"]).astype(str)
    if kind == "count":
        return np.round(np.exp(score.clip(-3, 3)))
    return score


SEQUENCES = [
    (kind, signal, n_groups, priced, folds)
    for kind in ("number", "class", "level", "count")
    for signal, n_groups, priced, folds in ((2.0, 6, True, 3), (0.0, 6, False, 3), (2.0, 1, 1, 0))
]


@pytest.mark.parametrize(("kind", "signal", "n_groups", "priced", "folds"), SEQUENCES)
def test_of_sequences(kind, signal, n_groups, priced, folds):
    frame = table(signal, n_groups, long_names=True)
    y = target_of(frame.pop("score"), kind)
    names = list(frame)
    costs = {name: 1.0 + k for k, name in enumerate(names)} if priced else {}
    family = {"count": "poisson", "level": "softmax", "class": "logistic"}.get(kind, "gaussian")
    classify = kind in ("class", "level")
    make = distfms.GroupSequenceClassifier if classify else distfms.GroupSequencer
    model = make(family=family, costs=costs, folds=folds, model="linear", random_state=0)
    check(model.fit(frame, y), is_useful=signal > 0 and folds > 0)


@pytest.mark.parametrize(("signal", "folds", "few"), [(2.0, 3, 2), (0.0, 3, 2), (2.0, 0, 4)])
def test_of_few_attributes(signal, folds, few):
    frame = table(signal, 6, long_names=True)
    y = frame.pop("score")
    model = distfms.AttributeEfficientRidge(attributes_per_example=few, folds=folds)
    check(model.fit(frame, y), is_useful=signal > 0 and folds > 0)


def check(model, is_useful):
    """Hold what any headline must be, and return it."""
    said = model.model_.headline().replace("\u00a0", " ")
    answer, *advice = said.split("\n")
    assert len(advice) <= 1
    for line in (answer, *advice):
        assert 20 < len(line) <= MOST, line
        assert line.endswith("."), line
        assert not NOT_SAID.search(line), line
    bad = re.match(r"Do not|Measure nothing|Buy nothing|Use no", answer)
    assert not (is_useful and bad), answer
    if is_useful:
        assert "%" in answer or "AUROC" in answer
    return said


def test_a_sentence_takes_the_clauses_that_fit():
    assert sentence("Buy it", ": it is good", "x" * 200, ", and cheap") == (
        "Buy it: it is good, and cheap."
    )
    assert lines("One.", "", "Two.", "Three.") == "One.\nTwo."


def test_classes_are_told_by_auroc_or_by_rows_that_are_correct():
    two = {"confusion": [[80, 20], [10, 40]], "auroc": 0.875, "rows": "validation"}

    aurocs = [{"fold": 0, "auroc": 0.85, "accuracy": 0.7}, {"fold": 1, "auroc": 0.9}]
    sizes = [{"fold": fold, "n_rows": 75} for fold in (0, 1)]
    # Two folds: half of their difference is the standard error of their mean.
    classes = {**two, "folds": aurocs}
    trees = {"validation": {"auroc": 0.9, "accuracy": 0.5}}
    metrics = {"classes": classes, "folds": sizes, "reference": trees}
    assert of_classes(metrics) == ("AUROC 0.88 ± 0.03", "; LightGBM on all columns 0.90")
    assert of_classes({"classes": two, "folds": []}) == ("AUROC 0.88", "")
    classes |= {"confusion": [[80, 10, 10], [0, 50, 0], [0, 0, 50]], "largest_share": 0.5}
    aurocs[1]["accuracy"] = 0.74
    assert of_classes(metrics) == (
        "72\u00a0±\u00a02% of rows correct (a constant: 50%)",
        "; LightGBM on all columns 50%",
    )
