"""Losses along the paths of several algorithms: projected, cross-validated and held out.

Pure: from statistics per fold to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from distfms.errors import DataError
from distfms.methods.multiselect.baselines import averages, copies, single_attribute
from distfms.methods.multiselect.greedy import Algorithm, Criterion, SelectionPath, select
from distfms.methods.multiselect.model import PathModels, path_models
from distfms.methods.multiselect.objective import Problem, holdout_losses
from distfms.stats.judgments import CopiesStatistics, JudgmentEstimates, JudgmentStatistics


@dataclass(frozen=True)
class Settings:
    """What decides about a selection, beside the statistics.

    Attributes
    ----------
    names : tuple of str, length d
    budget : float
    costs : ndarray of shape (d,)
    ridge : float
    criterion : {"best", "gain_per_cost", "gain"}
    internal_variance : ndarray of shape (d,), or None
        Known internal variances, NaN where they are estimated.
    n_judgments : int
        Judgments per attribute of the Averages and Copies baselines.
    algorithms : tuple of str
        The chosen algorithm first, then the baselines.
    """

    names: tuple[str, ...]
    budget: float
    costs: np.ndarray
    ridge: float = 0.0
    criterion: Criterion = "best"
    internal_variance: np.ndarray | None = None
    n_judgments: int = 2
    algorithms: tuple[str, ...] = field(default=("full",))

    def estimates(self, statistics: JudgmentStatistics) -> JudgmentEstimates:
        """Estimates of the training data."""
        return statistics.estimates(self.internal_variance, self.names)

    def problem(self, estimates: JudgmentEstimates) -> Problem:
        """Feature multi-selection in numbers, from the estimates of the training data."""
        return Problem.from_estimates(estimates, self.costs, self.ridge, names=self.names)


@dataclass(frozen=True, eq=False)
class Sample:
    """Statistics of one set of objects.

    Attributes
    ----------
    judgments : JudgmentStatistics
    copies : CopiesStatistics or None
    """

    judgments: JudgmentStatistics
    copies: CopiesStatistics | None = None


def choose(settings: Settings, algorithm: str, sample: Sample) -> SelectionPath:
    """Run one algorithm or baseline on training statistics.

    Parameters
    ----------
    settings : Settings
    algorithm : str
        ``full``, ``scoring``, ``averages``, ``copies`` or ``single:NAME``.
    sample : Sample

    Returns
    -------
    SelectionPath
    """
    estimates = settings.estimates(sample.judgments)
    if algorithm == "averages":
        return averages(
            estimates,
            settings.budget,
            settings.costs,
            n_judgments=settings.n_judgments,
            ridge=settings.ridge,
            names=settings.names,
        )
    if algorithm == "copies":
        if sample.copies is None:
            raise DataError("The Copies baseline needs the statistics of single judgments.")
        return copies(
            sample.copies,
            settings.budget,
            settings.costs,
            ridge=settings.ridge,
            names=settings.names,
        )
    problem = settings.problem(estimates)
    if algorithm.startswith("single:"):
        return single_attribute(problem, algorithm.removeprefix("single:"), settings.budget)
    kind: Algorithm = "scoring" if algorithm == "scoring" else "full"
    return select(problem, settings.budget, kind, settings.criterion)


def held_out_estimates(
    settings: Settings, held_out: JudgmentStatistics, train: JudgmentEstimates
) -> JudgmentEstimates:
    """Estimates of held-out objects, with the training data's v where they have no repeats.

    Parameters
    ----------
    settings : Settings
    held_out : JudgmentStatistics
    train : JudgmentEstimates

    Returns
    -------
    JudgmentEstimates
    """
    known = settings.internal_variance
    given = np.full(len(settings.names), np.nan) if known is None else known
    given = np.where(np.isnan(given) & (held_out.n_repeated == 0), train.v, given)
    return held_out.estimates(given, settings.names)


@dataclass(frozen=True, eq=False)
class FoldTask:
    """One fold's share of a cross-validation, for one worker.

    Attributes
    ----------
    train : Sample
        Everything but the fold.
    held_out : JudgmentStatistics
        The fold.
    """

    train: Sample
    held_out: JudgmentStatistics


@dataclass(frozen=True, eq=False)
class CrossValidate:
    """Picklable function from a fold's task to its losses.

    Attributes
    ----------
    settings : Settings
    budgets : ndarray of shape (n_budgets,)
        Where the losses are wanted.
    """

    settings: Settings
    budgets: np.ndarray

    def __call__(self, task: FoldTask) -> dict[str, np.ndarray]:
        """Select on all but the fold, for every algorithm; evaluate on the fold.

        Returns
        -------
        dict of str to ndarray, shape (n_budgets,)
            Unbiased loss at each budget, by algorithm.
        """
        settings = self.settings
        train = settings.estimates(task.train.judgments)
        problem = settings.problem(train)
        held_out = held_out_estimates(settings, task.held_out, train)
        result = {}
        for algorithm in settings.algorithms:
            path = choose(settings, algorithm, task.train)
            models = path_models(problem, path)
            losses = losses_along(held_out, models)
            result[algorithm] = losses[[path.steps_at(b) for b in self.budgets]]
        return result


def losses_along(estimates: JudgmentEstimates, models: PathModels) -> np.ndarray:
    """Unbiased loss of every model of a path on the objects of the estimates.

    Returns
    -------
    ndarray of shape (n_steps + 1,)
    """
    return holdout_losses(estimates, models.weights, models.intercepts, models.repeats)


def budget_grid(path: SelectionPath, n_points: int = 80) -> np.ndarray:
    """Budgets at which curves are drawn: what the path spent, evenly thinned.

    Parameters
    ----------
    path : SelectionPath
    n_points : int
        At most so many, at least 2.

    Returns
    -------
    ndarray
        Ascending; the first and last budget of the path are among them.
    """
    spent = np.unique(path.spent)
    if spent.size <= n_points:
        return spent
    return spent[np.unique(np.linspace(0, spent.size - 1, n_points).round().astype(int))]


def cross_validated(
    per_fold: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float], algorithm: str
) -> np.ndarray:
    """Mean of the folds' losses, weighted by their objects.

    Parameters
    ----------
    per_fold : sequence of mapping
        What :class:`CrossValidate` returned.
    weights : sequence of float
    algorithm : str

    Returns
    -------
    ndarray of shape (n_budgets,)
    """
    losses = np.array([fold[algorithm] for fold in per_fold])
    share = np.asarray(weights, dtype=float)
    return (share / share.sum()) @ losses
