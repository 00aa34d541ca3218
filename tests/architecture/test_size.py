"""The house stays small and without circles."""

import ast
from functools import cache
from pathlib import Path

from tests.architecture.weights import code_lines

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "distfms"
SOURCES = sorted(PACKAGE.rglob("*.py"))
#: Lines of code a file may have.
MOST_LINES = 350


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def size_of(path: Path) -> int:
    return len(code_lines(path.read_text(), parsed(path)))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports anywhere: in functions and for types too."""
    results = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            results |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            results |= (inside & MODULES.keys()) or {node.module}
    return results & MODULES.keys()


def test_no_import_cycles_at_any_depth() -> None:
    left = {name: imported(path) - {name} for name, path in MODULES.items()}
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert left == {}


def test_files_are_small() -> None:
    sizes = {str(path.relative_to(ROOT)): size_of(path) for path in SOURCES}
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}


def test_functions_are_short() -> None:
    long = []
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first = body[0].lineno if body else node.lineno
                if node.end_lineno - first > 60:
                    long.append(f"{path.name}:{node.name}")
    assert long == []
