"""How heavy a part of the house is: nodes of Python's syntax trees, and how densely they stand.

Lines can be made fewer by writing them denser; nodes cannot. ``python -m
tests.architecture.weights`` prints a table of the rooms.
"""

import ast
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Names that do not say what they hold.
VAGUE = frozenset(
    [
        "own",
        "found",
        "known",
        "some",
        "said",
        "told",
        "made",
        "given",
        "wanted",
        "asked",
        "more",
        "rest",
        "at",
        "of",
        "how",
        "what",
        "where",
        "other",
        "others",
        "left",
        "one",
        "both",
        "here",
        "there",
        "has",
        "who",
        "way",
        "thing",
        "stuff",
        "again",
    ]
)
COMPREHENSIONS = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Lines of a function from which its density counts, and nodes a line from which it is dense.
LONG_LINES = 12
DENSE = 9.0


@dataclass(frozen=True)
class Weight:
    """Nodes and code lines of some files, densities of their longer functions, and habits."""

    nodes: int
    lines: int
    densities: tuple[float, ...]
    vague: int
    nested: int
    tuples: int

    @property
    def density(self) -> float:
        """Median of the nodes a line of longer functions."""
        return statistics.median(self.densities) if self.densities else 0.0

    @property
    def dense_share(self) -> float:
        """Share of the longer functions that are dense."""
        n_dense = sum(density > DENSE for density in self.densities)
        return n_dense / max(len(self.densities), 1)

    def a_thousand(self, habit: str) -> float:
        """Return how often something is done in a thousand lines."""
        return 1000 * getattr(self, habit) / max(self.lines, 1)


def is_text(node: ast.AST) -> bool:
    """Return whether a node is a docstring or another text that stands alone."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return False
    return isinstance(node.value.value, str)


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that are neither blank nor comment nor docstring."""
    lines = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            lines.add(number)
    for node in ast.walk(tree):
        if is_text(node):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return lines


def count_nodes(node: ast.AST) -> int:
    """Count a node and those below it, without texts that stand alone and contexts."""
    if is_text(node) or isinstance(node, ast.expr_context):
        return 0
    return 1 + sum(count_nodes(child) for child in ast.iter_child_nodes(node))


def bound_name(node: ast.AST) -> str | None:
    """Return the name that a node gives to a value."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return None


def is_nested(node: ast.AST) -> bool:
    """Return whether a comprehension has another inside."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    return sum(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node)) > 1


def is_tuple_assignment(node: ast.AST) -> bool:
    """Return whether several values get names in one statement."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def weigh(paths: Iterable[Path]) -> Weight:
    """Weigh files together."""
    nodes = n_lines = vague = nested = tuples = 0
    densities = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        lines = code_lines(text, tree)
        nodes += count_nodes(tree)
        n_lines += len(lines)
        for node in ast.walk(tree):
            vague += bound_name(node) in VAGUE
            nested += is_nested(node)
            tuples += is_tuple_assignment(node)
            if isinstance(node, FUNCTIONS):
                size = len(lines & set(range(node.lineno, node.end_lineno + 1)))
                if size >= LONG_LINES:
                    densities.append(count_nodes(node) / size)
    return Weight(nodes, n_lines, tuple(densities), vague, nested, tuples)


def rooms() -> dict[str, list[Path]]:
    """Return the files of each room: the package, its folders, and the tests."""
    files: dict[str, list[Path]] = {"distfms": sorted((ROOT / "distfms").rglob("*.py"))}
    for path in files["distfms"]:
        folders = path.relative_to(ROOT).parent.parts
        room = "/".join(folders[:3] if folders[1:2] in (("methods",), ("data",)) else folders[:2])
        if room != "distfms":
            files.setdefault(room, []).append(path)
    return {**files, "tests": sorted((ROOT / "tests").rglob("*.py"))}


def table() -> str:
    """Return the weights of all rooms as text."""
    heads = ("room", "nodes", "lines", "n/line", ">9", "vague", "nested", "tuples")
    rows = ["{:36}{:>9}{:>8}{:>8}{:>6}{:>8}{:>8}{:>8}".format(*heads)]
    for room, files in rooms().items():
        weight = weigh(files)
        habits = "".join(f"{weight.a_thousand(h):8.1f}" for h in ("vague", "nested", "tuples"))
        sizes = f"{weight.nodes:9,}{weight.lines:8,}{weight.density:8.1f}{weight.dense_share:6.0%}"
        rows.append(f"{room:36}{sizes}{habits}")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
