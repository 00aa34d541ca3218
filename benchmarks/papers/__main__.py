"""The tables and figures of the four papers by jobs with `preset: paper`, beside what is printed.

``python -m benchmarks.papers [PAPER ...] [--folder FOLDER]`` runs a job for each row and prints
Markdown. FOLDER has the public data (or DISTFMS_REALDATA). Of data that are not public others take
the place: One Million Impressions and made-up slices (multi-selection), Beijing's air, breast
cancer and LightGBM's ranking example with the costs of Yahoo (sequences). Where the paper prints a
figure it is in parentheses; where it draws curves only, what it says of them is above the table.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.attribute_efficient import synthetic
from benchmarks.generators import slices
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.spec import read_yaml

#: Test-time timeliness of Tables 1 and 2 of Hu et al.: CS-G-OMP, single, no-whiten, G-OMP, FR, the
#: oracles of FR and OMP, sparse; of Table 2 by the size of groups.
RULES = (
    *("omp", "omp-single", "omp-no-whiten", "omp-blind", "fr"),
    *("oracle:fr", "oracle:omp", "sparse"),
)
TABLE_1 = (0.4406, 0.4086, 0.4340, 0.4073, 0.4525, 0.4551, 0.4508, 0.3997)
TABLE_2 = {
    5: (0.3188, 0.3039, 0.3111, 0.2985, 0.3222, 0.3225, 0.3211, 0.2934),
    10: (0.3142, 0.3117, 0.3079, 0.2909, 0.3205, 0.3207, 0.3164, 0.2858),
    15: (0.3165, 0.3159, 0.3116, 0.2892, 0.3213, 0.3213, 0.3177, 0.2952),
    20: (0.3161, 0.3124, 0.3065, 0.2875, 0.3180, 0.3180, 0.3163, 0.2895),
}
COSTS = (1, 5, 20, 50, 100, 150, 200)

#: Kernel regression and landmarks of Table 1 of Kar and Jain, by similarity.
SIMILARITIES = ("sigmoid", "manhattan")
REGRESSION = {
    "abalone": (("2.1e-2", "6.2e-3 ± 8.4e-4"), ("1.7e-2", "6.0e-3 ± 3.7e-4")),
    "bodyfat": (("4.6e-4", "9.5e-5 ± 1.3e-4"), ("3.9e-4", "3.5e-5 ± 1.3e-5")),
    "cal_housing": (("5.9e-2", "1.6e-2 ± 6.2e-4"), ("5.8e-2", "1.5e-2 ± 1.4e-4")),
    "cpu_small": (("4.1e-2", "1.4e-3 ± 1.7e-4"), ("4.3e-2", "1.2e-3 ± 3.2e-5")),
    "puma8NH": (("2.3e-1", "1.4e-2 ± 4.5e-4"), ("2.3e-1", "1.4e-2 ± 4.8e-4")),
}
ORDINAL = {
    "wine_red": (("0.68", "0.42 ± 0.038"), ("0.67", "0.45 ± 0.032")),
    "wine_white": (("0.62", "0.89 ± 0.85"), ("0.62", "0.49 ± 0.015")),
    "bank8FM": (("2.9", "0.61 ± 0.044"), ("2.7", "0.63 ± 0.017")),
    "house_8L": (("2.8", "1.5 ± 0.020"), ("2.7", "1.4 ± 0.012")),
}
#: What the tables are reached with: the paper does not say how inputs are scaled.
SCALING = {"sigmoid": "standard", "manhattan": "unit"}
#: Not the last column.
TARGETS = {"bodyfat": "Density"}
N_LEVELS, CANDIDATES = 10, 1000

#: Improvement ratios of section 5.2 of Kukliansky and Shamir.
RATIOS = {"ridge": 0.45, "lasso": 0.2}

#: Judgments of a training object, of Figure 3 of Sabato and Kalai.
JUDGMENTS = (2, 3, 5, 10)

Row = list[str]


class Jobs:
    """Runs jobs with the preset; data that are made for one go to the same folder."""

    def __init__(self, place: str, folder: Path) -> None:
        self.place, self.folder = Path(place), folder

    def splits(self, n: int, method: str, data: Mapping[str, Any], **options: Any) -> list[Any]:
        """Return the metrics of jobs that hold out other rows each, without folds."""
        return [
            self.run(method, {**data, "folds": 0}, seed=seed, **options)[0] for seed in range(n)
        ]

    def run(
        self, method: str, data: Mapping[str, Any], seed: int = 0, **options: Any
    ) -> tuple[Any, Any, Any]:
        """Return metrics, selection and manifest."""
        content = {"name": "paper", "method": method, "preset": "paper", "data": dict(data)}
        content["seed"] = seed
        folder = run_job(build_spec({**content, method: options, "output": str(self.place)})).folder
        names = ("metrics.json", "selection.json", "manifest.json")
        metrics, selection, manifest = (json.loads((folder / n).read_text()) for n in names)
        return metrics, selection, manifest

    def write(self, name: str, table: pa.Table) -> str:
        path = self.place / f"{name}.parquet"
        pq.write_table(table, path)
        return str(path)


def table(title: str, head: Iterable[str], rows: Iterable[Row]) -> None:
    head = list(head)
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def over_splits(losses: Iterable[float], digits: str = ".3g", spread_digits: str = ".1g") -> str:
    """Write the mean and the standard deviation of losses over splits."""
    values = np.array([*losses])
    return f"{values.mean():{digits}} ± {values.std(ddof=1):{spread_digits}}"


# --- multi-selection ------------------------------------------------------------------------------


def loss_at(points: Iterable[Mapping[str, Any]], budgets: Iterable[float]) -> list[float]:
    """Return the held-out losses of the last points that each budget affords."""
    points = list(points)
    spent = np.array([point["budget"] for point in points])
    places = np.searchsorted(spent, [*budgets], "right") - 1
    return [points[place]["test"]["projected_loss"] for place in places]


def multiselect(jobs: Jobs, args: argparse.Namespace) -> None:
    budgets = (5, 10, 20, 40)
    long = {"object": "face", "attribute": "attribute", "value": "rating", "max_judgments": 2}
    faces = {"path": str(jobs.folder / "judgments" / "omi.parquet"), "test": 0.3}
    made = [
        (f"faces, {label}", {**faces, "long": {**long, "label": label}}, {})
        for label in ("trustworthy", "attractive")
    ]
    slice_options = {"n_bins": 384, "bins_per_attribute": 8, "n_bumps": 48}
    for k in (2, 10):
        recipe = slices(np.random.default_rng(0), judgments=k, **slice_options)
        columns = recipe.rows(np.random.default_rng(1), 0, args.objects)
        path = jobs.write(f"slices-{k}", pa.Table.from_arrays(columns, schema=recipe.schema))
        target, id_ = recipe.schema.names[1], recipe.schema.names[0]
        data = {"path": path, "target": target, "id": id_, "test": 0.3}
        if k == 2:
            made.append(("slices, made up", data, {}))

    def rows() -> Iterator[Row]:
        for name, data_, options in made:
            found = jobs.splits(args.splits, "multiselect", data_, budget=max(budgets), **options)
            for number, curve in enumerate(found[0]["curves"]):
                points = [metrics["curves"][number]["points"] for metrics in found]
                losses = [loss_at(own, budgets) for own in points]
                cells = [over_splits(own, ".1f", ".1f") for own in zip(*losses, strict=True)]
                yield [name, curve["name"], *cells]

    table(
        "Multi-selection, Figures 3 to 7: held-out loss by budget over splits, k = 2. The paper: "
        "Full is best; Scoring is usually somewhat worse, and may be better with few objects.",
        ("data", "algorithm", *map(str, budgets)),
        rows(),
    )
    table(
        "Figure 3, bottom: budget 30, m objects with k judgments each, ten draws of them. The "
        "paper: a small k is best.",
        ("k · m", "algorithm", *(f"k = {k}" for k in JUDGMENTS)),
        few_or_many(jobs, pq.read_table(path), data),
    )


def few_or_many(jobs: Jobs, objects: pa.Table, data: Mapping[str, Any]) -> Iterator[Row]:
    """Compare k judgments of m objects with more judgments of fewer, on others held out."""
    n_train = round(objects.num_rows * (1 - data["test"]))
    test_path = jobs.write("held-out", objects.slice(n_train))
    named = {"target": data["target"], "id": data["id"], "test_path": test_path, "folds": 0}
    for share in (1, 2, 4):
        product = 2 * n_train // share
        losses: dict[str, list[str]] = {"full": [], "scoring": []}
        for k in JUDGMENTS:
            curves = []
            for draw in range(10):
                rows = np.random.default_rng(draw).permutation(n_train)[: product // k]
                path = jobs.write("drawn", first_judgments(objects.take(np.sort(rows)), k))
                own = {"path": path, **named}
                metrics, _, _ = jobs.run("multiselect", own, budget=30, baselines=["scoring"])
                curves.append({c["name"]: loss_at(c["points"], [30])[0] for c in metrics["curves"]})
            for name, cells in losses.items():
                cells.append(over_splits([own[name] for own in curves], ".1f", ".1f"))
        for name, cells in losses.items():
            yield [str(product), name, *cells]


def first_judgments(objects: pa.Table, k: int) -> pa.Table:
    """Keep the first k judgments of each attribute."""
    for place, field in enumerate(objects.schema):
        if pa.types.is_list(field.type):
            kept = pc.list_slice(objects.column(place), 0, k)
            objects = objects.set_column(place, field, kept)
    return objects


# --- sequences ------------------------------------------------------------------------------------


def drawn_groups(costs: Mapping[str, float], size: int) -> dict[str, Any]:
    """Return groups of columns of one cost, drawn at random as in Section 5.1, and their costs."""
    by_cost: dict[float, list[str]] = {}
    for name in np.random.default_rng(1).permutation(list(costs)).tolist():
        by_cost.setdefault(costs[name], []).append(name)
    groups, prices = dict[str, list[str]](), dict[str, float]()
    for cost, columns in sorted(by_cost.items()):
        for start in range(0, len(columns), size):
            group = f"drawn-{len(groups) + 1}"
            groups[group] = columns[start : start + size]
            prices[group] = cost * len(groups[group])
    return {"groups": groups, "costs": prices}


def sequence(jobs: Jobs, args: argparse.Namespace) -> None:
    def job(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        content = read_yaml(Path(__file__).parents[2] / "jobs" / f"sequence-{name}.yaml")
        own = content["sequence"]
        return content["data"], {
            k: own[k] for k in own if k not in ("family", "criterion", "baselines")
        }

    folder = jobs.folder / "ranking"
    columns = pq.read_schema(folder / "lightgbm_rank_train.parquet").names
    columns = [name for name in columns if name not in ("label", "qid")]
    costs = np.random.default_rng(0).choice(COSTS, len(columns))
    paths = {
        key: str(folder / f"lightgbm_rank_{part}.parquet")
        for key, part in (("path", "train"), ("test_path", "test"))
    }
    ranking = {**paths, "target": "label", "query": "qid"}
    priced = dict(zip(columns, costs.tolist(), strict=True))
    tried = [
        ("Beijing's air", *job("beijing"), TABLE_1),
        ("breast cancer", *job("breast-cancer"), TABLE_1),
    ]
    tried += [
        (f"ranking, groups of {size}", ranking, drawn_groups(priced, size), paper)
        for size, paper in TABLE_2.items()
    ]

    def rows() -> Iterator[Row]:
        for name, data, options, paper in tried:
            metrics, *_ = jobs.run("sequence", data, **options)
            ours = metrics["timeliness"]
            best, cells = paper[RULES.index("fr")], []
            for rule, printed in zip(RULES, paper, strict=True):
                shares = [
                    f"{ours[rule][which] / ours['fr'][which]:.3f}"
                    for which in ("alpha_timeliness", "test_alpha_timeliness")
                    if ours[rule].get(which) is not None
                ]
                cells.append(f"{', '.join(shares)} ({printed / best:.3f})")
            yield [name, f"{metrics['alpha']['alpha']:g}", *cells]

    table(
        "Sequences, Tables 1 and 2: α-timeliness as a share of that of FR, on training and on "
        "held-out rows (the paper: held-out).",
        ("data", "α", *RULES),
        rows(),
    )


# --- similarities ---------------------------------------------------------------------------------


def rows_of(folder: Path, name: str, ordinal: bool) -> tuple[pa.Table, str]:
    """Return a table with the target in the unit range (but of bodyfat), or in ten levels."""
    inside = "ordinal" if name.startswith("wine") else "regression"
    found = pq.read_table(folder / inside / f"{name}.parquet")
    target = TARGETS.get(name, found.column_names[-1])
    y = found.column(target).to_numpy().astype(float)
    if ordinal and inside == "regression":
        cuts = np.quantile(y, np.arange(1, N_LEVELS) / N_LEVELS)
        y = np.searchsorted(cuts, y, side="right").astype(float)
    elif not ordinal and name not in TARGETS:
        y = (y - y.min()) / np.ptp(y)
    return found.set_column(found.column_names.index(target), target, pa.array(y)), target


def landmarks(jobs: Jobs, args: argparse.Namespace) -> None:
    def rows(ordinal: bool) -> Iterator[Row]:
        task = {"task": "ordinal"} if ordinal else {"task": "sparse", "landmarks": CANDIDATES}
        measure = "mae" if ordinal else "mse"
        for name, paper in (ORDINAL if ordinal else REGRESSION).items():
            given_rows, target = rows_of(jobs.folder, name, ordinal)
            data = {"path": jobs.write(name, given_rows), "target": target, "test": 0.3}
            cells = []
            for similarity, printed in zip(SIMILARITIES, paper, strict=True):
                scaling = "standard" if ordinal else SCALING[similarity]
                given = {"similarity": similarity, "scaling": scaling, **task}
                if given_rows.num_rows < CANDIDATES and not ordinal:
                    del given["landmarks"]
                found = jobs.splits(5, "landmarks", data, **given)
                smoothed = found[0]["baselines"][f"kernel regression, {similarity}"]
                points = [metrics["curves"][0]["points"][-1] for metrics in found]
                ours = over_splits(point["test"][measure] for point in points)
                simple = smoothed["test"][measure]
                cells += [f"{simple:.2g} ({printed[0]})", f"{ours} ({printed[1]})"]
            yield [name, *cells]

    head = [f"{s}: {what}" for s in SIMILARITIES for what in ("KR", "landmarks")]
    said = "with 50 landmarks, 5 splits of 70/30; of kernel regression, the first of them"
    table(f"Similarities, Table 1a: mean squared error {said}.", ("data", *head), rows(False))
    table(f"Table 1b: mean absolute error of levels {said}.", ("data", *head), rows(True))


# --- few attributes -------------------------------------------------------------------------------


def attribute_efficient(jobs: Jobs, args: argparse.Namespace) -> None:
    def tried() -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        digits = jobs.folder / "mnist_3v5"
        data = {"path": str(digits / "train.parquet"), "test_path": str(digits / "test.parquet")}
        for penalty, k in (("ridge", 57), ("lasso", 5)):
            options = {"attributes_per_example": k, "positive": 5}
            yield (
                f"MNIST 3 v 5 ({RATIOS[penalty]:g})",
                penalty,
                {**data, "target": "digit"},
                options,
            )
        for penalty in RATIOS:
            for alpha in args.alpha:
                made = synthetic(penalty, alpha, args.examples)
                paths = []
                for part, (x, y) in (
                    ("train", (made.train.rows, made.train.target)),
                    ("test", made.test),
                ):
                    columns = {f"x{i:03d}": column for i, column in enumerate(x.T)}
                    paths.append(jobs.write(f"{part}{alpha}", pa.table({**columns, "y": y})))
                data = {"path": paths[0], "test_path": paths[1], "target": "y"}
                yield f"synthetic, α = {alpha:g}", penalty, data, {"attributes_per_example": 5}

    def rows() -> Iterator[Row]:
        for name, penalty, data, options in tried():
            metrics, selection, _ = jobs.run(
                "attribute_efficient", data, penalty=penalty, repeats=args.repeats, **options
            )
            cells = []
            for curve in metrics["curves"]:
                last = curve["points"][-1]["test"]
                cells.append(f"{last['relative_loss']:.3f} ± {last['deviation']:.3f}")
            yield [name, penalty, f"{selection['improvement_ratio']:.3f}", *cells]

    table(
        "Few attributes, Figures 1 to 4: test loss relative to predicting 0 from all examples, ± a "
        f"deviation over {args.repeats} repeats; every algorithm tuned on 10 folds. The paper: by "
        "moments is below uniform, the more the smaller ρ (its own in parentheses); two phases are "
        "between; offline is best.",
        ("data", "penalty", "ρ", "by moments", "two phases", "uniform", "online", "offline"),
        rows(),
    )


PAPERS: dict[str, Callable[[Jobs, argparse.Namespace], None]] = {
    "multiselect": multiselect,
    "sequence": sequence,
    "landmarks": landmarks,
    "attribute_efficient": attribute_efficient,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--folder", type=Path, default=os.environ.get("DISTFMS_REALDATA"))
    parser.add_argument("--objects", type=int, default=2000, help="slices that are made up")
    parser.add_argument("--examples", type=int, default=4000, help="of synthetic data")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, -0.5, -1.0, -2.0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--splits", type=int, default=50, help="of multi-selection")
    args = parser.parse_args()
    if args.folder is None:
        parser.error("name the folder of public data with --folder, or set DISTFMS_REALDATA")
    for name in args.papers or PAPERS:
        with TemporaryDirectory() as place:
            PAPERS[name](Jobs(place, args.folder), args)


if __name__ == "__main__":
    main()
