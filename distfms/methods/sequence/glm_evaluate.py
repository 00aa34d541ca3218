"""Numbers of the evaluation of generalised linear sequences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.methods.sequence.glm_problem import GlmPath
from distfms.methods.sequence.glm_statistics import GlmLosses
from distfms.methods.sequence.scores import AccuracyCounts
from distfms.methods.sequence.timeliness import oracle_curve, plateau, stopping_cost, timeliness
from distfms.stats.base import Folded


@dataclass(frozen=True, eq=False)
class GlmScores:
    """How the models of one path do, on training and held-out rows.

    Attributes
    ----------
    losses : Folded of GlmLosses
        Of the path's models, the null model first; one training part.
    accuracy : Folded of AccuracyCounts, or None
    """

    losses: Folded[GlmLosses]
    accuracy: Folded[AccuracyCounts] | None

    def measures(self, part: GlmLosses, accuracy: AccuracyCounts | None) -> dict[str, np.ndarray]:
        """Measures of every model on one part: explained deviance, mean deviance, accuracy.

        The null model's deviance is that of the training mean, as it is for R² with a mean
        learned elsewhere.
        """
        deviance = 2.0 * part.losses / part.weight
        whole = deviance[0] if deviance[0] > 0 else np.nan
        found = {"explained_deviance": 1.0 - deviance / whole, "deviance": deviance}
        return found if accuracy is None else {**found, "accuracy": accuracy.accuracy}

    def train(self) -> dict[str, np.ndarray]:
        """Measures on the training rows."""
        accuracy = None if self.accuracy is None else self.accuracy.train()
        return self.measures(self.losses.train(), accuracy)

    def test(self) -> dict[str, np.ndarray] | None:
        """Measures on the held-out rows; None if there are none."""
        if not self.losses.test.weight > 0:
            return None
        accuracy = None if self.accuracy is None else self.accuracy.test
        return self.measures(self.losses.test, accuracy)


@dataclass(frozen=True, eq=False)
class GlmEvaluation:
    """All that the evaluation rests on.

    Attributes
    ----------
    paths : mapping of str to GlmPath
        By the name of the rule; the chosen one first.
    scores : mapping of str to GlmScores
    groups : tuple of str
        Names of the groups of the problem.
    with_oracle : bool
    alpha : float or None
        Share of the final explained deviance where α-timeliness is cut; None for the plateau rule.
    """

    paths: Mapping[str, GlmPath]
    scores: Mapping[str, GlmScores]
    groups: tuple[str, ...]
    with_oracle: bool
    alpha: float | None

    @property
    def chosen(self) -> str:
        """Name of the chosen rule."""
        return next(iter(self.paths))

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        own = self.paths[self.chosen]
        cost, value = own.curve_cost, own.explained_deviance
        alpha = plateau(cost, value) if self.alpha is None else self.alpha
        curves = [self._curve(name) for name in self.paths]
        if self.with_oracle:
            curves.append({"name": "oracle", "points": self._oracle_points()})
        scores = self.scores[self.chosen]
        test = scores.test()
        return {
            "train": self._last(scores.train(), scores.losses.train().n_samples),
            "test": None if test is None else self._last(test, scores.losses.test.n_samples),
            "folds": [],
            "curves": curves,
            "timeliness": self._timeliness(alpha, stopping_cost(cost, value, alpha)),
            "alpha": {
                "alpha": alpha,
                "stopping_cost": stopping_cost(cost, value, alpha),
                "by_plateau": self.alpha is None,
            },
            "baselines": {
                curve["name"]: {"groups": self._order(curve["name"]), **curve["points"][-1]}
                for curve in curves[1:]
            },
        }

    def _order(self, name: str) -> list[str] | None:
        return [self.groups[g] for g in self.paths[name].order] if name in self.paths else None

    @staticmethod
    def _last(measures: Mapping[str, np.ndarray], n_rows: int) -> dict[str, Any]:
        return {**{name: float(v[-1]) for name, v in measures.items()}, "n_rows": n_rows}

    def _curve(self, name: str) -> dict[str, Any]:
        path, test = self.paths[name], self.scores[name].test()
        at = path.model_of_prefix
        explained, costs = path.explained_deviance, path.curve_cost
        points: list[dict[str, Any]] = []
        for prefix, model in enumerate(at):
            point: dict[str, Any] = {
                "n_groups": prefix,
                "spent": float(costs[prefix]),
                "explained_variance": float(explained[prefix]),
                "explained_deviance": float(explained[prefix]),
                "validation": None,
                "test": None,
            }
            if test is not None:
                point["test"] = float(test["explained_deviance"][model])
                point["test_deviance"] = float(test["deviance"][model])
                if "accuracy" in test:
                    point["accuracy"] = float(test["accuracy"][model])
            points.append(point)
        return {"name": name, "points": points}

    def _oracle(self) -> tuple[np.ndarray, np.ndarray]:
        path = self.paths[self.chosen]
        curve = oracle_curve(path.curve_cost, path.explained_deviance)
        return curve.cost, curve.value

    def _oracle_points(self) -> list[dict[str, Any]]:
        return [
            {
                "n_groups": prefix,
                "spent": float(cost),
                "explained_variance": float(value),
                "explained_deviance": float(value),
                "validation": None,
                "test": None,
            }
            for prefix, (cost, value) in enumerate(zip(*self._oracle(), strict=True))
        ]

    def _timeliness(self, alpha: float, cut: float) -> dict[str, dict[str, float | None]]:
        """Timeliness of every rule; α-timeliness is cut where the chosen one reaches `alpha`."""
        curves = {n: (p.curve_cost, p.explained_deviance) for n, p in self.paths.items()}
        if self.with_oracle:
            curves["oracle"] = self._oracle()
        end = max(float(cost[-1]) for cost, _ in curves.values())
        final = max(float(value[-1]) for _, value in curves.values())
        held_out = {
            name: test["explained_deviance"][self.paths[name].model_of_prefix]
            for name, scores in self.scores.items()
            if (test := scores.test()) is not None
        }
        last = max((float(value[-1]) for value in held_out.values()), default=0.0)
        return {
            name: {
                "timeliness": timeliness(cost, value, stop=end, final=final),
                "alpha": alpha,
                "stopping_cost": stopping_cost(cost, value, alpha),
                "alpha_timeliness": timeliness(cost, value, stop=cut, final=final),
                "test_alpha_timeliness": timeliness(cost, held_out[name], stop=cut, final=last)
                if name in held_out
                else None,
            }
            for name, (cost, value) in curves.items()
        }
