"""What multi-selection claims of the One Million Impressions faces, and what is real.

34 impressions of 1004 faces by 30 to 83 raters each: one impression's mean over all its raters is
the label, the others are attributes. The paper's own protocol is in ``benchmarks/papers``.

By default, from two judgments of 400 faces, budgets 20 and 40, the projected and the 4-fold
cross-validated loss of a selection and the real error of its model on the other faces; by Full
without ridge, Full and the lasso with `ridge: auto`, and `selection: auto`.

With ``--psd``, test errors of Full by where the nearest semi-definite matrix is looked for:
in units of one judgment's deviation (`nearest`), in those of the data (`data_units`), and nowhere
(`none`); with all ratings from 0 to 100, and with attributes in units 1/10 to 10 times as large.

Run with ``OMP_NUM_THREADS=1 python benchmarks/multiselect_omi.py [FILE] [--splits N]``. FILE is
omi.parquet with columns face, attribute, rating; default: judgments/omi.parquet in the folder
that DISTFMS_REALDATA names.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.synthetic import ragged_of
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.multiselect.choices import candidates, rule_of
from distfms.methods.multiselect.model import projected_model
from distfms.methods.multiselect.options import MultiselectOptions
from distfms.methods.multiselect.procedure import BuyingRule, SelectionProcedure
from distfms.solve.buying import Problem, full_objective
from distfms.solve.purchases import select
from distfms.stats.base import merge_tree
from distfms.stats.judgments import JudgmentStatistics

#: Judgments that a selection is made from.
K = 2
#: Of the table of claims.
N_FEW, N_FOLDS, CLAIMS = 400, 4, ("full, ridge 0", "full", "lasso", "auto")

#: Of the table by `psd`: training faces, budgets, ways.
PSD_TRAIN, PSD_BUDGETS, PSD = (50, 100, 200, 700), (10, 20, 40), ("nearest", "data_units", "none")


def load(path: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ratings (faces, attributes, raters) with NaN where there are fewer, counts, names."""
    table = pq.read_table(path, columns=["face", "attribute", "rating"])
    faces, face = np.unique(table["face"].to_numpy(), return_inverse=True)
    encoded = table["attribute"].combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    cell = face * len(names) + encoded.indices.to_numpy()
    order = np.argsort(cell, kind="stable")
    counts = np.bincount(cell, minlength=faces.size * len(names))
    starts = np.cumsum(counts) - counts
    ratings = np.full((counts.size, counts.max()), np.nan)
    place = np.arange(cell.size) - np.repeat(starts, counts)
    ratings[cell[order], place] = table["rating"].to_numpy()[order]
    shape = (faces.size, len(names))
    return ratings.reshape(*shape, -1), counts.reshape(shape), names


