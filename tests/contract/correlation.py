"""A third method, complete: the columns most correlated with the target, until a budget is spent.

It stands for what a method has to bring; everything else is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pydantic import Field

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan
from distfms.methods.frame.contract import Chosen, Finished, FinishedRun, Inputs, Job, Method, Run
from distfms.methods.frame.moments import Procedure, Solved
from distfms.methods.frame.row_data import RowForm
from distfms.methods.frame.row_predictor import RowPredictor
from distfms.methods.frame.tuning import choose_options
from distfms.report.page import PageSection, Table
from distfms.solve.linalg import symmetric_pinv
from distfms.spec import Section as Options
from distfms.stats.base import Bundle
from distfms.stats.comoments import CoMoments


def correlation(run: Run, job: Job) -> Finished:
    """Take the columns that correlate most with the target.

    Reads and checks (steps `categories`, `statistics`), chooses options (`tune`), orders the
    columns (`select`), and scores every prefix on all rows, folds and held-out rows (`evaluate`).
    """
    form: RowForm = job.form
    plan = form.plan(form.read_levels(run))
    statistics = run.step("statistics", lambda: read_moments(run, form, plan))
    procedure_of = partial(CorrelationProcedure.of, plan.feature_names)
    options, tuning = choose_options(run, job, statistics, procedure_of)
    procedure = procedure_of(options)
    train = statistics.train()
    problem = procedure.problem(train)
    paths = run.step("select", lambda: procedure.search_all(run, problem))
    solved = Solved(procedure, statistics, train, problem, paths)
    metrics = run.step("evaluate", lambda: solved.metrics(solved.on_folds(run, job)))
    path = solved.path
    mean = problem.mean
    names = list(plan.feature_names)
    model = {"sources": form.sources(plan), "id": form.roles.id}
    return Finished(
        selection={
            "method": job.name,
            "budget": options.budget,
            "columns": [names[a] for a in path.order],
        },
        model={**model, "names": names, "target": form.roles.target[0]},
        weights={"weights": path.weights, "mean": mean, "order": path.order},
        metrics=metrics,
        judge=form.judge(job.name),
        tuning=tuning,
        summary=form.summary(plan),
    )


def read_moments(run: Run, form: RowForm, plan: ColumnPlan) -> Bundle:
    statistics = run.reduce(lambda *rows: form.source(plan, *rows).moments())
    form.check_moments(run, plan, statistics)
    return statistics


def make_job(options: CorrelationOptions, inputs: Inputs, seed: int) -> Job:
    """Check the columns; nothing is read."""
    return RowForm.of(inputs, seed).job(
        "correlation",
        options,
        describe=lambda: {"method": "largest correlations", "budget": str(options.budget)},
        judged_by={"mse": False},
        nested="budget",
        weighs_partitions=True,
    )


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

    @classmethod
    def of(cls, names: tuple[str, ...], options: CorrelationOptions) -> CorrelationProcedure:
        return cls(names, options.budget, options.ridge)

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
        covariance = moments.covariance(pairwise=False)
        shift = moments.mean - problem.mean
        second = covariance + np.outer(shift, shift)
        ends = np.minimum(budgets.astype(int), len(path.order))
        contrast = np.hstack([-path.weights[ends], np.ones((len(ends), 1))])
        return {"mse": np.einsum("ni,ij,nj->n", contrast, second, contrast)}


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
    model = run.model
    arrays = run.weights
    n = len(arrays["order"]) if budget is None else min(int(budget), len(arrays["order"]))
    bought = {model["names"][a].partition("=")[0] for a in arrays["order"][:n]}
    needed = [name for name in model["sources"] if name in bought]
    linear = Linear(tuple(model["names"]), arrays["weights"][n], arrays["mean"])
    return RowPredictor.of(run, dataset, needed, (f"predicted_{model['target']}",), linear)


def sections(run: FinishedRun) -> Sequence[PageSection]:
    points = run.metrics["curves"][0]["points"]
    rows = [{"Columns": p["budget"], "Training error": p["train"]["mse"]} for p in points]
    return [PageSection("Error", [Table(rows, "Error of every prefix.")])]


def headline(run: FinishedRun) -> str:
    return f"Take {', '.join(run.selection['columns'])}"


#: Which a report reads from this module, as the figures of its method.
SUBTITLE = "Largest correlations"


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    return {name: Chosen(place) for place, name in enumerate(run.selection["columns"], 1)}


METHOD = Method(
    name="correlation",
    Options=CorrelationOptions,
    make_job=make_job,
    learn=correlation,
    predictor=predictor,
    chosen=chosen,
    figures=__name__,
    tunable=("budget", "ridge"),
    measures={"mse": False},
    question=("ridge",),
)
