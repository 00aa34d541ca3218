"""Whether headlines hold: how often their intervals cover the truth, and what they claim of noise.

Tables are simulated, so that the truth is known: what the model of a job explains, or how well it
tells classes apart, of many rows that it has not seen. A headline's ``65 ± 2%`` is a share with its
standard error, by the spread over folds. ``coverage`` prints how often the truth is within
Student's 95% of it. ``noise`` draws targets that nothing explains and prints the mean claim, how
often it is more than 2.776 (Student's, for five folds) standard errors above 0, and the mean truth:
shares, correct rows above the largest class, AUROC above a half.

Run with ``OMP_NUM_THREADS=1 python -m benchmarks.intervals noise`` or ``… coverage``.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import distfms
from benchmarks.record import record
from distfms.methods import load_method
from distfms.runs.driver import run_job
from distfms.runs.finished import read_run
from distfms.runs.job_spec import build_spec
from distfms.stats.base import student_t

N_FOLDS = 5
N_OTHERS = 20_000
#: A share with its error, and with that of what is said of all groups.
CLAIM = r"([−-]?[\d.,]+)\s±\s([\d.,]+)%"
OF_ALL = r"; all [\d,]+ explain " + CLAIM
AUROC = r"AUROC ([\d.]*\d) ± ([\d.]*\d)"

Draw = Callable[[np.random.Generator, int], pd.DataFrame]


# --- tables ---------------------------------------------------------------------------------------


def linear(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Eight numbers, of which four matter."""
    frame = pd.DataFrame(rng.normal(size=(n, 8)), columns=list("abcdefgh"))
    signal = frame["a"] + 0.7 * frame["b"] + 0.5 * frame["c"] + 0.3 * frame["d"]
    return frame.assign(y=signal + rng.normal(size=n))


