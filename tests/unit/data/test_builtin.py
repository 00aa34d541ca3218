import pickle

import numpy as np
import pyarrow as pa
import pytest
from sklearn import datasets

from distfms.data.files.builtin import BUILTIN, builtin_dataset, builtin_table
from distfms.errors import DataError, SpecError
from distfms.spec import DataSection


def judged(table):
    """(n, d, k) judgments of the digits."""
    table = table.drop_columns(["image", "digit"])
    return np.stack([np.array(column.to_pylist()) for column in table.columns], axis=1)


def read(dataset):
    return [dataset.reader.read(part, dataset.schema.names) for part in dataset.partitions]


@pytest.mark.parametrize("name", BUILTIN)
def test_rows_in_four_partitions_with_their_roles(name):
    dataset = builtin_dataset(DataSection(builtin=name))
    table = builtin_table(name)
    assert len(dataset.partitions) == 4
    ids = pa.concat_tables(read(dataset))[BUILTIN[name].id]
    assert ids.to_pylist() == list(range(table.num_rows))
    assert BUILTIN[name].target in table.column_names
    assert all(column.null_count == 0 for column in table.columns)
    assert {part.path for part in dataset.partitions} == {name}


def test_fingerprints_are_of_the_rows():
    parts = {
        judgments: builtin_dataset(DataSection(builtin="digits", options={"judgments": judgments}))
        for judgments in (2, 3)
    }
    again = pickle.loads(pickle.dumps(builtin_dataset(DataSection(builtin="digits"))))
    assert again.fingerprint == parts[2].fingerprint != parts[3].fingerprint
    assert len({part.fingerprint for part in again.partitions}) == 4


def test_a_section_says_how_they_are_read():
    dataset = builtin_dataset(DataSection(builtin="wine", text=("cultivar",)), 20)
    assert [len(part) for part in read(dataset)] == [20] * 8 + [18]
    assert set(read(dataset)[0]["cultivar"].to_pylist()) <= {"0", "1", "2"}
    with pytest.raises(DataError, match="no column 'colour'"):
        builtin_dataset(DataSection(builtin="wine", text=("colour",)))


def test_digits_judge_pixels_of_their_patch():
    images = datasets.load_digits().images
    table = builtin_table("digits", {"judgments": 30})
    values = judged(table)
    names = table.column_names[2:]
    assert values.shape == (1797, 16, 30)
    for a, name in enumerate(names):
        row, column = (2 * int(number) for number in name.split("_")[1:])
        pixels = images[:, row : row + 2, column : column + 2].reshape(1797, -1)
        # Every judgment is a pixel of the patch, and all pixels get their share.
        assert np.all((values[:, a, :, None] == pixels[:, None, :]).any(axis=2))
        assert values[:, a].mean() == pytest.approx(pixels.mean(), abs=0.1)
    assert table["digit"].to_pylist() == datasets.load_digits().target.tolist()


def test_breast_cancer_has_three_forms_of_ten_measures():
    table = builtin_table("breast-cancer")
    names = table.column_names[2:]
    measures = list(dict.fromkeys(name.rpartition("_")[0] for name in names))
    assert len(measures) == 10
    assert names == [f"{m}_{form}" for m in measures for form in ("mean", "error", "worst")]
    bundled = datasets.load_breast_cancer()
    ours = table["concave_points_error"].to_numpy()
    j = list(bundled.feature_names).index("concave points error")
    np.testing.assert_array_equal(ours, bundled.data[:, j])
    malignant = list(bundled.target_names).index("malignant")
    np.testing.assert_array_equal(table["malignant"].to_numpy(), bundled.target == malignant)


@pytest.mark.parametrize(
    ("name", "bundled"),
    [("diabetes", datasets.load_diabetes(scaled=False)), ("wine", datasets.load_wine())],
)
def test_plain_tables_hold_what_is_bundled(name, bundled):
    table = builtin_table(name)
    for ours, column in zip(table.column_names[2:], bundled.data.T, strict=True):
        assert ours.replace("_", "").isalnum()
        np.testing.assert_array_equal(table[ours].to_numpy(), column)
    np.testing.assert_array_equal(table[BUILTIN[name].target].to_numpy(), bundled.target)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digit", {}, "no embedded dataset `digit`. Did you mean 'digits'"),
        ("digits", {"judgment": 3}, r"`data.options.judgment`.* Did you mean 'judgments'"),
        ("digits", {"judgments": 0}, "`data.options.judgments` is 0: it must be at least 1"),
        ("digits", {"judgments": "2"}, "must be an integer"),
        ("wine", {"seed": 1}, "Unknown key `data.options.seed`"),
    ],
)
def test_wrong_use(name, options, message):
    with pytest.raises(SpecError, match=message):
        builtin_table(name, options)
