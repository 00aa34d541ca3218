"""The job of group sequencing for more columns than one process can pair.

See :mod:`distfms.methods.slab_job` for how it goes. The columns are in the order of their groups,
so that a slab of whole groups is a run of columns. The sequence has to end before the products of
its columns are too many for one process: models and curves need them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan, require_observed
from distfms.data.dataset import ParquetDataset
from distfms.engine.memory import format_bytes
from distfms.engine.storage import Location
from distfms.errors import SpecError
from distfms.methods import slab_job
from distfms.methods.contract import Content, Context, Job
from distfms.methods.rows import RowCounts, RowSource
from distfms.methods.sequence.greedy import GroupSlab, sequence
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.job_sizes import (
    NOT_IN_SLABS,
    Sizes,
    searched_rules,
    too_long,
    without_folds,
)
from distfms.methods.sequence.problem import (
    FeatureGroups,
    SequenceOutline,
    SequencePath,
    outline_from_columns,
    require_varying_targets,
)
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.read import ComomentSlabReader, NarrowedSource
from distfms.methods.slabs import slab_starts
from distfms.methods.statistics_job import Solved
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments

PATHS = "statistics/paths.npz"
TARGETS = "statistics/targets.npz"


def choose_form(job: SequenceJob) -> Job:
    """Return the job itself or in slabs, as its options say or its size asks for.

    Parameters
    ----------
    job : SequenceJob

    Raises
    ------
    SpecError
        If slabs are asked for where they cannot be used.
    """
    options = job.options
    if options.blocks == "never" or (options.blocks == "auto" and options.family != "gaussian"):
        return job
    if options.family != "gaussian":
        raise SpecError(
            "`sequence.blocks: always` needs `sequence.family: gaussian`; it is "
            f"{options.family}, whose refits need more than the Gram matrix."
        )
    sizes = Sizes.of(job)
    whole, chosen = sizes.one_process_bytes(), sizes.chosen_bytes()
    if options.blocks == "auto" and whole <= slab_job.ONE_PROCESS_BYTES:
        return job
    if chosen <= slab_job.ONE_PROCESS_BYTES:
        return SequenceSlabsJob(job)
    if options.blocks == "always":
        raise SpecError(too_long(sizes))
    most = sizes.most_groups()
    if most:
        job.advice = (
            f"in one process, about {format_bytes(whole)}; in slabs on actors with "
            f"`sequence.max_groups` of at most {most:,}"
        )
    return job


# --- the job ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredGroups:
    """A slab of the co-moments in a file of the run folder, for an actor to load.

    Attributes
    ----------
    location : Path or RemotePath
        See :func:`distfms.methods.slab_job.slab_location`.
    outline : SequenceOutline
    first, last : int
        Its groups, constant ones left out.
    """

    location: Location
    outline: SequenceOutline
    first: int
    last: int

    def load(self) -> GroupSlab:
        """Read the file."""
        slab = CoMoments.from_arrays(slab_job.load_slab(self.location))
        return GroupSlab.from_comoments(slab, self.outline, self.first, self.last)


class SequenceSlabsJob(slab_job.SlabsJob):
    """Group sequencing with the Gram matrix in slabs.

    Parameters
    ----------
    whole : SequenceJob
        The same job for one process.
    """

    name: ClassVar[str] = "sequence"
    columns_are = "columns"
    whole: GroupsJob

    def __init__(self, whole: SequenceJob) -> None:
        self.sizes, self.rules = Sizes.of(whole), searched_rules(whole)
        self.left_out = [b.name for b in whole.baselines if b.criterion in NOT_IN_SLABS]
        super().__init__(GroupsJob(whole, range(len(whole.groups))))
        bounds = [0, *np.cumsum(self.sizes.widths).tolist()]
        guessed = FeatureGroups(
            self.whole.groups.names,
            tuple(tuple(range(*pair)) for pair in pairwise(bounds)),
        )
        #: First group of each slab, and the number of groups.
        self.starts = slab_starts(len(group) for group in guessed.columns)

    # --- what the driver asks ---

    @property
    def n_slabs(self) -> int:
        """Number of slabs."""
        return len(self.starts) - 1

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        names = [rule.name for rule in self.whole.baselines if rule.name not in self.left_out]
        return {**super().describe(), "baselines": ", ".join(names) or "none"}

    def slab_columns(self) -> int:
        """Most columns of a slab, a category taken for `LEVELS_GUESSED` of them."""
        edges = np.concatenate(([0], np.cumsum(self.sizes.widths)))[self.starts]
        return int(np.diff(edges).max())

    def slab_bytes(self) -> int:
        """Project one slab of the co-moments, in memory and on disk."""
        return 8 * self.slab_columns() * (self.sizes.n_columns + self.sizes.n_targets)

    def matrices(self) -> int:
        """Arrays of one slab's size that a partial statistic may have."""
        has_gaps = self.whole.inputs.section.missing == "mean"
        return slab_job.MATRICES_WITH_GAPS if has_gaps else 1

    def one_process_bytes(self) -> int:
        """Project what the job would take in one process."""
        return self.sizes.one_process_bytes()

    def chosen_bytes(self) -> int:
        """Project what the job on the chosen columns holds."""
        return self.sizes.chosen_bytes()

    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab: its rows, and those of the factor."""
        rank = min(self.sizes.support(), self.sizes.n_columns)
        return self.slab_bytes() + 8 * self.slab_columns() * 2 * rank

    # --- statistics ---

    def compute_slab(self, number: int, context: Context) -> Mapping[str, Content]:
        """Stage of one slab: its co-moments, and what is known of its columns."""
        plan, settings = self.whole.planned(context)
        groups = settings.groups.columns[self.starts[number] : self.starts[number + 1]]
        start, stop = groups[0][0], groups[-1][-1] + 1

        def reader(dataset: ParquetDataset, held_out: bool) -> ComomentSlabReader:
            source = self.whole.source(plan, dataset, held_out)
            return ComomentSlabReader(source, start, stop, totals=number == 0)

        # Partials of all slabs together are D × D numbers for each partition: not for the cache.
        bundle = context.reduce(reader, cache=False)
        slab: CoMoments = bundle["slab"].train()
        files: dict[str, Content] = {}
        if number == 0:
            files[TARGETS] = self.whole.target_columns(bundle["targets"])
            self.whole.tell_counts(context, plan, bundle["counts"])
        require_observed(plan.feature_names[start:stop], slab.observed_weight[start:stop])
        columns = {
            "mean": slab.mean[start:stop],
            "variance": np.diagonal(slab.comoment, start) / slab.weight,
            "constant": slab.constant_columns(),
        }
        # Missing values count as the mean: what only a merge needs is not kept.
        imputed = replace(slab, pair_weight=None, cross=None, cross_columns=None, observed=None)
        return {
            slab_job.slab_file("slab", number): imputed.to_arrays(),
            slab_job.slab_file("columns", number): columns,
            **files,
        }

    def _outline(self, context: Context, settings: SequenceProcedure) -> SequenceOutline:
        """Problem without its matrix, from what the slabs' stages have written."""
        names = [slab_job.slab_file("columns", k) for k in range(self.n_slabs)]
        parts = [context.read_arrays(name) for name in [*names, TARGETS]]
        return outline_from_columns(
            *(np.concatenate([p[key] for p in parts]) for key in ("mean", "variance", "constant")),
            feature_names=settings.feature_names,
            target_names=settings.target_names,
            groups=settings.groups,
            costs=settings.costs,
            ridge=settings.ridge,
            n_samples=int(parts[-1]["n_samples"]),
        )

    # --- selection ---

    def select(self, context: Context) -> Mapping[str, Content]:
        """Stage of the search, by every rule."""
        settings = self.whole.procedure(context)
        outline = self._outline(context, settings)
        shards = self._shards(context, outline, settings)
        with context.pool(len(shards), self.shard_bytes()) as pool:
            paths = {
                rule.name: sequence(
                    outline,
                    rule.criterion,
                    pool=pool,
                    slabs=shards,
                    cost_aware=rule.cost_aware,
                    doubling=rule.doubling,
                    seed=settings.seed,
                    max_groups=settings.max_groups,
                )
                for rule in self.rules
            }
        self._tell(context)
        solved = Solved(settings, Bundle({}), {}, outline, paths)
        selection = self.whole.selection(context, solved)
        arrays = {name: path.to_arrays() for name, path in paths.items()}
        return {"selection.json": selection, PATHS: slab_job.join_paths(arrays)}

    def _shards(
        self, context: Context, outline: SequenceOutline, settings: SequenceProcedure
    ) -> list[StoredGroups]:
        """Slabs with what is left of their groups, without those that have none."""
        position = {name: g for g, name in enumerate(settings.groups.names)}
        kept = [position[name] for name in outline.groups.names]
        edges = np.searchsorted(kept, self.starts).tolist()
        return [
            StoredGroups(slab_job.slab_location(context, "slab", k), outline, first, last)
            for k, (first, last) in enumerate(pairwise(edges))
            if first < last
        ]

    def _tell(self, context: Context) -> None:
        text = (
            f"{len(self.whole.groups):,} groups were searched in "
            f"{slab_job.n_slabs_said(self.n_slabs)} on actors (one process would have taken "
            f"{format_bytes(self.one_process_bytes())}). There is no cross-validation"
        )
        if self.left_out:
            text += f"; baselines left out: {', '.join(self.left_out)}"
        context.note(f"{text}.")

    # --- after the search: the ordinary job on the chosen columns ---

    def chosen(self, context: Context) -> ChosenJob:
        """Return the job on the groups that some search has chosen."""
        plan, settings = self.whole.planned(context)
        outline = self._outline(context, settings)
        stored = slab_job.split_paths(context.read_arrays(PATHS))
        paths = {
            rule.name: SequencePath.from_arrays(stored[rule.name], outline) for rule in self.rules
        }
        names = {name for path in paths.values() for name in path.groups}
        groups = [g for g, name in enumerate(settings.groups.names) if name in names]
        features = np.array([c for g in groups for c in settings.groups.columns[g]], dtype=np.intp)
        restricted = {rule: path.restricted(features) for rule, path in paths.items()}
        return ChosenJob(self.whole, groups, restricted, plan)


