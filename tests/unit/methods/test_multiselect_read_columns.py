"""Which columns a model's judgments are read from, in data other than the training data."""

import numpy as np
import pandas as pd
import pytest

from distfms import DataError, FeatureMultiSelector
from distfms.data.judgments import AttributeColumns, JudgmentLayout
from distfms.methods.multiselect.model import TrainedColumns

FIXED = AttributeColumns("a", ("a__1", "a__2"), "numbers")
PLAIN = AttributeColumns("a", ("a",), "list")


@pytest.mark.parametrize(
    ("attribute", "available", "new", "expected"),
    [
        (FIXED, ["a__1", "a__2"], ["a__2", "a__1", "b"], ["a__2", "a__1"]),
        (FIXED, ["a__1", "a__2"], ["a", "a__1"], ["a__1"]),
        (FIXED, ["a__1", "a__2"], ["a"], ["a"]),
        (FIXED, ["a__1", "a__2"], ["a__1", "a__2", "a__3"], ["a__1", "a__2", "a__3"]),
        (FIXED, ["a", "a__1", "a__2", "a__3"], ["a", "a__1", "a__3", "a__4"], ["a__1", "a__4"]),
        (PLAIN, ["a"], ["a", "a__1"], ["a"]),
        (PLAIN, ["a"], ["a__1", "a__2"], ["a__1", "a__2"]),
        (PLAIN, ["a", "a__1"], ["a__1", "a"], ["a"]),
        (PLAIN, ["a", "a__1"], ["a__1", "a__2"], ["a__2"]),
    ],
)
def test_columns_of_other_data(attribute, available, new, expected):
    trained = TrainedColumns.of(JudgmentLayout((attribute,)), [*available, "y", "b__1"])
    assert trained.find(["a"], new) == expected
    assert TrainedColumns.from_json(trained.to_json()) == TrainedColumns(
        {"a": list(attribute.columns)}, trained.left
    )


def test_what_is_lacking_is_named_with_what_was_left_out():
    trained = TrainedColumns.of(JudgmentLayout((FIXED,)), ["a", "a__1", "a__2"])
    with pytest.raises(DataError, match=r"no judgments of 'a', 'c', .* \(a was left out in tr"):
        trained.find(["a", "b", "c"], ["a", "b"])
    # Names that end like numbered columns are names where a column is called so.
    assert TrainedColumns().find(["x__1", "x"], ["x__1", "x__2"]) == ["x__1", "x__2"]
    assert TrainedColumns.from_json({}).find([], ["a"]) == []


def test_an_estimator_reads_files_in_the_form_of_training(tmp_path):
    """Other columns with an attribute's name do not count, in lists and in fixed columns."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(80, 2))
    judgments = truth[:, :, None] + 0.5 * rng.normal(size=(80, 2, 2))
    y = pd.DataFrame({"y": truth @ [1.0, 2.0]})
    fixed = {f"q{a}__{k + 1}": judgments[:, a, k] for a in range(2) for k in range(2)}
    decoy = np.full(80, 99.0)
    plain, ninth = {"q0": decoy, "q1": decoy}, {"q0__9": decoy, "q1__9": decoy}
    frames = {
        "lists": y.assign(**{f"q{a}": list(judgments[:, a]) for a in range(2)}),
        "fixed": y.assign(**fixed),
        "fixed with plain": y.assign(**plain, **fixed),
    }
    frames["lists with fixed"] = frames["lists"].assign(**ninth)
    for name, frame in frames.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")

    def predicted(selector, name):
        return selector.predict(tmp_path / f"{name}.parquet")

    lists, fixed_ = (
        FeatureMultiSelector(6).fit(tmp_path / f"{name}.parquet", "y")
        for name in ("lists", "fixed")
    )
    excluding = FeatureMultiSelector(6, exclude=list(plain))
    excluding.fit(tmp_path / "fixed with plain.parquet", "y")
    expected = predicted(fixed_, "fixed")
    np.testing.assert_array_equal(predicted(fixed_, "fixed with plain"), expected)
    np.testing.assert_array_equal(predicted(excluding, "fixed"), expected)
    np.testing.assert_array_equal(predicted(excluding, "fixed with plain"), expected)
    np.testing.assert_array_equal(predicted(lists, "lists with fixed"), expected)
    np.testing.assert_array_equal(predicted(lists, "fixed"), expected)
