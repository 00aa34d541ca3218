import pytest

from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec, load_spec
from distfms.spec import expand_variables, parse_yaml, set_dotted, write_yaml

MINIMAL = {
    "name": "job",
    "method": "multiselect",
    "data": {"path": "somewhere", "target": "y"},
    "multiselect": {"budget": 10},
}

NO_SIZES = ("-1", "0", "many", "3 parsecs")


def spec(**changes):
    return build_spec({**MINIMAL, **changes})


# --- YAML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E3", 1e3),
        (".5", 0.5),
        ("2.", 2.0),
        ("-3e+2", -300.0),
        ("7", 7),
        ("010", 10),
        ("1:30", "1:30"),
        ("2026-99-99", "2026-99-99"),
        ("e5", "e5"),
        ("1.2.3", "1.2.3"),
        ("No", "No"),
        ("on", "on"),
        ("true", True),
    ],
)
def test_yaml_is_of_version_1_2(text, value):
    parsed = parse_yaml(f"x: {text}", "here")["x"]
    assert parsed == value
    assert type(parsed) is type(value)


LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", r'job\.yaml, line 2.*duplicate key "a"'),
        ("a: 1\nb: [", r"job\.yaml, line 2"),
        ("", "mapping of keys to values; found nothing"),
        ("- 1", "found list"),
        ("word", "found str"),
        (LAUGHS, "aliases make more than 1,000,000 values"),
        ("a: &a {b: *a}", "aliases make more than 1,000,000 values"),
        ("[" * 10_000, "nested too deep"),
        ("? {a: 1}\n: 1", "unhashable key"),
        ("a: !!python/object:x.Y {x: 1}", "could not determine a constructor"),
        ("a: " + "1" * 5000, "digits"),
        ('a: "\\ud800"', "surrogates"),
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_is_refused(text, message):
    with pytest.raises(SpecError, match=message):
        parse_yaml(text, "job.yaml")


def test_yaml_may_refer_to_itself():
    text = "a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}"
    assert parse_yaml(text, "here") == {"a": {"x": 1}, "b": [{"x": 1}] * 2, "c": {"x": 1, "y": 2}}


def test_yaml_reads_back():
    texts = ["010", "1:30", "No", "1e5", "x: y", "2026-01-01", "", "~", "<<", "zwölf", "a" * 200]
    content = {"z": texts, "a": [1e-5, float("inf"), None, True, {}, []]}
    assert parse_yaml(write_yaml(content), "here") == content
    assert list(parse_yaml(write_yaml(content), "here")) == ["z", "a"]


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"path": "a", "target": "y", "tests": 0.1}}, r"data\.tests.*'test'"),
        ({"multiselect": {"buget": 3}}, r"multiselect\.buget.*'budget'"),
        ({"engin": {}}, r"`engin`.*'engine'"),
        ({"method": "multiselct"}, r"multiselct.*'multiselect'"),
        ({"method": None}, "`method` is"),
        ({"method": ["x"]}, "`method` is \\['x'\\], which is not a known method"),
        ({"seed": "2026-99-99"}, "`seed` is '2026-99-99'"),
        ({("a",): 1}, "Unknown key"),
        (
            {"data": {"path": "x.xlsx", "sheet_name": "a"}},
            r"name the sheet .* `path: book.xlsx#2024`",
        ),
        ({"data": {"path": "x", "target": "y", ("a",): 1}}, "Keys should be strings"),
        (
            {"multiselect": {"budget": 1, "costs": {("a",): 1}}},
            r"`multiselect\.costs` is .*: it must be text",
        ),
        ({"data": {"path": ["x", ""], "target": "y"}}, "a path is empty; write `.`"),
        ({"data": {"path": [5], "target": "y"}}, r"`data\.path\.0` is 5: it must be text"),
        ({"data": {"path": 5, "target": "y"}}, r"`data\.path` is 5: it must be text or a list"),
        ({"data": {"path": "x", "folds": "x"}}, "`data.folds` is 'x': it must be an integer or 'a"),
        ({"output": {"mute": ["X1"]}}, "there is no note X1; `distfms explain`"),
        ({"data": {"path": "x", "folds": 500}}, "`data.folds` is 500: it must be at most 200"),
        ({"engine": {"processes": "yes"}}, "`engine.processes` is 'yes': it must be true or false"),
        (
            {"multiselect": {"budget": 1, "ridge": ["x"]}},
            r"ridge\.0` is 'x': it must be a number\.",
        ),
        ({"retrain": {"forget": "x"}}, "`retrain.forget` is 'x': it must be `all` or a section"),
        *(({"name": name}, "`name`") for name in ("", "../up", "a/b", ".hidden")),
        *(({"name": name}, "`name`") for name in ("latest", "registry", "Registry")),
        ({"name": "my job/two"}, "as in `my-job-two`"),
        *(({"engine": {"memory": size}}, f"`engine.memory` is '{size}'") for size in NO_SIZES),
        *(({"output": {"cache_bytes": size}}, "cache_bytes") for size in NO_SIZES),
    ],
    ids=str,
)
def test_keys_and_values_that_are_refused(change, message):
    with pytest.raises(SpecError, match=message):
        build_spec({**MINIMAL, **change})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "test", 1.0),
        ("data", "test", -0.1),
        ("data", "folds", 1),
        ("data", "missing", "ignore"),
        ("data", "builtin", "digits"),
        ("multiselect", "budget", 0),
        ("multiselect", "costs", {"a": 0}),
        ("multiselect", "ridge", float("nan")),
        ("multiselect", "baselines", ["best"]),
        ("engine", "kind", "spark"),
        ("engine", "workers", 0),
        ("engine", "workers", True),
        ("retrain", "forget", "some"),
        ("retrain", "forget", {"window": "30"}),
        ("retrain", "gate", {"min_gian": 1}),
        ("retrain", "gate", {"max_lost": 2}),
    ],
)
def test_wrong_values_are_refused_by_name(section, key, value):
    with pytest.raises(SpecError, match=section):
        spec(**{section: {**MINIMAL.get(section, {}), key: value}})


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sequence", {"groups": ""}, "`sequence.groups` is '': it is empty; give a value"),
        ("sequence", {"groups": None}, "`sequence.groups` is None: it must be a section or text"),
        ("sequence", {"expand": "x"}, "`sequence.expand` is 'x': it must be a section or 'auto'"),
        ("sequence", {"expand": {"splines": -1}}, r"expand\.splines` is -1: it must be at least 0"),
        ("sequence", {"expand": {"spline": 1}}, r"`sequence\.expand\.spline` .* mean 'splines'\?"),
        ("sequence", {"shared_costs": {"a": {"group": ["x"]}}}, r"costs\.a\.group` .* 'groups'\?"),
        (
            "landmarks",
            {"similarity": {"name": "linear", "sigm": 1}},
            r"similarity\.sigm` .* 'sigma",
        ),
        ("landmarks", {"similarity": ["linear", 5]}, r"similarity\.1` is 5: it must be a section"),
        ("landmarks", {"similarity": 5}, r"similarity` is 5: it must be a section"),
    ],
    ids=str,
)
def test_values_of_several_forms(method, options, message):
    content = {**MINIMAL, "method": method, method: options}
    with pytest.raises(SpecError, match=message):
        build_spec({key: content[key] for key in ("name", "method", "data", method)})


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


@pytest.mark.parametrize(
    ("size", "n_bytes"), [("2KiB", 2048), ("1.5 GB", 1_500_000_000), (7, 7), (None, None)]
)
def test_sizes(size, n_bytes):
    assert spec(engine={"memory": size}).engine.memory == n_bytes
