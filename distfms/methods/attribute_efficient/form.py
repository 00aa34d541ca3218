"""What is known of a job of attribute-efficient regression before any row is read; its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.batches import ColumnPlan, require_observed
from distfms.engine.memory import format_bytes
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.cells import (
    FULL_RIDGE,
    FULL_TREES,
    IMPUTED,
    MEAN,
    MIXED,
    PAIRS,
    SHARES,
    TREES,
)
from distfms.methods.attribute_efficient.draws import LARGEST_VALUE
from distfms.methods.attribute_efficient.learner import improvement_ratio
from distfms.methods.attribute_efficient.normal import MOST_OPERATIONS
from distfms.methods.attribute_efficient.options import (
    LARGEST_PAIRS,
    N_SIZES,
    AttributeEfficientOptions,
)
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, LEAST_FOLDS, PAIR_BYTES
from distfms.methods.attribute_efficient.read import row_bytes, statistics_reader
from distfms.methods.frame.contract import Inputs, Job
from distfms.methods.frame.read import sample_share
from distfms.methods.frame.row_data import RowForm
from distfms.methods.frame.rows import RowSource, plus_minus
from distfms.report.formatting import number
from distfms.spec import Grid
from distfms.stats.base import Members

#: Multiplications that take as long as one drawn attribute (measured: 0.1 µs at 6 · 10⁹ a second).
_DRAW = 600.0


def make_job(options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> Job:
    """Check options against columns, and say which solver ``auto`` stands for."""
    labelled = options.positive is not None
    option = "" if labelled else "`attribute_efficient.positive` to one of them"
    rows = RowForm.of(inputs, seed, class_option=option, coded_classes=(-1, 1))
    form = AttributeForm(**vars(rows), positive=options.positive)
    _check_roles(form)
    n_attributes = len(form.roles.features)
    has_gaps = inputs.section.missing == "pairs"
    options = options.of_attributes(n_attributes, has_gaps)
    n_rows = int(inputs.train.n_rows * (1.0 - inputs.section.test))
    if (options.first_examples or 0) >= n_rows:
        raise SpecError(
            f"`attribute_efficient.first_examples` is {options.first_examples:,}, but there are "
            f"{n_rows:,} training rows: leave some for the second phase."
        )
    if options.solves_pairs(n_attributes):
        return _pairs_job(form, options)
    if has_gaps:
        raise SpecError(
            "`data.missing: pairs` needs `attribute_efficient.solver: pairs`; the online learner "
            "takes error, drop or mean."
        )
    return form.job(
        "attribute_efficient",
        options := options.model_copy(update={"solver": "online"}),
        describe=partial(form.describe, options),
        judged_by={"mse": False},
        for_actors=partial(form.for_actors, options),
        passes=(2, 2),
    )


def _check_roles(form: AttributeForm) -> None:
    if len(form.roles.target) != 1:
        raise SpecError(
            "Attribute-efficient regression needs one column as `data.target`; there are "
            f"{len(form.roles.target)}."
        )
    if form.roles.weight is not None:
        raise SpecError(
            "Attribute-efficient regression does not weigh rows: leave `data.weight` out."
        )
    if form.roles.text_features:
        text = form.roles.text_features[0]
        raise SpecError(
            f"The column {text!r} holds text, and attributes are numbers here. Encode it, "
            f"or leave it out with `exclude: [{text}]`."
        )


def _pairs_job(form: AttributeForm, options: AttributeEfficientOptions) -> Job:
    d = len(form.roles.features)
    folds = form.inputs.section.folds
    if d > LARGEST_PAIRS:
        raise SpecError(
            "`attribute_efficient.solver: pairs` holds the moments of all pairs of at most "
            f"{LARGEST_PAIRS:,} attributes, and the data have {d:,}. Set `solver: online`, or use "
            "fewer attributes (`data.features`)."
        )
    form = replace(
        form,
        takes_gaps=form.inputs.section.missing == "pairs",
        chooses=options.solver == "auto",
        missing_said="Missing values count as not observed, and as missing at random",
    )
    n_parts = folds if folds >= LEAST_FOLDS else INNER_FOLDS * max(folds, 1)
    n_rows = form.inputs.train.n_rows
    n_bytes = PAIR_BYTES * (d + 1) ** 2 * n_parts + form.statistics_bytes
    n_bytes += int(sample_share(n_rows, d) * n_rows) * 8 * (d + 1)
    return form.job(
        "attribute_efficient",
        options := options.model_copy(update={"solver": "pairs"}),
        describe=lambda: {
            **form.describe(options),
            "moments of pairs": f"{format_bytes(n_bytes)} in memory",
        },
        statistics_bytes=n_bytes,
        judged_by={"mse": False},
        for_actors=partial(form.for_actors, options),
        candidates=form.candidates,
        passes=(2, 3),
        untunable=(
            "`tune` varies options of the online learner, and this job solves from pairs, which "
            "chooses its constants itself. Set `attribute_efficient.solver: online`."
        ),
    )


@dataclass(frozen=True, eq=False)
class AttributeForm(RowForm):
    """Rows of numbers with one target.

    Attributes
    ----------
    positive : float, optional
        Value of the target that is learned as 1; all others are −1.
    takes_gaps : bool
        Whether models are learned for rows with missing values as they are.
    chooses : bool
        Whether folds choose a mean of a linear model and LightGBM.
    """

    positive: float | None = None
    takes_gaps: bool = False
    chooses: bool = False

    def operations(self, options: AttributeEfficientOptions) -> float:
        """Return about how many multiplications it takes to read all rows and learn from them."""
        drawn = _DRAW * (options.attributes_per_example or 0)
        return self.inputs.train.n_rows * (drawn + row_bytes(len(self.roles.features)))

    def has_normal_model(self, options: AttributeEfficientOptions) -> bool:
        """Whether a normal model of all rows is learned, too, as these are few enough."""
        n = self.inputs.train.n_rows
        d = len(self.roles.features)
        n_operations = n * (options.attributes_per_example or d) * d**2
        few = n_operations <= MOST_OPERATIONS and sample_share(n, d) == 1.0
        return self.chooses and few and (options.penalty, options.units) == ("ridge", "deviations")

    def candidates(self, options: AttributeEfficientOptions) -> list[Grid]:
        """Return what folds choose from; see `Job.candidates`."""
        if not self.chooses:
            return []
        return [{"model": (MEAN,)}, {"model": ("linear",), "LightGBM's share": SHARES}]

    def compared(self, options: AttributeEfficientOptions) -> list[str]:
        """Return what folds compare: the chosen algorithm, and beside pairs what is as dear."""
        if options.solver == "online":
            return [options.chosen]
        names = [MIXED] if self.chooses else [PAIRS, TREES]
        if self.takes_gaps:
            return [names[0], IMPUTED, *names[1:]]
        if (options.attributes_per_example or 0) < len(self.roles.features):
            names += [FULL_RIDGE, FULL_TREES]
        return names

    def for_actors(self, options: AttributeEfficientOptions, n_tried: int = 1) -> dict[str, float]:
        """Return what actors may do; see `Job.for_actors`."""
        once = self.operations(options)
        n_learned = max(len(self.compared(options)), n_tried)
        folds = self.inputs.on_folds(n_learned * once)
        if options.solver == "pairs":
            return folds
        n_lessons = 1 + len(options.compared) * N_SIZES * options.repeats
        return {"chains": n_lessons * once, **folds}

    @property
    def statistics_bytes(self) -> int:
        """Size of one partial statistic, without pairs, in memory."""
        n_columns = len(self.roles.features) + 1
        return 56 * n_columns * (max(self.inputs.section.folds, 1) + 1)

    @cached_property
    def row_plan(self) -> ColumnPlan:
        """Which columns are read; it is known before data are."""
        return self.plan({})

    def labelled(self, dataset: Dataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        return replace(self.source(self.row_plan, dataset, held_out), positive=self.positive)

    @property
    def coded(self) -> Callable[[np.ndarray], np.ndarray]:
        """What learns the target as plus and minus one, where it is labels."""
        return np.asarray if self.positive is None else partial(plus_minus, self.positive)

    def check_values(self, train: Members) -> None:
        """Refuse rows that nothing can be learned from, by their moments and counts."""
        moments = train["moments"]
        require_observed(self.roles.features, moments.weight[:-1])
        target = self.roles.target[0]
        lowest = moments.minimum[-1]
        highest = moments.maximum[-1]
        if lowest == highest:
            label = "is the same" if self.positive is None else "has the same label"
            raise DataError(
                f"The target {target!r} {label} in all training rows: there is nothing to learn."
            )
        largest = np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))[:-1]
        if not largest.any():
            raise DataError("All attributes are 0 in all training rows: there is nothing to learn.")
        tiny = np.flatnonzero((largest > 0.0) & (largest < 1.0 / LARGEST_VALUE))
        if tiny.size:
            raise DataError(
                f"The column {self.roles.features[tiny[0]]!r} has values up to "
                f"{largest[tiny[0]]:.3g}, too small to be squared: multiply it by a constant, or "
                "leave it out (`data.exclude`)."
            )

    def describe(self, options: AttributeEfficientOptions) -> Mapping[str, str]:
        """Return what the job will do: label → text, from one partition of the data."""
        train = self.inputs.train
        drawn = options.attributes_per_example
        reader = statistics_reader(self.labelled(train, False))
        first = reader(train.partitions[0]).train()
        self.check_values(first)
        d = len(self.roles.features)
        attributes = f"{drawn} of {d} attributes" if drawn else "all that is there"
        lines = {
            "method": f"{options.penalty} from pairs of attributes, of {attributes} in each row"
        }
        if options.solver == "online":
            method = f"{options.chosen}: {options.penalty} from {attributes} of each example"
            lines = {"method": method}
        if drawn:
            most = f"at most {drawn * train.n_rows:,} of {d * train.n_rows:,} that the rows have"
            if options.scanned_for:
                most += f", after a pass over all for {options.scanned_for}"
            lines["attributes"] = most
        ratio = improvement_ratio(options.penalty, first["moments"].second_moment[:-1])
        lines["improvement ratio"] = (
            f"{number(ratio, 2)}: drawing by second moments saves up to a factor of "
            f"{number(1.0 / ratio, 2)} here (from the first {first['counts'].n_rows:,} rows)"
        )
        return {**lines, **self.first_values()}
