"""What `distfms options` tells: every key of every section, from the models alone."""

import pytest

from distfms.cli import main
from distfms.runs.job_spec import TopKeys
from distfms.runs.options_table import key_meanings, options_lines, section_models
from distfms.spec import Section

MODELS = {"": TopKeys, **section_models()}


def _all_sections(model):
    found = {m for m in model.__subclasses__() if m.__module__.startswith("distfms.")}
    return found.union(*map(_all_sections, found))


def test_no_section_is_left_out():
    assert _all_sections(Section) == set(MODELS.values())


@pytest.mark.parametrize("name", MODELS, ids=lambda name: name or "top")
def test_every_key_is_described(name):
    fields = MODELS[name].model_fields
    assert [key for key, meaning in key_meanings(MODELS[name]).items() if meaning] == list(fields)
    lines = options_lines(name or None)
    assert all(any(line.startswith(f"  {key}: ") for line in lines) for key in fields)
    assert not [line for line in lines if "``" in line or len(line) > 160]


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("multiselect", "  budget: number > 0; required"),
        ("multiselect", "  plan: true | false; default false"),
        (
            "multiselect",
            '  baselines: list of text; default ["scoring", "averages", "copies", "lasso"]',
        ),
        ("sequence", "  costs: mapping of names to number ≥ 0; default {}"),
        ("data", "  path: text or list of text; optional"),
        ("tune", "  grid: non-empty mapping of names to non-empty list of any value; required"),
    ],
)
def test_kind_and_default_of_a_key(section, line):
    assert line in options_lines(section)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 0, "  tune "),
        (["sequence"], 0, "more: distfms options sequence --all"),
        (["sequence", "--all"], 0, "  baselines: "),
        (["tune"], 0, "  rule: best | one_standard_error"),
        (["multiselct"], 2, "no section `multiselct`. Did you mean 'multiselect'?"),
    ],
)
def test_command(arguments, code, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["options", *arguments])
    assert ended.value.code == code
    assert expected in "".join(capsys.readouterr())
