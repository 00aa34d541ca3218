"""Predicting from judgments with a finished run's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.dataset import ParquetDataset, Partition, PartitionReader
from distfms.data.judgments import JudgmentLayout, detect_layout, read_judgments
from distfms.data.roles import Roles, resolve_roles
from distfms.methods.contract import FinishedRun
from distfms.methods.multiselect.model import LinearModel, predict
from distfms.methods.multiselect.read_columns import TrainedColumns


@dataclass(frozen=True, eq=False)
class JudgmentPredictor:
    """Picklable function from a partition to its predictions.

    Attributes
    ----------
    reader : PartitionReader
    layout : JudgmentLayout
        Of the model's attributes.
    roles : Roles
    model : LinearModel
    column : str
        Name of the prediction.
    """

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

        block = read_judgments(self.reader, partition, self.layout, self.roles)
        values, short = np.full(block.n_rows, self.model.intercept), np.zeros(block.n_rows, int)
        if block.attributes:
            values = predict(self.model, block.attributes).values
            counts = np.array([ragged.counts() for ragged in block.attributes])
            short = np.maximum(self.model.repeats[:, None] - counts, 0).sum(axis=0)
        if self.roles.id:
            ids = self.reader.read(partition, [self.roles.id]).column(self.roles.id)
        else:
            ids = pa.array(block.row_ids)
        names = [self.roles.id or "row", self.column, "judgments_lacking"]
        return pa.table([ids, pa.array(values), pa.array(short)], names=names)

    def remarks(self, table: Any) -> Mapping[str, int]:
        """Count the rows with fewer judgments than the model asks for."""
        lacking = table.column("judgments_lacking").to_numpy()
        return {"Rows with fewer judgments than the model asks for": int((lacking > 0).sum())}


def stored_model(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> LinearModel:
    """Read a model back from ``model.json`` and ``weights.npz``."""
    return LinearModel(
        names=tuple(description["attributes"]),
        repeats=arrays["repeats"],
        weights=arrays["weights"],
        intercept=float(description["intercept"]),
        means=arrays["means"],
    )


def make_predictor(run: FinishedRun, dataset: ParquetDataset) -> JudgmentPredictor:
    """Find a model's attributes in a dataset.

    Parameters
    ----------
    run : FinishedRun
    dataset : ParquetDataset
        Needs no label; an attribute may come in another form than in training.

    Raises
    ------
    DataError
        If it has no judgments of an attribute that the model uses.
    """
    model = stored_model(run.model, run.weights)
    id_ = run.model["id"] if run.model["id"] in dataset.schema.names else None
    if not model.names:
        roles, layout = Roles((), (), id=id_), JudgmentLayout(())
        return JudgmentPredictor(
            dataset.reader, layout, roles, model, f"predicted_{run.model['target']}"
        )
    columns = TrainedColumns.from_json(run.model).find(model.names, dataset.schema.names)
    roles = resolve_roles(
        dataset.schema, target=None, features=columns, globs=False, id=id_, judgments=True
    )
    layout = detect_layout(dataset.schema, roles).restricted(model.names)
    return JudgmentPredictor(
        dataset.reader, layout, roles, model, f"predicted_{run.model['target']}"
    )
