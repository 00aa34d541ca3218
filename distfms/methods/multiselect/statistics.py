"""Reading the statistics of judgments, and refusing those of which nothing can be learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.folds import require_divided
from distfms.errors import DataError, first_of
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.remarks import value_remarks
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.outliers import LEAST, MANY, SomeJudgments
from distfms.methods.multiselect.read import averages_reader, judgment_reader, keys_of_raters
from distfms.methods.multiselect.same_raters import rater_remarks
from distfms.stats.base import Bundle, Folded
from distfms.stats.judgments import JudgmentStatistics
from distfms.stats.raters import COUNTS


def within(job: Job, limits: np.ndarray, left_out: Iterable[str] = ()) -> Job:
    """Return the job with limits of judgments (2, d), and without those of some raters."""
    layout = replace(job.form.layout.within(limits), left_out=tuple(left_out))
    return replace(job, form=replace(job.form, layout=layout, of_raters=False))


def outlying(statistics: Bundle) -> list[dict[str, Any]]:
    """Return the raters that `read_statistics` has left out, the farthest from the others first."""
    if "disagreement" not in statistics.members:
        return []
    outlying_raters = statistics["disagreement"].train().outlying()
    return [{"rater": rater, "objects": n, "times": times} for rater, n, times in outlying_raters]


def as_read(job: Job, statistics: Bundle) -> Job:
    """Return the job with the limits, and without the raters, that `read_statistics` chose."""
    limits = job.form.layout.limits
    left_out = [entry["rater"] for entry in outlying(statistics)]
    if "some" in statistics.members:
        limits = _some_judgments(statistics, left_out).limits()
    return within(job, limits, left_out)


def _some_judgments(statistics: Bundle, left_out: Sequence[str]) -> SomeJudgments:
    sampled = statistics["some"].train().values
    n_attributes = statistics["judgments"].train().n_attributes
    return SomeJudgments.of(sampled, n_attributes, keys_of_raters(left_out))


def read_statistics(run: Run, job: Job) -> Bundle:
    """Read statistics; by a second pass of clipped judgments, or without raters who stand out.

    Only then do they have each rater's ``disagreement`` of the first pass, which tells who is left
    out, and only of clipped judgments ``some`` as they are, which tell the limits.
    """
    first = read_judgments(run, job.form)
    raters = outlying(first)
    left_out = [entry["rater"] for entry in raters]
    sampled = _some_judgments(first, left_out)
    share = sampled.far_share()
    clips = job.options.robust and share > MANY and sampled.clipping_helps()
    whole = {name: first[name] for name in ("judgments", "signs")}
    if not (clips or raters):
        return Bundle(whole)
    limits = sampled.limits() if clips else job.form.layout.limits
    second = run.reduce(partial(bundle_reader, within(job, limits, left_out).form))
    judgments = first["judgments"].train()
    remaining = second["judgments"].train()
    if (remaining.n_repeated < np.minimum(judgments.n_repeated, LEAST)).any():
        return Bundle(whole)
    kept = {name: second[name] for name in whole}
    if raters:
        _note_raters(run, raters, judgments, remaining)
        kept["disagreement"] = first["disagreement"]
    if clips:
        run.note(
            "Judgments are clipped to the median ± 3 median absolute deviations of their "
            f"attribute, as {100 * share:.2g}% are farther from it than three standard deviations "
            "of normal ones, and tell more of the label so (`robust: false` keeps them)."
        )
        kept["some"] = first["some"]
    return Bundle(kept)


def _note_raters(
    run: Run,
    raters: Sequence[Mapping[str, Any]],
    judgments: JudgmentStatistics,
    remaining: JudgmentStatistics,
) -> None:
    named = first_of([f"{entry['rater']} ({entry['times']:.1f} times)" for entry in raters])
    n_judgments = int(judgments.n_judgments.sum())
    n_left_out = n_judgments - int(remaining.n_judgments.sum())
    run.note(
        f"Raters are left out: {n_left_out:,} of {n_judgments:,} judgments are theirs, and their "
        f"mean squared difference from others is more than twice that of the median rater: {named} "
        "(`robust: false` keeps them)."
    )


def bundle_reader(form: JudgmentForm, dataset: Dataset, held_out: bool) -> SummaryReader:
    """Return the reader of ``judgments``, ``some`` of them and ``signs`` of trouble by fold."""
    return judgment_reader(form.source(dataset, held_out), of_raters=form.of_raters)


def read_judgments(run: Run, form: JudgmentForm) -> Bundle:
    """Read statistics of judgments; refuse, count and note what was read."""
    statistics = run.reduce(partial(bundle_reader, form))
    judgments: Folded[JudgmentStatistics] = statistics["judgments"]
    train = judgments.train()
    test = judgments.test
    names = form.names
    n_objects = [part.n_objects for part in judgments.parts]
    require_divided(n_objects, form.roles.fold_key, form.inputs.train.place, "objects")
    if train.means.constant_columns()[-1]:
        raise DataError(
            f"The label {form.roles.target[0]!r} is {train.means.mean[-1]:.6g} for all "
            f"{train.n_objects} training objects, so there is nothing to predict. Check "
            "`data.target`."
        )
    train.estimates(form.internal_variance, names)
    n_rows = sum(data.n_rows for data in form.inputs.datasets)
    left_out = n_rows - train.n_objects - test.n_objects
    if left_out:
        run.note(
            f"{left_out:,} of {n_rows:,} objects were left out: they have no label, or weight 0."
        )
    columns = (*names, form.roles.target[0])
    signs = statistics["signs"].parts[0]
    of_values = value_remarks(signs, columns, len(names), form.inputs.datasets)
    for text in (*of_values, *rater_remarks(train, form.buy_from)):
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
    return statistics


def read_averages(run: Run, form: JudgmentForm, repeats: np.ndarray) -> Bundle:
    """Read averages of so many judgments of the attributes that have any; see `averages_reader`."""
    support = np.flatnonzero(repeats)
    bought = form.on(support)
    counts = tuple(repeats[support].tolist())
    return run.reduce(lambda *rows: averages_reader(bought.source(*rows), counts, form.buy_from))
