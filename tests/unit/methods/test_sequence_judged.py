"""Shares that folds say are explained of rare classes."""

import numpy as np
import pytest

from distfms import GroupSequenceClassifier
from distfms.methods.frame.judge import Judge, JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.sequence.choice import Candidate
from distfms.methods.sequence.class_figures import spent_without_folds
from distfms.methods.sequence.judged import measures_of, pooled
from distfms.solve.losses import FAMILIES
from distfms.stats.folds import FoldAnswers


def answer(deviances, accuracy=0.9):
    losses = np.array(deviances)
    return {
        "deviance": losses,
        "explained_deviance": 1.0 - losses / losses[0],
        "accuracy": np.full(len(losses), accuracy),
    }


def answers(*of_folds):
    n = len(of_folds)
    return FoldAnswers(tuple(range(n)), (10,) * n, (10.0,) * n, (of_folds,))


def test_a_fold_with_little_to_explain_counts_for_little():
    folds = answers(answer([0.01, 0.001]), answer([1.0, 1.01]))
    mean = pooled(folds, "explained_deviance").means(0, "explained_deviance").mean
    assert mean == pytest.approx([0.0, 1.0 - 1.011 / 1.01])


def test_rows_of_one_class_tell_nothing_of_models():
    folds = answers(answer([0.1, 0.0], 1.0), answer([0.1, 0.01], 1.0))
    of_folds = pooled(folds, "explained_deviance").values(0, "explained_deviance")
    np.testing.assert_array_equal(of_folds, np.zeros((2, 2)))


@pytest.mark.parametrize("weights", [None, (1.0, 3.0)])
def test_nothing_explained_is_the_deviance_of_the_shares_of_all_rows(weights):
    outcome = Responses(FAMILIES["logistic"], (0.0, 1.0), weights)
    target = np.array([[0.0, 0.0, 0.0, 1.0]])
    scores = np.zeros((2, 1, 4))
    judge = Judge(outcome)
    sums = judge.of_scores(scores, JudgedRows(np.empty((0, 4)), target))
    shares = np.array([0.9, 0.1])
    counts = np.array([3.0, 1.0]) * (weights or 1.0)
    measures = measures_of(judge, sums, shares)
    expected = -2.0 * counts @ np.log(shares) / counts.sum()
    assert measures["deviance"] == pytest.approx([expected, 2.0 * np.log(2.0)])


def test_no_group_is_bought_where_a_class_is_in_one_fold():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 5))
    y = np.arange(40) == 7
    model = GroupSequenceClassifier(model="linear", folds=5).fit(X, y)
    assert not np.ptp(model.predict_proba(X), axis=0).any()


def test_each_fold_is_judged_by_what_the_others_spend():
    losses = np.array([[4.0, 4.0, 4.0], [1.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    folds = FoldAnswers((0, 1, 2), (9, 9, 9), (9.0, 9.0, 9.0), ())
    candidate = Candidate(losses, [0, 1, 2])
    spent = spent_without_folds(np.array([0.0, 2.0, 5.0]), folds, [candidate])
    # Without the first fold, two groups are ahead on both others; else one is within an error.
    assert spent == {0: 5.0, 1: 2.0, 2: 2.0}
