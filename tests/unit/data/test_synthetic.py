from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.synthetic import GENERATORS, make
from distfms.errors import DataError, SpecError

SMALL: dict[str, dict[str, Any]] = {
    "judgments": {"n_attributes": 5},
    "slices": {"n_bins": 32, "n_bumps": 6},
    "correlated-groups": {"n_groups": 4, "n_features": 11, "n_relevant": 2},
    "gram": {"n_features": 7},
    "attribute-efficient-ridge": {"n_features": 20},
    "attribute-efficient-lasso": {"n_features": 20},
}


def metadata(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "_metadata.json").read_text())


def matrix(table: pa.Table, names: list[str]) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in names])


def judged(table: pa.Table, names: list[str]) -> np.ndarray:
    """(n, d, k) judgments where k is the same everywhere."""
    return np.stack([np.array(table[name].to_pylist()) for name in names], axis=1)


def test_every_generator_is_tried_here() -> None:
    assert set(SMALL) == set(GENERATORS)


@pytest.mark.parametrize("name", SMALL)
def test_rows_do_not_depend_on_length_shards_or_threads(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distfms.data.synthetic.base._CHUNK_ROWS", 100)
    whole = make(name, tmp_path / "a", 950, **SMALL[name])
    threads = make(name, tmp_path / "b", 950, workers=3, **SMALL[name])
    for path in whole.iterdir():
        assert path.read_bytes() == (threads / path.name).read_bytes()
    shards = make(name, tmp_path / "c", 330, shards=4, **SMALL[name])
    assert len(list(shards.glob("*.parquet"))) == 4
    assert pq.read_table(shards).equals(pq.read_table(whole).slice(0, 330))
    other = make(name, tmp_path / "d", 330, seed=1, **SMALL[name])
    assert not pq.read_table(other).equals(pq.read_table(shards))


@pytest.mark.parametrize("name", SMALL)
def test_metadata_say_what_was_made(tmp_path: Path, name: str) -> None:
    table = pq.read_table(make(name, tmp_path / "a", 50, seed=3, **SMALL[name]))
    said = metadata(tmp_path / "a")
    assert (said["generator"], said["seed"], said["rows"]) == (name, 3, 50)
    assert said["parameters"] == {**GENERATORS[name].parameters, **SMALL[name]}
    assert said["target"] in table.column_names
    if said["id"] is not None:
        assert table[said["id"]].to_pylist() == list(range(50))
    assert table.num_rows == 50


def test_judgments_have_the_covariances_they_claim(tmp_path: Path) -> None:
    n = 60_000
    options = {"n_attributes": 4, "judgments": 3}
    table = pq.read_table(make("judgments", tmp_path / "a", n, seed=2, **options))
    truth = metadata(tmp_path / "a")["truth"]
    values = judged(table, truth["attributes"])
    label = table["label"].to_numpy()
    means = values.mean(axis=2)
    external = np.array(truth["external"])
    internal = np.array(truth["internal_variance"])
    found = np.cov(means.T, bias=True)
    spread = np.sqrt(np.outer(np.diag(found), np.diag(found)))
    # Standard errors are about spread·√2/√n; five of them.
    assert np.all(np.abs(found - external - np.diag(internal / 3)) < 5 * spread * np.sqrt(2 / n))
    np.testing.assert_allclose(values.var(axis=2, ddof=1).mean(axis=0), internal, rtol=0.03)
    b = np.mean((label - label.mean())[:, None] * (means - means.mean(axis=0)), axis=0)
    slack = 5 * np.sqrt(2 / n) * np.sqrt(np.diag(found) * truth["label_variance"])
    assert np.all(np.abs(b - truth["label_covariance"]) < slack)
    np.testing.assert_allclose(label.var(), truth["label_variance"], rtol=5 * np.sqrt(2 / n))
    assert np.all(np.abs(means.mean(axis=0) - truth["means"]) < 5 * np.sqrt(np.diag(found) / n))
    assert np.linalg.eigvalsh(external).min() > 0


def test_varying_numbers_of_judgments(tmp_path: Path) -> None:
    table = pq.read_table(
        make("judgments", tmp_path / "a", 4000, n_attributes=2, judgments=3, min_judgments=0)
    )
    for name in ("a00", "a01"):
        counts = np.bincount([len(row) for row in table[name].to_pylist()], minlength=4)
        assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(750))


def test_slices_judge_neighbouring_bins(tmp_path: Path) -> None:
    options = {"n_bins": 48, "bins_per_attribute": 8, "judgments": 40, "n_bumps": 8}
    table = pq.read_table(make("slices", tmp_path / "a", 200, **options))
    values = judged(table, metadata(tmp_path / "a")["truth"]["attributes"])
    assert values.shape == (200, 6, 40)
    distinct = [len(np.unique(cell)) for cell in values.reshape(-1, 40)]
    assert max(distinct) == 8
    # Smooth: bins of a patch differ less than patches of a slice do.
    assert values.var(axis=2).mean() < 0.5 * values.mean(axis=2).var(axis=1).mean()


def test_defaults_are_those_of_the_papers() -> None:
    defaults = {name: generator.resolve({}) for name, generator in GENERATORS.items()}
    assert defaults["slices"]["n_bins"] // defaults["slices"]["bins_per_attribute"] == 48
    assert defaults["slices"]["judgments"] == 2
    assert defaults["correlated-groups"]["n_groups"] == 57
    assert defaults["correlated-groups"]["n_features"] == 328
    assert defaults["attribute-efficient-ridge"]["n_features"] == 500


