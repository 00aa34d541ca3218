"""How many folds there are where the spec leaves it open.

`data.folds: auto` is cross-validation where there are enough rows and its statistics are small.
What decides are the spec and the footers of the data, never the memory of a machine: the same job
has the same folds everywhere.
"""

from __future__ import annotations

from distfms.engine.memory import counted, format_bytes
from distfms.errors import SpecError
from distfms.methods.frame.contract import Inputs, Job, Method
from distfms.methods.frame.tuning import AUTO_FOLDS
from distfms.runs.job_spec import JobSpec

#: Rows to learn from, by the footers, from which folds hold four rows or more each.
LEAST_ROWS = 20
#: Largest partial statistic with all folds. A worker holds two or three.
MOST_BYTES = 256 * 2**20


def make_job(method: Method, spec: JobSpec, inputs: Inputs) -> tuple[Job, list[str]]:
    """Return a method's job, on data with a number of folds, and a note where `auto` is none.

    Raises
    ------
    SpecError
        If `tune` is left without folds, or if the method refuses the spec.
    """
    if not inputs.section.auto_folds:
        return method.make_job(spec.options, inputs, spec.seed), []
    why_not = _too_few_rows(inputs)
    if not why_not:
        job = method.make_job(spec.options, inputs.changed(folds=AUTO_FOLDS), spec.seed)
        why_not = _too_large(job)
        if not why_not:
            return job, []
    if spec.tune is not None:
        raise SpecError(
            f"`tune` compares by cross-validation, and `data.folds: auto` is none here: {why_not}. "
            "Set `data.folds`, or leave `tune` out."
        )
    holds_out = inputs.section.test > 0 or inputs.test is not None
    advice = "" if holds_out else " Figures are of the training rows; set `data.folds` for others."
    note = f"There is no cross-validation (`data.folds: auto`): {why_not}.{advice}"
    return method.make_job(spec.options, inputs.changed(folds=0), spec.seed), [note]


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
