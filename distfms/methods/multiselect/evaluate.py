"""Numbers of the evaluation: losses on rows, entries of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

from distfms.errors import SpecError
from distfms.methods.multiselect.curves import FoldResult, losses_along
from distfms.methods.multiselect.interval import delete_m_jackknife
from distfms.methods.multiselect.model import (
    LinearModel,
    PathModels,
    RefitStatistics,
    path_models,
    path_objective,
    single_model,
)
from distfms.methods.multiselect.objective import Problem, full_objective, projected_loss
from distfms.methods.multiselect.optimum import scoring_optimum
from distfms.methods.multiselect.path import SelectionPath
from distfms.methods.multiselect.training import Settings, Training
from distfms.stats.base import Folded
from distfms.stats.fold_means import FoldMeans, over_folds
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


def half_width(found: FoldMeans, level: float) -> np.ndarray:
    """Half width of a confidence interval of means of folds, by Student's t.

    Parameters
    ----------
    found : FoldMeans
        With arrays of shape (n,).
    level : float

    Returns
    -------
    ndarray of shape (n,)
        NaN where fewer than two folds have a number.
    """
    quantile = scipy.special.stdtrit(np.maximum(found.n_known - 1, 1), 0.5 + level / 2)
    return quantile * found.standard_error


def points(
    budgets: Sequence[float] | np.ndarray,
    models: PathModels,
    columns: Mapping[str, np.ndarray | None],
) -> list[dict[str, Any]]:
    """Entries of a curve, one per budget.

    Parameters
    ----------
    budgets : ndarray of shape (n,)
    models : PathModels
        The n models they pay for.
    columns : mapping of str to ndarray of shape (n,), or None
        None where a number does not exist.
    """
    return [
        {
            "budget": float(budget),
            "spent": float(models.spent[i]),
            **{k: None if c is None else float(c[i]) for k, c in columns.items()},
        }
        for i, budget in enumerate(budgets)
    ]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that the evaluation of a selection rests on.

    Attributes
    ----------
    training : Training
        Of all training objects.
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
    per_fold : tuple of FoldResult
    confidence : float
        Level of the intervals.
    """

    training: Training
    judgments: Folded[JudgmentStatistics]
    averages: Folded[RefitStatistics]
    model: LinearModel
    paths: Mapping[str, SelectionPath]
    budgets: np.ndarray
    folds: tuple[int, ...]
    per_fold: tuple[FoldResult, ...]
    confidence: float

    @property
    def settings(self) -> Settings:
        """Settings of the job."""
        return self.training.settings

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``.

        Curves are those of the greedy paths. What is bought in the end stands under ``chosen``:
        the last point of the first curve or, where the selection was refined, a point off it.
        """
        curves = {name: self._curve(name, path) for name, path in self.paths.items()}
        _, *baselines = self.paths
        names = self.settings.names
        return {
            "train": {
                **self._scores(self.training.sample.judgments, self.averages.train()),
                "projected_loss_interval": self._interval(),
            },
            "test": (
                self._scores(self.judgments.test, self.averages.test) if self._has_test else None
            ),
            "folds": [
                {
                    "fold": fold,
                    "projected_loss": result.selected,
                    "n_objects": self.judgments.folds[fold].means.n_samples,
                    "weight": float(self.judgments.folds[fold].means.weight),
                }
                for fold, result in zip(self.folds, self.per_fold, strict=True)
            ],
            "chosen": self._chosen(),
            "baselines": {
                name: {
                    "repeats": named_repeats(names, self.paths[name].final_repeats),
                    **curves[name][-1],
                }
                for name in baselines
            },
            "curves": [{"name": name, "points": curve} for name, curve in curves.items()],
        }

    @property
    def _has_test(self) -> bool:
        return self.judgments.test.means.n_samples > 1

    def _curve(self, name: str, path: SelectionPath) -> list[dict[str, Any]]:
        """Points of one algorithm's greedy path."""
        models = path_models(self.training.problem, path, path.steps_at_each(self.budgets))
        return self._points(self.budgets, models, [fold.losses[name] for fold in self.per_fold])

    def _chosen(self) -> dict[str, Any]:
        """Point of the repeats that are bought in the end, with the best weights for them."""
        models = single_model(self.training.problem, self.model.repeats)
        validated = [np.array([fold.selected]) for fold in self.per_fold]
        return self._points([self.settings.budget], models, validated)[0]

    def _points(
        self,
        budgets: Sequence[float] | np.ndarray,
        models: PathModels,
        per_fold: Sequence[np.ndarray],
    ) -> list[dict[str, Any]]:
        """Projected, held-out and cross-validated losses of models."""
        columns = {
            "projected_loss": self.training.problem.label_variance - models.objective,
            "test_loss": self._losses(self.judgments.test, models) if self._has_test else None,
            **self._validation(per_fold),
        }
        return points(budgets, models, columns)

    def _losses(self, held_out: JudgmentStatistics, models: PathModels) -> np.ndarray:
        return losses_along(self.settings, held_out, self.training.estimates, models)

    def _validation(self, per_fold: Sequence[np.ndarray]) -> dict[str, np.ndarray | None]:
        """Mean of the folds' losses with an interval."""
        if not per_fold:
            return {"validation_loss": None, "lower": None, "upper": None}
        weights = [self.judgments.folds[fold].means.weight for fold in self.folds]
        found = over_folds(np.stack(per_fold, axis=-1), weights)
        mean, half = found.mean, half_width(found, self.confidence)
        return {"validation_loss": mean, "lower": mean - half, "upper": mean + half}

    def _scores(self, judgments: JudgmentStatistics, averages: RefitStatistics) -> dict[str, Any]:
        """Scores of the fitted model, whose weights a refit may have changed."""
        problem, model = self.training.problem, self.model
        objective = full_objective(problem, model.repeats)
        alone = PathModels.single(model, objective, float(model.repeats @ problem.costs))
        loss = float(self._losses(judgments, alone)[0])
        return sample_entry(judgments, loss, plain_loss(model, averages), averages)

    def _interval(self) -> dict[str, float] | None:
        """Delete-one-fold jackknife of the projected loss at the selected repeats.

        The estimate is that of ``selection.json``: of the best weights for these repeats, with
        the ridge's penalty and the covariance made positive semi-definite.
        """
        if len(self.folds) < self.judgments.n_folds or self.judgments.n_folds < 2:
            return None
        without = np.array([fold.projected_loss for fold in self.per_fold])
        if np.isnan(without).any():
            return None
        interval = delete_m_jackknife(
            projected_loss(self.training.problem, self.model.repeats),
            without,
            [fold.means.weight for fold in self.judgments.folds],
            self.confidence,
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
    """Entries of ``selection.json`` for a path: one for each run of steps with one attribute.

    The projected loss is that of the best weights after the run, whatever the algorithm
    maximises: Scoring's own objective takes no account of correlations.
    """
    losses = problem.label_variance - path_objective(problem, path)
    last = np.append(np.flatnonzero(np.diff(path.attributes)), path.n_steps - 1)
    last = last if path.n_steps else last[:0]
    counts = np.diff(np.cumsum(path.counts)[last], prepend=0)
    columns = {
        "repeats": path.repeats[last],
        "count": counts,
        "cost": path.costs[path.attributes[last]] * counts,
        "spent": path.spent[last],
        "objective": path.objective[last],
        "projected_loss": losses[last],
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    names = [path.names[a] for a in path.attributes[last].tolist()]
    return [
        {"attribute": name, **dict(zip(columns, row, strict=True))}
        for name, row in zip(names, rows, strict=True)
    ]


def attribute_entries(
    names: Sequence[str],
    costs: np.ndarray,
    estimates: JudgmentEstimates,
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
