"""Raters who judge several attributes: what the losses claim and what is true; and what it costs.

``affect FILE``: on the crowd's judgments of headlines (Snow et al., EMNLP 2008; 10 workers
judge all emotions), half of the headlines to select from and half held out, each with the judgments
of two workers; those of the other eight tell what independent and the same raters really lose. For
selections and losses that ignore who judged, and that know it. ``pass``: processor time of a pass
over list columns of two judgments with raters (by positions, by one column of ids) against the same
pass without.

Run with ``python benchmarks/raters.py affect FILE [--splits N]`` or ``pass [--rows N]``.
"""

from __future__ import annotations

import argparse
import time
from functools import partial, reduce
from pathlib import Path

import numpy as np
from statistics_pass import data_folder, in_one_blas_thread

from benchmarks.synthetic import make, ragged_of
from distfms.data.files.dataset import open_dataset
from distfms.data.rows.judgments import detect_layout, read_judgments
from distfms.data.rows.roles import resolve_roles
from distfms.methods.frame.judge import squared_errors_on_averages
from distfms.methods.multiselect.model import projected_model
from distfms.solve.buying import Problem
from distfms.solve.purchases import select
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics
from distfms.stats.ragged import Ragged, offsets_of

LABEL, BUDGETS, RIDGE = "valence", (4, 6, 8), 100.0
#: Share of the headlines to select from.
TRAINING = 0.5
#: Ways to draw raters for the real error.
DRAWS = 200


def estimates_of(judgments: np.ndarray, label: np.ndarray, raters: bool) -> JudgmentEstimates:
    """From judgments of shape (n, d, k), where judgment j of an object is rater j's."""
    n, d, k = judgments.shape
    codes = [Ragged(np.tile(np.arange(k), n), offsets_of(np.full(n, k)))] * d
    columns = [ragged_of(judgments[:, a]) for a in range(d)]
    known = codes if raters else None
    return JudgmentStatistics.from_block(columns, label, raters=known).estimates()


def real_error(model, judgments, label, buy_from: str, rng: np.random.Generator) -> float:
    """Mean squared error on averages of raters drawn as they are bought from."""
    errors = []
    for _ in range(DRAWS):
        order, first, predicted = rng.permutation(judgments.shape[2]), 0, model.intercept
        for a in np.flatnonzero(model.repeats):
            chosen = order[first : first + model.repeats[a]]
            if buy_from == "independent":
                first += int(model.repeats[a])
            predicted = predicted + model.weights[a] * judgments[:, a][:, chosen].mean(axis=1)
        errors.append(np.mean((label - predicted) ** 2))
    return float(np.mean(errors))


def affect(path: Path, splits: int) -> None:
    """Print claimed and real losses, means over splits."""
    import pandas as pd

    table = pd.read_parquet(path)
    label = table[table.attribute == LABEL].groupby("headline_id").gold.first()
    names = sorted(set(table.attribute) - {LABEL})
    cells = table.sort_values(["headline_id", "attribute", "worker"])
    judged = cells[cells.attribute != LABEL].response.to_numpy(float)
    judgments = judged.reshape(label.size, len(names), -1)
    y = label.sort_index().to_numpy(float)
    noise = estimates_of(judgments, y, True).noise_covariance
    unit = np.sqrt(np.diag(noise))
    print("largest noise correlation", np.max(noise / np.outer(unit, unit) - np.eye(len(names))))
    found: dict[tuple[int, str, str], list[list[float]]] = {}
    for split in range(splits):
        rng = np.random.default_rng(split)
        train, rest = np.split(rng.permutation(y.size), [int(TRAINING * y.size)])
        # Each headline has the judgments of two of its own workers, whoever they are.
        workers = rng.permuted(np.tile(np.arange(judgments.shape[2]), (y.size, 1)), axis=1)
        shuffled = np.take_along_axis(judgments, workers[:, None], axis=2)
        few, more = shuffled[:, :, :2], shuffled[:, :, 2:]
        held_out = {known: estimates_of(few[rest], y[rest], known) for known in (False, True)}
        for buy_from in ("independent", "same"):
            for known in (False, True):
                estimates = estimates_of(few[train], y[train], known)
                own = buy_from if known else "independent"
                problem = Problem.from_estimates(estimates, ridge=RIDGE, buy_from=own)
                for budget in BUDGETS:
                    model = projected_model(problem, select(problem, budget).final_repeats)
                    bought = (model.weights, model.intercept, model.repeats)
                    claimed = float(squared_errors_on_averages(held_out[known], *bought, own))
                    real = real_error(model, more[rest], y[rest], buy_from, rng)
                    key = budget, buy_from, "known" if known else "ignored"
                    found.setdefault(key, []).append([claimed, real])
    print(f"{splits} splits; held-out loss: claimed, real, mean of claimed − real and its error")
    for (budget, buy_from, known), pairs in sorted(found.items()):
        claimed, real = np.array(pairs).T
        off = claimed - real
        error = off.std() / np.sqrt(splits)
        means = f"{claimed.mean():9.1f} {real.mean():9.1f} {off.mean():8.1f} ± {error:.1f}"
        print(f"{budget:3} {buy_from:12} {known:8} {means}")


def measure_pass(folder: Path, rows: int, repeats: int) -> None:
    """Print the processor time of a pass without and with raters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    make("judgments", folder / "data", rows, n_attributes=50, noise_correlation=0.5)
    ids = [f"worker {w}" for w in range(1000)]
    rng = np.random.default_rng(0)
    for path in sorted((folder / "data").glob("*.parquet")):
        table = pq.read_table(path)
        chosen = (rng.integers(0, 999, table.num_rows)[:, None] + [0, 1]).reshape(-1)
        lists = pa.array(ids).dictionary_encode().take(pa.array(chosen))
        offsets = pa.array(np.arange(0, chosen.size + 1, 2, dtype=np.int32))
        raters = pa.ListArray.from_arrays(offsets, lists.cast(pa.string()))
        pq.write_table(table.append_column("raters", raters), path)
    dataset = open_dataset(folder / "data")
    roles = resolve_roles(dataset.schema, target="label", id="object", judgments=True)

    def summarise(how: str, partition) -> JudgmentStatistics:
        layout = detect_layout(dataset.schema, roles, how)
        batch = read_judgments(dataset.reader, partition, layout, roles)
        whole = slice(0, batch.n_rows)
        return JudgmentStatistics.from_block(*batch.view(whole), raters=batch.raters_of(whole))

    seconds: dict[str, list[float]] = {how: [] for how in ("ignore", "positions", "columns")}
    for _ in range(repeats + 1):
        for how, times in seconds.items():
            begun = time.process_time()
            reduce(JudgmentStatistics.merge, map(partial(summarise, how), dataset.partitions))
            times.append(time.process_time() - begun)
    base = min(seconds["ignore"][1:])
    for how, times in seconds.items():
        print(f"{how:10} {min(times[1:]):7.2f} s of a processor, {min(times[1:]) / base:.2f} ×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("affect", "pass"))
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, help="folder for scratch files (2 GB)")
    args = parser.parse_args()
    if args.what == "affect":
        affect(args.file, args.splits)
        return
    with data_folder(args.data) as scratch:
        in_one_blas_thread(partial(measure_pass, scratch, args.rows, args.repeats))


if __name__ == "__main__":
    main()
