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
TRAIN, HELD_OUT = slice(0, -1), slice(-1, None)


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

    def merge(self, other: Verdict) -> Verdict:
        """Merge member by member; one that a side lacks counts as nothing there."""
        both = self.members.keys() & other.members.keys()
        merged = {name: self.members[name].merge(other.members[name]) for name in both}
        return Verdict({**self.members, **other.members, **merged})

    def scaled(self, factor: float) -> Verdict:
        """Multiply the weight of every row by `factor`."""
        scaled = Folded(tuple(self.members.values())).scaled(factor).parts
        return Verdict(dict(zip(self.members, scaled, strict=True)))


@dataclass(frozen=True, eq=False)
class JudgeReader(PartialReader):
    """Reads by its number what each judge says of the rows of the parts it is asked about."""

    source: FoldedSource
    asked: Sequence[Asked]

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition, unless it has no row of these parts, and judge."""
        found = [[Verdict({})] * self.source.n_parts for _ in self.asked]
        if any(self._has_rows(parts) for _, own in self.asked for parts in own):
            batch = self.source.read(partition)
            with naming(partition):
                for (judge, own), of_parts in zip(self.asked, found, strict=True):
                    for parts in own:
                        of_parts[parts.start] = Verdict(judge(batch, parts))
        return Bundle({str(i): Folded(tuple(own)) for i, own in enumerate(found)})

    def _has_rows(self, parts: slice) -> bool:
        if parts == HELD_OUT:
            return self.source.held_out or self.source.section.test > 0
        return not self.source.held_out

    def key(self) -> dict[str, Any]:
        """Return nothing: judgments are not cached."""
        return {"kind": "judged"}


def judged(
    run: Run, source: Callable[[Dataset, bool], FoldedSource], asked: Mapping[Key, Asked]
) -> dict[Key, Mapping[str, Any]]:
    """Judge models by one pass over all rows.

    Parameters
    ----------
    run : Run
    source : callable
        From (dataset, whether all its rows are held out) to what reads its partitions.
    asked : mapping to (Judge, sequence of slice)
        By any key, models and the parts they are judged on: folds, or the held-out rows.

    Returns
    -------
    dict
        What the judges add up, over all these rows.
    """
    judges = list(asked.values())
    bundle = run.reduce(lambda *of: JudgeReader(source(*of), judges), cache=False)
    return {
        key: (own.test if HELD_OUT in parts else own.train()).members
        for (key, (_, parts)), own in zip(asked.items(), bundle.members.values(), strict=True)
    }


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
    own = held_out(statistics)

    def judge(run: Run, models: Sequence[FinishedRun]) -> Judged:
        members = own if run.inputs is inputs else held_out(run.reduce(reader))
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
        return self._own(*(c for predictor in self.predictors for c in predictor.columns))

    def _own(self, *others: str) -> tuple[str, ...]:
        named = (*self.roles.target, self.roles.weight, self.roles.fold_key, *others)
        return tuple(name for name in dict.fromkeys(named) if name is not None)

    def each_batch(self, partition: Partition, function: Callable[[Any, Any], T]) -> Iterator[T]:
        """Call a function; columns of a batch are read once, and models share them."""

        def call(own: Any, piece: Any) -> T:
            if own is not self:
                piece = replace(piece, rows=Rows(piece.rows.read(list(self.columns))))
            return function(own, piece)

        return super().each_batch(partition, call)

    def read(self, partition: Partition) -> tuple[Any, np.ndarray, list[Any]]:
        """Return tables of targets and of each model's predictions, and the weight of the rows."""
        index = read_row_index(self.reader, partition, self.roles, self.folds)
        held_out = index.keep(index.part == self.folds.test_part)
        rows = held_out.row_ids - partition.row_offset
        truth = self.reader.read(partition, list(self.roles.target)).take(rows)
        known = np.ones(len(rows), dtype=bool)
        for column in truth.columns:
            known &= ~column.is_null(nan_is_null=True).to_numpy()
        weight = np.ones(len(rows)) if held_out.weight is None else held_out.weight
        models = [replace(one, reader=self.reader) for one in self.predictors if known.any()]
        predicted = [one(partition).take(rows[known]) for one in models]
        return truth.filter(known), weight[known], predicted


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
        truth, weight, predicted = batch
        found = [self._errors(truth, own) for own in predicted]
        if not found:
            return {"errors": Sums({})}
        sums = {name: np.array([weight @ own[name] for own in found]) for name in found[0]}
        counts = {"n": np.array(weight.size), "weight": np.array(weight.sum())}
        return {"errors": Sums(counts | sums)}

    def _errors(self, truth: Any, predicted: Any) -> dict[str, np.ndarray]:
        """Return of each row whether a class is right, and the squared error of numbers."""
        found, squares = dict[str, np.ndarray](), []
        for name in truth.column_names:
            # Probabilities of classes leave one column of predictions.
            one = predicted.column(f"predicted_{name}")
            values, own = one.to_numpy(), self.coded(truth.column(name).to_numpy())
            if self.has_classes:
                found["accuracy"] = (own == values).astype(float)
            if own.dtype.kind in "fiub" and values.dtype.kind in "fiub":
                squares.append((own.astype(float) - values.astype(float)) ** 2)
        return found | ({"mse": np.mean(squares, axis=0)} if squares else {})


def by_predictions(
    name: str,
    roles: Roles,
    run: Run,
    models: Sequence[FinishedRun],
    has_classes: bool = False,
    coded: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Judged:
    """Score predictions of a method's models on held-out rows; see `Finished.judge`."""
    method, section = load_method(name), run.inputs.section

    def source(dataset: Dataset, held_out: bool) -> PredictedSource:
        predictors = tuple(method.predictor(model, dataset, None) for model in models)
        return PredictedSource(dataset.reader, section, run.seed, held_out, predictors, roles)

    asked: Asked = PredictionJudge(has_classes, coded), [HELD_OUT]
    found = judged(run, source, {"models": asked})["models"].get("errors", Sums({}))
    sums = dict(found.arrays)
    if not sums:
        return 0, []
    n_rows, weight = int(sums.pop("n")), float(sums.pop("weight"))
    scores: list[Mapping[str, float]] = [
        {measure: float(values[number] / weight) for measure, values in sums.items()}
        for number in range(len(models))
    ]
    return n_rows, scores
