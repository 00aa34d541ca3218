"""What pairs are compared with on the same cells, and rows in full that cost as much.

All learn from a sample of the rows, drawn by their keys, so that their cost has a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from distfms.errors import DataError
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    Learned,
    Units,
    full_candidates,
    solve,
)
from distfms.methods.attribute_efficient.normal import normal_model
from distfms.methods.attribute_efficient.pairs import Pairs, inner_folds
from distfms.methods.attribute_efficient.predictors import Gaps
from distfms.solve.trees import FIXED, fitted, gains_by_feature, scores
from distfms.stats.sample import RowSample

#: Names of models of what was observed: a solve from pairs, a ridge on imputed means, a normal
#: model, LightGBM, and a mean of a linear one and LightGBM.
PAIRS = "pairs"
IMPUTED = "imputed"
NORMAL = "normal"
TREES = "lightgbm"
MIXED = "mixed"
#: Kind of a model without trees.
LINEAR = "linear"
#: The mean of the target, which predicts without any attribute.
MEAN = "mean"
#: Shares of LightGBM in such a mean that folds compare; each model alone is among them.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Names of a ridge and LightGBM on rows in full.
FULL_RIDGE = "full_ridge"
FULL_TREES = "full_lightgbm"


@dataclass(frozen=True, eq=False)
class Trees:
    """A model of LightGBM, by its text, as a predictor."""

    text: str

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Predict rows (d, n), NaN where missing; shape (1, n)."""
        return scores(self.text, values.T).reshape(1, -1)

    def gains(self) -> np.ndarray:
        """Return what each column gains."""
        return gains_by_feature(self.text)


def learned_by(name: str, sample: RowSample, draws: Draws, n_rows: int, units: Units) -> Learned:
    """Learn from what is drawn of a sample, or from as many rows in full as `n_rows` of draws cost.

    Where there is nothing to learn, the weights are 0.
    """
    d = len(sample.values) - 2  # target and weight come last
    if name in (FULL_RIDGE, FULL_TREES):
        n_affordable = n_rows * (draws.n_drawn or d) // d
        sample = sample.first(max(n_affordable, 2))
        draws = Draws(None, 0)
    keys = sample.row_ids.view(np.uint64)
    folds = inner_folds(keys)
    target = sample.values[-2]
    observed = draws.observe(sample.values[:-2], keys)
    counts = (~np.isnan(observed)).sum(axis=1)
    n = len(target)
    nothing = Learned(np.zeros(d), n, int(counts.sum()), counts / n, intercept=float(target.mean()))
    if name == NORMAL:
        gaps = normal_model(observed, target)
        return nothing if gaps is None else with_gaps(nothing, gaps)
    if name == FULL_RIDGE:
        pairs = Pairs.of(np.vstack([observed, target]), folds)
        try:
            return solve(FoldPairs([*pairs.folds.values()]), full_candidates, units)
        except DataError:
            return nothing
    parameters = {**FIXED, "objective": "regression", "seed": 0}
    text = fitted(np.ascontiguousarray(observed.T), target, parameters, folds)
    return replace(nothing, trees=text, share=1.0)


def with_gaps(learned: Learned, gaps: Gaps) -> Learned:
    """Return a model of rows with gaps, with the weights that it has of rows without."""
    weights = np.zeros_like(learned.weights)
    has_all = np.ones((1, len(gaps.columns)), dtype=bool)
    weights[gaps.columns] = gaps.weights(has_all)[0]
    intercept = float(gaps.mean[-1] - weights[gaps.columns] @ gaps.mean[:-1])
    return replace(learned, weights=weights, intercept=intercept, gaps=gaps)
