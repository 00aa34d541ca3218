"""Confusion counts and binned scores against scikit-learn on the rows."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    roc_auc_score,
)

from distfms.stats.classification import (
    at_threshold,
    auroc,
    best_threshold,
    class_measures,
    class_report,
    class_sums,
    log_odds,
    sampling_error,
)


def rows(n_classes, n=900, seed=0):
    rng = np.random.default_rng(seed)
    eta = 2.0 * rng.normal(size=(n_classes, n))
    target = (eta + rng.gumbel(size=eta.shape)).argmax(axis=0)
    target[target == n_classes - 2] *= rng.random((target == n_classes - 2).sum()) < 0.3
    shares = np.exp(eta) / np.exp(eta).sum(axis=0)
    return target, shares, rng.uniform(0.1, 2.0, n)


def sums_of(target, shares, weight, n_classes):
    own = np.arange(n_classes)[-len(shares) :, np.newaxis]
    decoded = shares.argmax(axis=0) if len(shares) > 1 else shares[0] > 0.5
    return class_sums(target, decoded, weight, n_classes, log_odds(shares), own == target), decoded


@pytest.mark.parametrize("n_classes", [2, 4])
def test_measures_are_those_of_the_rows_in_parts_as_in_whole(n_classes):
    target, shares, weight = rows(n_classes)
    shares = shares[1:] if n_classes == 2 else shares
    cuts = (slice(0, 200), slice(200, 200), slice(200, None))
    parts = [sums_of(target[s], shares[:, s], weight[s], n_classes)[0] for s in cuts]
    sums = {name: sum(part[name] for part in parts) for name in parts[0]}
    decoded = sums_of(target, shares, weight, n_classes)[1]
    on = {"sample_weight": weight}
    np.testing.assert_allclose(sums["confusion"], confusion_matrix(target, decoded, **on))
    found = class_measures(sums)
    assert found["balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(target, decoded, **on)
    )
    assert found["macro_f1"] == pytest.approx(f1_score(target, decoded, average="macro", **on))
    events = [target == k for k in range(n_classes)][-len(shares) :]
    areas = [roc_auc_score(e, s, **on) for e, s in zip(events, shares, strict=True)]
    area, error = auroc(sums["events"], sums["others"])
    assert (np.abs(area - areas) <= error).all()
    assert (error < 0.004).all()
    assert found["auroc"] == pytest.approx(area.mean())
    precision = [average_precision_score(e, s, **on) for e, s in zip(events, shares, strict=True)]
    assert found["auprc"] == pytest.approx(np.mean(precision), abs=0.003)


@pytest.mark.parametrize(
    ("rule", "loss"),
    [
        ("f1", lambda t, d, w: -f1_score(t, d, sample_weight=w)),
        ("balanced", lambda t, d, w: -balanced_accuracy_score(t, d, sample_weight=w)),
        ((1.0, 4.0), lambda t, d, w: w @ np.where(d > t, 1.0, 4.0 * (d < t))),
    ],
)
def test_the_threshold_is_the_best_of_all(rule, loss):
    target, shares, weight = rows(2)
    sums, _ = sums_of(target, shares[1:], weight, 2)
    found = best_threshold(sums, rule)
    losses = [loss(target, shares[1] >= t, weight) for t in (*np.unique(shares[1])[::5], 2.0)]
    decoded = shares[1] >= found
    assert loss(target, decoded, weight) == pytest.approx(min(losses), rel=3e-3)
    confusion = confusion_matrix(target, decoded, sample_weight=weight)
    np.testing.assert_allclose(at_threshold(sums, found)["confusion"], confusion)


@pytest.mark.parametrize("rule", ["f1", "balanced", (1.0, 4.0)])
def test_of_equally_good_thresholds_the_one_nearest_to_a_half_is_taken(rule):
    target = np.array([0, 0, 1, 1])
    for shares, expected in (
        ([0.1, 0.2, 0.8, 0.9], 0.5),
        ([0.1, 0.2, 0.3, 0.9], 0.3),
        ([0.1, 0.7, 0.8, 0.9], 0.7),
    ):
        sums, _ = sums_of(target, np.array([shares]), np.ones(4), 2)
        assert best_threshold(sums, rule) == pytest.approx(expected, abs=0.004)


def test_the_middle_of_a_bin_stands_for_its_rows_in_calibration():
    shares = np.linspace(0.52, 0.58, 3000)[np.newaxis]
    sums, _ = sums_of(np.arange(3000) % 2, shares, np.ones(3000), 2)
    (found,) = class_report(sums, ["no", "yes"], "test", calibrated=True)["calibration"]
    assert found["predicted"] == pytest.approx(0.55, abs=2e-4)


@pytest.mark.parametrize(("n_events", "n_others", "rate"), [(30, 30, 1.0), (8, 80, 3.0)])
def test_the_sampling_error_of_an_auroc_is_its_spread_over_tables(n_events, n_others, rate):
    """Of exponential scores, for which the formula is exact at the true area."""
    rng = np.random.default_rng(5)
    target = np.repeat([1, 0], [n_events, n_others])
    areas = []
    errors = []
    for _ in range(400):
        scores = rng.exponential(np.where(target, rate, 1.0))[np.newaxis]
        decoded = np.zeros_like(target)
        weight = np.full(len(target), 0.5)
        sums = class_sums(target, decoded, weight, 2, scores, target[np.newaxis] == 1)
        areas.append(auroc(sums["events"], sums["others"])[0][0])
        errors.append(sampling_error(sums, len(target)))
    assert np.mean(errors) == pytest.approx(np.std(areas), rel=0.1)


def test_an_auroc_without_an_event_has_no_sampling_error():
    none = {"events": np.zeros((1, 2048)), "others": np.ones((1, 2048))}
    assert sampling_error(none, 10) is None
