"""The papers' bounds, of cases whose truth is known."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.papers import bounds
from distfms import LandmarkRegressor
from distfms.solve.buying import Problem, scoring_objective
from distfms.solve.purchases import select
from tests.reference import attribute_efficient as few
from tests.reference import landmarks, multiselect_cases
from tests.reference.sequence import correlated, explained, make_problem, search, standardised

# --- multi-selection: Theorem 3.1 -----------------------------------------------------------------


def test_least_eigenvalue_is_of_attributes_that_the_budget_can_pay():
    external = [[1.0, 0.4, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 0.01]]
    least = [bounds.least_eigenvalue(np.array(external), [1, 1, 5], b) for b in (1, 2, 5)]
    assert least == pytest.approx([1.0, 0.6, 0.01])


@pytest.mark.parametrize("m", [20, 80])
def test_scoring_loses_less_than_the_theorem_allows(m):
    """Independent attributes and judgments in [-1, 1], of which Σ, v and b are known."""
    rng = np.random.default_rng(m)
    d = 4
    budget = 3
    truth = rng.uniform(-0.5, 0.5, (m, d))
    judgments = truth[:, :, None] + rng.uniform(-0.5, 0.5, (m, d, 2))
    weights = np.array([0.9, 0.5, 0.1, 0.0])
    variance = np.full(d, 1 / 12)
    known = multiselect_cases.build_problem(
        weights / 12, variance, np.diag(variance), label_variance=1.0
    )
    statistics = multiselect_cases.statistics(judgments, truth @ weights)
    learned = Problem.from_estimates(statistics.estimates())
    reached = scoring_objective(known, select(learned, budget, "scoring").final_repeats)
    best = scoring_objective(known, select(known, budget, "scoring").final_repeats)
    bound = bounds.selection_error("scoring", variance.min(), budget, d, m, 0.05)
    assert 0 <= best - reached <= bound
    assert bounds.objects_needed("scoring", 0.5, budget, d, 0.05) == pytest.approx(4 * np.log(80))


# --- sequences: Lemma 3.1, Theorems 3.2 and 4.3 ---------------------------------------------------

COSTS = np.array([1.0, 2.0, 1.0, 3.0])


def values_of(X, Y, groups, ridge):
    """F of every set of groups."""
    table = {}
    for chosen in bounds.subsets(range(len(groups))):
        columns = [column for g in chosen for column in groups[g]]
        table[frozenset(chosen)] = explained(X, Y, columns, ridge)
    return table


def best_within(table, costs, budget):
    return max(value for own, value in table.items() if sum(costs[[*own]]) <= budget)


@pytest.mark.parametrize("ridge", [0.0, 1e-5, 0.3])
def test_gamma_of_whitened_groups_is_that_of_whitened_rows(ridge):
    X, _, groups = correlated(np.random.default_rng(1), 80, [2, 3, 1, 2])
    white = bounds.whitened(X, groups)
    gram = np.cov(X.T)
    np.testing.assert_allclose(np.cov(white.T, ddof=0)[2:5, 2:5], np.eye(3), atol=1e-12)
    assert bounds.whitened_gamma(gram, groups, ridge) == pytest.approx(bounds.gamma(white, ridge))
    assert bounds.whitened_gamma(gram, [[0, 0], [1]], ridge) == 0.0


@pytest.mark.parametrize("rule", ["fr", "omp"])
def test_theorem_3_2_holds_of_whitened_groups(rule):
    for seed, ridge in itertools.product(range(6), (0.0, 1e-2, 1.0)):
        X, Y, groups = correlated(np.random.default_rng(seed), 80, [2, 1, 3, 1])
        X = bounds.whitened(X, groups)
        Y = standardised(Y)
        table = values_of(X, Y, groups, ridge)
        gamma = bounds.gamma(X, ridge)
        assert 0 < gamma <= 1
        path = search(make_problem(X, Y, groups, COSTS, ridge), rule)
        for spent, reached in zip(path.spent, path.curve_value[1:], strict=True):
            for cost in (spent, sum(COSTS)):
                promised = bounds.share_of_same_cost(gamma, spent, cost)
                assert reached / 2 > promised * best_within(table, COSTS, cost)


def test_submodularity_is_that_of_marginal_gains_not_of_an_eigenvalue():
    """Of three columns, the third is worth little without the second."""
    gram = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.95], [0.0, 0.95, 1.0]])
    products = gram @ [0.3, 1.0, -0.9]

    def value(chosen):
        own = list(chosen)
        return products[own] @ np.linalg.solve(gram[np.ix_(own, own)], products[own]) / 2

    found = bounds.submodularity(value, 3)
    assert found == pytest.approx(value([2]) / (value([1, 2]) - value([1])))
    factor = bounds.share_of_quarter_cost(found)
    assert factor < bounds.share_of_quarter_cost(np.linalg.eigvalsh(gram)[0]) / 2
    assert bounds.submodularity(lambda own: float(sum(own)), 3) == 1.0


def test_theorem_4_3_holds_of_doubling():
    costs = np.array([1.0, 1.0, 2.0, 3.0, 4.0])
    for seed in range(4):
        X, Y, groups = correlated(np.random.default_rng(seed), 80, [1, 2, 1, 1, 1])
        X = standardised(X)
        Y = standardised(Y)
        table = values_of(X, Y, groups, 1e-2)
        gamma = bounds.submodularity(lambda own, table=table: table[frozenset(own)], len(groups))
        assert 0 < gamma < 1
        path = search(make_problem(X, Y, groups, costs, 1e-2), "fr-doubling")
        assert bounds.is_doubling_capable(costs, path.order)
        factor = bounds.share_of_quarter_cost(gamma)
        for budget in np.arange(1.5, 4 * sum(costs)):
            reached = path.curve_value[np.searchsorted(path.spent, budget, side="right")]
            assert reached / 2 > factor * best_within(table, costs, budget / 4)
    assert not bounds.is_doubling_capable([1.0, 5.0, 20.0], [0, 1, 2])


# --- similarities: Theorems 5, 9, 13, 20, 30 ------------------------------------------------------


def test_a_good_similarity_keeps_the_promise_of_theorem_5():
    """Of f(x) = E w(x')K(x, x') with |w| ≤ B, from which targets do not differ: ε₀ = 0."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, size=(2, 300, 2))
    everyone = rng.uniform(-1, 1, size=(2000, 2))
    bound = 3.0
    weights = bound * np.sign(everyone[:, 0])
    apart = [np.square(rows[:, np.newaxis] - everyone).sum(axis=2) for rows in (X, new)]
    target, truth = (np.exp(-own / 2) @ weights / len(everyone) for own in apart)
    own = {"similarity": {"name": "gaussian", "sigma": 1.0}, "metric": "none", "folds": 0}
    model = LandmarkRegressor(**own, scaling="none", landmarks=5).fit(X, target)
    error = np.abs(model.predict(new) - truth).mean()
    assert error < 0.05 < bounds.landmark_excess(bound, 5, len(X), 0.05)
    assert error < bounds.sparse_excess(bound, 5, len(X), 0.05, 0.5)


