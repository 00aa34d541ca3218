"""Passes over partitions of judgments: statistics, averages, what is lacking, predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from distfms.data.files.partition import Dataset, Partition
from distfms.data.files.write import write_table
from distfms.data.rows.columns import as_arrow, n_positive
from distfms.data.rows.folds import hash_keys, mix
from distfms.data.rows.judgments import (
    JudgmentBatch,
    JudgmentLayout,
    Raters,
    attribute_of,
    detect_layout,
    read_judgments,
)
from distfms.data.rows.roles import Roles, resolve_roles
from distfms.engine.storage import Location, whole_file
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import FinishedRun
from distfms.methods.frame.rows import FoldedSource, SummaryReader
from distfms.methods.multiselect.model import (
    LinearModel,
    predict,
    projected_model,
    refit_statistics,
)
from distfms.methods.multiselect.same_raters import assigned, held_out_estimates
from distfms.solve.buying import BuyFrom, Problem, SelectionPath, holdout_loss
from distfms.stats.base import below
from distfms.stats.comoments import CoMoments
from distfms.stats.disagreement import Disagreement
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics
from distfms.stats.ragged import Ragged
from distfms.stats.raters import by_rater
from distfms.stats.sample import RowSample
from distfms.stats.signs import ColumnSigns

if TYPE_CHECKING:
    import pyarrow as pa

    from distfms.data.files.dataset import PartitionReader

#: Folder in the run folder.
PLAN = "plan"

#: Judgments of each attribute.
Repeats = tuple[int, ...]

#: Judgments of each attribute that are taken of a partition, and of all: of all parts together.
_SOME = 4096


@dataclass(frozen=True)
class JudgmentSource(FoldedSource):
    """Judgment data with all that is needed to read a partition of it."""

    layout: JudgmentLayout
    roles: Roles

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        layout = self.layout
        return self.roles.with_row_columns(
            (*layout.columns, *layout.rater_columns, *self.roles.target)
        )

    def read(self, partition: Partition) -> JudgmentBatch:
        """Read the judgments of a partition, its objects ordered by part."""
        return read_judgments(
            self.reader,
            partition,
            self.layout,
            self.roles,
            folds=self.folds,
            missing=self.section.policy,
        )

    def key(self) -> dict[str, Any]:
        """Plain values that a partial depends on, beside its partition."""
        return {
            **super().key(),
            "attributes": [
                [a.name, list(a.columns), *filter(np.isfinite, a.limits)]
                for a in self.layout.attributes
            ],
            "label": self.roles.target[0],
            "weight": self.roles.weight,
            "id": self.roles.fold_key,
            "raters": [a.raters for a in self.layout.attributes],
            **({"left_out": list(self.layout.left_out)} if self.layout.left_out else {}),
        }


def judgment_reader(source: JudgmentSource, *, of_raters: bool = False) -> SummaryReader:
    """Return the reader of ``judgments`` of each part, ``some`` of them and ``signs`` of trouble.

    The signs are those of all parts, in the first. With `of_raters` also of the ``disagreement`` of
    each rater with the others.
    """
    known = {"of_raters": True} if of_raters else {}
    return SummaryReader(source, "judgments and some", partial(_judgments, of_raters), known)


def slab_reader(source: JudgmentSource, attributes: slice) -> SummaryReader:
    """Return the reader of ``judgments`` of a run of attributes, of the training objects."""
    known = {"columns": [attributes.start, attributes.stop]}
    return SummaryReader(source, "judgments and some", partial(_slab, attributes), known)


def _judgments(of_raters: bool, batch: JudgmentBatch, part: int) -> dict[str, Any]:
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part])
    signs = ColumnSigns.empty(len(judgments) + (label is not None)) if part else batch.signs()
    found: dict[str, Any] = {
        "judgments": JudgmentStatistics.from_block(judgments, label, weight, raters=raters),
        "signs": signs,
        "some": _some(batch, part, of_raters),
    }
    if of_raters:
        found["disagreement"] = Disagreement.from_block(judgments, raters or (), batch.rater_names)
    return found


def _slab(attributes: slice, batch: JudgmentBatch, part: int) -> dict[str, Any]:
    if part == len(batch.part_slices) - 1:
        return {"judgments": JudgmentStatistics.empty(len(batch.attributes), attributes)}
    raters = batch.raters_of(batch.part_slices[part])
    view = batch.part_view(part)
    return {"judgments": JudgmentStatistics.from_block(*view, attributes=attributes, raters=raters)}


def _some(batch: JudgmentBatch, part: int, of_raters: bool) -> RowSample:
    """Take some judgments of each attribute, as many of one as of another, by no order of them.

    Each with the label of its object and, with `of_raters`, the key of its rater: what
    `SomeJudgments` takes apart.
    """
    attributes, label, _ = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part]) if of_raters else None
    keys = np.append(keys_of_raters(batch.rater_names), np.nan)  # −1 is not known
    most = max(_SOME // len(batch.part_slices), 16)
    places = [_spread_places(ragged, most) for ragged in attributes]
    judgments = [ragged.content()[at] for ragged, at in zip(attributes, places, strict=True)]
    labels = [label[_rows_at(ragged, at)] for ragged, at in zip(attributes, places, strict=True)]
    rows = [*judgments, *labels]
    if raters is not None:
        rows += [keys[codes.content()[at]] for codes, at in zip(raters, places, strict=True)]
    values = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for row, taken in zip(values, rows, strict=True):
        row[: taken.size] = taken
    numbers = np.arange(values.shape[1], dtype=np.uint64) + np.uint64(part * _SOME)
    hashes = mix(numbers ^ mix(np.uint64(batch.place)))
    return RowSample.from_rows(most, hashes, numbers.view(np.int64), values)


def _spread_places(ragged: Ragged, most: int) -> np.ndarray:
    """Return places of at most so many judgments, at equal steps."""
    n_judgments = ragged.content().size
    step = max(-(-n_judgments // most), 1)
    return np.arange(0, n_judgments, step)


def _rows_at(ragged: Ragged, places: np.ndarray) -> np.ndarray:
    """Return the objects of the judgments at some places."""
    starts = ragged.offsets - ragged.offsets[0]
    return np.searchsorted(starts, places, side="right") - 1


def keys_of_raters(names: Sequence[str]) -> np.ndarray:
    """Return a number for each id of a rater that a float holds exactly, the same everywhere."""
    return (hash_keys(list(names)) >> np.uint64(11)).astype(np.float64)


def averages_reader(source: JudgmentSource, repeats: Repeats, buy_from: BuyFrom) -> SummaryReader:
    """Return the reader of the averages of so many judgments of each attribute.

    ``taught`` are by the raters that the selection asks for, ``predicted`` of the first judgments,
    as predictions take them; the same where raters are not known.
    """
    known = {"repeats": list(repeats), "buy_from": buy_from}
    return SummaryReader(source, "averages", partial(_averages, repeats, buy_from), known)


def _averages(
    repeats: Repeats, buy_from: BuyFrom, batch: JudgmentBatch, part: int
) -> dict[str, CoMoments]:
    judgments, label, weight = batch.part_view(part)
    raters = batch.raters_of(batch.part_slices[part])
    taught = refit_statistics(judgments, label, repeats, weight, raters, buy_from)
    predicted = taught
    if raters is not None:
        predicted = refit_statistics(judgments, label, repeats, weight)
    return {"taught": taught, "predicted": predicted}


# --- the acquisition plan ------------------------------------------------------------------------


def acquisition_plan(
    counts: ArrayLike,
    repeats: ArrayLike,
    costs: ArrayLike,
    names: Sequence[str],
    objects: ArrayLike,
) -> dict[str, np.ndarray]:
    """List how many more judgments of each object to collect.

    From the judgments that each object has, shape (n, d), to columns with one row for each object
    and attribute that lacks some, by object, then by attribute: ``more`` is max(0, r[a] − k_i[a]),
    ``cost`` that of these judgments.
    """
    have, want = np.asarray(counts, dtype=np.int64), np.asarray(repeats, dtype=np.int64)
    rows, attributes = np.nonzero(have < want)
    more = (want - have)[rows, attributes]
    return {
        "object": np.asarray(objects)[rows],
        "attribute": np.asarray(names, dtype=np.str_)[attributes],
        "have": have[rows, attributes],
        "want": want[attributes],
        "more": more,
        "cost": more * np.asarray(costs, dtype=float)[attributes],
    }


def plan_of(
    batch: JudgmentBatch,
    rows: np.ndarray,
    repeats: ArrayLike,
    costs: ArrayLike,
    objects: ArrayLike,
    buy_from: BuyFrom,
) -> dict[str, np.ndarray]:
    """List the judgments that some objects of a batch lack; see :func:`acquisition_plan`.

    Where raters are known, a judgment counts if the selection would ask its rater for it. From the
    ``same`` raters there is one row for each judgment that lacks, by object, then by rater:
    ``rater_slot`` counts the raters of an object from 1, those first who have judged most, and
    ``rater_id`` is the id of one who has judged, None for anybody new.
    """
    own = [ragged.take(rows) for ragged in batch.attributes]
    r = np.asarray(repeats, dtype=np.int64)
    if batch.raters is None or not own:
        counts = np.array([ragged.counts() for ragged in own], dtype=np.int64)
        counts = counts.reshape(r.size, rows.size).T
        return acquisition_plan(counts, r, costs, batch.names, objects)
    spread, who, _ = by_rater(own, [codes.take(rows) for codes in batch.raters])
    order, taken = assigned(spread, r, buy_from)
    if buy_from == "independent":
        return acquisition_plan(taken.sum(axis=0).T, r, costs, batch.names, objects)
    asked = np.full((max(int(r.max()), len(who)), rows.size), -1)
    asked[: len(who)] = np.take_along_axis(who, order, axis=0)
    wanted = np.arange(len(asked))[:, None, None] < np.broadcast_to(r[:, None], (r.size, rows.size))
    wanted[: len(taken)] &= ~taken
    at, raters, attributes = np.nonzero(wanted.transpose(2, 0, 1))
    code, ids = asked[raters, at], np.array([*batch.rater_names, None], dtype=object)
    return {
        "object": np.asarray(objects)[at],
        "rater_slot": raters + 1,
        "rater_id": ids[np.where((code < 0) | (code >= len(batch.rater_names)), -1, code)],
        "attribute": np.asarray(batch.names, dtype=np.str_)[attributes],
        "more": np.ones(at.size, dtype=np.int64),
        "cost": np.asarray(costs, dtype=float)[attributes],
    }


def object_column(own: str | None) -> str:
    """Name the plan's column of objects: by their own column, unless another bears its name."""
    others = ("attribute", "have", "want", "more", "cost", "rater_slot", "rater_id")
    return "object" if own is None or own in others else own


