"""Whole jobs on every engine: the same bits, each partition read once; and clusters that are not
there or not fit, of which a job says so before it reads or writes anything."""

import pytest

from distfms.engine.ray_cluster import RayExecutor
from distfms.errors import EngineError
from distfms.runs.driver import run_job
from distfms.runs.folder import RunFolder
from tests.faults.cases import CASES, manifest, small_blocks
from tests.faults.disturbance import Plan, disturbed
from tests.ray_here import run_script

#: By default passes on each engine, where no test with a mishap has them, and moments here.
USUAL = {
    "ray": ("glm",),
    "dask": ("glm",),
    "threads": ("mapped", "ranking"),
    "processes": ("blocks", "functions"),
}


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        pytest.param(engine, kind, marks=() if kind in usual else pytest.mark.slow)
        for engine, usual in USUAL.items()
        for kind in CASES
    ],
    indirect=["engine"],
)
def test_same_bits(engine, kind, jobs, tmp_path):
    n = CASES[kind].n_partitions
    spec = jobs.spec(kind, tmp_path / "runs", engine=engine)
    with small_blocks(kind), disturbed(Plan(str(tmp_path / "marks"))) as plan:
        folder = run_job(spec).folder
    assert all(passed == [1] * n for passed in plan.reads())
    assert plan.reads()
    stages = manifest(folder)["stages"]
    assert sum(stage.get("n_read", 0) for stage in stages) == n * len(plan.reads())
    jobs.require_sound(kind, tmp_path / "runs", folder)


def test_passes_of_a_job_on_ray_are_graphs_of_dask(ray_session, jobs, tmp_path, monkeypatch):
    import ray
    from dask.local import get_sync

    graphs = []

    def follow(self, dsk, keys, **options):
        graphs.append(dsk)
        # Nothing goes to Ray past this: what Dask runs here is the whole pass.
        monkeypatch.setattr(ray, "remote", None)
        return get_sync(dsk, keys)

    with RayExecutor(workers=2):  # its workers are awake
        monkeypatch.setattr(RayExecutor, "follow", follow)
        spec = jobs.spec("multiselect", tmp_path / "runs", engine={"kind": "ray", "workers": 2})
        folder = run_job(spec).folder
    assert graphs
    for graph in graphs:
        assert sum("unit" in key[0] for key in graph) == CASES["multiselect"].n_partitions
    jobs.require_sound("multiselect", tmp_path / "runs", folder)


@pytest.mark.slow
def test_ray_and_dask_clusters_on_the_command_line(ray_session, dask_session, jobs, tmp_path):
    import ray

    spec = jobs.spec("multiselect", tmp_path / "runs")
    (tmp_path / "job.yaml").write_text(spec.to_yaml())
    addresses = ray.get_runtime_context().gcs_address, dask_session
    token = "0" * 64
    answers = run_script(
        "command_lines", str(tmp_path / "job.yaml"), *addresses, RAY_AUTH_TOKEN=token
    )
    expected = {
        "no Ray": (1, "No Ray cluster answers at 127.0.0.1"),
        "no Ray client": (1, "No Ray cluster answers at ray://127.0.0.1"),
        "no Dask": (1, "No Dask scheduler answers at tcp://127.0.0.1"),
        "wrong token": (1, "RAY_AUTH_TOKEN"),
        "Dask given to Ray": (2, "is not the address of a Ray cluster, which has"),
        "Dask given to Ray, without its scheme": (1, "No Ray cluster answers at"),
        "Dask given to a Ray client": (1, "No Ray cluster answers at"),
        "Ray given to Dask": (1, "No Dask scheduler answers"),
        "Ray client given to Dask": (2, "is not the address of a Dask scheduler, which has"),
    }
    assert {name: end["code"] for name, end in answers.items()} == {
        name: code for name, (code, _) in expected.items()
    }
    for name, (_, text) in expected.items():
        said = answers[name]["error"]
        assert text in said, name
        assert said.startswith("Error: ")
        assert said.count("\n") == 1, said
        assert token not in said
    assert not (tmp_path / "runs" / "small").exists()


def test_run_that_another_driver_writes(jobs, tmp_path):
    spec = jobs.spec("multiselect", tmp_path / "runs")
    run = tmp_path / "run"
    with RunFolder(run).locked(), disturbed(Plan(str(tmp_path / "marks"))) as plan:
        with pytest.raises(EngineError, match=r"Another process is writing the run .*Wait"):
            run_job(spec, out=run)
        assert plan.reads() == []
        assert [p.name for p in run.iterdir()] == [".lock"]
    jobs.require_sound("multiselect", tmp_path / "runs", run_job(spec, out=run).folder)
