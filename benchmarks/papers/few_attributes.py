"""Attribute-efficient regression: Figures 1 to 4 and the step of AELR of Kukliansky and Shamir."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.papers import bounds
from benchmarks.papers.jobs import Jobs
from benchmarks.papers.tables import Table, significant

TITLE = "Attribute-efficient regression (Kukliansky and Shamir 2015)"
REPEATS = 100

#: Figures 1 and 2: exponents of the attributes' expectations. At 0 all those of lasso are 1.
ALPHAS = {"ridge": (0.0, -0.5, -1.0, -2.0), "lasso": (-0.5, -1.0, -2.0)}
EXAMPLES, SYNTHETIC_DRAWS = 8000, 5
N_ATTRIBUTES, N_OTHERS = 500, 2000
#: Figures 3 and 4: k + 1 and the improvement ratio that is printed.
MNIST, N_DIGITS = {"ridge": (57, 0.45), "lasso": (5, 0.2)}, 11552
#: Algorithms, each a job with folds of its own; what sees all attributes goes with the first.
NAMES = {"moments": "by moments", "two_phase": "two phases", "uniform": "uniform"}
IN_FULL = ("online", "offline")
#: Bounds of uniform sampling: attributes, k, examples, B.
STEPS = ((500, 4, 8000, 1.0), (784, 4, 11552, 1.0), (784, 4, 11552, 10.0), (784, 4, 10**6, 1.0))

#: Rows and their targets.
Part = tuple[np.ndarray, np.ndarray]


def curves(
    jobs: Jobs, data: Mapping[str, str], draws: int, n_examples: int, **options: Any
) -> Iterator[dict[str, str]]:
    """Yield test losses by algorithm, at half as many attributes from column to column.

    What sees whole rows has a point more, of all of them.
    """
    columns = [f"{draws * n_examples // 2**place:,}" for place in range(6)]
    for drawing, name in NAMES.items():
        options |= {"draws": drawing, "attributes_per_example": draws}
        metrics, selection = jobs.run(data, **options)
        ratio = significant(selection["improvement_ratio"], 2)
        shown = [selection["algorithm"], *(IN_FULL if drawing == "moments" else ())]
        for curve in metrics["curves"]:
            if curve["name"] not in shown:
                continue
            points = [_text(point["test"]) for point in reversed(curve["points"])]
            row = {"ρ": ratio, "algorithm": curve["name"], "all rows": "–"}
            if curve["name"] in IN_FULL:
                row["all rows"] = points.pop(0)
            else:
                row["algorithm"] = name
            yield row | dict(zip_longest(columns, points[:6], fillvalue="–"))


def _text(test: Mapping[str, float]) -> str:
    loss, deviation = test["relative_loss"], test["deviation"]
    return f"{significant(loss, 3)} ± {significant(deviation, 1)}"


def mnist_rows(folder: Path, place: Path, penalty: str, repeats: int) -> Iterator[dict[str, Any]]:
    files = folder / "mnist_3v5"
    data = {"path": str(files / "train.parquet"), "test_path": str(files / "test.parquet")}
    data["target"] = "digit"
    draws, printed = MNIST[penalty]
    jobs = Jobs("attribute_efficient", place)
    for row in curves(jobs, data, draws, N_DIGITS, penalty=penalty, positive=5, repeats=repeats):
        yield {**row, "ρ": f"{row['ρ']} ({printed:g})"}


def synthetic(penalty: str, alpha: float, n_examples: int) -> tuple[Part, Part]:
    """Return binary attributes of expectations i^α in the unit ball, and targets (Section 5.1).

    Of examples to learn from, and of others.
    """
    rng = np.random.default_rng(int(-100 * alpha) + 1)
    expectations = np.arange(1, N_ATTRIBUTES + 1) ** alpha
    if penalty == "ridge":
        expectations /= np.linalg.norm(expectations)
        shares = [0.5, 0.0, 0.5]
    else:
        expectations /= expectations.max()
        shares = [0.15, 0.7, 0.15]
    weights = rng.choice([-1.0, 0.0, 1.0], size=N_ATTRIBUTES, p=shares)
    rows = (rng.random((n_examples + N_OTHERS, N_ATTRIBUTES)) < expectations).astype(float)
    target = rows @ weights
    training = (rows[:n_examples], target[:n_examples])
    return training, (rows[n_examples:], target[n_examples:])


def synthetic_rows(place: Path, repeats: int) -> Iterator[dict[str, Any]]:
    jobs = Jobs("attribute_efficient", place)
    for penalty, alphas in ALPHAS.items():
        for alpha in alphas:
            training, test = synthetic(penalty, alpha, EXAMPLES)
            data = {
                "path": _written(jobs, "training", *training),
                "test_path": _written(jobs, "test", *test),
                "target": "y",
            }
            own = {"penalty": penalty, "repeats": repeats}
            for row in curves(jobs, data, SYNTHETIC_DRAWS, EXAMPLES, **own):
                yield {"data": f"{penalty}, α = {alpha:g}", **row}


def _written(jobs: Jobs, part: str, X: np.ndarray, y: np.ndarray) -> str:
    return jobs.write(part, {**{f"x{i:03d}": column for i, column in enumerate(X.T)}, "y": y})


def step_row(d: int, k: int, m: int, B: float) -> dict[str, Any]:
    """Return steps of AELR and what Theorem 4.1 makes of them."""
    G = bounds.uniform_slopes(B, d, k)
    printed, ours = bounds.aerr_step(B, G, m), bounds.aelr_step(G, m, d)
    return {
        "d, k, m, B": f"{d}, {k}, {m:,}, {B:g}",
        "bound that is printed": bounds.aelr_printed(B, d, k, m),
        "printed step": printed,
        "its bound": bounds.lasso_risk(B, G, m, d, printed),
        "our step": ours,
        "our bound": bounds.lasso_risk(B, G, m, d, ours),
        "1/(2G)": 1.0 / (2.0 * G),
    }


def tables(folder: Path, repeats: int) -> Iterator[Table]:
    text = (
        "Test loss relative to that of predicting 0, ± a standard deviation over "
        f"{repeats} repeats, by the number of attributes that are seen. Every algorithm has its "
        "constants by 10 folds, for each phase; online and offline have those of by moments."
    )
    with TemporaryDirectory() as place:
        yield Table(
            "Figures 1 and 2",
            f"{text} {EXAMPLES:,} synthetic examples, k + 1 = 5 of 500. The paper: alike at α = 0, "
            "the better by moments the smaller ρ.",
            [*synthetic_rows(Path(place), repeats)],
        )
        for figure, penalty in (("Figure 3", "ridge"), ("Figure 4", "lasso")):
            yield Table(
                figure,
                f"{text} MNIST 3 against 5, {penalty}; ρ of the paper in parentheses. The paper: "
                "by moments is considerably better than uniform and about as good as online or "
                "somewhat better, two phases go from uniform to by moments as more attributes are "
                "seen, and with ridge offline is best.",
                [*mnist_rows(folder, Path(place), penalty, repeats)],
            )
    yield Table(
        "The step of AELR",
        "Section 4 prints η = 2B/(G√m) and the bound 4B²√(10 d log 2d/(km)); by Theorem 4.1 it is "
        "η = √(log 2d/(5m))/G, which the product takes, that gives this bound.",
        [step_row(*case) for case in STEPS],
    )
