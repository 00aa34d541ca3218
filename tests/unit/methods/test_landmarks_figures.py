"""The headline of landmarks: what to do with the model, beside a linear one and LightGBM."""

import pytest

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.landmarks.answer_figures import headline

WORSE, LEVEL, BETTER = ({"behind": by, "standard_error": 0.1} for by in (-0.3, 0.05, 0.4))
EXPLAINS = "explains 82 ± 8% of the variation in new rows"


def finished(measure, linear=None, trees=None, is_better=True, task="regression", part="test"):
    """A run whose model has .18 as its measure, and twice that on one of two folds."""
    measures = {measure: 0.1834, "r2": 0.82}
    folds = [
        {"fold": 0, "n_rows": 50, measure: 0.18, "r2": 0.82},
        {"fold": 1, "n_rows": 50, measure: 0.36, "r2": 0.64},
    ]
    metrics = {
        "measure": measure,
        "curves": [{"name": "gaussian", "points": [{"budget": 9, part: measures}]}],
        "folds": folds if part == "test" else [],
        "test": {"n_rows": 125},
        "constant": {"answer": "the mean", "model_is_better": is_better},
    }
    beside = {"linear model on the columns": linear, "LightGBM": trees}
    metrics["beside"] = {name: entry for name, entry in beside.items() if entry}
    return FinishedRun({"task": task}, metrics, {}, {}, {})


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (finished("mse"), f"Use this model: it {EXPLAINS}."),
        (
            finished("mse", WORSE, WORSE),
            f"Use this model: it {EXPLAINS}, better than a linear model and LightGBM.",
        ),
        (
            finished("mse", LEVEL, WORSE),
            f"Use a linear model instead: it is as good as this model, which {EXPLAINS}.",
        ),
        (
            finished("mse", WORSE, LEVEL),
            f"Use this model or LightGBM, which is as good: it {EXPLAINS}.",
        ),
        (
            finished("mse", LEVEL, BETTER),
            f"Use LightGBM instead: it is better than this model, which {EXPLAINS}.",
        ),
        (
            finished("mse", is_better=False),
            f"Do not use this model: always answering the mean is as good; the model {EXPLAINS}.",
        ),
        (
            finished("error", BETTER, part="train"),
            "Use a linear model instead: it is better than this model, which gets 82% of the rows "
            "it learned from right.",
        ),
        (
            finished("mae", task="ordinal"),
            "Use this model: it is off by 0.18 ± 0.08 levels on average in new rows.",
        ),
        (finished("ndcg@5"), "Use this model: it ranks new rows with NDCG@5 0.18 ± 0.08."),
    ],
)
def test_the_headline_says_what_to_do(run, expected):
    text = headline(run).replace("\xa0", " ")
    assert text == expected
    assert len(text) <= 140
