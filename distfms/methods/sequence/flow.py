"""Feature-group sequencing, from rows to models of what each budget buys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Finished, FinishedRun, Job, Run
from distfms.methods.frame.read import spans_of
from distfms.methods.frame.tuning import choose_options
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.choice import Candidate, grid_of
from distfms.methods.sequence.class_figures import chosen_rule, report_of
from distfms.methods.sequence.data import step_entries
from distfms.methods.sequence.evaluate import (
    NATURAL,
    SequenceCurve,
    add_validation,
    advised,
    at_stop,
    choose_models,
    compared,
    honest_at_stop,
    kept_prefixes,
    loss_of,
    taken,
    timeliness,
    values_of,
    where_to_stop,
)
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.glm import GlmPath
from distfms.methods.sequence.learners import Asked, ByRows, Learner, Models, Scores, learner_of
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.pairs import candidates_of
from distfms.methods.sequence.problem import Path, SequenceOutline
from distfms.methods.sequence.race import with_kind
from distfms.methods.sequence.read import read_data
from distfms.methods.sequence.reference import REFERENCE, Reference, beside_sequence, fit_reference
from distfms.methods.sequence.ridge_choice import with_ridge
from distfms.methods.sequence.stages import learn_stopping
from distfms.methods.sequence.trees import TreePath
from distfms.stats.base import HELD_OUT, Members, number_or_none, over_folds
from distfms.stats.folds import FoldAnswers

#: Explained deviance from which classes without a ridge count as separated.
_SEPARATED = 1 - 1e-6


def sequence(run: Run, job: Job) -> Finished:
    """Put groups in order by what they explain per cost, and find what each budget buys.

    Steps: `categories` (levels of text), `expand` (knots of numbers), `classes` (of the
    target), `statistics` (co-moments; in mapped files after `statistics 1 of n` and so on),
    `rows` (some in memory, for trees), `ridge` (where it is `auto`), `reference` (boosted trees
    on all columns), `kind` (of models, where it is `auto`, and the order that trees take),
    `statistics of splines` (where models are splines), `tune` (with a grid), `select` (the
    order of the groups by every rule, and the set of every budget; models whose fits take
    passes are fitted on the way), `models` (trees, and models without each fold; linear
    regressions come with their order), `evaluate` (what models explain of folds and held-out
    rows, and where to stop), `stopping` (where each row stops, from predictions of the folds by
    row).
    """
    data = read_data(run, job.form)
    form = data.form  # with what the classes of the target say of it
    job = replace(job, form=form, options=form.options)
    job, data = with_ridge(run, job, data)
    reference = None
    if form.has_reference and data.rows is not None:
        reference = run.step("reference", lambda: fit_reference(run, learner_of(run, job, data)))
    job, data = with_kind(run, job, data, reference)
    on_folds = learner_of(run, job, data).on_folds
    options, tuning = choose_options(run, job, data.statistics, data.procedure, on_folds)
    job = replace(job, options=options)
    learner = learner_of(run, job, data)

    def orders_found() -> dict[str, Any]:
        paths = learner.search()
        run.count(n_candidates=paths[learner.rules.chosen.name].n_candidates)
        return paths

    orders = run.step("select", orders_found)
    outline = next(iter(orders.values())).outline
    models = learner.models(orders)
    evaluated = run.step("evaluate", lambda: evaluate(learner, models, reference))
    models = replace(models, paths={**models.paths, **evaluated["trees"]})
    metrics, stopping = with_stopping(learner, models, evaluated["metrics"])
    return Finished(
        selection=selection_of(learner, form, outline, models.paths),
        **model_of(learner, models.paths, metrics, stopping),
        metrics=metrics,
        judge=judge_of(learner),
        tuning=tuning,
        summary=None if form.mapped else form.summary(data.plain),
    )


# --- evaluation -----------------------------------------------------------------------------------


def evaluate(learner: Learner, models: Models, reference: Reference | None) -> dict[str, Any]:
    """Return the content of ``metrics.json``, and paths of trees with what they explain."""
    others = dict[str, Asked]()
    if reference is not None and reference.whole_model is not None:
        # Where knots were chosen since, a number is in another row of a batch.
        on_all = replace(reference.whole_model, spans=spans_of(learner.data.plan))
        others[REFERENCE] = (on_all, [HELD_OUT])
    scores = learner.scores(models, others)
    share = learner.procedure.share
    trees = dict[str, TreePath]()
    for name, path in models.paths.items():
        if isinstance(path, TreePath):
            of_prefixes = scores.curves["train", name][share]
            trees[name] = replace(path, share=of_prefixes[path.fitted])
    models = replace(models, paths={**models.paths, **trees})
    return {"metrics": metrics_of(learner, models, scores, reference), "trees": trees}


def metrics_of(
    learner: Learner, models: Models, scores: Scores, reference: Reference | None
) -> dict[str, Any]:
    """Return the content of ``metrics.json``."""
    rules = learner.rules
    folds = scores.folds
    path = models.paths[rules.chosen.name]
    share = learner.procedure.share
    grid = learner.procedure.grid(path)
    curves = curves_of(models, scores, share)
    budgets = []
    for rule in rules.of_budgets:
        point = curves.pop(rule.name).points()[-1]
        budgets.append({"budget": rule.budget, "set": point})
    last = dict[str, dict[str, float]]()
    for rows in ("train", "test"):
        if (rows, rules.chosen.name) in scores.curves:
            measures = scores.curves[rows, rules.chosen.name]
            last[rows] = {name: float(values[-1]) for name, values in measures.items()}
    content = {
        **learner.solved(models).head(folds, last),
        **compared(curves, rules.oracles),
        "budgets": budgets,
    }
    if folds is not None:
        add_validation(budgets, folds, share, grid)
    tune = learner.job.tune
    is_tuned = tune is not None and "max_groups" in tune.grid
    candidate = candidate_of(learner, path, folds)
    weights = () if folds is None else folds.weight
    alpha = content["alpha"]["alpha"]
    stop = where_to_stop(path, grid, alpha, candidate, weights, is_tuned)
    stop = choose_models(path, content, learner.job.options.budget, stop)
    candidates = list[Candidate]()
    if candidate is not None and stop["rule"] == "one_standard_error":
        candidates = candidates_of(learner, candidate, grid)
    if folds is not None:
        if candidates:
            shares = honest_at_stop(candidates, folds)
        else:
            shares = at_stop(folds, share, *chosen_rule(learner, path, stop), grid)
        of_folds = zip(folds.folds, shares.tolist(), strict=True)
        content["folds_at_stop"] = [{"fold": k, share: number_or_none(v)} for k, v in of_folds]
        mean = over_folds(shares, weights).mean
        stop = {**stop, "validation": {share: number_or_none(mean)}}
    content["stop"] = stop
    if reference is not None:
        content["reference"] = beside_sequence(learner, reference, scores, last)
    if isinstance(learner, ByRows):
        content |= report_of(learner, models, scores, stop, candidates)
    return content


def candidate_of(learner: Learner, path: Path, folds: FoldAnswers | None) -> Candidate | None:
    """Return the losses of the chosen sequence on folds; None where these do not tell."""
    if folds is None:
        return None
    procedure = learner.procedure
    n_targets = len(procedure.target_names)
    of_folds = [loss_of(answer, procedure.share, n_targets) for answer in folds.answers[0]]
    losses = np.stack(of_folds, axis=-1)[:-1]
    if not np.isfinite(losses).all():
        return None
    return Candidate(losses, grid_of(procedure.grid(path)))


def curves_of(models: Models, scores: Scores, share: str) -> dict[str, SequenceCurve]:
    """Return the curve of every path, by rule."""
    curves = dict[str, SequenceCurve]()
    for number, (name, path) in enumerate(models.paths.items()):
        of_train = scores.curves.get(("train", name), {})
        measures = {
            "train": {key: of_train[key] for key in (share, *NATURAL) if key in of_train},
            "validation": _means_on_folds(path, scores.folds, number, share),
            "test": scores.curves.get(("test", name), {}),
        }
        prefixes = path.fitted
        costs = path.curve_cost[prefixes]
        fitted = taken(measures, prefixes)
        curves[name] = SequenceCurve(path.groups, prefixes, costs, fitted, share)
    return curves


def _means_on_folds(
    path: Path, folds: FoldAnswers | None, item: int, share: str
) -> dict[str, np.ndarray]:
    """Return the means over folds of what prefixes are measured by; empty without folds."""
    means = dict[str, np.ndarray]()
    for key in (share, *NATURAL):
        if folds is not None and key in folds.answers[item][0]:
            mean = folds.means(item, key).mean[:-1]
            means[key] = path.of_prefixes(kept_prefixes(path), mean)
    return means


def with_stopping(
    learner: Learner, models: Models, metrics: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Add to the metrics what it is worth to stop row by row; step ``stopping``.

    Return also what a predictor has of where they stop, if that was learned.
    """
    if not learner.data.form.stops_rows:
        return metrics, {}
    learned = learner.run.step("stopping", lambda: learn_stopping(learner, models, metrics))
    if not learned:
        return metrics, {}
    stop = {**metrics["stop"], "rows": learned["rows"]}
    metrics = {**metrics, "stop": stop, **learned["metrics"]}
    return metrics, {"stopping": learned["stopping"]}