def curved(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """One number matters by its square; the noise has heavy tails."""
    frame = linear(rng, n)
    return frame.assign(y=frame["y"] + np.square(frame["e"]) + rng.standard_t(4, size=n))


def classes(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Two classes of which the first two numbers tell much."""
    frame = linear(rng, n)
    score = 3.0 * frame["a"] + 2.0 * frame["b"] + 0.5 * frame["c"]
    is_yes = rng.random(n) < 1 / (1 + np.exp(-score))
    return frame.assign(y=np.where(is_yes, "yes", "no"))


def repeated(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Objects of ten rows that hardly differ, with one class each."""
    n_objects = max(n // 10, 1)
    centres = rng.normal(size=(n_objects, 3))
    is_high = centres[:, 0] + 0.8 * rng.normal(size=n_objects) > 0
    rows = np.repeat(np.arange(n_objects), 10)
    values = centres[rows] + 0.1 * rng.normal(size=(len(rows), 3))
    frame = pd.DataFrame(values, columns=list("abc"))
    return frame.assign(y=np.where(is_high[rows], "high", "low"), object=[f"o{i}" for i in rows])


def judged(
    rng: np.random.Generator, n: int, repeats: dict[str, int] | None = None, n_attributes: int = 8
) -> pd.DataFrame:
    """Judgments of attributes, two of each or as many as `repeats` says, of which four matter."""
    truth = rng.normal(size=(n, n_attributes))
    label = truth[:, :4] @ [1.0, 0.7, 0.5, 0.3] + rng.normal(size=n)
    columns = dict[str, Any]()
    for number in range(n_attributes):
        name = f"a{number}"
        k = 2 if repeats is None else max(repeats.get(name, 0), 1)
        columns[name] = list(truth[:, [number]] + rng.normal(size=(n, k)))
    return pd.DataFrame(columns).assign(y=label)


def without_signal(case: Case, rng: np.random.Generator, n: int, n_columns: int) -> pd.DataFrame:
    """Columns and targets that have nothing to do with each other."""
    if case.method == "multiselect":
        frame = judged(rng, n, n_attributes=n_columns)
    else:
        names = [f"a{number}" for number in range(n_columns)]
        frame = pd.DataFrame(rng.normal(size=(n, n_columns)), columns=names)
    target = rng.normal(size=n)
    if case.has_classes:
        target = np.where(rng.random(n) < case.share_of_yes, "yes", "no")
    return frame.assign(y=target)


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A job, the table that its coverage is tried on, and where its headline has the claim."""

    method: str
    section: dict[str, Any] = field(default_factory=dict)
    draw: Draw | None = None
    has_classes: bool = False
    share_of_yes: float = 0.4
    data: dict[str, Any] = field(default_factory=dict)
    of_all: bool = False


LINEAR = {"model": "linear", "baselines": []}
COVERAGE = {
    "stop, linear": Case("sequence", LINEAR, linear),
    "stop, curved": Case("sequence", LINEAR, curved),
    "all groups": Case("sequence", LINEAR, curved, of_all=True),
    "stop, AUROC": Case("sequence", LINEAR, classes, True),
    "landmarks, share": Case("landmarks", {}, curved),
    "landmarks, correct": Case("landmarks", {}, classes, True),
    "landmarks, objects": Case("landmarks", {}, repeated, True, data={"id": "object"}),
    "few attributes": Case("attribute_efficient", {"attributes_per_example": 4}, linear),
    "multi-selection": Case("multiselect", {"budget": 12}, judged),
}
ROW_BY_ROW = "row by row"
NOISE = {
    "multiselect": Case("multiselect", {"budget": 10}),
    "sequence": Case("sequence"),
    "sequence, classes": Case("sequence", has_classes=True),
    "sequence, 8% positives": Case("sequence", has_classes=True, share_of_yes=0.08),
    "landmarks": Case("landmarks"),
    "landmarks, classes": Case("landmarks", has_classes=True),
    "attribute_efficient": Case("attribute_efficient", {"attributes_per_example": 4}),
}
NOISE_SIZES = ((60, 10), (150, 20), (100, 60))
COVERAGE_ROWS = (80, 150, 300, 600)


def finished(case: Case, rows: pd.DataFrame, seed: int, folder: str) -> Path:
    """Run a job on rows and return its folder."""
    path = f"{folder}/rows.parquet"
    rows.to_parquet(path)
    data = {"path": path, "target": "y", "folds": N_FOLDS, **case.data}
    job = {"name": "interval", "method": case.method, "data": data, "seed": seed}
    spec = build_spec({**job, case.method: case.section, "output": f"{folder}/runs"})
    return Path(run_job(spec).folder)


def claimed(case: Case, run: Path) -> tuple[float, float]:
    """Return what a headline claims and its standard error, in percent; 0 where it has neither.

    Of two classes that is a share of correct rows, or by how much the AUROC is more than a half.
    """
    headline = load_method(case.method).headline(read_run(str(run)).open()[1])
    if match := re.search(AUROC, headline):
        return 100 * float(match[1]) - 50, 100 * float(match[2])
    match = re.search(OF_ALL, headline) if case.of_all else None
    rest = headline if headline.startswith("Do not") else headline.split(";")[0]
    match = match or re.search(CLAIM, rest)
    if match is None:
        return 0.0, 0.0
    share, error = (text.replace("−", "-").replace(",", "") for text in match.groups())
    return float(share), float(error)


def explained(case: Case, run: Path, others: pd.DataFrame, **options: Any) -> float:
    """Return what is true of other rows, in percent, in the units of `claimed`."""
    predicted = distfms.load(run).predict(others.drop(columns="y"), **options)
    target = others["y"].to_numpy()
    if case.has_classes and case.method == "sequence":
        return float(100 * roc_auc_score(target == "yes", predicted["probability_yes"]) - 50)
    values = predicted["predicted_y"].to_numpy()
    if target.dtype.kind != "f":
        return float(100 * np.mean(values == target))
    return float(100 * (1 - np.mean((target - values) ** 2) / target.var()))


def covers(case: Case, n_rows: int, seed: int) -> float:
    """Return 1 if Student's 95% of a headline covers the truth, 0 if not, NaN without a claim."""
    assert case.draw is not None
    rng = np.random.default_rng([seed, n_rows])
    with tempfile.TemporaryDirectory() as folder:
        run = finished(case, case.draw(rng, n_rows), seed, folder)
        share, error = claimed(case, run)
        if not error:
            return float("nan")
        selection = read_run(str(run)).open()[1].selection
        options = {}
        if case.of_all:
            options["budget"] = selection["sequence"][-1]["spent"]
        if case.method == "multiselect":
            others = judged(rng, N_OTHERS, selection["repeats"])
        else:
            others = case.draw(rng, N_OTHERS)
        truth = explained(case, run, others, **options)
    # Headlines round: a claim of 65% stands for 64.5 to 65.5.
    return float(abs(share - truth) <= student_t(0.95, N_FOLDS - 1) * error + 0.5)


def covers_row_by_row(n_rows: int, seed: int) -> bool:
    """Return whether the interval of the log loss of rows that stop one by one covers the truth."""
    rng = np.random.default_rng([seed, n_rows])
    case = Case("sequence", {**LINEAR, "family": "logistic"})
    with tempfile.TemporaryDirectory() as folder:
        run = finished(case, classes(rng, n_rows), seed, folder)
        claim = read_run(str(run)).open()[1].metrics["stop"]["rows"]["validation"]
        others = classes(rng, N_OTHERS)
        predicted = distfms.load(run).predict(others.drop(columns="y"), stop="rows")
    is_yes = others["y"].to_numpy() == "yes"
    share = np.where(is_yes, predicted["probability_yes"], predicted["probability_no"])
    difference = claim["log_loss"] + np.mean(np.log(share))
    width = student_t(0.95, N_FOLDS - 1) * claim["error_of_log_loss"]
    return bool(abs(difference) <= width)


def of_noise(case: Case, n_rows: int, n_columns: int, seed: int) -> tuple[float, float, float]:
    """Return a headline's claim about noise, its error, and what is true, in percent."""
    rng = np.random.default_rng([seed, n_rows])
    rows = without_signal(case, rng, n_rows, n_columns)
    others = without_signal(case, rng, N_OTHERS // 10, n_columns)
    with tempfile.TemporaryDirectory() as folder:
        run = finished(case, rows, seed, folder)
        share, error = claimed(case, run)
        truth = explained(case, run, others)
    if case.has_classes and case.method == "landmarks":
        truth -= 100 * others["y"].value_counts(normalize=True).max()
    if case.has_classes and case.method == "landmarks" and share:
        share -= 100 * rows["y"].value_counts(normalize=True).max()
    return share, error, truth


# --- tables of results ----------------------------------------------------------------------------


def coverage(names: list[str], n_tables: int) -> list[dict[str, Any]]:
    """Return by case and number of rows how often the truth is covered, and print it."""
    rows = []
    for name in names or [*COVERAGE, ROW_BY_ROW]:
        row: dict[str, Any] = {"figure": name}
        for n_rows in COVERAGE_ROWS:
            if name == ROW_BY_ROW:
                covered = [covers_row_by_row(n_rows, seed) for seed in range(n_tables)]
            else:
                covered = [covers(COVERAGE[name], n_rows, seed) for seed in range(n_tables)]
            row[f"{n_rows} rows"] = f"{np.nanmean(covered):.0%}"
        print(row, flush=True)
        rows.append(row)
    return rows


def noise(names: list[str], n_tables: int) -> list[dict[str, Any]]:
    """Return by case and size of the table what is claimed and what is true, and print it."""
    rows = []
    for name in names or list(NOISE):
        row: dict[str, Any] = {"job": name}
        for n_rows, n_columns in NOISE_SIZES:
            tables = range(n_tables)
            claims = [of_noise(NOISE[name], n_rows, n_columns, seed) for seed in tables]
            shares, errors, truths = np.array(claims).T
            above = np.mean(shares > np.fmax(2.776 * errors, 1e-9))
            size = f"{n_rows} × {n_columns}"
            row[size] = f"{shares.mean():+.2f}, {above:.0%}, {truths.mean():+.2f}"
        print(row, flush=True)
        rows.append(row)
    return rows


TABLES = {
    "coverage": (
        coverage,
        "How often intervals cover the truth",
        "Student's 95% of a headline's ± over five folds, beside what its model explains, or "
        "classifies correctly, of 20,000 other rows; {n} tables each, of which those with a claim "
        "count.",
    ),
    "noise": (
        noise,
        "What headlines claim of noise",
        "Targets that nothing explains, in points: mean claim, claims of more than Student's 95% "
        "above 0, mean truth; {n} tables each.",
    ),
}


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--record", action="store_true", help="write the result and the README")
    options = parser.parse_args()
    measure, title, text = TABLES[options.table]
    rows = measure(options.cases, options.tables)
    if options.record:
        record(
            f"intervals-{options.table}",
            title=title,
            text=text.format(n=options.tables),
            script=f"python -m benchmarks.intervals {options.table}",
            seeds=range(options.tables),
            rows=rows,
        )


if __name__ == "__main__":
    main()
