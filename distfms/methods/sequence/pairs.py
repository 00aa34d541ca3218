"""What folds choose a sequence among, and of few rows its losses without two of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import numpy as np

from distfms.methods.frame.cross_validation import FoldWork
from distfms.methods.sequence.choice import Candidate
from distfms.methods.sequence.evaluate import loss_of
from distfms.methods.sequence.fits import Search
from distfms.methods.sequence.learners import Learner, Unit
from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import Path
from distfms.methods.sequence.ridge import along_order_on_fold
from distfms.methods.sequence.ridge_choice import rivals_of
from distfms.stats.folds import Answer


def candidates_of(learner: Learner, chosen: Candidate, budgets: np.ndarray) -> list[Candidate]:
    """Return the chosen sequence, at these budgets, and what it was chosen among; within a step.

    Linear models of few rows have losses on fold j of what learns without folds j and k, at
    [:, j, k]. Then other kinds are not there, whose fits without two folds would be too many.
    """
    data = learner.data
    procedure = learner.procedure.scored_at(budgets)
    has_all = chosen.losses.shape[1] == learner.job.n_folds
    if not (data.form.n_pairs and has_all) or procedure.model != "linear":
        return [chosen, *rivals_of(data, chosen)]
    n_targets = len(procedure.target_names)
    ridges = {} if data.ridges is None else data.ridges.others
    searches = dict[Unit, Search]()
    of_ridges = dict[Unit, np.ndarray]()
    work = FoldWork.of_job(learner.job, None, (), [procedure])
    for fold, other in work.pairs(data.statistics):
        pair = min(fold.number, other), max(fold.number, other)
        problem = procedure.problem_on(fold)
        searches[pair] = Search(procedure, procedure.rules[0], problem, pair)
        if ridges:
            answer = along_order_on_fold(procedure, fold, list(ridges))
            of_ridges[fold.number, other] = answer["losses"]
    of_chosen = dict[Unit, np.ndarray]()
    for pair, path in learner.ordered(searches).items():
        for number, other in permutations(pair):
            measures = _measures_on(learner, path, budgets, number)
            of_chosen[number, other] = loss_of(measures, procedure.share, n_targets)
    candidates = [replace(chosen, of_pairs=by_pairs(chosen.losses, of_chosen))]
    for place, rival in enumerate(ridges.values()):
        of_ridge = {unit: losses[place] for unit, losses in of_ridges.items()}
        candidates.append(replace(rival, of_pairs=by_pairs(rival.losses, of_ridge)))
    return candidates


def by_pairs(losses: np.ndarray, of_units: Mapping[Unit, np.ndarray]) -> np.ndarray:
    """Return losses without two folds, (M, n_folds, n_folds), beside those without one.

    `of_units` has them by the fold that they are of and the other one. Where nothing can be learned
    without two folds they are those of no group.
    """
    of_pairs = np.tile(losses[:1, :, np.newaxis], (len(losses), 1, losses.shape[1]))
    for (fold, other), of_unit in of_units.items():
        of_pairs[:, fold, other] = of_unit
    return of_pairs


def _measures_on(learner: Learner, path: Path, budgets: np.ndarray, fold: int) -> Answer:
    """Measure what budgets pay for on a fold, by statistics where these tell."""
    if isinstance(path, SequencePath):
        rows = {"moments": learner.data.statistics["moments"].folds[fold]}
        return learner.procedure.score(None, path, rows, budgets)
    models = path.models_at([path.affordable(budget) for budget in budgets])
    return learner.measures_of(learner.judged_here(models, [fold]))
