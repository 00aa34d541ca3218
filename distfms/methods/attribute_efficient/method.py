"""The method as the driver knows it, and its models at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.cells import MIXED, TREES, Trees
from distfms.methods.attribute_efficient.flow import attribute_efficient
from distfms.methods.attribute_efficient.form import make_job
from distfms.methods.attribute_efficient.options import (
    MEASURES,
    NOT_TUNABLE,
    TUNABLE,
    AttributeEfficientOptions,
    paper,
)
from distfms.methods.attribute_efficient.predictors import (
    ByPattern,
    CutLinear,
    Gaps,
    Mixed,
    Predictor,
)
from distfms.methods.frame.contract import Chosen, FinishedRun, Method
from distfms.methods.frame.row_predictor import RowPredictor, plan_of_model
from distfms.stats.base import below


def predicted(
    model: Predictor, names: Sequence[str], values: Mapping[str, np.ndarray], n_rows: int
) -> np.ndarray:
    """Predict rows from named values."""
    return model(np.array([values[name] for name in names]).reshape(len(names), n_rows))[0]


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> RowPredictor:
    """Find a model's attributes in a dataset; see `Method`."""
    if budget is not None:
        raise SpecError(
            "This model observes few attributes while it learns, and all of them when it "
            "predicts: leave the budget out."
        )
    model, arrays = run.model, run.weights
    gaps = Gaps.from_arrays(own) if (own := below("gaps/", arrays)) else None
    used = np.flatnonzero(arrays["weights"]) if gaps is None else gaps.columns
    trees, kind = None, run.model["kind"]
    if kind in (TREES, MIXED):
        trees = Trees(arrays["trees"].tobytes().decode())
        gaining = np.flatnonzero(trees.gains())
        used = gaining if kind == TREES else np.union1d(used, gaining)
        trees = replace(trees, columns=used)
    names = [model["names"][i] for i in used]
    limits = arrays["limits"][:, [*used, -1]]
    weights, intercept = arrays["weights"][None, used], np.array([model["intercept"]])
    whole = CutLinear(weights, intercept, arrays["fill"][used], limits)
    predictor: Predictor = whole
    said = "replaced with the training mean"
    if gaps is not None and kind != TREES:
        predictor = ByPattern(whole, replace(gaps, columns=np.searchsorted(used, gaps.columns)))
        said = "predicted from their other values"
    if trees is not None:
        predictor = trees if kind == TREES else Mixed(predictor, trees, [model["share"]])
        said = "taken by LightGBM as missing" if kind == TREES else f"{said}, and by LightGBM"
    plan = plan_of_model(dataset, names, model["sources"], model["id"])
    predict = partial(predicted, predictor, names)
    return RowPredictor(dataset.reader, plan, (f"predicted_{model['target']}",), predict, gaps=said)


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the weights of attributes, or the gains of trees; see `Method`."""
    found = run.selection.get("gains", run.selection["coefficients"])
    return {name: Chosen(float(w)) for name, w in found.items() if w}


METHOD = Method(
    name="attribute_efficient",
    Options=AttributeEfficientOptions,
    make_job=make_job,
    paper=paper,
    learn=attribute_efficient,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.attribute_efficient.figures",
    starter={"attributes_per_example": 4, "penalty": "ridge"},
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
    question=("positive",),
    takes_gaps=True,
)
