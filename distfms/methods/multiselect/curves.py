"""Losses along the paths of several algorithms: projected, cross-validated and held out.

Pure: from statistics per fold to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distfms.errors import DataError
from distfms.methods.multiselect.baselines import averages, copies, single_attribute
from distfms.methods.multiselect.greedy import (
    BUDGET_TOLERANCE,
    Algorithm,
    Criterion,
    SelectionPath,
    select,
)
from distfms.methods.multiselect.model import PathModels, path_models
from distfms.methods.multiselect.objective import Problem, Psd, holdout_losses
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
    psd : {"nearest", "none"}
        See :class:`~distfms.methods.multiselect.objective.Problem`.
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
    psd: Psd = "nearest"
    criterion: Criterion = "best"
    internal_variance: np.ndarray | None = None
    n_judgments: int = 2
    algorithms: tuple[str, ...] = field(default=("full",))

    def estimates(self, statistics: JudgmentStatistics) -> JudgmentEstimates:
        """Estimates of the training data."""
        return statistics.estimates(self.internal_variance, self.names)

    def problem(self, estimates: JudgmentEstimates) -> Problem:
        """Feature multi-selection in numbers, from the estimates of the training data."""
        return Problem.from_estimates(
            estimates, self.costs, self.ridge, names=self.names, psd=self.psd
        )

    def known_variance(self) -> np.ndarray:
        """Return the given internal variances, NaN where they are estimated; shape (d,)."""
        if self.internal_variance is None:
            return np.full(len(self.names), np.nan)
        return self.internal_variance

    def estimable(self, statistics: JudgmentStatistics) -> np.ndarray:
        """Tell which attributes some objects suffice to estimate.

        Parameters
        ----------
        statistics : JudgmentStatistics

        Returns
        -------
        ndarray of bool, shape (d,)
            Judged at all, and judged twice somewhere unless the internal variance is given.
        """
        repeated = (statistics.n_repeated > 0) | ~np.isnan(self.known_variance())
        return (statistics.n_judged > 0) & repeated

    def restricted(self, attributes: np.ndarray) -> Settings:
        """Return the settings for some attributes only.

        Parameters
        ----------
        attributes : ndarray of int
        """
        known = self.internal_variance
        return replace(
            self,
            names=tuple(self.names[int(a)] for a in attributes),
            costs=self.costs[attributes],
            internal_variance=None if known is None else known[attributes],
        )


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

    def restricted(self, attributes: np.ndarray) -> Sample:
        """Return the statistics of some attributes only.

        Parameters
        ----------
        attributes : ndarray of int
        """
        judgments, copies = self.judgments.take(attributes), self.copies
        if copies is not None:
            columns = attributes[:, None] * copies.copies + np.arange(copies.copies)
            kept = np.append(columns.ravel(), copies.comoments.n_columns - 1)
            copies = replace(copies, comoments=copies.comoments.take(kept))
        return Sample(judgments, copies)


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
    settings: Settings, held_out: JudgmentStatistics, v: np.ndarray
) -> JudgmentEstimates:
    """Estimates of held-out objects, with the training data's v where they have no repeats.

    Parameters
    ----------
    settings : Settings
    held_out : JudgmentStatistics
        With judgments of every attribute.
    v : ndarray of shape (d,)
        Internal variances of the training data.

    Returns
    -------
    JudgmentEstimates
    """
    given = settings.known_variance()
    given = np.where(np.isnan(given) & (held_out.n_repeated == 0), v, given)
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

        Attributes that cannot be estimated without the fold take no part.

        Returns
        -------
        dict of str to ndarray, shape (n_budgets,)
            Unbiased loss at each budget, by algorithm; NaN where the fold's objects have no
            judgment of an attribute that the model uses.
        """
        able = np.flatnonzero(self.settings.estimable(task.train.judgments))
        settings, sample = self.settings.restricted(able), task.train.restricted(able)
        held_out = task.held_out.take(able)
        nothing = np.full(len(self.budgets), np.nan)
        result = dict.fromkeys(settings.algorithms, nothing)
        if not able.size:
            return result
        train = settings.estimates(sample.judgments)
        problem = settings.problem(train)
        for algorithm in settings.algorithms:
            if algorithm.startswith("single:") and algorithm[7:] not in settings.names:
                continue
            path = _choose_if_affordable(settings, algorithm, sample, problem)
            losses = losses_along(settings, held_out, train, path_models(problem, path))
            result[algorithm] = losses[[path.steps_at(b) for b in self.budgets]]
        return result


