"""What only the estimators of sequences do: groups, costs, prefixes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from distfms import GroupSequencer
from distfms.data.files.write import write_table
from distfms.methods.sequence import procedure

GROUPS = {"blood": ["iron", "sugar"], "scan": "image_*"}
COSTS = {"blood": 2.0, "scan": 7.0, "default": 0.5}
MODEL = GroupSequencer(GROUPS, COSTS, ridge=1e-3, folds=0)


def patients():
    """Numbers, a category and a boolean; the target depends on some of them."""
    n = 400
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "iron": rng.normal(50.0, 9.0, n),
            "sugar": rng.gamma(2.0, 3.0, n),
            "ward": pd.Categorical(rng.choice(["north", "south", "west"], n)),
            "image_a": rng.normal(size=n),
            "smoker": rng.random(n) < 0.3,
            "image_b": rng.normal(1e6, 1.0, n),
        }
    )
    score = (frame["iron"] - 50) / 9 + frame["image_a"] + 0.7 * (frame["ward"] == "west")
    return frame, score.to_numpy() + rng.normal(size=n)


FRAME, Y = patients()


def test_a_budget_needs_and_reads_the_columns_of_its_prefix_only(tmp_path):
    import pyarrow as pa

    model = clone(MODEL).fit(FRAME, Y)
    first = model.predictor_.spent[0]
    part = FRAME[model.get_feature_names_out()[model.get_support(budget=first)]]
    assert list(part.columns) == ["iron", "sugar"]
    expected = model.predict(FRAME, budget=first)
    np.testing.assert_array_equal(model.predict(part, budget=first), expected)
    write_table(tmp_path / "part.parquet", pa.Table.from_pandas(part, preserve_index=False))
    np.testing.assert_array_equal(model.predict(tmp_path, budget=first), expected)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(part)
    assert list(model.transform(FRAME, budget=first).columns) == ["iron", "sugar"]
    limited = clone(model).set_params(budget=first).fit(FRAME, Y)
    np.testing.assert_array_equal(limited.get_support(), limited.get_support(budget=first))
    np.testing.assert_array_equal(limited.predict(FRAME), limited.predict(FRAME, budget=first))
    assert 0 < limited.get_support().sum() < limited.n_features_in_
    assert len(limited.coef_path_) == len(limited.sequence_) + 1
    np.testing.assert_allclose(model.predict(FRAME, budget=0.0), Y.mean(), rtol=1e-12)


def test_stages_of_a_run_share_what_they_make(monkeypatch):
    posed = []
    pose = procedure.problem_from_comoments
    monkeypatch.setattr(
        procedure, "problem_from_comoments", lambda *a, **k: posed.append(1) or pose(*a, **k)
    )
    clone(MODEL).fit(FRAME, Y)
    assert len(posed) == 1


def test_groups_come_one_by_one():
    model = clone(MODEL).fit(FRAME, Y)
    session = model.anytime(n_samples=4)
    for group, spent in zip(model.sequence_, model.predictor_.spent, strict=True):
        source = FRAME[["ward"]] if group == "ward" else FRAME
        assert session.deliver(group, model.group_values(group, source[:4]))
        np.testing.assert_allclose(session.prediction, model.predict(FRAME[:4], budget=spent))
    assert not model.anytime(deadline_s=0.0).deliver("scan", [1.0, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {"a": ["irn"]}}, "Did you mean 'iron'"),
        ({"groups": {"a": [17]}}, "names column 17"),
        ({"groups": [0, 1]}, "an id for each of the 6"),
        ({"costs": [1.0]}, "one for each of the"),
        ({"costs": {"blood": -1.0}}, "^`costs.blood` is -1.0: it must be at least"),
        ({"shared_costs": {"kit": {"groups": ["blood"]}}}, "no value for `shared_costs.kit.cost`"),
        ({"ridge": -1.0}, "^`ridge`"),
        ({"family": "logistic"}, "GroupSequenceClassifier"),
        ({"criterion": "lars"}, "^`criterion`"),
        ({"missing": "median"}, "^`missing` is 'median': it must be 'error', 'drop'"),
        ({"tune": {"ridg": [1.0]}, "folds": 2}, "^`grid.ridg`"),
    ],
)
def test_wrong_parameters_are_value_errors_that_say_what_to_do(options, message):
    with pytest.raises(ValueError, match=message):
        GroupSequencer(**{"groups": GROUPS, **options}).fit(FRAME[:30], np.abs(Y[:30]))
