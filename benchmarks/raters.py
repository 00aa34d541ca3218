"""Raters who judge several attributes: what the losses claim, and what is true.

On the crowd's judgments of headlines (Snow et al., EMNLP 2008; 10 workers judge all emotions), half
of the headlines to select from and half held out, each with the judgments of two workers; those of
the other eight tell what independent and the same raters really lose. For selections and losses
that ignore who judged, and that know it.

Run with ``python -m benchmarks.raters FILE [--splits N]``.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.multiselect_omi import ragged_of
from distfms.methods.frame.judge import squared_errors_on_averages
from distfms.methods.multiselect.model import LinearModel, projected_model
from distfms.solve.buying import Problem
from distfms.solve.purchases import select
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics
from distfms.stats.ragged import Ragged, offsets_of

LABEL = "valence"
BUDGETS = (4, 6, 8)
RIDGE = 100.0
#: Judgments of each headline to select from.
FEW = 2
#: Ways to draw raters for the real error.
DRAWS = 200


@dataclass(frozen=True)
class Judged:
    """Judgments (headlines, attributes, workers), where each worker judged all attributes."""

    judgments: np.ndarray
    label: np.ndarray

    def of(self, headlines: np.ndarray) -> Judged:
        """Return some headlines."""
        return Judged(self.judgments[headlines], self.label[headlines])

    def by(self, workers: slice) -> Judged:
        """Return the judgments of some workers of each headline."""
        return Judged(self.judgments[:, :, workers], self.label)

    def estimates(self, *, know_raters: bool) -> JudgmentEstimates:
        """Return what the product estimates."""
        n, d, k = self.judgments.shape
        columns = [ragged_of(self.judgments[:, attribute]) for attribute in range(d)]
        raters = [Ragged(np.tile(np.arange(k), n), offsets_of(np.full(n, k)))] * d
        known = raters if know_raters else None
        return JudgmentStatistics.from_block(columns, self.label, raters=known).estimates()

    def error(self, model: LinearModel, buy_from: str, rng: np.random.Generator) -> float:
        """Return the mean squared error on averages of raters drawn as they are bought from."""
        bought = np.flatnonzero(model.repeats)
        errors = []
        for _ in range(DRAWS):
            order = rng.permutation(self.judgments.shape[2])
            first = 0
            predicted = np.full(len(self.label), model.intercept)
            for attribute in bought:
                n_judgments = int(model.repeats[attribute])
                raters = order[first : first + n_judgments]
                if buy_from == "independent":
                    first += n_judgments
                means = self.judgments[:, attribute][:, raters].mean(axis=1)
                predicted += model.weights[attribute] * means
            errors.append(np.mean((self.label - predicted) ** 2))
        return float(np.mean(errors))


def read(path: Path) -> Judged:
    """Return the headlines, whose label is the experts' valence."""
    table = pd.read_parquet(path)
    label = table[table.attribute == LABEL].groupby("headline_id").gold.first().sort_index()
    cells = table[table.attribute != LABEL]
    cells = cells.sort_values(["headline_id", "attribute", "worker"])
    shape = (len(label), cells.attribute.nunique(), -1)
    return Judged(cells.response.to_numpy(float).reshape(shape), label.to_numpy(float))


def one_split(judged: Judged, seed: int) -> dict[tuple[int, str, str], tuple[float, float]]:
    """Return claimed and real losses by budget, whom is bought from, and whether raters count."""
    rng = np.random.default_rng(seed)
    n, _, n_workers = judged.judgments.shape
    train, rest = np.array_split(rng.permutation(n), 2)
    # Each headline has the judgments of two of its own workers, whoever they are.
    workers = rng.permuted(np.tile(np.arange(n_workers), (n, 1)), axis=1)
    shuffled = np.take_along_axis(judged.judgments, workers[:, None], axis=2)
    judged = Judged(shuffled, judged.label)
    few = judged.by(slice(0, FEW))
    others = judged.of(rest).by(slice(FEW, None))
    losses = {}
    for buy_from, know_raters in product(("independent", "same"), (False, True)):
        estimates = few.of(train).estimates(know_raters=know_raters)
        held_out = few.of(rest).estimates(know_raters=know_raters)
        assumed = buy_from if know_raters else "independent"
        problem = Problem.from_estimates(estimates, ridge=RIDGE, buy_from=assumed)
        for budget in BUDGETS:
            model = projected_model(problem, select(problem, budget).final_repeats)
            bought = (model.weights, model.intercept, model.repeats)
            claimed = float(squared_errors_on_averages(held_out, *bought, assumed))
            real = others.error(model, buy_from, rng)
            losses[budget, buy_from, "known" if know_raters else "ignored"] = (claimed, real)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="judgments/affect.parquet of the public data")
    parser.add_argument("--splits", type=int, default=50)
    args = parser.parse_args()
    judged = read(args.file)
    noise = judged.estimates(know_raters=True).noise_covariance
    deviations = np.sqrt(np.diag(noise))
    correlations = noise / np.outer(deviations, deviations) - np.eye(len(noise))
    print(f"largest noise correlation {correlations.max():.2f}")
    by_case = defaultdict(list)
    for seed in range(args.splits):
        for case, losses in one_split(judged, seed).items():
            by_case[case].append(losses)
    print(f"{args.splits} splits; held-out loss: claimed, real, mean of claimed − real, its error")
    for (budget, buy_from, known), losses in sorted(by_case.items()):
        claimed, real = np.array(losses).T
        difference = claimed - real
        error = difference.std() / np.sqrt(args.splits)
        means = f"{claimed.mean():9.1f} {real.mean():9.1f} {difference.mean():8.1f} ± {error:.1f}"
        print(f"{budget:3} {buy_from:12} {known:8} {means}")


if __name__ == "__main__":
    main()