@pytest.mark.parametrize(("gamma", "spacing"), [(1.0, 1.0), (1.0, 3.0), (2.0, 2.5)])
def test_theorem_13_holds_where_thresholds_are_a_margin_apart(gamma, spacing):
    rng = np.random.default_rng(0)
    thresholds = spacing * np.arange(4)
    scores = rng.uniform(-4, 4 * spacing + 4, 500)
    levels = rng.integers(0, 5, 500)
    loss, error = margin_and_absolute(scores, levels, thresholds, gamma)
    assert error.mean() <= bounds.ordinal_error(loss.mean(), gamma, spacing)
    assert (error > 0).mean() <= bounds.mislabelling(loss.mean(), gamma)
    tight, off = margin_and_absolute([-1e-9], [1], thresholds, gamma)
    assert off == pytest.approx(bounds.ordinal_error(tight, gamma, spacing))


@pytest.mark.parametrize(("gamma", "spacing"), [(1.0, 0.5), (0.5, 1.0)])
def test_theorem_13_fails_where_they_are_closer_or_the_margin_is_small(gamma, spacing):
    """Every other row has no loss, the others are a level off."""
    scores = [9.0, spacing - 1e-9]
    loss, error = margin_and_absolute(scores, [2, 2], [0.0, spacing], gamma)
    assert error.mean() > bounds.ordinal_error(loss.mean(), gamma, spacing)


def margin_and_absolute(scores, levels, thresholds, gamma):
    """Losses of Definition 12, levels from 0, and how many levels each row is off."""
    corners = [landmarks.margin(level, thresholds, gamma) for level in levels]
    rows = zip(scores, corners, strict=True)
    losses = [landmarks.loss(*row, lambda x: max(x, 0.0)) for row in rows]
    return np.array(losses), np.abs(np.digitize(scores, thresholds) - levels)