# --- what is written ------------------------------------------------------------------------------


def selection_of(
    learner: Learner, form: SequenceForm, outline: SequenceOutline, paths: Mapping[str, Path]
) -> dict[str, Any]:
    """Return the content of ``selection.json``; form and outline are of all columns."""
    data = learner.data
    options = learner.job.options
    rule = learner.rules.chosen
    path = paths[rule.name]
    explained = learner.explained(path)
    fitted = path.fitted
    budgets = []
    for of_budget in learner.rules.of_budgets:
        of_set = paths[of_budget.name]
        entries = step_entries(data.plan, of_set, learner.explained(of_set))
        budgets.append({"budget": of_budget.budget, "sequence": entries})
    content = {
        "method": "sequence",
        "criterion": rule.criterion,
        "cost_aware": rule.cost_aware,
        "ridge": outline.ridge,
        "family": options.family,
        "rule": rule.name,
        "targets": list(form.roles.target),
        "constant": list(outline.scaling.dropped),
        "costs": dict(zip(form.groups.names, form.costs.alone.tolist(), strict=True)),
        **options.model_dump(mode="json", include={"shared_costs", "requires"}),
        "doubling": rule.doubling,
        "sequence": step_entries(data.plan, path, explained),
        "budgets": budgets,
        "timeliness": timeliness(path.curve_cost[fitted], explained[fitted]),
        "n_candidates": path.n_candidates,
        "notes": [*path.notes, *notes_on(path, options), *outline.notes()],
    }
    if options.by_statistics:
        return content
    return {
        **content,
        "classes": None if data.classes is None else data.classes.labels,
        "model": options.model,
        "refit_at": path.fitted[1:].tolist(),
        **({"n_passes": path.n_passes} if isinstance(path, GlmPath) else {}),
    }


