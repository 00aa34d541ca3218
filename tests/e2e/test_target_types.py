"""What a job does with a target whose type the spec does not say."""

import numpy as np
import pytest

import distfms
from distfms.errors import DataError
from distfms.runs.driver import run_job
from tests.e2e.jobs import RESULTS, content
from tests.e2e.landmarks_jobs import landmarks_job, smooth_rows
from tests.e2e.sequence_jobs import mixed_job, write_rows

NAMES = np.array(["low", "middle", "high"])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows whose level is text too, in three classes and in two."""
    table = smooth_rows()
    rank = np.searchsorted(np.unique(table["level"]), table["level"])
    table |= {"named": NAMES[rank], "two": NAMES[np.minimum(rank, 1)]}
    return write_rows(tmp_path_factory.mktemp("rows"), table)


def run(rows, output, method, target, **section):
    excluded = [name for name in ("y", "level", "high", "named", "two") if name != target]
    data = {"target": target, "exclude": [*excluded, "still"], "folds": 2, "test": 0.2}
    if method == "landmarks":
        section = {"landmarks": 20, "task": "auto"} | section
        return run_job(landmarks_job(rows, output, data=data, landmarks=section)).folder
    section = {
        "groups": {},
        "costs": {},
        "shared_costs": {},
        "baselines": [],
        "ridge": 0.01,
    } | section
    return run_job(mixed_job(rows, output, data=data, sequence=section)).folder


@pytest.mark.parametrize(
    ("method", "target", "known", "estimator"),
    [
        ("sequence", "named", {"family": "softmax"}, "GroupSequenceClassifier"),
        ("sequence", "two", {"family": "logistic"}, "GroupSequenceClassifier"),
        ("sequence", "level", {"family": "gaussian"}, "GroupSequencer"),
        ("landmarks", "named", {"task": "classification"}, "LandmarkClassifier"),
        ("landmarks", "level", {"task": "regression"}, "LandmarkRegressor"),
    ],
)
def test_texts_are_classes_and_numbers_are_numbers_by_default(
    rows, tmp_path, method, target, known, estimator
):
    by_default, told = (run(rows, tmp_path, method, target, **own) for own in ({}, known))
    for name in RESULTS:
        assert (by_default / name).read_bytes() == (told / name).read_bytes()
    assert known.items() <= content(by_default, "selection.json").items()
    assert type(distfms.load_estimator(by_default)).__name__ == estimator


def test_weights_of_classes_or_a_threshold_ask_for_classes(rows, tmp_path):
    for own in ({"class_weights": "balanced"}, {"threshold": 0.3}):
        folder = run(rows, tmp_path, "sequence", "high", **own)
        assert content(folder, "selection.json")["family"] == "logistic"


def test_a_family_of_numbers_refuses_texts_and_says_what_to_do(rows, tmp_path):
    with pytest.raises(DataError, match=r"'named' holds string.*without `family` and `task`"):
        run(rows, tmp_path, "sequence", "named", family="poisson")
