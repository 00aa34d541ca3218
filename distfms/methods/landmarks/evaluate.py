"""How good models on landmarks are: on all rows, folds and held-out rows, beside references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distfms.methods.frame.choose import is_better
from distfms.methods.frame.moments import Solved
from distfms.methods.landmarks.candidates import FoldChoice
from distfms.methods.landmarks.learners import TEST, TRAIN, Judged, Squared
from distfms.methods.landmarks.read import LandmarkData
from distfms.methods.landmarks.references import LINEAR, TREES, references
from distfms.stats.base import explained, explained_by_fold, number_or_none, over_folds
from distfms.stats.classification import class_report
from distfms.stats.folds import FoldAnswers


def evaluate(
    learner: Squared, solved: Solved, choices: Sequence[FoldChoice | None]
) -> dict[str, Any]:
    """Return the content of ``metrics.json``; `choices` are what the folds chose of the model."""
    data = learner.data
    measure = data.form.main_measure
    validated = solved.on_folds(learner.run, learner.job, evaluate=learner.fitted_on_folds)
    judged = learner.judged_everywhere(solved, validated)
    if validated is not None:
        validated = judged.on_folds(validated, list(solved.paths))
    metrics = solved.metrics(validated, judged.on_sets())
    metrics["measure"] = measure
    metrics["baselines"] |= references(learner.run, data)
    if validated is not None:
        metrics["beside"] = {}
        for name in (LINEAR, TREES):
            if name in metrics["baselines"]:
                reference = metrics["baselines"][name]
                metrics["beside"][name] = behind_it(validated, measure, reference)
        report_honestly(metrics, validated, honest_values(learner, validated, choices))
    if data.choice is not None:
        metrics["candidates"] = data.choice.listed()
        metrics["constant"] = beside_constant(data, metrics, validated)
    if data.classes is None:
        return metrics
    return {**metrics, "classes": classes_by(learner, solved, validated, judged)}


def classes_by(
    learner: Squared, solved: Solved, validated: FoldAnswers | None, judged: Judged
) -> dict[str, Any]:
    """Return how the model tells classes apart, by the rows that are trusted most."""
    classes = learner.data.classes
    assert classes is not None
    rows = TRAIN
    parts: Sequence[int | str] = [TRAIN]
    if solved.test is not None:
        rows = TEST
        parts = [TEST]
    elif validated is not None:
        rows = "validation"
        parts = validated.folds
    sums = judged.of_rule(next(iter(solved.paths)), parts)
    is_calibrated = learner.job.options.chosen_loss == "logistic"
    return class_report(sums.of_classes(0), classes.texts, rows, calibrated=is_calibrated)


def beside_constant(
    data: LandmarkData, metrics: Mapping[str, Any], validated: FoldAnswers | None
) -> dict[str, Any]:
    """Say what the best constant answers, and whether the model is better by a standard error."""
    assert data.choice is not None
    comparison = data.choice.comparison
    measure = metrics["measure"]
    answer = "the mean"
    if data.classes is not None and measure == "error":
        most_frequent = int(np.argmax(data.classes.train_weight))
        answer = f"`{data.classes.texts[most_frequent]}`"
    better = not comparison.is_constant
    of_candidates = comparison.measures(measure).get(measure)
    if better and validated is not None and of_candidates is not None:
        constant = of_candidates[0, list(validated.folds)]
        losses = np.array([entry[measure] for entry in metrics["folds"]], dtype=float)
        better = is_better(losses, constant, validated.weight)
    return {"answer": answer, "model_is_better": better}


def honest_values(
    learner: Squared, validated: FoldAnswers, choices: Sequence[FoldChoice | None]
) -> dict[str, np.ndarray]:
    """Return measures (n_folds,) of the model, as if no fold had a say in what was chosen."""
    folds = list(validated.folds)
    names = [name for name in validated.answers[0][0] if "/" not in name]
    measures = {name: validated.values(0, name)[-1] for name in names}
    honest = dict[str, np.ndarray]()
    constant = None
    choice = learner.data.choice
    if choice is not None and not choice.is_by_parts and choices_were_made(learner):
        comparison = choice.comparison
        of_candidates = comparison.measures(learner.data.form.main_measure)
        for name, values in of_candidates.items():
            measured = np.full(len(comparison.weight), np.nan)
            measured[folds] = measures[name]
            honest[name] = comparison.without_a_say(values, measured)[folds]
        # What is hard to predict in a fold is so for the mean: of the same rows, that is taken off.
        if np.array_equal(comparison.weight[folds], validated.weight) and "mse" in of_candidates:
            constant = of_candidates["mse"][0, folds]
    for fold_choice in choices:
        if fold_choice is not None:
            mse = honest.get("mse", measures["mse"])
            honest["mse"] = mse + fold_choice.added
    if "mse" in honest and "r2" in measures:
        honest["r2"] = explained(honest["mse"], learner.data.deviation**2)
        if constant is not None:
            honest["r2"] = explained_by_fold(honest["mse"], constant, validated.weight)
    return honest


def choices_were_made(learner: Squared) -> bool:
    """Return whether folds chose a similarity, metric, width or ridge."""
    choice = learner.data.choice
    assert choice is not None
    return learner.job.options.ridge is None or len(choice.comparison.forms) > 2


def report_honestly(
    metrics: Mapping[str, Any], validated: FoldAnswers, honest: Mapping[str, np.ndarray]
) -> None:
    """Set what folds say of the model."""
    point = metrics["curves"][0]["points"][-1]["validation"]
    for measure, values in honest.items():
        point[measure] = number_or_none(over_folds(values, validated.weight).mean)
        for entry, value in zip(metrics["folds"], values, strict=True):
            entry[measure] = number_or_none(value)


def behind_it(
    validated: FoldAnswers, measure: str, reference: Mapping[str, Any]
) -> dict[str, float | None]:
    """Return how far the model is behind a reference, which is judged on a sample of a fold."""
    by_fold = {entry["fold"]: entry[measure] for entry in reference.get("folds", ())}
    errors = np.array([by_fold.get(fold, np.nan) for fold in validated.folds])
    behind = over_folds(validated.values(0, measure)[-1] - errors, validated.weight)
    error = number_or_none(behind.standard_error)
    return {"behind": number_or_none(behind.mean), "standard_error": error}
