"""A third method, complete: the columns most correlated with the target, until a budget is spent.

It stands for what a method has to bring; everything else is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from distfms.data.partition import Dataset
from distfms.estimators.base import JobRegressor
from distfms.linalg import symmetric_pinv
from distfms.methods.contract import Chosen, Content, Context, FinishedRun, Method
from distfms.methods.row_job import RowJob
from distfms.methods.row_predictor import RowPredictor, plan_of_model, sources_of
from distfms.methods.statistics_job import Procedure, Solved
from distfms.report.page import Section, Table
from distfms.spec import Section as Options
from distfms.stats.comoments import CoMoments


class CorrelationOptions(Options):
    """How many columns may be bought, and how the model on them is fitted."""

    budget: int = Field(gt=0)
    """Columns to take at most."""
    ridge: float = Field(default=0.0, ge=0.0)
    """Added to the variances."""


@dataclass(frozen=True)
class Largest:
    name: str = "largest"


@dataclass(frozen=True, eq=False)
class Path:
    order: np.ndarray
    weights: np.ndarray
    """(n_steps + 1, d): those of every prefix."""


@dataclass(frozen=True, eq=False)
class CorrelationProcedure(Procedure):
    names: tuple[str, ...]
    budget: int
    ridge: float
    rules: tuple[Largest, ...] = (Largest(),)

    def size(self, members: Mapping[str, Any]) -> tuple[int, float]:
        return members["moments"].n_samples, members["moments"].weight

    def problem(self, train: Mapping[str, Any]) -> CoMoments:
        return train["moments"]

    def search(self, problem: CoMoments, rule: Largest) -> Path:
        covariance = problem.covariance(pairwise=False)
        deviation = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
        correlation = np.abs(covariance[:-1, -1] / deviation[:-1])
        order = np.argsort(-correlation, kind="stable")[: self.budget]
        weights = np.zeros((len(order) + 1, len(correlation)))
        for n in range(1, len(order) + 1):
            own = order[:n]
            gram = covariance[np.ix_(own, own)] + self.ridge * np.eye(n)
            weights[n, own] = symmetric_pinv(gram) @ covariance[own, -1]
        return Path(order, weights)

    def grid(self, path: Path) -> np.ndarray:
        return np.arange(len(path.order) + 1.0)

    def score(
        self, problem: CoMoments, path: Path, held_out: Mapping[str, Any], budgets: np.ndarray
    ) -> dict[str, np.ndarray]:
        moments = held_out["moments"]
        covariance, shift = moments.covariance(pairwise=False), moments.mean - problem.mean
        second = covariance + np.outer(shift, shift)
        ends = np.minimum(budgets.astype(int), len(path.order))
        contrast = np.hstack([-path.weights[ends], np.ones((len(ends), 1))])
        return {"mse": np.einsum("ni,ij,nj->n", contrast, second, contrast)}

    def store(self, problem: CoMoments, paths: Mapping[str, Path]) -> dict[str, np.ndarray]:
        return {"order": paths["largest"].order, "weights": paths["largest"].weights}

    def restore(self, whole: Any, arrays: Mapping[str, np.ndarray]) -> Any:
        return self.problem_on(whole), {"largest": Path(arrays["order"], arrays["weights"])}


class CorrelationJob(RowJob):
    name = "correlation"
    nested = "budget"
    weighs_partitions = True

    def describe(self) -> dict[str, str]:
        return {"method": "largest correlations", "budget": str(self.options.budget)}

    def procedure(self, context: Context) -> CorrelationProcedure:
        names = self.plan(context).feature_names
        return CorrelationProcedure(names, self.options.budget, self.options.ridge)

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        names = [solved.procedure.names[a] for a in solved.path.order]
        return {"method": self.name, "budget": self.options.budget, "columns": names}

    def model(self, context: Context, solved: Solved) -> dict[str, Content]:
        mean = solved.problem.mean
        model = {"sources": sources_of(self.plan(context)), "id": self.roles.id}
        model |= {"names": list(solved.procedure.names), "target": self.roles.target[0]}
        arrays = {"weights": solved.path.weights, "mean": mean, "order": solved.path.order}
        return {"model.json": model, "weights.npz": arrays}


@dataclass(frozen=True, eq=False)
class Linear:
    names: tuple[str, ...]
    weights: np.ndarray
    mean: np.ndarray

    def __call__(self, values: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
        found = np.full(n_rows, self.mean[-1])
        for name, weight, mean in zip(self.names, self.weights, self.mean[:-1], strict=True):
            if weight:
                found += weight * np.nan_to_num(values[name] - mean)
        return found


def predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> RowPredictor:
    model, arrays = run.model, run.weights
    n = len(arrays["order"]) if budget is None else min(int(budget), len(arrays["order"]))
    bought = {model["names"][a].partition("=")[0] for a in arrays["order"][:n]}
    needed = [name for name in model["sources"] if name in bought]
    linear = Linear(tuple(model["names"]), arrays["weights"][n], arrays["mean"])
    plan = plan_of_model(dataset, needed, model["sources"], model["id"])
    return RowPredictor(dataset.reader, plan, (f"predicted_{model['target']}",), linear)


def sections(run: FinishedRun) -> Sequence[Section]:
    points = run.metrics["curves"][0]["points"]
    rows = [{"Columns": p["budget"], "Training error": p["train"]["mse"]} for p in points]
    return [Section("Error", [Table(rows, "Error of every prefix.")])]


def headline(run: FinishedRun) -> str:
    return f"Take {', '.join(run.selection['columns'])}"


SUBTITLE = "Largest correlations"


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    return {name: Chosen(place) for place, name in enumerate(run.selection["columns"], 1)}


METHOD = Method(
    name="correlation",
    Options=CorrelationOptions,
    make_job=CorrelationJob,
    predictor=predictor,
    chosen=chosen,
    figures=__name__,
    tunable=("budget", "ridge"),
    measures={"mse": False},
    question=("ridge",),
)


class CorrelationRegressor(JobRegressor):
    """The method as a scikit-learn estimator."""

    _method, _Options, _first = "correlation", CorrelationOptions, ("budget",)
