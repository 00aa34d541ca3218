import json

import pytest

from distfms.errors import EngineError, SpecError
from distfms.registry import Registry
from distfms.store.places import locate


def files(number):
    return {"model.json": json.dumps(number).encode(), "weights.npz": bytes([number]) * 100}


@pytest.fixture(params=["folder", "memory"])
def registry(request, tmp_path):
    place = tmp_path / "registry" if request.param == "folder" else f"memory://r{tmp_path}"
    return Registry(locate(place))


def filled(registry, n=3):
    for number in range(1, n + 1):
        parent = number - 1 or None
        registry.add("a", files(number), {"loss": 1 / number, "rows": {"train": number}}, parent)
        registry.promote("a", number, expected=parent)
    return registry


@pytest.mark.parametrize("expected", [None, 1])
def test_a_decision_that_was_based_on_another_version_is_not_carried_out(registry, expected):
    filled(registry, 2)
    version = registry.add("a", files(3), {}, expected)
    with pytest.raises(EngineError, match="version 2 is current now"):
        registry.promote("a", version.number, expected=expected)
    assert registry.last("a").version == 2


def test_unknown_names_and_versions_are_refused(registry):
    with pytest.raises(SpecError, match=r"no model 'a'\. It has none yet"):
        registry.read("a")
    filled(registry)
    with pytest.raises(SpecError, match="no model 'b'"):
        registry.read("b")
    with pytest.raises(SpecError, match=r"'a' has no version 9\. The last ones are 1, 2, 3,"):
        registry.promote("a", 9)
    with pytest.raises(SpecError, match=r"not a model name: .*as in `a-b-c`"):
        registry.read("../a b/c")
    registry.add("c", files(1), {})
    with pytest.raises(SpecError, match="'c' has no current version"):
        registry.read("c")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "registry").write_text("a file")
    registry = Registry(tmp_path / "registry")
    with pytest.raises(SpecError, match="a file is where a folder must be"):
        registry.names()
    with pytest.raises(SpecError, match="a file is where a folder must be"):
        registry.add("a", files(1), {})


def test_what_killed_writers_left_is_passed_over_and_noted(tmp_path):
    noted = []
    registry = filled(Registry(tmp_path, noted.append))
    left = [tmp_path / "a/files/0123456789abcdef", tmp_path / "a/changes/.00000004.json.7-ab.tmp"]
    left[0].mkdir()
    (left[0] / "model.json").write_bytes(b"{")
    left[1].touch()
    removed = registry.files("a", registry.version("a", 1))
    assert registry.gc("a", keep=1) == [1]
    assert not removed.exists()
    assert [registry.read("a", number)[1] for number in (2, 3)] == [files(2), files(3)]
    assert registry.verify("a") == []
    assert noted == [
        f"{place} belongs to no version. Delete it, unless it is being added now." for place in left
    ]
