import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.options import (
    cost_table,
    cost_table_from_csv,
    resolve_costs,
    resolve_groups,
)
from distfms.methods.sequence.problem import FeatureGroups


def test_without_groups_every_column_is_its_own():
    groups = resolve_groups(["a", "b"])
    assert groups == FeatureGroups(("a", "b"), ((0,), (1,)))


def test_names_globs_and_the_rest():
    groups = resolve_groups(
        ["age", "bp_low", "chol", "bp_high", "sex"], {"bp": "bp_*", "lab": ["chol"]}
    )
    assert groups.names == ("bp", "lab", "age", "sex")
    assert groups.columns == ((1, 3), (2,), (0,), (4,))
    assert groups.n_columns == 5


def test_prefixes_put_together_what_no_group_names():
    groups = resolve_groups(
        ["radius_mean", "texture_mean", "radius_worst", "id"],
        {"t": ["texture_mean"]},
        prefix_separator="_",
    )
    assert groups.names == ("t", "radius", "id")
    assert groups.columns == ((1,), (0, 2), (3,))


def test_a_categorical_is_one_group_and_goes_as_a_whole():
    names = ["wd=E", "wd=N", "t", "ws"]
    sources = ["wd", "wd", "t", "ws"]
    assert resolve_groups(names, sources=sources).columns == ((0, 1), (2,), (3,))
    wind = resolve_groups(names, {"wind": ["w*"]}, sources=sources)
    assert wind.names == ("wind", "t")
    assert wind.columns == ((0, 1, 3), (2,))
    with pytest.raises(SpecError, match="'wd=E' of group 'g' is no feature"):
        resolve_groups(names, {"g": ["wd=E"]}, sources=sources)


def test_a_name_with_brackets_is_a_name_first():
    assert resolve_groups(["x[0]", "x0"], {"g": ["x[0]"]}).columns == ((0,), (1,))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["x1"], "b": ["x*"]}, "'x1' is in group 'a' and in group 'b'"),
        ({"a": ["x1", "x1"]}, "lists 'x1' twice"),
        ({"a": ["nope"]}, "'nope' of group 'a' is no feature column"),
        ({"a": ["x11"]}, "Did you mean 'x1'"),
        ({"a": []}, "'a' has no columns"),
        ({"x2": ["x1"]}, "'x2' is in no group and would make a group named 'x2'"),
    ],
)
def test_refused_by_name(groups, message):
    with pytest.raises(SpecError, match=message):
        resolve_groups(["x1", "x2"], groups)


def test_one_column_met_twice_by_globs_of_its_own_group_counts_once():
    assert resolve_groups(["bp_a", "bp_b"], {"bp": ["bp_*", "*_a"]}).columns == ((0, 1),)


def test_sources_must_match_columns():
    with pytest.raises(SpecError, match="2 columns but 1 sources"):
        resolve_groups(["a", "b"], sources=["a"])


def test_restrict_renumbers_and_drops_empty_groups():
    groups = FeatureGroups(("a", "b", "c"), ((0, 3), (1,), (2, 4)))
    kept, surviving = groups.restrict([0, 2, 3, 4])
    assert kept == FeatureGroups(("a", "c"), ((0, 2), (1, 3)))
    assert surviving == (0, 2)


# --- costs

NAMES = ["age", "chol", "fbs", "thal"]


def test_default_is_one_and_can_be_set():
    assert resolve_costs(NAMES).own.tolist() == [1, 1, 1, 1]
    assert resolve_costs(NAMES, {"default": 2, "thal": 9}).own.tolist() == [2, 2, 2, 9]


def test_an_exact_name_goes_before_a_glob():
    for costs in ({"*a*": 5, "thal": 9}, {"thal": 9, "*a*": 5}):
        assert resolve_costs(NAMES, costs).own.tolist() == [5, 1, 1, 9]


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"chl": 1}, "'chl' in costs is no group.*Did you mean 'chol'"),
        ({"c*": 1, "*l": 2}, "cost of group 'chol' is given by"),
        ({"chol": -1}, "at least 0"),
        ({"chol": float("nan")}, "at least 0"),
        ({"chol": "much"}, "not a number"),
    ],
)
def test_bad_costs_are_refused(costs, message):
    with pytest.raises(SpecError, match=message):
        resolve_costs(NAMES, costs)


def test_a_group_named_default_makes_the_key_ambiguous():
    with pytest.raises(SpecError, match="named 'default'"):
        resolve_costs(["default", "a"], {"default": 3})


def test_shared_costs_are_paid_once():
    costs = resolve_costs(
        NAMES,
        {"chol": 5, "fbs": 3},
        shared={
            "blood": {"groups": ["chol", "fbs"], "cost": 2},
            "visit": {"groups": ["*"], "cost": 10},
        },
    )
    assert costs.alone.tolist() == [11, 17, 15, 11]
    assert costs.marginal([0]).tolist() == [1, 7, 5, 1]
    assert costs.marginal([2]).tolist() == [1, 5, 3, 1]
    assert costs.of_order([0, 1, 2, 3]).tolist() == [11, 7, 3, 1]


def test_taking_some_groups_keeps_their_shared_costs():
    costs = resolve_costs(
        NAMES,
        shared={
            "blood": {"groups": ["chol", "fbs"], "cost": 2},
            "a": {"groups": ["age"], "cost": 4},
        },
    ).take([2, 3])
    assert costs.alone.tolist() == [3, 1]
    assert len(costs.shared) == 1


@pytest.mark.parametrize(
    ("shared", "message"),
    [
        ({"s": {"groups": ["chol"]}}, "needs the keys"),
        ({"s": {"groups": ["chol"], "cost": 1, "x": 2}}, "needs the keys"),
        ({"s": {"groups": "chol", "cost": 1}}, "must be a list"),
        ({"s": {"groups": ["no"], "cost": 1}}, "shared cost 's' is no group"),
        ({"s": {"groups": ["chol"], "cost": -1}}, "at least 0"),
    ],
)
def test_bad_shared_costs_are_refused(shared, message):
    with pytest.raises(SpecError, match=message):
        resolve_costs(NAMES, shared=shared)


def test_cost_tables():
    assert cost_table([("a", 1.0), ("b", 2.5)]) == {"a": 1.0, "b": 2.5}
    assert cost_table_from_csv(["group,cost", "a,1", "b,2.5"]) == {"a": 1.0, "b": 2.5}
    with pytest.raises(SpecError, match="'a' twice"):
        cost_table([("a", 1.0), ("a", 2.0)])
    with pytest.raises(SpecError, match="columns 'group' and 'cost'"):
        cost_table_from_csv(["name,cost", "a,1"])
    with pytest.raises(SpecError, match=r"'a'.*not a number"):
        cost_table_from_csv(["group,cost", "a,"])
