import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.options import cost_table, cost_table_from_csv, resolve_costs

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
