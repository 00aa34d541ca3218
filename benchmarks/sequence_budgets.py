"""Held-out quality at three budgets: row by row beside one model for all rows, and AACO.

For each table and budget, which is a share of what all groups cost: the AUROC of two classes or the
R² of numbers on other rows. Ours are one fit of the public estimators as jobs are by default: the
best prefix or set within the budget (``predict(budget=…)``), and rows that stop one by one at this
mean cost (``predict(stop="rows", mean_budget=…)``, whose cost on the other rows is said too). The
orders of answers/peers.py have the best of their prefixes within the budget, as there.

AACO is the acquisition conditioned oracle of Valancius, Lennon, Oliva ("Acquisition Conditioned
Oracle for Nongreedy Active Feature Acquisition", 2024): a row looks at its five nearest neighbours
among the training rows in what it has seen, and at random sets of further groups, and buys the
first group of the set of the least mean loss there plus a price times its cost, or none. A model
for partial rows, LightGBM on ten random masks of each row, says what sets are worth. Prices are
tried until the mean cost on the other rows is on both sides of the budget; two policies are mixed.

``digits`` are scikit-learn's, odd or even, in sixteen blocks of four pixels of the same price: a
table of many groups that are about equally informative. Needs the public tables, and LightGBM.

Run with ``python -m benchmarks.sequence_budgets FOLDER [--splits 3] [--only heart]``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks.answers.peers import FOLDS, OURS, PEERS, Split, Table, penalised, read
from distfms import GroupSequenceClassifier, GroupSequencer

TABLES = ("heart", "breast_cancer", "wine_red", "cpu_small", "digits")
SHARES = (0.1, 0.25, 0.5)
NEIGHBOURS, MASKS, COPIES, MOST_OTHERS = 5, 20, 10, 200
PRICES = np.geomspace(10.0, 0.01, 7)


def table_of(folder: Path, name: str, most: int) -> Table:
    """Return a table, of at most so many rows."""
    if name != "digits":
        return read(folder, name, most)
    pixels, digit = load_digits(return_X_y=True)
    rows, columns = np.divmod(np.arange(64), 8)
    X = pd.DataFrame(pixels, columns=[f"p{r}{c}" for r, c in zip(rows, columns, strict=True)])
    blocks = [f"block {r // 2}{c // 2}" for r, c in zip(rows, columns, strict=True)]
    groups = {b: [c for c, own in zip(X, blocks, strict=True) if own == b] for b in blocks}
    return Table(X, digit % 2, groups, dict.fromkeys(groups, 1.0), classes=True)


def quality(table: Table, rows: np.ndarray, predicted: np.ndarray) -> float:
    measure = roc_auc_score if table.classes else r2_score
    return float(measure(table.y[rows], predicted))


# --- AACO -----------------------------------------------------------------------------------------


class Oracle:
    """AACO on the training rows of a split; masks (…, G) say which groups are seen."""

    def __init__(self, split: Split) -> None:
        self.split, self.rng, table = split, np.random.default_rng(0), split.table
        coded = split.codes.assign(**{c: split.codes[c].cat.codes for c in split.texts})
        self.X = coded.to_numpy(float)
        self.owner = np.empty(self.X.shape[1], dtype=int)
        for g, names in enumerate(table.groups.values()):
            self.owner[[coded.columns.get_loc(name) for name in names]] = g
        own = self.X[split.train]
        mean, spread = np.nanmean(own, axis=0), np.nanstd(own, axis=0)
        self.scaled = np.nan_to_num((self.X - mean) / np.where(spread > 0, spread, 1.0))
        self.n_groups = len(split.names)
        rows = np.repeat(split.train, COPIES)
        self.model = split.trees().fit(self._masked(rows, self._masks(len(rows))), table.y[rows])

    def _masks(self, n: int) -> np.ndarray:
        """Draw sets of each size alike."""
        return self.rng.random((n, self.n_groups)) < self.rng.random((n, 1)) * 1.1

    def _masked(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        return np.where(seen[:, self.owner], self.X[rows], np.nan)

    def predict(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        inputs = self._masked(rows, seen)
        if self.split.table.classes:
            return self.model.predict_proba(inputs)[:, 1]
        return self.model.predict(inputs)

    def costs(self, seen: np.ndarray) -> np.ndarray:
        """Return what sets cost, (…)."""
        costs = self.split.costs
        found = seen @ costs.own
        for item in costs.shared:
            found = found + item.cost * seen[..., list(item.groups)].any(axis=-1)
        return found

    def losses(self, rows: np.ndarray, seen: np.ndarray) -> np.ndarray:
        found, y = self.predict(rows, seen), self.split.table.y[rows]
        if not self.split.table.classes:
            return np.square(y - found) / self.split.table.y[self.split.train].var()
        return -np.log(np.clip(np.where(y > 0, found, 1 - found), 1e-9, None))

    def neighbours(self, row: int, seen: np.ndarray) -> np.ndarray:
        train = self.split.train
        if not seen.any():
            return self.rng.choice(train, NEIGHBOURS, replace=False)
        own = seen[self.owner]
        gaps = np.square(self.scaled[train][:, own] - self.scaled[row, own]).sum(axis=1)
        return train[np.argpartition(gaps, NEIGHBOURS)[:NEIGHBOURS]]

    def walk(self, rows: np.ndarray, price: float) -> tuple[np.ndarray, np.ndarray]:
        """Return predictions and costs of rows, at a price of all groups in units of loss."""
        G, total = self.n_groups, self.costs(np.ones(self.n_groups, dtype=bool))
        seen, going = np.zeros((len(rows), G), dtype=bool), np.arange(len(rows))
        while len(going):
            # None, each single group, all, and random sets, each with what is seen.
            drawn = (np.zeros((1, G), bool), np.eye(G, dtype=bool), np.ones((1, G), bool))
            tried = np.concatenate((*drawn, self._masks(MASKS)))
            sets = seen[going, np.newaxis] | tried
            near = np.array([self.neighbours(rows[i], seen[i]) for i in going])
            n, m = sets.shape[:2]
            pairs = np.repeat(near[:, np.newaxis], m, axis=1).ravel()
            loss = self.losses(pairs, np.repeat(sets.reshape(n * m, G), NEIGHBOURS, axis=0))
            values = loss.reshape(n, m, NEIGHBOURS).mean(axis=2)
            values += price * (self.costs(sets) - self.costs(seen[going])[:, None]) / total
            best = np.where(sets[np.arange(n), values.argmin(axis=1)], True, False)
            new = best & ~seen[going]
            # Of the best set, the group that is best alone comes first.
            alone = np.where(new, values[:, 1 : G + 1], np.inf)
            buys = new.any(axis=1)
            seen[going[buys], alone[buys].argmin(axis=1)] = True
            going = going[buys]
        return self.predict(rows, seen), self.costs(seen)


def aaco(split: Split, budgets: Sequence[float]) -> list[float]:
    """Return what AACO is worth at mean costs on other rows."""
    oracle, rows = Oracle(split), split.test
    none = np.zeros((len(rows), oracle.n_groups), dtype=bool)
    walks = [(oracle.predict(rows, none), np.zeros(len(rows)))]
    for price in PRICES:
        walks.append(oracle.walk(rows, price))
        if walks[-1][1].mean() > max(budgets):
            break
    walks.sort(key=lambda own: own[1].mean())
    means, found = [own[1].mean() for own in walks], []
    for budget in budgets:
        at = int(np.searchsorted(means, budget, side="right")) - 1
        (low, a), (high, b) = walks[at], walks[min(at + 1, len(walks) - 1)]
        share = (budget - a.mean()) / (b.mean() - a.mean()) if b.mean() > a.mean() else 0.0
        picked = np.random.default_rng(0).random(len(rows)) < share
        found.append(quality(split.table, rows, np.where(picked, high, low)))
    return found


# --- ours, and orders -----------------------------------------------------------------------------


def ours(split: Split, budgets: Sequence[float]) -> dict[str, list[float]]:
    """Return what one model for all rows and what rows one by one are worth, and cost."""
    table = split.table
    kind = GroupSequenceClassifier if table.classes else GroupSequencer
    groups = {name: list(own) for name, own in table.groups.items()}
    model = kind(
        groups, dict(split.prices), dict(table.shared), **OURS["by default"],
        budgets=list(budgets), folds=FOLDS, missing="mean", n_jobs=1,
    ).fit(table.X.iloc[split.train], table.y[split.train])  # fmt: skip
    X = table.X.iloc[split.test]

    def value(**how: Any) -> float:
        if table.classes:
            return quality(table, split.test, np.asarray(model.predict_proba(X, **how))[:, 1])
        return quality(table, split.test, np.asarray(model.predict(X, **how)))

    rows = [{"stop": "rows", "mean_budget": budget} for budget in budgets]
    costs = [np.mean(model.row_costs(X, mean_budget=budget)) / budget for budget in budgets]
    return {
        "ours, one model": [value(budget=budget) for budget in budgets],
        "ours, row by row": [value(**how) for how in rows],
        "cost of these rows": costs,
    }


def one_split(table: Table, seed: int, without: Sequence[str]) -> dict[str, list[float]]:
    """Return what each way is worth at each budget."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.y))
    train, test = np.split(order, [int(0.6 * len(order))])
    drawn = {group: float(np.round(rng.uniform(1, 10), 1)) for group in table.groups}
    split = Split(table, train, test[:MOST_OTHERS], table.costs or drawn)
    budgets = [share * split.costs.total(range(len(split.names))) for share in SHARES]
    found = ours(split, budgets)
    for name, choose in (*PEERS.items(), ("penalties", penalised)):
        if name in ("bcselector", *without):
            continue
        chosen: Any = choose(split)
        sets = chosen if name == "penalties" else [chosen[:k] for k in range(len(chosen) + 1)]
        points, _ = split.points(sets)
        within = [[p for p in points if p[0] <= budget] for budget in budgets]
        found[name] = [max(own, key=lambda p: p[1])[2] for own in within]
    return found | {"AACO": aaco(split, budgets)}


