"""Other ways to order groups, and what each way is worth on other rows at equal cost.

The area under the curve of what predictions on other rows are worth (R² of numbers, AUROC of two
classes) against what they cost, up to the cost of all groups. A peer chooses an order of the
groups; at each budget it has the best of its affordable prefixes by the same number of folds of the
training rows, each with the better of ridge or logistic regression and LightGBM with the same
parameters as ours. LightGBM's own penalty for features gives a set for each of twelve trade-offs.

Heart, breast cancer and Beijing have the costs of ``jobs/``; for other tables each split draws
prices between 1 and 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
from distfms.spec import read_yaml

JOBS = Path(__file__).parents[2] / "jobs"
WINE = ("wine_red", "wine_white")
TARGETS = {"beijing_air": "PM2.5", "bodyfat": "class"}
TREES = {"num_iterations": 200, "learning_rate": 0.05, "num_leaves": 15}
#: The same in the words of LightGBM's estimators.
TREES_OF_PEERS = {"n_estimators": 200, "learning_rate": 0.05, "num_leaves": 15}
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

    @classmethod
    def of_columns(cls, X: pd.DataFrame, y: np.ndarray, **more: Any) -> Table:
        """Return a table each of whose columns is a group."""
        return cls(X, y, {name: [name] for name in X}, **more)

    @property
    def worth_of_nothing(self) -> float:
        """What a constant is worth."""
        return 0.5 if self.classes else 0.0


def read(folder: Path, name: str, most: int) -> Table:
    """Return a table, of at most so many rows."""
    if name == "heart":
        return _heart(folder / "heart")
    if name == "breast_cancer":
        return _breast_cancer()
    kind = "ordinal" if name in WINE else "regression"
    frame = pd.read_parquet(folder / kind / f"{name}.parquet")
    target = TARGETS.get(name, frame.columns[-1])
    frame = frame[frame[target].notna()].drop(columns=["No", "Density"], errors="ignore")
    frame = frame.sample(min(most, len(frame)), random_state=0, ignore_index=True)
    y = frame.pop(target).to_numpy(float)
    return _beijing(frame, y) if name == "beijing_air" else Table.of_columns(frame, y)


def _heart(folder: Path) -> Table:
    frame = heart_data.read_patients(folder).to_pandas()
    costs, shared = heart_data.read_prices(folder)
    X = frame[list(heart_data.TESTS)]
    y = frame["disease"].to_numpy()
    return Table.of_columns(X, y, costs=costs, shared=shared, classes=True)


def _breast_cancer() -> Table:
    data = load_breast_cancer(as_frame=True)
    X = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    measures = sorted(name.removeprefix("mean_") for name in X if name.startswith("mean_"))
    groups = {}
    for measure in measures:
        groups[measure] = [f"mean_{measure}", f"{measure}_error", f"worst_{measure}"]
    section = section_of("sequence-breast-cancer")
    costs = costs_of(groups, section)
    return Table(X, data.target.to_numpy(), groups, costs, section["shared_costs"], classes=True)


def _beijing(X: pd.DataFrame, y: np.ndarray) -> Table:
    section = section_of("sequence-beijing")
    clock = section["groups"]["clock"]
    groups = {"clock": clock}
    for name in X:
        if name not in clock:
            groups[name] = [name]
    return Table(X, y, groups, costs_of(groups, section), section["shared_costs"])


def section_of(job: str) -> Any:
    """Return the section ``sequence`` of a job."""
    return read_yaml(JOBS / f"{job}.yaml")["sequence"]


def costs_of(groups: Iterable[str], section: Any) -> dict[str, float]:
    """Return the costs of groups that a section has."""
    costs = section["costs"]
    return {group: costs.get(group, costs["default"]) for group in groups}


# --- models of the peers --------------------------------------------------------------------------


class Point(NamedTuple):
    """A set of groups: its cost, and what it is worth on folds and on other rows."""

    cost: float
    on_folds: float
    on_others: float


@dataclass
class Split:
    """Training and other rows, and what sets of groups are worth on both."""

    table: Table
    train: np.ndarray
    test: np.ndarray
    prices: Mapping[str, float]
    seen: dict[Any, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        X = self.table.X
        self.names = list(self.table.groups)
        shared = {name: SharedCostSection(**item) for name, item in self.table.shared.items()}
        self.costs = resolve_costs(self.names, self.prices, shared=shared)
        self.texts = [name for name in X if not pd.api.types.is_numeric_dtype(X[name])]
        self.codes = X.assign(**{name: pd.Categorical(X[name]) for name in self.texts})
        folds = KFold(FOLDS, shuffle=True, random_state=0).split(self.train)
        self.folds = [(self.train[fit], self.train[other]) for fit, other in folds]

    @property
    def everything(self) -> list[str]:
        """All columns, group by group."""
        return self.columns(range(len(self.names)))

    def columns(self, groups: Iterable[int]) -> list[str]:
        """Return the columns of groups."""
        columns: list[str] = []
        for group in sorted(groups):
            columns += self.table.groups[self.names[group]]
        return columns

    def trees(self, **more: Any) -> Any:
        """Return LightGBM, not fitted."""
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMClassifier if self.table.classes else LGBMRegressor
        return kind(**TREES_OF_PEERS, n_jobs=1, verbose=-1, random_state=0, **more)

    def linear(self, columns: Sequence[str]) -> Any:
        """Return a linear model, not fitted."""
        texts = [name for name in columns if name in self.texts]
        numbers = [name for name in columns if name not in texts]
        inputs = make_column_transformer(
            (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), numbers),
            (OneHotEncoder(handle_unknown="ignore"), texts),
        )
        if self.table.classes:
            return make_pipeline(inputs, LogisticRegression(max_iter=1000))
        return make_pipeline(inputs, RidgeCV(np.logspace(-3, 4, 15)))

    def score(self, kind: str, columns: Sequence[str], fit: np.ndarray, other: np.ndarray) -> float:
        """Return R² or AUROC on other rows."""
        if not columns:
            return self.table.worth_of_nothing
        model = self.linear(columns) if kind == "linear" else self.trees()
        model.fit(self.codes[columns].iloc[fit], self.table.y[fit])
        return worth(self.table, model, self.codes[columns].iloc[other], other)

    def on_folds(self, kind: str, groups: Iterable[int]) -> float:
        """Return the mean over folds, and keep it with its seconds."""
        key = (kind, frozenset(groups))
        if key not in self.seen:
            start = time.process_time()
            columns = self.columns(key[1])
            scores = [self.score(kind, columns, *fold) for fold in self.folds]
            self.seen[key] = float(np.mean(scores)), time.process_time() - start
        return self.seen[key][0]

    def points(self, sets: Iterable[Sequence[int]]) -> tuple[list[Point], float]:
        """Return the point of each set, and the seconds."""
        points = []
        spent = 0.0
        for groups in dict.fromkeys(map(frozenset, sets)):
            kinds = ("linear", "trees") if groups else ("trees",)
            on_folds = {kind: self.on_folds(kind, groups) for kind in kinds}
            best = max(on_folds, key=lambda kind: on_folds[kind])
            start = time.process_time()
            on_others = self.score(best, self.columns(groups), self.train, self.test)
            spent += time.process_time() - start
            spent += sum(self.seen[kind, groups][1] for kind in kinds)
            points.append(Point(self.costs.total(sorted(groups)), on_folds[best], on_others))
        return points, spent


def worth(table: Table, model: Any, X: pd.DataFrame, rows: np.ndarray, **budget: float) -> float:
    """Return R² or AUROC of predictions for rows."""
    if table.classes:
        shares = np.asarray(model.predict_proba(X, **budget))
        return float(roc_auc_score(table.y[rows], shares[:, 1]))
    return float(r2_score(table.y[rows], np.asarray(model.predict(X, **budget))))


# --- orders ---------------------------------------------------------------------------------------


def per_cost(split: Split, values: np.ndarray) -> list[int]:
    """Return groups by value per cost, which falls where others share it."""
    values = np.maximum(values, 1e-9 * max(values.max(), 1e-9))
    order: list[int] = []
    while len(order) < len(values):
        ratios = values / split.costs.marginal(order)
        ratios[order] = -np.inf
        order.append(int(ratios.argmax()))
    return order


def by_information(split: Split) -> list[int]:
    """Order by the largest mutual information of a column of the group, per cost."""
    X = split.codes.iloc[split.train].copy()
    for name in split.texts:
        X[name] = X[name].cat.codes
    X = X.fillna(X.median())
    measure = mutual_info_classif if split.table.classes else mutual_info_regression
    are_codes = [name in split.texts for name in X]
    y = split.table.y[split.train]
    information = measure(X, y, discrete_features=are_codes, random_state=0)
    by_column = pd.Series(information, X.columns)
    groups = split.table.groups.values()
    return per_cost(split, np.array([by_column[list(names)].max() for names in groups]))


def by_permutation(split: Split) -> list[int]:
    """Order by what LightGBM loses where a group's values change rows, per cost."""
    fit, other = split.folds[0]
    columns = split.everything
    rng = np.random.default_rng(0)
    model = split.trees().fit(split.codes[columns].iloc[fit], split.table.y[fit])
    X = split.codes[columns].iloc[other].reset_index(drop=True)
    full = worth(split.table, model, X, other)
    losses = []
    for names in split.table.groups.values():
        values = []
        for _ in range(5):
            moved = X.copy()
            shuffled = X[list(names)].iloc[rng.permutation(len(other))]
            moved[list(names)] = shuffled.reset_index(drop=True)
            values.append(full - worth(split.table, model, moved, other))
        losses.append(np.mean(values))
    return per_cost(split, np.array(losses))