def notes_on(path: Path, options: SequenceOptions) -> list[str]:
    """Return what a reader of the result should know of the groups and the fits."""
    notes = []
    if options.class_weights is not None:
        notes.append(
            "The explained deviance weighs rows by class (`sequence.class_weights`), in the "
            "model and in the null model; other measures do not. Probabilities are those of "
            "classes as frequent as in the training rows; the class is predicted whose "
            "probability times its weight is largest, unless `sequence.threshold` is set."
        )
    if len(path.fitted) <= len(path):
        listed = ", ".join(map(str, path.fitted[1:].tolist()))
        notes.append(
            f"Models were fitted to the prefixes of {listed} groups; other "
            "prefixes use the model of the next smaller one."
        )
    if not isinstance(path, GlmPath):
        return notes
    unfinished = sorted(set(path.status.tolist()) - {"converged"})
    if unfinished:
        notes.append(
            f"Some fits did not converge: {', '.join(unfinished)}. The gradient is up to "
            f"{path.gradient_norm.max():.3g} times the tolerance."
        )
    if path.outline.ridge == 0 and path.curve_value[-1] > _SEPARATED:
        notes.append(
            "The model separates the classes of the training rows completely, so the "
            "coefficients are unbounded. Set a ridge (`sequence.ridge`) to bound them."
        )
    return notes


def model_of(
    learner: Learner,
    paths: Mapping[str, Path],
    metrics: Mapping[str, Any],
    stopping: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what is written of the models of all prefixes, as model and weights."""
    data = learner.data
    rules = learner.rules
    path = paths[rules.chosen.name]
    sets = [paths[rule.name] for rule in rules.of_budgets]
    family = learner.job.options.family
    values = values_of(metrics)
    predictor = AnytimePredictor.from_path(path, family, data.output_names, sets, values)
    predictor = replace(predictor, prior=data.prior, **stopping)
    content = {
        "method": "sequence",
        "id": data.form.roles.id,
        "sources": data.form.sources(data.plan),
        "stop": metrics["stop"],
        "classes": None if data.classes is None else data.classes.labels,
        "threshold": metrics.get("classes", {}).get("threshold", 0.5),
    }
    return {"model": content | predictor.to_dict(), "weights": predictor.to_arrays()}


def judge_of(learner: Learner) -> Callable[..., Any]:
    """Return what scores the models of finished runs on held-out rows; see `Finished.judge`.

    Linear regressions are judged by statistics, where these are of the columns as they are.
    """
    data = learner.data
    if not learner.job.weighs_partitions:
        return data.form.judge("sequence", has_classes=data.form.has_classes)
    names = data.plain.feature_names

    def score(model: FinishedRun, held_out: Members) -> Mapping[str, float]:
        predictor = AnytimePredictor.from_arrays(model.weights, model.model)
        return predictor.errors_on(held_out["moments"], names, advised(model.model))

    size = learner.procedure.size
    return data.form.judge_by_statistics("sequence", data.plain, data.statistics, size, score)
