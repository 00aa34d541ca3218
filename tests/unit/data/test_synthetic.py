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
    "correlated-groups": {"n_groups": 4, "n_features": 11, "n_relevant": 2},
}


def metadata(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "_metadata.json").read_text())


def matrix(table: pa.Table, names: list[str]) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in names])


def judged(table: pa.Table, names: list[str]) -> np.ndarray:
    """(n, d, k) judgments where k is the same everywhere."""
    return np.stack([np.array(table[name].to_pylist()) for name in names], axis=1)


@pytest.mark.parametrize("name", SMALL)
def test_rows_do_not_depend_on_length_or_shards(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distfms.data.synthetic._CHUNK_ROWS", 100)
    whole = make(name, tmp_path / "a", 950, **SMALL[name])
    again = make(name, tmp_path / "b", 950, **SMALL[name])
    for path in whole.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
    shards = make(name, tmp_path / "c", 330, rows_per_shard=100, **SMALL[name])
    assert len(list(shards.glob("*.parquet"))) == 4
    assert pq.read_table(shards).equals(pq.read_table(whole).slice(0, 330))
    other = make(name, tmp_path / "d", 330, seed=1, **SMALL[name])
    assert not pq.read_table(other).equals(pq.read_table(shards))


@pytest.mark.parametrize("name", GENERATORS)
def test_metadata_say_what_was_made(tmp_path: Path, name: str) -> None:
    table = pq.read_table(make(name, tmp_path / "a", 50, seed=3, **SMALL[name]))
    said = metadata(tmp_path / "a")
    assert (said["generator"], said["seed"], said["rows"]) == (name, 3, 50)
    assert said["parameters"] == {**GENERATORS[name].options, **SMALL[name]}
    assert said["target"] in table.column_names
    if said["id"] is not None:
        assert table[said["id"]].to_pylist() == list(range(50))
    assert table.num_rows == 50
    with pytest.raises(DataError, match="not empty"):
        make(name, tmp_path / "a", 10, **SMALL[name])


def test_judgments_have_the_covariances_they_claim(tmp_path: Path) -> None:
    n, options = 60_000, {"n_attributes": 4, "judgments": 3, "noise_correlation": 0.6}
    table = pq.read_table(make("judgments", tmp_path / "a", n, seed=2, **options))
    truth = metadata(tmp_path / "a")["truth"]
    values = judged(table, truth["attributes"])
    label, means = table["label"].to_numpy(), values.mean(axis=2)
    external, internal = np.array(truth["external"]), np.array(truth["internal_variance"])
    errors = values - values.mean(axis=2, keepdims=True)
    correlation = np.corrcoef(errors.transpose(1, 0, 2).reshape(4, -1))
    np.testing.assert_allclose(correlation[np.triu_indices(4, 1)], 0.6, atol=0.01)
    assert truth["noise_correlation"] == 0.6
    noise = np.sqrt(np.outer(internal, internal)) * (0.6 + 0.4 * np.eye(4))
    found = np.cov(means.T, bias=True)
    spread = np.sqrt(np.outer(np.diag(found), np.diag(found)))
    # Standard errors are about spread·√2/√n; five of them.
    assert np.all(np.abs(found - external - noise / 3) < 5 * spread * np.sqrt(2 / n))
    np.testing.assert_allclose(values.var(axis=2, ddof=1).mean(axis=0), internal, rtol=0.03)
    b = np.mean((label - label.mean())[:, None] * (means - means.mean(axis=0)), axis=0)
    slack = 5 * np.sqrt(2 / n) * np.sqrt(np.diag(found) * truth["label_variance"])
    assert np.all(np.abs(b - truth["label_covariance"]) < slack)
    np.testing.assert_allclose(label.var(), truth["label_variance"], rtol=5 * np.sqrt(2 / n))
    assert np.all(np.abs(means.mean(axis=0) - truth["means"]) < 5 * np.sqrt(np.diag(found) / n))
    assert np.linalg.eigvalsh(external).min() > 0


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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("judgment", {}, "no generator 'judgment'. Did you mean 'judgments'"),
        ("judgments", {"n_factor": 3}, "no option 'n_factor'. Did you mean 'n_factors'"),
        ("judgments", {"noise": "much"}, "'noise' is 'much'; it has to be float"),
        ("judgments", {"n_factors": 2.5}, "has to be int"),
        ("judgments", {"n_factors": True}, "has to be int"),
        ("judgments", {"n_attributes": 0}, "have to be at least 1"),
        ("judgments", {"noise": -1}, "may not be negative"),
        ("judgments", {"noise_correlation": 1.5}, "noise_correlation"),
        ("judgments", {"rows": 0}, "rows is too small"),
        ("judgments", {"seed": -1}, "seed is too small: -1"),
        ("judgments", {"min_judgments": 3}, "min_judgments is greater"),
        ("correlated-groups", {"within": 0.9}, "more than 1"),
    ],
)
def test_wrong_parameters(tmp_path: Path, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make(name, tmp_path / "a", **{"rows": 10, **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    script = """
        import resource, sys
        from distfms.data.synthetic import make
        options = {"n_groups": 2, "n_features": 10, "n_relevant": 1}
        make("correlated-groups", sys.argv[1], int(sys.argv[2]), **options)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    peaks = []
    for rows in (100_000, 1_000_000):
        command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / str(rows))]
        done = subprocess.run([*command, str(rows)], check=True, capture_output=True, text=True)
        peaks.append(int(done.stdout))
    # All rows would take 80 MB more.
    assert peaks[1] - peaks[0] < 40_000
