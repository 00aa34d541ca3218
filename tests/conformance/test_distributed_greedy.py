"""The distributed searches take the same path, to the bit, on every pool, come what may."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from distfms.engine.blas import single_threaded_blas
from distfms.engine.pool import ActorPool
from distfms.methods.sequence.greedy import sequence
from distfms.solve import purchases as greedy
from distfms.solve import shards
from distfms.solve.purchases import select, slabs_of
from tests.conformance.pool_tasks import pool_asked_for
from tests.reference.distributed_cases import (
    awkward_problem,
    awkward_sequence_problem,
    require_same,
    require_same_sequence,
)

N_SHARDS = 4
STEP_OF_MISHAP = 9


@pytest.fixture(
    scope="module",
    params=[
        *("serial-1", "local-4", "ray-2"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("local-1", "local-2")),
    ],
)
def pool(request):
    with pool_asked_for(request) as made:
        yield made


@dataclass
class Fragile:
    """A pool one of whose actors dies in the middle of a step, once."""

    pool: ActorPool
    marker: Path

    def start(self, build, shards):
        self.n_before = self.pool.counts.n_steps
        self.pool.start(build, shards)

    def step(self, fn, message=None):
        if self.pool.counts.n_steps - self.n_before + 1 == STEP_OF_MISHAP:
            fn = partial(die_once, fn, str(self.marker), os.getpid())
        return self.pool.step(fn, message)


def die_once(fn, marker, driver, state, turn):
    """Do the step; the first process to come here then ends, its state changed, unanswered."""
    result = fn(state, turn)
    if os.getpid() == driver:
        return result
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return result
    os.kill(os.getpid(), 9)
    return None


def change(pool, before):
    return {name: value - before[name] for name, value in vars(pool.counts).items()}


def require_one_mishap(pool, before, n_steps):
    """One actor was rebuilt and replayed; this process cannot be lost."""
    done = change(pool, before)
    n_lost = int(pool.name != "serial")
    n_shards = n_lost * N_SHARDS // pool.n_actors
    assert (done["n_lost"], done["n_built"]) == (n_lost, N_SHARDS + n_shards)
    assert done["n_replayed"] == n_shards * (STEP_OF_MISHAP - 1)
    assert done["n_steps"] == n_steps


@pytest.mark.parametrize("psd", ["none", "nearest"])
def test_multiselect(pool, tmp_path, monkeypatch, psd):
    monkeypatch.setattr(greedy, "SLAB_ATTRIBUTES", 12)
    problem = awkward_problem(0, psd)
    with single_threaded_blas():
        expected = select(problem, 120.0)
        before = dict(vars(pool.counts))
        fragile = Fragile(pool, tmp_path / "mishap")
        given = slabs_of(problem)
        assert len(given) == N_SHARDS
        path = select(problem, 120.0, pool=fragile, shards=given)
    require_same(path, expected)
    n_rows = len(set(path.attributes))  # asked for when they are first bought
    require_one_mishap(pool, before, path.n_steps + 1 + n_rows)


@pytest.mark.parametrize("criterion", ["fr", "omp"])
def test_sequence(pool, tmp_path, monkeypatch, criterion):
    monkeypatch.setattr(shards, "BLOCK_COLUMNS", 11)
    problem = awkward_sequence_problem(0, ridge=1e-3)
    given = problem.forward.shard.cut()
    assert len(given) == N_SHARDS
    with single_threaded_blas():
        expected = sequence(problem, criterion, doubling=True)
        before = dict(vars(pool.counts))
        fragile = Fragile(pool, tmp_path / "mishap")
        path = sequence(problem, criterion, doubling=True, pool=fragile, shards=given)
    require_same_sequence(path, expected)
    # Each step asks twice: for values, and for the pivot of the best group.
    require_one_mishap(pool, before, change(pool, before)["n_steps"])
