"""How many folds there are where the spec leaves it open.

`data.folds: auto` is cross-validation where there are enough rows and its statistics are small.
What decides are the spec and the footers of the data, never the memory of a machine: the same job
has the same folds everywhere.
"""

from __future__ import annotations

from dataclasses import replace

from distfms.engine.memory import counted, format_bytes
from distfms.errors import SpecError
from distfms.methods import load_method
from distfms.methods.frame.contract import Inputs, Job
from distfms.methods.frame.tuning import AUTO_FOLDS
from distfms.runs.inputs import Opened
from distfms.runs.job_spec import JobSpec

#: Rows to learn from, by the footers, from which folds hold four rows or more each.
LEAST_ROWS = 20
#: Largest partial statistic with all folds. A worker holds two or three.
MOST_BYTES = 256 * 2**20


def make_job(spec: JobSpec, opened: Opened) -> tuple[Opened, Job]:
    """Return a method's job, and data in whose section a number stands for `auto`.

    A note says where it is no cross-validation.

    Raises
    ------
    SpecError
        If `tune` is left without folds, or if the method refuses the spec.
    """
    method = load_method(spec.method)
    inputs = opened.inputs
    if not spec.data.auto_folds:
        return opened, method.make_job(spec.options, inputs, spec.seed)
    why_not = _too_few_rows(inputs)
    if not why_not:
        inputs = inputs.changed(folds=AUTO_FOLDS)
        job = method.make_job(spec.options, inputs, spec.seed)
        why_not = _too_large(job)
        if not why_not:
            return replace(opened, inputs=inputs), job
    if spec.tune is not None:
        raise SpecError(
            f"`tune` compares by cross-validation, and `data.folds: auto` is none here: {why_not}. "
            "Set `data.folds`, or leave `tune` out."
        )
    holds_out = spec.data.test > 0 or spec.data.test_path is not None
    advice = "" if holds_out else " Figures are of the training rows; set `data.folds` for others."
    note = f"There is no cross-validation (`data.folds: auto`): {why_not}.{advice}"
    inputs = inputs.changed(folds=0)
    opened = replace(opened, inputs=inputs, notes=(*opened.notes, note))
    return opened, method.make_job(spec.options, inputs, spec.seed)


def _too_few_rows(inputs: Inputs) -> str:
    """Say why there is too little for folds; nothing where there is enough."""
    n_rows = int(inputs.train.n_rows * (1 - inputs.section.test))
    if n_rows >= LEAST_ROWS:
        return ""
    are = "is" if n_rows == 1 else "are"
    return f"there {are} {counted(n_rows, 'row')} to learn from, fewer than {LEAST_ROWS}"


def _too_large(job: Job) -> str:
    """Say why a job on folds is too large; nothing where it is not."""
    if not job.n_folds:
        return "the columns are too many for one process, and are searched in slabs"
    n_bytes = job.statistics_bytes
    if n_bytes <= MOST_BYTES:
        return ""
    return (
        f"the statistics of {AUTO_FOLDS} folds would take {format_bytes(n_bytes)}, more than "
        f"{format_bytes(MOST_BYTES)}"
    )
