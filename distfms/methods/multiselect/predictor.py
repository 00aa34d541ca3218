"""Applying the model of a finished run to judgments of other data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.files.partition import Dataset, Partition
from distfms.data.rows.columns import as_arrow, n_positive
from distfms.data.rows.judgments import (
    JudgmentBatch,
    JudgmentLayout,
    Raters,
    attribute_of,
    detect_layout,
    read_judgments,
)
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.multiselect.judged import Trained, losses_on
from distfms.methods.multiselect.model import LinearModel, predict, projected_model
from distfms.solve.buying import BuyFrom, Problem, SelectionPath
from distfms.stats.base import below
from distfms.stats.judgments import JudgmentStatistics

if TYPE_CHECKING:
    import pyarrow as pa

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
        columns = [*self.layout.columns, *self.layout.rater_columns]
        if self.roles.id:
            columns.append(self.roles.id)
        return columns

    def __call__(self, partition: Partition) -> Any:
        """Return a table: id (or row number), prediction, judgments that were lacking."""
        import pyarrow as pa

        batch = read_judgments(self.reader, partition, self.layout, self.roles)
        predictions = np.full(batch.n_rows, self.model.intercept)
        if batch.attributes:
            predictions = predict(self.model, batch.attributes)
        id_column = self.roles.id
        ids = as_arrow(batch.row_ids)
        if id_column:
            ids = self.reader.read(partition, [id_column]).column(id_column)
        columns = {
            id_column or "row": ids,
            self.column: as_arrow(predictions),
            "judgments_lacking": as_arrow(self._lacking(batch)),
        }
        return pa.table(list(columns.values()), names=list(columns))

    def _lacking(self, batch: JudgmentBatch) -> np.ndarray:
        """Return how many judgments each object has less than the model asks for."""
        lacking = np.zeros(batch.n_rows, dtype=np.int64)
        for repeats, ragged in zip(self.model.repeats.tolist(), batch.attributes, strict=True):
            lacking += np.maximum(repeats - ragged.counts(), 0)
        return lacking

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows with fewer judgments than the model asks for."""
        label = "Rows with fewer judgments than the model needs"
        counts = {label: n_positive(table.column("judgments_lacking"))}
        if self.layout.left_out and not self.layout.rater_columns:
            counts["Rows without rater ids, though training left raters out"] = table.num_rows
        return counts


def trained_model(run: FinishedRun) -> LinearModel:
    """Return the model of a finished run, of the attributes it uses."""
    return LinearModel(
        names=tuple(run.model["attributes"]),
        intercept=float(run.model["intercept"]),
        **{name: run.weights[name] for name in ("repeats", "weights", "means")},
    )


def left_out(run: FinishedRun) -> tuple[str, ...]:
    """Return the ids of the raters whose judgments do not count in a finished run's model."""
    return tuple(entry["rater"] for entry in run.model.get("raters_left_out", ()))


def loss_on(
    run: FinishedRun, held_out: JudgmentStatistics, known_variance: np.ndarray, whose: BuyFrom
) -> float:
    """Return the loss of a finished run's model on objects with judgments of its attributes."""
    model = trained_model(run)
    variance = {attribute["name"]: attribute["v"] for attribute in run.selection["attributes"]}
    v = np.array([variance[name] for name in model.names], dtype=np.float64)
    trained = Trained(known_variance, v)
    return float(losses_on(held_out, trained, model, whose)[0])


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> JudgmentPredictor:
    """Find a model's attributes in a dataset; see `Method`."""
    model = trained_model(run)
    if budget is not None:
        model = _model_within(run, model, budget)
    schema = dataset.schema
    id_column = run.model["id"] if run.model["id"] in schema.names else None
    roles = Roles((), (), id=id_column)
    layout = JudgmentLayout(())
    if model.names:
        columns = find_columns(run.model, model.names, schema.names)
        roles = resolve_roles(
            schema, target=None, features=columns, globs=False, id=id_column, judgments=True
        )
        layout = _layout_of(run, model, schema, roles)
    column = f"predicted_{run.model['target']}"
    return JudgmentPredictor(dataset.reader, layout, roles, model, column)


def _layout_of(
    run: FinishedRun, model: LinearModel, schema: pa.Schema, roles: Roles
) -> JudgmentLayout:
    """Return where judgments are that count in a model: within its limits, of its raters."""
    limits = dict(zip(run.model["attributes"], run.weights["limits"].T, strict=True))
    bad_raters = left_out(run)
    source: Raters = "auto" if bad_raters else "ignore"
    layout = detect_layout(schema, roles, source, model.names).restricted(model.names)
    in_order = np.array([limits[name] for name in model.names]).T
    return replace(layout, left_out=bad_raters).within(in_order)


def _model_within(run: FinishedRun, model: LinearModel, budget: float) -> LinearModel:
    """Return the model of what a smaller budget buys."""
    whole = run.selection["budget"]
    if budget == whole:
        return model
    if budget > whole or "path/attributes" not in run.weights:
        why = "a refit is made for one budget"
        if budget > whole:
            why = f"this run bought for {whole:g}"
        raise SpecError(
            f"This model cannot predict within a budget of {budget:g}: {why}. Run the job again "
            f"with --set multiselect.budget={budget:g}."
        )
    problem = Problem.from_arrays(below("problem/", run.weights), names=model.names)
    arrays = below("path/", run.weights)
    path = SelectionPath.from_arrays(arrays, names=problem.names, costs=problem.costs)
    repeats = path.repeats_at(budget)
    support = np.flatnonzero(repeats)
    return projected_model(problem.take(support), repeats[support])


def trained_columns(layout: JudgmentLayout, available: Iterable[str]) -> dict[str, Any]:
    """Return entries of ``model.json``: the columns of attributes, and those that were left out.

    That is, named like a judgment of one of the attributes but not read: they were excluded, or had
    another role.
    """
    names = set(layout.names)
    named = {column for column in available if attribute_of(column, names) is not None}
    return {
        "columns": {attribute.name: list(attribute.columns) for attribute in layout.attributes},
        "columns_left": sorted(named - set(layout.columns)),
    }


def find_columns(
    model: Mapping[str, Any], names: Sequence[str], available: Iterable[str]
) -> list[str]:
    """Find the columns of some attributes in other data, in the order of the data.

    Columns that training left out are left out here too. An attribute may come in another form than
    in training, and with more or fewer numbered columns; where both forms are there, that of
    training counts. A model that does not say reads what it finds.
    """
    excluded = set(model.get("columns_left", ()))
    of_attribute: dict[str, list[str]] = {name: [] for name in names}
    for column in available:
        attribute = None if column in excluded else attribute_of(column, set(names))
        if attribute is not None:
            of_attribute[attribute].append(column)
    lacking = [name for name, columns in of_attribute.items() if not columns]
    if lacking:
        ignored = sorted(c for c in excluded if attribute_of(c, set(lacking)) is not None)
        hint = f" ({', '.join(ignored)} was left out in training, too.)" if ignored else ""
        raise DataError(
            f"The data hold no judgments of {', '.join(map(repr, lacking))}, which the model "
            f"needs.{hint}"
        )
    trained = model.get("columns", {})
    columns = []
    for name, candidates in of_attribute.items():
        if name in candidates and len(candidates) > 1 and name in trained:
            is_list = list(trained[name]) == [name]
            candidates = [column for column in candidates if (column == name) == is_list]
        columns += candidates
    return columns
