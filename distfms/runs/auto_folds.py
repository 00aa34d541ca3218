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
from distfms.methods.frame.contract import Inputs
from distfms.methods.frame.tuning import AUTO_FOLDS
from distfms.runs.inputs import Opened
from distfms.runs.job_spec import JobSpec

#: Rows to learn from, by the footers, from which folds hold four rows or more each.
LEAST_ROWS = 20
#: Largest partial statistic with all folds. A worker holds two or three.
MOST_BYTES = 256 * 2**20


def resolve_folds(spec: JobSpec, opened: Opened) -> tuple[JobSpec, Opened]:
    """Replace `auto` in a spec and its opened data, with a note where it is no cross-validation.

    Raises
    ------
    SpecError
        If `tune` is left without folds, or if the method refuses the spec.
    """
    if not spec.data.auto_folds:
        return spec, opened
    why_not = _why_not(spec, opened.inputs.changed(folds=AUTO_FOLDS))
    if why_not and spec.tune is not None:
        raise SpecError(
            f"`tune` compares by cross-validation, and `data.folds: auto` is none here: {why_not}. "
            "Set `data.folds`, or leave `tune` out."
        )
    n_folds, notes = 0 if why_not else AUTO_FOLDS, opened.notes
    if why_not:
        holds_out = spec.data.test > 0 or spec.data.test_path is not None
        how = "" if holds_out else " Figures are of the training rows; set `data.folds` for others."
        notes = (*notes, f"There is no cross-validation (`data.folds: auto`): {why_not}.{how}")
    spec = replace(spec, data=spec.data.model_copy(update={"folds": n_folds}))
    return spec, replace(opened, inputs=opened.inputs.changed(folds=n_folds), notes=notes)


def _why_not(spec: JobSpec, inputs: Inputs) -> str:
    """Say why a job on folds would be too small or too large; nothing where it is neither."""
    n_rows = int(inputs.train.n_rows * (1 - inputs.section.test))
    if n_rows < LEAST_ROWS:
        return (
            f"there {'is' if n_rows == 1 else 'are'} {counted(n_rows, 'row')} to learn from, "
            f"fewer than {LEAST_ROWS}"
        )
    job = load_method(spec.method).make_job(spec.options, inputs, spec.seed)
    if not job.n_folds:
        return "the columns are too many for one process, and are searched in slabs"
    if (needed := job.statistics_bytes) > MOST_BYTES:
        return (
            f"the statistics of {AUTO_FOLDS} folds would take {format_bytes(needed)}, more than "
            f"{format_bytes(MOST_BYTES)}"
        )
    return ""
