"""What the greedy search is compared with: baselines of section 4 of [1]_, and of a lasso path.

The objective of a path is what the baseline itself maximises; to compare, evaluate the models of
`path_models`.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013.
.. [2] B. Efron, T. Hastie, I. Johnstone and R. Tibshirani, "Least Angle Regression", Annals of
   Statistics 32, 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from distfms.methods.multiselect.model import path_objective
from distfms.solve.buying import BUDGET_TOLERANCE, Problem, SelectionPath, Status, full_objective
from distfms.solve.purchases import FullState, ScoringState, full_state, greedy_path
from distfms.stats.comoments import CONSTANT_RTOL

if TYPE_CHECKING:
    from distfms.stats.judgments import JudgmentEstimates

#: Judgments of an attribute that Averages buys at once, and Copies at most: section 4 of [1]_.
K = 2

#: Attributes that `lasso` selects at most.
MOST_OF_LASSO = 200

#: Added to the unit diagonal, so that columns that are combinations of others share their weight.
JITTER = 1e-9

#: Steps of the path for each attribute that it may select; attributes leave it, too.
STEPS_OF_LASSO = 4

#: Share of the largest λ at which the path ends, and of λ itself that steps of rounding are.
LEAST_PENALTY = 1e-7
NO_STEP = 1e-12


def nothing(problem: Problem, budget: float, name: str, status: Status) -> SelectionPath:
    """Buy no judgment, so that the mean label is predicted."""
    path = greedy_path(problem, ScoringState(problem), 0.0, name)
    return replace(path, status=status, budget=float(budget))


def averages(problem: Problem, estimates: JudgmentEstimates, budget: float) -> SelectionPath:
    """Forward selection on averages of `K` judgments.

    Each attribute is chosen at most once and then costs so many. Where more or fewer of them were
    collected, the variance of an average is what it would be of `K`, of any raters.
    """
    whole = _of_averages(problem, estimates, estimates.v / K)
    path = greedy_path(whole, FullState(whole), budget, "averages")
    return replace(path, costs=problem.costs, counts=np.full(path.n_steps, K))


def lasso(problem: Problem, supports: Sequence[Sequence[int]], budget: float) -> SelectionPath:
    """Attributes of a lasso path on the averages that were collected, judged equally often.

    Each of the `supports_of` that the budget pays for is judged in turns, in the order in which its
    attributes entered. The one with the smallest projected loss is taken, so weights and choice
    allow for the disagreement of raters, and the path does not.
    """
    limit = budget * (1.0 + BUDGET_TOLERANCE)
    best_turns = np.zeros(0, dtype=np.int64)
    most_explained = 0.0
    for support in supports:
        attributes = np.array(support)
        costs = np.cumsum(problem.costs[attributes])
        n_turns = int(limit // costs[-1])
        if not n_turns:
            continue
        unspent = limit - n_turns * costs[-1]
        turns = np.append(np.tile(attributes, n_turns), attributes[costs <= unspent])
        repeats = np.bincount(turns, minlength=problem.n_attributes)
        explained = full_objective(problem, repeats)
        if explained > most_explained:
            best_turns = turns
            most_explained = explained
    return _path_of(problem, "lasso", budget, best_turns)


def supports_of(
    problem: Problem, estimates: JudgmentEstimates, most: int = MOST_OF_LASSO
) -> list[list[int]]:
    """Return the supports of the lasso path on averages that were collected, see `lasso_supports`.

    They are of attributes, `most` at most, in units of the deviations of their averages.
    """
    whole = _of_averages(problem, estimates, estimates.noise)
    varying = np.flatnonzero(problem.candidates & whole.candidates)
    unit = whole.deviation[varying]
    gram = whole.external[np.ix_(varying, varying)] / np.outer(unit, unit)
    supports = lasso_supports(gram, whole.b[varying] / unit, min(most, MOST_OF_LASSO))
    return [varying[support].tolist() for support in supports]


def lasso_supports(gram: np.ndarray, target: np.ndarray, most: int) -> list[list[int]]:
    """Follow min ½ wᵀGw − wᵀt + λ‖w‖₁ down from the largest λ with a weight; section 3.1 of [2]_.

    Between two knots the weights of a support A move by G_AA⁻¹ s for each unit that λ falls, with s
    the signs of the correlations t − Gw, which are λ on A and less elsewhere. At a knot a column
    reaches λ and enters, or a weight reaches 0 and leaves. (scikit-learn's `lars_path_gram` finds
    the same, but takes a second to import and cannot stop at the size of a support.)

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        Symmetric, positive semi-definite, of unit diagonal.
    target : ndarray of shape (d,)
    most : int
        Size of a support at which to stop.

    Returns
    -------
    list of list of int
        Columns with a weight between two knots, in the order in which they entered.
    """
    penalty = float(np.abs(target).max(initial=0.0))
    if not penalty:
        return []
    least = LEAST_PENALTY * penalty
    weights = np.zeros(target.size)
    support = [int(np.argmax(np.abs(target)))]
    supports = []
    for _ in range(STEPS_OF_LASSO * min(most, target.size)):
        if penalty <= least or len(support) > most:
            break
        rows = gram[support]
        correlations = target - weights[support] @ rows
        block = rows[:, support] + JITTER * np.eye(len(support))
        direction = np.linalg.solve(block, np.sign(correlations[support]))
        slopes = direction @ rows
        as_positive = _meeting(penalty - correlations, 1.0 - slopes)
        as_negative = _meeting(penalty + correlations, 1.0 + slopes)
        entering = np.minimum(as_positive, as_negative)
        entering[support] = np.inf
        held = weights[support]
        leaving = _meeting(np.abs(held), -np.sign(held) * direction)
        step = min(penalty, entering.min(), leaving.min())
        if step > NO_STEP * penalty:
            supports.append(support.copy())
        weights[support] += step * direction
        penalty -= step
        if leaving.min() <= step:
            left = support.pop(int(np.argmin(leaving)))
            weights[left] = 0.0
        else:
            support.append(int(np.argmin(entering)))
    return supports


def _meeting(distances: np.ndarray, speeds: np.ndarray) -> np.ndarray:
    """Return after how long distances are 0 that fall at some speeds; inf where they do not."""
    times = np.full(distances.size, np.inf)
    return np.divide(np.maximum(distances, 0.0), speeds, out=times, where=speeds > 0)


def _path_of(problem: Problem, name: str, budget: float, attributes: np.ndarray) -> SelectionPath:
    """Path that buys single judgments of some attributes in their order, for Full's objective."""
    unspent = budget - float(problem.costs[attributes].sum())
    path = replace(
        greedy_path(problem, ScoringState(problem), 0.0, name, "gain"),
        status="unaffordable" if unspent > BUDGET_TOLERANCE * budget else "budget_spent",
        budget=float(budget),
        attributes=attributes,
        counts=np.ones_like(attributes),
    )
    return replace(path, objective=path_objective(problem, path, np.arange(attributes.size) + 1))


