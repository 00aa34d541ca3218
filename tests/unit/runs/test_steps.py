"""Steps of a run: what was finished is read, everything after the first gap is done."""

from pathlib import Path

import numpy as np
import pytest

from distfms.errors import EngineError
from distfms.runs.events import Recorder
from distfms.runs.folder import RunFolder
from distfms.runs.steps import Steps


class Attempt:
    """An attempt at a run of four steps, and which of them it made."""

    def __init__(self, folder, stop=""):
        self.folder = folder
        self.stop = stop
        self.made = list[str]()
        self.told = list[str]()
        self.run = RunFolder(folder)
        self.run.claim()
        self.steps = Steps(self.run, Recorder(self.run, self.told.append, lambda event: None))

    def make(self, name, value):
        def made():
            self.made.append(name)
            if name == self.stop:
                raise EngineError("stopped")
            self.steps.note(f"made {name}")
            self.steps.now.counts["n"] = len(name)
            self.steps.now.entries[name] = True
            return value

        return made

    def all(self):
        def plan():
            (self.folder / "plan").mkdir(exist_ok=True)
            (self.folder / "plan" / "part").write_text("bought")

        rows = self.steps.step("rows", self.make("rows", {"x": np.arange(3.0).reshape(1, 3).T}))
        order = self.steps.step("order", self.make("order", (2, 1)))
        told = self.steps.step("told", self.make("told", {"mse": float("nan")}), "told.json")
        self.steps.step("plan", lambda: self.make("plan", plan())(), "plan")
        return rows, order, told


NAMES = ["rows", "order", "told", "plan"]


@pytest.fixture
def whole(tmp_path):
    Attempt(tmp_path).all()
    return tmp_path


@pytest.mark.parametrize(
    ("file", "at"),
    [("statistics/rows.step", 0), ("statistics/order.step", 1), ("told.json", 2), ("plan/part", 3)],
)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"{}")])
def test_what_is_damaged_and_all_after_it_is_done_again(whole, file, at, damage):
    damage(whole / file)
    again = Attempt(whole)
    again.all()
    assert again.made == NAMES[at:]


def test_misuse_fails_loudly(whole, tmp_path):
    steps = Attempt(whole).steps
    with pytest.raises(EngineError, match="the finished step 'rows' where 'order' was asked for"):
        steps.step("order", lambda: 0)
    steps = Attempt(tmp_path / "new").steps
    steps.step("a", lambda: 1)
    with pytest.raises(RuntimeError, match="'a' is asked for twice"):
        steps.step("a", lambda: 1)
    with pytest.raises(RuntimeError, match="'c' is asked for within 'b'"):
        steps.step("b", lambda: steps.step("c", lambda: 1))
    with pytest.raises(RuntimeError, match="belong in a step"):
        steps.note("too late")
    with pytest.raises(TypeError, match="cannot be kept"):
        steps.step("d", object)
    assert not list(tmp_path.glob("new/**/*.tmp"))


def test_without_a_folder_nothing_is_kept(tmp_path):
    steps = Steps(None, Recorder(None, str, lambda event: None), ["first"])
    assert steps.step("a", lambda: np.float64(1.0)) == 1.0
    steps.files("model", lambda: {"model.json": {"a": 1}})
    assert steps.content == {"model.json": {"a": 1}}
    assert (steps.place("a"), steps.notes) == (None, ["first"])
