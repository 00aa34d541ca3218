"""What a method's folder offers to the driver, and what the driver offers to a method.

A method is a :class:`Job`: an ordered list of stages. Every stage reads what it needs from the run
folder and from the data, and returns the files it wants written. Nothing is handed from stage to
stage in memory, so a run that was killed goes on at the first stage whose files are not complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from distfms.data.partition import Dataset, Partition
from distfms.engine.base import ActorPool
from distfms.engine.storage import Location
from distfms.errors import SpecError
from distfms.spec import DataSection, Section
from distfms.stats.base import Bundle

T = TypeVar("T")
R = TypeVar("R")

#: What `distfms retrain` adds to a run.
RETRAINING = "retrain.json"

#: JSON content for ``*.json``, arrays for ``*.npz``, text for ``*.html``; ``None`` for a folder
#: that the stage has written itself.
Content = Mapping[str, Any] | str | None

#: Number of rows, and the measures of each model that was scored on them, by name.
Judged = tuple[int, Sequence[Mapping[str, float]]]

#: What one evaluation on a fold found: named arrays, few numbers.
Answer = Mapping[str, np.ndarray]


class PartialReader(Protocol):
    """Picklable function from a partition to its partial statistics."""

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts, for reading a partial back."""

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and summarise it."""

    def key(self) -> Mapping[str, Any]:
        """Everything but the partition that the partial depends on, as plain values."""

    def partition_key(self, partition: Partition) -> str:
        """Return what the partial depends on of the partition; by default, its fingerprint."""
        return partition.fingerprint

    def in_batches(self, partition: Partition) -> Bundle:
        """Read a partition as a call does; of a large one some rows after the others."""
        source = getattr(self, "source", None)
        if source is None or not partition.batch_rows:
            return self(partition)
        read: Any = self
        parts = source.each_batch(partition, lambda own, piece: replace(read, source=own)(piece))
        return reduce(Bundle.merge, parts)


@dataclass(frozen=True)
class Inputs:
    """The data of a job.

    Attributes
    ----------
    train : Dataset
        Rows to learn from (and, with ``data.test``, the held-out share among them).
    test : Dataset or None
        Held-out rows of ``data.test_path``.
    section : DataSection
        The resolved data section of the spec.
    unlabelled : Dataset or None
        Rows of ``data.unlabelled_path``.
    """

    train: Dataset
    test: Dataset | None
    section: DataSection
    unlabelled: Dataset | None = None

    @property
    def datasets(self) -> list[Dataset]:
        """Return both, or the one there is."""
        return [self.train] if self.test is None else [self.train, self.test]

    def with_folds(self, n_folds: int) -> Inputs:
        """Return the data with another number of folds."""
        section = self.section.model_copy(update={"folds": n_folds})
        return replace(self, section=section)


class Context(Protocol):
    """What a stage may use while it runs."""

    seed: int
    inputs: Inputs
    #: Folder of the run, by a name that means the same in every process.
    folder: Location
    #: Number of tasks that are done at a time.
    workers: int

    def reduce(
        self, reader: Callable[[Dataset, bool], PartialReader], *, cache: bool = True
    ) -> Bundle:
        """Map-reduce over all partitions, of the training and of the separate test data.

        Parameters
        ----------
        reader : callable
            From (dataset, whether all its rows are held out) to the reader of its partitions.
        cache : bool
            False for partials that nobody will ask for again, as those of one step of an
            iteration: they would only fill the cache.
        """

    def each_partition(
        self,
        reader: PartialReader,
        partitions: Sequence[Partition],
        summarise: Callable[[Partition, Bundle], R],
    ) -> list[R]:
        """Summarise the partial statistics of partitions, one by one; `summarise` is picklable."""

    def on(self, inputs: Inputs) -> Context:
        """Return the same for other data."""

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Independent tasks side by side; results in the order of the items."""

    def pool(
        self,
        n_shards: int,
        shard_bytes: int,
        *,
        shared_bytes: int = 0,
        n_operations: float | None = None,
        alone: bool = False,
    ) -> AbstractContextManager[ActorPool]:
        """Open a pool of actors where the tasks of the run are done.

        Parameters
        ----------
        n_shards : int
            States it will keep.
        shard_bytes : int
            Memory one state takes.
        shared_bytes : int
            Memory that the states of one actor share, in addition.
        n_operations : float, optional
            About how many multiplications all steps take together. Where that is less than the
            start of actors costs, the states are kept in this process. Default: it pays.
        alone : bool
            Keep the states in this process in any case.

        Raises
        ------
        SpecError
            If an actor's states do not fit.
        """

    def read_json(self, name: str) -> dict[str, Any]:
        """JSON content that an earlier stage wrote."""

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Arrays that an earlier stage wrote."""

    def manifest(self) -> dict[str, Any]:
        """Return what the run folder says about the run so far."""

    def note(self, text: str) -> None:
        """Tell the user something that the report should also say."""

    def count(self, **counts: int) -> None:
        """Add to what is counted of the present stage, in the manifest.

        Parameters
        ----------
        **counts
            Such as ``n_candidates``, the candidates that a search for the selection evaluated.
        """

    def account(self, **entries: Any) -> None:
        """Enter what was counted (objects, judgments, …) in the manifest."""


class Predictor(Protocol):
    """Picklable function from a partition to its predictions."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""

    def __call__(self, partition: Partition) -> Any:
        """Return a pyarrow table, one row per row of the partition."""

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count what the user should know of a table of predictions: label → rows."""


@dataclass(frozen=True)
class FinishedRun:
    """What a run folder offers to prediction and report.

    Attributes
    ----------
    selection, metrics, model, manifest : dict
        The JSON files of these names.
    weights : dict of ndarray
    retraining : dict or None
        ``retrain.json``, of a run that `distfms retrain` made.
    allow : frozenset of str
        Functions, as ``module:function``, that its model may call.
    """

    selection: dict[str, Any]
    metrics: dict[str, Any]
    model: dict[str, Any]
    manifest: dict[str, Any]
    weights: dict[str, np.ndarray]
    retraining: dict[str, Any] | None = None
    allow: frozenset[str] = frozenset()

    @classmethod
    def of(cls, context: Context, allow: Iterable[str] = ()) -> FinishedRun:
        """Read what the stages of a run have written, once its model is evaluated."""
        manifest = context.manifest()
        retrained = any(stage["name"] == "retrain" for stage in manifest["stages"])
        return cls(
            **{n: context.read_json(f"{n}.json") for n in ("selection", "metrics", "model")},
            manifest=manifest,
            weights=context.read_arrays("weights.npz"),
            retraining=context.read_json(RETRAINING) if retrained else None,
            allow=frozenset(allow),
        )

    def require_allowed(self, function: str) -> None:
        """Raise SpecError unless the model may call a function; a predictor asks before it does."""
        if function not in self.allow:
            raise SpecError(
                f"The model calls the function `{function}`, which you have not allowed. If you "
                f"trust it, add --allow {function} (in Python: allow=[{function!r}]); to "
                "retrain, name it in the spec."
            )


@dataclass(frozen=True)
class Chosen:
    """What a model made of one item.

    `amount` is a whole number where models choose differently by it (repeats of an attribute, the
    place of a group), a float where it always differs (a weight); `gain` is what the item adds to
    the objective, and `weight` its weight in the model, where the method says so.
    """

    amount: float
    gain: float | None = None
    weight: float | None = None


@dataclass(frozen=True, eq=False)
class FoldAnswers:
    """What the folds answered.

    Attributes
    ----------
    folds : tuple of int
        Folds with two rows or more; the others have no answer.
    n_rows : tuple of int
    weight : tuple of float
        Of the rows of each of them.
    answers : tuple of tuple of mapping
        By item, then by fold.
    n_done, n_kept : int
        Evaluations done now, and taken from an earlier attempt.
    """

    folds: tuple[int, ...]
    n_rows: tuple[int, ...]
    weight: tuple[float, ...]
    answers: tuple[tuple[Answer, ...], ...]
    n_done: int = 0
    n_kept: int = 0


@dataclass(frozen=True)
class Stage:
    """One step of a job.

    Attributes
    ----------
    name : str
    run : callable
        From the context to the files to write: name in the run folder → content.
    """

    name: str
    run: Callable[[Any], Mapping[str, Content]]


class Job(ABC):
    """A method applied to one spec: an ordered list of stages.

    Attributes
    ----------
    name : str
        Name of the method, its folder and its section.
    options : Section
        The method's section of the spec.
    inputs : Inputs
        The opened data; the constructor checks the options against its schema.
    seed : int
    judged_by : mapping of str to bool
        Measures of `judge`, the default first: name → whether more is better.
    """

    name: ClassVar[str]
    #: Whether all that is learned comes from the statistics of `summary_reader`, so that partitions
    #: may weigh less than others.
    weighs_partitions: bool = False
    #: Whether each fold takes about as much work as learning from all rows does.
    folds_cost: ClassVar[bool] = False
    #: Member of the bundles of `summary_reader` that partitions are compared by.
    compared_by: ClassVar[str] = "moments"
    options: Any
    inputs: Inputs
    seed: int
    judged_by: Mapping[str, bool]

    @abstractmethod
    def __init__(self, options: Any, inputs: Inputs, seed: int) -> None: ...

    @abstractmethod
    def stages(self) -> Sequence[Stage]:
        """Return the stages in order, without the report."""

    @abstractmethod
    def describe(self) -> Mapping[str, str]:
        """Return what the job will do, for `check` and before a run: label → text."""

    @abstractmethod
    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory, for the projection."""

    def kept_bytes(self) -> int:
        """Return the size of the statistics that stay in the run folder."""
        return self.statistics_bytes()

    def task_bytes(self) -> int:
        """Return the most that a task holds which reads no partition, for the projection."""
        return 0

    @abstractmethod
    def columns(self) -> Sequence[str]:
        """Return the columns the job reads."""

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> PartialReader | None:
        """Return a reader of what partitions are compared by; None where there is none.

        The member `compared_by` of its bundles has a method ``by_column``, as `CoMoments` has.
        """
        return None

    def summary_names(self, context: Context) -> Sequence[str]:
        """Return the names of the columns that `summary_reader` summarises, the target last."""
        return ()

    @abstractmethod
    def judge(self, context: Context, models: Sequence[FinishedRun]) -> Judged:
        """Score models of finished runs on the held-out rows of the context's data.

        Parameters
        ----------
        context : Context
        models : sequence of FinishedRun
            Of the same columns and target.

        Returns
        -------
        n_rows : int
            Number of held-out rows.
        scores : sequence of mapping
            For each model, measures of `judged_by` by name; empty where no row is held out.
        """

    def check_tuning(self) -> None:
        """Raise SpecError where a job of this form cannot compare options on folds."""
        raise SpecError(
            f"`tune` compares by cross-validation, which this `{self.name}` job does not have. "
            "Leave `tune` out or, if the job works in slabs of columns, use fewer columns "
            "(`data.features`)."
        )


