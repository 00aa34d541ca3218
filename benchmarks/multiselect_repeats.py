"""Many objects judged twice, or few judged often? Test error for a constant number of judgments.

The paper's last experiment (section 4, Figure 3, bottom) on made-up histograms of slices, 48
attributes of 8 bins each (``slices`` of ``generators.py``): a training set of m objects with k
judgments of each attribute costs m·k judgments an attribute. For several constants m·k and several
k, Full selects repeats for a budget of 30 from such a set; then judgments are added up to the
repeats, least squares is run on the averages, and the predictor is tested on other objects with as
many judgments as the repeats say. Prints mean squared test errors over the splits, their standard
errors, and for which k they are least. Run with ``OMP_NUM_THREADS=1 python
benchmarks/multiselect_repeats.py [--splits N]``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from generators import slices
from multiselect_omi import test_error

from benchmarks.synthetic import ragged_of
from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.objective import Problem
from distfms.stats.judgments import JudgmentStatistics

BUDGET = 30
#: Judgments of each attribute in a training set.
TOTALS = (480, 960, 1920)
KS = (2, 3, 4, 6, 10, 20)
N_TEST = 2000


def draw(n_objects: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Judgments (objects, attributes, BUDGET) and positions; the slices are alike in all draws."""
    recipe = slices(
        np.random.default_rng(0), n_bins=384, bins_per_attribute=8, judgments=BUDGET, n_bumps=48
    )
    columns = recipe.rows(np.random.default_rng([1, seed]), 0, n_objects)
    judgments = [column.values.to_numpy().reshape(n_objects, BUDGET) for column in columns[2:]]
    return np.stack(judgments, axis=1), columns[1].to_numpy()


def chosen_repeats(judgments: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Repeats that Full buys, from (m, d, k) judgments."""
    columns = [ragged_of(judgments[:, a]) for a in range(judgments.shape[1])]
    estimates = JudgmentStatistics.from_block(columns, label).estimates()
    return select(Problem.from_estimates(estimates), BUDGET).final_repeats


def run(n_splits: int) -> np.ndarray:
    """Test errors, shape (splits, totals, ks)."""
    errors = np.empty((n_splits, len(TOTALS), len(KS)))
    for split in range(n_splits):
        judgments, label = draw(max(TOTALS) // min(KS) + N_TEST, split)
        sums = np.cumsum(judgments, axis=-1)
        counts = np.full(judgments.shape[:2], BUDGET)
        for i, total in enumerate(TOTALS):
            for j, k in enumerate(KS):
                m = total // k
                repeats = chosen_repeats(judgments[:m, :, :k], label[:m])
                used = np.r_[0:m, label.size - N_TEST : label.size]
                train = np.arange(used.size) < m
                errors[split, i, j] = test_error(
                    repeats, sums[used], counts[used], label[used], train
                )
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    args = parser.parse_args()
    start = time.perf_counter()
    errors = run(args.splits)
    mean = errors.mean(axis=0)
    standard_error = errors.std(axis=0, ddof=1) / np.sqrt(args.splits)
    print(f"budget {BUDGET}, mean squared test error (standard error), {args.splits} splits")
    print("m·k    " + "".join(f"{f'k = {k}':>15}" for k in KS) + "   least at")
    for i, total in enumerate(TOTALS):
        row = "".join(f"{mean[i, j]:9.2f} ({standard_error[i, j]:.2f})" for j in range(len(KS)))
        print(f"{total:6d} {row}   k = {KS[int(mean[i].argmin())]}")
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
