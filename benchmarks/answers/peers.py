"""Other ways to order groups, and what each way is worth on other rows at equal cost.

The area under the curve of what predictions on other rows are worth (R² of numbers, AUROC of two
classes) against what they cost, up to the cost of all groups, and against the logarithm of it from
the cheapest group on, where every doubling counts the same. A peer chooses an order of the groups;
at each budget it has the best of its affordable prefixes by the same number of folds of the
training rows, each with the better of ridge or logistic regression and LightGBM with the same
parameters as ours. LightGBM's own penalty for features gives a set for each of twelve trade-offs;
bcselector, where it is installed, orders columns by their joint mutual information per cost.

Heart, breast cancer and Beijing have the costs of ``jobs/``; for other tables each split draws
prices between 1 and 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks import heart_data
from distfms import GroupSequenceClassifier, GroupSequencer
from distfms.methods.sequence.options import SharedCostSection, resolve_costs
from distfms.solve.costs import GroupCosts
from distfms.spec import read_yaml

WINE = ("wine_red", "wine_white")
TREES = {"num_iterations": 200, "learning_rate": 0.05, "num_leaves": 15}
OURS: Mapping[str, Mapping[str, Any]] = {"by default": {"model": "auto", "lightgbm": TREES}}
FOLDS = 3


@dataclass(frozen=True)
class Table:
    """Rows, and what the groups of their columns cost."""

    X: pd.DataFrame
    y: np.ndarray
    groups: Mapping[str, Sequence[str]]
    costs: Mapping[str, float] | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    classes: bool = False


def read(folder: Path, name: str, most: int) -> Table:
    """Return a table, of at most so many rows."""
    jobs = Path(__file__).parents[2] / "jobs"
    if name == "heart":
        frame = heart_data.read_patients(folder / "heart").to_pandas()
        costs, shared = heart_data.read_prices(folder / "heart")
        X = frame[list(heart_data.TESTS)]
        return Table(X, frame["disease"].to_numpy(), {c: [c] for c in X}, costs, shared, True)
    if name == "breast_cancer":
        data = load_breast_cancer(as_frame=True)
        X = data.data.rename(columns=lambda c: c.replace(" ", "_"))
        kinds = sorted({c.removeprefix("mean_") for c in X if c.startswith("mean_")})
        groups = {k: [f"mean_{k}", f"{k}_error", f"worst_{k}"] for k in kinds}
        own = section(jobs / "sequence-breast-cancer.yaml")
        costs = {k: own["costs"].get(k, own["costs"]["default"]) for k in kinds}
        return Table(X, data.target.to_numpy(), groups, costs, own["shared_costs"], True)
    kind = "ordinal" if name in WINE else "regression"
    frame = pd.read_parquet(folder / kind / f"{name}.parquet")
    target = {"beijing_air": "PM2.5", "bodyfat": "class"}.get(name, frame.columns[-1])
    frame = frame[frame[target].notna()].drop(columns=["No", "Density"], errors="ignore")
    frame = frame.sample(min(most, len(frame)), random_state=0, ignore_index=True)
    y, X = frame.pop(target).to_numpy(float), frame
    if name != "beijing_air":
        return Table(X, y, {c: [c] for c in X})
    own = section(jobs / "sequence-beijing.yaml")
    clock = own["groups"]["clock"]
    groups = {"clock": clock, **{c: [c] for c in X if c not in clock}}
    costs = {g: own["costs"].get(g, own["costs"]["default"]) for g in groups}
    return Table(X, y, groups, costs, own["shared_costs"])


def section(path: Path) -> Any:
    """Return the section ``sequence`` of a job."""
    return read_yaml(path)["sequence"]


# --- models of the peers --------------------------------------------------------------------------


@dataclass
class Split:
    """Training and other rows, and what sets of groups are worth on both."""

    table: Table
    train: np.ndarray
    test: np.ndarray
    prices: Mapping[str, float]
    seen: dict[Any, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X, items = self.table.X, self.table.shared.items()
        self.names = list(self.table.groups)
        shared = {name: SharedCostSection(**item) for name, item in items}
        self.costs = resolve_costs(self.names, self.prices, shared=shared)
        self.texts = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
        self.codes = X.assign(**{c: pd.Categorical(X[c]) for c in self.texts})
        own = KFold(FOLDS, shuffle=True, random_state=0).split(self.train)
        self.folds = [(self.train[a], self.train[b]) for a, b in own]

    def columns(self, groups: Iterable[int]) -> list[str]:
        return [c for g in sorted(groups) for c in self.table.groups[self.names[g]]]

    def trees(self, **more: Any) -> Any:
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMClassifier if self.table.classes else LGBMRegressor
        own = {"n_estimators" if k == "num_iterations" else k: v for k, v in TREES.items()}
        return kind(**own, n_jobs=1, verbose=-1, random_state=0, **more)

    def linear(self, columns: list[str]) -> Any:
        texts = [c for c in columns if c in self.texts]
        numbers = [c for c in columns if c not in texts]
        inputs = make_column_transformer(
            (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
            (OneHotEncoder(handle_unknown="ignore"), texts),
        )
        last = LogisticRegression(max_iter=1000) if self.table.classes else None
        return make_pipeline(inputs, last or RidgeCV(np.logspace(-3, 4, 15)))

    def score(self, model: Any, columns: list[str], fit: np.ndarray, other: np.ndarray) -> float:
        """Return R² or AUROC on other rows."""
        if not columns:
            return 0.5 if self.table.classes else 0.0
        model.fit(self.codes[columns].iloc[fit], self.table.y[fit])
        return worth(self.table, model, self.codes[columns].iloc[other], other)

    def on_folds(self, kind: str, groups: Iterable[int]) -> float:
        """Return the mean over folds, and keep it."""
        key = (kind, frozenset(groups))
        if key not in self.seen:
            start, columns = time.process_time(), self.columns(key[1])
            found = [
                self.score(self.linear(columns) if kind == "linear" else self.trees(), columns, *f)
                for f in self.folds
            ]
            self.seen[key] = float(np.mean(found)), time.process_time() - start
        return self.seen[key][0]

    def points(self, sets: Iterable[Sequence[int]]) -> tuple[list[Any], float]:
        """Return cost, value on folds and on other rows of each set, and the seconds."""
        found, spent = [], 0.0
        for own in {frozenset(s): s for s in sets}:
            kinds = ("linear", "trees") if own else ("trees",)
            values = {kind: self.on_folds(kind, own) for kind in kinds}
            kind = max(values, key=lambda k: values[k])
            start, columns = time.process_time(), self.columns(own)
            model = self.linear(columns) if kind == "linear" else self.trees()
            held = self.score(model, columns, self.train, self.test)
            spent += time.process_time() - start + sum(self.seen[k, own][1] for k in kinds)
            found.append((self.costs.total(sorted(own)), values[kind], held))
        return found, spent


def worth(table: Table, model: Any, X: pd.DataFrame, rows: np.ndarray, **budget: float) -> float:
    """Return R² or AUROC of predictions for rows."""
    if table.classes:
        shares = np.asarray(model.predict_proba(X, **budget))
        return float(roc_auc_score(table.y[rows], shares[:, 1]))
    return float(r2_score(table.y[rows], np.asarray(model.predict(X, **budget))))


# --- orders ---------------------------------------------------------------------------------------


def per_cost(split: Split, values: np.ndarray) -> list[int]:
    """Return groups by value per cost, which falls where others share it."""
    values, order = np.maximum(values, 1e-9 * max(values.max(), 1e-9)), list[int]()
    while len(order) < len(values):
        ratio = values / split.costs.marginal(order)
        ratio[order] = -np.inf
        order.append(int(ratio.argmax()))
    return order


def by_information(split: Split) -> list[int]:
    """Order by the largest mutual information of a column of the group, per cost."""
    X = split.codes.iloc[split.train].copy()
    for column in split.texts:
        X[column] = X[column].cat.codes
    filled = X.fillna(X.median())
    measure = mutual_info_classif if split.table.classes else mutual_info_regression
    coded = [c in split.texts for c in X]
    found = measure(filled, split.table.y[split.train], discrete_features=coded, random_state=0)
    known = dict(zip(X, found, strict=True))
    groups = split.table.groups.values()
    return per_cost(split, np.array([max(known[c] for c in own) for own in groups]))


def by_permutation(split: Split) -> list[int]:
    """Order by what LightGBM loses where a group's values change rows, per cost."""
    fit, other = split.folds[0]
    columns = split.columns(range(len(split.names)))
    model, rng = split.trees(), np.random.default_rng(0)
    full = split.score(model, columns, fit, other)
    lost = []
    for own in split.table.groups.values():
        values = []
        for _ in range(5):
            X = split.codes[columns].iloc[other].reset_index(drop=True)
            moved = X[list(own)].iloc[rng.permutation(len(other))].reset_index(drop=True)
            X[list(own)] = moved
            values.append(full - worth(split.table, model, X, other))
        lost.append(np.mean(values))
    return per_cost(split, np.array(lost))


