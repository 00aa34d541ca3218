"""Statistics in slabs of groups, a search on actors, and what was chosen; see `slab_search`.

Columns are in the order of their groups, so that a slab of whole groups is a run of columns. The
sequence has to end before the products of its columns are too many for one process: models and
curves need them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import require_observed
from distfms.methods.frame.contract import Run
from distfms.methods.frame.moments import TrainMembers
from distfms.methods.frame.row_data import require_rows, tell_counts
from distfms.methods.frame.rows import SummaryReader, moment_reader
from distfms.methods.frame.slab_search import read_slabs
from distfms.methods.frame.slabs import Arrays, Place, load_arrays
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.problem import (
    SequenceOutline,
    outline_from_columns,
    require_varying_targets,
)
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.solve.cholesky import Shard
from distfms.solve.shards import block_edges
from distfms.stats.base import Bundle
from distfms.stats.comoments import CoMoments

#: What actors need of a slab's `CoMoments`. Missing values count as the mean: what only a merge
#: needs is not kept.
#: Rows of a slab that are standardised at a time: what they take besides it is little.
_ROWS_AT_ONCE = 64

_KEPT = ("n_samples", "weight", "mean", "comoment", "start")


def read_in_slabs(run: Run, data: SequenceData) -> SequenceData:
    """Read the statistics slab by slab; steps ``statistics 1 of n`` and so on."""
    form = data.form
    assert form.slabs is not None
    starts, groups = form.slabs.starts, data.procedure(form.options).groups.columns
    n_features, n_targets = len(data.plan.feature_names), len(form.roles.target)

    def columns(number: int) -> slice:
        """Return the columns of a slab; the last has the targets too."""
        first, last = starts[number : number + 2]
        stop = groups[last][0] if last < len(groups) else n_features + n_targets
        return slice(groups[first][0], stop)

    def reader(number: int, dataset: Dataset, held_out: bool) -> SummaryReader:
        return moment_reader(form.source(data.plan, dataset, held_out), columns(number))

    def arrays(number: int, statistics: Bundle) -> tuple[Arrays, Arrays]:
        own, slab = columns(number), statistics["moments"].train()
        if number == 0:
            require_rows(form, [part.n_rows for part in statistics["counts"].parts])
            tell_counts(run, form, data.plan, statistics["counts"])
        require_observed(data.plan.value_names[own], slab.observed_weight[own])
        known = {
            "mean": slab.mean[own],
            "variance": np.diagonal(slab.comoment, own.start) / slab.weight,
            "constant": slab.constant_columns(),
        }
        if own.stop == data.plan.n_columns:
            require_varying_targets(known["constant"][-n_targets:], form.roles.target)
        return {name: np.asarray(getattr(slab, name)) for name in _KEPT}, known

    known, places = read_slabs(run, form.slabs, reader, arrays)
    return replace(data, known=known, places=places)


@dataclass(frozen=True)
class StoredGroups:
    """The groups ``[first, last)`` of the outline, whose co-moments an actor loads."""

    place: Place
    outline: SequenceOutline
    first: int
    last: int

    def load(self) -> Shard:
        """Read the file."""
        arrays: Any = load_arrays(self.place).items()
        slab = CoMoments(**{n: own if own.ndim else own.item() for n, own in arrays})
        return standardised_shard(slab, self.outline, self.first, self.last)


def standardised_shard(rows: CoMoments, outline: SequenceOutline, first: int, last: int) -> Shard:
    """Standardise rows of co-moments, in their memory, which are lost.

    `rows` are of data whose columns are the features, then the targets, and hold the rows of the
    groups' columns, and no others but constant ones and targets.
    """
    scaling, weight, matrix = outline.scaling, rows.weight, rows.comoment
    kept, n_features = scaling.kept, len(scaling.feature_names)
    groups = outline.groups.columns[first:last]
    columns = np.array(sorted(chain.from_iterable(groups)), dtype=np.intp)
    scale = scaling.scale[kept]
    places = kept[columns] - rows.start
    target = matrix[places, n_features:] / weight
    target /= np.outer(scale[columns], scaling.target_scale)
    # Rows only move up and columns to the left, so that nothing is lost that is yet to come.
    for low in range(0, len(columns), _ROWS_AT_ONCE):
        chunk = slice(low, low + _ROWS_AT_ONCE)
        part = matrix[places[chunk]][:, kept]
        part /= weight
        part /= np.outer(scale[columns[chunk]], scale)
        part[np.arange(len(part)), columns[chunk]] = 1.0
        matrix[low : low + len(part), : len(kept)] = part
    in_order = np.searchsorted(columns, np.array(list(chain.from_iterable(groups)), dtype=np.intp))
    gram = matrix[: len(columns), : len(kept)]
    edges = block_edges(len(group) for group in groups)
    return Shard(first, groups, gram, in_order, target[in_order], outline.ridge, edges)


def search_in_slabs(
    run: Run, data: SequenceData, procedure: SequenceProcedure
) -> dict[str, SequencePath]:
    """Return the paths of all rules, found on actors."""
    slabs = data.form.slabs
    assert slabs is not None
    known = (data.known["mean"], data.known["variance"], data.known["constant"])
    outline = outline_from_columns(*known, **procedure.posed)
    # Slabs with what is left of their groups, without those that have none.
    edges = np.searchsorted(_positions(data, outline), slabs.starts).tolist()
    shards = [
        StoredGroups(place, outline, first, last)
        for place, (first, last) in zip(data.places, pairwise(edges), strict=True)
        if first < last
    ]
    with run.pool(len(shards), slabs.shard_bytes, what="candidates") as pool:
        paths = procedure.search_all(outline, pool=pool, shards=shards)
    run.note(slabs.note())
    return paths


def _positions(data: SequenceData, outline: SequenceOutline) -> np.ndarray:
    """Return where the groups that are not constant are among all."""
    position = {name: g for g, name in enumerate(data.form.groups.names)}
    return np.array([position[name] for name in outline.groups.names])


def on_chosen(
    run: Run, data: SequenceData, options: SequenceOptions, paths: Mapping[str, SequencePath]
) -> tuple[SequenceData, dict[str, SequencePath]]:
    """Return data and paths on the groups that some path has; step ``chosen`` reads them.

    Rows count by all columns.
    """
    outline = next(iter(paths.values())).outline
    left = _positions(data, outline)
    chosen = left[np.unique(np.concatenate([path.order for path in paths.values()]))]
    form = replace(data.form.on_groups(chosen.tolist()), slabs=None)
    if form.inputs.section.missing == "drop":
        form = replace(form, everything=data.plan)
    plan = data.plan.restricted(form.roles.features)

    def read() -> Bundle:
        return run.reduce(lambda *of: moment_reader(form.source(plan, *of)))

    plain = data.plain.restricted(form.roles.features)
    found = SequenceData(form, plain, plan, statistics=run.step("chosen", read))
    problem = found.procedure(options).problem(TrainMembers(found.statistics))
    groups = np.searchsorted(left, chosen)
    columns = np.concatenate([outline.groups.columns[g] for g in groups])
    own = {
        name: replace(
            path,
            outline=problem.outline,
            order=np.searchsorted(groups, path.order),
            support=np.searchsorted(columns, path.support),
        )
        for name, path in paths.items()
    }
    return found, own
