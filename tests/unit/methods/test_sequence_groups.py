import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.options import SharedCostSection, resolve_costs, resolve_groups


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ("a b", {}, {"a": (0,), "b": (1,)}),
        (
            "age bp_low chol bp_high sex",
            {"groups": {"bp": ["bp_*"], "lab": ["chol"]}},
            {"bp": (1, 3), "lab": (2,), "age": (0,), "sex": (4,)},
        ),
        (
            "radius_mean texture_mean radius_worst id",
            {"groups": "_"},
            {"radius": (0, 2), "texture": (1,), "id": (3,)},
        ),
        # A name with brackets is a name first; two globs of a group may meet one column.
        ("x[0] x0", {"groups": {"g": ["x[0]"]}}, {"g": (0,), "x0": (1,)}),
        ("bp_a bp_b", {"groups": {"bp": ["bp_*", "*_a"]}}, {"bp": (0, 1)}),
    ],
)
def test_groups_of_columns(names, options, expected):
    found = resolve_groups(names.split(), **options)
    assert dict(zip(found.names, found.columns, strict=True)) == expected


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["x1"], "b": ["x*"]}, "'x1' is in group 'a' and in group 'b'"),
        ({"a": ["nope"]}, "'nope' of group 'a' is not a feature column"),
        ({"a": ["x11"]}, "Did you mean 'x1'"),
        ({"a": []}, "'a' has no columns"),
        ({"x2": ["x1"]}, "'x2' is in no group and would make a group of its own"),
    ],
)
def test_refused_by_name(groups, message):
    with pytest.raises(SpecError, match=message):
        resolve_groups(["x1", "x2"], groups)


# --- costs

NAMES = ["age", "chol", "fbs", "thal"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (NAMES, {"costs": {"chl": 1}}, "'chl' in costs is not a group.*Did you mean 'chol'"),
        (NAMES, {"costs": {"c*": 1, "*l": 2}}, "cost of group 'chol' is given by"),
        (["default", "a"], {"costs": {"default": 3}}, "named 'default'"),
        (
            NAMES,
            {"shared": {"s": SharedCostSection(groups=("no",), cost=1)}},
            "shared cost 's' is not a group",
        ),
        (NAMES, {"requires": {"thal": ["cohl"]}}, "'cohl' in `sequence.requires`.*mean 'chol'"),
        (NAMES, {"requires": {"tahl": ["chol"]}}, "'tahl' in `sequence.requires` is not a group"),
        (NAMES, {"requires": {"fbs": ["fbs"]}}, "require one another: 'fbs' → 'fbs'"),
        (
            NAMES,
            {"requires": {"fbs": ["chol"], "chol": ["age", "thal"], "thal": ["fbs"]}},
            "require one another: .*'thal'",
        ),
    ],
)
def test_bad_costs_are_refused(names, options, message):
    with pytest.raises(SpecError, match=message):
        resolve_costs(names, **options)


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
