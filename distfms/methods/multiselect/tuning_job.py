"""The evaluation of a grid of a multi-selection's options, as the stage `tune` wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.fold_work import CALLS, FoldWork, TuneWork
from distfms.methods.multiselect.curves import FoldTask
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.training import Sample, Settings
from distfms.methods.multiselect.tuning import FoldLosses, PreparedFold, SelectionItem, grouped
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.judgments import JudgmentStatistics

#: What `tune` may vary.
TUNABLE = ("budget", "ridge", "algorithm", "criterion", "psd")
_STATES = "it says what a judgment costs or how much raters differ, not how to choose"
_AFTERWARDS = "it concerns what is made of the selection, not the selection"
#: Why other options cannot be tuned.
NOT_TUNABLE = {
    "costs": _STATES,
    "internal_variance": _STATES,
    "blocks": "it says where the work is done, and there is no cross-validation in blocks",
    "model": "a refit needs a pass over the rows for every selection",
    "refine": "it can only improve the objective; set it and tune the others with it",
    "baselines": _AFTERWARDS,
    "baseline_judgments": "the statistics depend on it",
    "confidence": _AFTERWARDS,
    "plan": _AFTERWARDS,
}

#: Multiplications of as long as a positive semi-definite projection of d × d takes, over d³
#: (measured at d = 1,000).
_EIGEN = 1.5


def tune_work(
    settings: Settings,
    options: MultiselectOptions,
    points: Sequence[Mapping[str, Any]],
    file: str,
    n_folds: int,
    stored_bytes: int,
) -> TuneWork:
    """Say how points are evaluated on folds.

    Parameters
    ----------
    settings : Settings
        Of the job.
    options : MultiselectOptions
        Where a point does not say.
    points : sequence of mapping
    file : str
        Statistics in the run folder.
    n_folds : int
    stored_bytes : int
        Memory of all that the file holds, with what baselines want.
    """
    fixed = {name: getattr(options, name) for name in TUNABLE}
    items, places = grouped([{**fixed, **point} for point in points])
    d, kinds = len(settings.names), {dict(item.options)["psd"] for item in items}
    work = FoldWork(
        file=file,
        load=load_judgments,
        split=split_judgments,
        evaluate=FoldLosses(settings),
        items=items,
        n_folds=n_folds,
        # The file; beside it, co-moments and the weights of their pairs of all but each fold, and
        # the covariances that are estimated from these.
        held_bytes=stored_bytes + 8 * (3 + 2 * len(kinds)) * (n_folds + 1) * (d + 1) ** 2,
        n_operations=n_folds
        * (
            _EIGEN * d**3 * ("nearest" in kinds)
            + sum(_operations(settings, item) for item in items)
        ),
    )
    return TuneWork(work, tuple(places))


def load_judgments(arrays: Mapping[str, np.ndarray]) -> Folded[JudgmentStatistics]:
    """Read the statistics of all folds."""
    return Bundle.from_arrays(arrays, {"judgments": JudgmentStatistics})["judgments"]


def split_judgments(judgments: Folded[JudgmentStatistics], fold: int) -> PreparedFold | None:
    """All objects but those of a fold, and the fold; None if it has fewer than two."""
    held_out = judgments.folds[fold]
    if held_out.means.n_samples < 2:
        return None
    return PreparedFold(FoldTask(Sample(judgments.train_without(fold)), held_out))


def _operations(settings: Settings, item: SelectionItem) -> float:
    """Multiplications of the search."""
    d = float(len(settings.names))
    n_steps = max(item.budgets) / settings.costs.min()
    return d**2 * min(n_steps, d) + (d + CALLS) * n_steps