class TunableJob(Job):
    """A job whose options can be compared on folds, after the stage `tuned_after`.

    That stage and those before it do not depend on what can be tuned.
    """

    tuned_after: str = "statistics"
    #: Options that `tune` has chosen.
    tuned: tuple[str, ...] = ()

    def check_tuning(self) -> None:
        """Let `tune` compare options on folds."""

    def changed_options(self, point: Mapping[str, Any]) -> Any:
        """Return the options with some changed."""
        return type(self.options).model_validate({**self.options.model_dump(), **point})

    def with_options(self, point: Mapping[str, Any]) -> Self:
        """Return the job with some options changed, in the form that the statistics are for."""
        job = type(self)(self.changed_options(point), self.inputs, self.seed)
        job.tuned = tuple(point)
        return job

    def check_tried(self, name: str, first: Job) -> None:
        """Raise SpecError if the value of a tuned option is on these data the same as another.

        `first` is the job with the options of the section, which reads the statistics.
        """

    @abstractmethod
    def tune_answers(
        self, context: Context, points: Sequence[Mapping[str, Any]], measure: str, saved: str
    ) -> tuple[FoldAnswers, np.ndarray]:
        """Evaluate points of a grid on folds.

        Parameters
        ----------
        context : Context
        points : sequence of mapping
            Values of options among the method's `tunable`.
        measure : str
            Of the method's `measures`.
        saved : str
            File within the run folder for the answers so far; empty to keep none.

        Returns
        -------
        found : FoldAnswers
            Folds, their rows, and how many evaluations were done.
        values : ndarray of shape (n_points, n_folds)
            The measure; NaN where it does not exist.
        """


