"""Applying a finished run's model to other data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.columns import as_arrow, n_positive
from distfms.data.dataset import PartitionReader
from distfms.data.judgments import JudgmentLayout, detect_layout, read_judgments
from distfms.data.partition import Dataset, Partition
from distfms.data.roles import Roles, resolve_roles
from distfms.errors import DataError, SpecError
from distfms.methods.contract import FinishedRun
from distfms.methods.multiselect.model import LinearModel, predict, projected_model
from distfms.methods.multiselect.objective import (
    BuyFrom,
    Problem,
    SelectionPath,
    holdout_loss,
)
from distfms.methods.multiselect.same_raters import held_out_estimates
from distfms.stats.base import below
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics

_NUMBERED = re.compile(r"__[0-9]+$")


@dataclass(frozen=True, eq=False)
class JudgmentPredictor:
    """Picklable function from a partition to its predictions."""

    reader: PartitionReader
    layout: JudgmentLayout
    roles: Roles
    model: LinearModel
    column: str

    @property
    def columns(self) -> Sequence[str]:
        """Columns that are read."""
        return [*self.layout.columns, *([self.roles.id] if self.roles.id else [])]

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), prediction, judgments that were lacking."""
        import pyarrow as pa

        batch = read_judgments(self.reader, partition, self.layout, self.roles)
        values, short = np.full(batch.n_rows, self.model.intercept), np.zeros(batch.n_rows, int)
        if batch.attributes:
            values = predict(self.model, batch.attributes)
            counts = np.array([ragged.counts() for ragged in batch.attributes])
            short = np.maximum(self.model.repeats[:, None] - counts, 0).sum(axis=0)
        if self.roles.id:
            ids = self.reader.read(partition, [self.roles.id]).column(self.roles.id)
        else:
            ids = as_arrow(batch.row_ids)
        names = [self.roles.id or "row", self.column, "judgments_lacking"]
        return pa.table([ids, as_arrow(values), as_arrow(short)], names=names)

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows with fewer judgments than the model asks for."""
        label = "Rows with fewer judgments than the model needs"
        return {label: n_positive(table.column("judgments_lacking"))}


def trained_model(run: FinishedRun) -> LinearModel:
    """Return the model of a finished run, of the attributes it uses."""
    return LinearModel(
        names=tuple(run.model["attributes"]),
        intercept=float(run.model["intercept"]),
        **{name: run.weights[name] for name in ("repeats", "weights", "means")},
    )


def loss_on(
    run: FinishedRun, held_out: JudgmentStatistics, known_variance: np.ndarray, buy_from: BuyFrom
) -> tuple[JudgmentEstimates, float]:
    """Return the estimates from held-out objects, of a model's attributes, and its loss on them."""
    model = trained_model(run)
    trained = {attribute["name"]: attribute["v"] for attribute in run.selection["attributes"]}
    v = [trained[name] for name in model.names]
    estimates = held_out_estimates(held_out, known_variance, v, None, model.names)
    return estimates, float(holdout_loss(estimates, *model.bought, buy_from))


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> JudgmentPredictor:
    """Find a model's attributes in a dataset; see :class:`distfms.methods.contract.Method`."""
    model = trained_model(run)
    if budget is not None:
        model = _model_within(run, model, budget)
    id_ = run.model["id"] if run.model["id"] in dataset.schema.names else None
    roles, layout = Roles((), (), id=id_), JudgmentLayout(())
    if model.names:
        columns = find_columns(run.model, model.names, dataset.schema.names)
        roles = resolve_roles(
            dataset.schema, target=None, features=columns, globs=False, id=id_, judgments=True
        )
        layout = detect_layout(dataset.schema, roles).restricted(model.names)
    column = f"predicted_{run.model['target']}"
    return JudgmentPredictor(dataset.reader, layout, roles, model, column)


def _model_within(run: FinishedRun, model: LinearModel, budget: float) -> LinearModel:
    """Return the model of what a smaller budget buys."""
    own = run.selection["budget"]
    if budget == own:
        return model
    if budget > own or "path/attributes" not in run.weights:
        why = f"this run bought for {own:g}"
        if run.model["kind"] == "refit":
            why = "a refit is made for one budget"
        elif budget < own:
            why = "a selection that was refined is made for one budget"
        raise SpecError(
            f"This model cannot predict within a budget of {budget:g}: {why}. Run the job again "
            f"with --set multiselect.budget={budget:g}."
        )
    problem = Problem.from_arrays(below("problem/", run.weights), names=model.names)
    known = {"names": problem.names, "costs": problem.costs}
    path = SelectionPath.from_arrays(below("path/", run.weights), **known)
    bought = path.repeats_at(budget)
    smaller, kept = projected_model(problem, bought), np.flatnonzero(bought)
    return LinearModel(
        tuple(model.names[a] for a in kept.tolist()),
        bought[kept],
        smaller.weights[kept],
        smaller.intercept,
        smaller.means[kept],
    )


def trained_columns(layout: JudgmentLayout, available: Iterable[str]) -> dict[str, Any]:
    """Return entries of ``model.json``: the columns of attributes, and those that were left out.

    That is, named like a judgment of one of the attributes but not read: they were excluded, or had
    another role.
    """
    read, names = set(layout.columns), set(layout.names)
    named = {column for column in available if _attribute_of(column, names) is not None}
    return {
        "columns": {attribute.name: list(attribute.columns) for attribute in layout.attributes},
        "columns_left": sorted(named - read),
    }


def find_columns(
    model: Mapping[str, Any], names: Sequence[str], available: Iterable[str]
) -> list[str]:
    """Find the columns of some attributes in other data, in the order of the data.

    Columns that training left out are left out here too. An attribute may come in another form than
    in training, and with more or fewer numbered columns; where both forms are there, that of
    training counts. A model that does not say reads what it finds.
    """
    wanted, left = set(names), set(model.get("columns_left", ()))
    found: dict[str, list[str]] = {name: [] for name in names}
    for column in available:
        attribute = None if column in left else _attribute_of(column, wanted)
        if attribute is not None:
            found[attribute].append(column)
    lacking = [name for name, columns in found.items() if not columns]
    if lacking:
        own = sorted(c for c in left if _attribute_of(c, set(lacking)) is not None)
        hint = f" ({', '.join(own)} was left out in training, too.)" if own else ""
        raise DataError(
            f"The data hold no judgments of {', '.join(map(repr, lacking))}, which the model "
            f"needs.{hint}"
        )
    trained = model.get("columns", {})
    for name, columns in found.items():
        if name in columns and len(columns) > 1 and name in trained:
            whole = list(trained[name]) == [name]
            found[name] = [column for column in columns if (column == name) == whole]
    return [column for columns in found.values() for column in columns]


def _attribute_of(column: str, names: set[str]) -> str | None:
    """Name the attribute that a column would hold judgments of; None if it is none of these."""
    if column in names:
        return column
    base = _NUMBERED.sub("", column)
    return base if base in names else None
