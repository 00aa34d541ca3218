"""The method as the driver knows it."""

from __future__ import annotations

from distfms.methods.contract import Inputs, Job, Method
from distfms.methods.sequence import figures
from distfms.methods.sequence.glm_job import GlmSequenceJob
from distfms.methods.sequence.job import SequenceJob
from distfms.methods.sequence.options import SequenceOptions
from distfms.methods.sequence.predictor import make_predictor
from distfms.methods.sequence.procedure import MEASURES
from distfms.methods.sequence.slab_job import choose_form

#: What `tune` may vary.
TUNABLE = ("ridge", "criterion", "cost_aware", "doubling", "max_groups")

_STATES = "it says what there is to measure and what that costs, not how to choose"
_AFTERWARDS = "it concerns what is compared with the sequence, not the sequence"
#: Why other options cannot be tuned.
NOT_TUNABLE = {
    **dict.fromkeys(("groups", "prefix_separator", "costs", "cost_file", "shared_costs"), _STATES),
    "family": "its values explain different things, and all but gaussian have no folds",
    "max_refits": "the families it is for have no cross-validation",
    "baselines": _AFTERWARDS,
    "alpha": _AFTERWARDS,
    "blocks": "it says where the work is done, and there is no cross-validation in blocks",
}


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job of the family, in slabs of groups where one process is too small."""
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
