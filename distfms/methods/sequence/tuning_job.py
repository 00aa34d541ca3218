"""The evaluation of a grid of a sequence's options, as the stage `tune` wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.fold_work import CALLS, FoldWork, TuneWork
from distfms.methods.sequence.evaluate import FoldTask, Settings
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.tuning import FoldScores, SequenceItem, grouped
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.comoments import CoMoments

#: What `tune` may vary.
TUNABLE = ("ridge", "criterion", "cost_aware", "doubling", "max_groups")
_STATES = "it says what there is to measure and what that costs, not how to choose"
_AFTERWARDS = "it concerns what is compared with the sequence, not the sequence"
#: Why other options cannot be tuned.
NOT_TUNABLE = {
    **dict.fromkeys(("groups", "prefix_separator", "costs", "cost_file", "shared_costs"), _STATES),
    "family": "its values explain different things, and all but gaussian have no folds",
    "max_refits": "the families it is for have no cross-validation",
    "baselines": _AFTERWARDS,
    "alpha": _AFTERWARDS,
    "blocks": "it says where the work is done, and there is no cross-validation in blocks",
}


def tune_work(
    settings: Settings,
    options: SequenceOptions,
    points: Sequence[Mapping[str, Any]],
    measure: str,
    file: str,
    n_folds: int,
    held_bytes: int,
) -> TuneWork:
    """Say how points are evaluated on folds.

    Parameters
    ----------
    settings : Settings
        Of the job.
    options : SequenceOptions
        Where a point does not say.
    points : sequence of mapping
    measure : str
    file : str
        Statistics in the run folder.
    n_folds : int
    held_bytes : int
        Memory that the statistics of all folds take.
    """
    fixed = {name: getattr(options, name) for name in TUNABLE}
    items, places = grouped([{**fixed, **point} for point in points])
    work = FoldWork(
        file=file,
        load=load_moments,
        split=split_moments,
        evaluate=FoldScores(settings, measure),
        items=items,
        n_folds=n_folds,
        held_bytes=2 * held_bytes,
        n_operations=n_folds * sum(_operations(settings, item) for item in items),
    )
    return TuneWork(work, tuple(places))


def load_moments(arrays: Mapping[str, np.ndarray]) -> Folded[CoMoments]:
    """Read the co-moments of all folds."""
    return Bundle.from_arrays(arrays, {"moments": CoMoments})["moments"]


def split_moments(moments: Folded[CoMoments], fold: int) -> FoldTask | None:
    """All rows but those of a fold, and the fold; None if it has fewer than two."""
    held_out = moments.folds[fold]
    if held_out.n_samples < 2:
        return None
    return FoldTask(moments.train_without(fold), held_out)


def _operations(settings: Settings, item: SequenceItem) -> float:
    """Multiplications of a path and of the errors of its prefixes, calls counted as such."""
    n_columns, n_groups = len(settings.feature_names), len(settings.groups)
    n_steps = n_groups if item.longest is None else min(item.longest, n_groups)
    chosen = n_columns * n_steps / n_groups
    models = (n_steps + 1) * len(settings.target_names)
    return float(n_columns) ** 2 * (chosen + models) + CALLS * n_steps