# --- the job in one process, on some groups -----------------------------------------------------


class GroupsJob(SequenceJob):
    """A job on some of the groups, without folds and with its columns in the order of the groups.

    Parameters
    ----------
    job : SequenceJob
    groups : sequence of int
        Indices of the groups, ascending.
    """

    def __init__(self, job: SequenceJob, groups: Sequence[int]) -> None:
        self.__dict__.update(vars(job))
        members = [[job.roles.features[c] for c in job.groups.columns[g]] for g in groups]
        features = tuple(name for group in members for name in group)
        edges = [0, *np.cumsum([len(group) for group in members]).tolist()]
        self.groups = FeatureGroups(
            tuple(job.groups.names[g] for g in groups),
            tuple(tuple(range(*pair)) for pair in pairwise(edges)),
        )
        self.roles = replace(job.roles, features=features)
        known = set(features)
        self.categorical = tuple(name for name in job.categorical if name in known)
        self.costs = job.costs.take(groups)
        self.inputs = replace(job.inputs, section=without_folds(job.inputs.section))

    def planned(self, context: Context) -> tuple[ColumnPlan, SequenceProcedure]:
        """Return the plan of the columns, and the settings on it."""
        return self.plan(context), self.procedure(context)

    def target_columns(self, targets: Folded[CoMoments]) -> dict[str, np.ndarray]:
        """Return what is known of the targets' columns.

        Raises
        ------
        DataError
            If there are too few rows, or a target is constant.
        """
        train = targets.train()
        self.require_rows(train, targets.test)
        constant = train.constant_columns()
        require_varying_targets(constant, self.roles.target)
        return {
            "n_samples": np.array(train.n_samples),
            "mean": train.mean,
            "variance": train.variance(),
            "constant": constant,
        }


