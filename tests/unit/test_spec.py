import pytest

from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec, load_spec
from distfms.spec import (
    DataSection,
    expand_variables,
    parse_bytes,
    parse_section,
    parse_yaml,
    set_dotted,
)

MINIMAL = {
    "name": "job",
    "method": "multiselect",
    "data": {"path": "somewhere", "target": "y"},
    "multiselect": {"budget": 10},
}


def spec(**changes):
    return build_spec({**MINIMAL, **changes})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1E3", 1e3), (".5", 0.5), ("2.", 2.0), ("-3e+2", -300.0), ("7", 7)],
)
def test_yaml_numbers(text, value):
    parsed = parse_yaml(f"x: {text}", "here")["x"]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["e5", "1e", "version-1e5", "1.2.3"])
def test_yaml_words_stay_words(text):
    assert parse_yaml(f"x: {text}", "here")["x"] == text


@pytest.mark.parametrize("word", ["No", "on", "yes", "y"])
def test_yaml_columns_may_be_called_yes_or_no(word):
    assert parse_yaml(f"x: {word}", "here")["x"] == word
    assert parse_yaml("x: true", "here")["x"] is True


def test_yaml_key_given_twice_is_refused():
    with pytest.raises(SpecError, match=r"`a` stands twice.*line 2"):
        parse_yaml("a: 1\na: 2", "here")


def test_yaml_error_says_where():
    with pytest.raises(SpecError, match=r"job\.yaml, line 2"):
        parse_yaml("a: 1\nb: [", "job.yaml")


@pytest.mark.parametrize("text", ["", "- 1", "word"])
def test_spec_must_be_a_mapping(text):
    with pytest.raises(SpecError, match="mapping"):
        parse_yaml(text, "job.yaml")


def test_set_dotted_overrides_without_changing_the_original():
    content = {"a": {"b": 1}, "c": 2}
    assert set_dotted(content, ["a.b=1e-3", "d.e=[x, y]"]) == {
        "a": {"b": 1e-3},
        "c": 2,
        "d": {"e": ["x", "y"]},
    }
    assert content == {"a": {"b": 1}, "c": 2}


@pytest.mark.parametrize("assignment", ["a", "=1", "a..b=1", "c.d=1", "a=[1"])
def test_set_dotted_refuses_nonsense(assignment):
    with pytest.raises(SpecError):
        set_dotted({"c": 2}, [assignment])


def test_unknown_key_names_the_nearest():
    with pytest.raises(SpecError, match=r"data\.tset.*'test'"):
        parse_section(DataSection, {"path": "a", "target": "y", "tset": 0.1}, "data")
    with pytest.raises(SpecError, match=r"multiselect\.buget.*'budget'"):
        spec(multiselect={"buget": 3})
    with pytest.raises(SpecError, match=r"`engin`.*'engine'"):
        spec(engin={})


def test_unknown_method_names_the_nearest():
    with pytest.raises(SpecError, match=r"multiselct.*'multiselect'"):
        build_spec({**MINIMAL, "method": "multiselct"})
    with pytest.raises(SpecError, match="`method` is missing"):
        build_spec({"name": "x"})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "test", 1.0),
        ("data", "test", -0.1),
        ("data", "folds", 1),
        ("data", "missing", "ignore"),
        ("data", "builtin", "digits"),
        ("multiselect", "budget", 0),
        ("multiselect", "budget", -3),
        ("multiselect", "costs", {"a": 0}),
        ("multiselect", "costs", {"a": -1}),
        ("multiselect", "ridge", float("nan")),
        ("multiselect", "baselines", ["best"]),
        ("engine", "kind", "spark"),
        ("engine", "workers", 0),
        ("engine", "address", "tcp://x:1"),
    ],
)
def test_wrong_values_are_refused_by_name(section, key, value):
    with pytest.raises(SpecError, match=section):
        spec(**{section: {**MINIMAL.get(section, {}), key: value}})


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden"])
def test_name_cannot_leave_the_output_folder(name):
    with pytest.raises(SpecError, match="name"):
        spec(name=name)


def test_resolved_spec_reads_back(tmp_path):
    original = spec(seed=3, engine={"workers": 2})
    (tmp_path / "spec.yaml").write_text(original.to_yaml())
    assert load_spec(tmp_path / "spec.yaml") == original


def test_identity_ignores_engine_and_place_but_not_data_or_options():
    base = spec()
    assert base.identity(["f"]) == spec(output="elsewhere", engine={"workers": 3}).identity(["f"])
    assert base.identity(["f"]) != base.identity(["g"])
    assert base.identity(["f"]) != spec(multiselect={"budget": 11}).identity(["f"])
    assert base.identity(["f"]) != spec(seed=1).identity(["f"])


def test_environment_variables_in_paths(monkeypatch):
    monkeypatch.setenv("PLACE", "/data")
    assert expand_variables("${PLACE}/x.parquet") == "/data/x.parquet"
    with pytest.raises(SpecError, match="NOWHERE_SET"):
        expand_variables("${NOWHERE_SET}/x")


def test_sizes():
    assert parse_bytes("2KiB") == 2048
    assert parse_bytes("1.5 GB") == 1_500_000_000
    assert parse_bytes(7) == 7
    for wrong in ("-1", "0", "many", "3 parsecs"):
        with pytest.raises(SpecError):
            parse_bytes(wrong)