def _of_averages(problem: Problem, estimates: JudgmentEstimates, noise: np.ndarray) -> Problem:
    """Return the problem of averages that have some noise, as if free of it."""
    moment = estimates.second_moment.copy()
    diagonal = np.diag_indices(problem.n_attributes)
    if estimates.noise_covariance is not None:
        # Of two attributes, as of the raters that will judge.
        moment = estimates.external.copy()
        if problem.noise_covariance is not None:
            moment += estimates.noise_covariance / K
    moment[diagonal] = estimates.second_moment[diagonal] + (noise - estimates.noise)
    # The covariance of rows without gaps, or with more noise, is semi-definite but for rounding.
    semidefinite = estimates.noise_covariance is None and not estimates.n_missing.any()
    semidefinite &= bool((noise >= estimates.noise * (1.0 - CONSTANT_RTOL)).all())
    units = "nearest" if problem.psd == "none" else problem.psd
    free_of_noise = replace(
        estimates,
        v=np.zeros(problem.n_attributes),
        external=moment,
        external_variance=np.maximum(moment[diagonal], 0.0),
    )
    return Problem.from_estimates(
        free_of_noise,
        costs=problem.costs * K,
        ridge=problem.ridge,
        names=problem.names,
        psd="none" if semidefinite else units,
    )


def copies(problem: Problem, estimates: JudgmentEstimates, budget: float) -> SelectionPath:
    """Forward selection with each of `K` judgments as an attribute of its own.

    The copies of an attribute are chosen in fixed order; r[a] is the number of copies chosen. As
    raters are exchangeable, so are copies, and what two of them share is estimated from all pairs
    of judgments rather than from those in their places. The r copies of an attribute then weigh
    the same and explain what r judgments do, with the external covariance as it is estimated.
    """
    external = (estimates.external + estimates.external.T) / 2
    raw = replace(problem, external=external)
    return greedy_path(raw, full_state(raw), budget, "copies", most=K)


def single_attribute(problem: Problem, name: str, budget: float) -> SelectionPath:
    """Spend the whole budget on judgments of one attribute, say people's estimate of the label."""
    a = problem.names.index(name)
    most = int(budget * (1.0 + BUDGET_TOLERANCE) / problem.costs[a])
    return _path_of(problem, "single_attribute", budget, np.full(most, a, dtype=np.int64))
