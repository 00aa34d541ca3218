import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn import datasets

from distfms.data.files import builtin
from distfms.data.files.builtin import BUILTIN, builtin_dataset
from distfms.errors import SpecError


def judged(folder):
    """(n, d, k) judgments of the digits."""
    table = pq.read_table(folder).drop_columns(["image", "digit"])
    return np.stack([np.array(column.to_pylist()) for column in table.columns], axis=1)


@pytest.mark.parametrize("name", BUILTIN)
def test_written_once_in_shards_with_its_roles(tmp_path, name):
    folder, again = (builtin_dataset(name, tmp_path / cache) for cache in "ab")
    shards = sorted(folder.iterdir())
    times = [shard.stat().st_mtime_ns for shard in shards]
    assert len(shards) == 4
    assert builtin_dataset(name, tmp_path / "a") == folder
    assert [shard.stat().st_mtime_ns for shard in shards] == times
    for shard in shards:
        assert shard.read_bytes() == (again / shard.name).read_bytes()
    table = pq.read_table(folder)
    assert table[BUILTIN[name].id].to_pylist() == list(range(table.num_rows))
    assert BUILTIN[name].target in table.column_names
    assert all(column.null_count == 0 for column in table.columns)


def test_digits_judge_pixels_of_their_patch(tmp_path):
    images = datasets.load_digits().images
    folder = builtin_dataset("digits", tmp_path, {"judgments": 30})
    values = judged(folder)
    names = pq.read_schema(folder / "part-00000.parquet").names[2:]
    assert values.shape == (1797, 16, 30)
    for a, name in enumerate(names):
        row, column = (2 * int(number) for number in name.split("_")[1:])
        pixels = images[:, row : row + 2, column : column + 2].reshape(1797, -1)
        # Every judgment is a pixel of the patch, and all pixels get their share.
        assert np.all((values[:, a, :, None] == pixels[:, None, :]).any(axis=2))
        assert values[:, a].mean() == pytest.approx(pixels.mean(), abs=0.1)
    assert pq.read_table(folder)["digit"].to_pylist() == datasets.load_digits().target.tolist()


def test_breast_cancer_has_three_forms_of_ten_measures(tmp_path):
    table = pq.read_table(builtin_dataset("breast-cancer", tmp_path))
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
def test_plain_tables_hold_what_is_bundled(tmp_path, name, bundled):
    table = pq.read_table(builtin_dataset(name, tmp_path))
    for ours, column in zip(table.column_names[2:], bundled.data.T, strict=True):
        assert ours.replace("_", "").isalnum()
        np.testing.assert_array_equal(table[ours].to_numpy(), column)
    np.testing.assert_array_equal(table[BUILTIN[name].target].to_numpy(), bundled.target)


def test_several_at_once_write_once(tmp_path, monkeypatch):
    n_made = []
    real = BUILTIN["wine"]

    def counted():
        n_made.append(1)
        return real.make()

    monkeypatch.setitem(builtin.BUILTIN, "wine", dataclasses.replace(real, make=counted))
    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(lambda _: builtin_dataset("wine", tmp_path), range(8)))
    assert len(set(folders)) == 1
    assert len(n_made) == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digit", {}, "no embedded dataset `digit`. Did you mean 'digits'"),
        ("digits", {"judgment": 3}, r"`data.options.judgment`.* Did you mean 'judgments'"),
        ("digits", {"judgments": 0}, "`data.options.judgments` is 0: it must be greater"),
        ("digits", {"judgments": "2"}, "must be a valid integer"),
        ("wine", {"seed": 1}, "Unknown key `data.options.seed`"),
    ],
)
def test_wrong_use(tmp_path, name, options, message):
    with pytest.raises(SpecError, match=message):
        builtin_dataset(name, tmp_path, options)
    assert not list(tmp_path.rglob("*.parquet"))