@dataclass(frozen=True)
class Method:
    """What the driver knows of a method before there are data, and of its finished runs.

    Attributes
    ----------
    name : str
        Of the method, its folder and its section of the spec.
    Options : type
        Model of the section.
    make_job : callable
        ``(options, inputs, seed) → Job``; raises SpecError or DataError if the options do not
        fit the data.
    predictor : callable
        ``(run, dataset, budget) → Predictor``: a finished run's model applied to a dataset that
        has the model's columns. With a budget, what that budget buys of the model. Raises
        DataError if a column is missing.
    chosen : callable
        ``run → {item: Chosen}``: what a finished run's model uses, by name.
    figures : str
        Module that is imported when a run is finished: ``sections(run)``, those of its report,
        ``headline(run)``, its result in one sentence, and ``SUBTITLE``, of the report.
    tunable : tuple of str
        Options that `tune` may try values of: neither statistics nor stages depend on them.
    not_tunable : mapping of str to str
        Why others cannot be tried, for the message.
    starter : mapping of str to Any
        What a first spec of a beginner says: option → value, None to name it only.
    takes_unlabelled : bool
        Whether jobs use rows without a target, of ``data.unlabelled_path``.
    takes_gaps : bool
        Whether jobs learn from rows with missing values as they are, with ``data.missing: pairs``.
    measures : mapping of str to bool
        What `tune` may compare by, the default first: name → whether more is better.
    question : tuple of str
        Options that decide what is predicted, or what is chosen among: models that differ in one
        are not compared.
    partition_rows : callable, optional
        From the options to the most rows of a partition, where a row costs so much that a partition
        of the usual size would keep one worker busy for long.
    upgrades : tuple of callable
        For each earlier form of ``selection.json``, ``model.json``, ``weights.npz`` and
        ``metrics.json``, the first one first: a finished run of this form → the same in the next.
        Whoever changes what these files hold adds one, so that all models stay readable.
    """

    name: str
    Options: type[Section]
    make_job: Callable[[Any, Inputs, int], Job]
    predictor: Callable[[FinishedRun, Dataset, float | None], Predictor]
    chosen: Callable[[FinishedRun], Mapping[str, Chosen]]
    figures: str
    starter: Mapping[str, Any] = field(default_factory=dict)
    takes_unlabelled: bool = False
    takes_gaps: bool = False
    tunable: tuple[str, ...] = ()
    not_tunable: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, bool] = field(default_factory=dict)
    question: tuple[str, ...] = ()
    partition_rows: Callable[[Any], int] | None = None
    upgrades: tuple[Callable[[FinishedRun], FinishedRun], ...] = ()

    @property
    def form(self) -> int:
        """Number of the form that models are written in."""
        return 1 + len(self.upgrades)

    def upgraded(self, run: FinishedRun, form: int) -> FinishedRun:
        """Return a finished run whose model is of an earlier form in the present one."""
        for upgrade in self.upgrades[form - 1 :]:
            run = upgrade(run)
        return run

    def headline(self, run: FinishedRun) -> str:
        """Return a finished run's result in one sentence; of one that was refused, why."""
        from distfms.report.sections import refusal

        found: str = refusal(run.retraining) or import_module(self.figures).headline(run)
        return found

    def page(self, run: FinishedRun) -> str:
        """Return the report of a finished run, one self-contained HTML page."""
        from distfms.report.metrics import tuning_section
        from distfms.report.sections import build_page, refusal, retraining_sections

        figures, told = import_module(self.figures), retraining_sections(run.retraining)
        own = [*figures.sections(run), tuning_section(run.metrics)]
        sections = [*own, *told] if refusal(run.retraining) is None else [*told, *own]
        return build_page(self.headline(run), sections, run.manifest, figures.SUBTITLE).render()

    def report_stage(self) -> Stage:
        """Return the last stage of every run, which draws the report."""

        def draw(context: Context) -> Mapping[str, Content]:
            return {"report.html": self.page(FinishedRun.of(context))}

        return Stage("report", draw)


def run_stage(job: Job, name: str, context: Context) -> Mapping[str, Content]:
    """Run one stage of a job."""
    return next(stage for stage in job.stages() if stage.name == name).run(context)
