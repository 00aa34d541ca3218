"""The method as the driver knows it."""

from __future__ import annotations

from distfms.data.dataset import ParquetDataset
from distfms.errors import SpecError
from distfms.methods.contract import FinishedRun, Inputs, Job, Method
from distfms.methods.multiselect import figures
from distfms.methods.multiselect.blocks_job import BlocksJob, wants_blocks
from distfms.methods.multiselect.job import MultiselectJob
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.predictor import JudgmentPredictor, make_predictor
from distfms.methods.multiselect.tuning import MEASURES
from distfms.methods.multiselect.tuning_job import NOT_TUNABLE, TUNABLE


def make_job(options: MultiselectOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job, in blocks of attributes where they are too many for one process."""
    job = MultiselectJob(options, inputs, seed)
    blocks = wants_blocks(options, len(job.layout.names), inputs.section.folds)
    return BlocksJob(job) if blocks else job


def predictor(run: FinishedRun, dataset: ParquetDataset, budget: float | None) -> JudgmentPredictor:
    """Apply a finished run's model, which is made for one budget, to a dataset."""
    if budget is not None:
        raise SpecError(
            "A multi-selection model is made for one budget; run the job again with "
            f"--set multiselect.budget={budget:g} to predict with another."
        )
    return make_predictor(run, dataset)


METHOD = Method(
    name="multiselect",
    Options=MultiselectOptions,
    make_job=make_job,
    predictor=predictor,
    sections=figures.sections,
    headline=figures.headline,
    subtitle=figures.SUBTITLE,
    tunable=TUNABLE,
    not_tunable=NOT_TUNABLE,
    measures=MEASURES,
)
