"""The method as the driver knows it, and prediction with its models."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.frame.contract import Chosen, FinishedRun, Method, RowStop
from distfms.methods.frame.row_predictor import RowPredictor
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession, columns_of, model_for
from distfms.methods.sequence.evaluate import advised, steps_of
from distfms.methods.sequence.flow import sequence
from distfms.methods.sequence.form import make_job
from distfms.methods.sequence.options import SequenceOptions, paper
from distfms.methods.sequence.procedure import MEASURES
from distfms.methods.sequence.stopping import RowRule


def make_predictor(
    run: FinishedRun, dataset: Dataset, budget: float | None, stop: RowStop | None = None
) -> RowPredictor:
    """Find the columns of the best model that a budget buys in a dataset, or that rows may need."""
    model, number, rule = model_for(run, budget, stop)
    if rule is None:
        predict: Any = partial(model.predict, number)
        spending = _spending(run, model, number, budget)
    else:
        predict = partial(model.predict_rows, rule)
        spending = _of_rows(rule)
    return RowPredictor.of(
        run,
        dataset,
        columns_of(run, number),
        tuple(f"predicted_{name}" for name in run.selection["targets"]),
        predict,
        spending=spending,
        classes=run.model["classes"] or (),
        threshold=run.model["threshold"],
        gaps=model.models.gaps,
        class_weights=np.exp(model.prior),
        stops=stop is not None,
    )


def make_session(
    run: FinishedRun, budget: float | None, stop: RowStop | None, **options: Any
) -> AnytimeSession:
    """Start a prediction whose groups arrive one by one, as long as they pay."""
    model = AnytimePredictor.from_arrays(run.weights, run.model)
    if stop is None and budget is not None:
        raise SpecError("A session has a budget where rows stop (`stop`); give others to `run`.")
    rule = None if stop is None else model.row_rule(budget, stop)
    return AnytimeSession(model, **options, rule=rule, sources=run.model["sources"])


def _of_rows(rule: RowRule) -> str:
    """Return where rows stop, and what they cost on the folds."""
    n_groups = rule.stopping.stages[rule.last]
    most = rule.stopping.spent[rule.last]
    condition = f"once a class is as probable as {rule.confidence}"
    if rule.policy is not None:
        condition = f"at a mean cost of {rule.policy.mean_cost:.4g} on rows of the folds"
    return f"Stops row by row, {condition}; no row spends more than {most:g} on {n_groups} groups"


def _spending(run: FinishedRun, model: AnytimePredictor, number: int, budget: float | None) -> str:
    """Return what the predictions cost, and why."""
    from distfms.methods.sequence.answer_figures import WHY

    steps = steps_of(run.selection, number)
    spent = 0.0
    if steps:
        spent = steps[-1]["spent"]
    n_groups = len(steps)
    n_all = len(model.groups)
    cost = f"{spent:g}" if budget is None else f"{spent:g} of the budget {budget:g}"
    line = f"Each row costs {cost}, for {n_groups} of {n_all} groups"
    if budget is None:
        rule = run.model["stop"]["rule"]
        line += f": {WHY[rule]}"
    elif number > n_all:
        of_set = run.selection["budgets"][number - n_all - 1]
        line += f", selected for a budget of {of_set['budget']:g}"
    elif n_groups < n_all and spent < 0.5 * budget:
        line += f"; a run with `sequence.budgets: [{budget:g}]` selects for this budget"
    if not n_groups:
        of_training = "shares of the classes" if run.model.get("classes") else "mean"
        line += f"; every prediction is the {of_training} of the training rows"
    return line


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the places of groups, and the variance that each explains where that is known."""
    steps = steps_of(run.selection, advised(run.model))
    explained = [0.0, *(step["explained_variance"] for step in steps)]
    gains = np.diff(explained).tolist()
    places = dict[str, Chosen]()
    follows_model = True
    for place, step in enumerate(steps, 1):
        has_model = step["gain"] is not None
        gain = gains[place - 1] if has_model and follows_model else None
        places[step["group"]] = Chosen(place, gain)
        follows_model = has_model
    return places


#: What `tune` may vary.
TUNABLE = ("ridge", "criterion", "cost_aware", "doubling", "max_groups")

METHOD = Method(
    name="sequence",
    Options=SequenceOptions,
    make_job=make_job,
    paper=paper,
    learn=sequence,
    predictor=make_predictor,
    session=make_session,
    chosen=chosen,
    figures="distfms.methods.sequence.figures",
    starter={"groups": {}, "costs": {}, "budget": None},
    tunable=TUNABLE,
    measures=MEASURES,
    question=("groups", "family"),
)
