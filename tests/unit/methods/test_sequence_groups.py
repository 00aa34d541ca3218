import pytest

from distfms.errors import SpecError
from distfms.methods.sequence.options import resolve_groups
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
