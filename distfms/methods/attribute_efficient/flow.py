"""Attribute-efficient regression, from rows of which few attributes are observed to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.attribute_efficient.candidates import (
    alone_beside,
    candidates_of,
    fill_of,
    has_labels,
    judge_of,
    linear_of,
    measures_of,
    name_of,
    pooled,
    predictor_of,
)
from distfms.methods.attribute_efficient.cells import LINEAR, MIXED, TREES, Trees
from distfms.methods.attribute_efficient.from_pairs import Learned
from distfms.methods.attribute_efficient.learner import improvement_ratio
from distfms.methods.attribute_efficient.learners import (
    Learner,
    check_online,
    check_pairs,
    learned_by_chains,
    learner_of,
    procedure_of,
    training_rows,
)
from distfms.methods.attribute_efficient.lessons import curves, design_of, ends, lessons_of
from distfms.methods.attribute_efficient.predictors import SideBySide
from distfms.methods.attribute_efficient.procedure import on_rows
from distfms.methods.frame.choose import best, chosen_without
from distfms.methods.frame.contract import Finished, Job, Run
from distfms.methods.frame.cross_validation import FoldWork
from distfms.methods.frame.judge import Judge, LossSums
from distfms.methods.frame.moments import Solved
from distfms.methods.frame.tuning import ChosenOptions, choose_options
from distfms.report.formatting import percent
from distfms.stats.base import Bundle, Members, joined, number_or_none
from distfms.stats.classification import class_report
from distfms.stats.folds import Answer, FoldAnswers


def attribute_efficient(run: Run, job: Job) -> Finished:
    """Learn a ridge or lasso from a few attributes of each training row.

    Steps: `draws` (for pairs, unless all attributes are drawn alike: which come first),
    `statistics` (moments, norms and counts; for pairs also moments of the pairs observed), `tune`
    (with a grid), `select` (a solve from the pairs, or a chain that learns online), `evaluate`
    (what the baselines learn from more and more examples, and the errors of all models on training
    rows, folds and held-out rows; beside pairs, of LightGBM on the same cells and of rows in full
    that cost as much or, where rows have gaps, of a ridge on imputed means).
    """
    learner = learner_of(run, job)
    statistics = run.step("statistics", lambda: read_statistics(run, learner))
    train = statistics.train()
    options, tuning = tuned(run, job, statistics)
    job = replace(job, options=options)
    learner = replace(learner, job=job)
    procedure = procedure_of(job, options, draws=learner.draws)
    paths = run.step("select", lambda: search(run, learner, procedure, train))
    solved = Solved(procedure, statistics, train, train, paths)
    metrics = run.step("evaluate", lambda: evaluate(run, learner, solved))
    if metrics["candidate"] is not None:
        solved = with_candidate(solved, metrics["candidate"])
    return Finished(
        selection=selection_of(learner, solved),
        **model_of(job, solved),
        metrics=metrics,
        judge=job.form.judge(job.name, coded=job.form.coded),
        tuning=tuning,
        summary=learner.summary,
    )


def read_statistics(run: Run, learner: Learner) -> Bundle:
    """Add up moments of all rows; refuse what nothing can be learned from."""
    statistics = run.reduce(learner.reader)
    form = learner.job.form
    train = statistics.train()
    form.require_rows([part.n_rows for part in statistics["counts"].parts])
    form.check_values(train)
    form.tell_counts(run, form.row_plan, statistics["counts"])
    if learner.draws is None:
        check_online(run, learner.job, train)
    else:
        check_pairs(run, train)
    return statistics


def tuned(run: Run, job: Job, statistics: Bundle) -> ChosenOptions:
    """Choose the options of a job by cross-validation."""
    by_rows = partial(evaluate_with_rows, run, job, statistics)
    return choose_options(run, job, statistics, partial(procedure_of, job), by_rows)


def search(run: Run, learner: Learner, procedure: Any, train: Members) -> dict[str, Learned]:
    """Return models of all training rows by name, the chosen one first."""
    job = learner.job
    if learner.draws is None:
        learned = learned_by_chains(run, job, train, [procedure.lesson(train)])
        paths = dict(zip(procedure.names, learned, strict=True))
    else:
        paths = procedure.search_all(run, train)
    first = next(iter(paths.values()))
    in_all = first.n_examples * len(job.features)
    scanned = in_all if job.options.scanned_for else 0
    run.account(attributes={"observed": first.n_seen, "scanned": scanned})
    return paths


def evaluate_with_rows(run: Run, job: Job, statistics: Bundle, work: FoldWork) -> FoldAnswers:
    """Evaluate every item on every fold, which is given its rows, on actors where that pays."""
    fill = fill_of(statistics.train())
    # What is solved from pairs knows by itself what to make of missing values.
    if job.options.solver == "pairs":
        fill = np.full_like(fill, np.nan)
    rows = training_rows(job, fill)
    held_bytes = work.held_bytes
    if rows.keep:
        held_bytes += rows.n_bytes
    evaluate_rows = partial(on_rows, rows, work.evaluate)
    work = replace(work, evaluate=evaluate_rows, held_bytes=held_bytes)
    return work.on_actors(run, statistics)


# --- evaluation -----------------------------------------------------------------------------------


def evaluate(run: Run, learner: Learner, solved: Solved) -> dict[str, Any]:
    """Return the content of ``metrics.json``."""
    job = learner.job
    train = solved.train
    by_rows = partial(evaluate_with_rows, run, job, solved.statistics)
    validated = solved.on_folds(run, job, evaluate=by_rows)
    candidate = None
    if job.options.solver == "pairs":
        solved, validated, candidate = with_chosen(run, solved, validated)
    if validated is not None:
        validated = pooled(validated)
    lessons = lessons_of(job.options, train, job.seed) if job.options.solver == "online" else []
    learned = learned_by_chains(run, job, train, lessons)
    judge = judge_of(job.options, train)
    sums = sums_of(run, job, solved, learned, judge)
    measures = {rows: measures_of(judge, of_rows) for rows, of_rows in sums.items()}
    shown = at_ends = ends(solved.paths, measures, validated)
    if job.options.solver == "online":
        losses = {
            rows: values["relative_loss"][len(at_ends) :] for rows, values in measures.items()
        }
        shown = curves(lessons, learned, losses, job.options.repeats)
    of_model = {}
    for rows, values in measures.items():
        of_model[rows] = {name: number_or_none(value[0]) for name, value in values.items()}
    baselines = {curve["name"]: curve["points"][-1] for curve in (*shown, *at_ends)}
    algorithm = at_ends[0]["name"]
    del baselines[algorithm]
    return {
        **solved.head(validated, of_model),
        **classes_of(job, train, sums),
        "candidate": candidate,
        "algorithm": algorithm,
        "curves": shown,
        "baselines": baselines,
    }


def classes_of(job: Job, train: Members, sums: Mapping[str, LossSums]) -> dict[str, Any]:
    """Return the report of classes, where the targets are labels."""
    if not has_labels(train):
        return {}
    positive = job.options.positive
    names = ["-1", "1"] if positive is None else ["others", f"{positive:g}"]
    rows = [*sums][-1]
    return {"classes": class_report(sums[rows].of_classes(0), names, rows, calibrated=False)}


def with_chosen(
    run: Run, solved: Solved, validated: FoldAnswers | None
) -> tuple[Solved, FoldAnswers | None, int]:
    """Put the candidate that folds choose first, by its name; return also its number.

    A note says what was chosen. Of each fold is reported what all other folds choose. Without folds
    it is the first candidate after the mean.
    """
    candidates = candidates_of(solved.path, solved.train)
    if validated is None:
        return with_candidate(solved, 1), None, 1
    losses = validated.values(0, "mse")
    number = best(losses, validated.weight)
    choices = chosen_without(losses, validated.weight)
    first, *compared = validated.answers
    answers = [picked(first, choices)]
    answers += [picked(first, np.full_like(choices, n)) for n in alone_beside(candidates, number)]
    answers += [picked(answer, np.full_like(choices, -1)) for answer in compared]
    share = candidates[number].share
    if number == 0:
        run.note(
            "In cross-validation no model is better than the mean of the target, which is what "
            "this model predicts. Use more rows, or more attributes of each."
        )
    elif share > 0:
        run.note(
            f"Chosen by cross-validation: LightGBM makes {percent(share)} of each prediction, and "
            "a linear model the rest."
        )
    solved = with_candidate(solved, number)
    return solved, replace(validated, answers=tuple(answers)), number


def with_candidate(solved: Solved, number: int) -> Solved:
    """Return what was found with a candidate first, then linear model and LightGBM by themselves.

    All are by name; candidates have the numbers of `candidates_of`.
    """
    candidates = candidates_of(solved.path, solved.train)
    numbers = [number, *alone_beside(candidates, number)]
    paths = {name_of(candidates[n], n, solved.procedure.linear): candidates[n] for n in numbers}
    _, *compared = solved.paths
    paths |= {name: solved.paths[name] for name in compared}
    return replace(solved, paths=paths)


def picked(answers: Sequence[Answer], numbers: np.ndarray) -> tuple[Answer, ...]:
    """Return measures of one candidate on each fold, without models: their names have a slash."""
    picked_answers = []
    for answer, number in zip(answers, numbers.tolist(), strict=True):
        measures = {name: values[[number]] for name, values in answer.items() if "/" not in name}
        picked_answers.append(measures)
    return tuple(picked_answers)


def sums_of(
    run: Run, job: Job, solved: Solved, by_chains: Sequence[Learned], judge: Judge
) -> dict[str, LossSums]:
    """Judge models on training and held-out rows, by one pass for all of them.

    Those that were found are the first, and the one that ships is the very first.
    """
    train = solved.train
    models = [predictor_of(learned, train) for learned in solved.paths.values()]
    if by_chains:
        models.append(linear_of(by_chains, train))
    n_scores = len(solved.paths) + len(by_chains)
    question = judge.question(SideBySide(models), n_scores=n_scores)
    sums = Judge.by_pass(run, job.form.labelled, {"models": question})["models"]
    by_rows = {"train": sums.train(), "test": sums.test}
    return {rows: by_rows[rows] for rows in solved.sets}


# --- what is written ------------------------------------------------------------------------------


def selection_of(learner: Learner, solved: Solved) -> dict[str, Any]:
    """Return the content of ``selection.json``."""
    options = learner.job.options
    names = learner.job.features
    learned = solved.path
    moments = solved.train.get("observed", solved.train["moments"])
    ratio = improvement_ratio(options.penalty, moments.second_moment[:-1])
    linear = linear_among(solved)
    content = {
        "method": learner.job.name,
        "algorithm": next(iter(solved.paths)),
        "penalty": options.penalty,
        "attributes_per_example": options.attributes_per_example,
        "examples": learned.n_examples,
        "attributes_seen": learned.n_seen,
        "attributes_in_all": learned.n_examples * len(names),
        "scanned_for": options.scanned_for,
        "second_moments": dict(zip(names, moments.second_moment[:-1].tolist(), strict=True)),
        "sampling": dict(zip(names, linear.sampling.tolist(), strict=True)),
        "improvement_ratio": ratio,
        "intercept": linear.intercept,
        "coefficients": dict(zip(names, linear.weights.tolist(), strict=True)),
        "draws": options.sampling,
    }
    if learner.draws is None:
        design = design_of(options, solved.train)
        content |= {"bound": design.bound, "norm": learned.norm, "step": learned.step}
        if design.first_examples:
            content["first_examples"] = design.first_examples
    if learned.share > 0.0:
        gains = Trees(learned.trees).gains().tolist()
        content["gains"] = dict(zip(names, gains, strict=True))
    return content


def linear_among(solved: Solved) -> Any:
    """Return the linear model, beside trees alone that of pairs."""
    path = solved.path
    return replace(path, share=0.0) if path.share == 1.0 else path


def model_of(job: Job, solved: Solved) -> dict[str, Any]:
    """Return ``model.json``, and the weights with what missing values are taken for."""
    learned = linear_among(solved)
    share = solved.path.share
    form = job.form
    kind = LINEAR
    if share > 0.0:
        kind = TREES if share == 1.0 else MIXED
    model = {
        "kind": kind,
        "names": form.roles.features,
        "sources": form.sources(form.row_plan),
        "id": form.roles.id,
        "target": form.roles.target[0],
        "positive": job.options.positive,
        "intercept": learned.intercept,
    }
    if kind == MIXED:
        model["share"] = share
    linear = linear_of([learned], solved.train)
    arrays = {"weights": learned.weights, "fill": linear.fill, "limits": linear.limits}
    if share > 0.0:
        arrays["trees"] = np.frombuffer(solved.path.trees.encode(), dtype=np.uint8)
    gaps: dict[str, np.ndarray] = {}
    if learned.gaps is not None and kind != TREES:
        gaps = joined({"gaps": learned.gaps.to_arrays()})
    return {"model": model, "weights": {**arrays, **gaps}}
