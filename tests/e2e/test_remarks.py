"""What the data tell against themselves is noted, by every method that learns from rows."""

import json
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.jobs import content

N = 300
METHODS = {
    "sequence": {"model": "linear"},
    "landmarks": {"landmarks": 15},
    "attribute_efficient": {"attributes_per_example": 2},
}
EACH = pytest.mark.parametrize("method", METHODS)


def columns():
    rng = np.random.default_rng(0)
    results = {f"x{i}": rng.normal(size=N) for i in range(3)}
    return results | {"y": results["x0"] + 0.3 * rng.normal(size=N)}


def notes_of(distfms, folder, columns, method, more=None, **section):
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=100)
    data = {"path": str(folder / "a.parquet"), "target": "y", "folds": 2, **section}
    options = {**METHODS[method], **(more or {})}
    spec = {"name": "notes", "method": method, "data": data, method: options}
    (folder / "spec.yaml").write_text(json.dumps(spec))
    done = distfms("run", folder / "spec.yaml", "--out", folder / "run")
    assert done.code == 0, done.err
    return content(folder / "run", "manifest.json")["notes"]


@pytest.mark.parametrize(
    ("method", "missing"), [*product(METHODS, ("mean", "drop")), ("attribute_efficient", "pairs")]
)
def test_gaps_that_are_not_random(tmp_path, distfms, method, missing):
    table = columns()
    rng = np.random.default_rng(1)
    table["x1"][rng.random(N) < 1 / (1 + np.exp(1 - 2 * table["y"]))] = np.nan
    table["x2"][rng.random(N) < 0.2] = np.nan
    notes = notes_of(distfms, tmp_path, table, method, missing=missing)
    (note,) = (note for note in notes if note.startswith("Values are"))
    assert note.startswith("Values are not missing at random: 'x1' where 'y' is higher (+0.")
    assert "x2" not in note


@pytest.mark.parametrize("more", [{}, {"expand": {"splines": 2, "missing": True}}])
def test_gaps_of_categories_are_told_by_the_column(tmp_path, distfms, more):
    table = columns()
    rng = np.random.default_rng(1)
    text = np.array(["a", "b", "c"])[rng.integers(3, size=N)].astype(object)
    text[table["y"] < -0.5] = None
    table |= {"kind": pa.array(text.tolist())}
    notes = notes_of(distfms, tmp_path, table, "sequence", more, missing="mean")
    (note,) = {note for note in notes if note.startswith("Values are")}
    assert note.startswith("Values are not missing at random: 'kind' where 'y' is lower (-")
    assert note.count("standard deviations") == 1


def test_a_damaged_judgment_is_named(tmp_path, distfms):
    """And one beyond what can be squared is refused, with the place where it is."""
    for value, code in ((1e20, 0), (1e160, 2)):
        rng = np.random.default_rng(0)
        judged = {f"a{i}": rng.normal(size=(N, 3)).tolist() for i in range(3)}
        judged["a1"][217][1] = value
        pq.write_table(pa.table(judged | {"y": columns()["y"]}), tmp_path / "j.parquet")
        data = {"path": str(tmp_path / "j.parquet"), "target": "y", "folds": 2}
        spec = {"name": "notes", "method": "multiselect", "data": data}
        spec["multiselect"] = {"budget": 3}
        (tmp_path / "spec.yaml").write_text(json.dumps(spec))
        done = distfms("run", tmp_path / "spec.yaml", "--out", tmp_path / f"{code}")
        assert done.code == code
        text = done.err if code else str(content(tmp_path / f"{code}", "manifest.json")["notes"])
        assert ("holds the value 1e+20" if code == 0 else "1 too large value (row group 0") in text
        assert "a1" in text


@EACH
def test_columns_that_tell_the_row(tmp_path, distfms, method):
    rng = np.random.default_rng(1)
    own = columns() | {
        "late": np.cumsum(rng.random(N)),
        "left": -np.cumsum(rng.random(N)),
        "patient_id": rng.permutation(10**6)[:N].astype(float),
        "place": rng.permutation(N).astype(float),
        "level": rng.permutation(10**6)[:N].astype(float),
        "number": np.arange(N),
    }
    notes = notes_of(distfms, tmp_path, own, method)
    results = {note.split("'")[1]: note for note in notes if "does not generalise" in note}
    assert set(results) == {"late", "left", "patient_id", "place", "number"}
    assert "falls with every row" in results["left"]
    assert "holds whole numbers that all differ" in results["patient_id"]
    assert "exclude: ['late']" in results["late"]


@EACH
def test_only_columns_that_vary_by_a_rounding_error_are_refused(tmp_path, distfms, method):
    table = columns()
    for name in ("x0", "x1", "x2"):
        table[name] += 1e14
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    data = {"path": str(tmp_path / "a.parquet"), "target": "y", "folds": 2}
    spec = {"name": "j", "method": method, "data": data, method: METHODS[method]}
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    done = distfms("run", tmp_path / "spec.yaml", "--out", tmp_path / "run")
    assert done.code == 2
    assert "No feature is left to learn from. The column 'x0' varies by less" in done.err
