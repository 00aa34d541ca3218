"""How classes are told apart by the model where predictions stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.judge import LossSums
from distfms.methods.sequence.choice import Candidate, chosen_on_other_folds
from distfms.methods.sequence.form import NO_FOLDS
from distfms.methods.sequence.judged import few_rows
from distfms.methods.sequence.learners import ByRows, Learner, Models, Scores
from distfms.methods.sequence.problem import Path
from distfms.methods.sequence.ridge_choice import chooses_ridge
from distfms.stats.base import number_or_none
from distfms.stats.classification import at_threshold, best_threshold, class_report, sampling_error
from distfms.stats.folds import FoldAnswers

_ROWS = {"test": "held-out rows", "validation": "rows of the folds", "train": "training rows"}


def chosen_rule(learner: Learner, path: Path, stop: Mapping[str, Any]) -> tuple[int, float]:
    """Return the number of the rule of the model where predictions stop, and what it may spend."""
    if stop["model"] <= len(path):
        return 0, stop["spent"]
    return len(learner.rules.compared) + stop["model"] - len(path) - 1, np.inf


def report_of(
    learner: ByRows,
    models: Models,
    scores: Scores,
    stop: Mapping[str, Any],
    candidates: Sequence[Candidate],
) -> dict[str, Any]:
    """Judge the model where predictions stop: note where few rows decide, report the classes.

    Each fold is judged by what the other folds spend on the chosen kind, the first of the
    candidates that they choose from, if they choose at all.
    """
    data, options = learner.data, learner.job.options
    if options.family == "gaussian":
        return {}
    rule, spent = chosen_rule(learner, models.paths[learner.rules.chosen.name], stop)
    name = list(models.paths)[rule]
    path = models.paths[name]
    rows = "train" if scores.folds is None else "validation"
    rows = rows if learner.solved(models).test is None else "test"
    asked = dict[Any, tuple[Path, int, Sequence[int]]]()
    if rows != "validation":
        asked[rows, name] = (path, path.affordable(spent), learner.parts[rows])
    spent_of = spent_without_folds(learner.procedure.grid(path), scores.folds, candidates)
    for (fold, number), path_without in models.of_folds.items():
        if number == rule:
            prefix = path_without.affordable(spent_of.get(fold, spent))
            asked[fold, rule] = (path_without, prefix, [fold])
    judged = learner.judged_at(asked, scores.sums)
    of_folds = {key[0]: sums for key, sums in judged.items() if key[0] != rows}
    sums_of = {"validation": reduce(LossSums.merge, of_folds.values(), LossSums())}
    if rows != "validation":
        sums_of[rows] = judged[rows, name]
    if text := few_rows(sums_of[rows], _ROWS[rows]):
        advice = "" if chooses_ridge(learner.job) else ", or raise `sequence.ridge`"
        learner.run.note(f"{text} Look at these rows{advice}.")
    if data.classes is None:
        return {}
    names = data.classes.texts
    counts = sums_of[rows].of_classes(-1)
    threshold = options.threshold
    if not isinstance(threshold, float):
        if scores.folds is None:
            raise DataError(NO_FOLDS)
        rule = threshold["cost"] if isinstance(threshold, dict) else threshold
        threshold = best_threshold(sums_of["validation"].of_classes(-1), rule)
        counts = at_threshold(counts, threshold)
    report = class_report(counts, names, rows, calibrated=True, threshold=threshold)
    report["sampling_error"] = sampling_error(counts, sums_of[rows].n_rows)
    report["folds"] = []
    if scores.folds is not None:
        for fold in scores.folds.folds:
            measures = learner.judge.measures(of_folds[fold])
            entry = {name: number_or_none(measures[name][-1]) for name in ("auroc", "accuracy")}
            report["folds"].append({"fold": fold, **entry})
    if data.class_weights is None:
        return {"classes": report}
    if options.threshold == 0.5 and len(names) == 2:
        report["threshold"] = data.class_weights[0] / sum(data.class_weights)
    # The explained deviance weighs rows by these, too.
    weights = dict(zip(names, data.class_weights, strict=True))
    return {"class_weights": weights, "classes": report}


def spent_without_folds(
    costs: np.ndarray, folds: FoldAnswers | None, candidates: Sequence[Candidate]
) -> dict[int, float]:
    """Return what all folds but one spend on the first of the candidates, by fold.

    `costs` are those of its prefixes. Empty where folds did not choose where to stop.
    """
    if folds is None or not candidates:
        return {}
    choices = chosen_on_other_folds(candidates[:1], folds.weight)
    spent = [costs[prefix] for _, prefix in choices]
    return dict(zip(folds.folds, spent, strict=True))
