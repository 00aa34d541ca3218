import pyarrow as pa
import pytest

from distfms.data.rows.roles import resolve_roles
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


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"target": "il"}, r"no column 'il', named as `target`\. Did you mean 'ill'\?"),
        ({"target": "ILL"}, r"Did you mean 'ill'"),
        ({"weight": "wt"}, "no column 'wt', named as `weight`"),
        ({"features": ["BP_*"]}, r"'BP_\*' in `features` matches no"),
        ({"features": ["bp_lo"]}, r"no column 'bp_lo', named as a feature.*'bp_low'"),
        ({"features": ["bp_*"], "globs": False}, r"no column 'bp_\*', named as a feature"),
        ({"exclude": ["sexx"]}, r"`exclude` names 'sexx', which matches no column.*'sex'"),
        ({"target": "sex"}, "target column 'sex' holds string, but must hold numbers"),
        ({"target": "none"}, "All values of the target column 'none' are missing"),
        ({"weight": "sex"}, "weight column 'sex' holds string, but must hold numbers"),
        ({"judgments": True, "features": ["age", "sex"]}, "feature column 'sex' holds string"),
        ({"judgments": True, "features": ["texts"]}, "'texts' holds list<.* or lists of"),
        ({"features": ["age", "ill"]}, "'ill' is named as a feature and as target"),
        ({"features": ["age"], "id": "age"}, "'age' is named as a feature and as id"),
        ({"features": ["age", "age"]}, "'age' is twice in `features`"),
        ({"features": ["age"], "exclude": ["ag*"]}, "'age' is both in `features` and excluded"),
        ({"target": ["ill", "ill"]}, "'ill' is named twice as target"),
        ({"weight": "ill"}, "'ill' is named as target and as weight"),
        ({"exclude": ["*"]}, "No feature column is left"),
    ],
)
def test_columns_that_do_not_fit(roles, message):
    more = {"none": pa.null(), "texts": pa.list_(pa.string())}
    schema = pa.schema([*SCHEMA, *pa.schema(more)])
    with pytest.raises((SpecError, DataError), match=message):
        resolve_roles(schema, **{"target": "ill", **roles})
