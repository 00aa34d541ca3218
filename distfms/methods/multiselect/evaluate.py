"""Numbers of the evaluation: losses on rows, entries of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats

from distfms.errors import SpecError
from distfms.methods.multiselect.curves import (
    Settings,
    cross_validated,
    losses_along,
)
from distfms.methods.multiselect.greedy import SelectionPath
from distfms.methods.multiselect.interval import ProblemOptions, projected_loss_interval
from distfms.methods.multiselect.model import (
    LinearModel,
    PathModels,
    RefitStatistics,
    path_models,
)
from distfms.methods.multiselect.objective import Problem
from distfms.methods.multiselect.optimum import scoring_optimum
from distfms.stats.base import Folded
from distfms.stats.judgment_block import AttributeEstimates
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics


def plain_loss(model: LinearModel, averages: RefitStatistics) -> float | None:
    """Mean squared error over the objects that hold r[a] judgments of every selected attribute.

    Parameters
    ----------
    model : LinearModel
    averages : RefitStatistics
        For the model's repeats.

    Returns
    -------
    float or None
        None if no object holds enough.
    """
    comoments = averages.comoments
    if comoments.n_samples == 0:
        return None
    weights = model.weights[model.repeats > 0]
    contrast = np.append(-weights, 1.0)
    variance = contrast @ comoments.covariance(pairwise=False) @ contrast
    offset = contrast @ comoments.mean - model.intercept
    return float(variance + offset**2)


def sample_entry(
    judgments: JudgmentStatistics, loss: float, mse: float | None, averages: RefitStatistics
) -> dict[str, Any]:
    """Scores of the model on one set of objects.

    Parameters
    ----------
    judgments : JudgmentStatistics
    loss : float
        Unbiased estimate of the squared loss at the model's repeats; NaN if there is none.
    mse : float or None
        Plain mean squared error where objects hold that many judgments.
    averages : RefitStatistics

    Returns
    -------
    dict
    """
    variance = float(judgments.means.variance()[-1])
    return {
        "projected_loss": loss,
        "r2": 1.0 - loss / variance if variance > 0 else None,
        "mse": mse,
        "n_objects": int(judgments.n_objects),
        "n_objects_with_all_judgments": int(averages.comoments.n_samples),
        "label_variance": variance,
    }


def spread(losses: Sequence[np.ndarray], level: float) -> np.ndarray:
    """Half width of a confidence interval of the mean of folds.

    Parameters
    ----------
    losses : sequence of ndarray, one per fold
    level : float

    Returns
    -------
    ndarray
        By Student's t; folds share training data, so this is a guide rather than exact. Folds
        without a loss are left out; NaN where fewer than two have one.
    """
    values = np.array(losses)
    known = ~np.isnan(values)
    n = known.sum(axis=0)
    enough = np.maximum(n, 2)
    mean = np.where(known, values, 0.0).sum(axis=0) / enough
    squares = np.where(known, values - mean, 0.0) ** 2
    error = np.sqrt(squares.sum(axis=0) / (enough - 1) / enough)
    quantile = scipy.stats.t.ppf(0.5 + level / 2, enough - 1)
    return np.where(n > 1, quantile * error, np.nan)


def points(
    budgets: np.ndarray,
    models: PathModels,
    steps: Sequence[int],
    columns: Mapping[str, np.ndarray | None],
) -> list[dict[str, Any]]:
    """Entries of a curve, one per budget.

    Parameters
    ----------
    budgets : ndarray of shape (n,)
    models : PathModels
    steps : sequence of int, length n
        Steps that each budget pays for.
    columns : mapping of str to ndarray of shape (n,), or None
        None where a number does not exist.
    """
    return [
        {
            "budget": float(budget),
            "spent": float(models.spent[step]),
            **{k: None if c is None else float(c[i]) for k, c in columns.items()},
        }
        for i, (budget, step) in enumerate(zip(budgets, steps, strict=True))
    ]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that the evaluation of a selection rests on.

    Attributes
    ----------
    settings : Settings
    judgments : Folded of JudgmentStatistics
    averages : Folded of RefitStatistics
        For the model's repeats.
    model : LinearModel
    paths : mapping of str to SelectionPath
        Of every algorithm on all training objects; the chosen one first.
    budgets : ndarray of shape (n_budgets,)
        Where curves have their points.
    folds : tuple of int
        Folds that were cross-validated over.
    per_fold : tuple of mapping
        What :class:`~distfms.methods.multiselect.curves.CrossValidate` returned for each.
    confidence : float
        Level of the intervals.
    """

    settings: Settings
    judgments: Folded[JudgmentStatistics]
    averages: Folded[RefitStatistics]
    model: LinearModel
    paths: Mapping[str, SelectionPath]
    budgets: np.ndarray
    folds: tuple[int, ...]
    per_fold: tuple[Mapping[str, np.ndarray], ...]
    confidence: float

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        train = self.settings.estimates(self.judgments.train())
        problem = self.settings.problem(train)
        curves = {
            name: self._curve(train, problem, name, path) for name, path in self.paths.items()
        }
        chosen, *baselines = self.paths
        return {
            "train": {
                **self._scores(train, self.judgments.train(), self.averages.train()),
                "projected_loss_interval": self._interval(),
            },
            "test": (
                self._scores(train, self.judgments.test, self.averages.test)
                if self._has_test
                else None
            ),
            "folds": [
                {
                    "fold": fold,
                    "projected_loss": float(losses[chosen][-1]),
                    "n_objects": self.judgments.folds[fold].means.n_samples,
                }
                for fold, losses in zip(self.folds, self.per_fold, strict=True)
            ],
            "baselines": {
                name: {
                    "repeats": named_repeats(problem.names, self.paths[name].final_repeats),
                    **curves[name][-1],
                }
                for name in baselines
            },
            "curves": [{"name": name, "points": curve} for name, curve in curves.items()],
        }

    @property
    def _has_test(self) -> bool:
        return self.judgments.test.means.n_samples > 1

    def _curve(
        self, train: JudgmentEstimates, problem: Problem, name: str, path: SelectionPath
    ) -> list[dict[str, Any]]:
        models = path_models(problem, path)
        steps = [path.steps_at(budget) for budget in self.budgets]
        columns = {
            "projected_loss": problem.label_variance - models.objective[steps],
            "test_loss": (
                losses_along(self.settings, self.judgments.test, train, models)[steps]
                if self._has_test
                else None
            ),
            **self._validation(name),
        }
        return points(self.budgets, models, steps, columns)

    def _validation(self, algorithm: str) -> dict[str, np.ndarray | None]:
        if not self.per_fold:
            return {"validation_loss": None, "lower": None, "upper": None}
        weights = [self.judgments.folds[fold].means.weight for fold in self.folds]
        mean = cross_validated(self.per_fold, weights, algorithm)
        half = spread([fold[algorithm] for fold in self.per_fold], self.confidence)
        return {"validation_loss": mean, "lower": mean - half, "upper": mean + half}

    def _scores(
        self,
        train: JudgmentEstimates,
        judgments: JudgmentStatistics,
        averages: RefitStatistics,
    ) -> dict[str, Any]:
        model = self.model
        alone = PathModels(
            names=model.names,
            repeats=model.repeats[None, :],
            weights=model.weights[None, :],
            intercepts=np.array([model.intercept]),
            objective=np.zeros(1),
            spent=np.zeros(1),
            means=model.means,
        )
        loss = float(losses_along(self.settings, judgments, train, alone)[0])
        return sample_entry(judgments, loss, plain_loss(model, averages), averages)

    def _interval(self) -> dict[str, float] | None:
        """Delete-one-fold jackknife of the projected loss at the selected repeats.

        The estimate is that of ``selection.json``: of the best weights for these repeats, with
        the ridge's penalty and the covariance made positive semi-definite.
        """
        if len(self.folds) < self.judgments.n_folds or self.judgments.n_folds < 2:
            return None
        if any(
            not self.settings.estimable(self.judgments.train_without(f)).all() for f in self.folds
        ):
            return None
        options = ProblemOptions(
            costs=self.settings.costs.tolist(),
            ridge=self.settings.ridge,
            internal_variance=self.settings.internal_variance,
            names=self.settings.names,
            psd=self.settings.psd,
        )
        interval = projected_loss_interval(
            self.judgments.folds, self.model.repeats, options, level=self.confidence
        )
        return {
            "level": self.confidence,
            "estimate": float(interval.estimate),
            "lower": float(interval.lower),
            "upper": float(interval.upper),
        }


