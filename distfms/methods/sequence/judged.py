"""What the judge is told of sequences: scores of prefixes, what they say of the target, and shares.

Losses are measured by :mod:`distfms.methods.frame.judge` alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distfms.methods.frame.judge import Judge, LossSums, explained
from distfms.methods.frame.outcomes import Responses
from distfms.methods.sequence.problem import PrefixModels

#: As few rows that decide about a deviance are told; of fewer rows in all, fewer.
_FEW_ROWS, _ENOUGH_ROWS = 160, 400


@dataclass(frozen=True, eq=False)
class PrefixScores:
    """Picklable scores of rows by the models of prefixes."""

    models: PrefixModels

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return scores (M, P, n) of features (d, n)."""
        return self.models.scores(features).transpose(1, 2, 0)

    @property
    def n_scores(self) -> int:
        """Number of scores of a row."""
        return len(self.models) * self.models.n_outputs


def measures_of(judge: Judge, sums: LossSums) -> dict[str, np.ndarray]:
    """Return what the models of prefixes are measured by, each of shape (M,).

    The first model is that of no group, of whose loss the others explain a share. Empty where there
    is no row of positive weight; measures by class are NaN but for the last model.
    """
    measures = judge.measures(sums)
    if not measures:
        return {}
    loss, share = "mse", "explained_variance"
    if isinstance(judge.outcome, Responses):
        loss, share = "deviance", "explained_deviance"
    return {share: explained(measures[loss], measures[loss][0]), **measures}


def few_rows(sums: LossSums, rows: str) -> str:
    """Say where a few rows decide about a deviance, which has no bound; empty where none do.

    Of n equal losses (Σ l)² / Σ l² is n.
    """
    n_rows = sums.n_rows
    squares = float(sums["deviance_squares"][0])
    n_deciding = float(sums["deviance"][0]) ** 2 / squares if squares else n_rows
    if n_deciding > _FEW_ROWS * min(1.0, n_rows / _ENOUGH_ROWS) ** 2:
        return ""
    return (
        f"About {n_deciding:.0f} of {n_rows:,} {rows} decide about the deviance: the model is "
        "confidently wrong there."
    )
