"""Reading the statistics of judgments, and refusing those of which nothing can be learned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.errors import DataError, first_of
from distfms.methods.frame.contract import Inputs, Job, Run
from distfms.methods.frame.cross_validation import evaluate_here
from distfms.methods.frame.moments import points_on_folds
from distfms.methods.frame.remarks import far_remarks
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.multiselect.choices import choices
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.options import MEASURES
from distfms.methods.multiselect.read import Repeats, averages_reader, judgment_reader, rater_reader
from distfms.methods.multiselect.same_raters import rater_remarks
from distfms.stats.base import Bundle, Folded, over_folds
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.raters import COUNTS

#: Limits in median absolute deviations from the median, and how many of these make a standard
#: deviation of normal judgments. A share beyond three of these above `_MANY` is a heavy tail
#: where it is of all attributes or, of one, at least so many judgments.
_CLIPPED, _NORMAL, _MANY, _LEAST = 3.0, 1.4826, 0.01, 10
_CLIPPING = (
    "judgments are clipped to the median ± 3 median absolute deviations of their attribute "
    "(`clip: true`)"
)


def limits_of(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return limits (2, d) by some judgments (d, n), NaN for none, and whether many are far beyond.

    Of an attribute most of whose judgments are one value there are none.
    """
    values = np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values)
    middle = np.nanmedian(values, axis=1, keepdims=True)
    away = np.abs(values - middle)
    deviation = np.nanmedian(away, axis=1, keepdims=True)
    limits = np.where(deviation > 0, middle + _CLIPPED * deviation * [-1.0, 1.0], [-np.inf, np.inf])
    n_far = np.sum((away > _CLIPPED * _NORMAL * deviation) & (deviation > 0), axis=1)
    n = np.sum(~np.isnan(values) & (deviation > 0), axis=1)
    are_far = (n_far >= _LEAST) & (n_far > _MANY * n)
    return limits.T, bool(are_far.any() or n_far.sum() > _MANY * n.sum())


def within(job: Job, limits: np.ndarray, left_out: Iterable[str] = ()) -> Job:
    """Return the job with limits of judgments (2, d), and without those of some raters."""
    layout = replace(job.form.layout.within(limits), left_out=tuple(left_out))
    return replace(job, form=replace(job.form, layout=layout))


def outlying(statistics: Bundle) -> list[dict[str, Any]]:
    """Return the raters that `read_screened` has left out, the farthest from the others first."""
    if "disagreement" not in statistics.members:
        return []
    found = statistics["disagreement"].train().outlying()
    return [{"rater": rater, "objects": n, "times": times} for rater, n, times in found]


def as_read(job: Job, statistics: Bundle) -> Job:
    """Return the job with the limits, and without the raters, that `read_screened` chose."""
    limits = job.form.layout.limits
    if "some" in statistics.members:
        limits = limits_of(statistics["some"].train().values)[0]
    return within(job, limits, [own["rater"] for own in outlying(statistics)])


def read_screened(run: Run, job: Job) -> Bundle:
    """Read statistics, clipped or not, without raters who stand out where that is asked or better.

    Only then do they have each rater's ``disagreement``, which tells who is left out.
    """
    found, screen = read_clipped(run, job), job.options.screen_raters
    if not screen or not job.form.layout.rater_columns or (screen == "auto" and job.n_folds < 2):
        return found
    before, train = as_read(job, found), found["judgments"].train()
    variance = np.nan_to_num(train.internal_variance())
    told = run.reduce(lambda *of: rater_reader(before.form.source(*of), variance))
    bundle = Bundle({**found.members, **told.members})
    if not (raters := outlying(bundle)):
        return found
    own = run.reduce(partial(bundle_reader, as_read(job, bundle).form))
    rest, n_all = own["judgments"].train(), train.n_judgments.sum()
    if (rest.n_repeated < np.minimum(train.n_repeated, _LEAST)).any():
        return found
    said = (
        f"{n_all - rest.n_judgments.sum():,} of {n_all:,} judgments are left out, whose raters' "
        "mean squared difference from others is more than twice that of the median rater: "
        f"{first_of(['{rater} ({times:.1f} times)'.format(**each) for each in raters])} "
        "(`screen_raters: true`)"
    )
    if screen is True:
        run.note(f"Raters are left out as the job asks: {said}.")
    elif not _is_better(run, before, found, own, said):
        return found
    return Bundle({**bundle.members, **{n: own[n] for n in found.members if n != "some"}})


def read_clipped(run: Run, job: Job) -> Bundle:
    """Read statistics, of clipped judgments where the job asks for these or folds like them.

    Only then do they have ``some`` judgments as they are, which tell the limits.
    """
    clip, raw = job.options.clip, read_judgments(run, job.form)
    limits, are_far = limits_of(raw["some"].train().values)
    if clip is True or (clip == "auto" and are_far and job.n_folds > 1):
        clipped = run.reduce(partial(bundle_reader, within(job, limits).form))
        if clip is True or _is_better(run, job, raw, clipped, _CLIPPING):
            return Bundle({**clipped.members, "some": raw["some"]})
    return Bundle({name: own for name, own in raw.members.items() if name != "some"})


def _is_better(run: Run, job: Job, before: Bundle, after: Bundle, said: str) -> bool:
    """Return whether what is said lowers the loss on folds by more than a standard error."""
    points, measure, losses = choices(job.options, job.n_folds)[:1], next(iter(MEASURES)), []
    for own in (before, after):
        here = partial(evaluate_here, statistics=own, extended=nullcontext)
        of = job, own, job.form.procedure, points, measure
        found, values = points_on_folds(run, *of, nested="budget", evaluate=here)
        losses.append(values[0])
    gain = over_folds(losses[0] - losses[1], found.weight)
    if not gain.mean > gain.standard_error:
        return False
    run.note(
        f"Chosen by cross-validation: {said}. The loss is {gain.mean:.3g} ± "
        f"{gain.standard_error:.2g} lower."
    )
    return True


def bundle_reader(form: JudgmentForm, dataset: Dataset, held_out: bool) -> SummaryReader:
    """Return the reader of ``judgments``, ``some`` of them and ``signs`` of trouble by fold."""
    return judgment_reader(form.source(dataset, held_out))


def read_judgments(run: Run, form: JudgmentForm) -> Bundle:
    """Read statistics of judgments; refuse, count and note what was read."""
    found = run.reduce(partial(bundle_reader, form))
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
