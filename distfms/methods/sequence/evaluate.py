"""Numbers of the evaluation of sequences: curves, cross-validation, timeliness.

Pure: from statistics per fold to the entries of ``metrics.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from distfms.methods.sequence.costs import GroupCosts
from distfms.methods.sequence.groups import FeatureGroups
from distfms.methods.sequence.path import HeldOutCurve, SequencePath
from distfms.methods.sequence.problem import SequenceProblem, problem_from_comoments
from distfms.methods.sequence.rules import Rule
from distfms.methods.sequence.timeliness import oracle_curve, plateau, stopping_cost, timeliness
from distfms.stats.comoments import CoMoments
from distfms.stats.fold_means import over_folds

MAX_POINTS = 200
"""Most points of a curve in ``metrics.json``."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What decides about sequences, beside the statistics.

    Attributes
    ----------
    feature_names : tuple of str, length D
        Columns of the block.
    target_names : tuple of str, length P
    groups : FeatureGroups
        Partition of the D columns.
    costs : GroupCosts
    ridge : float
    max_groups : int or None
    seed : int
        Of the ``random`` baseline.
    """

    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    max_groups: int | None
    seed: int

    def problem(self, moments: CoMoments) -> SequenceProblem:
        """Return the selection problem of some rows: the D features, then the P targets."""
        n_features, n_targets = len(self.feature_names), len(self.target_names)
        return problem_from_comoments(
            moments,
            features=range(n_features),
            targets=range(n_features, n_features + n_targets),
            feature_names=self.feature_names,
            target_names=self.target_names,
            groups=self.groups,
            costs=self.costs,
            ridge=self.ridge,
        )

    def path(self, rule: Rule, problem: SequenceProblem) -> SequencePath:
        """Sequence of a rule."""
        return rule.path(problem, seed=self.seed, max_groups=self.max_groups)


@dataclass(frozen=True, eq=False)
class FoldTask:
    """One fold's share of a cross-validation, for one worker.

    Attributes
    ----------
    train : CoMoments
        Everything but the fold.
    held_out : CoMoments
        The fold.
    """

    train: CoMoments
    held_out: CoMoments


@dataclass(frozen=True, eq=False)
class FoldResult:
    """What one fold says.

    Attributes
    ----------
    validation : mapping of str to ndarray
        By rule, explained variance on the fold of what each cost of the rule's grid affords.
    model : mapping of str to float
        Measures on the fold of the whole sequence of the chosen rule.
    """

    validation: Mapping[str, np.ndarray]
    model: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class CrossValidate:
    """Picklable function from a fold's task to its result.

    Every fold is asked once, so there is no state to keep: folds are ordinary tasks of the engine,
    while a grid of options (:mod:`distfms.methods.fold_pool`) asks each fold many times.

    Attributes
    ----------
    settings : Settings
    rules : tuple of Rule
        The chosen one first.
    grids : mapping of str to ndarray
        For each rule the costs at which it is judged.
    """

    settings: Settings
    rules: tuple[Rule, ...]
    grids: Mapping[str, np.ndarray]

    def __call__(self, task: FoldTask) -> FoldResult:
        """Put in order on all but the fold, for every rule; evaluate on the fold."""
        problem = self.settings.problem(task.train)
        validation: dict[str, np.ndarray] = {}
        model: dict[str, float] = {}
        for rule in self.rules:
            path = self.settings.path(rule, problem)
            curve = path.held_out(task.held_out)
            prefixes = [path.affordable(cost) for cost in self.grids[rule.name]]
            validation[rule.name] = curve.explained_variance[prefixes]
            if not model:
                model = measures(curve)
        return FoldResult(validation, model)


def measures(curve: HeldOutCurve) -> dict[str, float]:
    """Measures of the last prefix of a curve."""
    return {
        "r2": float(curve.r2[-1]),
        "mse": float(curve.mse[-1].mean()),
        "explained_variance": float(curve.explained_variance[-1]),
    }


def thinned(n: int, limit: int) -> np.ndarray:
    """Positions of at most `limit` of n items, evenly, the first and the last among them."""
    if n <= limit:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, limit).round().astype(np.intp))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that the evaluation of sequences rests on.

    Attributes
    ----------
    paths : mapping of str to SequencePath
        On all training rows, by the name of the rule; the chosen one first.
    omp : SequencePath
        CS-G-OMP's, whose curve decides where α-timeliness is cut.
    with_oracle : bool
    train, test : CoMoments, CoMoments or None
    per_fold : tuple of (int, CoMoments, FoldResult)
        Fold number, its rows, its result.
    alpha : float or None
        Share of the final objective where α-timeliness is cut; None for the plateau rule.
    scores : mapping of str to ndarray
        Further measures (``accuracy``, ``ndcg@5``) on held-out rows, at `score_prefixes`.
    score_prefixes : ndarray of int
        Prefixes of the chosen sequence.
    """

    paths: Mapping[str, SequencePath]
    omp: SequencePath
    with_oracle: bool
    train: CoMoments
    test: CoMoments | None
    per_fold: tuple[tuple[int, CoMoments, FoldResult], ...] = ()
    alpha: float | None = None
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    score_prefixes: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))

    @property
    def chosen(self) -> str:
        """Name of the chosen rule."""
        return next(iter(self.paths))

    @cached_property
    def _held_out(self) -> dict[str, HeldOutCurve]:
        """Errors of every path's prefixes on the held-out rows."""
        if self.test is None:
            return {}
        return {name: path.held_out(self.test) for name, path in self.paths.items()}

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        path = self.paths[self.chosen]
        curves = [self._curve(name) for name in self.paths]
        if self.with_oracle:
            curves.append({"name": "oracle", "points": self._oracle_points()})
        omp = (self.omp.curve_cost, self.omp.curve_value)
        alpha = plateau(*omp) if self.alpha is None else self.alpha
        cut = stopping_cost(*omp, alpha)
        return {
            "train": {**measures(path.held_out(self.train)), "n_rows": self.train.n_samples},
            "test": self._test(),
            "folds": [
                {
                    "fold": number,
                    **result.model,
                    "n_rows": rows.n_samples,
                    "weight": float(rows.weight),
                }
                for number, rows, result in self.per_fold
            ],
            "curves": curves,
            "timeliness": self.timeliness(alpha, cut),
            "alpha": {"alpha": alpha, "stopping_cost": cut, "by_plateau": self.alpha is None},
            "baselines": self._baselines(curves),
        }

    def _test(self) -> dict[str, Any] | None:
        if self.test is None:
            return None
        last = {name: float(values[-1]) for name, values in self.scores.items()}
        return {**measures(self._held_out[self.chosen]), **last, "n_rows": self.test.n_samples}

    def _baselines(self, curves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Each baseline's order and its last point."""
        return {
            curve["name"]: {
                "groups": list(self.paths[curve["name"]].groups)
                if curve["name"] in self.paths
                else None,
                **curve["points"][-1],
            }
            for curve in curves[1:]
        }

    # --- curves ---

    def _curve(self, name: str) -> dict[str, Any]:
        path = self.paths[name]
        kept = thinned(len(path) + 1, MAX_POINTS)
        columns: dict[str, np.ndarray] = {"explained_variance": path.curve_value[kept]}
        if self.per_fold:
            columns["validation"] = self._validated(name)
        if self.test is not None:
            held_out = self._held_out[name]
            columns["test"] = held_out.explained_variance[kept]
            columns["test_mse"] = held_out.mse.mean(axis=1)[kept]
        points: list[dict[str, Any]] = [
            {
                "n_groups": int(prefix),
                "spent": float(path.curve_cost[prefix]),
                "validation": None,
                "test": None,
                **{key: float(values[i]) for key, values in columns.items()},
            }
            for i, prefix in enumerate(kept)
        ]
        if name == self.chosen:
            self._add_scores(points)
        return {"name": name, "points": points}

    def _add_scores(self, points: Sequence[dict[str, Any]]) -> None:
        by_prefix = {point["n_groups"]: point for point in points}
        for name, values in self.scores.items():
            for prefix, value in zip(self.score_prefixes.tolist(), values, strict=True):
                by_prefix[prefix][name] = float(value)

    def _validated(self, name: str) -> np.ndarray:
        """Mean over folds of the explained variance, weighted by their rows."""
        values = np.stack([result.validation[name] for _, _, result in self.per_fold], axis=-1)
        return over_folds(values, [rows.weight for _, rows, _ in self.per_fold]).mean

    def _oracle_points(self) -> list[dict[str, Any]]:
        path = self.paths[self.chosen]
        curve = oracle_curve(path.curve_cost, path.curve_value)
        return [
            {
                "n_groups": int(prefix),
                "spent": float(curve.cost[prefix]),
                "explained_variance": float(curve.value[prefix]),
                "validation": None,
                "test": None,
            }
            for prefix in thinned(len(curve.cost), MAX_POINTS)
        ]

    # --- timeliness ---

    def timeliness(self, alpha: float, cut: float) -> dict[str, dict[str, float | None]]:
        """Timeliness of every rule.

        Parameters
        ----------
        alpha : float
        cut : float
            Cost at which CS-G-OMP reaches `alpha`: where α-timeliness of all rules is cut, while
            `stopping_cost` is each rule's own.
        """
        curves = {name: (p.curve_cost, p.curve_value) for name, p in self.paths.items()}
        if self.with_oracle:
            oracle = oracle_curve(*curves[self.chosen])
            curves["oracle"] = (oracle.cost, oracle.value)
        end = max(float(cost[-1]) for cost, _ in curves.values())
        final = max(float(value[-1]) for _, value in curves.values())
        held_out = {name: c.explained_variance for name, c in self._held_out.items()}
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
