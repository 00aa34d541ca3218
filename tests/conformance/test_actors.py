"""`engine.actors`: every method's work on actors, with the bits of the driver alone."""

import json
import math
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distfms.engine.pool import ON_RAY, ActorPool
from distfms.errors import SpecError
from distfms.methods.landmarks import form as landmarks_form
from distfms.methods.sequence import form as sequence_form
from distfms.runs import context
from distfms.runs.context import RunContext, decide
from distfms.runs.driver import run_job
from distfms.runs.job_spec import JobSpec
from distfms.runs.prepare import prepare
from distfms.solve import purchases as greedy
from distfms.solve import shards
from tests.e2e.attribute_efficient_jobs import few_columns, few_job
from tests.e2e.jobs import judgments_job, results, spec_of, write_judgments
from tests.e2e.landmarks_jobs import landmarks_job, smooth_rows, task_job
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, with_labels, write_rows

N_ACTORS = 2


Make = Callable[[Path, Path, Any, int], JobSpec]


def multiselect_job(data, output, engine, folds):
    section = {"plan": False, "budget": 8, "baselines": ["scoring", "averages"]}
    spec = judgments_job(write_judgments(data), output, multiselect=section, engine=engine)
    return replace(spec, data=spec.data.model_copy(update={"folds": folds}))


def sequence_job(data, output, engine, folds):
    return mixed_job(
        write_rows(data, with_labels(mixed_rows())), output, data={"folds": folds}, engine=engine,
        sequence={"ridge": 0.1, "budgets": [8]},
    )  # fmt: skip


def logistic_sequence_job(data, output, engine, folds):
    rows = write_rows(data, smooth_rows())
    content = {
        "name": "classes",
        "method": "sequence",
        "data": {"path": str(rows), "target": "high", "exclude": ["y", "level"], "id": "id"},
        "sequence": {"family": "logistic", "model": "linear", "ridge": 0.1, "baselines": []},
    }
    return spec_of(content, {"data": {"folds": folds}, "output": str(output), "engine": engine})


def similarities_job(data, output, engine, folds):
    rows = write_rows(data, smooth_rows())
    return landmarks_job(rows, output, data={"folds": folds}, engine=engine)


def classes_job(data, output, engine, folds):
    rows = write_rows(data, smooth_rows())
    return task_job(rows, output, "classification", "high", engine, loss="logistic")


def chains_job(data, output, engine, folds):
    options = {"solver": "online", "repeats": 1}
    rows = write_rows(data, few_columns())
    return few_job(rows, output, options, data={"folds": folds}, engine=engine)


#: Jobs, what all actors do in them, and with how many folds. On folds, slabs are of the usual
#: width, so that these jobs have one slab and one actor of candidates.
JOBS = {
    "multiselect": (multiselect_job, {"folds"}, 3),
    "multiselect in slabs": (multiselect_job, {"candidates"}, 0),
    "sequence": (sequence_job, {"folds"}, 3),
    "sequence in slabs": (sequence_job, {"candidates"}, 0),
    "logistic sequence": (logistic_sequence_job, {"passes"}, 2),
    "landmarks": (similarities_job, {"embeddings", "folds"}, 3),
    "logistic landmarks": (classes_job, {"embeddings", "passes"}, 2),
    "attribute_efficient": (chains_job, {"chains", "folds"}, 2),
}


def events(folder, kind):
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def pools(folder):
    return events(folder, "pool")


@pytest.fixture
def calls(monkeypatch):
    """What is asked of actors on Ray: (what they do, number of the actor) → calls."""
    counts = Counter[tuple[str, int]]()
    opened = RunContext.pool
    post = ActorPool._post

    def named(*given, **options):
        pool = opened(*given, **options)
        pool.what = options["what"]
        return pool

    def counted(self, actor, work):
        if self.name == "ray":
            counts[self.what, actor] += 1
        post(self, actor, work)

    monkeypatch.setattr(RunContext, "pool", named)
    monkeypatch.setattr(ActorPool, "_post", counted)
    return counts


