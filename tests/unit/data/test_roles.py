import pyarrow as pa
import pytest

from distfms.data.roles import resolve_roles
from distfms.errors import DataError, SpecError

SCHEMA = pa.schema(
    {
        "person": pa.int64(),
        "bp_low": pa.float64(),
        "bp_high": pa.float32(),
        "age": pa.int8(),
        "sex": pa.string(),
        "smokes": pa.bool_(),
        "ill": pa.decimal128(8, 2),
        "w": pa.float64(),
    }
)


def resolve(**roles):
    return resolve_roles(SCHEMA, **{"target": "ill", **roles})


def test_by_default_every_other_column_is_a_feature():
    roles = resolve(id="person", weight="w")
    assert roles.features == ("bp_low", "bp_high", "age", "sex", "smokes")
    assert (roles.target, roles.id, roles.weight) == (("ill",), "person", "w")


def test_features_keep_the_order_of_patterns_then_of_the_schema():
    assert resolve(features=["age", "bp_*", "*"], exclude=["w", "person"]).features == (
        "age",
        "bp_low",
        "bp_high",
        "sex",
        "smokes",
    )


def test_globs_mind_the_case():
    with pytest.raises(DataError, match=r"'BP_\*' in `features` matches no"):
        resolve(features=["BP_*"])


def test_a_single_name_may_stand_for_a_list():
    assert resolve(features="bp_*").features == ("bp_low", "bp_high")
    assert resolve(features="bp_*", exclude="*_low").features == ("bp_high",)


def test_a_name_with_brackets_is_taken_literally():
    schema = pa.schema({"a[1]": pa.float64(), "a1": pa.float64(), "y": pa.float64()})
    assert resolve_roles(schema, target="y", features=["a[1]"]).features == ("a[1]",)
    assert resolve_roles(schema, target="y", exclude=["a[1]"]).features == ("a1",)


def test_an_asterisk_is_every_column_also_where_one_is_called_so():
    schema = pa.schema({"*": pa.float64(), "x": pa.float64(), "y": pa.float64()})
    assert resolve_roles(schema, target="y").features == ("*", "x")
    assert resolve_roles(schema, target="y", exclude="[*]").features == ("x",)
    assert resolve_roles(schema, target="y", features="[*]").features == ("*",)


def test_columns_of_a_model_are_no_globs():
    schema = pa.schema({"x": pa.float64(), "*": pa.float64(), "a1": pa.float64()})
    assert resolve_roles(schema, target=None, features=["*"], globs=False).features == ("*",)
    with pytest.raises(DataError, match=r"no column 'a\[1\]', named as a feature"):
        resolve_roles(schema, target=None, features=["a[1]"], globs=False)


def test_no_target_is_needed_for_prediction():
    assert resolve_roles(SCHEMA, target=None, features="age").target == ()


def test_the_query_decides_folds_before_the_id():
    assert resolve(id="person", query="age").fold_key == "age"
    assert resolve(id="person").fold_key == "person"
    assert resolve().fold_key is None


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"target": "il"}, r"no column 'il', named as `target` \(did you mean 'ill'\?\)"),
        ({"target": "ILL"}, r"did you mean 'ill'"),
        ({"weight": "wt"}, "no column 'wt', named as `weight`"),
        ({"features": ["bp_lo"]}, r"no column 'bp_lo', named as a feature .*'bp_low'"),
        ({"exclude": ["sexx"]}, r"`exclude` names 'sexx', which matches no column .*'sex'"),
        ({"target": "sex"}, "target column 'sex' holds string, but must hold numbers"),
        ({"weight": "sex"}, "weight column 'sex' holds string, but must hold numbers"),
    ],
)
def test_columns_that_do_not_fit(roles, message):
    with pytest.raises(DataError, match=message):
        resolve(**roles)


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"features": ["age", "ill"]}, "'ill' is named as a feature and as target"),
        ({"features": ["age"], "id": "age"}, "'age' is named as a feature and as id"),
        ({"features": ["age", "age"]}, "'age' is named twice in `features`"),
        ({"features": ["age"], "exclude": ["ag*"]}, "'age' is named in `features` and excluded"),
        ({"target": ["ill", "ill"]}, "'ill' is named twice as target"),
        ({"weight": "ill"}, "'ill' is named as target and as weight"),
        ({"exclude": ["*"]}, "No feature column is left"),
    ],
)
def test_contradictory_roles(roles, message):
    with pytest.raises((SpecError, DataError), match=message):
        resolve(**roles)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (pa.list_(pa.float64()), "is nested"),
        (pa.struct({"a": pa.int8()}), "is nested"),
        (pa.timestamp("us"), "neither a number nor a category"),
        (pa.binary(), "neither a number nor a category"),
        (pa.null(), "All values of the feature column 'x' are missing"),
    ],
)
def test_features_of_other_types(dtype, message):
    schema = pa.schema({"x": dtype, "z": pa.float64(), "y": pa.float64()})
    with pytest.raises(DataError, match=message):
        resolve_roles(schema, target="y")
    assert resolve_roles(schema, target="y", exclude="x").features == ("z",)


def test_an_all_null_target():
    schema = pa.schema({"x": pa.float64(), "y": pa.null()})
    with pytest.raises(DataError, match="All values of the target column 'y' are missing"):
        resolve_roles(schema, target="y")


def test_judgments_may_be_lists_but_not_categories():
    lists = {
        "a": pa.list_(pa.float64()),
        "b": pa.large_list(pa.int8()),
        "c": pa.list_(pa.int8(), 2),
    }
    schema = pa.schema({**lists, "y": pa.float64()})
    assert resolve_roles(schema, target="y", judgments=True).features == ("a", "b", "c")
    with pytest.raises(DataError, match="attribute column 'sex' holds string"):
        resolve(judgments=True, features=["age", "sex"])
    with pytest.raises(DataError, match="attribute column 't' holds list<"):
        resolve_roles(pa.schema({"t": pa.list_(pa.string())}), target=None, judgments=True)