def _choose_if_affordable(
    settings: Settings, algorithm: str, sample: Sample, problem: Problem
) -> SelectionPath:
    """Run an algorithm; without one of its attributes a fold may have none that can be paid."""
    limit = settings.budget * (1.0 + BUDGET_TOLERANCE)
    if (settings.costs[problem.candidates] <= limit).any():
        return choose(settings, algorithm, sample)
    none = np.zeros(0, dtype=np.int64)
    return SelectionPath(
        algorithm=algorithm,
        criterion="gain_per_cost",
        status="unaffordable",
        budget=settings.budget,
        names=settings.names,
        costs=settings.costs,
        attributes=none,
        counts=none,
        objective=np.zeros(0),
        label_variance=problem.label_variance,
    )


def losses_along(
    settings: Settings, held_out: JudgmentStatistics, train: JudgmentEstimates, models: PathModels
) -> np.ndarray:
    """Unbiased loss of every model of a path on held-out objects.

    Parameters
    ----------
    settings : Settings
    held_out : JudgmentStatistics
        With at least one object.
    train : JudgmentEstimates
        Its v stands in where the held-out objects have no repeated judgments.
    models : PathModels

    Returns
    -------
    ndarray of shape (n_steps + 1,)
        NaN where a model uses an attribute of which no held-out object has a judgment.
    """
    judged = np.flatnonzero(held_out.n_judged > 0)
    estimates = held_out_estimates(
        settings.restricted(judged), held_out.take(judged), train.v[judged]
    )
    losses = holdout_losses(
        estimates, models.weights[:, judged], models.intercepts, models.repeats[:, judged]
    )
    blind = np.delete(models.weights, judged, axis=1) != 0
    return np.where(blind.any(axis=1), np.nan, losses)


def budget_grid(path: SelectionPath, n_points: int = 80) -> np.ndarray:
    """Budgets at which curves are drawn: what the path spent, evenly thinned, and all of it.

    Parameters
    ----------
    path : SelectionPath
    n_points : int
        At most so many, at least 2.

    Returns
    -------
    ndarray
        Ascending; what the first and the last step had spent are among them, and the last is the
        whole budget, of which other ways to spend it may leave less.
    """
    spent = np.unique(path.spent)
    if not spent.size or path.budget - spent[-1] > BUDGET_TOLERANCE * path.budget:
        spent = np.append(spent, path.budget)
    if spent.size <= n_points:
        return spent
    return spent[np.unique(np.linspace(0, spent.size - 1, n_points).round().astype(int))]


def cross_validated(
    per_fold: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float], algorithm: str
) -> np.ndarray:
    """Mean of the folds' losses, weighted by their objects; folds without a loss left out.

    Parameters
    ----------
    per_fold : sequence of mapping
        What :class:`CrossValidate` returned.
    weights : sequence of float
    algorithm : str

    Returns
    -------
    ndarray of shape (n_budgets,)
        NaN where no fold has one.
    """
    losses = np.array([fold[algorithm] for fold in per_fold])
    share = np.where(np.isnan(losses), 0.0, np.asarray(weights, dtype=float)[:, None])
    total = share.sum(axis=0)
    mean = np.full(losses.shape[1], np.nan)
    return np.divide((share * np.nan_to_num(losses)).sum(axis=0), total, out=mean, where=total > 0)
