"""The job of multi-selection for more attributes than one process can pair.

See :mod:`distfms.methods.slab_job` for how it goes. The covariance is computed, kept and searched
in slabs of attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from distfms.data.dataset import ParquetDataset
from distfms.engine.memory import format_bytes
from distfms.errors import DataError, SpecError
from distfms.methods import slab_job
from distfms.methods.contract import Content, Context, FoldAnswers
from distfms.methods.multiselect.evaluate import attribute_entries
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.job import MultiselectJob
from distfms.methods.multiselect.objective import Problem, SelectionPath, check_budget
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.procedure import SelectionProcedure
from distfms.methods.multiselect.read import JudgmentSlabReader
from distfms.methods.multiselect.slab import AttributeSlab, Question, answer
from distfms.methods.slabs import StoredMatrix, slab_starts
from distfms.methods.statistics_job import PATHS, Solved, train_members
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics

#: Estimates that are not one number for each attribute, or for all of them.
_MATRICES = ("second_moment", "external")


def wants_slabs(options: MultiselectOptions, n_attributes: int, n_folds: int) -> bool:
    """Decide whether a job works in slabs.

    Parameters
    ----------
    options : MultiselectOptions
    n_attributes : int
        d.
    n_folds : int
        Folds of the cross-validation, 0 for none.

    Raises
    ------
    SpecError
        If slabs are asked for where they cannot be used.
    """
    if options.blocks == "always":
        for needed, found, key in (
            ("full", options.algorithm, "algorithm"),
            ("none", options.psd, "psd"),
            (False, options.refine, "refine"),
        ):
            if found != needed:
                raise SpecError(
                    f"`multiselect.blocks: always` needs `multiselect.{key}: "
                    f"{str(needed).lower()}`; it is {str(found).lower()}."
                )
    able = options.algorithm == "full" and options.psd == "none" and not options.refine
    large = one_process_bytes(options, n_attributes, n_folds) > slab_job.ONE_PROCESS_BYTES
    return options.blocks == "always" or (options.blocks == "auto" and able and large)


def one_process_bytes(options: MultiselectOptions, n_attributes: int, n_folds: int) -> int:
    """Project what the job in one process would hold at least, where no judgment is missing.

    That is the statistics of every fold and of the held-out objects, with those of the Copies
    baseline, as a file and as arrays, and what is derived from them.
    """
    copies = options.baseline_judgments if "copies" in options.baselines else 0
    n_parts = max(n_folds, 1) + 1
    n_matrices = 2 * n_parts * (1 + copies**2) + 6
    return 8 * n_matrices * n_attributes**2


class MultiselectSlabsJob(slab_job.SlabsJob):
    """Feature multi-selection with the covariance in slabs.

    Parameters
    ----------
    whole : MultiselectJob
        The same job for one process, whose options, columns and settings are used.
    """

    name: ClassVar[str] = "multiselect"
    columns_are = "attributes"
    whole: MultiselectJob

    def __init__(self, whole: MultiselectJob) -> None:
        super().__init__(whole)
        names = [rule.name for rule in whole.settings.rules]
        self.left_out = [name for name in names if name not in ("full", "scoring")]
        self.algorithms = tuple(name for name in names if name in ("full", "scoring"))

    # --- what the driver asks ---

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First and past-the-last attribute of each slab."""
        return list(pairwise(slab_starts([1] * len(self.whole.layout.names))))

    @property
    def n_slabs(self) -> int:
        """Number of slabs."""
        return len(self.bounds)

    def describe(self) -> Mapping[str, str]:
        """Say what the job will do: label → text."""
        return {**super().describe(), "baselines": ", ".join(self.algorithms[1:]) or "none"}

    def slab_columns(self) -> int:
        """Most attributes of a slab."""
        return max(stop - start for start, stop in self.bounds)

    def slab_bytes(self) -> int:
        """Project one slab of the statistics of complete judgments, in memory and on disk."""
        return 8 * self.slab_columns() * (len(self.whole.layout.names) + 1)

    def shard_bytes(self) -> int:
        """Project what an actor holds of one slab.

        The co-moments of complete judgments become Σ in place; while a slab of judgments with gaps
        is loaded there are three arrays more. The search keeps a few rows for what is selected.
        """
        return 2 * self.slab_bytes() + 8 * self.slab_columns() * 3 * self._most_bought()

    def one_process_bytes(self) -> int:
        """Project what the job would take in one process."""
        folds, d = self.whole.inputs.section.folds, len(self.whole.layout.names)
        return one_process_bytes(self.whole.options, d, folds)

    def chosen_bytes(self) -> int:
        """Project what the job on the selected attributes holds: each path buys from few."""
        names, folds = self.whole.layout.names, self.whole.inputs.section.folds
        n = min(len(self.algorithms) * self._most_bought(), len(names))
        return one_process_bytes(self.whole.options, n, folds)

    def _most_bought(self) -> int:
        """Most attributes that a path can buy."""
        settings = self.whole.settings
        return min(int(settings.budget / settings.costs.min()), len(settings.names))

    # --- statistics ---

    def compute_slab(self, number: int, context: Context) -> Mapping[str, Content]:
        """Stage of one slab: its co-moments, and what is known of its attributes."""
        start, stop = self.bounds[number]
        section = self.whole.inputs.section.model_copy(update={"folds": 0})

        def reader(dataset: ParquetDataset, held_out: bool) -> JudgmentSlabReader:
            source = replace(self.whole.source(dataset, held_out), section=section)
            return JudgmentSlabReader(source, start, stop)

        # Partials of all slabs together are d × d numbers for each partition: not for the cache.
        slab: JudgmentStatistics = context.reduce(reader, cache=False)["slab"].train()
        if slab.means.n_samples < 2:
            raise DataError(
                f"There are {slab.means.n_samples} objects to train on in "
                f"{self.whole.inputs.train.files[0].path}; at least 2 are needed."
            )
        settings = self.whole.settings
        estimates = slab.estimates(settings.known_variance[start:stop], settings.names[start:stop])
        return {
            slab_job.slab_file("slab", number): {
                "start": np.asarray(start),
                "external": estimates.external,
            },
            slab_job.slab_file("attributes", number): {
                field.name: np.asarray(getattr(estimates, field.name))
                for field in fields(estimates)
                if field.name not in _MATRICES
            },
        }

    def _attributes(self, context: Context) -> JudgmentEstimates:
        """Put together what is known of each attribute."""
        names = [slab_job.slab_file("attributes", k) for k in range(self.n_slabs)]
        parts = [context.read_arrays(name) for name in names]
        joined: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) if first.ndim else first.item()
            for name, first in parts[0].items()
        }
        return JudgmentEstimates(**joined | dict.fromkeys(_MATRICES, np.zeros((0, 0))))

    # --- selection ---

    def select(self, context: Context) -> Mapping[str, Content]:
        """Stage of the search."""
        estimates, settings = self._attributes(context), self.whole.settings
        vectors = _without_matrix(estimates, settings)
        check_budget(settings.budget, vectors)
        slabs = [
            AttributeSlab.of(
                vectors, *own, StoredMatrix(slab_job.slab_location(context, "slab", k), "external")
            )
            for k, own in enumerate(self.bounds)
        ]
        with context.pool(len(slabs), self.shard_bytes()) as pool:
            path = select(
                vectors, settings.budget, "full", settings.criterion, pool=pool, slabs=slabs
            )
            bought = np.unique(path.attributes)
            among = pool.step(answer, Question([], "among", (bought,)))
        context.count(n_candidates=path.n_candidates)
        paths = {"full": path}
        if "scoring" in self.algorithms:
            paths["scoring"] = select(vectors, settings.budget, "scoring", settings.criterion)
        self._tell(context)
        local = path.on(bought)
        problem = _problem_of(np.concatenate(among), vectors, bought)
        selection = self._restricted(bought).path_content(problem, local)
        selection["constant"] = [
            settings.names[int(a)] for a in np.flatnonzero(~vectors.candidates)
        ]
        selection["attributes"] = attribute_entries(
            settings.names, settings.costs, estimates, estimates.n_judgments
        )
        stored = {name: path.to_arrays() for name, path in paths.items()}
        return {"selection.json": selection, PATHS: slab_job.join_paths(stored)}

    def _tell(self, context: Context) -> None:
        d = len(self.whole.layout.names)
        text = (
            f"{d:,} attributes were searched in {slab_job.n_slabs_said(self.n_slabs)} on actors "
            f"(one process would have taken {format_bytes(self.one_process_bytes())}). The "
            "covariance is the estimate as it is, not the nearest positive semi-definite one, and "
            "there is no cross-validation"
        )
        if self.left_out:
            text += f"; baselines left out: {', '.join(self.left_out)}"
        context.note(f"{text}.")

    # --- after the selection: the ordinary job on the chosen attributes ---

    def _restricted(
        self, attributes: np.ndarray, paths: Mapping[str, SelectionPath] | None = None
    ) -> ChosenJob:
        rules = tuple(rule for rule in self.whole.settings.rules if rule.name in self.algorithms)
        settings = replace(self.whole.settings.restricted(attributes), rules=rules)
        return ChosenJob(self.whole, settings, paths or {})

    def chosen(self, context: Context) -> ChosenJob:
        """Return the job on the attributes that some path has bought."""
        arrays = slab_job.split_paths(context.read_arrays(PATHS))
        vectors = _without_matrix(self._attributes(context), self.whole.settings)
        paths = {name: SelectionPath.from_arrays(arrays[name], vectors) for name in self.algorithms}
        bought = np.unique(np.concatenate([path.attributes for path in paths.values()]))
        return self._restricted(bought, {name: path.on(bought) for name, path in paths.items()})

    def choose(self, context: Context) -> Mapping[str, Content]:
        """Stage of the statistics of the selected attributes."""
        files = super().choose(context)
        totals = self._attributes(context).n_judgments.tolist()
        context.account(
            judgments={
                "total": int(sum(totals)),
                "train": dict(zip(self.whole.layout.names, totals, strict=True)),
            }
        )
        return files