def by_search(split: Split) -> list[int]:
    """Order by what a group adds to LightGBM on the folds, per cost."""
    order: list[int] = []
    rest = list(range(len(split.names)))
    while rest:
        before = split.on_folds("trees", order)
        prices = split.costs.marginal(order)[rest]
        gains = np.array([split.on_folds("trees", [*order, group]) - before for group in rest])
        ratios = np.where(gains > 0, gains / prices, gains * prices)
        order.append(rest.pop(int(ratios.argmax())))
    return order


def penalised(split: Split) -> list[list[int]]:
    """Return the groups that LightGBM uses where features cost, for twelve trade-offs."""
    columns = split.everything
    owners: list[int] = []
    for group, names in enumerate(split.table.groups.values()):
        owners += [group] * len(names)
    prices = [float(split.costs.alone[group]) for group in owners]
    y = split.table.y[split.train]
    scale = len(y) * (1.0 if split.table.classes else split.table.y.var())
    sets: list[list[int]] = [[]]
    for factor in np.geomspace(1e-5, 0.3, 12):
        trade_off = factor * scale / max(prices)
        model = split.trees(cegb_tradeoff=trade_off, cegb_penalty_feature_coupled=prices)
        model.fit(split.codes[columns].iloc[split.train], y)
        used = np.flatnonzero(model.feature_importances_)
        sets.append(sorted({owners[column] for column in used}))
    return sets


