"""Group sequencing from statistics against a group-lasso path on the rows.

Prints, for D columns in J groups with costs: the statistics pass, the selection of all groups by
each rule, the ratio of ``fr`` to ``omp``, and the time of celer's 100-point cost-weighted
group-lasso path on the same rows. The pass has a thread for each processor and one BLAS thread for
each; celer has as many BLAS threads as it likes. ``--rows 200000`` is the full size: 0.8 GB, and up
to twice as much again for celer. Needs ``distfms[benchmark]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import n_processors
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import FeatureGroups, SequenceProblem, problem_from_comoments
from distfms.solve.costs import GroupCosts
from distfms.stats.base import merge_tree
from distfms.stats.comoments import CoMoments

CHUNK_ROWS = 20_000


def make_rows(n: int, d: int, n_groups: int, seed: int) -> np.ndarray:
    """Columns and label, (d + 1, n): correlated within groups, a third of the groups used."""
    rng = np.random.default_rng(seed)
    block = np.empty((d + 1, n))
    group = np.arange(d) * n_groups // d
    used = rng.random(n_groups) < 1 / 3
    weights = rng.standard_normal(d) * used[group]
    for start in range(0, n, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, n)
        common = rng.standard_normal((n_groups, stop - start))
        rows = rng.standard_normal((d, stop - start)) + common[group]
        block[:d, start:stop] = rows
        block[d, start:stop] = weights @ rows + 5 * rng.standard_normal(stop - start)
    return block


def problem_of(block: np.ndarray, n_groups: int, seed: int) -> SequenceProblem:
    """Statistics pass on a thread for each processor, and standardisation."""
    d, n = len(block) - 1, block.shape[1]
    parts = np.array_split(np.arange(d), n_groups)
    costs = np.random.default_rng(seed).uniform(1, 10, n_groups)
    batches = [block[:, start : start + CHUNK_ROWS] for start in range(0, n, CHUNK_ROWS)]
    with ThreadPoolExecutor(n_processors()) as pool:
        statistics = merge_tree(list(pool.map(CoMoments.from_block, batches)))
    return problem_from_comoments(
        statistics,
        feature_names=[f"x{i}" for i in range(d)],
        target_names=["y"],
        groups=FeatureGroups(
            tuple(f"g{i}" for i in range(n_groups)), tuple(tuple(p.tolist()) for p in parts)
        ),
        costs=GroupCosts(costs),
        ridge=1e-5,
    )


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Median wall time."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def lasso_on_rows(block: np.ndarray, problem: SequenceProblem, tol: float) -> float:
    """Wall time of celer's path on the standardised rows, which are not made in that time."""
    from celer import celer_path

    scaling = problem.scaling
    X = block[:-1].T  # column-major, as celer wants it
    X -= scaling.mean
    X /= scaling.scale
    y = (block[-1] - scaling.target_mean) / scaling.target_scale
    groups = [list(group) for group in problem.groups.columns]
    top = max(
        np.linalg.norm(problem.target[g, 0]) / c
        for g, c in zip(groups, problem.costs.own, strict=True)
    )
    options = {"pb": "grouplasso", "groups": groups, "weights": problem.costs.own, "tol": tol}
    celer_path(X[:100].copy(order="F"), y[:100], alphas=[top], **options)  # compiles
    start = time.perf_counter()
    celer_path(X, y, alphas=np.geomspace(top, top * 1e-3, 100), **options)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=1e-4, help="celer's relative duality gap")
    parser.add_argument("--no-lasso", action="store_true", help="leave celer out")
    options = parser.parse_args()
    block = make_rows(options.rows, options.columns, options.groups, options.seed)
    print(f"{options.rows} rows, {options.columns} columns, {options.groups} groups")
    with single_threaded_blas():
        pass_s = seconds(lambda: problem_of(block, options.groups, options.seed), 3)
        problem = problem_of(block, options.groups, options.seed)
        print(f"statistics pass          {pass_s:8.3f} s")
        times = {}
        for rule in ("omp", "fr", "omp-single", "omp-no-whiten"):
            times[rule] = seconds(lambda rule=rule: sequence(problem, rule), options.repeats)
            print(f"{rule:24} {times[rule]:8.4f} s")
        path = sequence(problem, "fr")
        models_s = seconds(path.prefix_models, options.repeats)
        print(f"models of all prefixes   {models_s:8.4f} s")
        print(f"fr / omp                 {times['fr'] / times['omp']:8.2f}")
    if options.no_lasso:
        return
    rows_s = lasso_on_rows(block, problem, options.tol)
    print(f"celer on the rows        {rows_s:8.3f} s")
    print(f"celer / (pass + fr)      {rows_s / (pass_s + times['fr']):8.1f}")


if __name__ == "__main__":
    main()
