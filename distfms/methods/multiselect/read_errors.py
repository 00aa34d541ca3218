"""Test errors after a refit of what every rule buys for every budget, Figures 3 to 7 of [1]_.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", 2013,
   arXiv:1302.4297.
"""

from __future__ import annotations

import numpy as np

from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.moments import Solved
from distfms.methods.multiselect.form import JudgmentForm
from distfms.methods.multiselect.model import plain_loss, refit
from distfms.methods.multiselect.read import Repeats
from distfms.methods.multiselect.statistics import read_averages

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
