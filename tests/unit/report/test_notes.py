"""Every note that the package can say has one code, which `distfms explain` knows."""

import ast
import re
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest

import distfms
from distfms.cli import main
from distfms.methods.frame.tuning import note_edge
from distfms.report.notes import code_of, coded, table, unmuted
from distfms.report.page import PageSection
from distfms.report.sections import build_page, notes
from tests.unit.report.checks import check_page, manifest

#: Of these functions every sentence is a note.
_TELLING = re.compile(r"\w*(remark|remarks)$|(notes_on|notes|note|_left_out)$")


def _text(node):
    """Return what a string, or an f-string with any values, says."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) if isinstance(v, ast.Constant) else "Some 1" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def _asked(node):
    """Whether a call tells a note."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    is_list = "notes" in ast.unparse(node.func.value)
    return bool(node.args) and (
        node.func.attr == "note" or (node.func.attr == "append" and is_list)
    )


def said():
    """Return all sentences that are notes, by where they stand."""
    results = {}
    for path in Path(distfms.__file__).parent.rglob("*.py"):
        if path.parent.name in ("formats", "registry", "cli", "report"):
            continue
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        parts = [n for n in nodes if isinstance(n, ast.Raise | ast.JoinedStr)]
        within = {id(m) for n in parts for m in ast.walk(n) if m is not n}
        telling = [n for n in nodes if isinstance(n, ast.FunctionDef) and _TELLING.match(n.name)]
        inside = (m for n in telling for own in n.body[1:] for m in ast.walk(own))
        for node in chain((n.args[0] for n in nodes if _asked(n)), inside):
            text = "" if id(node) in within else _text(node)
            if text.endswith(".") and len(text) > 40:
                results[f"{path}:{node.lineno}"] = text
    return results


def test_every_note_has_a_code_and_every_code_a_note():
    results = {where: (text, code_of(text)) for where, text in said().items()}
    assert len(results) > 35
    assert not {where: text for where, (text, code) in results.items() if not code}
    # Others are made of parts, or said by reports and by the driver.
    elsewhere = {"N002", "N003", "N008", "N009", "N017", "N020", "N027", "N038", "N041", "N043"}
    elsewhere |= {"N010", "N026", "N044", "N053"}
    assert set(table()) - {code for _, code in results.values()} <= elsewhere


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Missing values replaced with the column's mean: a 3.", "N003"),
        ("Constant columns left out: a, b.", "N009"),
        ("Chosen by cross-validation: algorithm full, ridge 0.01.", "N014"),
        ("About 7 of 133 held-out rows decide about the deviance: look.", "N020"),
        ("3 judgments have no rater id; each counts as a different rater's.", "N038"),
    ],
)
def test_codes_do_not_change(text, code):
    assert coded(text) == f"{text} ({code})"


def test_a_muted_note_is_not_shown_and_others_lead_to_what_they_mean():
    told = {
        **manifest(),
        "notes": ["Chosen by us: a 1.", "2 rows of weight 0 are ignored.", "Odd."],
    }
    page = build_page("h", [PageSection("", notes(told))], told, "s").render()
    text = check_page(page)
    assert 'href="#N014"' in page
    assert table()["N014"]["means"][:30] in text
    told["muted"] = ["N014"]
    page = build_page("h", [PageSection("", notes(told))], told, "s").render()
    assert "Chosen by us" not in page
    assert "N014" not in page
    assert "N002" in check_page(page)
    assert unmuted(["Odd.", "Odd."], ["N014"]) == ["Odd."]


def test_explain(capsys):
    for words, code, expected in (
        (["n015"], 0, "N015: "),
        ([], 0, "N044: "),
        (["N9"], 2, "no note N9"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["explain", *words])
        assert ended.value.code == code
        told = capsys.readouterr()
        assert expected in told.out + told.err


@pytest.mark.parametrize(
    ("value", "tried", "is_said"),
    [(1.0, [0.1, 1.0, 0.5], True), (0.5, [0.1, 0.5, 1.0], False), (1.0, [1.0, 0.1], False)],
)
def test_a_tuned_option_at_the_edge_of_its_grid_is_noted(value, tried, is_said):
    messages = []
    note_edge(SimpleNamespace(note=messages.append), "ridge", value, tried)
    assert [code_of(text) for text in messages] == ["N015"] * is_said
