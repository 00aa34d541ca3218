"""Models of many prefixes at a time: by passes over the rows, or trees fitted by tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from distfms.methods.frame.contract import Run
from distfms.methods.frame.passes import Passes, Sums
from distfms.methods.frame.trees import scores
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.glm import (
    MOST_BENT,
    GlmDesign,
    GlmModel,
    GlmPath,
    View,
    fitted,
    guide_of,
)
from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import Ladder, Path, SequenceProblem
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.read import GlmReader, sums_of_scores
from distfms.methods.sequence.read_trees import TreeRows, TreeSource, spans_of
from distfms.methods.sequence.trees import TreeFit, TreePath, features_of, tree_path
from distfms.solve.lbfgs import side_by_side

#: Rows, and numbers in them, that trees are fitted to where nobody asks for trees.
_MOST_ROWS, _MOST_VALUES = 100_000, 20_000_000
#: With more columns fits take half of the time with few bins, at about the same loss.
_WIDE, _FEW_BINS = 50, {"max_bin": 63}

#: What a search is known by: a rule's name, or a fold and the number of a rule or point.
Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Search:
    """A search by a rule, without the rows of a fold (−1: of none)."""

    procedure: SequenceProcedure
    rule: OrderRule
    problem: SequenceProblem
    fold: int = -1


def by_passes(
    run: Run, data: SequenceData, whole: SequenceProblem, searches: Mapping[Key, Search]
) -> dict[Key, GlmPath]:
    """Return the paths of generalised linear models, by passes over the training rows.

    A fit begins where the one before it ended, and rules that look at gradients choose groups
    between fits: so a search has both the order and its models, and all searches share passes.
    """
    weighted = data.class_values, data.class_weights
    own = next(iter(searches.values())).procedure
    design = guided = GlmDesign(own.family, own.n_outputs, whole.scaling)
    n_passes = 0

    def reader(*of: Any) -> GlmReader:
        return GlmReader(data.form.source(data.plan, *of), design, *weighted)

    def sums(models: list[GlmModel]) -> list[Sums]:
        nonlocal n_passes
        n_passes += 1
        arrays = make_pass(models).arrays.items()
        return [Sums({name: own[i] for name, own in arrays}) for i in range(len(models))]

    with Passes(run, reader, data.plan.n_columns + 1, design.n_outputs) as make_pass:
        if design.n_outputs == 1 and len(whole.gram) <= MOST_BENT:
            (guided,) = side_by_side([guide_of(whole, View(design, whole.scaling))], sums)
        fittings = (
            s.procedure.fitting(s.problem, s.rule, View(guided, s.problem.scaling, s.fold))
            for s in searches.values()
        )
        fits_of_all = fitted(fittings, sums)
    return {key: fits.path(n_passes) for key, fits in zip(searches, fits_of_all, strict=True)}


def with_trees(
    run: Run, data: SequenceData, searches: Mapping[Key, Search], paths: Mapping[Key, Path]
) -> dict[Key, TreePath]:
    """Return the paths of searches with trees at prefixes, each fitted by a task of its own."""
    spans, prefixes, tasks = spans_of(data.plan), dict[Key, list[int]](), list[Any]()
    for key, search in searches.items():
        path = paths[key]
        ladder = search.procedure.ladder if search.rule.budget is None else Ladder(())
        prefixes[key] = ladder.of_path(path.spent)
        tasks += [(features_of(path, n, spans), search.fold) for n in prefixes[key]]
    wanted = list(dict.fromkeys(task for task in tasks if task not in data.fitted))
    models = run.map(tree_fit(run, data), wanted, "Fitting trees")
    texts = {task: model.text for task, model in zip(wanted, models, strict=True)}
    fitted_texts = iter([texts.get(task) or data.fitted[task] for task in tasks])
    return {
        key: tree_path(paths[key], numbers, [next(fitted_texts) for _ in numbers], spans)
        for key, numbers in prefixes.items()
    }


def tree_fit(run: Run, data: SequenceData, rows: TreeRows | None = None) -> TreeFit:
    """Return what fits trees to rows in memory, or to those that the options ask for."""
    form, options, plan, train = data.form, data.form.options, data.plan, run.inputs.train
    learned: TreeRows | TreeSource | None = rows
    if learned is None:
        share = share_of_auto(form)
        weighted = data.class_values, data.class_weights
        source = TreeSource(
            form.source(plan, train, False), train.partitions, options.family, *weighted
        )
        if data.rows is not None and data.rows.share >= share:
            learned = data.rows
        elif options.model == "auto":
            learned = source.sample(run, share)
        else:
            learned = source
    is_wide = len(form.roles.features) > _WIDE
    return TreeFit(
        learned,
        spans_of(plan)[:, 2] > 0,
        options.family,
        {**(_FEW_BINS if is_wide else {}), **options.lightgbm},
        form.seed,
        len(data.class_values or ()),
    )


def losses_of_texts(
    texts: Sequence[str],
    null: np.ndarray,
    features: Sequence[Sequence[int]],
    rows: TreeRows,
    data: SequenceData,
) -> Sums:
    """Add up what models of LightGBM, the first that of no group, are measured by on rows."""
    models = [np.tile(null, (len(rows.fold), 1))]
    for text, columns in zip(texts, features, strict=True):
        raw = scores(text, rows.inputs[:, list(columns)])
        models.append(raw.reshape(len(rows.fold), -1))
    weighted = data.class_values, data.class_weights
    stacked = np.stack(models, axis=1)
    target = rows.target[np.newaxis]
    return sums_of_scores(stacked, target, rows.weight, data.form.options.family, *weighted)


def share_of_auto(form: SequenceForm) -> float:
    """Return the share of the training rows that trees of ``model: auto`` are fitted to."""
    most = min(_MOST_ROWS, _MOST_VALUES // len(form.roles.features))
    n_rows = form.inputs.train.n_rows * (1 - form.inputs.section.test)
    return min(1.0, most / max(n_rows, 1.0)) if form.options.model == "auto" else 1.0
