"""The judge: what it adds up in pieces, and its measures against their definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from distfms.methods.frame.judge import Judge, JudgedRows, LossSums, squared_errors
from distfms.methods.frame.outcomes import Margins, Numbers, Responses
from distfms.methods.frame.ranking import ndcg
from distfms.solve.losses import FAMILIES, OrdinalMargin
from distfms.stats.comoments import CoMoments

N_ROWS = 60


@dataclass(frozen=True)
class Linear:
    """Models with weights (M, P, d)."""

    weights: np.ndarray

    def __call__(self, features):
        return self.weights @ features


def rows_of(target):
    rng = np.random.default_rng(5)
    features = rng.normal(size=(3, N_ROWS))
    weight = rng.uniform(0.5, 2.0, N_ROWS)
    return JudgedRows(features, target(features), weight)


def numbers(features):
    return features[:2] + 0.3 * features[2] + 1e3


def two_classes(features):
    return np.where(features[:1] + features[2] > 0, 7.0, 4.0)


def three_classes(features):
    return np.array([2.0, 4.0, 8.0])[np.digitize(features[:1], [-0.5, 0.5])]


LEVELS = OrdinalMargin(0.1, n_levels=3, gamma=0.5, spacing=0.1)
THRESHOLDS = [np.array([-0.5, 1.0 + number]) for number in range(4)]
OUTCOMES = {
    "numbers": (Numbers(absolute=True), numbers, 2),
    "labels": (Numbers(threshold=5.5, tells_classes=True), two_classes, 1),
    "logistic": (Responses(FAMILIES["logistic"], (4.0, 7.0), (1.0, 3.0)), two_classes, 1),
    "softmax": (Responses(FAMILIES["softmax"], (2.0, 4.0, 8.0)), three_classes, 3),
    "levels": (Margins(LEVELS, THRESHOLDS, (2.0, 4.0, 8.0)), three_classes, 1),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_rows_in_pieces_have_the_sums_of_all(name):
    outcome, target, n_outputs = OUTCOMES[name]
    judge = Judge(outcome, in_detail=slice(2), centre=1.0)
    rows = rows_of(target)
    models = Linear(np.random.default_rng(1).normal(size=(4, n_outputs, 3)))
    whole = judge.of_rows(models, rows)
    pieces = LossSums()
    for piece in rows.chunks(7):
        pieces = pieces.merge(judge.of_rows(models, piece, n_scores=2**19))
    assert pieces.n_rows == whole.n_rows == N_ROWS
    measures = judge.measures(whole)
    assert measures.keys() == judge.measures(pieces).keys()
    for measure, values in judge.measures(pieces).items():
        np.testing.assert_allclose(values, measures[measure], rtol=1e-12)
    doubled = judge.of_rows(models, replace(rows, weight=2.0 * np.asarray(rows.weight)))
    for measure, values in judge.measures(doubled).items():
        np.testing.assert_allclose(values, measures[measure], rtol=1e-12)
    assert judge.measures(LossSums()) == {}


def test_measures_of_classes_are_those_of_scikit_learn():
    rows = rows_of(two_classes)
    weights = np.random.default_rng(1).normal(size=(2, 1, 3))
    judge = Judge(Responses(FAMILIES["logistic"], (4.0, 7.0)))
    measures = judge.measures(judge.of_rows(Linear(weights), rows))
    score = weights[-1, 0] @ rows.features
    truth = rows.target[0] == 7.0
    chance = 1.0 / (1.0 + np.exp(-score))
    loss = log_loss(truth, chance, sample_weight=rows.weight)
    assert measures["deviance"][-1] == pytest.approx(2.0 * loss)
    brier = np.average((truth - chance) ** 2, weights=rows.weight)
    assert measures["mse"][-1] == pytest.approx(brier)
    right = np.average((score > 0) == truth, weights=rows.weight)
    assert measures["accuracy"][-1] == pytest.approx(right)
    balanced = balanced_accuracy_score(truth, score > 0, sample_weight=rows.weight)
    assert measures["balanced_accuracy"][-1] == pytest.approx(balanced)
    area = roc_auc_score(truth, score, sample_weight=rows.weight)
    assert measures["auroc"][-1] == pytest.approx(area, abs=0.01)  # scores are binned
    assert np.isnan(measures["auroc"][0])  # not in detail


def test_weights_of_classes_decide_but_do_not_move_probabilities():
    rows = rows_of(two_classes)
    weights = np.ones((1, 1, 3))
    outcome = Responses(FAMILIES["logistic"], (4.0, 7.0), (1.0, 3.0))
    judge = Judge(outcome)
    measures = judge.measures(judge.of_rows(Linear(weights), rows))
    score = weights[0, 0] @ rows.features
    truth = rows.target[0] == 7.0
    chance = 1.0 / (1.0 + np.exp(-(score - np.log(3.0))))
    brier = np.average((truth - chance) ** 2, weights=rows.weight)
    assert measures["mse"][0] == pytest.approx(brier)
    in_loss = np.asarray(rows.weight) * np.where(truth, 3.0, 1.0)
    loss = log_loss(truth, 1.0 / (1.0 + np.exp(-score)), sample_weight=in_loss)
    assert measures["deviance"][0] == pytest.approx(2.0 * loss)


def test_rankings_are_scored_by_query():
    rows = rows_of(lambda features: np.digitize(features[:1], [0.0, 1.0]).astype(float))
    rows = replace(rows, queries=np.repeat(np.arange(6, dtype=np.uint64), 10))
    weights = np.random.default_rng(1).normal(size=(3, 1, 3))
    judge = Judge(Numbers(), cutoffs=(1, 5))
    measures = judge.measures(judge.of_rows(Linear(weights), rows, n_scores=2**17))
    scores = (weights @ rows.features)[:, 0]
    for place, cutoff in enumerate((1, 5)):
        by_query = []
        for query in range(6):
            own = slice(10 * query, 10 * query + 10)
            gains = ndcg(scores[:, own].T, rows.target[0, own], (1, 5))
            if gains is not None:
                by_query.append(gains[place])
        np.testing.assert_allclose(measures[f"ndcg@{cutoff}"], np.mean(by_query, axis=0))


def test_moments_tell_squared_errors():
    rows = rows_of(lambda features: features[:1] + 1e5)
    weights = np.random.default_rng(1).normal(size=(4, 3))
    intercepts = np.array([0.0, 1, 2, 1e5])
    moments = CoMoments.from_block(np.vstack([rows.features, rows.target]), rows.weight)
    predictions = weights @ rows.features + intercepts[:, np.newaxis]
    judge = Judge(Numbers())
    of_rows = judge.measures(judge.of_scores(predictions[:, np.newaxis], rows))
    np.testing.assert_allclose(squared_errors(moments, weights, intercepts), of_rows["mse"])
