"""Pools of actors, and partial statistics as the cache keeps them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distfms.data.batches import Categories
from distfms.engine.dask_cluster import DaskExecutor
from distfms.engine.graph import RetryPolicy
from distfms.engine.memory import n_processors
from distfms.runs.context import RunContext, decode_bundle, encode_bundle
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments


def test_bundles_come_back_as_they_were():
    rows = np.random.default_rng(0).normal(size=(3, 20))
    rows[1, 4] = np.nan
    moments = Folded((CoMoments.from_block(rows), CoMoments.empty(3)))
    levels = Folded((Categories({"ward": ("", "näh")}), Categories({})))
    bundle = Bundle({"moments": moments, "categories": levels})
    payload = encode_bundle(bundle)
    found = decode_bundle({"moments": CoMoments, "categories": Categories}, payload)
    before, after = bundle.to_arrays(), found.to_arrays()
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_array_equal(after[name], array)
    assert encode_bundle(found) == payload


class Record:
    def __call__(self, event: Mapping[str, Any]) -> None: ...

    def event(self, name: str, *line: str, **fields: Any) -> None: ...

    count = show = __call__


def test_pool_beside_a_dask_cluster_has_the_size_of_this_machine() -> None:
    """Its actors run here, however many threads the cluster has."""
    executor = DaskExecutor.__new__(DaskExecutor)
    executor.workers, executor.actors = 500, n_processors()
    inputs: Any = None
    context = RunContext(0, inputs, inputs, executor, RetryPolicy(), None, Record())  # type: ignore[arg-type]
    with context.pool(400, 1) as pool:
        assert pool.name == "local"
        assert pool.n_actors == min(400, n_processors())
