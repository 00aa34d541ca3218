"""Where a job looks for contexts, and what `check` says of it; forms are `SequenceForm`s."""

from __future__ import annotations

from typing import Any

from distfms.engine.memory import format_bytes
from distfms.errors import SpecError, nearest

#: Rows of each fold that a leaf of a tree of sequences must have.
LEAST_ROWS = 200
#: Candidates of a pass for contexts, and the size of their co-moments.
CANDIDATES, PASS_BYTES = 32, 64 << 20
CONTEXTS = (
    f"screened on a sample of rows; of what stands out, up to {CANDIDATES} candidates in one more "
    f"pass, with up to {format_bytes(PASS_BYTES)} of co-moments by leaf"
)


def least_share(form: Any) -> float:
    """Return the share of the training rows that a leaf must have."""
    train, section = form.inputs.train, form.inputs.section
    return LEAST_ROWS * section.folds / (train.n_rows * (1 - section.test))


def has_contexts(form: Any) -> bool:
    """Return whether contexts are looked for, by which rows have sequences of their own."""
    options, several = form.options, len(form.groups) > 2 and form.slabs is None
    one_loss = len(form.roles.target) == 1 and options.class_weights is None
    on_folds = form.inputs.section.folds > 1 and 2 * least_share(form) <= 1
    # Bins and clusters change with the data, so all partitions would be read again.
    unwanted = ("none", "auto") if form.inputs.retrained else ("none",)
    return options.contexts not in unwanted and several and one_loss and on_folds


def check_contexts(form: Any) -> None:
    """Refuse a named context that is no feature, or that cannot be compared with one sequence."""
    named = form.options.contexts
    if isinstance(named, str):
        return
    said = f"`sequence.contexts` names the column {named['column']!r}"
    if named["column"] not in form.roles.features:
        raise SpecError(
            f"{said}, which is not a feature.{nearest(named['column'], form.roles.features)}"
        )
    if not has_contexts(form):
        raise SpecError(
            f"{said}, but a tree of sequences needs `data.folds`, {2 * LEAST_ROWS} rows of each "
            "fold, one target, three groups, and no `class_weights`."
        )
