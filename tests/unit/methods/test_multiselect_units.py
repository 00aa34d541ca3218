"""Nothing depends on the units of the judgments; constants are constants whatever the rounding."""

import numpy as np
import pytest

from distfms.methods.multiselect.baselines import averages, copies
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.model import predict, projected_model, refit, refit_statistics
from distfms.methods.multiselect.objective import Problem, holdout_loss
from distfms.stats.judgments import JudgmentStatistics
from tests.reference.multiselect_cases import ragged, random_judgments

NAMES = tuple("abcde")


def learn(judgments, label, psd, model):
    """Repeats, held-out loss and predictions of a model learned from the first 20 objects."""
    train, rest = (ragged(part) for part in (judgments[:20], judgments[20:]))
    estimates = JudgmentStatistics.from_block(train, label[:20]).estimates()
    problem = Problem.from_estimates(estimates, names=NAMES, psd=psd)
    # Where a refit needs them there are as many judgments as are bought.
    repeats = np.minimum(select(problem, 12).final_repeats, 3)
    if model == "refit":
        found = refit(refit_statistics(train, label[:20], repeats), NAMES, repeats)
    else:
        found = projected_model(problem, repeats)
    held_out = JudgmentStatistics.from_block(rest, label[20:]).estimates()
    loss = holdout_loss(held_out, found.weights, found.intercept, repeats)
    return repeats, loss, predict(found, rest), found.weights


@pytest.mark.parametrize("factor", [1e-6, 1e5, 1e9])
@pytest.mark.parametrize("model", ["projected", "refit"])
@pytest.mark.parametrize("psd", ["nearest", "none"])
def test_units_of_an_attribute_do_not_matter(psd, model, factor):
    judgments, label, _ = random_judgments(8, m=60, k=3)
    external = (
        JudgmentStatistics.from_block(ragged(judgments[:20]), label[:20]).estimates().external
    )
    assert np.linalg.eigvalsh(external)[0] < 0
    repeats, loss, values, weights = learn(judgments, label, psd, model)
    assert np.count_nonzero(repeats) > 2
    units = np.ones(5)
    units[np.flatnonzero(repeats)[1]] = factor
    other = learn(judgments * units[:, None], label, psd, model)
    np.testing.assert_array_equal(other[0], repeats)
    np.testing.assert_allclose(other[1], loss, rtol=1e-8)
    np.testing.assert_allclose(other[2], values, rtol=1e-8)
    np.testing.assert_allclose(other[3] * units, weights, rtol=1e-7)


def test_a_refit_of_small_and_large_numbers_is_least_squares():
    rng = np.random.default_rng(3)
    columns = np.stack([rng.normal(5e4, 2e4, 300), rng.uniform(0, 1, 300), np.full(300, 0.1)])
    label = 2e-5 * columns[0] + 3.0 * columns[1]
    statistics = refit_statistics(ragged(columns.T[:, :, None]), label, [1, 1, 1])
    found = refit(statistics, "abc", [1, 1, 1])
    np.testing.assert_allclose(found.weights, [2e-5, 3.0, 0.0], rtol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1 / 3, -1e7 / 3])
def test_constants_with_a_variance_from_rounding_are_never_bought(value):
    judgments, label, _ = random_judgments(4, m=60, k=2)
    judgments[:, 2] = value
    parts = [
        (ragged(judgments[rows]), label[rows])
        for rows in (slice(0, 7), slice(7, 20), slice(20, 60))
    ]
    statistics = JudgmentStatistics.empty(5)
    for part in parts:
        statistics = statistics.merge(JudgmentStatistics.from_block(*part))
    estimates = statistics.estimates()
    problem = Problem.from_estimates(estimates)
    assert problem.candidates.tolist() == [True, True, False, True, True]
    for path in (
        select(problem, 40),
        select(problem, 40, "scoring"),
        averages(problem, estimates, 40, 2),
        copies(problem, estimates, 40, 2),
    ):
        assert path.final_repeats[2] == 0
