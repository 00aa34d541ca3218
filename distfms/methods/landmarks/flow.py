"""Learning with similarities to landmarks, from rows to models of few landmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Answer, Finished, FoldAnswers, Job, Run
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.moments import (
    Solved,
    TrainMembers,
    fold_work,
    metrics_of,
    on_folds,
    scored,
)
from distfms.methods.frame.passes import Sums
from distfms.methods.frame.row_predictor import sources_of
from distfms.methods.frame.tuning import choose, choose_options
from distfms.methods.landmarks.fit import TOLD
from distfms.methods.landmarks.form import LandmarkForm
from distfms.methods.landmarks.learners import ByPasses, ByRanking, Squared
from distfms.methods.landmarks.losses import Margin, OrdinalMargin
from distfms.methods.landmarks.metric import told
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.read import LandmarkData, read_data
from distfms.methods.landmarks.references import TREES, references
from distfms.methods.landmarks.similarity import user_function
from distfms.methods.landmarks.squared import COLUMNS, MEASURES, Linear, ladder, side_by_side
from distfms.stats.base import FoldMeans, below, over_folds
from distfms.stats.classification import class_report

#: Part of the least error by which more landmarks must lower it to be kept.
_NO_GAIN = 0.005
#: Rows whose predictions the report shows.
_SHOWN_ROWS = 400


def landmarks(run: Run, job: Job) -> Finished:
    """Take landmarks from the rows, and fit linear models on the similarities to them.

    Steps: `categories` (levels of text), `classes` (of the target) or `queries` (gains of a
    ranking), `landmarks` (with a sample of the rows), `metric` (learned from the target),
    `statistics` (co-moments of similarities), `tune` (with a grid, each point by the best of
    several similarities), `similarities` (the best of several), `number` (as many landmarks as
    pay), `select` (the landmarks of every model; where fits take passes over the rows, the models
    themselves), `evaluate` (errors on all rows, folds and held-out rows, and those of references).
    """
    form: LandmarkForm = job.form.tried(job.tune)
    for name in form.options.functions:
        user_function(name)  # now rather than after hours; whoever only checks a spec runs no code
    data = read_data(run, form)
    learner = learner_of(run, job, data)
    options, tuning = choose_options(run, job, learner.points)
    learner = with_best_first(learner, options)
    options = with_number(learner, options)
    procedure, train = learner.procedure(options), TrainMembers(data.statistics)
    problem = procedure.problem(train)
    paths = run.step("select", lambda: learner.search(procedure, problem))
    solved = Solved(procedure, data.statistics, train, problem, paths)
    metrics = run.step("evaluate", lambda: evaluate(learner, solved))
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
    return kind(run, job, data, tuple(own.label for own in job.form.similarities))


def with_best_first(learner: Squared, options: LandmarksOptions) -> Squared:
    """Return the learner with the best of several similarities first; step ``similarities``."""
    if len(learner.labels) < 2:
        return learner
    compared = partial(compare_similarities, learner, options)
    best = learner.run.step("similarities", compared, "similarities.json")["best"]
    return learner.with_first(best)


def compare_similarities(learner: Squared, options: LandmarksOptions) -> dict[str, Any]:
    """Compare the similarities by cross-validation, and say which are tied with the best."""
    measure = learner.data.form.main_measure
    found, choice = learner.compared(options)
    best, errors = learner.labels[choice.best], choice.mean.tolist()
    away = [behind(found, measure, i, choice.best) for i in range(len(learner.labels))]
    pairs = zip(learner.labels, away, strict=True)
    tied = [name for name, by in pairs if name != best and by.mean <= by.standard_error]
    learner.run.note(
        f"Of {len(learner.labels)} similarities, {best} is the best in cross-validation"
        + (f"; within one standard error: {', '.join(tied)}." if tied else ".")
    )
    own = dict(zip(learner.labels, errors, strict=True))
    return {"best": best, "measure": measure, "errors": own}


def with_number(learner: Squared, options: LandmarksOptions) -> LandmarksOptions:
    """Return the options with as many landmarks as pay, where folds tell; step ``number``."""
    if not options.counts or options.keep is not None or learner.job.n_folds < 2:
        return options
    keep = learner.run.step("number", partial(count_landmarks, learner, options))
    return options.model_copy(update={"keep": keep})


def count_landmarks(learner: Squared, options: LandmarksOptions) -> int:
    """Return the least number whose cross-validated error is about the least, and say so."""
    procedure, n_rows = learner.procedure(options), learner.data.landmarks.sample.train().n_rows
    most = procedure.keep
    sizes = np.array(ladder(most), dtype=float)
    items = [(procedure.rules[0], sizes)]
    work = fold_work(learner.job, partial(scored, procedure), items, [procedure])
    found = learner.on_folds(work)
    errors = choose(found.values(0, "mse"), found.weight, "best", False).mean
    keep = int(sizes[np.argmax(errors <= np.nanmin(errors) * (1.0 + _NO_GAIN))])
    if keep < most:
        learner.run.note(
            f"{keep:,} of up to {most:,} landmarks are kept: more of them lower the error in "
            f"cross-validation by no more than {_NO_GAIN:.1%}."
        )
    elif most < n_rows:
        learner.run.note(
            f"{most:,} landmarks are kept, the most that are tried here: the last "
            f"{most - sizes[-2]:,.0f} lowered the error in cross-validation by "
            f"{1.0 - errors[-1] / errors[-2]:.1%}. Set `landmarks` to try more."
        )
    return keep


def behind(validated: FoldAnswers, measure: str, one: int, other: int) -> FoldMeans:
    """Return how much worse the last model of one item is than that of another, by folds."""
    worse = validated.values(one, measure)[-1] - validated.values(other, measure)[-1]
    return over_folds(-worse if MEASURES[measure] else worse, validated.weight)


# --- evaluation -----------------------------------------------------------------------------------


def evaluate(learner: Squared, solved: Solved) -> dict[str, Any]:
    """Return the content of ``metrics.json``."""
    data, measure, options = learner.data, learner.data.form.main_measure, learner.job.options
    validated = on_folds(learner.run, learner.job, solved, evaluate=learner.on_folds)
    scores = learner.scores(solved)
    measured = {label: measures_of(own) for label, own in scores.items()}
    found = metrics_of(solved, validated, measured)
    found["measure"] = measure
    if COLUMNS in options.baselines:
        found |= beside_columns(learner, found, validated)
    found["baselines"] |= references(learner.run, data)
    if validated is not None:
        trees = found["baselines"].get(TREES)
        found["beside"] = {TREES: behind_it(validated, measure, trees)} if trees else {}
    if validated is not None:  # the fewest landmarks within one standard error
        values = validated.values(0, measure)
        if np.isfinite(values).all(axis=-1).any():  # a ranking needs grades that differ
            rule = choose(values, validated.weight, "one_standard_error", MEASURES[measure])
            found["enough"] = float(found["curves"][0]["points"][rule.chosen]["budget"])
    if data.classes is None:
        return {**found, "predicted": predict_sample(data, solved)}
    rows = "train" if validated is None else "validation"
    rows = rows if solved.test is None else "test"
    answers = [scores[solved.path.label].get(rows, {})]
    if rows == "validation" and validated is not None:
        answers = [*validated.answers[0]]
    sums = reduce(Sums.merge, [Sums(below(TOLD, own)) for own in answers], Sums({})).arrays
    calibrated = options.chosen_loss == "logistic"
    report = class_report(sums, data.classes.texts, rows, calibrated=calibrated)
    return {**found, "classes": report}


def measures_of(scores: Mapping[str, Answer]) -> dict[str, Answer]:
    """Return scores by set of rows, without what else was counted."""
    return {
        rows: {name: a for name, a in own.items() if not name.startswith(TOLD)}
        for rows, own in scores.items()
    }


def beside_columns(
    learner: Squared, found: Mapping[str, Any], validated: FoldAnswers | None
) -> dict[str, Any]:
    """Make baselines of the last curve, of the columns: the models on none and on all.

    Return how far the model is behind that on all columns, where folds tell.
    """
    points, baselines = found["curves"].pop()["points"], found["baselines"]
    del baselines[COLUMNS]
    on_none, on_all = learner.references
    baselines[on_none] = points[0]
    if not points[-1]["budget"]:  # the columns are too many, or similarities
        return {}
    baselines[on_all] = points[-1]
    if validated is None:
        return {}
    by = behind(validated, learner.data.form.main_measure, 0, len(validated.answers) - 1)
    return {"linear": how_far(by)}


def behind_it(
    validated: FoldAnswers, measure: str, reference: Mapping[str, Any]
) -> dict[str, float | None]:
    """Return how far the model is behind a reference, which is judged on a sample of a fold."""
    known = {own["fold"]: own[measure] for own in reference.get("folds", ())}
    errors = np.array([known.get(fold, np.nan) for fold in validated.folds])
    return how_far(over_folds(validated.values(0, measure)[-1] - errors, validated.weight))


def how_far(by: FoldMeans) -> dict[str, float | None]:
    """Return how far the model is behind another, as ``metrics.json`` has it."""
    error = number_or_none(by.standard_error)
    return {"behind": number_or_none(by.mean), "standard_error": error}


def predict_sample(data: LandmarkData, solved: Solved) -> dict[str, Any]:
    """Predict some sampled rows: held-out ones where there are any."""
    sample = data.landmarks.sample
    rows = (sample.test if sample.test.n_rows else sample.train()).first(_SHOWN_ROWS)
    path, procedure = solved.path, solved.procedure
    model = procedure.models(solved.problem, path, [len(path.order)])[-1]
    mapping = data.maps[path.label]
    n = len(mapping.scale)
    similarities = mapping(rows.values[:n])[model.landmarks]
    return {
        "rows": "test" if sample.test.n_rows else "train",
        "true": rows.values[n].tolist(),
        "predicted": procedure.decoded(model, model.scores(similarities)).tolist(),
    }


# --- what is written ------------------------------------------------------------------------------


def selection_of(data: LandmarkData, solved: Solved) -> dict[str, Any]:
    """Return the content of ``selection.json``."""
    path, options, scale = solved.path, data.form.options, data.maps[solved.path.label].scale
    names = [n for n, s in zip(data.plan.feature_names, scale, strict=True) if s > 0]
    content = {
        "method": "landmarks",
        "task": options.task,
        "similarity": path.label,
        "parameters": dict(data.maps[path.label].similarity.parameters),
        "landmarks": data.landmarks.ids[data.maps[path.label].similarity.source][
            path.order
        ].tolist(),
        "order": path.order.tolist(),
        "n_candidates": solved.procedure.candidates,
        "scaling": options.used_scaling,
        "ridge": path.ridge,
        "metric": told(data.metrics.get(path.label, ()), names),
        **path.progress,
    }
    if data.form.by_passes:
        content |= {"loss": options.chosen_loss, "classes": data.classes and data.classes.labels}
    return content


def model_of(data: LandmarkData, solved: Solved) -> dict[str, Any]:
    """Return what prediction needs: the models of all sizes and their landmarks, but no data."""
    form, plan, path, procedure = data.form, data.plan, solved.path, solved.procedure
    sizes = procedure.grid(path).astype(int)
    models = procedure.models(solved.problem, path, sizes.tolist())
    mapping = data.maps[path.label].restricted(path.order)
    kept, sources = list(plan.feature_names), sources_of(plan)
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
    options, content = data.form.options, dict[str, Any]()
    if options.clip and options.task in ("regression", "sparse"):
        content["range"] = data.landmarks.range.tolist()
    if not data.form.by_passes:
        return content
    content["classes"], loss = data.classes and data.classes.labels, procedure.loss
    if isinstance(loss, Margin):
        content["probabilities"] = loss.logistic
    if isinstance(loss, OrdinalMargin):
        content["thresholds"] = [loss.thresholds(model.extra).tolist() for model in models]
    return content
