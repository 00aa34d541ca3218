"""Judgment statistics from list columns: judgments a second a core, from files to statistics.

The pass is the product's own: ``read_judgments`` decodes a partition's lists, and
``JudgmentStatistics`` takes each object's means and variances and the co-moments of the means. It
runs on one thread with one BLAS thread, so wall time is the time of one core. Measured on
48 attributes with exactly two judgments each, and with any number from none to four; with and
without 5 folds and a held-out part; beside it the time that decoding alone takes.

Run with ``python benchmarks/judgments.py [--rows N] [--data FOLDER] [--repeats N]``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from statistics import median

from statistics_pass import FOLDS, data_folder, in_one_blas_thread, timed

from benchmarks.synthetic import make
from distfms.data.files.dataset import open_dataset
from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.folds import FoldPlan
from distfms.data.rows.judgments import JudgmentLayout, detect_layout, read_judgments
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.stats.base import Folded
from distfms.stats.judgments import JudgmentStatistics

TARGET = 15e6
N_ATTRIBUTES = 48
FORMS = {"k = 2": {"judgments": 2}, "k = 0…4": {"judgments": 4, "min_judgments": 0}}


def summarise(
    dataset: Dataset, layout: JudgmentLayout, roles: Roles, folds: FoldPlan
) -> Folded[JudgmentStatistics]:
    """Statistics of all partitions."""

    def read(partition: Partition) -> Folded[JudgmentStatistics]:
        block = read_judgments(dataset.reader, partition, layout, roles, folds=folds)
        parts = (block.part_view(part) for part in range(folds.n_parts))
        return Folded(tuple(JudgmentStatistics.from_block(*part) for part in parts))

    return reduce(Folded.merge, map(read, dataset.partitions))


def decode(dataset: Dataset, layout: JudgmentLayout) -> None:
    for partition in dataset.partitions:
        for _ in dataset.reader.column_tables(partition, layout.columns):
            pass


def measure(folder: Path, repeats: int) -> tuple[int, dict[str, list[tuple[float, float]]]]:
    """Judgments, and the times of each contender, measured in turn."""
    dataset = open_dataset(folder)
    roles = resolve_roles(dataset.schema, target="label", id="object", judgments=True)
    layout = detect_layout(dataset.schema, roles)
    work: dict[str, Callable[[], object]] = {
        "statistics": lambda: summarise(dataset, layout, roles, FoldPlan()),
        "5 folds + test": lambda: summarise(dataset, layout, roles, FOLDS),
        "decode": lambda: decode(dataset, layout),
    }
    for run in work.values():
        run()
    rounds = [{name: timed(run) for name, run in work.items()} for _ in range(repeats)]
    n_judgments = int(summarise(dataset, layout, roles, FoldPlan()).train().n_judgments.sum())
    return n_judgments, {name: [r[name] for r in rounds] for name in work}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="objects")
    parser.add_argument("--data", type=Path, help="folder for scratch files (0.2 GB)")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"million judgments a second a core; {args.rows} objects × {N_ATTRIBUTES} attributes")
    print(f"{'':26}{'median':>9}{'lowest':>9}{'highest':>9}{'by cpu':>9}{'target':>9}")
    for form, parameters in FORMS.items():
        with data_folder(args.data) as scratch:
            folder = scratch / "judgments"
            make(
                "judgments",
                folder,
                args.rows,
                rows_per_shard=-(-args.rows // 8),
                n_attributes=N_ATTRIBUTES,
                **parameters,
            )
            n_judgments, measured = in_one_blas_thread(partial(measure, folder, args.repeats))
        for name, rounds in measured.items():
            rates = [n_judgments / wall / 1e6 for wall, _ in rounds]
            by_cpu = n_judgments / median(cpu for _, cpu in rounds) / 1e6
            target = f"≥ {TARGET / 1e6:.0f}" if name != "decode" else ""
            print(
                f"{form + ', ' + name:26}{median(rates):9.1f}{min(rates):9.1f}{max(rates):9.1f}"
                f"{by_cpu:9.1f}{target:>9}"
            )
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
