"""The gate as a pure function."""

import math

import pytest

from distfms.retrain.gate import Comparison, conditions
from distfms.retrain.place import Changes
from distfms.spec import GateSection


def changes(n_new=100, n_lost=0, n_before=1000):
    return Changes(("new",), (), (), n_new, n_lost, n_before)


def failed(gate, *compared, drift=None, **changed):
    found = conditions(GateSection(**gate), changes(**changed), compared, drift)
    return [condition.text for condition in found if not condition.holds]


@pytest.mark.parametrize(
    ("measure", "before", "now", "gain"),
    [
        ("mse", 2.0, 1.5, 0.25),  # the share by which a loss falls
        ("mse", 0.0, 0.0, 0.0),
        ("projected_loss", -1.0, -1.5, 0.5),
        ("mse", 0.0, 1.0, math.nan),
        ("r2", 0.5, 0.75, 0.25),  # what a score rises by
    ],
)
def test_gain(measure, before, now, gain):
    found = Comparison("held_out", 9, measure, before, now).gain
    assert found == pytest.approx(gain, nan_ok=True)


REGRESSED = {"held_out": 1.05, "newest": 0.9}
BETTER = {"held_out": 0.99, "newest": 0.8}
SHIFTED = {"column": "x", "quantity": "mean"}


@pytest.mark.parametrize(
    ("gate", "losses", "changed", "refused"),
    [
        ({}, REGRESSED, {}, ["mse on held-out rows at most 2.00% worse"]),
        ({"max_regression": 0.06}, REGRESSED, {}, []),
        ({"min_gain": 0.1}, BETTER, {}, ["better by at least 10.00%"]),
        ({"min_gain": 0.1, "on": "newest"}, BETTER, {}, []),
        (
            {"min_gain": 0.1, "on": "newest"},
            {"held_out": 0.5},
            {},
            ["better by at least 10.00% on newest rows"],
        ),
        ({}, {"held_out": math.nan}, {}, ["mse on held-out rows at most 2.00% worse"]),
        ({"max_drift": 0.5}, {}, {"drift": SHIFTED | {"largest": 0.5}}, []),
        ({"max_drift": 0.5}, {}, {"drift": SHIFTED | {"largest": 0.51}}, ["drift"]),
        ({"min_rows": 101}, {}, {}, ["at least 101 rows in new and changed files"]),
        ({}, {}, {"n_lost": 101}, ["at most 10.0% of the rows behind the model in place lost"]),
        ({}, {}, {"n_lost": 100}, []),
    ],
)
def test_what_is_refused(gate, losses, changed, refused):
    compared = [Comparison(rows, 9, "mse", 1.0, loss) for rows, loss in losses.items()]
    found = failed(gate, *compared, **changed)
    assert len(found) == len(refused)
    assert all(words in text for words, text in zip(refused, found, strict=True))
