"""The method as the driver knows it."""

from __future__ import annotations

from distfms.methods.contract import Inputs, Job, Method
from distfms.methods.multiselect import answer_figures, figures
from distfms.methods.multiselect.job import MultiselectJob
from distfms.methods.multiselect.options import (
    MEASURES,
    NOT_TUNABLE,
    TUNABLE,
    MultiselectOptions,
)
from distfms.methods.multiselect.predictor import make_predictor
from distfms.methods.multiselect.slab_job import choose_form


def make_job(options: MultiselectOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job, in slabs of attributes where they are too many for one process."""
    return choose_form(MultiselectJob(options, inputs, seed))


METHOD = Method(
    name="multiselect",
    Options=MultiselectOptions,
    make_job=make_job,
    predictor=make_predictor,
    sections=figures.sections,
    headline=answer_figures.headline,
    subtitle=figures.SUBTITLE,
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
)
