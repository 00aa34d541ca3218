"""Evaluations on folds: the same bits on every pool, and nothing done twice but what was lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distfms.errors import EngineError
from distfms.methods.fold_pool import MOST_STEPS, steps
from distfms.stats.base import load_npz
from tests.conformance import fold_tasks as tasks

POWERS = ("1", "1.5", "2", "3")
ONCE = {f"{power}-{fold}": 1 for power in POWERS for fold in (0, 1, 2, 4)}


@pytest.fixture(scope="module")
def literal(tmp_path_factory):
    """Answers of a plain loop."""
    folder = tasks.write_folds(tmp_path_factory.mktemp("literal"))
    folds = tasks.load(load_npz(folder / tasks.FILE))
    work = tasks.work(folder / "marks")
    return [
        [
            {} if data is None else {k: a.tobytes() for k, a in tasks.evaluate(data, item).items()}
            for data in (tasks.split(folds, f) for f in range(tasks.N_FOLDS))
        ]
        for item in work.items
    ]


@pytest.mark.parametrize("where", ["serial-1", "local-3", "ray-2"])
def test_same_bits_on_every_pool(where, literal, tmp_path, request):
    kind, n_actors = where.split("-")
    if kind == "ray":
        request.getfixturevalue("ray_session")
    here = tasks.Here(tasks.write_folds(tmp_path), kind, int(n_actors))
    done = tasks.run(here, tasks.work(tmp_path / "marks"))
    assert tasks.as_bytes(done) == literal
    assert (done.n_done, done.n_kept) == (20, 0)
    assert tasks.marks(tmp_path / "marks") == ONCE


def test_killed_actor_costs_its_unit_of_a_step(literal, tmp_path):
    here = tasks.Here(tasks.write_folds(tmp_path), "local", 2)
    done = tasks.run(here, tasks.work(tmp_path / "marks", dies_on=2))
    assert tasks.as_bytes(done) == literal
    assert tasks.marks(tmp_path / "marks") == {**ONCE, "1.5-2": 2}
    assert here.opened.counts.n_replayed == 0


def test_error_of_an_evaluation_is_raised(tmp_path):
    folder = tasks.write_folds(tmp_path)
    work = tasks.work(tmp_path / "marks")
    broken = tasks.Item("2", str(tmp_path / "marks"))  # type: ignore[arg-type]
    bad = type(work)(**{**vars(work), "items": [*work.items, broken]})
    with pytest.raises(ValueError, match="format code"):
        tasks.run(tasks.Here(folder, "serial", 1), bad)


def test_driver_stands_in_for_workers_that_do_not_see_the_run(literal, tmp_path, monkeypatch):
    folder = tasks.write_folds(tmp_path)
    here = tasks.Here(folder, "local", 2)
    monkeypatch.setattr("distfms.methods.fold_pool.absolute", tasks.OnlyHere)
    done = tasks.run(here, tasks.work(tmp_path / "marks"))
    assert tasks.as_bytes(done) == literal
    assert here.opened.name == "serial"
    assert len(here.notes) == 1
    assert "not every worker sees the run folder" in here.notes[0]


def test_no_file_and_no_worker_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="cannot read"):
        tasks.run(tasks.Here(tmp_path, "serial", 1), tasks.work(tmp_path / "marks"))


@given(
    n_units=st.integers(1, 400),
    n_done=st.integers(0, 400),
    n_actors=st.integers(1, 70),
)
def test_steps_hold_every_unit_once(n_units, n_done, n_actors):
    left = list(range(min(n_done, n_units), n_units))
    cut = steps(left, n_units, n_actors)
    assert [unit for step in cut for unit in step] == left
    assert len(cut) <= MOST_STEPS
    # In every step but the last each actor has as much to do.
    assert all(len(step) % n_actors == 0 for step in cut[:-1])
    assert all(cut)
