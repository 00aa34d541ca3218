"""The method as the driver knows it, and its models at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.cells import LINEAR, TREES, Trees
from distfms.methods.attribute_efficient.flow import attribute_efficient
from distfms.methods.attribute_efficient.form import make_job
from distfms.methods.attribute_efficient.options import (
    MEASURES,
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
from distfms.methods.frame.row_predictor import RowPredictor
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
    kind = run.model["kind"]
    names = run.model["names"]
    arrays = run.weights
    columns = np.arange(len(names))
    gap_arrays = below("gaps/", arrays)
    if kind == LINEAR and not gap_arrays:
        columns = np.flatnonzero(arrays["weights"])
    linear = CutLinear(
        arrays["weights"][None, columns],
        np.array([run.model["intercept"]]),
        arrays["fill"][columns],
        arrays["limits"][:, [*columns, -1]],
    )
    predictor: Predictor = linear
    missing = "replaced with the training mean"
    if gap_arrays:
        predictor = ByPattern(linear, Gaps.from_arrays(gap_arrays))
        missing = "predicted from their other values"
    if kind != LINEAR:
        trees = Trees(arrays["trees"].tobytes().decode())
        predictor = trees if kind == TREES else Mixed(predictor, trees, [run.model["share"]])
        missing = "taken by LightGBM as missing" if kind == TREES else f"{missing}, and by LightGBM"
    used = [names[column] for column in columns]
    predict = partial(predicted, predictor, used)
    outputs = (f"predicted_{run.model['target']}",)
    return RowPredictor.of(run, dataset, used, outputs, predict, gaps=missing)


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the weights of attributes, or the gains of trees; see `Method`."""
    amounts = run.selection.get("gains", run.selection["coefficients"])
    return {name: Chosen(float(amount)) for name, amount in amounts.items() if amount}


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
    measures=MEASURES,
    question=("positive",),
    takes_gaps=True,
)
