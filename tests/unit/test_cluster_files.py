"""The files of cluster/: as far as they can be checked without a cloud, Docker or Kubernetes."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import distfms

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"

# Fields of KubeRay's types (RayJobSpec, RayClusterSpec, HeadGroupSpec, WorkerGroupSpec and
# RayCronJobSpec of ray.io/v1); an unknown one is refused by the API server.
RAY_JOB = """
    activeDeadlineSeconds backoffLimit clusterSelector deletionStrategy entrypoint
    entrypointNumCpus entrypointNumGpus entrypointResources jobId managedBy metadata
    rayClusterSpec runtimeEnvYAML shutdownAfterJobFinishes submissionMode submitterConfig
    submitterPodTemplate suspend ttlSecondsAfterFinished
"""
RAY_CLUSTER = """
    authOptions autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions headGroupSpec
    headServiceAnnotations rayVersion suspend workerGroupSpecs
"""
GROUP = """
    groupName headService maxReplicas minReplicas numOfHosts rayStartParams replicas serviceType
    template
"""
CRON_JOB = "jobTemplate schedule suspend timeZone"


def documents(name):
    return list(yaml.safe_load_all((CLUSTER / name).read_text()))


def of_kind(kind):
    results = [d for path in CLUSTER.glob("kuberay-*.yaml") for d in documents(path.name)]
    return [document for document in results if document["kind"] == kind]


def ray_jobs():
    return [d["spec"] for d in of_kind("RayJob")] + [
        d["spec"]["jobTemplate"] for d in of_kind("RayCronJob")
    ]


def pods():
    for spec in ray_jobs():
        cluster = spec["rayClusterSpec"]
        yield cluster["headGroupSpec"]["template"]["spec"]
        for group in cluster["workerGroupSpecs"]:
            yield group["template"]["spec"]
    for cron in of_kind("CronJob"):
        yield cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]


# --- Kubernetes ---------------------------------------------------------------------------------


def test_ray_jobs_have_known_fields():
    assert len(ray_jobs()) == 2
    for spec in ray_jobs():
        assert set(spec) <= set(RAY_JOB.split())
        cluster = spec["rayClusterSpec"]
        assert set(cluster) <= set(RAY_CLUSTER.split())
        for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
            assert set(group) <= set(GROUP.split())
            # Kubernetes takes only strings here; YAML would make numbers of them.
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for group in cluster["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert cluster["authOptions"] == {"mode": "token"}
        assert isinstance(cluster["rayVersion"], str)


def test_schedules():
    for document in of_kind("RayCronJob") + of_kind("CronJob"):
        assert len(document["spec"]["schedule"].split()) == 5
        # Two ways of the same: applying the file as it is starts neither.
        assert document["spec"]["suspend"] is True
    for document in of_kind("RayCronJob"):
        assert set(document["spec"]) <= set(CRON_JOB.split())
    for document in of_kind("CronJob"):
        assert document["spec"]["concurrencyPolicy"] == "Forbid"
        pod = document["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Never"


def test_pods_hang_together():
    claims = {d["metadata"]["name"] for d in of_kind("PersistentVolumeClaim")}
    maps = {d["metadata"]["name"] for d in of_kind("ConfigMap")}
    images = set()
    for pod in pods():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            assert "memory" in container["resources"]["limits"]
            images.add(container["image"])
            # No token in a manifest: neither in the environment nor on a command line.
            names = [variable["name"] for variable in container.get("env", [])]
            assert "RAY_AUTH_TOKEN" not in names
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps
    assert len(images) == 1


def test_the_spec_in_the_config_map_runs(tmp_path):
    from distfms.runs.job_spec import load_spec
    from distfms.runs.prepare import prepare

    (config,) = of_kind("ConfigMap")
    (tmp_path / "job.yaml").write_text(config["data"]["job.yaml"])
    prepared = prepare(load_spec(tmp_path / "job.yaml"))
    assert prepared.spec.output.path == "/data/runs"


def test_commands_are_there():
    """What the manifests call is in the image, and takes the options given."""
    assert all("python /opt/distfms/jobs/entry.py" in spec["entrypoint"] for spec in ray_jobs())
    assert (ROOT / "jobs" / "entry.py").is_file()
    submits, _ = of_kind("CronJob")
    (container,) = submits["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    from typer.testing import CliRunner

    from distfms.cli.commands import app

    given = [part.split("=")[0] for part in container["command"]]
    assert given[:2] == ["distfms", "submit"]
    shown = CliRunner().invoke(app, ["submit", "--help"], env={"COLUMNS": "200"}).output
    assert all(option in shown for option in given if option.startswith("--"))


def test_all_nightly_recipes_retrain():

    (ray,) = of_kind("RayCronJob")
    submits, pod = (
        cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
        for cron in of_kind("CronJob")
    )
    entry = ray["spec"]["jobTemplate"]["entrypoint"]
    assert "--retrain" in submits
    for shell in (entry.removeprefix("sh -c ").strip("'"), pod[-1]):
        assert " retrain /etc/distfms/job.yaml" in shell
        for code, end in ((0, 0), (3, 0), (2, 1), (1, 1)):
            ended = re.sub(r"^(distfms|python).*?(?= \|\|)", f"(exit {code})", shell)
            assert subprocess.run(["sh", "-c", ended]).returncode == end
    service, timer = (
        (CLUSTER / f"distfms-retrain.{kind}").read_text() for kind in ("service", "timer")
    )
    assert "bin/distfms retrain" in service
    assert "SuccessExitStatus=3" in service
    assert "Persistent=true" in timer


# --- launcher and image -------------------------------------------------------------------------


LAUNCHERS = ("ray-cluster.yaml", "ray-on-premise.yaml")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_file_passes_rays_own_validation(name):
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(documents(name)[0])
    validate_config(config)
    with pytest.raises(Exception, match="Additional properties are not allowed"):
        validate_config({**config, "head_typ": "head"})


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launcher_starts_ray_with_a_token(name):
    (config,) = documents(name)
    (token,) = [path for path in config["file_mounts"] if path.endswith("auth_token")]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        (start,) = [c for c in config[key] if "ray start" in c]
        assert "RAY_AUTH_MODE=token" in start
        assert f"RAY_AUTH_TOKEN_PATH={token}" in start
        result = subprocess.run(["bash", "-n"], input=start, text=True, capture_output=True)
        assert result.returncode == 0, result.stderr


def test_image_has_what_the_package_needs():
    text = (CLUSTER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert {"pyproject.toml", "README.md", "distfms", "jobs"} <= names
    assert all((ROOT / name).exists() for name in names)
    (base,) = re.findall(r"^ARG BASE=python:(\d+)\.(\d+)", text, re.MULTILINE)
    assert re.findall(r"^FROM (.+)$", text, re.MULTILINE) == ["${BASE}"]
    assert tuple(map(int, base)) >= (3, 11)
    assert re.search(r"^USER ray$", text, re.MULTILINE)


def test_versions_agree():
    """One Ray and one distfms in the image, the manifests and the launcher."""
    (ray,) = re.findall(r"^ARG RAY_VERSION=(\S+)$", (CLUSTER / "Dockerfile").read_text(), re.M)
    assert {spec["rayClusterSpec"]["rayVersion"] for spec in ray_jobs()} == {ray}
    (install,) = [c for c in documents("ray-on-premise.yaml")[0]["setup_commands"] if "pip" in c]
    assert f"ray[default]=={ray}" in install
    image = documents("ray-cluster.yaml")[0]["docker"]["image"]
    assert {c["image"] for pod in pods() for c in pod["containers"]} == {image}
    assert image.endswith(f":{distfms.__version__}")