def test_double_dipping_is_within_its_bound():
    """Least squares on all rows as landmarks, with weights in a box, of a target that is noise."""
    rng = np.random.default_rng(0)
    n = 60
    X = rng.uniform(-1, 1, (n, 3))
    new = rng.uniform(-1, 1, (2000, 3))
    target = rng.choice([-1.0, 1.0], n)
    truth = rng.choice([-1.0, 1.0], 2000)
    similar = [np.exp(-np.square(rows[:, None] - X).sum(axis=2)) for rows in (X, new)]
    weights = np.clip(n * np.linalg.lstsq(similar[0], target, rcond=1e-3)[0], -5, 5)
    on_rows = np.abs(similar[0] @ weights / n - target).mean()
    on_new = np.abs(similar[1] @ weights / n - truth).mean()
    printed = 4.0 * 5.0 * math.sqrt(math.log(20.0) / n)
    assert 0 < on_new - on_rows < printed < bounds.double_dipping(5.0, 1.0, n, 0.05)


@pytest.mark.parametrize("m", [2, 5])
def test_ndcg_of_theorem_30(m):
    rng = np.random.default_rng(m)
    discounts = 1 / np.log(2 + np.arange(m))
    for _ in range(200):
        gains = np.array(landmarks.eta(rng.integers(0, 4, m)))
        scores = gains + rng.normal(0, 0.3, m)
        places = np.argsort(np.argsort(-scores, kind="stable"))
        regret = (gains > 0).any() - gains @ discounts[places]
        assert regret <= bounds.ndcg_regret(np.sum((scores - gains) ** 2), m) + 1e-12


# --- few attributes: Theorems 3.1, 3.3, 3.4, 4.1, 4.4, 4.5 ----------------------------------------


def test_steps_give_the_printed_bounds():
    B = 2.0
    d = 50
    k = 4
    m = 5000
    G = bounds.uniform_slopes(B, d, k)
    of_aerr = bounds.ridge_risk(B, G, m, bounds.aerr_step(B, G, m))
    assert of_aerr == pytest.approx(bounds.aerr_printed(B, d, k, m))
    of_aelr = bounds.lasso_risk(B, G, m, d, bounds.aelr_step(G, m, d))
    assert of_aelr == pytest.approx(bounds.aelr_printed(B, d, k, m))
    assert bounds.lasso_risk(B, G, m, d, bounds.aerr_step(B, G, m)) > 1.5 * of_aelr
    root = math.sqrt(d / k + 1)
    of_known = bounds.ridge_risk(B, 2 * B * root, m, 1 / (root * math.sqrt(m)))
    assert of_known == pytest.approx(bounds.ddaerr_risk(B, np.full(d, 1 / d), k, m))


@pytest.mark.parametrize("lasso", [False, True])
def test_risks_of_literal_runs_are_within_the_theorems(lasso):
    """Rows of one attribute each: the risk of any weights is known."""
    rng = np.random.default_rng(0)
    d = 6
    k = 3
    m = 400
    B = 1.0
    shares = np.array([0.4, 0.3, 0.1, 0.1, 0.05, 0.05])
    truth = np.array([0.6, -0.3, 0.1, 0.0, 0.0, 0.0])
    if lasso:
        learn = few.gaelr
        q = shares
        step = math.sqrt(math.log(2 * d) / (5 * m * (1 / k + 1))) / (2 * B)
    else:
        learn = few.gaerr
        q = np.sqrt(shares) / np.sqrt(shares).sum()
        step = 1 / math.sqrt(m * (bounds.half_norm(shares) / k + 1))
    risks = []
    for _ in range(20):
        columns = rng.choice(d, m, p=shares)
        X = np.eye(d)[columns]
        y = truth[columns]
        draws = rng.choice(d, (m, k), p=q), rng.random((m, 1)), q
        start = np.full((2, d), 0.5 / d) if lasso else np.zeros(d)
        total = np.zeros(d)
        drawn = np.zeros((m, k + 1), dtype=np.int64)
        learn(X, y, *draws, np.ones(d), not lasso, step, B, start, total, np.zeros(1), drawn)
        risks.append(shares @ (total / m - truth) ** 2 / 2)
    printed = bounds.ddaelr_risk if lasso else bounds.ddaerr_risk
    unknown = bounds.two_phase_ddaelr_risk if lasso else bounds.two_phase_ddaerr_risk
    assert 0 < np.mean(risks) < printed(B, shares, k, m) < unknown(B, shares, k, 100, m, 0.05)
