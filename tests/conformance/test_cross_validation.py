"""Evaluations on folds: the same bits on every pool, and nothing done twice but what was lost."""

import pytest

from distfms.methods.frame import cross_validation
from tests.conformance import fold_tasks as tasks

SIZES = (40, 30, 50, 20)  # of the folds with two rows or more


def once(work):
    return {f"{item.power:g}-{n}": 1 for item in work.items for n in SIZES}


@pytest.fixture(scope="module")
def literal(tmp_path_factory):
    """Answers of a plain loop."""
    folder = tasks.write_folds(tmp_path_factory.mktemp("literal"))
    work = tasks.work(folder / "marks")
    moments = tasks.read_folds(folder)["moments"]
    folds = [
        cross_validation.Fold({"moments": moments.train_without(f)}, {"moments": moments.folds[f]})
        for f in (0, 1, 2, 4)
    ]
    return [
        [{k: a.tobytes() for k, a in tasks.evaluate(fold, item).items()} for fold in folds]
        for item in work.items
    ]


def without_sizes(found):
    return [
        [{k: v for k, v in unit.items() if not k.startswith("fold/")} for unit in own]
        for own in tasks.as_bytes(found)
    ]


@pytest.mark.parametrize("where", ["serial-1", "local-3", "ray-2"])
def test_same_bits_on_every_pool(where, literal, tmp_path, request):
    kind, n_actors = where.split("-")
    if kind == "ray":
        request.getfixturevalue("ray_session")
    here = tasks.Here(tasks.write_folds(tmp_path), kind, int(n_actors))
    work = tasks.work(tmp_path / "marks")
    found = tasks.run(here, work)
    assert without_sizes(found) == literal
    assert (found.folds, found.n_rows, found.weight) == ((0, 1, 2, 4), SIZES, SIZES)
    assert found.n_done == 45
    assert tasks.marks(tmp_path / "marks") == once(work)


def test_killed_actor_costs_its_portion(literal, tmp_path):
    here = tasks.Here(tasks.write_folds(tmp_path), "local", 2)
    work = tasks.work(tmp_path / "marks", dies_on=50)
    assert without_sizes(tasks.run(here, work)) == literal
    # The first item of the portion had been evaluated, the second was when the actor died.
    assert tasks.marks(tmp_path / "marks") == {**once(work), "1-50": 2, "1.25-50": 2}


def test_driver_stands_in_for_workers_that_do_not_see_the_run(literal, tmp_path):
    here = tasks.Here(tasks.write_folds(tmp_path), "local", 2, is_shared=False)
    found = tasks.run(here, tasks.work(tmp_path / "marks"))
    assert without_sizes(found) == literal
    assert here.opened is not None
    assert here.opened.name == "serial"
    assert len(here.notes) == 1
    assert "some workers do not see the run folder" in here.notes[0]
