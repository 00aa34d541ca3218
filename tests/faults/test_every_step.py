"""A run of any method and form that fails before and after each of its steps goes on there."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from distfms.methods import METHODS
from distfms.runs.driver import run_job
from tests.contract.test_third_method import spec as correlation_job
from tests.e2e import multiselect_jobs
from tests.e2e.attribute_efficient_jobs import IDS, X, Y, few_columns, few_job
from tests.e2e.jobs import STAGES, judgments_job, results, stage
from tests.e2e.landmarks_jobs import landmarks_job, ranked_rows, ranking_job, smooth_rows
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, with_labels, write_rows
from tests.faults.cases import manifest, small_blocks
from tests.faults.dying import failing, killed

Make = Callable[..., Any]


def plain_rows():
    return {name: values for name, values in smooth_rows(120).items() if name in "id x0 x1 x2 y"}


def smooth_classes():
    columns = smooth_rows(120)
    names = np.array(["low", "middle", "high"])[np.digitize(columns["level"], [2, 4])]
    return {**columns, "name": names}


def mixed_classes():
    columns = mixed_rows(150)
    return {**columns, "high": np.where(np.nan_to_num(columns["y"]) > 10, "yes", "no")}


def some_rows(gaps=0.0):
    values = X[:240].copy()
    values[np.random.default_rng(0).random(values.shape) < gaps] = np.nan
    return {**few_columns(values, Y[:240]), "id": IDS[:240]}


def job_of(job, tried, data, **options):
    """A job with options of its method, some of which are tuned, and other sections."""
    section = {landmarks_job: "landmarks", ranking_job: "landmarks", mixed_job: "sequence"}[job]
    return partial(job, data=data, tune={"grid": tried}, **{section: options})


def landmarks(target="y", **options):
    excluded = [name for name in ("level", "high", "y", "name") if name != target]
    data = {"folds": 2, "target": target, "exclude": excluded}
    return job_of(landmarks_job, {"ridge": [1e-2, 1.0]}, data, **{"landmarks": 10, **options})


def sequence(target="y", **options):
    data = {"folds": 2, "target": target, "exclude": "high" if target == "y" else "y"}
    options = {"baselines": ["omp"], "ridge": 1e-3, **options}
    return job_of(mixed_job, {"max_groups": [3, 5]}, data, **options)


def multiselect(**options):
    return partial(multiselect_jobs.job, multiselect=options)


def few(own, **changes):
    return lambda data, output: few_job(data, output, own, **changes)


LIGHTGBM = {"model": "lightgbm", "lightgbm": {"num_iterations": 3}}
LOGISTIC = {"family": "logistic", "class_weights": "balanced"}
ONLINE = {"norm": 1.0, "repeats": 1}
PAIRS = {"solver": "pairs", "draws": "two_phase", "repeats": 1}
GAPS = {"solver": "pairs", "attributes_per_example": 6, "draws": "moments"}

#: Columns and job of each form, and its steps before those that all runs end with.
FORMS = {
    "correlation": (
        plain_rows,
        partial(correlation_job, tune={"grid": {"ridge": [10.0, 0.0]}}),
        "statistics, tune, select, evaluate",
    ),
    "landmarks": (
        smooth_classes,
        landmarks(landmarks="auto", metric="diagonal", similarity=["linear", "gaussian"]),
        "landmarks, candidates, statistics, tune, number, select, evaluate",
    ),
    "landmarks, classes": (
        smooth_classes,
        landmarks("name", task="classification", keep=5),
        "categories, classes, landmarks, candidates, statistics, tune, select, evaluate",
    ),
    "landmarks, ranking": (
        ranked_rows,
        job_of(ranking_job, {"ridge": [1e-2, 1.0]}, {"folds": 2}, landmarks=10),
        "landmarks, statistics, tune, select, evaluate",
    ),
    "sequence": (
        lambda: with_labels(mixed_classes()),
        sequence(
            expand={"splines": 2, "missing": True},
            ridge="auto",
            budgets=[3.0],
            **{**LIGHTGBM, "model": "auto"},
        ),
        "categories, statistics, rows, expand, statistics of splines, ridge, reference, kind, "
        "tune, select, evaluate",
    ),
    "sequence, logistic": (
        mixed_classes,
        sequence("high", ridge="auto", **LOGISTIC),
        "categories, classes, statistics, rows, ridge, tune, select, models, evaluate, stopping",
    ),
    "sequence, trees": (
        mixed_classes,
        sequence(budgets=[3.0], **LIGHTGBM),
        "categories, statistics, rows, reference, kind, tune, select, models, evaluate",
    ),
    "sequence, mapped": (
        mixed_rows,
        partial(mixed_job, sequence={"baselines": ["omp", "oracle"]}),
        f"categories, {', '.join(f'statistics {k} of 3' for k in range(1, 4))}, statistics, "
        "select, evaluate",
    ),
    "multiselect": (
        multiselect_jobs.objects,
        partial(multiselect(algorithm="auto"), tune={"grid": {"budget": [4, 6]}}),
        "statistics, tune, select, evaluate",
    ),
    "multiselect, refit": (
        multiselect_jobs.objects,
        multiselect(budget=2, ridge=0.1, model="refit", plan=True),
        "statistics, select, averages, evaluate, plan",
    ),
    "multiselect, slabs": (
        multiselect_jobs.objects,
        multiselect(ridge=0.1, psd="none", plan=True),
        "statistics 1 of 2, statistics 2 of 2, select, chosen, evaluate, plan",
    ),
    "few attributes, online": (
        some_rows,
        few(ONLINE, tune={"grid": {"step_factor": [0.01, 1.0]}}),
        "statistics, tune, select, evaluate",
    ),
    "few attributes, pairs": (some_rows, few(PAIRS), "draws, statistics, select, evaluate"),
    "few attributes, gaps": (
        partial(some_rows, 0.2),
        few(GAPS, data={"missing": "pairs"}),
        "draws, statistics, select, evaluate",
    ),
}


#: Forms that have steps of each kind between them.
USUAL = ("correlation", "landmarks", "sequence, logistic", "multiselect, slabs")


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=() if form in USUAL else pytest.mark.slow) for form in FORMS]
)
def test_a_fault_before_and_after_every_step(form, tmp_path, monkeypatch):
    """Each step is done once, with the steps before it read from the run folder."""
    monkeypatch.setitem(METHODS, "correlation", "tests.contract.correlation:METHOD")
    columns, job, steps = FORMS[form]
    data = write_rows(tmp_path / "rows", columns(), n_files=2)
    with small_blocks({"slabs": "blocks"}.get(form.split(", ")[-1], form.split(", ")[-1])):
        whole = run_job(job(data, tmp_path / "whole")).folder
        expected = manifest(whole)
        names = [entry["name"] for entry in expected["stages"]]
        assert names == [*steps.split(", "), "model", "report"]
        spec = job(data, tmp_path / "stopped")
        for n_done, name in enumerate(names):
            for when in ("before", "after"):
                with failing(when, name):
                    run_job(spec)
                (folder,) = (tmp_path / "stopped" / spec.name).iterdir()
                done = [entry["name"] for entry in manifest(folder)["stages"]]
                assert done == names[: n_done + (when == "after")]
        result = run_job(spec)
    assert (result.folder, result.resumed, result.skipped) == (folder, True, tuple(names))
    assert results(folder) == results(whole)
    values = manifest(folder)
    for entry in ("notes", "attributes"):
        assert values.get(entry) == expected.get(entry)
    reads = [[entry.get("n_read", 0) for entry in of["stages"]] for of in (values, expected)]
    assert reads[0] == reads[1]


def test_killed_in_the_middle_of_a_pass_and_of_steps(judgments, judgments_run, tmp_path):
    """Where an error is never seen: between partials, and between files and the manifest."""
    killed(judgments, tmp_path, "partials", "2")
    for name in ("statistics", "plan"):
        killed(judgments, tmp_path, "between", name)
        (run,) = (tmp_path / "small").iterdir()
        done = STAGES[: STAGES.index(name)]
        assert [entry["name"] for entry in manifest(run)["stages"]] == done
    result = run_job(judgments_job(judgments, tmp_path))
    assert (result.folder, result.skipped) == (run, tuple(done))
    assert manifest(run)["attempt"] == 4
    assert results(run) == results(judgments_run)
    # Attempts before had kept all four partials.
    entry = stage(manifest(run), "statistics")
    assert (entry["n_read"], entry["n_cached"]) == (0, 4)
    assert not list(run.glob("**/*.tmp"))