def named_repeats(names: Sequence[str], repeats: np.ndarray) -> dict[str, int]:
    """Judgments by attribute, without those that get none."""
    return {names[int(a)]: int(repeats[a]) for a in np.flatnonzero(repeats)}


def scoring_yardstick(problem: Problem, algorithm: str, budget: float) -> dict[str, Any] | None:
    """Exact optimum of the Scoring objective, where the greedy pass may miss it.

    Parameters
    ----------
    problem : Problem
    algorithm : str
    budget : float

    Returns
    -------
    dict or None
        None unless the algorithm is Scoring and costs differ (with equal ones the greedy pass is
        optimal), or where the costs have no common unit of a workable size.
    """
    if algorithm != "scoring" or (problem.costs == problem.costs[0]).all():
        return None
    try:
        optimum = scoring_optimum(problem, budget)
    except SpecError:
        return None
    return {
        "objective": optimum.objective,
        "spent": optimum.spent,
        "repeats": named_repeats(problem.names, optimum.repeats),
    }


def path_entries(problem: Problem, path: SelectionPath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path.

    The projected loss is that of the best weights after each step, whatever the algorithm
    maximises: Scoring's own objective takes no account of correlations.
    """
    projected_loss = problem.label_variance - path_models(problem, path).objective[1:]
    columns = zip(
        path.attributes.tolist(),
        path.repeats.tolist(),
        path.cost.tolist(),
        path.spent.tolist(),
        path.objective.tolist(),
        projected_loss.tolist(),
        strict=True,
    )
    return [
        {
            "attribute": path.names[a],
            "repeats": r,
            "cost": cost,
            "spent": spent,
            "objective": objective,
            "projected_loss": loss,
        }
        for a, r, cost, spent, objective, loss in columns
    ]


def attribute_entries(
    names: Sequence[str],
    costs: np.ndarray,
    estimates: JudgmentEstimates | AttributeEstimates,
    n_judgments: np.ndarray,
) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the attributes."""
    return [
        {
            "name": name,
            "b": float(estimates.b[a]),
            "v": float(estimates.v[a]),
            "sigma": float(estimates.sigma[a]),
            "cost": float(costs[a]),
            "mean": float(estimates.means[a]),
            "n_judgments": int(n_judgments[a]),
            "n_missing": int(estimates.n_missing[a]),
            "mean_judgments": float(estimates.mean_judgments[a]),
        }
        for a, name in enumerate(names)
    ]
