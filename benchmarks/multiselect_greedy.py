"""Full's greedy search at several budgets: seconds, and how they grow with the budget.

Run with ``OMP_NUM_THREADS=1 python benchmarks/multiselect_greedy.py``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from distfms.solve.buying import Problem
from distfms.solve.purchases import select


def make_problem(d: int, seed: int) -> Problem:
    """Correlated attributes with as much noise as signal; a dense linear label."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((d, 20))
    external = factors @ factors.T / 20 + np.diag(rng.uniform(0.2, 1.0, d))
    weights = rng.standard_normal(d) / np.sqrt(d)
    b = external @ weights
    return Problem.build(
        b, rng.uniform(0.1, 2.0, d), external, label_variance=float(weights @ b) + 0.1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attributes", type=int, default=1000)
    parser.add_argument("--budget", type=int, default=1000)
    args = parser.parse_args()
    problem = make_problem(args.attributes, seed=0)
    with threadpool_limits(limits=1):
        for factor in (0.25, 0.5, 1, 2, 10):
            budget = int(factor * args.budget)
            start = time.perf_counter()
            path = select(problem, budget)
            seconds = time.perf_counter() - start
            n_selected = np.unique(path.attributes).size
            print(
                f"d={args.attributes} B={budget}: {seconds:.3f} s, {n_selected} attributes, "
                f"{1e3 * seconds / budget:.3f} ms a step"
            )


if __name__ == "__main__":
    main()
