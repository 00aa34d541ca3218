import itertools

import numpy as np
import pytest

from distfms.methods.sequence.greedy import contenders, scores, sequence
from distfms.methods.sequence.residual import ResidualGram
from tests.reference.sequence import correlated, make_problem

SIZES = [2, 1, 3, 2, 3, 1, 2]


def problem(seed=0, ridge=1e-3, **options):
    X, Y, groups = correlated(np.random.default_rng(seed), 200, SIZES, **options)
    return make_problem(X, Y, groups, ridge=ridge)


def state_of(p, **options):
    return ResidualGram(p.gram, p.target, p.groups.columns, ridge=p.ridge, **options)


def test_residuals_are_what_the_formulas_say():
    p = problem(n_targets=2)
    state = state_of(p, blocks=True)
    C = p.gram + p.ridge * np.eye(len(p.gram))
    chosen: list[int] = []
    for group in (2, 0, 6):
        state.select(group)
        chosen += p.groups.columns[group]
        b = p.target - C[:, chosen] @ np.linalg.solve(C[np.ix_(chosen, chosen)], p.target[chosen])
        schur = C - C[:, chosen] @ np.linalg.solve(C[np.ix_(chosen, chosen)], C[chosen])
        gains = state.group_gains()
        for size_class in state.classes:
            for at, g in enumerate(size_class.groups):
                cols = list(p.groups.columns[g])
                if g in (2, 0, 6):
                    continue
                np.testing.assert_allclose(state.gradient(size_class)[at], b[cols], atol=1e-12)
                gain = 0.5 * np.sum(b[cols] * np.linalg.solve(schur[np.ix_(cols, cols)], b[cols]))
                assert gains[g] == pytest.approx(gain, rel=1e-9)


def test_selected_groups_have_no_gain():
    state = state_of(problem(), blocks=True)
    state.select(4)
    assert state.group_gains()[4] == 0


def test_gains_need_blocks():
    with pytest.raises(ValueError, match="blocks=True"):
        state_of(problem()).group_gains()


def test_pivots_add_up_to_the_factor_of_the_whole():
    p = problem()
    path = sequence(p, "fr")
    C = p.gram + p.ridge * np.eye(len(p.gram))
    S = path.support
    np.testing.assert_allclose(path.upper.T @ path.upper, C[np.ix_(S, S)], atol=1e-12)
    assert (np.tril(path.upper, -1) == 0).all()


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_columns_spread_over_holders_give_the_same_sequence(ridge):
    """One step of the distributed form: best candidate of each, pivot of the winner to all."""
    p = problem(3, ridge)
    shares = [[0, 3, 5], [1, 2], [4, 6]]
    holders = []
    for groups in shares:
        columns = [c for g in groups for c in p.groups.columns[g]]
        ends = np.cumsum([0, *(len(p.groups.columns[g]) for g in groups)])
        own = [range(a, b) for a, b in itertools.pairwise(ends)]
        holders.append(
            ResidualGram(
                p.gram[:, columns], p.target[columns], own, columns=columns, ridge=ridge,
                blocks=True,
            )
        )  # fmt: skip
    open_, order, gains = np.ones(7, dtype=bool), [], []
    for _ in range(7):
        values = np.zeros(7)
        for groups, holder in zip(shares, holders, strict=True):
            values[groups] = holder.group_gains()
        group = contenders(scores(values, None, open_, 1e-16))[0]
        at = next(i for i, groups in enumerate(shares) if group in groups)
        pivot = holders[at].select(shares[at].index(group))
        assert pivot.border.shape[0] == holders[at].rank - len(pivot.columns)
        for i, holder in enumerate(holders):
            if i != at:
                holder.append(pivot)
        open_[group] = False
        order.append(group)
        gains.append(pivot.gain)
    path = sequence(p, "fr", cost_aware=False)
    assert order == path.order.tolist()
    np.testing.assert_allclose(gains, path.gain, rtol=1e-10)


def test_store_of_rows_grows_past_its_first_size():
    X, Y, groups = correlated(np.random.default_rng(0), 400, [3] * 50)
    p = make_problem(X, Y, groups)
    path = sequence(p, "fr")
    assert path.ranks[-1] == 150
    full = 0.5 * p.target[:, 0] @ np.linalg.solve(p.gram, p.target[:, 0])
    assert path.objective[-1] == pytest.approx(full, rel=1e-9)


def test_singular_blocks_among_regular_ones_of_one_size():
    rng = np.random.default_rng(1)
    X, Y, _ = correlated(rng, 100, [2, 2, 2, 2])
    X[:, 1] = -3 * X[:, 0]  # a group of rank one from the start
    X[:, 3] = X[:, 0] + 2 * X[:, 4]  # one that becomes it when 0 and 2 are in
    p = make_problem(X, Y, [[0, 1], [2, 3], [4, 5], [6, 7]])
    state = state_of(p, blocks=True)
    for group in (0, 2):
        gains = state.group_gains()
        for g in range(4):
            other = state_of(p)
            for done in (0, 2)[: (0, 2).index(group)]:
                other.select(done)
            if gains[g] > 0:
                assert gains[g] == pytest.approx(other.select(g).gain, rel=1e-9)
        state.select(group)
    assert len(state.select(1).columns) == 1
    assert state.rank == 4


def test_gains_and_selection_agree_on_what_is_dependent():
    """A column within the tolerance of dependence counts in neither, whatever the route."""
    X, Y, groups = correlated(np.random.default_rng(2), 100, [2, 2, 1])
    X[:, 1] = X[:, 0] + 0.02 * X[:, 0].std() * np.random.default_rng(3).standard_normal(100)
    p = make_problem(X, Y, groups)
    state = state_of(p, blocks=True, rtol=1e-2)
    gains = state.group_gains()
    pivot = state.select(0)
    assert pivot.columns.tolist() == [0]
    assert gains[0] == pytest.approx(pivot.gain, rel=1e-9)
    assert gains[0] == pytest.approx(0.5 * p.target[0, 0] ** 2)
