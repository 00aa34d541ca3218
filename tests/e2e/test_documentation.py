"""Pages of documentation: their Python runs, their specs and commands are valid, links lead on."""

import json
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer.main
from ruamel.yaml import YAML

from distfms.cli import commands
from distfms.cli.start import topics
from distfms.runs.job_spec import build_spec

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs" / "README.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", JOBS, *topics().values()]
#: Pages that are read from top to bottom, and their most bytes.
PAGES_OF_METHODS = sorted(
    str(page.relative_to(ROOT)) for page in ROOT.glob("distfms/methods/*/README.md")
)
MOST_BYTES = {"README.md": 5_000, "CONTRIBUTING.md": 6_000}


def blocks(language):
    """Code blocks of a language in all pages, with names for the tests."""
    results = []
    for page in PAGES:
        for block in re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            name = f"{page.parent.name}-{re.sub(r'[^a-z]+', '-', block.lower())[:30]}"
            results.append(pytest.param(block, id=name))
    return results


RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 60))
Y = X[:, 0] + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=120)
COLUMNS = ["hdl", "ldl", "glucose_fasting", "ecg_1", "ecg_2"]
FRAME = pd.DataFrame(X[:, :5], columns=COLUMNS)
JUDGMENTS = X[:, :6, None] + RNG.normal(size=(120, 6, 3))
#: What stands around the blocks, by a word that is in one of them.
AROUND = {
    "FeatureMultiSelector": {"X": JUDGMENTS, "y": Y, "X_test": JUDGMENTS, "y_test": Y},
    "GroupSequencer": {"frame": FRAME, "risk": Y},
    "LandmarkRegressor": {"X": X[:, :5], "y": Y},
    "X, y": {"X": X, "y": Y},
    "model.ask()": {
        "tests": COLUMNS,
        "volunteers": range(30),
        "measure": lambda patient, name: FRAME[name][patient],
        "outcome": lambda patient: Y[patient],
    },
    "registry:patients": {"frame": FRAME},
}


@pytest.mark.parametrize("block", blocks("python"))
def test_python_runs(block, tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    if "registry:patients" in block:
        FRAME.assign(risk=Y).to_parquet("patients.parquet")
        data = {"path": "patients.parquet", "target": "risk", "test": 0.2}
        spec = {"name": "patients", "method": "sequence", "data": data, "retrain": {}}
        Path("job.yaml").write_text(json.dumps(spec))
        assert distfms("retrain", "job.yaml").code == 0
    around = [found for word, found in AROUND.items() if word in block]
    exec(block, dict(around[0]) if around else {})


@pytest.mark.parametrize("block", blocks("yaml"))
def test_specs_are_valid(block):
    spec = YAML(typ="safe").load(block)
    if "method" not in spec:
        rest = {"name": "page", "method": "multiselect", "multiselect": {"budget": 40}}
        spec = {**rest, "data": {"path": "rows/", "target": "y"}, **spec}
    assert build_spec(spec).method == spec["method"]


@pytest.mark.parametrize("block", blocks("(?:sh|console)"))
def test_commands_have_these_options(block):
    group = typer.main.get_command(commands.app)
    calls = re.findall(r"^(?:\$ )?distfms (.+?)(?:\s#.*|\s&&.*)?$", block, re.MULTILINE)
    for call in calls:
        command = group
        arguments = shlex.split(call)
        while hasattr(command, "commands"):
            command = command.commands[arguments.pop(0)]
        command.make_context(command.name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_files_and_pages_are_short(page):
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if not link.startswith("http"):
            assert (page.parent / link.partition("#")[0]).exists(), link
    n_bytes = MOST_BYTES.get(str(page.relative_to(ROOT)), 7_000)
    assert len(text.encode()) <= n_bytes


def test_help_lists_and_shows_pages(distfms):
    listed = distfms("help").out
    assert all(topic in listed for topic in topics())
    assert "costly groups of features" in distfms("help", "sequence").out
    refused = distfms("help", "sequense")
    assert refused.code == 2
    assert "sequence" in refused.err


@pytest.mark.parametrize(
    "page",
    ["README.md", *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES_OF_METHODS)],
)
def test_jobs_print_what_pages_say(page, distfms, monkeypatch, tmp_path):
    text = (ROOT / page).read_text("utf-8")
    (printed,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    job = re.search(r"distfms run (jobs/\S+)", text)[1]
    monkeypatch.chdir(tmp_path)
    out = distfms("run", str(ROOT / job)).out.splitlines()
    for line in printed.splitlines():
        assert line in out or line.startswith(("$", "Report: ")), line


@pytest.mark.slow
def test_jobs_to_copy_print_what_their_page_says(distfms, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "jobs" / "made_data.py"), run_name="__main__")
    pattern = r"```console\n[^\n]*distfms run (jobs/\S+)\n(.*?)```"
    for job, printed in re.findall(pattern, JOBS.read_text("utf-8"), re.DOTALL):
        out = distfms("run", str(ROOT / job)).out.splitlines()
        for line in printed.splitlines():
            assert line in out, out[-2:]


def test_the_tutorial_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = runpy.run_path(str(ROOT / "jobs" / "tutorial.py"))
    assert "the same again: True" in capsys.readouterr().out
    assert found["classifier"].score(found["A_test"], found["c_test"]) > 0.9
