"""The house keeps its storeys: import rules, lazy imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "distfms").rglob("*.py"))
# A module of a method is impure when a word of its name says that it reads (or hashes), composes
# or shows; trees are learned and kept by LightGBM, from rows.
IMPURE = {"flow", "form", "data", "slabs", "method", "read", "draws", "learners", "choices"}
IMPURE |= {"statistics", "references", "options", "predictor", "figures", "trees"}
IMPURE |= {"sample", "fits", "race"}
METHOD_FOLDERS = {p.name for p in (ROOT / "distfms" / "methods").iterdir() if p.is_dir()}
METHOD_FOLDERS -= {"frame"}  # what all of them share
PURE_PACKAGES = {"numpy", "scipy", "sklearn", "numba", "lightgbm", "distfms"}


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
    if inside[0] in ("solve", "stats"):
        return True
    if inside[0] != "methods" or len(inside) < 3 or inside[1] == "frame":
        return False
    return not IMPURE & set(path.stem.split("_"))


@pytest.mark.parametrize("path", [p for p in SOURCES if _is_pure(p)], ids=lambda p: p.stem)
def test_pure_parts_import_only_numerics(path):
    roots = {name.split(".")[0] for name in _imported(path)}
    assert roots - PURE_PACKAGES <= sys.stdlib_module_names
    upward = {name for name in _imported(path) if name.startswith("distfms.")}
    allowed = ("distfms.solve", "distfms.stats", "distfms.errors", "distfms.methods.")
    assert all(name.startswith(allowed) for name in upward)


def test_methods_do_not_import_one_another():
    for path in SOURCES:
        inside = path.relative_to(ROOT / "distfms").parts
        if inside[0] != "methods" or len(inside) < 3 or inside[1] == "frame":
            continue
        other_methods = {
            name
            for name in _imported(path)
            for folder in METHOD_FOLDERS - {inside[1]}
            if name.startswith(f"distfms.methods.{folder}")
        }
        assert other_methods == set(), path


LIGHT = ("distfms", "distfms.stats", "distfms.cli.commands", "distfms.data", "distfms.engine")


def test_importing_loads_no_heavy_library():
    code = (
        f"import sys, {', '.join(LIGHT)}; "
        "print({'ray', 'dask', 'distributed', 'pyarrow', 'fsspec'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"
