"""Feature multi-selection, from judgments to which to buy and the model on their averages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from distfms.methods.frame.contract import Finished, FinishedRun, Job, Judged, Run, Summary
from distfms.methods.frame.finished import by_predictions, by_statistics
from distfms.methods.frame.moments import Solved
from distfms.methods.multiselect.choices import with_choice, with_tuned
from distfms.methods.multiselect.evaluate import (
    Evaluation,
    attribute_entries,
    evaluation_remarks,
    path_content,
    selection_remarks,
)
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.model import LinearModel, projected_model, refit
from distfms.methods.multiselect.predictor import left_out, loss_on, trained_columns
from distfms.methods.multiselect.procedure import Selected, SelectionProcedure, Training
from distfms.methods.multiselect.read_plan import PLAN, WritePlan
from distfms.methods.multiselect.slabs import on_chosen, read_in_slabs, search_in_slabs
from distfms.methods.multiselect.statistics import (
    as_read,
    bundle_reader,
    outlying,
    read_averages,
    read_statistics,
    within,
)
from distfms.stats.base import Bundle, Members, joined
from distfms.store.places import remove_tree


def multiselect(run: Run, job: Job) -> Finished:
    """Decide how many judgments to buy of each attribute, and fit the model on their averages.

    Steps: `statistics` (of judgments, by a second pass where they are clipped or raters left out;
    in slabs `statistics 1 of n` and so on), `tune` (with a grid), `ridge` (where it is open, or the
    way to select), `select` (by every rule), `chosen` (after slabs: statistics of what some rule
    has bought), `averages` (of the judgments that are bought, for a refit), `evaluate` (losses on
    folds and held-out objects), `plan` (folder of judgments to collect, where it is asked for).
    """
    form: JudgmentForm = job.form
    tuning = choice = None

    @cache
    def training() -> Training:
        """Return what all training objects teach, for any ridge; it takes long to make."""
        return job.form.procedure(job.options).problem(statistics.train())

    if job.form.slabs is None:
        statistics = run.step("statistics", partial(read_statistics, run, job))
        job = as_read(job, statistics)
        job, tuning = with_tuned(run, job, statistics)
        job, choice = with_choice(run, job, statistics, training)
        selected = run.step("select", lambda: search(run, job, statistics, training()))
    else:
        slabs = read_in_slabs(run, job.form)
        selected = run.step("select", lambda: search_in_slabs(run, job, slabs))
        job, statistics = on_chosen(run, job, slabs, selected)
    procedure: SelectionProcedure = job.form.procedure(job.options)
    problem = procedure.with_ridge(training())
    solved = Solved(procedure, statistics, statistics.train(), problem, selected.paths)
    averages = None
    if job.options.model == "refit":
        averages = run.step("averages", lambda: bought_averages(run, job, solved))
    model = fitted(solved, averages)
    comparison = choice if tuning is None else tuning
    metrics = run.step("evaluate", lambda: evaluate(run, job, solved, averages, model, comparison))
    if job.options.plan:
        run.step("plan", lambda: write_plan(run, job, solved.path.final_repeats), file=PLAN)
    comparisons = {} if choice is None else {"tuning": choice}
    return Finished(
        selection=selected.content | comparisons,
        **model_of(job, solved, model),
        metrics=metrics | comparisons,
        judge=judge_of(job, statistics),
        tuning=tuning,
        summary=summary_of(form),
    )


# --- selection ------------------------------------------------------------------------------------


def search(run: Run, job: Job, statistics: Bundle, training: Training) -> Selected:
    """Search by every rule, and describe what the chosen one found."""
    form: JudgmentForm = job.form
    procedure = form.procedure(job.options)
    training = procedure.with_ridge(training)
    judgments = statistics["judgments"].train()
    paths = procedure.search_all(run, training)
    path = next(iter(paths.values()))
    run.count(n_candidates=path.n_candidates)
    content = path_content(procedure, training.problem, path)
    for text in selection_remarks(judgments, content["projected_loss"]):
        run.note(text)
    content["attributes"] = attribute_entries(form.names, form.costs, training.estimates)
    return Selected(paths, content)


def bought(form: JudgmentForm, repeats: np.ndarray) -> tuple[JudgmentForm, np.ndarray]:
    """Return the form of the attributes that judgments are bought of, and their positions."""
    support = np.flatnonzero(repeats)
    return form.on(support), support


# --- model ----------------------------------------------------------------------------------------


def bought_averages(run: Run, job: Job, solved: Solved) -> Bundle:
    """Read the averages of the judgments that are bought, of the objects that have them."""
    averages = read_averages(run, job.form, solved.path.final_repeats)
    n_used = averages["taught"].train().n_samples
    n_lacking = solved.train["judgments"].n_objects - n_used
    if n_lacking:
        run.note(
            f"The refit used {n_used:,} training objects; {n_lacking:,} hold fewer judgments than "
            "the selection needs."
        )
    return averages


def fitted(solved: Solved, averages: Bundle | None) -> LinearModel:
    """Fit the model on what is bought."""
    problem = solved.problem.problem
    repeats = solved.path.final_repeats
    if averages is None:
        return projected_model(problem, repeats)
    return refit(averages["taught"].train(), problem.names, repeats, ridge=problem.ridge)


def model_of(job: Job, solved: Solved, model: LinearModel) -> dict[str, Any]:
    """Return the content of ``model.json`` and ``weights.npz``.

    A model that is not refitted has the path and its problem too, for smaller budgets.
    """
    path = solved.path
    problem = solved.problem.problem
    form, support = bought(job.form, path.final_repeats)
    weights = {
        "weights": model.weights[support],
        "repeats": path.final_repeats[support],
        "means": problem.means[support],
        "limits": form.layout.limits,
    }
    if job.options.model == "projected" and np.isin(path.attributes, support).all():
        arrays = {
            "problem": problem.take(support).to_arrays(),
            "path": path.on(support).to_arrays(),
        }
        weights |= joined(arrays)
    content = {
        "method": "multiselect",
        "kind": job.options.model,
        "target": form.roles.target[0],
        "id": form.roles.id,
        "attributes": list(form.names),
        "intercept": model.intercept,
        **trained_columns(form.layout, form.inputs.train.schema.names),
    }
    raters = outlying(solved.statistics)
    if raters:
        content["raters_left_out"] = raters
    return {"model": content, "weights": weights}


# --- evaluation -----------------------------------------------------------------------------------


def evaluate(
    run: Run,
    job: Job,
    solved: Solved,
    averages: Bundle | None,
    model: LinearModel,
    comparison: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the content of ``metrics.json``; all paths are looked at at the same budgets."""
    procedure: SelectionProcedure = solved.procedure
    at_budgets = replace(procedure, budgets=procedure.grid(solved.path))
    validated = solved.on_folds(run, job, at_budgets, rows="objects")
    folds = () if validated is None else validated.folds
    for text in evaluation_remarks(procedure, solved.statistics["judgments"], folds):
        run.note(text)
    held = None if averages is None else averages["predicted"]
    return Evaluation(solved, validated, held, model, comparison).metrics()


