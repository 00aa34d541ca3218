"""The step in O(k log d) does what the literal loop does, draw by draw."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distfms.methods.attribute_efficient.full_information import offline_lasso, offline_ridge
from distfms.methods.attribute_efficient.learner import (
    Chain,
    Design,
    Phase,
    improvement_ratio,
    logarithms,
    point_probabilities,
)
from distfms.methods.attribute_efficient.lessons import design_with
from distfms.methods.attribute_efficient.options import ALGORITHMS, AttributeEfficientOptions
from tests.reference.attribute_efficient import Literal, ridge_within, uniforms

KEY = 2**63 + 12345
#: Largest difference of weights, relative to the largest weight.
CLOSE = 1e-10


def examples(penalty, m, d, bound, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d)) / np.sqrt(np.arange(1, d + 1))
    X[rng.random((m, d)) < 0.1] = 0.0
    X /= np.linalg.norm(X, axis=1).max() if penalty == "ridge" else np.abs(X).max()
    return X, np.clip(3.0 * X @ rng.normal(size=d), -bound, bound)


def relative(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def compare(penalty, sampling, m, bound, *, rows=None, norm=1.0, factor=1.0, **more):
    X, y = rows or examples(penalty, m, 30, bound)
    X, moments = norm * X, np.mean((norm * X) ** 2, axis=0)
    more["step_factor"] = factor
    design = Design(penalty, sampling, X.shape[1], 5, m, bound, norm, moments, **more)
    chain = Chain(design, KEY)
    literal = Literal(design, KEY)
    chain.learn(X, y)
    literal.run(X, y, 0, design.phase(), factor)
    assert chain.n_examples == m
    assert chain.n_seen == literal.n_seen
    assert relative(chain.weights * norm, literal.average) < CLOSE
    assert relative(chain.current, literal.w) < CLOSE
    return literal.events[0] / m


SAMPLINGS = pytest.mark.parametrize("sampling", ["uniform", "moments"])


# Bound, factor of the step, and how often a projection is active: never, rarely, often.
@SAMPLINGS
@pytest.mark.parametrize(
    ("bound", "factor", "least", "most"),
    [(10.0, 0.02, 0.0, 0.0), (1.0, 1.0, 0.02, 0.3), (1.0, 10.0, 0.25, 0.6)],
)
def test_ridge_is_the_literal_loop(sampling, bound, factor, least, most):
    active = compare("ridge", sampling, 8_000, bound, factor=factor)
    assert least <= active <= most


@pytest.mark.parametrize("improved", [True, False])
def test_ridge_always_projecting(improved):
    rng = np.random.default_rng(3)
    rows = rng.choice([-1.0, 1.0], size=(20_000, 40)), rng.normal(size=20_000)
    assert compare("ridge", "moments", 20_000, 1e-3, rows=rows, improved=improved) > 0.98


@SAMPLINGS
@pytest.mark.parametrize(("bound", "factor"), [(10.0, 0.1), (3.0, 1.0), (3.0, 10.0), (0.03, 1.0)])
def test_lasso_is_the_literal_loop(sampling, bound, factor):
    compare("lasso", sampling, 8_000, bound, factor=factor)


def test_clipping():
    assert compare("lasso", "moments", 2_000, 3.0, factor=300.0) > 0.01


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
@pytest.mark.parametrize("norm", [0.01, 255.0])
def test_scaling_and_base_sampling(penalty, norm):
    compare(penalty, "moments", 3_000, 2.0, norm=norm, improved=False)


# With long first steps and a small bound the scale has fallen by far when the first phase ends.
@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
@pytest.mark.parametrize(
    ("confidence", "bound", "factor", "m1"),
    [(0.0, 2.0, 1.0, 120), (0.9, 2.0, 1.0, 400), (0.0, 0.1, 10.0, 120)],
)
def test_two_phases(penalty, confidence, bound, factor, m1):
    m = 1_200
    d = 20
    norm = 3.0
    X, y = examples(penalty, m, d, 2.0)
    X *= norm
    more = {"first_step_factor": factor, "confidence": confidence}
    more |= {} if m1 == m // 10 else {"first_share": Fraction(m1, m)}
    design = Design(penalty, "two_phase", d, 5, m, bound, norm, **more)
    chain = Chain(design, KEY)
    literal = Literal(design, KEY)
    chain.learn(X, y)
    literal.learn(X, y)
    second = design.phase(chain.estimated_moments)
    epsilon = d * math.log(2 * d / (1 - confidence)) / (5 * m1) if confidence else 0.0
    assert second.doubt == pytest.approx(epsilon)
    np.testing.assert_allclose(chain.probabilities, second.probabilities())
    assert chain.n_seen == literal.n_seen
    assert relative(chain.weights * norm, literal.average) < 1e-8


def test_what_has_a_share_of_the_examples_has_that_share_of_a_first_phase():
    content = {"attributes_per_example": 4, "first_examples": 100}
    content |= {"draws": "two_phase", "solver": "online"}
    design = design_with(
        AttributeEfficientOptions(**content), 400, 800, bound=1.0, norm=1.0, n_attributes=9
    )
    assert (design.n_examples, design.first_examples) == (400, 50)


@pytest.mark.parametrize("improved", [True, False])
@pytest.mark.parametrize("sampling", ["uniform", "moments", "two_phase"])
@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
def test_estimates_are_unbiased(penalty, sampling, improved):
    """Of x̃, φ̃ and their product; a mean of 10,000 draws is off by five standard errors in one
    of 1.7 million cases, and there are 21 means in each of 12 tests."""
    d = 10
    norm = 2.0
    n = 10_000
    X, y = examples(penalty, 600, d, 2.0)
    X *= norm
    design = Design(penalty, sampling, d, 5, 600, 2.0, norm, np.mean(X**2, axis=0), improved)
    chain = Chain(design, KEY)
    chain.learn(X[:-1], y[:-1])
    x = X[-1]
    target = y[-1]
    k = design.n_point
    points = np.zeros((n, d))
    residuals = np.zeros(n)
    for t in range(n):
        attributes, factors = chain.draw(10_000 + t)
        terms = factors * x[attributes]
        np.add.at(points[t], attributes[:k], terms[:k])
        residuals[t] = terms[k:].sum() - target
    weights = chain.current
    expected = [*(x / norm), weights @ x / norm - target]
    expected += [*(expected[-1] * x / norm)]
    found = np.column_stack((points, residuals, residuals[:, None] * points))
    error = found.std(axis=0) / math.sqrt(n)
    assert (np.abs(found.mean(axis=0) - expected) <= 5.0 * error + 1e-15).all()


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=20), st.floats(1.001, 100.0))
@example([0.0, 5e-324], 2.0)
def test_logarithms_of_weights(values, slack):
    weights = np.array(values)
    bound = max(np.abs(weights).sum() * slack, 1e-3)
    logs = logarithms(weights, bound)
    back = bound * np.sinh(logs) / np.cosh(logs).sum()
    np.testing.assert_allclose(back, weights, atol=1e-9 * bound)


def test_random_numbers_are_splitmix64():
    # The first outputs of the reference implementation for the seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found = uniforms(1234567, range(3))
    assert found.tolist() == [(n >> 11) * 2.0**-53 for n in known]


@pytest.mark.parametrize("solver", [offline_ridge, offline_lasso])
@pytest.mark.parametrize("share", [0.001, 0.5, 1.5, 1000.0])  # of the least squares' norm
@pytest.mark.parametrize("decades", [0, 3])  # the units of attributes differ by twice as many
def test_offline_weights_are_the_best_within_the_bound(decades, share, solver):
    rng = np.random.default_rng(5)
    own = rng.normal(size=(200, 6)) @ (np.eye(6) + 0.5)
    y = own @ rng.normal(size=6) + rng.normal(size=200)
    units = 10.0 ** np.linspace(-decades, decades, 6)
    least = np.linalg.lstsq(own, y)[0]
    X = np.column_stack((own, own[:, 0], np.zeros(200))) * [*units, units[0], 1.0]
    norm, dual = (1, np.inf) if solver is offline_lasso else (2, 2)
    bound = share * np.linalg.norm(least / units, norm)
    weights = solver(X.T @ X / 200, y @ X / 200, bound)
    assert np.linalg.norm(weights, norm) <= bound * (1 + 1e-9)
    residuals = X @ weights - y
    gradient = residuals @ X
    gap = gradient @ weights + bound * np.linalg.norm(gradient, dual)
    excess = residuals @ residuals - np.sum((own @ least - y) ** 2)
    # No weights within the bound are better than the gap of duality says, none at all than these.
    assert min(gap, excess) < 1e-8 * (y @ y)
    if solver is offline_ridge and not decades:
        np.testing.assert_allclose(weights, ridge_within(X, y, bound), rtol=1e-8, atol=1e-12)


def test_formulas_of_the_paper():
    s = np.array([0.04, 0.01, 0.25])
    m = 100
    k = 4
    B = 2.0
    root = 0.2 + 0.1 + 0.5
    assert improvement_ratio("ridge", s) == pytest.approx(root**2 / (3 * 0.3))
    assert improvement_ratio("lasso", s) == pytest.approx(0.3 / (3 * 0.25))
    assert improvement_ratio("ridge", np.ones(7)) == pytest.approx(1.0)
    np.testing.assert_allclose(point_probabilities("ridge", s), np.sqrt(s) / root)
    np.testing.assert_allclose(point_probabilities("lasso", s), s / 0.3)
    known = {"n_attributes": 3, "n_examples": m, "n_point": k, "bound": B}
    G = math.sqrt(8 * B**2 * 3 / k)
    assert Phase("ridge", **known).step() == pytest.approx(2 * B / (G * math.sqrt(m)))
    by_moments = Phase("ridge", **known, moments=s).step()
    assert by_moments == pytest.approx(1 / math.sqrt(m * (root**2 / k + 1)))
    log = math.log(6)
    uniform = math.sqrt(log / (5 * G**2 * m))  # the minimum of log(2d)/(ηm) + 5ηG²
    assert Phase("lasso", **known).step() == pytest.approx(uniform)
    by_moments = math.sqrt(log / (5 * m * (0.3 / k + 1))) / (2 * B)
    assert Phase("lasso", **known, moments=s).step() == pytest.approx(by_moments)
    # What a first phase estimated: with ε = 0, with some, and where it counts no further.
    for eps in (0.0, 0.02, 3.0):
        second = {"moments": s, "doubt": eps}
        half = np.sqrt(2 * s + 10 / 3 * eps).sum() ** 2
        eta = math.sqrt(k / m / (2 * half + 2 * math.sqrt(5 * 9 * half * eps / 3) + k))
        eta = max(math.sqrt(k / (6 * 3 * m)), eta)
        assert Phase("ridge", **known, **second).step() == pytest.approx(eta)
        eta = math.sqrt(k * log / (20 * B**2 * m * (8 * 0.3 + 60 * min(eps, 1.0) + k)))
        assert Phase("lasso", **known, **second).step() == pytest.approx(eta)
        q = np.sqrt(s + 13 / 6 * eps)
        found = Phase("ridge", **known, **second).probabilities()
        np.testing.assert_allclose(found, q / q.sum())


@pytest.mark.parametrize("penalty", ALGORITHMS)
def test_the_names_of_the_paper_stand_for_draws_and_penalties(penalty):
    for name, drawing in ALGORITHMS[penalty].items():
        options = AttributeEfficientOptions(algorithm=name)
        assert options.chosen == name
        assert (options.solver, options.draws, options.penalty) == ("online", drawing, penalty)