@dataclass(frozen=True)
class WritePlan:
    """Picklable function that writes the plan of one partition's training objects."""

    source: JudgmentSource
    repeats: tuple[int, ...]
    costs: tuple[float, ...]
    folder: Location
    id_type: pa.DataType
    buy_from: BuyFrom = "independent"
    ending: str = "parquet"

    def __call__(self, partition: Partition) -> tuple[int, float]:
        """Write ``part-NNNNN`` and return its totals."""
        import pyarrow as pa
        import pyarrow.csv as csv

        batch = self.source.read(partition)
        taught = np.arange(batch.part_slices[-1].start)
        if batch.weight is not None:
            taught = taught[batch.weight[: taught.size] > 0]
        objects = (batch.row_ids if batch.rows.id is None else batch.rows.id)[taught]
        plan = plan_of(batch, taught, self.repeats, self.costs, objects, self.buy_from)
        columns = {name: as_arrow(values) for name, values in plan.items()}
        # By the type of the data, so that parts in which nothing is lacking fit the others.
        columns["object"] = columns["object"].cast(self.id_type)
        if "rater_id" in columns:
            columns["rater_id"] = columns["rater_id"].cast(pa.string())
        table = pa.table(columns)
        names = [object_column(self.source.roles.id), *table.column_names[1:]]
        table = table.rename_columns(names)
        place = self.folder / f"part-{partition.index:05d}.{self.ending}"
        if self.ending == "csv":
            with whole_file(place) as temporary:
                csv.write_csv(table, temporary)
        else:
            write_table(place, table)
        return int(plan["more"].sum()), float(plan["cost"].sum())


# --- applying a finished run's model -------------------------------------------------------------


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
    run: FinishedRun, held_out: JudgmentStatistics, known_variance: np.ndarray, buy_from: BuyFrom
) -> tuple[JudgmentEstimates, float]:
    """Return the estimates from held-out objects, of a model's attributes, and its loss on them."""
    model = trained_model(run)
    trained = {attribute["name"]: attribute["v"] for attribute in run.selection["attributes"]}
    v = [trained[name] for name in model.names]
    estimates = held_out_estimates(held_out, known_variance, v, None, model.names)
    loss = holdout_loss(estimates, model.weights, model.intercept, model.repeats, buy_from)
    return estimates, float(loss)


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