def judge_of(job: Job, statistics: Bundle) -> Callable[[Run, Sequence[FinishedRun]], Judged]:
    """Return what scores models on held-out objects: by their unbiased loss, NaN where unknown.

    In slabs nobody holds the statistics of all attributes, and predictions are scored.
    """
    form: JudgmentForm = job.form
    if form.slabs is not None:
        return partial(by_predictions, job.name, form.roles)

    def used_by(model: FinishedRun) -> list[int]:
        return [form.names.index(name) for name in model.model["attributes"]]

    def loss(model: FinishedRun, held_out: Members) -> dict[str, float]:
        used = used_by(model)
        judgments = held_out["judgments"].take(used)
        variance = form.internal_variance[used]
        return {"projected_loss": loss_on(model, judgments, variance, form.buy_from)}

    size = form.procedure(job.options).size

    def judge(run: Run, models: Sequence[FinishedRun]) -> Judged:
        n_rows = 0
        scores = list[Any]()
        for model in models:  # by judgments within its own limits, of its own raters
            limits = form.layout.limits
            limits[:, used_by(model)] = model.weights["limits"]
            form_of_model = within(job, limits, left_out(model)).form
            inputs = job.inputs if form_of_model.layout == form.layout else None
            reader = partial(bundle_reader, form_of_model)
            score = by_statistics(inputs, statistics, reader, size, loss)
            n_rows, of_model = score(run, [model])
            scores += of_model
        return n_rows, scores

    return judge


def summary_of(form: JudgmentForm) -> Summary | None:
    """Return how partitions are compared, by statistics of all attributes."""
    if form.slabs is not None:
        return None
    names = (*form.names, *form.roles.target)
    return Summary(names, partial(bundle_reader, form), "judgments")


# --- plan -----------------------------------------------------------------------------------------


def write_plan(run: Run, job: Job, repeats: np.ndarray) -> None:
    """List the judgments that training objects lack, in a folder."""
    import pyarrow as pa

    form, support = bought(job.form, repeats)
    train = form.inputs.train
    id_ = form.roles.id
    place = run.path(PLAN)
    id_type = pa.int64() if id_ is None else train.schema.field(id_).type
    writer = WritePlan(
        source=form.source(train, False),
        repeats=tuple(repeats[support].tolist()),
        costs=tuple(form.costs.tolist()),
        folder=place,
        id_type=id_type.value_type if pa.types.is_dictionary(id_type) else id_type,
        buy_from=form.buy_from,
    )
    remove_tree(place)  # what an earlier attempt may have left
    totals = run.map(writer, train.partitions)
    judgments = sum(n_judgments for n_judgments, _ in totals)
    cost = sum(of_partition for _, of_partition in totals)
    run.account(plan={"judgments": judgments, "cost": cost})
    run.note(
        f"To train on as many judgments of each object as the selection buys, {judgments:,} more "
        f"have to be collected (cost {cost:,.10g}); the folder {PLAN} lists them."
    )
