"""The method as the driver knows it."""

from __future__ import annotations

from distfms.methods.contract import Inputs, Job, Method
from distfms.methods.sequence import figures
from distfms.methods.sequence.blocks_job import choose_form
from distfms.methods.sequence.glm_job import GlmSequenceJob
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.predictor import make_predictor
from distfms.methods.sequence.tuning import MEASURES
from distfms.methods.sequence.tuning_job import NOT_TUNABLE, TUNABLE


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job of the family, in blocks of groups where one process is too small."""
    form = SequenceJob if options.family == "gaussian" else GlmSequenceJob
    return choose_form(form(options, inputs, seed))


METHOD = Method(
    name="sequence",
    Options=SequenceOptions,
    make_job=make_job,
    predictor=make_predictor,
    sections=figures.sections,
    headline=figures.headline,
    subtitle=figures.SUBTITLE,
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
)