def show(name: str, splits: Sequence[Mapping[str, list[float]]]) -> None:
    """Print a line for each budget: means over splits, and what rows gain on one model and AACO."""
    for place, share in enumerate(SHARES):
        values = {way: np.array([own[way][place] for own in splits]) for way in splits[0]}
        cells = [f"{own.mean():.3f}" for own in values.values()]
        for other in ("ours, one model", "AACO"):
            more = values["ours, row by row"] - values[other]
            error = more.std(ddof=1) / np.sqrt(len(more)) if len(more) > 1 else np.nan
            cells.append(f"{more.mean():+.3f} ± {error:.3f}")
        line([f"{name}, {share:.0%}", *cells])


def line(cells: Sequence[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--most", type=int, default=1500, help="rows of a table")
    parser.add_argument("--only", nargs="*", default=TABLES)
    parser.add_argument("--without", nargs="*", default=(), help="orders to leave out")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for number, name in enumerate(args.only):
        table = table_of(args.folder, name, args.most)
        splits = [one_split(table, seed, args.without) for seed in range(args.splits)]
        if not number:
            head = ["data, budget", *splits[0], "rows less one model", "rows less AACO"]
            line(head)
            line(["---"] * len(head))
        show(name, splits)


if __name__ == "__main__":
    main()
