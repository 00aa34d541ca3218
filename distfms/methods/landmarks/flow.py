"""Learning with similarities to landmarks, from rows to models of few landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.methods.frame.choose import best, fewest
from distfms.methods.frame.contract import Finished, Job, Run
from distfms.methods.frame.cross_validation import FoldWork
from distfms.methods.frame.moments import Solved, scored
from distfms.methods.frame.tuning import choose_options
from distfms.methods.landmarks.candidates import FoldChoice
from distfms.methods.landmarks.evaluate import evaluate
from distfms.methods.landmarks.form import LandmarkForm
from distfms.methods.landmarks.learners import ByPasses, ByRanking, Squared
from distfms.methods.landmarks.metric import described
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import LandmarkData, read_data
from distfms.methods.landmarks.similarity import user_function
from distfms.methods.landmarks.squared import Linear, ladder, ridge_errors, side_by_side
from distfms.solve.losses import Margin, OrdinalMargin

#: Ridges that are tried for more landmarks and rows, in units of that of fewer.
_RIDGE_FACTORS = np.logspace(0.5, -1.5, 5)
#: The same where nothing has chosen a ridge before.
_WIDE_FACTORS = np.logspace(4.0, -4.0, 17)


def landmarks(run: Run, job: Job) -> Finished:
    """Take landmarks from the rows, and fit linear models on the similarities to them.

    Steps: `categories` (levels of text), `classes` (of the target) or `queries` (gains of a
    ranking), `landmarks` (with a sample of the rows), `candidates` (similarity, metric, width and
    ridge, compared on the sample), `statistics` (co-moments of similarities), `similarities` (of a
    ranking, by NDCG), `ridges` (again, of all landmarks and rows), `tune` (with a grid), `number`
    (as many landmarks as pay), `select` (the landmarks of every model; where fits take passes over
    the rows, the models themselves), `evaluate` (errors on all rows, folds and held-out rows, and
    those of references).
    """
    form: LandmarkForm = job.form
    for name in form.options.functions:
        user_function(name)  # now rather than after hours; whoever only checks a spec runs no code
    data = read_data(run, form)
    learner = learner_of(run, job, data)
    learner = with_best_ranking(learner)
    learner, ridge_choice = with_ridges(learner)
    options, tuning = choose_options(run, job, data.statistics, learner.procedure, learner.on_folds)
    options, number_choice = with_number(learner, options)
    procedure, train = learner.procedure(options), data.statistics.train()
    problem = procedure.problem(train)
    paths = run.step("select", lambda: learner.search(procedure, problem))
    solved = Solved(procedure, data.statistics, train, problem, paths)
    choices = [ridge_choice, number_choice]
    metrics = run.step("evaluate", lambda: evaluate(learner, solved, choices))
    return Finished(
        selection=selection_of(data, solved),
        **model_of(data, solved),
        metrics=metrics,
        judge=form.judge(job.name, has_classes=form.has_classes),
        tuning=tuning,
        summary=form.summary(data.plan),
    )


# --- the learner ----------------------------------------------------------------------------------


def learner_of(run: Run, job: Job, data: LandmarkData) -> Squared:
    """Return what fits the models of the task and loss."""
    kind = ByRanking if job.options.task == "ranking" else Squared
    kind = ByPasses if data.form.by_passes else kind
    return kind(run, job, data, data.labels)


def with_best_ranking(learner: Squared) -> Squared:
    """Return the learner with the best of several similarities of a ranking; step `similarities`.

    Others were compared on the sample, which has no whole queries.
    """
    labels = learner.labels
    if learner.data.choice is not None or len(labels) < 2:
        return learner
    place = learner.run.step("similarities", partial(best_ranking, learner))
    others = [label for label in labels if label != labels[place]]
    return replace(learner, labels=(labels[place], *others))


def best_ranking(learner: Squared) -> int:
    """Return the place of the similarity whose rankings are the best on the folds."""
    procedure = learner.procedure(learner.job.options)
    rules = procedure.rules[: len(learner.labels)]
    ends = np.array([float(procedure.keep)])
    items = [(rule, ends) for rule in rules]
    work = FoldWork.of_job(learner.job, partial(scored, procedure), items, [procedure] * len(items))
    answers = learner.on_folds(work)
    measure = learner.data.form.main_measure
    values = [answers.values(number, measure)[0] for number in range(len(rules))]
    return best(-np.array(values), answers.weight)


def with_ridges(learner: Squared) -> tuple[Squared, FoldChoice | None]:
    """Return the learner with ridges chosen of all landmarks and rows; step ``ridges``.

    The sample chose among ridges with few landmarks and rows: more of them need less of a ridge.
    """
    data = learner.data
    is_given = learner.job.options.ridge is not None
    is_exact = data.is_compared_whole(learner.procedure(learner.job.options).candidates)
    if is_given or is_exact or data.form.by_passes or learner.job.n_folds < 2:
        return learner, None
    chosen = learner.run.step("ridges", partial(choose_ridges, learner))
    maps = dict(data.maps)
    for name, mapping in maps.items():
        label = name.partition("@")[0]
        if label in chosen:
            maps[name] = replace(mapping, ridge=chosen[label].value)
    choice = next(iter(chosen.values()))
    return replace(learner, data=replace(data, maps=maps)), choice


def choose_ridges(learner: Squared) -> dict[str, FoldChoice]:
    """Return the ridge of each similarity that is best on the folds, by their co-moments."""
    procedure = learner.procedure(learner.job.options)
    factors = _RIDGE_FACTORS if learner.data.choice is not None else _WIDE_FACTORS
    labels = [rule.name for rule in procedure.rules[: len(learner.labels)]]
    ridges = [learner.data.maps[label].ridge * factors for label in labels]
    items = list(zip(labels, ridges, strict=True))
    errors = partial(ridge_errors, procedure)
    procedures = [procedure] * len(items)
    work = FoldWork.of_job(learner.job, errors, items, procedures)
    answers = learner.fitted_on_folds(work)
    chosen = dict[str, FoldChoice]()
    for number, (label, tried) in enumerate(items):
        choice = FoldChoice.of(tried, answers, number, best)
        chosen[label] = choice
    return chosen


def with_number(
    learner: Squared, options: LandmarksOptions
) -> tuple[LandmarksOptions, FoldChoice | None]:
    """Return the options with as many landmarks as pay, where folds tell; step ``number``."""
    choice = learner.data.choice
    is_constant = choice is not None and choice.comparison.is_constant
    if is_constant and options.intercept and options.keep is None:
        return options.model_copy(update={"keep": 0}), None
    if not options.counts or options.keep is not None or learner.job.n_folds < 2:
        return options, None
    number = learner.run.step("number", partial(count_landmarks, learner, options))
    return options.model_copy(update={"keep": int(number.value)}), number


def count_landmarks(learner: Squared, options: LandmarksOptions) -> FoldChoice:
    """Return the fewest landmarks that are not behind the best number of them, and say so."""
    procedure = learner.procedure(options)
    most = procedure.keep
    sizes = np.array(ladder(most), dtype=float)
    items = [(procedure.rules[0], sizes)]
    work = FoldWork.of_job(learner.job, partial(scored, procedure), items, [procedure])
    answers = learner.fitted_on_folds(work)
    choice = FoldChoice.of(sizes, answers, 0, fewest)
    if choice.value < most:
        learner.run.note(
            f"{choice.value:,.0f} of up to {most:,} landmarks are kept: more of them do not lower "
            "the error in cross-validation by more than a standard error."
        )
    return choice


# --- what is written ------------------------------------------------------------------------------


def selection_of(data: LandmarkData, solved: Solved) -> dict[str, Any]:
    """Return the content of ``selection.json``."""
    path = solved.path
    options = data.form.options
    mapping = data.maps[path.label]
    named = zip(data.plan.feature_names, mapping.scale, strict=True)
    names = [name for name, scale in named if scale > 0]
    kind = "none" if data.choice is None else data.choice.form(path.label).metric
    content = {
        "method": "landmarks",
        "task": options.task,
        "similarity": path.label,
        "parameters": dict(mapping.similarity.parameters),
        "landmarks": data.landmarks.ids[path.order].tolist(),
        "order": path.order.tolist(),
        "n_candidates": solved.procedure.candidates,
        "scaling": options.used_scaling,
        "ridge": path.ridge,
        "metric": described(kind, mapping.transform, names),
        **path.progress,
    }
    if data.form.by_passes:
        content |= {"loss": options.chosen_loss, "classes": data.classes and data.classes.labels}
    return content


def model_of(data: LandmarkData, solved: Solved) -> dict[str, Any]:
    """Return what prediction needs: the models of all sizes and their landmarks, but no data."""
    form = data.form
    plan = data.plan
    path = solved.path
    procedure = solved.procedure
    sizes = procedure.grid(path).astype(int)
    models = procedure.models(solved.problem, path, sizes.tolist())
    mapping = data.maps[path.label].restricted(path.order)
    kept = list(plan.feature_names)
    sources = form.sources(plan)
    if form.options.is_precomputed:
        kept = [plan.feature_names[i] for i in path.order]
        sources = dict.fromkeys(kept)
    model = {
        "method": "landmarks",
        "task": form.options.task,
        "id": form.roles.id or form.roles.query,
        "target": form.roles.target[0],
        "sources": sources,
        "features": kept,
        "similarity": mapping.similarity.name,
        "parameters": dict(mapping.similarity.parameters),
        **decoding(data, procedure, models),
    }
    weights = {
        "sizes": sizes,
        "weights": side_by_side(models),
        "intercept": np.array([model.offset for model in models]),
        **mapping.arrays,
    }
    return {"model": model, "weights": weights}


def decoding(data: LandmarkData, procedure: Any, models: Sequence[Linear]) -> dict[str, Any]:
    """Return what ``model.json`` says of how scores become predictions."""
    options = data.form.options
    content = dict[str, Any]()
    if options.clip and options.task in ("regression", "sparse"):
        content["range"] = data.landmarks.range.tolist()
    if not data.form.by_passes:
        return content
    content["classes"] = data.classes and data.classes.labels
    loss = procedure.loss
    if isinstance(loss, Margin):
        content["probabilities"] = loss.logistic
    if isinstance(loss, OrdinalMargin):
        content["thresholds"] = [loss.thresholds(model.extra).tolist() for model in models]
    return content
