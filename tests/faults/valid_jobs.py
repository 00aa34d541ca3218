"""Jobs made at random, of data and specs that fit each other, for all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Chance = np.random.Generator


@dataclass(frozen=True)
class MadeJob:
    """Sections of a spec, and the columns of its data."""

    method: str
    options: Mapping[str, Any]
    data: Mapping[str, Any]
    columns: Mapping[str, Any]
    seed: int

    def spec(self, data: Path, output: Path, **engine: Any) -> dict[str, Any]:
        """Write the data unless they are there, and return the spec."""
        if not data.exists():
            data.mkdir(parents=True)
            table = pa.table(dict(self.columns))
            half = table.num_rows // 2
            for number, part in enumerate((table.slice(0, half), table.slice(half))):
                pq.write_table(part, data / f"part-{number}.parquet", row_group_size=17)
        return {
            "name": "made",
            "method": self.method,
            "seed": self.seed,
            "data": {"path": str(data), **self.data},
            self.method: dict(self.options),
            "engine": engine,
            "output": str(output),
        }


def made_job(seed: int) -> MadeJob:
    """Make a job; every method in its turn."""
    chance = np.random.default_rng(seed)
    method, make = list(_METHODS.items())[seed % len(_METHODS)]
    n = int(chance.integers(60, 140))
    d = int(chance.integers(3, 7))
    X = chance.normal(size=(n, d)) * 10.0 ** chance.integers(-2, 4, size=d)
    score = (X / X.std(axis=0)) @ chance.normal(size=d) + 0.3 * chance.normal(size=n)
    section = {"folds": _one(chance, 0, 3), "test": _one(chance, 0.0, 0.25)}
    return MadeJob(method, *make(chance, X, score, section), seed)


def _one(chance: Chance, *values: Any) -> Any:
    return values[int(chance.integers(len(values)))]


def _some(chance: Chance, **values: Any) -> dict[str, Any]:
    """Give some of these options."""
    return {name: value for name, value in values.items() if chance.random() < 0.5}


def _multiselect(chance: Chance, X: np.ndarray, score: np.ndarray, section: dict[str, Any]) -> Any:
    # A refit wants objects with all that is bought.
    model, least = _one(chance, ("projected", 1), ("refit", 20))
    columns: dict[str, Any] = {
        f"x{j}": [
            (x + chance.normal(size=int(chance.integers(least, 24))) * scale).tolist() for x in row
        ]
        for j, (row, scale) in enumerate(zip(X.T, X.std(axis=0), strict=True))
    }
    options = {"budget": _one(chance, 2, 5, 9.5), "model": model, "baselines": []}
    options |= _some(
        chance,
        algorithm=_one(chance, "full", "scoring"),
        criterion=_one(chance, "best", "gain", "gain_per_cost"),
        costs={"x0": 2, "default": 0.5},
        ridge=0.01,
        psd=_one(chance, "nearest", "none"),
        plan=True,
    )
    return options, {"target": "y", **section}, {**columns, "y": score}


def _sequence(chance: Chance, X: np.ndarray, score: np.ndarray, section: dict[str, Any]) -> Any:
    family = _one(chance, "gaussian", "gaussian", "logistic", "softmax", "poisson")
    labels = {
        "gaussian": score,
        "logistic": np.where(score > np.median(score), "yes", "no"),
        "softmax": np.digitize(score, np.quantile(score, [0.3, 0.6])),
        "poisson": chance.poisson(np.exp(np.clip(score / score.std(), -2, 2))),
    }
    columns: dict[str, Any] = {f"x{j}": column for j, column in enumerate(X.T)}
    if chance.random() < 0.5:
        columns["city"] = chance.choice(["Bonn", "Kiel", "Ulm"], size=len(X)).tolist()
    if chance.random() < 0.5:
        columns["x1"] = np.where(chance.random(len(X)) < 0.1, np.nan, columns["x1"])
        section["missing"] = "mean"
    options = {"family": family, "baselines": []}
    options |= _some(
        chance,
        groups={"both": ["x0", "x1"]},
        costs={"x2": 3, "default": 1.5},
        cost_aware=False,
        ridge=0.1,
        **_one(chance, {"budget": 4}, {"max_groups": 2}, {"doubling": True}),
    )
    if family == "gaussian":
        options |= _some(chance, criterion=_one(chance, "fr", "omp", "omp-single"))
    elif family != "poisson":
        options |= _some(chance, class_weights="balanced")
    return options, {"target": "y", **section}, {**columns, "y": labels[family]}


def _landmarks(chance: Chance, X: np.ndarray, score: np.ndarray, section: dict[str, Any]) -> Any:
    task = _one(chance, "regression", "sparse", "ordinal", "classification", "ranking")
    level = np.digitize(score, np.quantile(score, [0.4, 0.75]))
    columns: dict[str, Any] = {f"x{j}": column for j, column in enumerate(X.T)}
    columns["y"] = score if task in ("regression", "sparse") else level
    section["target"] = "y"
    if task == "ranking":
        columns["q"] = np.sort(chance.integers(0, 12, size=len(X)))
        section["query"] = "q"
    simple = _one(chance, "manhattan", "euclidean", "linear", "sigmoid")
    similarity: Any = _one(chance, simple, {"name": "gaussian", "sigma": 2.0})
    if section["folds"]:
        similarity = _one(chance, similarity, [simple, "gaussian"])
    options = {"task": task, "similarity": similarity, "landmarks": int(chance.integers(4, 15))}
    options |= _some(chance, scaling=_one(chance, "standard", "unit"), ridge=1e-3, keep=3)
    if task == "regression":
        options |= _some(chance, loss="epsilon_insensitive")
    if task == "classification":
        options |= _some(chance, loss="hinge")
    return options, section, columns


def _attribute_efficient(
    chance: Chance, X: np.ndarray, score: np.ndarray, section: dict[str, Any]
) -> Any:
    options = {
        "attributes_per_example": int(chance.integers(2, X.shape[1] + 1)),
        "penalty": _one(chance, "ridge", "lasso"),
        "draws": _one(chance, "uniform", "moments", "two_phase"),
        "repeats": _one(chance, 0, 1),
    }
    options |= _some(chance, inner_product="base")
    columns = {f"x{j}": column for j, column in enumerate(X.T)}
    return options, {"target": "y", **section}, {**columns, "y": score}


_METHODS: Mapping[str, Callable[..., Any]] = {
    "multiselect": _multiselect,
    "sequence": _sequence,
    "landmarks": _landmarks,
    "attribute_efficient": _attribute_efficient,
}