def shuffled(ratings: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Raters of every cell in random order, absent ones last."""
    keys = rng.random(ratings.shape, dtype=np.float32)
    keys[np.isnan(ratings)] = 2.0
    return np.take_along_axis(ratings, np.argsort(keys, axis=-1), axis=-1)


def statistics_of(judgments: np.ndarray, label: np.ndarray) -> JudgmentStatistics:
    """Statistics of (m, d, K) judgments."""
    columns = [ragged_of(judgments[:, a]) for a in range(judgments.shape[1])]
    return JudgmentStatistics.from_block(columns, label)


def test_error(
    repeats: np.ndarray, sums: np.ndarray, counts: np.ndarray, label: np.ndarray, train: np.ndarray
) -> float:
    """Mean squared error on the other faces of least squares on averages of `repeats` ratings."""
    support = np.flatnonzero(repeats)
    held = np.minimum(repeats[support], counts[:, support])
    total = np.take_along_axis(sums[:, support], held[:, :, None] - 1, axis=2)[:, :, 0]
    design = np.column_stack([np.ones(label.size), total / held])
    weights = np.linalg.lstsq(design[train], label[train], rcond=None)[0]
    return float(np.mean((label[~train] - design[~train] @ weights) ** 2))


def claims(
    order: np.ndarray, counts: np.ndarray, label: np.ndarray, train: np.ndarray, budget: int
) -> np.ndarray:
    """Projected, cross-validated and real losses (claims, 3) of what one split selects."""
    chosen, sums = order[train][:, :, :K], np.cumsum(order, axis=-1)
    parts = [
        {"judgments": statistics_of(chosen[f::N_FOLDS], label[train][f::N_FOLDS])}
        for f in range(N_FOLDS)
    ]
    merged = [
        {"judgments": merge_tree([p["judgments"] for p in parts if p is not without])}
        for without in (None, *parts)
    ]
    folds = [Fold(rest, part) for rest, part in zip(merged[1:], parts, strict=True)]
    names = tuple(map(str, range(order.shape[1])))
    tried = candidates(MultiselectOptions(budget=budget, selection="auto"), N_FOLDS)[1:]
    procedures = [
        SelectionProcedure(
            names,
            budget,
            np.ones(len(names)),
            np.full(len(names), np.nan),
            ridge=choice["ridge"],
            rules=(BuyingRule("lasso" if choice["selection"] == "lasso" else "full"),),
        )
        for choice in tried
    ]
    losses = np.array(
        [
            [p.evaluate(f, p.rules[0], np.array([budget]))["projected_loss"][0] for f in folds]
            for p in procedures
        ]
    )
    weight, n = [N_FEW / N_FOLDS] * N_FOLDS, len(tried) // 2
    greedy = rule_of(tried[:n])(losses[:n], weight)
    lasso = rule_of(tried[n:])(losses[n:], weight)
    compared = [n - 1, greedy, n + lasso, rule_of(tried)(losses, weight)]
    assert (tried[n - 1]["ridge"], tried[n]["selection"]) == (0.0, "lasso")
    rows = []
    for number in compared:
        procedure = procedures[number]
        training = procedure.problem(merged[0])
        problem, path = training.problem, procedure.search(training, procedure.rules[0])
        model = projected_model(problem, path.final_repeats)
        held = np.clip(model.repeats, 1, counts)
        means = np.take_along_axis(sums, held[:, :, None] - 1, axis=2)[:, :, 0] / held
        real = label - model.intercept - means @ model.weights
        projected = problem.label_variance - full_objective(problem, model.repeats)
        rows.append((projected, losses[number].mean(), np.mean(real[~train] ** 2)))
    return np.array(rows)


def report_claims(
    ratings: np.ndarray, counts: np.ndarray, names: list[str], labels: list[str], n_splits: int
) -> None:
    for name in labels:
        target = names.index(name)
        rest = np.delete(np.arange(len(names)), target)
        label, found = np.nanmean(ratings[:, target], axis=-1), []
        for split in range(n_splits):
            rng = np.random.default_rng([1, split])
            train = np.zeros(len(ratings), dtype=bool)
            train[rng.permutation(train.size)[:N_FEW]] = True
            order = shuffled(ratings[:, rest], rng)
            found.append([claims(order, counts[:, rest], label, train, b) for b in (20, 40)])
        mean = np.mean(found, axis=0)
        for budget, rows in zip((20, 40), mean, strict=True):
            pairs = zip(CLAIMS, rows.tolist(), strict=True)
            said = "; ".join(f"{claim} {p:.1f} {v:.1f} {r:.1f}" for claim, (p, v, r) in pairs)
            print(f"{name:>12} {budget}: {said}", flush=True)


def report_psd(ratings: np.ndarray, counts: np.ndarray, targets: list[int], n_splits: int) -> None:
    shape = (len(targets), n_splits, len(PSD), len(PSD_BUDGETS))
    for n_train in PSD_TRAIN:
        for mixed in (False, True):
            errors = np.empty(shape)
            for i, target in enumerate(targets):
                rest = np.delete(np.arange(ratings.shape[1]), target)
                label = np.nanmean(ratings[:, target], axis=-1)
                for split in range(n_splits):
                    rng = np.random.default_rng([2, split])
                    train = np.zeros(len(ratings), dtype=bool)
                    train[rng.permutation(train.size)[:n_train]] = True
                    scale = 10.0 ** rng.uniform(-1, 1, rest.size) if mixed else np.ones(rest.size)
                    order = shuffled(ratings[:, rest], rng) * scale[:, None]
                    sums, own = np.cumsum(order, axis=-1), counts[:, rest]
                    estimates = statistics_of(order[train][:, :, :K], label[train]).estimates()
                    for j, psd in enumerate(PSD):
                        problem = Problem.from_estimates(estimates, psd=psd)
                        path = select(problem, max(PSD_BUDGETS))
                        errors[i, split, j] = [
                            test_error(path.repeats_at(b), sums, own, label, train)
                            for b in PSD_BUDGETS
                        ]
            mean, behind = errors.mean(axis=(0, 1)), (errors - errors[:, :, :1]).mean(axis=0)
            spread = behind.std(axis=0, ddof=1) / np.sqrt(n_splits)
            print(f"{n_train} training faces{', mixed units' if mixed else ''}", flush=True)
            for j, psd in enumerate(PSD):
                said = (
                    f"{b}: {mean[j, at]:.2f} ({behind[:, j, at].mean():+.2f} ± {spread[j, at]:.2f})"
                    for at, b in enumerate(PSD_BUDGETS)
                )
                print(f"{psd:>12} {'; '.join(said)}", flush=True)


def main() -> None:
    folder = Path(os.environ.get("DISTFMS_REALDATA", "../shared/data"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=folder / "judgments/omi.parquet")
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--labels", nargs="+", default=["trustworthy", "attractive"])
    parser.add_argument("--psd", action="store_true", help="by where Full looks for a matrix")
    args = parser.parse_args()
    ratings, counts, names = load(args.file)
    if args.psd:
        report_psd(ratings, counts, [names.index(label) for label in args.labels], args.splits)
    else:
        report_claims(ratings, counts, names, args.labels, args.splits)


if __name__ == "__main__":
    main()
