"""Random splits of jobs that read rows to fit: each is a run of its own, on other held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.rows.folds import mix, with_seed
from distfms.methods import load_method
from distfms.methods.frame.contract import Answer, Finished, FoldAnswers, Job, Run
from distfms.methods.frame.moments import over_splits, splits_told
from distfms.methods.frame.tuning import changed_options

_TAG = np.uint64(0x5350_4C49_5453)


def split_seed(seed: int, number: int) -> int:
    """Return the seed of a split: what it holds out and draws at random differs from the job's."""
    return int(with_seed(mix(np.uint64(number) + _TAG), seed) >> np.uint64(1))


def with_repeats(run: Run, job: Job, finished: Finished, n_splits: int) -> Finished:
    """Repeat a finished job on random splits; steps ``split 1``, ``split 2``, ….

    Each is what the job with another seed would find, with the options that were chosen by a grid.
    A point of a curve has what its budget affords there. Curves and baselines get ``splits``, as
    those of `with_splits` do.
    """
    learn = partial(_learned, run, job, (finished.tuning or {}).get("chosen", {}))
    found = [
        run.step(f"split {number + 1}", partial(learn, split_seed(job.seed, number)))
        for number in range(n_splits)
    ]
    told, ones = dict[str, Any](), np.ones(n_splits)
    for name, points in _points(finished.metrics).items():
        budgets = np.array([point.get("budget", 0.0) for point in points])
        own = tuple(_at(split.get(name, ()), budgets) for split in found)
        if all(own):
            answers = FoldAnswers(tuple(range(n_splits)), (), tuple(ones), (own,))
            told[name] = over_splits(answers, 0, len(budgets))
    share = {"n": n_splits, "test": job.inputs.section.test}
    return replace(finished, metrics=splits_told(finished.metrics, share, told))


def _points(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the points of curves by name, and of baselines that are no curves."""
    single = {name: [own] for name, own in metrics["baselines"].items()}
    return single | {curve["name"]: curve["points"] for curve in metrics["curves"]}


def _learned(run: Run, job: Job, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return budgets and held-out measures of all that is compared on a split; within a step."""
    method, options = load_method(job.name), changed_options(job.options, chosen)
    again = method.make_job(options, job.inputs, seed)
    found = _points(method.learn(run.on(job.inputs, seed), again).metrics)
    return {
        name: [{**p["test"], "budget": p.get("budget", 0.0)} for p in own if "test" in p]
        for name, own in found.items()
    }


def _at(points: Sequence[Mapping[str, Any]], budgets: np.ndarray) -> Answer:
    """Return the measures of the last point that each budget affords; NaN where none is."""
    if not points:
        return {}
    spent = np.array([point["budget"] for point in points])
    at = np.searchsorted(spent, budgets * (1 + 1e-12), side="right") - 1
    values = {name: np.array([p[name] for p in points], dtype=float) for name in points[0]}
    return {m: np.where(at < 0, np.nan, own[at]) for m, own in values.items() if m != "budget"}
