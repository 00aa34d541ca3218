import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.options import (
    SharedCostSection,
    read_cost_file,
    resolve_costs,
    resolve_groups,
)
from distfms.methods.sequence.problem import FeatureGroups


def test_without_groups_every_column_is_its_own():
    groups = resolve_groups(["a", "b"])
    assert groups == FeatureGroups(("a", "b"), ((0,), (1,)))


def test_names_globs_and_the_rest():
    groups = resolve_groups(
        ["age", "bp_low", "chol", "bp_high", "sex"], {"bp": ["bp_*"], "lab": ["chol"]}
    )
    assert groups.names == ("bp", "lab", "age", "sex")
    assert groups.columns == ((1, 3), (2,), (0,), (4,))


def test_prefixes_put_together_what_no_group_names():
    groups = resolve_groups(
        ["radius_mean", "texture_mean", "radius_worst", "id"],
        {"t": ["texture_mean"]},
        prefix_separator="_",
    )
    assert groups.names == ("t", "radius", "id")
    assert groups.columns == ((1,), (0, 2), (3,))


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
            "blood": SharedCostSection(groups=("chol", "fbs"), cost=2),
            "visit": SharedCostSection(groups=("*",), cost=10),
        },
    )
    assert costs.alone.tolist() == [11, 17, 15, 11]
    assert costs.marginal([0]).tolist() == [1, 7, 5, 1]
    assert costs.marginal([2]).tolist() == [1, 5, 3, 1]
    steps = [costs.marginal(range(k))[k] for k in range(4)]
    assert steps == [11, 7, 3, 1]


def test_taking_some_groups_keeps_their_shared_costs():
    costs = resolve_costs(
        NAMES,
        shared={
            "blood": SharedCostSection(groups=("chol", "fbs"), cost=2),
            "a": SharedCostSection(groups=("age",), cost=4),
        },
    ).take([2, 3])
    assert costs.alone.tolist() == [3, 1]
    assert len(costs.shared) == 1


def test_a_shared_cost_of_an_unknown_group_is_refused():
    with pytest.raises(SpecError, match="shared cost 's' is no group"):
        resolve_costs(NAMES, shared={"s": SharedCostSection(groups=("no",), cost=1)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group,price\nage,1\n", "needs the columns 'group' and 'cost'"),
        ("group,cost\nage,1\nage,2\n", "'age' is there twice"),
        ("group,cost\nage,much\n", "'much', which is not a number"),
        ("group,cost\nage,\n", "None, which is not a number"),
    ],
)
def test_bad_cost_tables_are_refused(tmp_path, text, message):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(SpecError, match=message):
        read_cost_file(str(tmp_path / "c.csv"))


def test_names_in_cost_tables_stay_text(tmp_path):
    (tmp_path / "c.csv").write_text("\ufeffgroup,cost\n007,1\n07,2.5\n", encoding="utf-8")
    assert read_cost_file(str(tmp_path / "c.csv")) == {"007": 1, "07": 2.5}
