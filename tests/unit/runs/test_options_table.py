"""What `distfms options` tells: every key of every section, from models and docstrings alone."""

import pytest

from distfms.cli import main
from distfms.errors import SpecError
from distfms.runs.job_spec import TopKeys, build_spec
from distfms.runs.options_table import (
    attribute_texts,
    options_lines,
    section_models,
    section_options,
)
from distfms.spec import Section

MODELS = {"": TopKeys, **section_models()}


def _all_sections(model: type[Section]) -> set[type[Section]]:
    found = {m for m in model.__subclasses__() if m.__module__.startswith("distfms.")}
    return found.union(*map(_all_sections, found))


def test_no_section_is_left_out():
    assert _all_sections(Section) == set(MODELS.values())


@pytest.mark.parametrize("name", MODELS, ids=lambda name: name or "top")
def test_every_key_is_described_and_every_description_is_of_a_key(name):
    model = MODELS[name]
    texts = attribute_texts(model)
    assert set(texts) == set(model.model_fields)
    assert [key for key, text in texts.items() if not text] == []
    for option in section_options(model, name):
        assert option.text == texts[option.name]
        assert option.kind
        assert (option.default is None) == model.model_fields[option.name].is_required()


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("multiselect", "  budget: number > 0; required"),
        ("multiselect", "  algorithm: full | scoring; default full"),
        ("multiselect", "  refine: true | false; default false"),
        ("multiselect", '  baselines: list of text; default ["scoring", "averages", "copies"]'),
        ("sequence", "  alpha: number > 0, ≤ 1; optional"),
        ("sequence", "  costs: mapping of names to number > 0; default {}"),
        ("data", "  long: keys of `data.long`; optional"),
        ("data", "  path: text or list of text; optional"),
        ("tune", "  grid: non-empty mapping of names to non-empty list of any value; required"),
        ("output", "  path: non-empty text; default runs"),
    ],
)
def test_kind_and_default_of_a_key(section, line):
    assert line in options_lines(section)


def test_keys_with_one_meaning_stand_together():
    lines = options_lines("data.long", width=60)
    at = lines.index("  object: text; required")
    assert lines[at + 1 : at + 3] == ["  attribute: text; required", "  value: text; required"]
    assert lines[at + 3] == "      Column names in the judgment files."
    assert all(len(line) <= 60 for line in lines if line.startswith("      "))


def test_docstrings_lose_their_markup_and_other_parts():
    class Described:
        """First line.

        Attributes
        ----------
        a, b : int
            Both; see :class:`~distfms.spec.Section` and ``c``.
        c : {"x", "y"}
            One
            and the other.

        Notes
        -----
        d : int
            No attribute.
        """

    both = "Both; see Section and `c`."
    assert attribute_texts(Described) == {"a": both, "b": both, "c": "One and the other."}


def test_command_lists_sections_and_the_keys_of_one(capsys):
    for arguments, expected in (([], "  tune "), (["tune"], "  rule: best | one_standard_error")):
        with pytest.raises(SystemExit) as ended:
            main(["options", *arguments])
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


def test_unknown_section_and_unknown_key_lead_to_the_list(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["options", "multiselct"])
    assert ended.value.code == 2
    assert "no section `multiselct`. Did you mean 'multiselect'?" in capsys.readouterr().err
    spec = {"name": "a", "method": "multiselect", "data": {"builtin": "digits-judged"}}
    with pytest.raises(SpecError, match="`distfms options multiselect` lists the keys"):
        build_spec({**spec, "multiselect": {"bugdet": 3}})
    with pytest.raises(SpecError, match="`distfms options data` lists the keys"):
        build_spec({**spec, "data": {"path": "x", "long": {"objct": "o"}}})
    with pytest.raises(SpecError, match="`distfms options` lists the keys and sections"):
        build_spec({**spec, "sed": 3})
