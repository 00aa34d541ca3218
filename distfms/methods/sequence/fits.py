"""Models of many prefixes at a time: by passes over the rows, or trees fitted by tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from distfms.data.files.partition import Partition
from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import n_processors
from distfms.methods.frame.contract import Run
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.passes import Passes
from distfms.methods.frame.read import spans_of
from distfms.methods.frame.rows import RowSource
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.glm import MOST_GUIDED, GlmPath, fitted, guide_of
from distfms.methods.sequence.glm_rows import GlmDesign, GlmModel, GlmRows, View
from distfms.methods.sequence.options import TREES, OrderRule
from distfms.methods.sequence.problem import Ladder, LeftOut, Path, SequenceProblem
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.sample import TrainingRows, TreeRows, TreeSource, fit_weight
from distfms.methods.sequence.trees import TreeFit, TreePath, features_of, tree_path
from distfms.solve.lbfgs import side_by_side
from distfms.stats.base import merge_tree
from distfms.stats.sums import Sums

#: With more columns fits take half of the time with few bins, at about the same loss.
_WIDE, _FEW_BINS = 50, {"max_bin": 63}

#: What a search is known by: a rule's name, or a fold and the number of a rule or point.
Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Search:
    """A search by a rule, without the rows of a fold or two."""

    procedure: SequenceProcedure
    rule: OrderRule
    problem: SequenceProblem
    left_out: LeftOut = -1


def by_passes(
    run: Run, data: SequenceData, whole: SequenceProblem, searches: Mapping[Key, Search]
) -> dict[Key, GlmPath]:
    """Return the paths of generalised linear models, by passes over the training rows.

    A fit begins where the one before it ended, and rules that look at gradients choose groups
    between fits: so a search has both the order and its models, and all searches share passes.
    """
    procedure = next(iter(searches.values())).procedure
    has_folds = any(search.left_out != -1 for search in searches.values())
    gaps = data.gaps_among(whole.scaling.kept) if has_folds else ()
    design = GlmDesign(procedure.family, procedure.n_outputs, whole.scaling, gaps=gaps)
    guided = design
    n_passes = 0

    def sums(models: list[GlmModel]) -> list[Sums]:
        nonlocal n_passes
        n_passes += 1
        arrays = make_pass(models).arrays
        by_model = []
        for number in range(len(models)):
            of_model = {name: of_all[number] for name, of_all in arrays.items()}
            by_model.append(Sums(of_model))
        return by_model

    with passes_over(run, data, design) as make_pass:
        if design.n_outputs == 1 and len(whole.gram) <= MOST_GUIDED:
            (guided,) = side_by_side([guide_of(whole, View(design, whole.scaling))], sums)
        fittings = (
            s.procedure.fitting(s.problem, s.rule, View(guided, s.problem.scaling, s.left_out))
            for s in searches.values()
        )
        fits_of_all = fitted(fittings, sums)
    return {key: fits.path(n_passes) for key, fits in zip(searches, fits_of_all, strict=True)}


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.frame.passes.RowReader`."""

    source: RowSource
    design: GlmDesign
    outcome: Responses

    def read(self, partition: Partition) -> GlmRows | None:
        """Return the standardised training rows; None of held-out data."""
        if self.source.held_out:
            return None
        return self.standardised(TrainingRows.of(self.source.read(partition)))

    def standardised(self, rows: TrainingRows) -> GlmRows:
        """Return training rows as fits take them."""
        response = self.outcome.response(rows.target)
        weight = fit_weight(rows.target, rows.weight, self.outcome)
        return self.design.rows(rows.features, response, weight, rows.fold)

    def sums(self, rows: GlmRows | None, models: Sequence[GlmModel]) -> Sums:
        """Add up over rows, for models side by side."""
        return Sums({}) if rows is None else self.design.sums(rows, models)


@contextmanager
def passes_over(
    run: Run, data: SequenceData, design: GlmDesign
) -> Iterator[Callable[[list[GlmModel]], Sums]]:
    """Make passes over the training rows: in this process, where these are in memory."""
    outcome = data.outcome
    assert outcome is not None

    def reader(*dataset: Any) -> GlmReader:
        return GlmReader(data.form.source(data.plan, *dataset), design, outcome)

    if data.memory is None:
        n_values = data.plan.n_columns + len(design.gaps) + 1
        with Passes(run, reader, n_values, design.n_outputs) as make_pass:
            yield make_pass
        return
    of_all = reader(run.inputs.train, False)
    shards = [of_all.standardised(rows) for rows in data.memory.by_fold(data.plan)]
    with single_threaded_blas(), ThreadPoolExecutor(n_processors()) as threads:
        yield lambda models: merge_tree(threads.map(partial(design.sums, models=models), shards))


def with_trees(
    run: Run, data: SequenceData, searches: Mapping[Key, Search], paths: Mapping[Key, Path]
) -> dict[Key, TreePath]:
    """Return the paths of searches with trees at prefixes, each fitted by a task of its own."""
    spans = spans_of(data.plan)
    tasks = dict[Key, dict[int, Any]]()
    for key, search in searches.items():
        path = paths[key]
        ladder = search.procedure.ladder if search.rule.budget is None else Ladder(())
        tasks[key] = {}
        for n_groups in ladder.of_path(path.spent):
            tasks[key][n_groups] = (features_of(path, n_groups, spans), search.left_out)
    new = list(dict.fromkeys(chain(*(of_path.values() for of_path in tasks.values()))))
    models = dict(zip(new, run.map(tree_fit(data), new, "Fitting trees"), strict=True))
    tree_paths = {}
    for key, of_path in tasks.items():
        texts = [models[task].text for task in of_path.values()]
        tree_paths[key] = tree_path(paths[key], list(of_path), texts, spans)
    return tree_paths


def tree_fit(data: SequenceData, *, to_sample: bool = False) -> TreeFit:
    """Return what fits trees to the sample, or to all rows where the options ask for trees."""
    form = data.form
    options = form.options
    plan = data.plan
    sample = data.sample
    assert sample is not None
    rows: TreeRows | TreeSource | None = data.rows
    if options.model == TREES and not (sample.is_all or to_sample):
        train = form.inputs.train
        rows = TreeSource(form.source(plan, train, False), train.partitions, data.outcome)
    assert rows is not None
    is_wide = len(form.roles.features) > _WIDE
    return TreeFit(
        rows,
        spans_of(plan)[:, 2] > 0,
        options.family,
        {**(_FEW_BINS if is_wide else {}), **options.lightgbm},
        form.seed,
        len(data.class_values or ()),
    )
