"""What a method's folder offers to the driver, and what the driver offers to a method.

A method is one function that reads from top to bottom: from a :class:`Run` and a :class:`Job`, the
record of what was checked before any row is read, to what it has :class:`Finished`. Every costly
step in it has a name and is remembered in the run folder, so a run that was killed loads what is
there and goes on with what is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.folds import FoldPlan
from distfms.data.rows.roles import is_categorical
from distfms.engine.pool import ActorPool
from distfms.errors import SpecError
from distfms.spec import DataSection, Grid, Section, TuneSection
from distfms.stats.base import Bundle
from distfms.store.places import Location

T = TypeVar("T")
R = TypeVar("R")

#: What `distfms retrain` adds to a run.
RETRAINING = "retrain.json"

#: Number of rows, and the measures of each model that was scored on them, by name.
Judged = tuple[int, Sequence[Mapping[str, float]]]


class PartialReader(Protocol):
    """Picklable function from a partition to its partial statistics."""

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
        bundles = source.each_batch(partition, lambda part, rows: replace(read, source=part)(rows))
        return reduce(Bundle.merge, bundles)


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
    by_age : bool
        Whether rows count less with age, which only statistics can tell.
    """

    train: Dataset
    test: Dataset | None
    section: DataSection
    unlabelled: Dataset | None = None
    by_age: bool = False

    @property
    def datasets(self) -> list[Dataset]:
        """Return both, or the one there is."""
        return [self.train] if self.test is None else [self.train, self.test]

    def divided(self, seed: int = 0) -> FoldPlan:
        """Return how the rows of `train` are divided."""
        return FoldPlan(self.section.folds, self.section.test, seed)

    @property
    def names_classes(self) -> bool:
        """Whether the only target holds texts, which name classes."""
        schema = self.train.schema
        targets = self.section.target or ()
        if len(targets) != 1 or targets[0] not in schema.names:
            return False
        return is_categorical(schema.field(targets[0]).type)

    @property
    def n_parts(self) -> int:
        """Number of parts that statistics are held of: the folds and the held-out rows."""
        return self.divided().n_parts

    def on_folds(self, n_operations: float) -> dict[str, float]:
        """Return the multiplications of what all folds do, for `Job.for_actors`."""
        n_folds = self.section.folds
        return {"folds": n_folds * n_operations} if n_folds > 1 else {}

    def changed(self, **update: int) -> Inputs:
        """Return the data with another number of `folds`."""
        return replace(self, section=self.section.model_copy(update=update))


class Run(Protocol):
    """What a method's function may use: passes over the data, tasks, actors, and its run folder."""

    seed: int
    inputs: Inputs

    @property
    def workers(self) -> int:
        """Number of tasks that are done at a time."""

    def step(self, name: str, make: Callable[[], T], file: str | None = None) -> T:
        """Return what `make` returns, or what it returned in an earlier attempt.

        Parameters
        ----------
        name : str
            Of the step, which is asked for once, in the same order in every attempt.
        make : callable
            Returns a value that :mod:`distfms.stats.codec` can write. It depends on the data, the
            spec, the seed and earlier steps, on nothing else. Notes and counts belong in it, and no
            other step.
        file : str, optional
            Name in the run folder of a file for users: JSON of a mapping, or a folder that `make`
            writes itself, returning None. Default: the value's own form, for the run alone.

        Returns
        -------
        value
            As it will be read again: arrays in C order, mappings as dictionaries, of JSON what JSON
            has.
        """

    def place(self, step: str) -> Location | None:
        """Return the file with the value of a step, for actors; None where nothing is kept."""

    def path(self, name: str) -> Location:
        """Return the place of a file or folder that a step writes itself."""

    def reduce(
        self,
        reader: Callable[[Dataset, bool], PartialReader],
        *,
        cache: bool = True,
        actors: str | None = None,
    ) -> Bundle:
        """Map-reduce over all partitions, of the training and of the separate test data.

        Parameters
        ----------
        reader : callable
            From (dataset, whether all its rows are held out) to the reader of its partitions.
        cache : bool
            False for partials that nobody will ask for again, as those of one step of an
            iteration: they would only fill the cache.
        actors : str, optional
            What it is called that actors do with the partitions, where `engine.actors` is
            ``always``; otherwise, and by default, tasks read them.
        """

    def each_partition(
        self,
        reader: PartialReader,
        partitions: Sequence[Partition],
        summarise: Callable[[Partition, Bundle], R],
    ) -> list[R]:
        """Summarise the partial statistics of partitions, one by one; `summarise` is picklable."""

    def on(self, inputs: Inputs) -> Run:
        """Return the same for other data: no step is remembered, no note is taken."""

    def map(self, function: Callable[[T], R], items: Iterable[T], what: str = "") -> list[R]:
        """Independent tasks side by side; results in the order of the items.

        Where `what` says what they do, such as ``Fitting``, progress is shown.
        """

    def pool(
        self,
        n_shards: int,
        shard_bytes: int,
        *,
        what: str,
        shared_bytes: int = 0,
        n_operations: float = math.inf,
        alone: bool = False,
    ) -> AbstractContextManager[ActorPool]:
        """Open a pool of actors where the tasks of the run are done.

        Parameters
        ----------
        n_shards : int
            States it will keep.
        shard_bytes : int
            Memory one state takes.
        what : str
            What actors do, for the event: folds, chains, …
        shared_bytes : int
            Memory that the states of one actor share, in addition.
        n_operations : float, optional
            About how many multiplications all steps take together. Where that is less than the
            start of actors costs, the states are kept in this process, unless `engine.actors` says
            otherwise. Default: one process cannot hold the states.
        alone : bool
            Keep the states in this process in any case.

        Raises
        ------
        SpecError
            If an actor's states do not fit.
        """

    def candidates(self, shards: Sequence[Any]) -> AbstractContextManager[dict[str, Any]]:
        """Let searches of a problem in memory ask for candidates where its shards are.

        Yields the `pool` and the `shards` where `engine.actors` is ``always``, which `n_bytes` each
        are sent to; otherwise nothing, as sending takes longer than what a search does with them.
        """

    def note(self, text: str) -> None:
        """Tell the user something that the report should also say; within a step."""

    def count(self, **counts: int) -> None:
        """Add to what is counted of the present step, in the manifest and in the metrics.

        Parameters
        ----------
        **counts
            Such as ``n_candidates``, the candidates that a search for the selection evaluated.
        """

    def account(self, **entries: Any) -> None:
        """Enter what was counted (objects, judgments, …) in the manifest; within a step."""


