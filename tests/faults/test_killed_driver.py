"""The driver is killed at a stage of a job on a cluster, which stays: the next attempt goes on."""

import os
import subprocess

import pytest

from distfms.runs.driver import run_job
from tests import ray_here
from tests.faults.cases import CASES, manifest, small_blocks
from tests.faults.disturbance import Plan, command_of, disturbed

MULTISELECT = ("statistics", "ridge", "select", "evaluate", "plan", "model", "report")
SEQUENCE = ("categories", "statistics", "select", "evaluate", "model", "report")
STAGES = {
    "multiselect": MULTISELECT,
    "sequence": SEQUENCE,
    "blocks": (
        *(f"statistics {number} of 3" for number in (1, 2, 3)),
        *("select", "chosen", "evaluate", "model", "report"),
    ),
}
#: Stages with a pass over all partitions whose partials are not kept in the cache.
UNCACHED = set(STAGES["blocks"][:3])
#: Stages with a pass at all.
PASSES = UNCACHED | {"categories", "statistics", "chosen"}

pytestmark = pytest.mark.slow


def at_once(engine):
    """Engine section for another process, which joins the cluster that this one uses."""
    if engine["kind"] != "ray":
        return engine
    import ray

    if not ray.is_initialized():
        pytest.fail("the cluster of the session is not connected")
    return engine | {"address": ray.get_runtime_context().gcs_address}


PLACES = [(kind, "before", stage) for kind, stages in STAGES.items() for stage in stages]


@pytest.mark.parametrize("engine", ["ray", "dask"], indirect=True)
@pytest.mark.parametrize(("kind", "where", "at"), [*PLACES, ("blocks", "step", "5")])
def test_killed_at_a_stage_on_a_cluster(engine, kind, where, at, jobs, tmp_path):
    output = tmp_path / "runs"
    n = CASES[kind].n_partitions
    plan = Plan(str(tmp_path / "killed"), die=(where, at))
    there = jobs.spec(kind, output, engine=at_once(engine))
    dead = subprocess.run(
        command_of(plan, there, tmp_path),
        cwd=ray_here.ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert dead.returncode == -9, dead.stderr
    with small_blocks(kind), disturbed(Plan(str(tmp_path / "again"))) as again:
        result = run_job(jobs.spec(kind, output, engine=engine))
    assert result.resumed
    stages = STAGES[kind]
    done = stages.index("select" if where == "step" else at)
    assert list(result.skipped) == list(stages[:done])
    # Every pass is made once, and that of the stage at which the driver died once more, unless
    # its partials are in the cache.
    once = [1] * n
    passes = [name for name in stages if name in PASSES]
    begun = [name for name in stages[: done + 1] if name in PASSES]
    excluded = [name for name in passes if stages.index(name) >= done]
    assert plan.reads() == [once] * len(begun)
    read = [name for name in excluded if name in UNCACHED or stages.index(name) > done]
    assert [n for passed in again.reads() for n in passed] == [1] * n * len(read)
    assert manifest(result.folder)["attempt"] == 2
    jobs.require_sound(kind, output, result.folder)