def test_groups_are_correlated_and_have_costs(tmp_path: Path) -> None:
    n = 30_000
    table = pq.read_table(
        make("correlated-groups", tmp_path / "a", n, **SMALL["correlated-groups"])
    )
    truth = metadata(tmp_path / "a")["truth"]
    names = [name for columns in truth["groups"].values() for name in columns]
    assert names == table.column_names[:-1]
    assert all(c.startswith(f"{g}_") for g, columns in truth["groups"].items() for c in columns)
    lines = (tmp_path / "a" / "_costs.csv").read_text().splitlines()
    assert lines == ["group,cost", *(f"{g},{c}" for g, c in truth["costs"].items())]
    X, y = matrix(table, names), table["target"].to_numpy()
    coefficients = np.array(truth["coefficients"])
    np.testing.assert_allclose(y.var(), truth["target_variance"], rtol=0.05)
    np.testing.assert_allclose((coefficients @ X).var(), 1.0, rtol=0.05)
    np.testing.assert_allclose((y - coefficients @ X).var(), 1.0, rtol=0.05)
    relevant = {name for group in truth["relevant_groups"] for name in truth["groups"][group]}
    assert {n for n, w in zip(names, coefficients, strict=True) if w} == relevant
    group = np.array([name[:3] for name in names])
    correlation = np.abs(np.corrcoef(X))
    same = group[:, None] == group
    off = ~np.eye(len(names), dtype=bool)
    assert correlation[same & off].mean() > correlation[~same].mean() + 0.2


def test_gram_is_normal_with_a_linear_target(tmp_path: Path) -> None:
    table = pq.read_table(make("gram", tmp_path / "a", 20_000, n_features=6, noise=0.5))
    truth = metadata(tmp_path / "a")["truth"]
    X, y = matrix(table, truth["features"]), table["target"].to_numpy()
    assert X.dtype == y.dtype == np.float64
    np.testing.assert_allclose(np.cov(X), np.eye(6), atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose((y - truth["coefficients"] @ X).std(), 0.5, rtol=0.03)
    assert np.sum(np.square(truth["coefficients"])) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["ridge", "lasso"])
def test_binary_attributes_have_the_papers_expectations(tmp_path: Path, kind: str) -> None:
    n = 20_000
    folder = make(f"attribute-efficient-{kind}", tmp_path / "a", n, n_features=100, alpha=-0.7)
    truth = metadata(folder)["truth"]
    table = pq.read_table(folder)
    X, y = matrix(table, truth["features"]), table["target"].to_numpy()
    assert set(np.unique(X)) == {0, 1}
    expected = np.arange(1, 101) ** -0.7
    if kind == "ridge":
        expected /= np.linalg.norm(expected)
    assert np.all(np.abs(X.mean(axis=1) - expected) < 5 * np.sqrt(expected / n))
    weights = np.array(truth["coefficients"])
    np.testing.assert_array_equal(y, weights @ X)
    assert set(weights) == ({-1.0, 1.0} if kind == "ridge" else {-1.0, 0.0, 1.0})
    if kind == "lasso":
        assert abs(np.count_nonzero(weights) - 30) < 5 * np.sqrt(21)


def test_improvement_ratios(tmp_path: Path) -> None:
    for kind in ("ridge", "lasso"):
        name = f"attribute-efficient-{kind}"
        flat = metadata(make(name, tmp_path / f"{kind}0", 1, alpha=0.0))["truth"]
        steep = metadata(make(name, tmp_path / f"{kind}2", 1, alpha=-2.0))["truth"]
        assert flat[f"improvement_ratio_{kind}"] == pytest.approx(1.0)
        assert steep[f"improvement_ratio_{kind}"] < 0.1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gramm", {}, "no generator 'gramm'. Did you mean 'gram'"),
        ("gram", {"n_feature": 3}, "no parameter 'n_feature'. Did you mean 'n_features'"),
        ("gram", {"n_features": "many"}, "'n_features' is 'many'; it has to be of type int"),
        ("gram", {"n_features": 2.5}, "has to be of type int"),
        ("gram", {"n_features": 0}, "not at least 1"),
        ("gram", {"noise": -1.0}, "negative"),
        ("gram", {"rows": 0}, "rows is too small"),
        ("gram", {"seed": -1}, "seed is too small: -1"),
        ("gram", {"shards": 0}, "shards is 0"),
        ("gram", {"shards": 2, "rows_per_shard": 2}, "not both"),
        ("judgments", {"min_judgments": 3}, "min_judgments is greater"),
        ("slices", {"n_bins": 30}, "not a multiple"),
        ("correlated-groups", {"within": 0.9}, "more than 1"),
        ("attribute-efficient-ridge", {"alpha": 0.5}, "no probabilities"),
    ],
)
def test_wrong_parameters(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make(name, tmp_path / "a", **{"rows": 10, **options})
    assert list(tmp_path.iterdir()) == []


def test_text_from_a_command_line_is_converted(tmp_path: Path) -> None:
    table = pq.read_table(make("gram", tmp_path / "a", 10, n_features="3", noise="0.1"))
    assert table.num_columns == 4


def test_taken_folder(tmp_path: Path) -> None:
    make("gram", tmp_path / "a", 10, n_features=2)
    with pytest.raises(DataError, match="not empty"):
        make("gram", tmp_path / "a", 10, n_features=2)
    make("gram", tmp_path / "a", 5, n_features=2, overwrite=True)
    assert pq.read_table(tmp_path / "a").num_rows == 5


def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    script = """
        import resource, sys
        from distfms.data.synthetic import make
        make("gram", sys.argv[1], int(sys.argv[2]), n_features=10, workers=2)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks = []
    for rows in (200_000, 2_000_000):
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / str(rows))]
        done = subprocess.run([*command, str(rows)], check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout))
    # All rows would take 160 MB more.
    assert peaks[1] - peaks[0] < 60_000
