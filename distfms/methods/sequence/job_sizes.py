"""How large jobs of group sequencing are: what decides whether they are done in slabs."""

from __future__ import annotations

from dataclasses import dataclass

from distfms.engine.memory import format_bytes
from distfms.methods import slab_job
from distfms.methods.row_job import LEVELS_GUESSED
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.procedure import Rule
from distfms.spec import DataSection

#: Baselines that need all products in one process.
NOT_IN_SLABS = ("sparse",)


@dataclass(frozen=True)
class Sizes:
    """What decides how large a job is.

    Attributes
    ----------
    widths : tuple of int
        Columns of each group; a category counts as `LEVELS_GUESSED`.
    n_targets : int
    n_searches : int
        Sequences that are looked for.
    max_groups : int or None
    section : DataSection
    """

    widths: tuple[int, ...]
    n_targets: int
    n_searches: int
    max_groups: int | None
    section: DataSection

    @classmethod
    def of(cls, job: SequenceJob) -> Sizes:
        """Sizes of a job."""
        guessed = [LEVELS_GUESSED if f in job.categorical else 1 for f in job.roles.features]
        return cls(
            tuple(sum(guessed[c] for c in group) for group in job.groups.columns),
            len(job.roles.target),
            len(searched_rules(job)),
            job.options.max_groups,
            job.inputs.section,
        )

    @property
    def n_columns(self) -> int:
        """Columns of all groups."""
        return sum(self.widths)

    def support(self, n_groups: int | None = None) -> int:
        """Most columns of one sequence, by default of as many groups as it may have."""
        n_groups = self.max_groups if n_groups is None else n_groups
        return sum(sorted(self.widths, reverse=True)[:n_groups])

    def one_process_bytes(self) -> int:
        """Project what the job in one process holds."""
        n_groups = len(self.widths) if self.max_groups is None else self.max_groups
        return job_bytes(self.n_columns, n_groups, self.n_targets, self.section)

    def chosen_bytes(self, n_groups: int | None = None) -> int:
        """Project what the job on the chosen columns holds."""
        n_groups = n_groups or self.max_groups or len(self.widths)
        n_columns = min(self.n_searches * self.support(n_groups), self.n_columns)
        return job_bytes(n_columns, n_groups, self.n_targets, without_folds(self.section))

    def most_groups(self) -> int:
        """Longest sequence whose chosen columns fit one process."""
        low, high = 0, len(self.widths)
        while low < high:
            middle = (low + high + 1) // 2
            if self.chosen_bytes(middle) <= slab_job.ONE_PROCESS_BYTES:
                low = middle
            else:
                high = middle - 1
        return low


def job_bytes(n_columns: int, n_groups: int, n_targets: int, section: DataSection) -> int:
    """Project what a job in one process holds.

    That is the statistics of every fold and of the held-out rows, as a file and as arrays, what is
    derived from them, and the models of all prefixes.

    Parameters
    ----------
    n_columns, n_groups, n_targets : int
        Columns, the groups of the sequence, targets.
    section : DataSection
    """
    matrices, n_parts = 3 if section.missing == "mean" else 1, max(section.folds, 1) + 1
    n_matrices = 2 * matrices * n_parts + matrices + 3
    models = 3 * (n_groups + 1) * n_columns * n_targets
    return 8 * (n_matrices * (n_columns + n_targets) ** 2 + models)


def without_folds(section: DataSection) -> DataSection:
    """Return the section of a job that is not cross-validated."""
    return section.model_copy(update={"folds": 0})


def searched_rules(job: SequenceJob) -> tuple[Rule, ...]:
    """Rules whose sequences are looked for among all groups, the chosen one first."""
    others = [r for r in job.baselines if r.criterion not in ("oracle", *NOT_IN_SLABS)]
    return tuple(dict.fromkeys((job.rule, *others, Rule("omp"))))


def too_long(sizes: Sizes) -> str:
    """Say why a sequence cannot be searched in slabs, and how long it may be."""
    n_groups, most = sizes.max_groups or len(sizes.widths), sizes.most_groups()
    n_columns = min(sizes.n_searches * sizes.support(), sizes.n_columns)
    remedy = (
        f"Set `sequence.max_groups` to at most {most:,}, or name fewer `sequence.baselines`."
        if most
        else "Even one group may have too many columns: cut the groups smaller."
    )
    return (
        f"`sequence.blocks: always` searches on actors, but the model and the curves of the "
        f"{n_groups:,} groups a sequence may have need the products of up to {n_columns:,} columns "
        f"in one process ({sizes.n_searches} sequences with those of the baselines; "
        f"{format_bytes(sizes.chosen_bytes())}, {format_bytes(slab_job.ONE_PROCESS_BYTES)} is the "
        f"most). {remedy}"
    )
