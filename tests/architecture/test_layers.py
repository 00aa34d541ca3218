"""The house keeps its storeys: import rules, lazy imports, small files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "distfms").rglob("*.py"))
IMPURE = {
    "baseline_sparse.py",  # a kept library solves the group lasso
    "estimator.py",
    "estimator_input.py",
    "figures.py",
    "job.py",
    "options.py",
    "predictor.py",
    "read.py",
    "tables.py",
    "write_plan.py",
}
PURE_PACKAGES = {"numpy", "scipy", "numba", "distfms"}


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def _is_pure(path: Path) -> bool:
    inside = path.relative_to(ROOT / "distfms").parts
    if inside[0] == "stats" or inside == ("linalg.py",):
        return True
    return inside[0] == "methods" and len(inside) == 3 and path.name not in IMPURE


@pytest.mark.parametrize("path", [p for p in SOURCES if _is_pure(p)], ids=lambda p: p.stem)
def test_pure_parts_import_only_numerics(path):
    roots = {name.split(".")[0] for name in _imported(path)}
    assert roots - PURE_PACKAGES <= sys.stdlib_module_names
    upward = {name for name in _imported(path) if name.startswith("distfms.")}
    allowed = ("distfms.stats", "distfms.linalg", "distfms.errors", "distfms.methods.")
    assert all(name.startswith(allowed) for name in upward)


def test_methods_do_not_import_one_another():
    for path in SOURCES:
        inside = path.relative_to(ROOT / "distfms").parts
        if inside[0] != "methods" or len(inside) < 3:
            continue
        own = f"distfms.methods.{inside[1]}"
        others = {
            name
            for name in _imported(path)
            if name.startswith("distfms.methods.") and not name.startswith(own)
        }
        assert others <= {"distfms.methods.contract"}, path


@pytest.mark.parametrize("module", ["distfms", "distfms.stats", "distfms.cli", "distfms.data"])
def test_importing_loads_no_heavy_library(module):
    code = (
        f"import sys, {module}; "
        "print([m for m in ('ray', 'dask', 'distributed', 'matplotlib') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_files_and_functions_stay_small():
    too_long = []
    for path in SOURCES:
        text = path.read_text()
        if text.count("\n") > 500:
            too_long.append(path.name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first = body[0].lineno if body else node.lineno
                if node.end_lineno - first > 60:
                    too_long.append(f"{path.name}:{node.name}")
    assert too_long == []
