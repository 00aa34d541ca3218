"""Full greedy search: incremental updates against the literal pseudo-inverse per candidate.

Prints the wall time of ``select`` at several budgets and d = 1000, and what the literal form
would take. The literal time of a step is measured, not guessed: at a few steps spread over the
path some candidates' pseudo-inverses are computed in full, and the time per candidate is
interpolated between these steps and multiplied by the number of candidates.

Run with ``OMP_NUM_THREADS=1 python benchmarks/multiselect_greedy.py``.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from distfms.methods.multiselect.greedy import select
from distfms.methods.multiselect.objective import Problem


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


def literal_candidate(problem: Problem, repeats: np.ndarray, candidate: int) -> float:
    """Objective with one more judgment of the candidate, as the paper writes it."""
    r = repeats.copy()
    r[candidate] += 1
    s = np.flatnonzero(r)
    matrix = problem.external[np.ix_(s, s)] + np.diag(problem.v[s] / r[s])
    return float(problem.b[s] @ np.linalg.pinv(matrix) @ problem.b[s])


def literal_seconds(problem: Problem, path, n_points: int, n_candidates: int) -> float:
    """Extrapolated time of the literal search along the same path; checks the choices as well."""
    steps = np.unique(np.linspace(0, path.n_steps - 1, n_points).astype(int))
    per_step = []
    for step in steps:
        repeats = path.repeats_after(step)
        chosen = path.attributes[step]
        others = np.linspace(0, problem.n_attributes - 1, n_candidates - 1).astype(int)
        start = time.perf_counter()
        values = [literal_candidate(problem, repeats, c) for c in [chosen, *others]]
        per_step.append((time.perf_counter() - start) / n_candidates * problem.n_attributes)
        assert values[0] >= max(values) * (1 - 1e-9), "the literal form would choose otherwise"
        assert abs(values[0] - path.objective[step]) <= 1e-8 * values[0]
    return float(np.sum(np.interp(np.arange(path.n_steps), steps, per_step)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attributes", type=int, default=1000)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--points", type=int, default=6, help="literal steps measured")
    parser.add_argument("--candidates", type=int, default=4, help="candidates per literal step")
    args = parser.parse_args()
    problem = make_problem(args.attributes, seed=0)
    with threadpool_limits(limits=1):
        for budget in (args.budget // 4, args.budget // 2, args.budget, 2 * args.budget):
            start = time.perf_counter()
            path = select(problem, budget)
            seconds = time.perf_counter() - start
            n_selected = np.unique(path.attributes).size
            print(
                f"d={args.attributes} B={budget}: {seconds:.3f} s, {n_selected} attributes, ",
                end="",
            )
            print(f"{1e3 * seconds / budget:.3f} ms a step")
            if budget == args.budget:
                literal = literal_seconds(problem, path, args.points, args.candidates)
                print(
                    f"  literal (extrapolated): {literal:.0f} s, {literal / seconds:.0f} × slower"
                )


if __name__ == "__main__":
    main()