def by_search(split: Split) -> list[int]:
    """Order by what a group adds to LightGBM on the folds, per cost."""
    order: list[int] = []
    while len(order) < len(split.names):
        rest = [g for g in range(len(split.names)) if g not in order]
        now, prices = split.on_folds("trees", order), split.costs.marginal(order)
        gains = np.array([split.on_folds("trees", [*order, g]) - now for g in rest])
        ratios = np.where(gains > 0, gains / prices[rest], gains * prices[rest])
        order.append(rest[int(ratios.argmax())])
    return order


def by_bcselector(split: Split) -> list[int]:
    """Order by the joint mutual information of columns in ten bins, per cost of their groups."""
    from bcselector.variable_selection import FractionVariableSelector

    columns = split.columns(range(len(split.names)))
    X = split.codes[columns].iloc[split.train]
    bins = [
        X[c].cat.codes if c in split.texts else pd.qcut(X[c], 10, labels=False, duplicates="drop")
        for c in columns
    ]
    binned = np.column_stack([np.nan_to_num(np.asarray(b, float), nan=-1) for b in bins])
    y = split.table.y[split.train]
    if not split.table.classes:
        y = pd.qcut(y, 10, labels=False, duplicates="drop")
    owner = [g for g, own in enumerate(split.table.groups.values()) for _ in own]
    prices = [float(split.costs.alone[g]) for g in owner]
    selector = FractionVariableSelector()
    selector.fit(binned.astype(int), np.asarray(y), prices, r=1, j_criterion_func="jmi")
    return list(dict.fromkeys(owner[c] for c in selector.variables_selected_order))


