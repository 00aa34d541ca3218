"""The method as the driver knows it, and its models at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from distfms.data.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.job import AttributeEfficientJob
from distfms.methods.attribute_efficient.options import (
    LARGEST_PAIRS,
    MEASURES,
    NOT_TUNABLE,
    TUNABLE,
    AttributeEfficientOptions,
)
from distfms.methods.attribute_efficient.pairs_job import PairsJob, TiledPairsJob
from distfms.methods.contract import Chosen, FinishedRun, Inputs, Method
from distfms.methods.curves import regrouped
from distfms.methods.row_predictor import RowPredictor, plan_of_model


def linear(
    terms: Mapping[str, tuple[float, float]],
    intercept: float,
    values: Mapping[str, np.ndarray],
    n_rows: int,
) -> np.ndarray:
    """Predict rows from named values; `terms` are weights, and what missing values count as."""
    found = np.full(n_rows, intercept)
    for name, (weight, fill) in terms.items():
        own = values[name]
        found += weight * np.where(np.isnan(own), fill, own)
    return found


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> RowPredictor:
    """Find a model's attributes in a dataset; see :class:`distfms.methods.contract.Method`."""
    if budget is not None:
        raise SpecError(
            "This model observes few attributes while it learns, and all of them when it "
            "predicts: leave the budget out."
        )
    model, arrays = run.model, run.weights
    columns = zip(model["names"], arrays["weights"], arrays["fill"], strict=True)
    used = {name: (float(w), float(fill)) for name, w, fill in columns if w != 0.0}
    plan = plan_of_model(dataset, list(used), model["sources"], model["id"])
    predict = partial(linear, used, model["intercept"])
    return RowPredictor(dataset.reader, plan, (f"predicted_{model['target']}",), predict)


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the weights of attributes; see :class:`distfms.methods.contract.Method`."""
    return {name: Chosen(float(w)) for name, w in run.selection["coefficients"].items() if w}


def _from_1(run: FinishedRun) -> FinishedRun:
    """Add what a first pass was for, which was not written down."""
    return replace(run, selection={"scanned_for": "", **run.selection})


def _from_2(run: FinishedRun) -> FinishedRun:
    judged = "train" if run.metrics["test"] is None else "test"
    places = {name: (judged, name) for name in ("relative_loss", "deviation")}
    return regrouped(run, places, "attributes_seen")


def make_job(
    options: AttributeEfficientOptions, inputs: Inputs, seed: int
) -> AttributeEfficientJob:
    """Return the job of the solver that the options ask for."""
    job = AttributeEfficientJob(options, inputs, seed)
    n_attributes = len(job.roles.features)
    if options.solves_pairs(n_attributes):
        return (PairsJob if n_attributes <= LARGEST_PAIRS else TiledPairsJob)(options, inputs, seed)
    if inputs.section.missing == "pairs":
        raise SpecError(
            "`data.missing: pairs` needs `attribute_efficient.solver: pairs`; the online learner "
            "takes error, drop or mean."
        )
    return job


METHOD = Method(
    name="attribute_efficient",
    Options=AttributeEfficientOptions,
    make_job=make_job,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.attribute_efficient.figures",
    starter={"attributes_per_example": 4, "penalty": "ridge"},
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
    upgrades=(_from_1, _from_2),
    question=("positive",),
    takes_gaps=True,
)
