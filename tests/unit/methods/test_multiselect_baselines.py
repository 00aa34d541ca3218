from __future__ import annotations

import numpy as np
import pytest

from distfms.methods.multiselect.baselines import averages, copies, single_attribute
from distfms.methods.multiselect.model import path_models
from distfms.methods.multiselect.objective import Problem, full_objective
from distfms.stats.judgments import CopiesStatistics, JudgmentStatistics
from distfms.stats.ragged import Ragged
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import random_judgments, random_problem


def copies_statistics(judgments: np.ndarray, label: np.ndarray) -> CopiesStatistics:
    _, d, k = judgments.shape
    columns = [Ragged.from_matrix(judgments[:, a]) for a in range(d)]
    return CopiesStatistics.from_block(columns, label, k)


def learned(judgments, label, costs=1.0):
    """The problem and the estimates of some objects."""
    estimates = literal.estimates(judgments, label)
    return Problem.from_estimates(estimates, costs), estimates


@pytest.mark.parametrize("seed", range(4))
def test_averages_is_forward_selection_on_the_averages(seed):
    judgments, label, _ = random_judgments(seed, k=3)
    path = averages(*learned(judgments, label), 9, 3)
    means = judgments.mean(axis=2)
    chosen = literal.forward_selection(means, label, 3, lambda _chosen, _c: True)
    assert path.attributes.tolist() == chosen
    assert path.counts.tolist() == [3, 3, 3]
    assert path.spent.tolist() == [3, 6, 9]
    losses = [literal.residual_variance(means[:, chosen[: i + 1]], label) for i in range(3)]
    np.testing.assert_allclose(path.projected_loss, losses, rtol=1e-10)
    assert path.status == "budget_spent"


def test_averages_buys_each_attribute_once_and_obeys_costs():
    judgments, label, _ = random_judgments(1)
    everything = averages(*learned(judgments, label), 1000, 2)
    assert sorted(everything.attributes.tolist()) == [0, 1, 2, 3, 4]
    assert everything.status == "no_positive_gain"
    dear = averages(*learned(judgments, label, [1, 1, 50, 1, 1]), 1000, 2)
    assert dear.cost[dear.attributes == 2] == 100
    nothing = averages(*learned(judgments, label), 1, 2)
    assert (nothing.n_steps, nothing.status) == (0, "unaffordable")
    assert averages(*learned(judgments, label), 4, 4).counts.tolist() == [4]


@pytest.mark.parametrize("seed", range(4))
def test_copies_is_forward_selection_on_single_judgments_in_fixed_order(seed):
    judgments, label, _ = random_judgments(seed, k=2)
    columns = judgments.reshape(len(label), -1)
    problem, statistics = learned(judgments, label)[0], copies_statistics(judgments, label)
    path = copies(problem, statistics, 7)

    def first_copy_first(chosen, column):
        return column % 2 == 0 or column - 1 in chosen

    chosen = literal.forward_selection(columns, label, 7, first_copy_first)
    assert path.attributes.tolist() == [column // 2 for column in chosen]
    losses = [literal.residual_variance(columns[:, chosen[: i + 1]], label) for i in range(7)]
    np.testing.assert_allclose(path.projected_loss, losses, rtol=1e-9)
    whole = copies(problem, statistics, 1000)
    assert whole.final_repeats.tolist() == [2] * 5
    assert whole.status == "no_positive_gain"


def test_copies_costs_are_per_attribute():
    judgments, label, _ = random_judgments(0, d=2, k=2)
    problem, _ = learned(judgments, label, [3.0, 1.0])
    path = copies(problem, copies_statistics(judgments, label), 8)
    assert path.names == problem.names
    assert path.spent[-1] == 8.0


def test_copies_with_missing_judgments():
    judgments, label, _ = random_judgments(6, m=80, k=3)
    judgments[::7, 1, 1:] = np.nan
    judgments[::5, 3, 2:] = np.nan
    columns = [Ragged.from_matrix(judgments[:, a]) for a in range(5)]
    problem = Problem.from_estimates(JudgmentStatistics.from_block(columns, label).estimates())
    path = copies(problem, copies_statistics(judgments, label), 12)
    assert path.spent[-1] == 12
    assert np.all(path.final_repeats <= 3)
    assert np.all(np.diff(path.objective) >= 0)


def test_single_attribute_spends_everything_on_one():
    problem = random_problem(2, d=3, costs=[1.0, 4.0, 1.0], names=("x", "guess", "z"))
    path = single_attribute(problem, "guess", 11)
    assert path.final_repeats.tolist() == [0, 2, 0]
    assert path.status == "unaffordable"
    assert single_attribute(problem, "guess", 12).status == "budget_spent"
    assert single_attribute(problem, "x", 3).final_repeats.tolist() == [3, 0, 0]
    assert single_attribute(problem, "guess", 3).n_steps == 0
    for step in (1, 2):
        expected = full_objective(problem, path.repeats_after(step))
        assert path.objective[step - 1] == pytest.approx(expected)


def test_models_along_a_baselines_path_are_the_projected_models_of_its_repeats():
    problem, estimates = learned(*random_judgments(3)[:2])
    models = path_models(problem, averages(problem, estimates, 6, 2), np.arange(4))
    assert models.repeats[2].sum() == 4
    assert models.objective[2] == pytest.approx(full_objective(problem, models.repeats[2]))
