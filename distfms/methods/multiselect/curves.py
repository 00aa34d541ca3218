"""Losses along the paths of several algorithms: projected, cross-validated and held out.

Pure: from statistics per fold to numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.methods.multiselect.model import PathModels, path_models, single_model
from distfms.methods.multiselect.objective import holdout_losses, projected_loss
from distfms.methods.multiselect.path import BUDGET_TOLERANCE, SelectionPath
from distfms.methods.multiselect.training import Sample, Settings, Training
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics


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
class LazyFoldTask:
    """A fold's task whose training statistics are merged where and when they are needed.

    Threads then hold as many of them as there are workers, not as there are folds. A process or
    another machine is sent a plain :class:`FoldTask`.

    Attributes
    ----------
    merge : callable
        Gives everything but the fold.
    held_out : JudgmentStatistics
    """

    merge: Callable[[], Sample]
    held_out: JudgmentStatistics

    @property
    def train(self) -> Sample:
        """Everything but the fold; merged anew each time."""
        return self.merge()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a plain task."""
        return FoldTask, (self.train, self.held_out)


@dataclass(frozen=True, eq=False)
class Fold:
    """One fold, and what can be learned without it.

    Attributes
    ----------
    training : Training
        Of all but the fold, on the attributes that can be estimated there.
    held_out : JudgmentStatistics
        The fold, on the same attributes.
    complete : bool
        Whether these are all attributes.
    """

    training: Training
    held_out: JudgmentStatistics
    complete: bool

    @classmethod
    def of(cls, settings: Settings, task: FoldTask | LazyFoldTask) -> Fold | None:
        """Prepare a fold.

        Returns
        -------
        Fold or None
            None if no attribute can be estimated without it.
        """
        sample, held_out = task.train, task.held_out
        able = np.flatnonzero(settings.estimable(sample.judgments))
        if not able.size:
            return None
        complete = able.size == len(settings.names)
        if not complete:
            settings, sample = settings.restricted(able), sample.restricted(able)
            held_out = held_out.take(able)
        return cls(Training.of(settings, sample), held_out, complete)

    def losses(self, algorithm: str, budgets: np.ndarray) -> tuple[np.ndarray, float]:
        """Losses on the fold of what an algorithm selects without it.

        Parameters
        ----------
        algorithm : str
        budgets : ndarray of shape (n_budgets,)

        Returns
        -------
        losses : ndarray of shape (n_budgets,)
            For each budget, along the greedy path; NaN where the fold's objects have no judgment
            of an attribute that the model uses.
        selected : float
            The same for what is bought in the end: that of the path's end unless this is the
            chosen algorithm and it is refined.
        """
        training = self.training
        if algorithm.startswith("single:") and algorithm[7:] not in training.settings.names:
            return np.full(len(budgets), np.nan), np.nan
        path = _choose_if_affordable(training, algorithm)
        models = path_models(training.problem, path, path.steps_at_each(budgets))
        if algorithm == training.settings.algorithms[0]:
            final = single_model(training.problem, training.selected(path))
        else:
            final = single_model(training.problem, path.final_repeats)
        return self._losses(models), float(self._losses(final)[0])

    def _losses(self, models: PathModels) -> np.ndarray:
        training = self.training
        return losses_along(training.settings, self.held_out, training.estimates, models)

    def projected_loss(self, repeats: np.ndarray) -> float:
        """Projected loss of given repeats without the fold; NaN where it cannot be estimated.

        Parameters
        ----------
        repeats : ndarray of int, shape (d,)
            Of all attributes.
        """
        return projected_loss(self.training.problem, repeats) if self.complete else np.nan


@dataclass(frozen=True, eq=False)
class FoldResult:
    """What one fold tells; see :class:`Fold`.

    Attributes
    ----------
    losses : mapping of str to ndarray of shape (n_budgets,)
        By algorithm.
    selected : float
        Loss of the chosen algorithm's final selection.
    projected_loss : float
        Without the fold, of the repeats that all training objects led to.
    """

    losses: Mapping[str, np.ndarray]
    selected: float
    projected_loss: float


@dataclass(frozen=True, eq=False)
class CrossValidate:
    """Picklable function from a fold's task to its losses.

    Attributes
    ----------
    settings : Settings
    budgets : ndarray of shape (n_budgets,)
        Where the losses are wanted.
    repeats : ndarray of int, shape (d,)
        What all training objects led to.
    """

    settings: Settings
    budgets: np.ndarray
    repeats: np.ndarray

    def __call__(self, task: FoldTask | LazyFoldTask) -> FoldResult:
        """Select on all but the fold, for every algorithm; evaluate on the fold.

        Attributes that cannot be estimated without the fold take no part.
        """
        algorithms = self.settings.algorithms
        fold = Fold.of(self.settings, task)
        if fold is None:
            nothing = np.full(len(self.budgets), np.nan)
            return FoldResult(dict.fromkeys(algorithms, nothing), np.nan, np.nan)
        found = {name: fold.losses(name, self.budgets) for name in algorithms}
        losses = {name: along for name, (along, _) in found.items()}
        return FoldResult(losses, found[algorithms[0]][1], fold.projected_loss(self.repeats))


def _choose_if_affordable(training: Training, algorithm: str) -> SelectionPath:
    """Run an algorithm; without one of its attributes a fold may have none that can be paid."""
    settings, problem = training.settings, training.problem
    limit = settings.budget * (1.0 + BUDGET_TOLERANCE)
    if (settings.costs[problem.candidates] <= limit).any():
        return training.choose(algorithm)
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
    """Unbiased loss of models on held-out objects.

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
    ndarray of shape (n_models,)
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
