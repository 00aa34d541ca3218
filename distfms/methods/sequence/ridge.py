"""Losses of ridges of linear regressions, on folds or by generalised cross-validation.

All ridges of all columns cost one decomposition of C; one in an order that is known costs a
Cholesky factor of C + λI. Neither costs a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.sequence.choice import grid_of
from distfms.methods.sequence.linear_path import SequencePath, standardised_moments
from distfms.methods.sequence.options import GAIN, OrderRule
from distfms.methods.sequence.problem import SequenceProblem
from distfms.methods.sequence.procedure import RIDGES, SequenceProcedure
from distfms.solve.ridge import Ridges, generalised_loss
from distfms.stats.comoments import CoMoments
from distfms.stats.folds import Answer

#: Columns up to which all ridges are compared along an order; beyond, those near the best of all
#: columns, within this factor.
_ALL_RIDGES, _NEAR = 400, 31.0


def losses_of_ridges(
    problem: SequenceProblem, held_out: CoMoments, ridges: Sequence[float]
) -> np.ndarray:
    """Return the mean losses of models of all columns on other rows, shape (n_ridges,).

    T − wᵀ(2c − Mw) with the moments M, c, T of these rows. Of several targets the losses are the
    unexplained shares.
    """
    columns = np.arange(len(problem.gram))
    moments = standardised_moments(problem.scaling, columns, held_out)
    weights = Ridges.of(problem.gram, problem.target).weights(ridges)
    falls = np.sum(weights * (2.0 * moments.cross - moments.gram @ weights), axis=1)
    losses = [_loss(moments.total - fall, moments.total, problem) for fall in falls]
    return np.array(losses)


def losses_without_folds(path: SequencePath, rows: CoMoments) -> np.ndarray:
    """Return the generalised cross-validation of prefixes 0..K on the rows that they learned from.

    The model of a prefix has 1 + tr C(C + λ)⁻¹ = 1 + r − λ‖U⁻¹‖² parameters, for its r columns and
    U of its corner of the factor: the mean is one more.
    """
    from scipy.linalg import solve_triangular

    rank = len(path.support)
    inverse = solve_triangular(path.upper, np.eye(rank)) if rank else np.zeros((0, 0))
    squares = np.square(inverse).sum(axis=0)
    shrunk = np.append(0.0, np.cumsum(squares))
    ends = np.append(0, path.ranks)
    n_parameters = 1.0 + ends - path.outline.ridge * shrunk[ends]
    return generalised_loss(losses_on(path, rows), n_parameters, rows.n_counted)


def losses_on(path: SequencePath, rows: CoMoments) -> np.ndarray:
    """Return the losses of prefixes 0..K on rows; of several targets the unexplained shares."""
    measures = path.held_out(rows)
    if path.response.shape[1] > 1:
        return 1.0 - measures["explained_variance"]
    return measures["mse"]


def ridge_without_folds(
    procedure: SequenceProcedure, problem: SequenceProblem, rows: CoMoments
) -> dict[float, float]:
    """Return the loss of each ridge, the mean over the `BUDGET_SHARES` in the order it finds."""
    n_columns = len(procedure.feature_names)
    tried = RIDGES if n_columns <= _ALL_RIDGES else RIDGES[::3]
    rule = procedure.rules[0]
    if rule.criterion == GAIN:
        rule = OrderRule("fr")
    losses = {}
    for ridge in tried:
        path = procedure.search(replace(problem, ridge=ridge), rule)
        of_prefixes = losses_without_folds(path, rows)
        on_grid = of_prefixes[grid_of(path.curve_cost)]
        losses[ridge] = float(on_grid.mean())
    return losses


def refitted(path: SequencePath, problem: SequenceProblem, ridge: float) -> SequencePath:
    """Return a path in the same order with the models of another ridge, which is positive."""
    from scipy.linalg import solve_triangular

    support = path.support
    gram = np.array(problem.gram[np.ix_(support, support)])
    gram.flat[:: len(gram) + 1] += ridge
    upper = np.linalg.cholesky(gram).T
    response = solve_triangular(upper, problem.target[support], trans=1, check_finite=False)
    gains = 0.5 * np.square(response).sum(axis=1)
    totals = np.append(0.0, np.cumsum(gains))
    ends = np.append(0, path.ranks)
    return replace(
        path,
        outline=replace(path.outline, ridge=ridge),
        gain=np.diff(totals[ends]),
        upper=upper,
        response=response,
    )


def on_fold(procedure: SequenceProcedure, fold: Fold, ridges: Sequence[float]) -> Answer:
    """Return ``losses`` (n_ridges,) of models of all columns."""
    problem = procedure.problem_on(fold)
    return {"losses": losses_of_ridges(problem, fold.held_out["moments"], ridges)}


def along_order_on_fold(
    procedure: SequenceProcedure, fold: Fold, ridges: Sequence[float]
) -> Answer:
    """Return ``losses`` (n_ridges, 1 + n_budgets), of no group and what budgets pay for.

    The order is that of the procedure's first rule, at its ridge.
    """
    problem = procedure.problem_on(fold)
    path = fold.once("path", lambda: procedure.search(problem, procedure.rules[0]))
    prefixes = [0, *grid_of(path.curve_cost)]
    losses = []
    for ridge in ridges:
        again = refitted(path, problem, ridge)
        losses.append(losses_on(again, fold.held_out["moments"])[prefixes])
    return {"losses": np.array(losses)}


def near(ridge: float, n_columns: int) -> tuple[float, ...]:
    """Return the ridges to compare along an order, where that of all columns is best."""
    if n_columns <= _ALL_RIDGES:
        return RIDGES
    return tuple(near_one for near_one in RIDGES if ridge / _NEAR <= near_one <= ridge * _NEAR)


def _loss(risk: np.ndarray, whole: np.ndarray, problem: SequenceProblem) -> float:
    """Return one loss of the risks (P,) of standardised targets, whose mean has `whole`."""
    if len(risk) == 1:
        return float(risk[0] * problem.scaling.target_scale[0] ** 2)
    return float(np.mean(risk / whole))
