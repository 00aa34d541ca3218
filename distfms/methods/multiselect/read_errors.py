"""Test errors that take another pass, as in Figures 3 to 8 of [1]_.

After a refit of what every rule buys for every budget, and at a constant number of judgments of the
training objects, by how many objects these are of.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", 2013,
   arXiv:1302.4297.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np

from distfms.data.rows.folds import hash_keys, with_seed
from distfms.data.rows.judgments import JudgmentBatch
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.curves import number_or_none
from distfms.methods.frame.moments import Solved
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.model import plain_loss, refit
from distfms.methods.multiselect.procedure import BuyingRule
from distfms.methods.multiselect.read import Repeats
from distfms.methods.multiselect.statistics import read_averages
from distfms.stats.base import over_folds
from distfms.stats.judgments import JudgmentStatistics

#: Most values of all covariances of averages at once; budgets in between are left out for it.
MOST_VALUES = 2**26


def plain_errors(run: Run, job: Job, solved: Solved) -> dict[str, np.ndarray]:
    """Read judgments again for the mean squared errors of each rule, by budget of the grid.

    A model is least squares, with the ridge, on the averages of the training objects that hold the
    judgments it needs; its error is of the held-out objects that do. NaN where there are none,
    where nothing is bought, and at budgets that were left out.
    """
    form: JudgmentForm = job.form
    budgets, judgments = solved.procedure.grid(solved.path), solved.statistics["judgments"]
    most = np.minimum(judgments.train().max_judgments, judgments.test.max_judgments)
    found = {name: np.full(budgets.size, np.nan) for name in solved.paths}
    places: dict[Repeats, list[tuple[str, int]]] = {}
    for name, path in solved.paths.items():
        for at, n_steps in enumerate(path.steps_at(budgets).tolist()):
            repeats = path.repeats_after(n_steps)
            if repeats.any() and (repeats <= most).all():
                places.setdefault(tuple(repeats.tolist()), []).append((name, at))
    vectors = list(places)
    sizes = [(np.count_nonzero(r) + 1) ** 2 * (form.inputs.section.folds + 2) for r in vectors]
    thinned = vectors[:: -(-sum(sizes) // MOST_VALUES) or 1]
    if len(thinned) < len(vectors):
        run.note(f"Plain errors were measured of {len(thinned):,} of {len(vectors):,} selections.")
    for repeats, averages in zip(thinned, read_averages(run, form, thinned), strict=True):
        train, test = averages.train(), averages.test
        if train.n_samples and test.n_samples:
            problem = solved.problem.problem
            model = refit(train, problem.names, repeats, ridge=problem.ridge)
            for name, at in places[repeats]:
                found[name][at] = plain_loss(model, test)
    return found


# --- few judgments of many objects, or many of few ------------------------------------------------

RULES = (BuyingRule("full"), BuyingRule("scoring"))

#: Judgments of each attribute to use, share of the training objects to draw, and seed.
Draw = tuple[int, float, int]


def k_against_m(run: Run, job: Job, solved: Solved) -> dict[str, Any]:
    """Read judgments again for losses of what k judgments of m = product/k training objects teach.

    Full and Scoring search by the statistics of the objects that are drawn. Losses are the unbiased
    ones of the held-out objects, with all their judgments: means over the draws, and standard
    deviations. There is no point where the training objects are fewer than m, or hold fewer than k.
    """
    wanted, train = job.options.k_against_m, solved.train["judgments"]
    n, most = train.n_objects, int(train.max_judgments.max())
    products = wanted.products or [n * min(wanted.k) // part for part in (1, 2, 4)]
    pairs = [(p, k) for p, k in product(products, wanted.k) if p <= n * k and k <= most]
    if len(pairs) < len(products) * len(wanted.k):
        run.note(
            "Some points of `multiselect.k_against_m` are left out: they need more training "
            f"objects than {n:,}, or more judgments of an attribute than {most}, the most that an "
            "object has."
        )
    budget = np.array([wanted.budget or job.options.budget])
    procedure = replace(solved.procedure, budget=float(budget[0]), budgets=None, rules=RULES)
    seeds, points = range(run.seed, run.seed + wanted.draws), list[dict[str, Any]]()
    drawn = read_drawn(run, job.form, [(k, p / (n * k), s) for p, k in pairs for s in seeds])
    for p, k in pairs:
        some = [own for own in islice(drawn, wanted.draws) if own.n_objects > 1]
        folds = [Fold({"judgments": own}, solved.test or {}) for own in some]
        for rule in RULES:
            losses = [procedure.evaluate(fold, rule, budget)["projected_loss"] for fold in folds]
            over = over_folds(np.ravel(losses), np.ones(len(losses)))
            point = {"name": rule.name, "product": p, "k": k}
            point["n_objects"] = sum(own.n_objects for own in some) / max(len(some), 1)
            point["projected_loss"] = number_or_none(over.mean)
            points.append({**point, "deviation": number_or_none(over.deviation)})
    return {"budget": procedure.budget, "points": points}


def read_drawn(run: Run, form: JudgmentForm, draws: Sequence[Draw]) -> Iterator[JudgmentStatistics]:
    """Yield the statistics of the training objects of each draw, many by one pass."""
    n_matrices = 2 * (9 if form.layout.knows_raters else 3)
    at_once = max(MOST_VALUES // (n_matrices * (len(form.names) + 1) ** 2), 1)
    form = replace(form, inputs=form.inputs.changed(folds=0))
    for start in range(0, len(draws), at_once):
        some = draws[start : start + at_once]
        how = "judgments of draws", partial(_drawn, some), {"draws": [list(draw) for draw in some]}
        bundle = run.reduce(lambda *of, how=how: SummaryReader(form.source(*of), *how))
        yield from (bundle[str(i)].train() for i in range(len(some)))


def _drawn(draws: Sequence[Draw], batch: JudgmentBatch, part: int) -> dict[str, JudgmentStatistics]:
    if part:  # held-out objects
        return {str(i): JudgmentStatistics.empty(len(batch.names)) for i in range(len(draws))}
    rows, ids, found = batch.part_slices[part], batch.rows.id, dict[str, JudgmentStatistics]()
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(rows)
    hashes = batch.rows.hashes[rows] if ids is None else hash_keys(ids[rows])
    for i, (k, share, seed) in enumerate(draws):
        # Seeded twice, as once is what held-out objects are told by.
        place = (with_seed(with_seed(hashes, seed), 0) >> np.uint64(11)) * 2.0**-53
        own = np.flatnonzero(place < share)
        found[str(i)] = JudgmentStatistics.from_block(
            [ragged.take(own).first(k) for ragged in judgments],
            label[own],
            None if weight is None else weight[own],
            raters=raters and [codes.take(own).first(k) for codes in raters],
        )
    return found
