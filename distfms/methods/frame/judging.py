"""One way to judge models: on folds, on held-out rows, and of finished runs for the gate.

Models that statistics say enough of are scored by `Procedure.score`, and those of finished runs by
`by_statistics`. Others are judged on rows, by one pass for all of them: `judged`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from distfms.data.files.partition import Dataset, Partition, Rows
from distfms.data.rows.folds import read_row_index
from distfms.data.rows.roles import Roles
from distfms.methods import load_method
from distfms.methods.frame.contract import FinishedRun, Inputs, Judged, PartialReader, Run
from distfms.methods.frame.cross_validation import Members
from distfms.methods.frame.passes import Sums
from distfms.methods.frame.rows import FoldedSource, naming
from distfms.stats.base import Bundle, Folded

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")

#: Which parts of a batch are judged together: all folds, or the held-out rows; see `one_part`.
TRAIN = slice(0, -1)
HELD_OUT = slice(-1, None)

#: Picklable: from a batch and some of its parts to statistics of their rows, by name.
Judge = Callable[[Any, slice], Mapping[str, Any]]
#: A judge, and the parts that it is asked about, one run of them after the other.
Asked = tuple[Judge, Sequence[slice]]


def one_part(number: int) -> slice:
    """Return a part by its number: a fold, or −1 for the held-out rows."""
    return slice(number, number + 1 or None)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Statistics by name of rows that were judged, none of others; a mergeable statistic."""

    members: Mapping[str, Any]

    def merge(self, later: Verdict) -> Verdict:
        """Merge member by member; one that a side lacks counts as nothing there."""
        merged = {**self.members}
        for name, statistic in later.members.items():
            merged[name] = merged[name].merge(statistic) if name in merged else statistic
        return Verdict(merged)

    def scaled(self, factor: float) -> Verdict:
        """Multiply the weight of every row by `factor`."""
        scaled = Folded(tuple(self.members.values())).scaled(factor).parts
        return Verdict(dict(zip(self.members, scaled, strict=True)))


@dataclass(frozen=True, eq=False)
class JudgeReader(PartialReader):
    """Reads by its number what each judge says of the rows of the parts it is asked about."""

    source: FoldedSource
    questions: Sequence[Asked]

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition, unless it has no row of these parts, and judge."""
        verdicts = [[Verdict({})] * self.source.n_parts for _ in self.questions]
        if self._has_questions():
            batch = self.source.read(partition)
            with naming(partition):
                for of_parts, (judge, runs) in zip(verdicts, self.questions, strict=True):
                    for parts in runs:
                        of_parts[parts.start] = Verdict(judge(batch, parts))
        folded = [Folded(tuple(of_parts)) for of_parts in verdicts]
        return Bundle({str(number): of_question for number, of_question in enumerate(folded)})

    def _has_questions(self) -> bool:
        return any(self._has_rows(parts) for _, runs in self.questions for parts in runs)

    def _has_rows(self, parts: slice) -> bool:
        if parts == HELD_OUT:
            return self.source.held_out or self.source.section.test > 0
        return not self.source.held_out

    def key(self) -> dict[str, Any]:
        """Return nothing: judgments are not cached."""
        return {"kind": "judged"}


def judged(
    run: Run, source: Callable[[Dataset, bool], FoldedSource], questions: Mapping[Key, Asked]
) -> dict[Key, Mapping[str, Any]]:
    """Judge models by one pass over all rows.

    Parameters
    ----------
    run : Run
    source : callable
        From (dataset, whether all its rows are held out) to what reads its partitions.
    questions : mapping to (Judge, sequence of slice)
        By any key, models and the parts they are judged on: folds, or the held-out rows.

    Returns
    -------
    dict
        What the judges add up, over all these rows.
    """
    in_order = list(questions.values())
    bundle = run.reduce(lambda *rows: JudgeReader(source(*rows), in_order), cache=False)
    judgments = {}
    for number, (key, (_, runs)) in enumerate(questions.items()):
        verdict = bundle[str(number)]
        merged = verdict.test if HELD_OUT in runs else verdict.train()
        judgments[key] = merged.members
    return judgments


# --- models of finished runs ----------------------------------------------------------------------


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
    of_inputs = held_out(statistics)

    def judge(run: Run, models: Sequence[FinishedRun]) -> Judged:
        members = of_inputs if run.inputs is inputs else held_out(run.reduce(reader))
        n_rows, _ = size(members)
        return n_rows, [score(model, members) for model in models if n_rows]

    return judge


def held_out(statistics: Bundle) -> Members:
    """Return the statistics of the held-out rows by name."""
    return {name: part.test for name, part in statistics.members.items()}


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
class PredictionJudge:
    """Adds up how far predictions are off; a `Judge` of what `PredictedSource` reads.

    Attributes
    ----------
    has_classes : bool
        Whether models predict classes, which may be numbers.
    coded : callable
        From values of the target to what models predict of it.
    """

    has_classes: bool
    coded: Callable[[np.ndarray], np.ndarray]

    def __call__(self, batch: Any, parts: slice) -> dict[str, Sums]:
        """Add up errors by model, (M,), the number of rows and their weight."""
        truth, weight, predictions = batch
        errors = [self._errors(truth, predicted) for predicted in predictions]
        if not errors:
            return {"errors": Sums({})}
        sums = {"n": np.array(weight.size), "weight": np.array(weight.sum())}
        for name in errors[0]:
            sums[name] = np.array([weight @ of_model[name] for of_model in errors])
        return {"errors": Sums(sums)}

    def _errors(self, truth: Any, predictions: Any) -> dict[str, np.ndarray]:
        """Return of each row whether a class is right, and the squared error of numbers."""
        errors = dict[str, np.ndarray]()
        squares = []
        for name in truth.column_names:
            # Probabilities of classes leave one column of predictions.
            predicted = predictions.column(f"predicted_{name}").to_numpy()
            true = self.coded(truth.column(name).to_numpy())
            if self.has_classes:
                errors["accuracy"] = (true == predicted).astype(float)
            if true.dtype.kind in "fiub" and predicted.dtype.kind in "fiub":
                squares.append((true.astype(float) - predicted.astype(float)) ** 2)
        if squares:
            errors["mse"] = np.mean(squares, axis=0)
        return errors


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

    def source(dataset: Dataset, held_out: bool) -> PredictedSource:
        predictors = tuple(method.predictor(model, dataset, None) for model in models)
        return PredictedSource(dataset.reader, section, run.seed, held_out, predictors, roles)

    question: Asked = PredictionJudge(has_classes, coded), [HELD_OUT]
    members = judged(run, source, {"models": question})["models"]
    sums = dict(members["errors"].arrays) if "errors" in members else {}
    if not sums:
        return 0, []
    n_rows = int(sums.pop("n"))
    weight = float(sums.pop("weight"))
    scores = list[Mapping[str, float]]()
    for number in range(len(models)):
        scores.append({measure: float(v[number] / weight) for measure, v in sums.items()})
    return n_rows, scores