class ChosenJob(GroupsJob):
    """The ordinary job on the groups that were chosen in slabs.

    Parameters
    ----------
    whole : GroupsJob
    groups : sequence of int
        The chosen groups, ascending.
    paths : mapping of str to SequencePath
        What the searches among all groups found, by rule, as paths on the chosen columns.
    everything : ColumnPlan
        All columns.
    """

    def __init__(
        self,
        whole: GroupsJob,
        groups: Sequence[int],
        paths: Mapping[str, SequencePath],
        everything: ColumnPlan,
    ) -> None:
        super().__init__(whole, groups)
        self.paths, self.everything = paths, everything
        self.baselines = tuple(b for b in whole.baselines if b.criterion not in NOT_IN_SLABS)

    def source(self, plan: ColumnPlan, dataset: ParquetDataset, held_out: bool) -> RowSource:
        """Return the source of the rows that count among all columns."""
        source = super().source(plan, dataset, held_out)
        # Otherwise no other column decides whether a row counts.
        if self.inputs.section.missing != "drop":
            return source
        return NarrowedSource(**vars(source), everything=self.everything)

    def tell_counts(self, context: Context, plan: ColumnPlan, counts: Folded[RowCounts]) -> None:
        """Do nothing."""
        # The stage of the first slab has counted all columns.
        return

    def solved(self, context: Context) -> Solved:
        """Return what was found in slabs, on the chosen groups."""
        procedure, statistics = self.procedure(context), self.statistics(context)
        train = {name: part.train() for name, part in statistics.members.items()}
        return Solved(procedure, statistics, train, procedure.problem(train), self.paths)
