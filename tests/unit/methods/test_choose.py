"""Choices on folds, and what is reported of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distfms.errors import DataError
from distfms.methods.frame.choose import best, chosen_without, fewest

LOSSES = arrays(np.float64, (5, 4), elements=st.floats(0, 10, width=32))
ONES = np.ones(4)


@given(LOSSES)
def test_kinds_are_chosen_by_their_mean_and_amounts_never_beyond_the_best(losses):
    means = losses.mean(axis=1)
    assert means[best(losses, ONES)] <= means.min() + 1e-12
    assert fewest(losses, ONES) <= best(losses, ONES)


@given(LOSSES, arrays(np.float64, 4, elements=st.floats(0, 10, width=32)))
def test_what_all_find_hard_in_a_fold_changes_no_choice(losses, hardness):
    # Multiples of 1/64 keep sums and differences exact.
    losses = np.round(losses * 64) / 64
    hardness = np.round(hardness * 64) / 64
    for rule in (best, fewest):
        assert rule(losses + hardness, ONES) == rule(losses, ONES)


def test_amounts_are_compared_by_paired_differences():
    # The folds differ by 10, the candidates by .1 in each fold: the second is clearly better.
    hardness = np.array([0.0, 10.0, 20.0, 5.0])
    losses = np.stack([hardness + np.array([0.1, 0.11, 0.09, 0.1]), hardness])
    assert fewest(losses, ONES) == 1
    # Where the differences vary more than they are large, the first is as good.
    losses[0] = hardness + np.array([0.5, -0.4, 0.3, -0.3])
    assert fewest(losses, ONES) == 0
    assert best(losses, ONES) == 1


def test_candidates_without_a_loss_on_every_fold_are_not_chosen():
    losses = np.array([[0.0, np.nan], [2.0, 2.0], [0.0, np.inf]])
    assert best(losses, [1, 1]) == 1
    assert fewest(losses, [1, 1]) == 1
    # A fold without weight does not count.
    assert best(losses, [1, 0]) == 0
    with pytest.raises(DataError, match=r"measured on every fold.*`data\.folds`"):
        best(losses[::2], [1, 1])


def test_one_fold_has_no_error_and_the_best_is_taken():
    losses = np.array([[2.0], [1.0]])
    assert fewest(losses, [1]) == 1
    assert chosen_without(losses, [1], fewest).tolist() == [1]


@given(LOSSES, st.integers(0, 3))
def test_a_fold_has_no_part_in_the_choice_that_it_scores(losses, fold):
    choices = chosen_without(losses, ONES, fewest)
    changed = losses.copy()
    changed[:, fold] = changed[::-1, fold] * 3 + 1
    assert chosen_without(changed, ONES, fewest)[fold] == choices[fold]


@given(arrays(np.float64, (5, 4, 4), elements=st.floats(0, 10, width=32)))
def test_of_few_rows_what_learned_from_neither_fold_chooses(of_pairs):
    choices = chosen_without(of_pairs[:, 0], ONES, fewest, of_pairs)
    for fold, choice in enumerate(choices):
        others = np.delete(of_pairs[:, :, fold], fold, axis=1)
        assert choice == fewest(others, ONES[:3])


def test_the_choice_among_noise_explains_nothing():
    rng = np.random.default_rng(0)
    plain = []
    corrected = []
    for _ in range(200):
        losses = 1 + 0.1 * rng.standard_normal((30, 5))
        weights = np.ones(5)
        plain.append(losses[best(losses, weights)].mean())
        choices = chosen_without(losses, weights)
        corrected.append(losses[choices, np.arange(5)].mean())
    assert np.mean(plain) < 0.93
    assert abs(np.mean(corrected) - 1) < 0.01
