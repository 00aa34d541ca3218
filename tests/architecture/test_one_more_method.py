"""A fifth method is one folder and one line: the house has room for it, and its rules hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Rules that a method could break.
RULES = ("test_layers.py", "test_one_judge.py", "test_size.py")


@pytest.mark.slow
def test_a_copy_of_the_example_passes_all_rules(tmp_path: Path) -> None:
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "distfms", tmp_path / "distfms", ignore=without)
    shutil.copytree(ROOT / "tests" / "architecture", tmp_path / "tests" / "architecture")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    rules = [f"tests/architecture/{name}" for name in RULES]
    folder = tmp_path / "distfms" / "methods" / "correlation"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    shutil.copy(ROOT / "tests" / "contract" / "correlation.py", folder / "method.py")
    table = tmp_path / "distfms" / "methods" / "__init__.py"
    line = '    "correlation": "distfms.methods.correlation.method:METHOD",\n}'
    table.write_text(table.read_text().replace("\n}", f"\n{line}", 1))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (
        [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *rules],
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        [sys.executable, "-c", "from distfms.methods import load_method as f; f('correlation')"],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