def by_price(split: Split) -> list[int]:
    """Order by cost alone, the cheapest first."""
    return per_cost(split, np.ones(len(split.names)))


def prefixes_of(order: Callable[[Split], list[int]]) -> Callable[[Split], list[list[int]]]:
    """Return what gives the prefixes of an order."""

    def prefixes(split: Split) -> list[list[int]]:
        groups = order(split)
        return [groups[:size] for size in range(len(groups) + 1)]

    return prefixes


#: What gives the sets that a way has to offer.
PEERS: Mapping[str, Callable[[Split], list[list[int]]]] = {
    "cheapest first": prefixes_of(by_price),
    "mutual information": prefixes_of(by_information),
    "permutation": prefixes_of(by_permutation),
    "forward search": prefixes_of(by_search),
    "penalties": penalised,
}


# --- curves ---------------------------------------------------------------------------------------


def best_so_far(points: Iterable[Point]) -> list[Point]:
    """Keep the points that are best on folds at their cost, by cost."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.on_folds)):
        if not best or point.on_folds > best[-1].on_folds:
            best.append(point)
    return best


def area(points: Sequence[Point], total: float) -> float:
    """Return the area against cost, as the mean of the curve."""
    costs = np.array([point.cost for point in points])
    values = np.array([point.on_others for point in points])
    ends = np.append(costs[1:], total)
    return float((ends - costs) @ values / total)


def ours(split: Split, options: Mapping[str, Any]) -> tuple[list[Point], float]:
    """Fit an estimator; return its points, and the seconds."""
    table = split.table
    kind = GroupSequenceClassifier if table.classes else GroupSequencer
    groups = {name: list(names) for name, names in table.groups.items()}
    options = {"lightgbm": TREES, "budgets": "auto", "missing": "mean", "n_jobs": 1, **options}
    start = time.process_time()
    model = kind(groups, dict(split.prices), dict(table.shared), **options)
    model.fit(table.X.iloc[split.train], table.y[split.train])
    spent = time.process_time() - start
    X = table.X.iloc[split.test]
    predictor = model.predictor_
    points = [Point(0.0, 0.0, table.worth_of_nothing)]
    for cost in np.unique([*predictor.spent, *predictor.set_spent]).tolist():
        on_folds = float(predictor.values[predictor.best(cost)])
        points.append(Point(cost, on_folds, worth(table, model, X, split.test, budget=cost)))
    return points, spent


def one_split(
    table: Table, seed: int, options: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """Return the area and the processor seconds of each way."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table.y))
    train, test = np.split(order, [int(0.6 * len(order))])
    drawn = {group: float(np.round(rng.uniform(1, 10), 1)) for group in table.groups}
    split = Split(table, train, test, table.costs or drawn)
    total = split.costs.total(range(len(split.names)))
    points, spent = ours(split, options)
    areas = {"ours": (area(points, total), spent)}
    for name, choose in PEERS.items():
        start = time.process_time()
        sets = choose(split)
        spent = time.process_time() - start
        points, more_spent = split.points(sets)
        areas[name] = area(best_so_far(points), total), spent + more_spent
    return areas