@dataclass(frozen=True)
class RowStop:
    """Rows of predictions stop where they need no more: within a mean budget, or when sure enough.

    `confidence` is the probability of a class from which on a row stops. Neither: as the job says.
    """

    mean_budget: float | None = None
    confidence: float | None = None


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
    called : str
        How `distfms.load` finds it: place of its folder, or name of its version in a registry;
        empty where it is kept nowhere.
    """

    selection: dict[str, Any]
    metrics: dict[str, Any]
    model: dict[str, Any]
    manifest: dict[str, Any]
    weights: dict[str, np.ndarray]
    retraining: dict[str, Any] | None = None
    allow: frozenset[str] = frozenset()
    called: str = ""

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A method applied to one spec and its data: all that is known before any row is read.

    Attributes
    ----------
    name : str
        Name of the method, its folder and its section.
    options : Section
        The method's section of the spec, checked against the data.
    inputs : Inputs
        The opened data, with the folds that the job has.
    seed : int
    columns : tuple of str
        Columns the job reads.
    features : tuple of str
        Names of what is learned from: columns, or attributes.
    describe : callable
        What the job will do, for `check` and before a run: () → {label: text}.
    statistics_bytes : int
        Size of one partial statistic in memory, for the projection.
    judged_by : mapping of str to bool
        Measures of `Finished.judge`, the default first: name → whether more is better.
    kept_bytes : int, optional
        Size of the statistics that stay in the run folder. Default: of one partial.
    task_bytes : int
        Most that a task holds which reads no partition.
    weighs_partitions : bool
        Whether all that is learned comes from statistics, so that partitions may weigh less than
        others.
    folds_cost : bool
        Whether each fold takes about as much work as learning from all rows does.
    tune : TuneSection, optional
        The checked grid of options to choose from.
    tuned_by : sequence of str, optional
        Measures that options can be compared by. Default: all of the method.
    untunable : str, optional
        Why options cannot be compared on folds.
    nested : str, optional
        Option that `tune` may vary of which a path for the greatest value answers all others.
    for_actors : callable
        What actors may do: ``n_tried``, by default 1 → {what: about how many multiplications,
        infinite where one process is too small, `NO_GAIN` or `ON_RAY`}.
    candidates : callable
        What folds choose from where options leave it open: options → grids like that of `tune`,
        the simplest first. Empty where nothing is left open.
    n_pairs : int
        Pairs of folds without which candidates are fitted, too.
    passes : tuple of int, or None
        Fewest and most passes over the rows; None for most where fits decide how many.
    form : Any
        A record of the method's own: what else its function needs to know.
    """

    name: str
    options: Any
    inputs: Inputs
    seed: int
    columns: tuple[str, ...]
    features: tuple[str, ...]
    describe: Callable[[], Mapping[str, str]]
    statistics_bytes: int
    judged_by: Mapping[str, bool]
    kept_bytes: int | None = None
    task_bytes: int = 0
    weighs_partitions: bool = False
    folds_cost: bool = False
    tune: TuneSection | None = None
    tuned_by: Sequence[str] | None = None
    untunable: str | None = None
    nested: str | None = None
    for_actors: Callable[..., Mapping[str, float]] = lambda n_tried=1: {}
    candidates: Callable[[Any], Sequence[Grid]] = lambda options: ()
    n_pairs: int = 0
    passes: tuple[int, int | None] = (1, None)
    form: Any = None

    @property
    def n_folds(self) -> int:
        """Number of folds; 0 or 1 without cross-validation."""
        return self.inputs.section.folds

    @property
    def n_tried(self) -> int:
        """Number of paths that answer the grid of `tune`; 1 without."""
        grid: Grid = {} if self.tune is None else self.tune.grid
        return math.prod(len(values) for name, values in grid.items() if name != self.nested)


