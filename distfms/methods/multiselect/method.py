"""The method as the driver knows it."""

from __future__ import annotations

import numpy as np

from distfms.methods.frame.contract import Chosen, FinishedRun, Method
from distfms.methods.multiselect.flow import multiselect
from distfms.methods.multiselect.form import make_job
from distfms.methods.multiselect.options import MEASURES, TUNABLE, MultiselectOptions, paper
from distfms.methods.multiselect.predictor import make_predictor


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the repeats of attributes, and what they add to the objective."""
    path = run.selection["path"]
    gains = dict[str, float]()
    for step, gain in zip(
        path, np.diff([0.0, *(step["objective"] for step in path)]).tolist(), strict=True
    ):
        gains[step["attribute"]] = gains.get(step["attribute"], 0.0) + gain
    weights = dict(zip(run.model["attributes"], run.weights["weights"].tolist(), strict=True))
    repeats = run.selection["repeats"].items()
    return {name: Chosen(n, gains.get(name), weights.get(name)) for name, n in repeats}


METHOD = Method(
    name="multiselect",
    Options=MultiselectOptions,
    make_job=make_job,
    paper=paper,
    learn=multiselect,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.multiselect.figures",
    starter={"budget": 20, "costs": {}},
    tunable=TUNABLE,
    measures=MEASURES,
)
