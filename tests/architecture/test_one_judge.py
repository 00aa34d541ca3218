"""One judge, one choice, one read: who alone may import what losses, errors and samples need."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "distfms"
STATS = "distfms.stats"
#: By module and name: who it is for, and who still imports it beside these. A room that has no
#: need of it any more is taken off.
RULES = {
    (f"{STATS}.classification", "class_sums"): ({"methods/frame/judge.py"}, set()),
    (f"{STATS}.classification", "class_measures"): ({"methods/frame/judge.py"}, set()),
    ("distfms.methods.frame.ranking", "RankingScores"): (
        {"methods/frame/judge.py"},
        {"estimators/landmarks.py"},
    ),
    # Standard errors choose in one place; those that are said beside a figure are the report's.
    (f"{STATS}.base", "over_folds"): (
        {"methods/frame/choose.py", "stats/folds.py", "report/metrics.py"},
        {
            "methods/attribute_efficient/lessons.py",
            "methods/frame/tuning.py",
            "methods/landmarks/candidates.py",
            "methods/landmarks/evaluate.py",
            "methods/multiselect/answer_figures.py",
            "methods/multiselect/evaluate.py",
            "methods/sequence/evaluate.py",
            "methods/sequence/flow.py",
            "methods/sequence/race.py",
            "methods/sequence/ridge_choice.py",
            "methods/sequence/reference.py",
            "methods/sequence/stopping.py",
        },
    ),
    (f"{STATS}.sample", "RowSample"): (
        {"methods/frame/read.py"},
        {
            "methods/attribute_efficient/cells.py",
            "methods/landmarks/read.py",
            "methods/landmarks/read_choice.py",
            "methods/landmarks/references.py",
            "methods/landmarks/similarity.py",
            "methods/multiselect/read.py",
            "methods/sequence/sample.py",
        },
    ),
}


def importers(module: str, name: str) -> set[str]:
    results = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                names = [alias.name for alias in node.names]
                if name in names:
                    results.add(str(path.relative_to(PACKAGE)))
    return results


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[1])
def test_only_its_room_imports(rule: tuple[str, str]) -> None:
    mine, not_yet = RULES[rule]
    module, name = rule
    assert importers(module, name) - mine == not_yet