@dataclass(frozen=True)
class Summary:
    """How a retraining compares the partitions of its data.

    Attributes
    ----------
    names : tuple of str
        Of the columns that are summarised, the target last.
    reader : callable
        From (dataset, whether all its rows are held out) to the reader of its partitions.
    member : str
        Of the reader's bundles, with a method ``by_column``, as `CoMoments` has.
    """

    names: tuple[str, ...]
    reader: Callable[[Dataset, bool], PartialReader]
    member: str = "moments"


@dataclass(frozen=True, kw_only=True, eq=False)
class Finished:
    """What a method's function has found; the driver writes it.

    Attributes
    ----------
    selection, model, metrics : mapping
        Content of ``selection.json``, ``model.json`` and ``metrics.json``.
    weights : mapping of str to ndarray
        Content of ``weights.npz``.
    judge : callable
        Scores models of finished runs, of the same columns and target, on the held-out rows of a
        run's data: (run, models) → (number of rows, for each model its measures of
        `Job.judged_by` by name; none where no row is held out).
    tuning : mapping, optional
        What was compared to choose options; content of ``tuning.json``.
    summary : Summary, optional
        How partitions are compared, where they are.
    """

    selection: Mapping[str, Any]
    model: Mapping[str, Any]
    weights: Mapping[str, np.ndarray]
    metrics: Mapping[str, Any]
    judge: Callable[[Run, Sequence[FinishedRun]], Judged]
    tuning: Mapping[str, Any] | None = None
    summary: Summary | None = None


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
        fit the data. No row is read.
    learn : callable
        The method: ``(run, job) → Finished``.
    predictor : callable
        ``(run, dataset, budget) → Predictor``: a finished run's model applied to a dataset that
        has the model's columns. With a budget, what that budget buys of the model. Raises
        DataError if a column is missing. Where `session` is given, also ``(…, stop)``: see
        `RowStop`.
    chosen : callable
        ``run → {item: Chosen}``: what a finished run's model uses, by name.
    session : callable, optional
        ``(run, budget, stop, **options)`` → a prediction whose groups arrive one by one.
    figures : str
        Module that is imported when a run is finished: ``sections(run)``, those of its report,
        ``headline(run)``, its result in one sentence, and ``SUBTITLE``, of the report.
    tunable : tuple of str
        Options that `tune` may try values of: neither statistics nor steps depend on them.
    paper : callable
        What `preset: paper` sets, given the method's section and ``data`` as the spec has them:
        section → option → value.
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
    check_tried : callable, optional
        ``(option, job with a value to try, job as the section has it)``; raises SpecError if the
        value is on these data the same as another.
    partition_rows : callable, optional
        From the options to the most rows of a partition, where a row costs so much that a partition
        of the usual size would keep one worker busy for long.
    """

    name: str
    Options: type[Section]
    make_job: Callable[[Any, Inputs, int], Job]
    learn: Callable[[Run, Job], Finished]
    predictor: Callable[..., Predictor]
    chosen: Callable[[FinishedRun], Mapping[str, Chosen]]
    figures: str
    paper: Callable[..., Mapping[str, Mapping[str, Any]]] = lambda options, data: {}
    session: Callable[..., Any] | None = None
    starter: Mapping[str, Any] = field(default_factory=dict)
    takes_unlabelled: bool = False
    takes_gaps: bool = False
    tunable: tuple[str, ...] = ()
    measures: Mapping[str, bool] = field(default_factory=dict)
    question: tuple[str, ...] = ()
    check_tried: Callable[[str, Job, Job], None] | None = None
    partition_rows: Callable[[Any], int] | None = None

    def applied(
        self, run: FinishedRun, dataset: Dataset, budget: float | None, stop: RowStop | None = None
    ) -> Predictor:
        """Return what predicts the rows of a dataset, which may stop where they need no more."""
        if stop is not None:
            self.require_session()
        return self.predictor(run, dataset, budget, *([] if stop is None else [stop]))

    def require_session(self) -> Callable[..., Any]:
        """Return `session`, or raise SpecError where models have no prefixes."""
        if self.session is None:
            raise SpecError(f"Models of `{self.name}` do not stop row by row; leave `stop` out.")
        return self.session

    def headline(self, run: FinishedRun) -> str:
        """Return a finished run's result in one sentence; of one that was refused, why."""
        from distfms.report.sections import refusal

        sentence: str = refusal(run.retraining) or import_module(self.figures).headline(run)
        return sentence

    def page(self, run: FinishedRun) -> str:
        """Return the report of a finished run, one self-contained HTML page."""
        from distfms.report.sections import build_page, refusal, retraining_sections
        from distfms.report.tuning import tuning_section

        figures = import_module(self.figures)
        of_retraining = retraining_sections(run.retraining)
        of_run = [*figures.sections(run), tuning_section(run.metrics)]
        is_refused = refusal(run.retraining) is not None
        sections = [*of_retraining, *of_run] if is_refused else [*of_run, *of_retraining]
        return build_page(self.headline(run), sections, run.manifest, figures.SUBTITLE).render()
