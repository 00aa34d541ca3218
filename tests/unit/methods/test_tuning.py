"""Grids, their checks and the choice among their points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms.errors import SpecError
from distfms.methods.frame.choose import best as best_mean
from distfms.methods.frame.tuning import RULES, Compared, LeftOpen, grid_points, rule_in_turn
from distfms.report.formatting import options_text
from distfms.runs.job_spec import build_spec
from distfms.stats.base import over_folds
from distfms.stats.folds import FoldAnswers

JOBS = {
    "sequence": {"method": "sequence", "sequence": {}},
    "multiselect": {"method": "multiselect", "multiselect": {"budget": 4}},
}


def tuned(grid, method="sequence", folds=3, **tune):
    content = {
        **JOBS[method],
        "name": "job",
        "data": {"path": "somewhere", "target": "y", "folds": folds},
        "tune": {"grid": grid, **tune},
    }
    return build_spec(content)


# --- the section --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "more", "message"),
    [
        ({"ridge": [0.1, -1.0]}, {}, r"`tune\.grid\.ridge\[1\]` is -1\.0.*at least 0"),
        ({"ridge": [0.1, "big"]}, {}, r"`tune\.grid\.ridge\[1\]` is 'big'"),
        ({"ridge": [True]}, {}, r"`tune\.grid\.ridge\[0\]` is True"),
        ({"ridge": [float("nan")]}, {}, r"`tune\.grid\.ridge\[0\]`"),
        ({"cost_aware": [True, 0]}, {}, r"`tune\.grid\.cost_aware\[1\]` is 0"),
        ({"criterion": ["fr", "opm"]}, {}, r"`tune\.grid\.criterion\[1\]` is 'opm'.*'omp'"),
        ({"max_groups": [3, 0]}, {}, r"`tune\.grid\.max_groups\[1\]` is 0"),
        ({"rigde": [0.1]}, {}, r"`tune\.grid\.rigde` is not an option of `sequence`.*'ridge'"),
        ({"groups": [{}]}, {}, r"`tune\.grid\.groups` cannot be tuned"),
        ({"family": ["poisson"]}, {}, r"cannot be tuned.*Choose from ridge, criterion"),
        ({"ridge": []}, {}, r"`tune\.grid\.ridge` is \[\]: it is empty; give at least one\.$"),
        ({"ridge": 0.1}, {}, r"`tune\.grid\.ridge` is 0\.1.*list"),
        ({}, {}, r"`tune\.grid` is \{\}: it is empty; give at least one\.$"),
        ({"ridge": [0.1]}, {"rule": "bset"}, r"`tune\.rule` is 'bset'"),
        ({"ridge": [0.1]}, {"mesure": "mse"}, r"Unknown key `tune\.mesure`.*'measure'"),
        ({"ridge": [0.1]}, {"measure": "rms"}, r"`tune\.measure` is 'rms'.*'mse'"),
        ({"ridge": [0.1]}, {"folds": 0}, r"`data\.folds` of at least 2; it is 0"),
        (
            {"ridge": [float(i) for i in range(1, 101)], "max_groups": list(range(1, 51))},
            {},
            r"5,000 points, that is 15,000 evaluations on 3 folds; at most 10,000",
        ),
    ],
)  # fmt: skip
def test_slips_are_named(grid, more, message):
    with pytest.raises(SpecError, match=message):
        tuned(grid, **more)


@pytest.mark.parametrize(
    ("method", "tune", "message"),
    [
        ("sequence", None, "is missing the key `tune.grid`"),
        ("sequence", [1], "`tune` must be a section with keys"),
        ("sequence", {"rule": "best"}, "is missing the key `tune.grid`"),
        ("multiselect", {"grid": {"budget": [3, 0]}}, r"`tune\.grid\.budget\[1\]` is 0"),
        ("multiselect", {"grid": {"costs": [{"a": 1}]}}, r"`tune\.grid\.costs` cannot be tuned"),
        ("multiselect", {"grid": {"model": ["refit"]}}, "or run a job for each value"),
    ],
)
def test_slips_of_the_section(method, tune, message):
    data = {"path": "x", "target": "y", "folds": 2}
    with pytest.raises(SpecError, match=message):
        build_spec({**JOBS[method], "name": "job", "data": data, "tune": tune})


def test_points_are_in_the_order_of_the_grid():
    points = grid_points({"a": [1, 2], "b": ["x", "y"]})
    assert [tuple(p.values()) for p in points] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert options_text(
        {"ridge": 1e-6, "doubling": True, "max_groups": None, "criterion": "fr"}
    ) == ("ridge 1e-06, doubling true, max_groups none, criterion fr")


# --- the choice ---------------------------------------------------------------------------------


def choose(values, weights, rule, higher_is_better=False):
    """Return the choice, and the places of the best and the chosen point."""
    folds = tuple(range(len(weights)))
    on_folds = FoldAnswers(folds, folds, tuple(weights), ())
    points = [{"a": number} for number in range(len(values))]
    choice = Compared(points, on_folds, values, higher_is_better).choice(RULES[rule])
    best = [point["best"] for point in choice["points"]].index(True)
    return choice["points"], best, choice["chosen"]["a"]


def test_each_point_chooses_what_it_leaves_open_before_the_rule_chooses_points():
    points = [{"n": n, "ridge": ridge} for n in (1, 2) for ridge in (0.1, 1.0)]
    losses = np.array([[4.0, 4.0], [2.1, 2.9], [5.0, 5.0], [2.0, 2.8]])
    left_open = LeftOpen(lambda options: [], lambda tried: best_mean)
    weights = np.ones(2)
    chosen = {}
    for name, among in RULES.items():
        rule = rule_in_turn(points, ["n"], left_open, among)
        chosen[name] = points[rule(losses, weights)]
    assert chosen["best"] == {"n": 2, "ridge": 1.0}
    assert chosen["one_standard_error"] == {"n": 2, "ridge": 1.0}
    losses[1] = [2.0, 2.95]
    rule = rule_in_turn(points, ["n"], left_open, RULES["one_standard_error"])
    assert points[rule(losses, weights)] == {"n": 1, "ridge": 1.0}


TABLES = st.integers(2, 6).flatmap(
    lambda k: st.tuples(
        st.lists(st.lists(st.floats(-1e3, 1e3), min_size=k, max_size=k), min_size=1, max_size=8),
        st.lists(st.floats(0.1, 10.0), min_size=k, max_size=k),
    )
)


@given(table=TABLES)
def test_laws_of_the_choice(table):
    values = np.array(table[0])
    weights = table[1]
    _, least, best = choose(values, weights, "best")
    _, _, simple = choose(values, weights, "one_standard_error")
    assert best == least
    assert (over_folds(values, weights).mean >= over_folds(values[best], weights).mean).all()
    # The simplest is at most as late as the best, and behind it by at most the error of that.
    assert simple <= best
    behind = over_folds(values - values[best], weights)
    assert behind.mean[simple] <= behind.standard_error[simple]
    # More is better of the negative; scales by powers of two change nothing but the scale.
    for rule, chosen in (("best", best), ("one_standard_error", simple)):
        assert choose(-values, weights, rule, True)[2] == chosen
        assert choose(4.0 * values, weights, rule)[2] == chosen
