"""The estimators: rows at hand, ask and tell, saved states."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from distfms import AttributeEfficientLasso, AttributeEfficientRidge
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.learner import Chain, Design
from distfms.methods.attribute_efficient.lessons import stream
from tests.reference.attribute_efficient import predict_cut, solve_pairs

N = 400
D = 9
RNG = np.random.default_rng(2)
X = (RNG.random((N, D)) < 1 / np.arange(1, D + 1)) * RNG.random((N, D))
Y = X @ RNG.choice([-1.0, 1.0], size=D)
NAMES = [f"test_{j}" for j in range(D)]
BOTH = pytest.mark.parametrize("estimator", [AttributeEfficientRidge, AttributeEfficientLasso])
KNOWN = {"bound": 6.0, "norm": 2.0, "n_examples": N}


def two_phase(estimator, **more):
    return estimator(4, solver="online", draws="two_phase", **{**KNOWN, **more})


def acquire(rows, questions):
    """What a laboratory would do: look up what was asked for, and nothing else."""
    values = np.full(questions.attributes.shape, np.nan)
    for place, (number, asked) in enumerate(
        zip(questions.examples, questions.attributes, strict=True)
    ):
        for r, attribute in enumerate(asked):
            if attribute >= 0:
                values[place, r] = rows[number, attribute]
    return values


@BOTH
def test_fit_learns_from_some_attributes(estimator):
    model = estimator(4, bound=20.0, step_factor=3.0).fit(X, Y)
    assert np.mean((model.predict(X) - Y) ** 2) < 0.9 * np.mean(Y**2)
    np.testing.assert_allclose(model.predict(X), X @ model.coef_, rtol=1e-9, atol=1e-12)
    assert model.n_examples_seen_ == N
    assert model.attributes_seen_ <= 4 * N
    assert 0 < model.improvement_ratio_ < 1
    small = clone(model).fit(X / 1024, Y)  # in any unit, also where all rows are short
    np.testing.assert_allclose(small.predict(X / 1024), model.predict(X), rtol=1e-9, atol=1e-12)
    assert not two_phase(estimator).fit(X, Y).start(D).coef_.any()  # a session begins anew


@BOTH
def test_ask_and_tell_is_one_chain(estimator):
    model = two_phase(estimator).start(NAMES)
    for number in range(N):
        questions = model.ask()
        assert questions.examples == [number]
        model.tell(acquire(X, questions), Y[[number]])
    rows = two_phase(estimator)
    for start in range(0, N, 130):
        rows.partial_fit(X[start : start + 130], Y[start : start + 130])
    chain = Chain(Design(model._fixed["penalty"], "two_phase", D, 4, N, 6.0, 2.0), stream(0, 0))
    chain.learn(X, Y)
    assert model.coef_.tobytes() == rows.coef_.tobytes() == chain.weights.tobytes()
    assert rows.improvement_ratio_ < 1
    assert model.attributes_seen_ == rows.attributes_seen_
    assert list(model.feature_names_in_) == NAMES
    frame = pd.DataFrame(X, columns=NAMES)
    np.testing.assert_allclose(model.predict(frame), X @ model.coef_)


@BOTH
def test_batches_in_any_order_and_resumed(estimator, tmp_path):
    def learn(model, stop_at=None):
        rng = np.random.default_rng(1)
        for batch in range(20):
            questions = model.ask(20)
            values = acquire(X, questions)
            if batch == stop_at:  # in the middle, with questions open
                model.save(tmp_path / "state.npz")
                model = two_phase(estimator).resume(tmp_path / "state.npz")
            order = rng.permutation(20)
            numbers = questions.examples[order]
            for half in (slice(0, 7), slice(7, 20)):
                model.tell(values[order][half], Y[numbers][half], numbers[half])
        return model

    whole = learn(two_phase(estimator).start(D))
    assert whole.n_examples_seen_ == N
    assert np.mean((X @ whole.coef_ - Y) ** 2) < np.mean(Y**2)
    for stop_at in (0, 1, 2, 13):  # the first phase ends after batch 1
        resumed = learn(two_phase(estimator).start(D), stop_at)
        assert resumed.coef_.tobytes() == whole.coef_.tobytes()
        assert resumed.attributes_seen_ == whole.attributes_seen_
    resumed.save(tmp_path / "a.npz")
    resumed.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_what_was_not_asked_is_refused():
    model = two_phase(AttributeEfficientRidge).start(D)
    questions = model.ask(3)
    values = acquire(X, questions)
    before = model.coef_.tobytes()
    one = values[[1]]
    broken = one.copy()
    broken[0, 0] = np.nan
    long = np.full_like(one, 1.5)  # no value beyond the norm, but all together
    cases = [
        ((one, [0.1], [7]), "7 was not asked for"),
        ((one, [0.1], [-1]), "-1 was not asked for"),
        ((values[:2], [0.1, 0.2], [1, 1]), "1 was already told"),
        ((broken, [0.1], [1]), "value of example 1 is missing or infinite"),
        ((long, [0.1], [1]), "example 1 are 1.06 times as large as `norm` allows"),
        ((one, [77.0], [1]), "beyond the bound"),
        ((one, [np.nan], [1]), "beyond the bound"),
        ((one[:, :2], [0.1], [1]), "shape"),
        ((values, [0.1] * 4), "4 targets, but 3 examples"),
    ]
    for arguments, message in cases:
        with pytest.raises(DataError, match=message):
            model.tell(*arguments)
    assert model.n_examples_seen_ == 0
    assert model.coef_.tobytes() == before
    model.tell(one, [0.1], [1])
    with pytest.raises(DataError, match="1 was already told"):
        model.tell(one, [0.1], [1])
    with pytest.raises(SpecError, match="2 examples were asked for but not told"):
        model.partial_fit(X, Y)


@BOTH
def test_rows_beyond_the_norm_are_refused(estimator):
    """Steps would be too long, and weights anything."""
    rows = X.copy()
    many = two_phase(estimator, norm=3.0).partial_fit(X, Y)
    for value, message in (
        (3.5, r"of row 7 are \d\.\d* times as large as `norm`"),
        (np.nan, "value of row 7 is missing"),
    ):
        rows[7] = value
        with pytest.raises(DataError, match=rf"{message}.* The 7 rows before have been learned"):
            many.partial_fit(rows, Y)
        with pytest.raises(DataError, match=message.replace("7", "0")):
            many.partial_fit(rows[7:8], Y[7:8])
    assert np.isfinite(many.coef_).all()


# --- pairs --------------------------------------------------------------------------------------


def told(model, rows, y, order=None):
    """Ask for all rows at once, and tell them one by one; return what was observed of them."""
    questions = model.ask(len(rows))
    observed = np.full(rows.shape, np.nan)
    values = np.take_along_axis(rows, questions.attributes, axis=1)
    np.put_along_axis(observed, questions.attributes, values, axis=1)
    for place in range(len(rows)) if order is None else order:
        model.tell(values[[place]], y[[place]], questions.examples[[place]])
    return observed


def solved(model, observed, y, fold):
    weights, intercept = solve_pairs(observed, y, fold)
    np.testing.assert_allclose(model.coef_, weights, rtol=1e-7, atol=1e-9)
    assert model.intercept_ == pytest.approx(intercept)
    assert model.attributes_seen_ == np.isfinite(observed).sum()
    assert model.n_examples_seen_ == len(observed)


FAR = X + np.arange(D)
FOLD = np.arange(N) % 5


@pytest.mark.parametrize("draws", ["uniform", "moments", "two_phase"])
def test_a_session_solves_from_the_pairs_it_was_told(draws, tmp_path):
    parameters = {"draws": draws, "n_examples": N, "second_moments": np.mean(X**2, axis=0)}
    model = AttributeEfficientRidge(4, **parameters).start(D)
    first = told(model, FAR[:150], Y[:150], np.random.default_rng(0).permutation(150))
    open_ones = model.ask(N - 150)
    model.save(tmp_path / "state")
    model = clone(model).resume(tmp_path / "state")
    assert model.session_.n_open == len(open_ones.examples)
    values = acquire(FAR, open_ones)
    second = np.full((N - 150, D), np.nan)
    np.put_along_axis(second, open_ones.attributes, values, axis=1)
    model.tell(values, Y[150:])
    solved(model, np.vstack([first, second]), Y, FOLD)
    expected = predict_cut(model.coef_, model.intercept_, np.vstack([first, second]), Y, FAR)
    np.testing.assert_allclose(model.predict(FAR), expected, atol=1e-12)
    assert model.improvement_ratio_ < 1
    shares = np.isfinite(second).mean(axis=0)
    assert (shares.std() > 0.05) == (draws != "uniform")
    # Rows at hand are drawn from in the same way; what is not drawn is not looked at.
    rows = AttributeEfficientRidge(4, **parameters).start(D)
    one_by_one = clone(rows).start(D)
    for number in range(40):
        one_by_one.tell(acquire(FAR, one_by_one.ask()), Y[[number]])
    rows.partial_fit(first[:40], Y[:40])
    np.testing.assert_allclose(rows.coef_, one_by_one.coef_, rtol=1e-9)


def test_sessions_are_merged(tmp_path):
    """Two clinics learn what one would have that was told all."""
    here, there = (AttributeEfficientRidge(4, random_state=seed).start(NAMES) for seed in (1, 2))
    seen = told(here, FAR[:170], Y[:170]), told(there, FAR[170:], Y[170:])
    here.ask(3)
    here.save(tmp_path / "here")
    other = clone(here).resume(tmp_path / "here").merge(there)
    assert here.merge(there).coef_.tobytes() == other.coef_.tobytes()
    solved(here, np.vstack(seen), Y, np.append(np.arange(170), np.arange(N - 170)) % 5)
    assert here.session_.n_open == 3
    for model, message in (
        (there, "same `random_state`"),
        (AttributeEfficientRidge(4, random_state=3).start(D), "different attributes"),
        (AttributeEfficientRidge(5, random_state=3).start(NAMES), "attributes_per_example = 5"),
    ):
        with pytest.raises(SpecError, match=message):
            here.merge(model)
    chains = [two_phase(AttributeEfficientRidge, random_state=seed).start(D) for seed in (0, 1)]
    with pytest.raises(SpecError, match="`solver='pairs'`"):
        chains[0].merge(chains[1])


def test_what_could_not_be_had_may_be_missing():
    gaps = np.where(np.random.default_rng(3).random(X.shape) < 0.3, np.nan, FAR)
    model = AttributeEfficientRidge(None, missing="pairs").start(NAMES)
    model.partial_fit(pd.DataFrame(gaps[:200], columns=NAMES), Y[:200])
    told(model, gaps[200:], Y[200:])
    solved(model, gaps, Y, FOLD)
    strict = AttributeEfficientRidge(4).start(D)
    questions = strict.ask(2)
    first = questions.attributes[0, 0]
    for values, y, message in (
        (np.full((2, 4), np.nan), [1.0, 2.0], "A value of example 0 is missing"),
        (np.zeros((2, 4)), [1.0, np.nan], "The target of example 1 is missing"),
        (np.zeros((2, 4)), [1.0, np.inf], "The target of example 1 is infinite or beyond"),
        (np.zeros((2, 4)), [1.0, 1e80], r"The target of example 1 is infinite or beyond ±1e\+75"),
        (np.eye(2, 4) * -1.3e104, [1.0, 2.0], f"of attribute {first} of example 0 is infinite or"),
    ):
        with pytest.raises(DataError, match=message):
            strict.tell(values, y, questions.examples)
    strict.tell(np.zeros((2, 4)), [1.0, 2.0])
    for value, message in ((np.nan, "y contains NaN"), (1e80, r"target of row 3 is infinite")):
        with pytest.raises(ValueError, match=message):
            strict.partial_fit(X, np.where(np.arange(N) == 3, value, Y))
    with pytest.raises(DataError, match="Too few rows"):
        strict.predict(X)
    strict.partial_fit(X, Y)  # what was refused has left no trace
    assert strict.n_examples_seen_ == N + 2
    assert np.isfinite(strict.coef_).all()


def test_states_of_other_specs_are_refused(tmp_path):
    two_phase(AttributeEfficientRidge).start(D).save(tmp_path / "state")
    for other, what in (
        (two_phase(AttributeEfficientLasso), "penalty"),
        (two_phase(AttributeEfficientRidge, bound=7.0), "bound = 6.0"),
        (two_phase(AttributeEfficientRidge, second_moments=np.ones(D)), "second_moments"),
    ):
        with pytest.raises(SpecError, match=what):
            other.resume(tmp_path / "state")
    (tmp_path / "broken").write_bytes((tmp_path / "state").read_bytes()[:200])
    for name in ("broken", "absent"):
        with pytest.raises(DataError, match="holds no session: name a file that `save` wrote"):
            two_phase(AttributeEfficientRidge).resume(tmp_path / name)


BAD = [
    ({"solver": "online"}, "`bound` must be given"),
    ({"bound": 1.0}, "`n_examples` must be given"),
    ({"draws": "two_phase"}, r"`n_examples` must be given\.$"),
    ({"draws": "moments"}, r"`second_moments` must be given\.$"),
    ({"bound": 1.0, "n_examples": 9}, "`second_moments` must be given or `draws=.two_phase"),
    ({**KNOWN, "second_moments": [1.0]}, "9 numbers"),
    ({**KNOWN, "second_moments": -np.ones(D)}, "at least 0"),
    ({**KNOWN, "attributes_per_example": 10}, r"\(n_features = 9\)"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(SpecError, match=message):
        AttributeEfficientRidge(**parameters).start(D)


def test_bad_rows_are_named():
    with pytest.raises(DataError, match="beyond `bound`"):
        AttributeEfficientRidge(4, bound=0.01).fit(X, Y)
    with pytest.raises(DataError, match="All attributes are 0"):
        AttributeEfficientRidge(4).fit(0 * X, Y)
    with pytest.raises(DataError, match="beyond the bound"):
        two_phase(AttributeEfficientRidge).partial_fit(X, 100 * Y)
    with pytest.raises(NotFittedError, match="start"):
        AttributeEfficientRidge().ask()


@pytest.mark.parametrize("Estimator", [AttributeEfficientRidge, AttributeEfficientLasso])
def test_few_columns_and_columns_at_the_edge_of_what_numbers_resolve(Estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = 2 * X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=200)
    model = Estimator(n_jobs=1).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.attributes_seen_ == 800
    with pytest.raises(ValueError, match=r"'x0' has values up to .*too small to be squared"):
        Estimator(2, n_jobs=1).fit(X * 1e-160, y)
    with pytest.raises(ValueError, match=r"'x0' varies by less than 1e-12 of its mean"):
        Estimator(2, n_jobs=1).fit(X + 1e13, y)
    # Whether columns vary depends on which values are observed.
    edge = Estimator(2, n_jobs=1).fit(X + 1e12, y)
    assert np.isfinite(edge.predict(X + 1e12)).all()
