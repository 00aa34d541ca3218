"""Reading the statistics of judgments, and refusing those of which nothing can be learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distfms.errors import DataError
from distfms.methods.frame.contract import Inputs, Run
from distfms.methods.frame.remarks import far_remarks
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.read import Repeats, averages_reader, judgment_reader
from distfms.methods.multiselect.same_raters import rater_remarks
from distfms.stats.base import Bundle, Folded
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.raters import COUNTS


def read_judgments(run: Run, form: JudgmentForm) -> Bundle:
    """Read ``judgments`` and ``signs`` of trouble by fold; refuse, count and note what was read."""
    found = run.reduce(lambda *of: judgment_reader(form.source(*of), copies=form.copies))
    judgments: Folded[JudgmentStatistics] = found["judgments"]
    train, test, names = judgments.train(), judgments.test, form.names
    _check_objects(train, test, form.inputs)
    train.estimates(form.internal_variance, names)
    n_rows = sum(data.n_rows for data in form.inputs.datasets)
    left_out = n_rows - train.n_objects - test.n_objects
    if left_out:
        run.note(
            f"{left_out:,} of {n_rows:,} objects were left out: they have no label, or weight 0."
        )
    columns, signs = (*names, form.roles.target[0]), found["signs"].parts[0]
    far = far_remarks(signs, columns, form.inputs.datasets)
    for text in (*far, *rater_remarks(train, form.buy_from)):
        run.note(text)
    if train.raters is not None:
        run.account(raters=dict(zip(COUNTS, train.raters.counts.tolist(), strict=True)))
    run.account(
        objects={"train": int(train.n_objects), "test": int(test.n_objects)},
        judgments={
            "total": int(train.n_judgments.sum() + test.n_judgments.sum()),
            "train": dict(zip(names, train.n_judgments.tolist(), strict=True)),
        },
    )
    return found


def _check_objects(train: JudgmentStatistics, test: JudgmentStatistics, inputs: Inputs) -> None:
    n = train.n_objects
    if n < 2:
        raise DataError(
            f"{inputs.train.place} has {n} object{'' if n == 1 else 's'} to train on (held "
            f"out: {test.n_objects}); at least 2 are needed. Add objects, or lower `data.test`."
        )
    if train.means.constant_columns()[-1]:
        raise DataError(
            f"The label {inputs.section.target[0]!r} is {train.means.mean[-1]:.6g} for all {n} "
            "training objects, so there is nothing to predict. Check `data.target`."
        )


def read_averages(
    run: Run, form: JudgmentForm, vectors: Sequence[Repeats]
) -> list[Folded[CoMoments]]:
    """Read the averages of the judgments that each vector asks for, of the objects that hold them.

    They are of the attributes of which a vector asks for any.
    """
    if not vectors:
        return []
    support = np.flatnonzero(np.array(vectors).any(axis=0))
    own, cut = form.on(support), [tuple(np.array(r)[support].tolist()) for r in vectors]
    bundle = run.reduce(lambda *of: averages_reader(own.source(*of), cut, form.buy_from))
    return [bundle[str(i)] for i in range(len(cut))]
