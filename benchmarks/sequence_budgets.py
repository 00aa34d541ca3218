"""AUROC at three budgets: row by row, beside one model for all rows and AACO.

For each table and budget, which is a share of what all groups cost: the AUROC of two classes on
other rows. Ours are one fit of the estimator as jobs are by default: the best prefix or set within
the budget (``predict(budget=…)``), and rows that stop one by one at this mean cost
(``predict(stop="rows", mean_budget=…)``, whose cost on the other rows is said too).

AACO is the acquisition conditioned oracle of Valancius, Lennon, Oliva ("Acquisition Conditioned
Oracle for Nongreedy Active Feature Acquisition", 2024): a row looks at its five nearest neighbours
among the training rows in what it has seen, and at random sets of further groups, and buys the
first group of the set of the least mean loss there plus a price times its cost, or none. A model
for partial rows, LightGBM on ten random masks of each row, says what sets are worth. Prices are
tried until the mean cost on the other rows is on both sides of the budget; two policies are mixed.

``digits`` are scikit-learn's, odd or even, in sixteen blocks of four pixels of the same price: a
table of many groups that are about equally informative.

Run with ``python -m benchmarks.sequence_budgets FOLDER [--splits 3] [--only heart]``, where FOLDER
holds the public tables.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from benchmarks.answers.peers import FOLDS, TREES, Split, Table, read
from distfms import GroupSequenceClassifier

TABLES = ("heart", "breast_cancer", "digits")
SHARES = (0.1, 0.25, 0.5)
N_NEIGHBOURS = 5
N_RANDOM_SETS = 20
#: Masked copies of each training row, and other rows that are judged.
N_COPIES = 10
MOST_OTHERS = 200
PRICES = np.geomspace(10.0, 0.01, 7)

Walk = tuple[np.ndarray, np.ndarray]
"""Probabilities of the second class, and costs, of rows."""


def table_of(folder: Path, name: str, most: int) -> Table:
    """Return a table, of at most so many rows."""
    if name != "digits":
        return read(folder, name, most)
    pixels, digit = load_digits(return_X_y=True)
    groups: dict[str, list[str]] = {}
    names = []
    for pixel in range(64):
        row, column = divmod(pixel, 8)
        names.append(f"p{row}{column}")
        groups.setdefault(f"block {row // 2}{column // 2}", []).append(names[-1])
    X = pd.DataFrame(pixels, columns=names)
    return Table(X, digit % 2, groups, dict.fromkeys(groups, 1.0), classes=True)


# --- AACO -----------------------------------------------------------------------------------------


class Oracle:
    """AACO on the training rows of a split; masks (…, groups) say which groups are seen."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.rng = np.random.default_rng(0)
        codes = {name: split.codes[name].cat.codes for name in split.texts}
        coded = split.codes.assign(**codes)
        self.X = coded.to_numpy(float)
        self.group_of = np.empty(self.X.shape[1], dtype=int)
        for group, names in enumerate(split.table.groups.values()):
            places = [coded.columns.get_loc(name) for name in names]
            self.group_of[places] = group
        training = self.X[split.train]
        deviations = np.nanstd(training, axis=0)
        units = np.where(deviations > 0, deviations, 1.0)
        self.scaled = np.nan_to_num((self.X - np.nanmean(training, axis=0)) / units)
        self.n_groups = len(split.names)
        rows = np.repeat(split.train, N_COPIES)
        inputs = self._masked(rows, self._random_sets(len(rows)))
        self.model = split.trees().fit(inputs, split.table.y[rows])

    def _random_sets(self, n: int) -> np.ndarray:
        """Draw sets, each size alike."""
        return self.rng.random((n, self.n_groups)) < self.rng.random((n, 1)) * 1.1

    def _masked(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        return np.where(seen[:, self.group_of], self.X[rows], np.nan)

    def predict(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Return probabilities of the second class by what is seen of each row."""
        probabilities: np.ndarray = self.model.predict_proba(self._masked(rows, seen))
        return probabilities[:, 1]

    def costs(self, seen: np.ndarray) -> np.ndarray:
        """Return what sets cost, (…)."""
        costs = seen @ self.split.costs.own
        for item in self.split.costs.shared:
            is_paid = seen[..., list(item.groups)].any(axis=-1)
            costs = costs + item.cost * is_paid
        return costs

    def losses(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Return log losses."""
        second = self.predict(rows, seen)
        true = np.where(self.split.table.y[rows] > 0, second, 1 - second)
        return -np.log(np.maximum(true, 1e-9))

    def neighbours(self, row: int, seen: np.ndarray) -> np.ndarray:
        """Return the training rows that are nearest in what is seen of a row."""
        train = self.split.train
        if not seen.any():
            return self.rng.choice(train, N_NEIGHBOURS, replace=False)
        columns = seen[self.group_of]
        differences = self.scaled[train][:, columns] - self.scaled[row, columns]
        distances = np.square(differences).sum(axis=1)
        return train[np.argpartition(distances, N_NEIGHBOURS)[:N_NEIGHBOURS]]

    def walk(self, rows: np.ndarray, price: float) -> Walk:
        """Return predictions and costs of rows, at a price of all groups in units of loss."""
        seen = np.zeros((len(rows), self.n_groups), dtype=bool)
        going = np.arange(len(rows))
        while len(going):
            next_groups = self._next_groups(rows[going], seen[going], price)
            going = going[next_groups >= 0]
            seen[going, next_groups[next_groups >= 0]] = True
        return self.predict(rows, seen), self.costs(seen)

    def _next_groups(self, rows: np.ndarray, seen: np.ndarray, price: float) -> np.ndarray:
        """Return the group that each row buys; −1 for none."""
        total = self.costs(np.ones(self.n_groups, dtype=bool))
        nothing = np.zeros((1, self.n_groups), dtype=bool)
        single = np.eye(self.n_groups, dtype=bool)
        random_sets = self._random_sets(N_RANDOM_SETS)
        tried = np.concatenate((nothing, single, ~nothing, random_sets))
        sets = seen[:, np.newaxis] | tried
        near = np.array([self.neighbours(row, mask) for row, mask in zip(rows, seen, strict=True)])
        n_rows, n_sets = sets.shape[:2]
        pairs = np.repeat(near[:, np.newaxis], n_sets, axis=1).ravel()
        masks = np.repeat(sets.reshape(-1, self.n_groups), N_NEIGHBOURS, axis=0)
        losses = self.losses(pairs, masks).reshape(n_rows, n_sets, N_NEIGHBOURS).mean(axis=2)
        losses += price * (self.costs(sets) - self.costs(seen)[:, np.newaxis]) / total
        best_sets = sets[np.arange(n_rows), losses.argmin(axis=1)]
        is_new = best_sets & ~seen
        # Of the best set, the group that is best alone comes first.
        alone = np.where(is_new, losses[:, 1 : self.n_groups + 1], np.inf)
        return np.where(is_new.any(axis=1), alone.argmin(axis=1), -1)


def aaco(split: Split, budgets: Sequence[float]) -> list[float]:
    """Return the AUROC of AACO at mean costs on other rows."""
    oracle = Oracle(split)
    rows = split.test
    nothing = np.zeros((len(rows), oracle.n_groups), dtype=bool)
    walks: list[Walk] = [(oracle.predict(rows, nothing), np.zeros(len(rows)))]
    for price in PRICES:
        walks.append(oracle.walk(rows, float(price)))
        if walks[-1][1].mean() > max(budgets):
            break
    walks.sort(key=lambda walk: walk[1].mean())
    means = np.array([costs.mean() for _, costs in walks])
    scores = []
    for budget in budgets:
        place = int(np.searchsorted(means, budget, side="right")) - 1
        above = min(place + 1, len(walks) - 1)
        step = means[above] - means[place]
        share = (budget - means[place]) / step if step > 0 else 0.0
        is_above = np.random.default_rng(0).random(len(rows)) < share
        mixed = np.where(is_above, walks[above][0], walks[place][0])
        scores.append(float(roc_auc_score(split.table.y[rows], mixed)))
    return scores


# --- ours -----------------------------------------------------------------------------------------


def ours(split: Split, budgets: Sequence[float]) -> dict[str, list[float]]:
    """Return the AUROC of one model for all rows and of rows one by one, and what these cost."""
    table = split.table
    groups = {name: list(names) for name, names in table.groups.items()}
    model = GroupSequenceClassifier(
        groups,
        dict(split.prices),
        dict(table.shared),
        model="auto",
        lightgbm=TREES,
        budgets=list(budgets),
        folds=FOLDS,
        missing="mean",
        n_jobs=1,
    )
    model.fit(table.X.iloc[split.train], table.y[split.train])
    X = table.X.iloc[split.test]
    y = table.y[split.test]
    by_way: dict[str, list[float]] = {"one model": [], "row by row": [], "cost of these rows": []}
    for budget in budgets:
        one_model = model.predict_proba(X, budget=budget)
        row_by_row = model.predict_proba(X, stop="rows", mean_budget=budget)
        cost = np.mean(model.row_costs(X, mean_budget=budget))
        by_way["one model"].append(float(roc_auc_score(y, np.asarray(one_model)[:, 1])))
        by_way["row by row"].append(float(roc_auc_score(y, np.asarray(row_by_row)[:, 1])))
        by_way["cost of these rows"].append(float(cost / budget))
    return by_way


def one_split(table: Table, seed: int) -> dict[str, list[float]]:
    """Return what each way is worth at each budget."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.y))
    train, test = np.split(order, [int(0.6 * len(order))])
    drawn = {group: float(np.round(rng.uniform(1, 10), 1)) for group in table.groups}
    split = Split(table, train, test[:MOST_OTHERS], table.costs or drawn)
    total = split.costs.total(range(len(split.names)))
    budgets = [share * total for share in SHARES]
    return {**ours(split, budgets), "AACO": aaco(split, budgets)}


def show(name: str, splits: Sequence[dict[str, list[float]]]) -> None:
    """Print a line for each budget: means over splits, and what rows gain on the others."""
    for place, share in enumerate(SHARES):
        values = {way: np.array([split[way][place] for split in splits]) for way in splits[0]}
        cells = [f"{scores.mean():.3f}" for scores in values.values()]
        for other in ("one model", "AACO"):
            gains = values["row by row"] - values[other]
            error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
            cells.append(f"{gains.mean():+.3f} ± {error:.3f}")
        print(f"| {name}, {share:.0%} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--most", type=int, default=1500, help="rows of a table")
    parser.add_argument("--only", nargs="*", default=TABLES)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| data, budget | one model | row by row | cost of these rows | AACO | gain | on AACO |")
    print("|---|---|---|---|---|---|---|")
    for name in args.only:
        table = table_of(args.folder, name, args.most)
        show(name, [one_split(table, seed) for seed in range(args.splits)])


if __name__ == "__main__":
    main()
