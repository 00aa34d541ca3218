"""Applying the model of a finished run to judgments of other data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.columns import as_arrow, n_positive
from distfms.data.rows.judgments import (
    JudgmentLayout,
    Raters,
    attribute_of,
    detect_layout,
    read_judgments,
)
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.multiselect.judged import Trained, Whose, losses_on
from distfms.methods.multiselect.model import LinearModel, predict, projected_model
from distfms.solve.buying import Problem, SelectionPath
from distfms.stats.base import below
from distfms.stats.judgments import JudgmentStatistics

if TYPE_CHECKING:
    from distfms.data.files.dataset import PartitionReader


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
        own = [self.roles.id] if self.roles.id else []
        return [*self.layout.columns, *self.layout.rater_columns, *own]

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), prediction, judgments that were lacking."""
        import pyarrow as pa

        batch = read_judgments(self.reader, partition, self.layout, self.roles)
        values = np.full(batch.n_rows, self.model.intercept)
        short = np.zeros(batch.n_rows, dtype=np.int64)
        if batch.attributes:
            values = predict(self.model, batch.attributes)
        for repeats, ragged in zip(self.model.repeats.tolist(), batch.attributes, strict=True):
            short += np.maximum(repeats - ragged.counts(), 0)
        if self.roles.id:
            ids = self.reader.read(partition, [self.roles.id]).column(self.roles.id)
        else:
            ids = as_arrow(batch.row_ids)
        names = [self.roles.id or "row", self.column, "judgments_lacking"]
        return pa.table([ids, as_arrow(values), as_arrow(short)], names=names)

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows with fewer judgments than the model asks for."""
        label = "Rows with fewer judgments than the model needs"
        found = {label: n_positive(table.column("judgments_lacking"))}
        if self.layout.left_out and not self.layout.rater_columns:
            found["Rows without rater ids, though training left raters out"] = table.num_rows
        return found


def trained_model(run: FinishedRun) -> LinearModel:
    """Return the model of a finished run, of the attributes it uses."""
    return LinearModel(
        names=tuple(run.model["attributes"]),
        intercept=float(run.model["intercept"]),
        **{name: run.weights[name] for name in ("repeats", "weights", "means")},
    )


def left_out(run: FinishedRun) -> tuple[str, ...]:
    """Return the ids of the raters whose judgments do not count in a finished run's model."""
    return tuple(own["rater"] for own in run.model.get("raters_left_out", ()))


def loss_on(
    run: FinishedRun, held_out: JudgmentStatistics, known_variance: np.ndarray, whose: Whose
) -> float:
    """Return the loss of a finished run's model on objects with judgments of its attributes."""
    model = trained_model(run)
    variance = {attribute["name"]: attribute["v"] for attribute in run.selection["attributes"]}
    v = np.array([variance[name] for name in model.names], dtype=np.float64)
    trained = Trained(model.names, known_variance, v)
    return float(losses_on(held_out, trained, model, whose)[0])


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> JudgmentPredictor:
    """Find a model's attributes in a dataset; see `Method`."""
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
        limits = dict(zip(run.model["attributes"], run.weights["limits"].T, strict=True))
        bad = left_out(run)
        how: Raters = "auto" if bad else "ignore"
        layout = detect_layout(dataset.schema, roles, how, model.names)
        layout = replace(layout.restricted(model.names), left_out=bad)
        layout = layout.within(np.array([limits[name] for name in model.names]).T)
    column = f"predicted_{run.model['target']}"
    return JudgmentPredictor(dataset.reader, layout, roles, model, column)


def _model_within(run: FinishedRun, model: LinearModel, budget: float) -> LinearModel:
    """Return the model of what a smaller budget buys."""
    own = run.selection["budget"]
    if budget == own:
        return model
    if budget > own or "path/attributes" not in run.weights:
        why = "a refit is made for one budget"
        if budget > own:
            why = f"this run bought for {own:g}"
        raise SpecError(
            f"This model cannot predict within a budget of {budget:g}: {why}. Run the job again "
            f"with --set multiselect.budget={budget:g}."
        )
    problem = Problem.from_arrays(below("problem/", run.weights), names=model.names)
    known = {"names": problem.names, "costs": problem.costs}
    path = SelectionPath.from_arrays(below("path/", run.weights), **known)
    bought = path.repeats_at(budget)
    kept = np.flatnonzero(bought)
    return projected_model(problem.take(kept), bought[kept])


def trained_columns(layout: JudgmentLayout, available: Iterable[str]) -> dict[str, Any]:
    """Return entries of ``model.json``: the columns of attributes, and those that were left out.

    That is, named like a judgment of one of the attributes but not read: they were excluded, or had
    another role.
    """
    read, names = set(layout.columns), set(layout.names)
    named = {column for column in available if attribute_of(column, names) is not None}
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
        attribute = None if column in left else attribute_of(column, wanted)
        if attribute is not None:
            found[attribute].append(column)
    lacking = [name for name, columns in found.items() if not columns]
    if lacking:
        own = sorted(c for c in left if attribute_of(c, set(lacking)) is not None)
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
