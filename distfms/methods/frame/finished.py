"""Models of finished runs on held-out rows: what the gate of a retraining compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from distfms.data.files.partition import Dataset, Partition, Rows
from distfms.data.rows.folds import read_row_index
from distfms.data.rows.roles import Roles
from distfms.methods import load_method
from distfms.methods.frame.contract import FinishedRun, Inputs, Judged, PartialReader, Run
from distfms.methods.frame.outcomes import Numbers
from distfms.methods.frame.rows import FoldedSource, naming
from distfms.stats.base import Bundle, Folded, Members
from distfms.stats.sums import Sums

T = TypeVar("T")


def by_statistics(
    inputs: Inputs | None,
    statistics: Bundle,
    reader: Callable[[Dataset, bool], PartialReader],
    size: Callable[[Members], tuple[int, float]],
    score: Callable[[FinishedRun, Members], Mapping[str, float]],
) -> Callable[[Run, Sequence[FinishedRun]], Judged]:
    """Return what scores models by statistics of held-out rows; see `Finished.judge`.

    `statistics` are what the reader finds in these inputs, `size` is that of a `Procedure`.
    """
    of_inputs = statistics.test()

    def judge(run: Run, models: Sequence[FinishedRun]) -> Judged:
        members = of_inputs if run.inputs is inputs else run.reduce(reader).test()
        n_rows, _ = size(members)
        return n_rows, [score(model, members) for model in models if n_rows]

    return judge


@dataclass(frozen=True)
class PredictedSource(FoldedSource):
    """Held-out rows with what models of finished runs predict of them.

    Attributes
    ----------
    predictors : tuple
        Of the models, of the same dataset.
    roles : Roles
    """

    predictors: tuple[Any, ...]
    roles: Roles

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        names = [*self.roles.target, self.roles.weight, self.roles.fold_key]
        for predictor in self.predictors:
            names += predictor.columns
        return tuple(name for name in dict.fromkeys(names) if name is not None)

    def each_batch(self, partition: Partition, function: Callable[[Any, Any], T]) -> Iterator[T]:
        """Call a function; columns of a batch are read once, and models share them."""

        def call(source: Any, piece: Any) -> T:
            if source is not self:
                piece = replace(piece, rows=Rows(piece.rows.read(list(self.columns))))
            return function(source, piece)

        return super().each_batch(partition, call)

    def read(self, partition: Partition) -> tuple[Any, np.ndarray, list[Any]]:
        """Return tables of targets and of each model's predictions, and the weight of the rows."""
        index = read_row_index(self.reader, partition, self.roles, self.folds)
        index = index.keep(index.part == self.folds.test_part)
        rows = index.row_ids - partition.row_offset
        truth = self.reader.read(partition, list(self.roles.target)).take(rows)
        is_known = _are_complete(truth)
        weight = index.weight
        if weight is None:
            weight = np.ones(len(rows))
        predictions = []
        if is_known.any():
            for predictor in self.predictors:
                predict = replace(predictor, reader=self.reader)
                predictions.append(predict(partition).take(rows[is_known]))
        return truth.filter(is_known), weight[is_known], predictions


def _are_complete(table: Any) -> np.ndarray:
    """Return which rows of a table have a value in every column."""
    are_complete = np.ones(table.num_rows, dtype=bool)
    for column in table.columns:
        are_complete &= ~column.is_null(nan_is_null=True).to_numpy()
    return are_complete


@dataclass(frozen=True, eq=False)
class PredictionReader(PartialReader):
    """Reads how far predictions of held-out rows are off: ``errors``, by model.

    Attributes
    ----------
    source : PredictedSource
    has_classes : bool
        Whether models predict classes, which may be numbers.
    coded : callable
        From values of the target to what models predict of it.
    """

    source: PredictedSource
    has_classes: bool
    coded: Callable[[np.ndarray], np.ndarray]

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition, unless it has no held-out row, and add up."""
        sums = Sums({})
        if self.source.held_out or self.source.section.test > 0:
            with naming(partition):
                sums = self._sums(*self.source.read(partition))
        return Bundle({"errors": Folded((Sums({}), sums))})

    def _sums(self, truth: Any, weight: np.ndarray, predictions: Sequence[Any]) -> Sums:
        """Add up errors by model, (M,), the number of rows and their weight."""
        errors = [self._errors(truth, predicted) for predicted in predictions]
        if not errors:
            return Sums({})
        sums = {"n": np.array(weight.size), "weight": np.array(weight.sum())}
        for name in errors[0]:
            sums[name] = np.array([weight @ of_model[name] for of_model in errors])
        return Sums(sums)

    def _errors(self, truth: Any, predictions: Any) -> dict[str, np.ndarray]:
        """Return of each row whether a class is right, and the squared error of numbers."""
        errors = dict[str, np.ndarray]()
        numbers = []
        targets = []
        for name in truth.column_names:
            # Probabilities of classes leave one column of predictions.
            predicted = predictions.column(f"predicted_{name}").to_numpy()
            true = self.coded(truth.column(name).to_numpy())
            if self.has_classes:
                errors["accuracy"] = (true == predicted).astype(float)
            if true.dtype.kind in "fiub" and predicted.dtype.kind in "fiub":
                numbers.append(predicted.astype(float))
                targets.append(true.astype(float))
        if numbers:
            by_row = Numbers().errors(np.array([numbers]), np.array(targets))
            errors["mse"] = by_row["mse"][0]
        return errors

    def key(self) -> dict[str, Any]:
        """Return nothing: judgments are not cached."""
        return {"kind": "predicted"}


def by_predictions(
    name: str,
    roles: Roles,
    run: Run,
    models: Sequence[FinishedRun],
    has_classes: bool = False,
    coded: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Judged:
    """Score predictions of a method's models on held-out rows; see `Finished.judge`."""
    method = load_method(name)
    section = run.inputs.section

    def reader(dataset: Dataset, held_out: bool) -> PredictionReader:
        predictors = tuple(method.predictor(model, dataset, None) for model in models)
        source = PredictedSource(dataset.reader, section, run.seed, held_out, predictors, roles)
        return PredictionReader(source, has_classes, coded)

    sums = dict(run.reduce(reader, cache=False)["errors"].test.arrays)
    if not sums:
        return 0, []
    n_rows = int(sums.pop("n"))
    weight = float(sums.pop("weight"))
    scores = list[Mapping[str, float]]()
    for number in range(len(models)):
        scores.append({measure: float(v[number] / weight) for measure, v in sums.items()})
    return n_rows, scores
