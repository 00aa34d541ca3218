"""Whole jobs whose workers and actors meet with a mishap: what is read and done again, to the
partition and the step; the same bits as undisturbed; nothing half-written."""

from pathlib import Path

import pytest

from distfms.errors import EngineError
from distfms.runs.driver import run_job
from tests.e2e.jobs import stage
from tests.faults.cases import CASES, manifest, small_blocks
from tests.faults.disturbance import Plan, disturbed

N_SHARDS = 3
STRUCK = 2  # the partition at which it happens
STEP = 5  # the step of the search at which it happens
ENGINES = ("ray", "dask", "processes")
MISHAPS = ("kill", "raise")
USUAL = {("ray", "kill"), ("processes", "kill")}


def marks_of(engine, mishap):
    """Errors that tasks raise are retried by the tasks themselves, on every engine alike."""
    return () if (engine, mishap) in USUAL else pytest.mark.slow


@pytest.mark.parametrize(
    ("engine", "kind", "mishap"),
    [
        *(
            pytest.param(engine, "multiselect", mishap, marks=marks_of(engine, mishap))
            for engine in ENGINES
            for mishap in MISHAPS
        ),
        pytest.param("ray", "sequence", "kill", marks=pytest.mark.slow),
        pytest.param("dask", "sequence", "kill", marks=pytest.mark.slow),
        pytest.param("ray", "glm", "kill", marks=pytest.mark.slow),
    ],
    indirect=["engine"],
)
def test_worker_of_a_job(engine, kind, mishap, jobs, tmp_path):
    n = CASES[kind].n_partitions
    spec = jobs.spec(kind, tmp_path / "runs", engine=engine)
    with disturbed(Plan(str(tmp_path / "marks"), partition=STRUCK, mishap=mishap)) as plan:
        folder = run_job(spec).folder
    assert plan.happened
    first, *others = plan.reads()
    assert first == [2 if i == STRUCK else 1 for i in range(n)]
    assert others == [[1] * n] * len(others)
    jobs.require_sound(kind, tmp_path / "runs", folder)
    done = manifest(folder)["stages"][0]
    # What a Dask worker had finished when it died comes from the cache when it is asked for again.
    assert done["n_read"] + done["n_cached"] == n
    assert engine["kind"] == "dask" or done["n_cached"] == 0


@pytest.mark.parametrize(
    ("engine", "mishap"),
    [("ray", "kill"), pytest.param("threads", "kill", marks=pytest.mark.slow)],
    indirect=["engine"],
)
def test_actor_of_a_job(engine, mishap, jobs, tmp_path):
    spec = jobs.spec("blocks", tmp_path / "runs", engine=engine)
    plan = Plan(str(tmp_path / "marks"), step=STEP, mishap=mishap)
    with small_blocks(), disturbed(plan):
        folder = run_job(spec).folder
    assert plan.happened
    # A pass for each of three blocks, and one for the chosen attributes.
    assert plan.reads() == [[1, 1, 1, 1]] * 4
    jobs.require_sound("blocks", tmp_path / "runs", folder)
    # Twelve choices, each a step, the first offers, and rows of four attributes when they are
    # first bought. The shards of the actor that was struck are built again and have the steps
    # before replayed.
    (done,) = plan.pools()
    n_actors = min(engine["workers"], N_SHARDS)
    n_again = done["n_built"] - N_SHARDS
    assert 1 <= n_again <= -(-N_SHARDS // n_actors)
    expected_counts = {"n_steps": 18, "n_built": 3 + n_again, "n_replayed": n_again * (STEP - 1)}
    assert done == expected_counts | {"n_lost": 1}


@pytest.mark.slow
def test_ray_worker_that_dies_every_time_leaves_a_run_that_goes_on(ray_session, jobs, tmp_path):
    engine = {"kind": "ray", "workers": 2, "retries": 0}
    spec = jobs.spec("multiselect", tmp_path / "runs", engine=engine)
    with (
        disturbed(Plan(str(tmp_path / "first"), partition=STRUCK, mishap="kill")) as first,
        pytest.raises(EngineError, match=r"repeatedly.*memory.*finished work is kept"),
    ):
        run_job(spec)
    with disturbed(Plan(str(tmp_path / "second"))) as second:
        result = run_job(spec)
    assert first.happened
    # What came to its end before is not read again; the partition that was struck is.
    n_read = sum(second.reads()[0])
    assert (Path(second.folder) / f"read-0-{STRUCK}").exists()
    assert 1 <= n_read <= 4 - (sum(first.reads()[0]) - 2)
    done = stage(manifest(result.folder), "statistics")
    assert (done["n_read"], done["n_cached"]) == (n_read, 4 - n_read)
    jobs.require_sound("multiselect", tmp_path / "runs", result.folder)
