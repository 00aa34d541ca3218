"""The gate as a pure function."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.methods.frame.contract import Inputs
from distfms.retrain.gate import changes_of, checked, gain_of
from distfms.runs.facts import describe_inputs
from distfms.spec import DataSection, GateSection


def changes(n_new=100, n_lost=0, n_before=1000):
    files = {"new": ["new"], "changed": [], "vanished": [], "lost": []}
    return {**files, "n_new_rows": n_new, "n_lost_rows": n_lost, "n_before": n_before}


def comparison(rows, before, now):
    gain = gain_of(before, now, rises=False)
    return {"rows": rows, "metric": "mse", "gain": gain}


def failed(gate, *compared, drift=None, **changed):
    results = checked(GateSection(**gate), changes(**changed), compared, drift)
    return [condition["text"] for condition in results if not condition["holds"]]


@pytest.mark.parametrize(
    ("before", "now", "rises", "gain"),
    [
        (2.0, 1.5, False, 0.25),
        (0.0, 0.0, False, 0.0),
        (-1.0, -1.5, False, 0.5),
        (0.0, 1.0, False, math.nan),
        (0.5, 0.75, True, 0.25),
    ],
)
def test_gain_is_the_share_by_which_a_loss_falls_or_what_a_score_rises_by(before, now, rises, gain):
    assert gain_of(before, now, rises) == pytest.approx(gain, nan_ok=True)


def test_a_regression_on_either_set_of_rows_is_refused():
    held_out = comparison("held_out", 1.0, 1.05)
    newest = comparison("newest", 1.0, 0.9)
    assert failed({}, held_out, newest) == [
        "mean squared error on held-out rows at most 2.00% worse"
    ]
    assert failed({"max_regression": 0.06}, held_out, newest) == []


def test_gain_is_demanded_on_the_rows_named_only():
    held_out = comparison("held_out", 1.0, 0.99)
    newest = comparison("newest", 1.0, 0.8)
    assert len(failed({"min_gain": 0.1}, held_out, newest)) == 1
    assert failed({"min_gain": 0.1, "on": "newest"}, held_out, newest) == []


def test_gain_on_rows_that_are_not_there_is_refused():
    held_out = comparison("held_out", 1.0, 0.5)
    assert failed({"min_gain": 0.1, "on": "newest"}, held_out) == [
        "better by at least 10.00% on newest rows"
    ]


def test_an_unknown_gain_is_refused():
    assert len(failed({}, comparison("held_out", 1.0, math.nan))) == 1


@pytest.mark.parametrize(
    ("new", "said"), [(0.9, "10.00% better"), (1.0, "as good"), (1.0098, "0.98% worse")]
)
def test_what_was_found_is_said_without_a_sign(new, said):
    results = checked(GateSection(), changes(), [comparison("newest", 1.0, new)], None)
    assert results[-1]["found"] == f"mean squared error {said} on newest rows"


@pytest.mark.parametrize(("largest", "n_failed"), [(0.5, 0), (0.51, 1)])
def test_drift_beyond_the_bound_is_refused(largest, n_failed):
    drift = {"largest": largest, "column": "x", "quantity": "mean", "name": "f", "refused": []}
    assert len(failed({"max_drift": 0.5}, drift=drift)) == n_failed


def test_too_few_new_rows_and_too_many_lost_ones_are_refused():
    assert failed({"min_rows": 101}) == ["at least 101 rows in new and changed files"]
    assert failed({}, n_lost=101) == ["at most 10.0% of the rows behind the current model lost"]
    assert failed({}, n_lost=100) == []


def test_a_file_that_grew_does_not_make_up_for_rows_lost_from_others(tmp_path):
    def written(**n_rows):
        for name, n in n_rows.items():
            pq.write_table(pa.table({"x": np.arange(float(n))}), tmp_path / f"{name}.parquet")
        section = DataSection(path=str(tmp_path), target=("x",))
        return Inputs(open_dataset(tmp_path), None, section)

    before = describe_inputs(written(gone=10, grown=20, shrunk=30, kept=40))["inputs"]
    (tmp_path / "gone.parquet").unlink()
    found = changes_of(before, written(grown=90, shrunk=25, new=7), (), lambda name: True)
    names = {key: [Path(own).stem for own in found[key]] for key in ("new", "changed", "vanished")}
    assert names == {"new": ["new"], "changed": ["grown", "shrunk"], "vanished": ["gone"]}
    assert (found["n_new_rows"], found["n_lost_rows"], found["n_before"]) == (122, 15, 100)
