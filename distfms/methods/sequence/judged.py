"""What the judge is told of sequences: scores of prefixes, what they say of the target, and shares.

Losses are measured by :mod:`distfms.methods.frame.judge` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distfms.methods.frame.judge import Judge, LossSums
from distfms.methods.frame.outcomes import Responses
from distfms.methods.sequence.problem import PrefixModels
from distfms.stats.base import explained, explained_by_fold
from distfms.stats.folds import Answer, FoldAnswers

#: As few rows that decide about a deviance are told.
_FEW_ROWS = 160
#: What measures are shares of.
LOSS_OF = {"explained_variance": "mse", "explained_deviance": "deviance"}


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


def measures_of(
    judge: Judge, sums: LossSums, class_shares: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return what the models of prefixes are measured by, each of shape (M,).

    The first model is that of no group, of whose loss the others explain a share. Empty where there
    is no row of positive weight; measures by class are NaN but for the last model.

    Of classes the loss of no group is that of `class_shares`, the shares of all training rows, on
    folds too: where most rows of a rare class are in one fold, the shares without it are so wrong
    there that any model explains much of their deviance.
    """
    measures = judge.measures(sums)
    if not measures:
        return {}
    if not isinstance(judge.outcome, Responses):
        return {"explained_variance": explained(measures["mse"], measures["mse"][0]), **measures}
    deviance = measures["deviance"]
    if class_shares is not None and "confusion" in sums:
        deviance[0] = _deviance_of_shares(judge.outcome, sums, class_shares)
    return {"explained_deviance": explained(deviance, deviance[0]), **measures}


def _deviance_of_shares(outcome: Responses, sums: LossSums, class_shares: np.ndarray) -> float:
    """Return −2 Σₖ Wₖ log pₖ / Σₖ Wₖ of rows whose classes weigh W and of shares p."""
    weight = sums["confusion"][-1].sum(axis=1)
    if outcome.class_weights is not None:
        weight = weight * np.array(outcome.class_weights)
    is_here = weight > 0
    logs = np.log(class_shares[is_here])
    total = max(float(weight.sum()), np.finfo(float).tiny)
    return float(-2.0 * (weight[is_here] @ logs) / total)


def pooled(answers: FoldAnswers, share: str) -> FoldAnswers:
    """Return answers whose shares of a loss are those of all folds together, to first order.

    A fold in which there is little to explain, such as one of few rows or without a row of a rare
    class, then counts for as little.
    """
    loss = LOSS_OF[share]

    def pooled_of(item: int) -> dict[str, np.ndarray]:
        of_folds = answers.answers[item]
        if not of_folds or share not in of_folds[0]:
            return {}
        losses = losses_of(of_folds, loss)
        return {loss: losses, share: explained_by_fold(losses, losses[0], answers.weight)}

    return answers.with_values(pooled_of)


def losses_of(of_folds: Sequence[Answer], name: str) -> np.ndarray:
    """Return the losses (M, n_folds) of models of prefixes, from their measures.

    Where all rows of the folds are of the most frequent class, those of the other are all in a fold
    without which there is no model. What is always sure of the first has the least deviance, so
    that these rows tell nothing of any model: all losses are that of no group.
    """
    losses = np.stack([answer[name] for answer in of_folds], axis=-1)
    is_sure = [answer.get("accuracy", (0.0,))[0] == 1.0 for answer in of_folds]
    if name == "deviance" and all(is_sure):
        losses = np.tile(losses[0], (len(losses), 1))
    return losses


def few_rows(sums: LossSums, rows: str) -> str:
    """Say where a few rows decide about a deviance, which has no bound; empty where none do.

    Of n equal losses (Σ l)² / Σ l² is n.
    """
    n_rows = sums.n_rows
    squares = float(sums["deviance_squares"][0])
    n_deciding = float(sums["deviance"][0]) ** 2 / squares if squares else n_rows
    # Of a well calibrated model that gets 93% of rows right, a tenth decide.
    if n_deciding > min(_FEW_ROWS, n_rows / 20):
        return ""
    return (
        f"About {n_deciding:.0f} of {n_rows:,} {rows} decide about the deviance: the model is "
        "confidently wrong there."
    )
