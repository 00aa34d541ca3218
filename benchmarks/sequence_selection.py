"""Group sequencing from statistics against a group-lasso path on the rows.

Prints, for D columns in J groups with costs: the statistics pass, the selection of all groups by
each rule, the ratio of ``fr`` to ``omp``, and the time of celer's 100-point cost-weighted
group-lasso path on the same rows. The pass has a thread for each processor and one BLAS thread for
each; celer has as many BLAS threads as it likes. ``--rows 200000`` is the full size: 0.8 GB, and up
to twice as much again for celer.

With ``--job jobs/sequence-breast-cancer.yaml`` it runs that job instead and prints the α-timeliness
of its rules and of the order in which groups enter celer's path. Needs ``distfms[benchmark]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

import numpy as np

from distfms.engine.blas import single_threaded_blas
from distfms.engine.memory import n_processors
from distfms.methods.sequence.evaluate import timeliness
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import (
    FeatureGroups,
    GroupCosts,
    SequenceProblem,
    problem_from_comoments,
)
from distfms.runs.driver import run_prepared
from distfms.runs.folder import RunFolder
from distfms.runs.job_spec import load_spec
from distfms.runs.prepare import prepare
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


def lasso_order(problem: SequenceProblem) -> list[int]:
    """Order groups by entry on celer's path, on rows with the same Gram matrix; ties by size."""
    from celer import celer_path

    values, vectors = np.linalg.eigh(problem.gram)
    root = vectors * np.sqrt(np.maximum(values, values[-1] * 1e-12))
    X = np.asfortranarray(root.T) * np.sqrt(len(root))
    y = np.linalg.solve(root, problem.target[:, 0]) * np.sqrt(len(root))
    groups, costs = [list(group) for group in problem.groups.columns], problem.costs.alone
    top = max(np.linalg.norm(problem.target[g]) / c for g, c in zip(groups, costs, strict=True))
    alphas = np.geomspace(top, top * 1e-4, 200)
    options = {"pb": "grouplasso", "groups": groups, "weights": costs, "tol": 1e-8}
    weights = celer_path(X, y, alphas=alphas, **options)[1]
    norms = np.stack([np.linalg.norm(weights[g], axis=0) for g in groups])
    entry = np.where(norms.any(axis=1), (norms > 0).argmax(axis=1), len(alphas) - 1)
    first = norms[np.arange(len(groups)), entry] / costs
    return np.lexsort((-first, entry)).tolist()


def compare_timeliness(path: str) -> None:
    """Print the α-timeliness of the rules of a job and of the group lasso."""
    with TemporaryDirectory() as place:
        own = [f"output.path={place}", "sequence.ridge=1e-5", "sequence.family=gaussian"]
        prepared = prepare(load_spec(path, own))
        folder = RunFolder(run_prepared(prepared).folder)
        metrics, solved = folder.read_json("metrics.json"), prepared.job.solved(folder)
    found = {name: own["alpha_timeliness"] for name, own in metrics["timeliness"].items()}
    lasso = sequence(solved.problem, "given", order=lasso_order(solved.problem))
    curves = [*solved.paths.values(), lasso]
    found["group lasso"] = timeliness(
        lasso.curve_cost,
        lasso.curve_value,
        stop=metrics["alpha"]["cut"],
        final=max(path.curve_value[-1] for path in curves),
    )
    print(f"cut at α = {metrics['alpha']['alpha']}")
    for name, value in sorted(found.items(), key=lambda item: -item[1]):
        print(f"{name:16} {value:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=1e-4, help="celer's relative duality gap")
    parser.add_argument("--no-lasso", action="store_true", help="leave celer out")
    parser.add_argument("--job", help="spec of a sequence job: compare its rules by timeliness")
    options = parser.parse_args()
    if options.job:
        compare_timeliness(options.job)
        return
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