def penalised(split: Split) -> list[list[int]]:
    """Return the groups that LightGBM uses where features cost, for twelve trade-offs."""
    columns = split.columns(range(len(split.names)))
    owner = [g for g, own in enumerate(split.table.groups.values()) for _ in own]
    prices, found = [float(split.costs.alone[g]) for g in owner], [[]]
    scale = len(split.train) * (1.0 if split.table.classes else split.table.y.var())
    for factor in np.geomspace(1e-5, 0.3, 12):
        model = split.trees(
            cegb_tradeoff=factor * scale / max(prices), cegb_penalty_feature_coupled=prices
        )
        rows = split.train
        model.fit(split.codes[columns].iloc[rows], split.table.y[rows])
        used = np.flatnonzero(model.feature_importances_)
        found.append(sorted({owner[c] for c in used}))
    return found


def by_price(split: Split) -> list[int]:
    """Order by cost alone, the cheapest first."""
    return per_cost(split, np.ones(len(split.names)))


PEERS: Mapping[str, Callable[[Split], list[int]]] = {
    "cheapest first": by_price,
    "mutual information": by_information,
    "permutation": by_permutation,
    "forward search": by_search,
    "bcselector": by_bcselector,
}


# --- curves ---------------------------------------------------------------------------------------


def best_so_far(points: Iterable[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Keep the points that are best on folds at their cost, by cost."""
    found: list[tuple[float, float, float]] = []
    for point in sorted(points, key=lambda p: (p[0], -p[1])):
        if not found or point[1] > found[-1][1]:
            found.append(point)
    return found


def areas(points: Sequence[tuple[float, ...]], which: int, costs: GroupCosts) -> np.ndarray:
    """Return the areas against cost and its logarithm, as means of the curve."""
    total = costs.total(range(len(costs.own)))
    at = np.array([p[0] for p in points])
    values = np.array([p[which] for p in points])
    ends = np.append(at[1:], total)
    low = float(costs.alone.min())
    logs = np.log(np.maximum(ends, low)) - np.log(np.maximum(at, low))
    return np.array([(ends - at) @ values / total, logs @ values / np.log(total / low)])


def ours(split: Split, more: Mapping[str, Any]) -> tuple[list[tuple[float, ...]], float]:
    """Fit an estimator; return cost, value on folds and on other rows, and the seconds."""
    table = split.table
    kind = GroupSequenceClassifier if table.classes else GroupSequencer
    start = time.process_time()
    groups = {name: list(own) for name, own in table.groups.items()}
    model = kind(
        groups, dict(split.prices), dict(table.shared),
        budgets="auto", missing="mean", n_jobs=1, **{"folds": FOLDS, **more},
    ).fit(table.X.iloc[split.train], table.y[split.train])  # fmt: skip
    spent, X = time.process_time() - start, table.X.iloc[split.test]
    found = model.predictor_
    points = [(0.0, 0.0, 0.5 if table.classes else 0.0)]
    for cost in np.unique([*found.spent, *found.set_spent]):
        value = float(found.values[found.best(cost)])
        points.append((cost, value, worth(table, model, X, split.test, budget=float(cost))))
    return points, spent


def one_split(
    table: Table, seed: int, own: Mapping[str, Mapping[str, Any]] = OURS
) -> dict[str, tuple[np.ndarray, float]]:
    """Return areas and processor seconds of each way; `own` are options of ours by name."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.y))
    train, test = np.split(order, [int(0.6 * len(order))])
    drawn = {group: float(np.round(rng.uniform(1, 10), 1)) for group in table.groups}
    split = Split(table, train, test, table.costs or drawn)
    found = dict[str, tuple[np.ndarray, float]]()
    for name, more in own.items():
        points, spent = ours(split, more)
        found[f"ours, {name}"] = areas(points, 2, split.costs), spent
    for name, choose in (*PEERS.items(), ("penalties", penalised)):
        start = time.process_time()
        try:
            chosen: Any = choose(split)
        except ImportError:
            continue
        spent = time.process_time() - start
        sets = chosen if name == "penalties" else [chosen[:k] for k in range(len(chosen) + 1)]
        points, more_spent = split.points(sets)
        found[name] = areas(best_so_far(points), 2, split.costs), spent + more_spent
    return found