#: Jobs with candidates, embeddings and passes; all others take minutes.
USUAL = ("sequence in slabs", "logistic landmarks")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in JOBS]
)
def test_actors_on_ray_have_the_bits_of_the_driver(name, ray_session, calls, tmp_path, monkeypatch):
    make, work, folds = JOBS[name]
    if not folds:
        monkeypatch.setattr(greedy, "SLAB_ATTRIBUTES", 2)
        monkeypatch.setattr(shards, "BLOCK_COLUMNS", 2)
    # Passes over rows that are all in memory from the first are the driver's.
    for method in (landmarks_form, sequence_form):
        monkeypatch.setattr(method, "SAMPLED_ROWS", 100)
    never = {"workers": 2, "actors": "never", "cache": False}
    alone = run_job(make(tmp_path / "data", tmp_path / "alone", never, folds)).folder
    assert not calls
    assert {event["kind"] for event in pools(alone)} <= {"serial"}
    always = {"kind": "ray", "workers": N_ACTORS, "actors": "always", "cache": False}
    spread = run_job(make(tmp_path / "data", tmp_path / "spread", always, folds)).folder
    assert all(calls[what, actor] > 1 for what in work for actor in range(N_ACTORS)), calls
    assert {what for what, _ in calls} == {event["what"] for event in pools(alone)}
    text = prepare(make(tmp_path / "data", tmp_path / "spread", always, folds)).describe()
    assert {what for what, _ in calls} == set(re.findall(r"(?<!not )for (\w+)", text["actors"]))
    assert events(spread, "begin")[0]["engine"] == "ray"
    # Statistics are summed up by the graph of Dask, whose tasks Ray does.
    assert sum(event["computed"] for event in events(spread, "pass_finished")) > 0
    assert {event["kind"] for event in pools(spread)} == {"ray"}
    assert {event["why"] for event in pools(spread)} == {"`engine.actors` is always"}
    assert results(spread) == results(alone)


def test_processes_of_this_machine_have_the_bits_of_the_driver(judgments, judgments_run, tmp_path):
    engine = {"workers": N_ACTORS, "actors": "always"}
    spread = run_job(judgments_job(judgments, tmp_path, engine=engine)).folder
    assert [(event["kind"], event["what"]) for event in pools(spread)[-2:]] == [
        ("local", "candidates"), ("local", "folds"),
    ]  # fmt: skip
    assert results(spread) == results(judgments_run)


def dying_once(marker, *given):
    """Sum up a shard; the first actor that does is killed."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return context._shard_summary(*given)


def test_killed_actor_of_embeddings_does_not_change_a_bit(tmp_path, monkeypatch):
    never = {"actors": "never"}
    always = {"actors": "always", "workers": N_ACTORS}
    monkeypatch.setattr(landmarks_form, "SAMPLED_ROWS", 100)
    alone = run_job(similarities_job(tmp_path / "data", tmp_path / "alone", never, 0)).folder
    monkeypatch.setattr(context, "_shard_summary", partial(dying_once, tmp_path / "killed"))
    spread = run_job(similarities_job(tmp_path / "data", tmp_path / "spread", always, 0)).folder
    assert '"event":"actor_lost"' in (spread / "events.jsonl").read_text()
    assert results(spread) == results(alone)


@pytest.mark.parametrize("section", [{"algorithm": "scoring"}, {"psd": "nearest"}])
def test_candidates_are_named_where_the_search_has_slabs(section, judgments, tmp_path):
    spec = judgments_job(judgments, tmp_path, multiselect=section, engine={"actors": "always"})
    assert ("for candidates" in prepare(spec).describe()["actors"]) == ("psd" in section)


# --- the decision --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actors", "n_operations", "single", "decided", "why"),
    [
        ("always", 1.0, True, True, "`engine.actors` is always"),
        ("never", math.inf, False, False, "`engine.actors` is never"),
        ("auto", math.inf, True, True, "one process is too small"),
        ("auto", 1e10, False, False, "about 1e+10 multiplications take less time"),
        ("auto", 3e10, False, True, "about 3e+10 multiplications take more time"),
        ("auto", 3e10, True, False, "one actor is no faster"),
    ],
)
def test_decision_and_reason(actors, n_operations, single, decided, why):
    found = decide(actors, n_operations, single)
    assert found[0] == decided
    assert why in found[1]


def test_what_reads_with_something_large_is_for_actors_on_ray():
    assert [decide("auto", ON_RAY, False, kind)[0] for kind in ("ray", "local", "dask")] == [
        True, False, False,
    ]  # fmt: skip


def test_other_values_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"engine\.actors.*'auto', 'always' or 'never'"):
        chains_job(tmp_path / "data", tmp_path, {"actors": "sometimes"}, 0)
