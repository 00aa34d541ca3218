"""What headlines claim of targets that nothing explains.

Each table is noise: columns and target have nothing to do with each other, so that a model explains
at most 0 % of new rows. Printed is, by method and size of the table, the mean share that headlines
claim, how often it is more than 2 and 2.776 (Student's, for five folds) standard errors above 0,
and the mean share that the model explains of other rows. Of classes the claim is what is classified
correctly, above the share of the largest class.

Run with ``OMP_NUM_THREADS=1 python -m benchmarks.noise``.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import distfms
from distfms.methods import load_method
from distfms.runs.driver import run_job
from distfms.runs.finished import read_run
from distfms.runs.job_spec import build_spec

SIZES = ((60, 10), (150, 20), (100, 60))
N_OTHERS = 2_000
#: Sections of jobs by method, and whether the target holds classes.
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "multiselect": ("multiselect", {"budget": 10}, False),
    "sequence": ("sequence", {}, False),
    "sequence, classes": ("sequence", {}, True),
    "landmarks": ("landmarks", {}, False),
    "landmarks, classes": ("landmarks", {}, True),
    "attribute_efficient": ("attribute_efficient", {"attributes_per_example": 4}, False),
}
CLAIM = re.compile(r"(?P<share>[−-]?[\d.,]+)(?:\s±\s(?P<error>[\d.,]+))?\s?%")


def drawn(rng: np.random.Generator, n_rows: int, n_columns: int, method: str) -> pd.DataFrame:
    """Draw columns of normal numbers; of multi-selection two judgments in each cell."""
    names = [f"a{i}" for i in range(n_columns)]
    values = rng.normal(size=(n_rows, n_columns))
    if method != "multiselect":
        return pd.DataFrame(values, columns=names)
    judgments = values[:, :, None] + rng.normal(size=(n_rows, n_columns, 2))
    return pd.DataFrame({name: list(judgments[:, i]) for i, name in enumerate(names)})


def targets(rng: np.random.Generator, n_rows: int, has_classes: bool) -> Any:
    """Draw targets that nothing explains."""
    if has_classes:
        return np.where(rng.random(n_rows) < 0.4, "yes", "no")
    return rng.normal(size=n_rows)


def claim(headline: str) -> tuple[float, float]:
    """Return the first share of a headline and its standard error, in percent; 0 without one."""
    match = CLAIM.search(headline.split(";")[0])
    if match is None:
        return 0.0, 0.0
    numbers = [text.replace("−", "-").replace(",", "") for text in match.groups(default="0")]
    return float(numbers[0]), float(numbers[1])


def one_table(case: str, n_rows: int, n_columns: int, seed: int) -> tuple[float, float, float]:
    """Run a job on noise; return its claim, the claim's error, and what is true, in percent."""
    method, section, has_classes = CASES[case]
    rng = np.random.default_rng([seed, n_rows])
    rows = drawn(rng, n_rows, n_columns, method)
    rows["y"] = targets(rng, n_rows, has_classes)
    others = drawn(rng, N_OTHERS, n_columns, method)
    other_targets = targets(rng, N_OTHERS, has_classes)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.parquet"
        rows.to_parquet(path)
        data = {"path": path, "target": "y"}
        job = {"name": "noise", "method": method, "data": data, method: section, "seed": seed}
        run = Path(run_job(build_spec({**job, "output": f"{folder}/runs"})).folder)
        headline = load_method(method).headline(read_run(str(run)).open()[1])
        predicted = distfms.load(run).predict(others)["predicted_y"].to_numpy()
    share, error = claim(headline)
    if has_classes:
        largest = 100 * rows["y"].value_counts(normalize=True).max()
        correct = 100 * np.mean(predicted == other_targets)
        is_accuracy = "correctly" in headline
        share = share - largest if is_accuracy else share
        return share, error, correct - 60
    residual = other_targets - predicted
    return share, error, 100 * (1 - np.mean(residual**2) / other_targets.var())


def summary(claims: np.ndarray) -> str:
    """Summarise claims, errors and truths, of shape (n_tables, 3)."""
    shares, errors, truths = claims.T
    beyond_two = np.mean(shares > np.fmax(2 * errors, 1e-9))
    beyond_student = np.mean(shares > np.fmax(2.776 * errors, 1e-9))
    return (
        f"claimed {shares.mean():+.2f} points (median {np.median(shares):+.2f}), above 2 ± "
        f"{beyond_two:.0%}, above 2.776 ± {beyond_student:.0%}, true {truths.mean():+.2f}"
    )


def main() -> None:
    """Print a line for each method and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes")
    options = parser.parse_args()
    for case in options.cases:
        for n_rows, n_columns in SIZES[: options.sizes]:
            claims = [one_table(case, n_rows, n_columns, seed) for seed in range(options.tables)]
            print(f"{case}, {n_rows} × {n_columns}: {summary(np.array(claims))}", flush=True)


if __name__ == "__main__":
    main()
