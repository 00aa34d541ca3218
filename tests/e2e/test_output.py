"""Outputs and folders that cannot take what a command writes: the work is done all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = "name: t\nmethod: sequence\ndata: {path: d.csv, target: y}\nsequence: {model: linear}\n"


@pytest.fixture
def place(tmp_path):
    rows = "".join(f"{i * 5 % 13},{i * 7 % 11},{i * 5 % 13 + i % 3}\n" for i in range(60))
    (tmp_path / "d.csv").write_text("a,b,y\n" + rows)
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


def command(place, line, **environment):
    """Run a line of a shell in which `distfms` is this one."""
    script = f'distfms() {{ "{sys.executable}" -m distfms.cli "$@"; }}\n{line}'
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        ["bash", "-c", script], cwd=place, env=variables, capture_output=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def n_reports(place):
    return len(list(Path(place).glob("runs/t/2*/report.html")))


@pytest.mark.slow
def test_output_that_cannot_hold_all_characters(place):
    code, output, errors = command(place, "distfms run job.yaml", PYTHONIOENCODING="ascii")
    assert (code, n_reports(place)) == (0, 1), errors
    assert " +- " in output.decode("ascii")


@pytest.mark.parametrize(
    "where",
    [
        "> /dev/full",
        pytest.param("| true; exit ${PIPESTATUS[0]}", marks=pytest.mark.slow),
        pytest.param(">&-", marks=pytest.mark.slow),
    ],
)
def test_output_that_nobody_takes(place, where):
    code, _, errors = command(place, f"distfms run job.yaml {where}")
    assert (code, n_reports(place)) == (0, 1), errors
    assert "Traceback" not in errors


def test_what_could_not_be_printed_is_no_success(place):
    code, _, errors = command(place, "distfms options sequence > /dev/full")
    assert code == 1
    assert errors == (
        "Error: The output could not be written (No space left on device). Write it to another "
        "place.\n"
    )
    assert command(place, "distfms check no.yaml > /dev/full 2> /dev/full")[0] == 2


def test_home_without_write_access(place):
    variables = {"HOME": "/dev/null", "TMPDIR": str(place), "DISTFMS_CACHE": ""}
    code, _, errors = command(place, "distfms init d.csv --out j.yaml", **variables)
    assert code == 0, errors
    (cache,) = place.glob("distfms-*")
    cache.chmod(0o777)
    code, _, errors = command(place, "distfms init d.csv --out k.yaml", **variables)
    assert code == 2
    assert "DISTFMS_CACHE" in errors
