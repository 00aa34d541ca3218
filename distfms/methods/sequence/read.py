"""What group sequencing reads beside co-moments: expanded columns, and rows to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Partition
from distfms.data.rows.batches import ColumnPlan, RowBatch
from distfms.data.rows.folds import with_seed
from distfms.errors import SpecError, nearest
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import JudgedRows
from distfms.methods.frame.outcomes import Responses
from distfms.methods.frame.passes import Sums
from distfms.methods.frame.row_data import RowForm
from distfms.methods.frame.rows import RowCounts, RowSource, SummaryReader, missing_by_source
from distfms.methods.sequence.glm import GlmDesign, GlmModel, GlmRows
from distfms.methods.sequence.options import ExpandSection
from distfms.methods.sequence.problem import Path
from distfms.stats.sample import RowSample

# --- columns in place of numbers: piecewise linear functions, indicators of missing values -------

#: Rows whose quantiles are knots.
_SAMPLED = 2000


def _sampled(seed: int, batch: RowBatch, part: int) -> dict[str, Any]:
    """Sample the features of a part, whose rows are told apart by their hashes alone."""
    own = batch.part_slices[part]
    hashes, numbers = with_seed(batch.rows.hashes[own], seed), np.zeros_like(batch.row_ids[own])
    sample = RowSample.from_rows(_SAMPLED, hashes, numbers, batch.features[:, own])
    return {"sample": sample, "counts": RowCounts.from_block(batch, part)}


def knots_of(values: np.ndarray, n_knots: int) -> list[float]:
    """Return the inner quantiles of values, at most so many, each between two values."""
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    levels = np.arange(1, n_knots + 1) / (n_knots + 1)
    found = np.unique(np.quantile(known, levels, method="inverted_cdf"))
    return found[(found > known.min()) & (found < known.max())].tolist()


def expanded(run: Run, form: RowForm, wanted: ExpandSection, plan: ColumnPlan) -> ColumnPlan:
    """Return a plan with knots of numbers, and flags of missing values; step ``expand``."""

    def find() -> dict[str, Any]:
        found = run.reduce(
            lambda *of: SummaryReader(
                form.source(plan, *of),
                "quantiles",
                partial(_sampled, form.seed),
                {"size": _SAMPLED},
            )
        )
        sample, counts = found["sample"].train(), found["counts"].train()
        knots = {
            column.name: knots_of(sample.values[column.start], wanted.splines)
            for column in plan.columns[: len(form.roles.features)]
            if column.levels is None
        }
        rows = {c.name: sample.values[c.start] for c in plan.columns if knots.get(c.name)}
        limits = {name: (np.nanmin(own), np.nanmax(own)) for name, own in rows.items()}
        missing = list(missing_by_source(plan, counts.n_missing)) if wanted.missing else []
        return {"knots": knots, "flagged": missing, "limits": limits}

    return plan.expanded(**run.step("expand", find))


# --- rows to fit ---------------------------------------------------------------------------------


def weights_of_classes(
    wanted: Mapping[str, float] | str, own: Sequence[float], names: Sequence[str]
) -> tuple[float, ...]:
    """Return what a row of each class weighs in fits, from what the rows of each weigh together."""
    if isinstance(wanted, str):  # balanced
        return tuple(sum(own) / (len(own) * weight) for weight in own)
    for name in wanted:
        if name not in names:
            raise SpecError(
                f"`sequence.class_weights` names {name!r}, which is not a class of the "
                f"target.{nearest(name, names)}"
            )
    return tuple(wanted.get(name, 1.0) for name in names)


@dataclass(frozen=True, eq=False)
class GlmReader:
    """What passes read and add up; a :class:`~distfms.methods.frame.passes.RowReader`."""

    source: RowSource
    design: GlmDesign
    outcome: Responses

    def read(self, partition: Partition) -> GlmRows | None:
        """Return the standardised training rows; None of held-out data."""
        if self.source.held_out:
            return None
        batch = self.source.read(partition)
        # Folds follow one another, and the held-out rows come last.
        *folds, test = batch.part_slices
        train = slice(0, test.start)
        fold = np.repeat(np.arange(len(folds)), [rows.stop - rows.start for rows in folds])
        weight = None if batch.weight is None else batch.weight[train]
        rows = JudgedRows(batch.features[:, train], batch.target[:, train], weight)
        return rows_to_fit(self.design, self.outcome, rows, fold)

    def sums(self, rows: GlmRows | None, models: Sequence[GlmModel]) -> Sums:
        """Add up over rows, for models side by side."""
        return Sums({}) if rows is None else self.design.sums(rows, models)


def rows_to_fit(
    design: GlmDesign, outcome: Responses, rows: JudgedRows, fold: np.ndarray
) -> GlmRows:
    """Return rows standardised; they weigh by their class, too."""
    weight = outcome.loss_weights(rows.target)
    if weight is None or rows.weight is None:
        weight = rows.weight if weight is None else weight
    else:
        weight = weight * rows.weight
    return design.rows(rows.features, outcome.response(rows.target), weight, fold)


def step_entries(plan: ColumnPlan, path: Path, explained: np.ndarray) -> list[dict[str, Any]]:
    """Return entries of ``selection.json`` for the steps of a path.

    `explained` (K + 1,) are the shares of the training rows.
    """
    source = {name: column.name for column in plan.columns for name in column.value_names}
    columns, spent = path.columns, path.spent
    details, fitted = path.step_details(), set(path.fitted.tolist())
    return [
        {
            "group": group,
            "columns": list(dict.fromkeys(source[name] for name in columns[k])),
            "cost": float(path.cost[k]),
            "spent": float(spent[k]),
            "explained_variance": float(explained[k + 1]),
            **{name: values[k].item() for name, values in details.items()},
            **({} if k + 1 in fitted else {"gain": None}),
        }
        for k, group in enumerate(path.groups)
    ]