class ChosenJob(MultiselectJob):
    """The ordinary job on the attributes that were selected in slabs.

    Parameters
    ----------
    whole : MultiselectJob
    settings : SelectionProcedure
        Of the selected attributes.
    paths : mapping of str to SelectionPath
        What the searches among all attributes found, as paths on the selected ones.
    """

    def __init__(
        self,
        whole: MultiselectJob,
        settings: SelectionProcedure,
        paths: Mapping[str, SelectionPath],
    ) -> None:
        self.options, self.inputs, self.seed = whole.options, whole.inputs, whole.seed
        self.roles, self.most_steps = whole.roles, whole.most_steps
        self.layout, self.settings = whole.layout.restricted(settings.names), settings
        self.paths = paths

    def solved(self, context: Context) -> Solved:
        """Return what the search on actors found, and the problem of its attributes."""
        statistics = self.statistics(context)
        train = train_members(statistics)
        problem = self.settings.problem(train)
        return Solved(self.settings, statistics, train, problem, self.paths)

    def validate(self, context: Context, solved: Solved) -> FoldAnswers | None:
        """Return nothing: the attributes were selected with the objects of every fold."""
        return None


def _without_matrix(estimates: JudgmentEstimates, settings: SelectionProcedure) -> Problem:
    """Problem of all attributes without their covariance, which Scoring does not need."""
    return Problem(
        settings.names,
        estimates.b,
        estimates.v,
        np.zeros((0, 0)),
        estimates.external_variance,
        settings.costs,
        settings.ridge,
        estimates.label_variance,
        estimates.label_mean,
        estimates.means,
        "none",
    )


def _problem_of(external: np.ndarray, vectors: Problem, attributes: np.ndarray) -> Problem:
    """Problem of the selected attributes, with their own covariance."""
    return replace(
        vectors,
        names=tuple(vectors.names[int(a)] for a in attributes),
        b=vectors.b[attributes],
        v=vectors.v[attributes],
        external=external,
        external_variance=vectors.external_variance[attributes],
        costs=vectors.costs[attributes],
        means=vectors.means[attributes],
    )
