"""Judgments of several attributes by the same raters, against the literal formulas."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distfms import FeatureMultiSelector
from distfms.errors import DataError, SpecError
from distfms.methods.multiselect.evaluate import noise_correlations
from distfms.methods.multiselect.same_raters import rater_remarks
from distfms.solve.buying import full_objective
from distfms.solve.same_purchases import SameState
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.ragged import Ragged, offsets_of
from tests.reference import multiselect as literal
from tests.reference.multiselect_cases import build_problem, ragged


def problem_of(seed, d=5, *, halo=0.6, **options):
    """Correlated attributes whose judgments by one rater have noise correlations of `halo`."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((d, d))
    external = factors @ factors.T / d
    weights = rng.standard_normal(d)
    deviation = rng.uniform(0.5, 1.5, d)
    noise = np.outer(deviation, deviation) * (halo + (1 - halo) * np.eye(d))
    options.setdefault("label_variance", float(weights @ external @ weights) + 0.5)
    v = deviation**2
    return build_problem(external @ weights, v, external, noise_covariance=noise, **options)


def literal_objective(problem, repeats):
    return literal.same_raters_objective(
        problem.b, problem.external, problem.noise_covariance, repeats, problem.ridge
    )


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3]), st.data())
def test_objective_and_gains_are_those_of_the_literal_form(seed, ridge, data):
    problem = problem_of(seed, ridge=ridge)
    repeats = np.array(data.draw(st.lists(st.integers(0, 4), min_size=5, max_size=5)))
    state = SameState(problem, repeats)
    now = literal_objective(problem, repeats)
    assert full_objective(problem, repeats) == pytest.approx(now, rel=1e-9, abs=1e-12)
    assert state.objective == pytest.approx(now, rel=1e-9, abs=1e-12)
    for a, gain in enumerate(state.gains()):
        more = repeats + (np.arange(5) == a)
        assert gain == pytest.approx(literal_objective(problem, more) - now, abs=1e-9)


def crowd(seed, n, k, d=3):
    """Judgments of shape (n, d, k), where judgment j of an object is always rater j's."""
    rng = np.random.default_rng(seed)
    external = 0.4 + 0.6 * np.eye(d)
    noise = 1.5 * (0.7 + 0.3 * np.eye(d))
    truth = rng.multivariate_normal(np.zeros(d), external, n)
    errors = rng.multivariate_normal(np.zeros(d), noise, (n, k)).transpose(0, 2, 1)
    label = truth @ np.arange(1.0, d + 1) + rng.normal(size=n)
    return truth[:, :, None] + errors, label


def summary(judgments, label, raters=True):
    n, d, k = judgments.shape
    codes = [Ragged(np.tile(np.arange(k), n), offsets_of(np.full(n, k)))] * d
    known = codes if raters else None
    return JudgmentStatistics.from_block(ragged(judgments), label, raters=known)


def test_noise_correlations_are_unknown_where_one_rater_judged_both_and_nobody_else():
    values = np.random.default_rng(0).normal(size=(3, 8, 2))
    kind, tall, _ = values
    kind[4:, 1] = tall[4:, 1] = np.nan  # by the first rater alone, who judged both
    kind[:2] = np.nan
    tall[2:4] = np.nan
    ids = np.broadcast_to([0.0, 1.0], (8, 2))
    judgments = values.transpose(1, 0, 2)
    judged_by = ragged(np.where(np.isnan(judgments), np.nan, ids[:, None]))
    codes = [Ragged(column.values.astype(np.int64), column.offsets) for column in judged_by]
    found = JudgmentStatistics.from_block(ragged(judgments), np.arange(8.0), raters=codes)
    correlations = noise_correlations(found, ["kind", "tall", "calm"])
    assert correlations["kind"]["tall"] is None
    assert correlations["tall"]["kind"] is None
    assert correlations["kind"]["calm"] == correlations["calm"]["kind"] != 0.0


def test_one_rater_for_all_of_an_object_is_refused():
    judgments, label = crowd(0, 30, 1)
    with pytest.raises(DataError, match="second rater"):
        rater_remarks(summary(judgments, label), "same")
    assert rater_remarks(summary(judgments, label, raters=False), "same") == []
    assert rater_remarks(summary(*crowd(0, 30, 2)), "same") == []


# --- the estimator ------------------------------------------------------------------------------


def test_estimator_takes_raters_in_every_form():
    judgments, label = crowd(4, 300, 3)
    ids = np.tile(["ann", "bob", "eve"], (300, 1))
    named = pd.DataFrame({f"a{a}": list(judgments[:, a]) for a in range(3)} | {"raters": list(ids)})
    one_by_one = np.repeat(ids[:, None], 3, axis=1)
    fitted = [
        FeatureMultiSelector(6, buy_from="same").fit(X, label, raters=raters)
        for X, raters in (
            (judgments, "positions"),
            (judgments, ids),
            (judgments, one_by_one.tolist()),
            (named, None),
            (named.drop(columns="raters"), ids.tolist()),
        )
    ]
    for selector in fitted:
        assert selector.repeats_.tolist() == fitted[0].repeats_.tolist()
        np.testing.assert_allclose(selector.coef_, fitted[0].coef_)
    held_out = crowd(5, 200, 3)
    losses = [s.holdout_loss(*held_out, raters="positions") for s in fitted[:2]]
    assert losses[0] == pytest.approx(losses[1])
    known = FeatureMultiSelector(6).fit(named, label)
    for X, raters in ((judgments, None), (named, "ignore")):
        blind = FeatureMultiSelector(6).fit(X, label, raters=raters)
        assert blind.projected_loss_ != pytest.approx(known.projected_loss_, rel=1e-3)
    with pytest.raises(SpecError, match="needs known raters"):
        FeatureMultiSelector(6, buy_from="same").fit(judgments, label)
    with pytest.raises(DataError, match="raters has 299"):
        FeatureMultiSelector(6).fit(judgments, label, raters=ids[1:])
    with pytest.raises(SpecError, match="is 'columns_'"):
        FeatureMultiSelector(6).fit(judgments, label, raters="columns_")


def test_refit_averages_raters_as_they_are_bought_from():
    judgments, label = crowd(6, 400, 4)
    for buy_from in ("independent", "same"):
        selector = FeatureMultiSelector(3, buy_from=buy_from, model="refit", folds=0, ridge=0.0)
        selector.fit(judgments, label, raters="positions")
        r = selector.repeats_
        assert r.sum() == 3
        taken = []
        used = 0
        for a in np.argsort(-r, kind="stable"):
            first = 0 if buy_from == "same" else used
            taken.append((a, judgments[:, a, first : first + r[a]].mean(axis=1) if r[a] else None))
            used += r[a]
        columns = [x for _, x in sorted((pair for pair in taken if r[pair[0]]), key=lambda p: p[0])]
        design = np.column_stack([np.ones(400), *columns])
        want = np.linalg.lstsq(design, label, rcond=None)[0]
        np.testing.assert_allclose(selector.coef_[r > 0], want[1:], atol=1e-9)
