"""What is known of a job of group sequencing before any row is read, and its checks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.engine.memory import format_bytes
from distfms.engine.pool import NO_GAIN
from distfms.errors import SpecError
from distfms.methods.frame.contract import Inputs, Job
from distfms.methods.frame.mapped import MappedForm
from distfms.methods.frame.passes import Passes
from distfms.methods.frame.read import sample_share
from distfms.methods.frame.row_data import RowForm
from distfms.methods.sequence.options import (
    GAIN,
    N_SPLINES,
    TREES,
    ExpandSection,
    SequenceOptions,
    resolve_costs,
    resolve_groups,
)
from distfms.methods.sequence.problem import FeatureGroups
from distfms.methods.sequence.procedure import (
    FIRST_RIDGES,
    LARGER_RIDGES,
    RIDGES,
    search_operations,
)
from distfms.methods.sequence.rules import Rules
from distfms.methods.sequence.trees import require_trees
from distfms.solve.costs import GroupCosts
from distfms.spec import Grid

#: Rows and columns up to which a job compares its linear models with trees unless told otherwise.
MOST_ROWS, MOST_COLUMNS = 10**6, 10**3
#: Rows, and numbers in them, of the sample: the trees of `model: auto` are fitted to these.
SAMPLED_ROWS, SAMPLED_VALUES = 100_000, 20_000_000
#: Rows up to which folds choose by models without two of them; see `choose.chosen_without`.
FEW_ROWS = 1_000
#: Products in the co-moments of splines that make these take seconds, and of other families' fits.
_MOST_PRODUCTS, _MOST_OF_FITS = 1e11, 1e9
#: Largest statistics of splines that only put groups in order.
MOST_OF_SPLINES_BYTES = 256 * 2**20
NO_FOLDS = (
    "`sequence.threshold` is chosen on folds: set `data.folds` to at least 2, or give a "
    "probability."
)


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Check options against columns; with mapped files where memory is too small."""
    options = options.with_family(inputs.names_classes)
    if options.model == "auto":
        linear = make_job(options.model_copy(update={"model": "linear"}), inputs, seed)
        if why := _why_linear(linear):
            model = f"linear: `sequence.model: auto` {why}"
            return replace(linear, describe=lambda: {**linear.describe(), "model": model})
    form = SequenceForm.of_options(options, inputs, seed)
    is_open = options.model == "auto"  # linear models are compared with most others
    kind = options.model_copy(update={"model": "linear"}) if is_open else options
    rules = Rules.of(kind, form.costs)
    if TREES in (options.baselines or ()):
        require_trees({}, len(form.roles.target))
    if options.criterion == GAIN and (options.model != TREES or not form.has_reference):
        raise SpecError(
            "`sequence.criterion: gain` is for `model: lightgbm`, and needs folds or held-out rows "
            "(`data.folds`, `data.test`)."
        )
    if options.family != "gaussian" and rules.has_lasso:
        raise SpecError(
            "The baseline `sparse` is a lasso of the squared loss, for the family `gaussian`; "
            f"`sequence.family` is `{options.family}`. Leave it out of `sequence.baselines`."
        )
    if options.by_statistics:
        form = _with_files(form, rules)
    else:
        _check_models(form)
    return form.job(
        "sequence",
        options,
        nested="max_groups",
        describe=partial(form.describe, rules),
        judged_by=form.judged_by,
        kept_bytes=None if form.mapped is None else form.mapped.file_bytes,
        weighs_partitions=options.by_statistics and form.mapped is None,
        folds_cost=not options.by_statistics,
        for_actors=partial(form.for_actors, len(rules.searched)),
        candidates=form.candidates,
        n_pairs=form.n_pairs,
        passes=form.passes,
    )


def _with_files(form: SequenceForm, rules: Rules) -> SequenceForm:
    """Return the form of models of co-moments, in mapped files where these are large."""
    needed = form.one_process_bytes
    n_columns = form.guessed_columns + len(form.roles.target)
    files = MappedForm.of(form.inputs, n_columns, needed, form.models_bytes)
    if files is not None and rules.has_lasso:
        raise SpecError(
            "The baseline `sparse` needs the products of all columns in memory, where the job "
            f"takes about {format_bytes(needed)}. Leave it out of `sequence.baselines`, or use "
            "fewer columns (`data.features`)."
        )
    return replace(form, mapped=files)


def _why_linear(linear: Job) -> str:
    """Say why a job with linear models is not compared with one of trees, if it is not."""
    if linear.n_folds < 2:
        return "compares on folds (`data.folds`)"
    if len(linear.form.roles.target) > 1:
        return "compares models of one target"
    if linear.inputs.by_age:
        return "fits no trees to rows that count less with age (`retrain.forget.half_life`)"
    if not linear.form.is_small:
        return f"compares up to {MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns"
    return ""


def _check_models(form: SequenceForm) -> None:
    """Refuse what models that rows are read for cannot do."""
    options = form.options
    n_targets = len(form.roles.target)
    if options.model != "linear":
        require_trees(options.lightgbm, n_targets)
    if not isinstance(options.threshold, float) and form.inputs.section.folds < 2:
        raise SpecError(NO_FOLDS)
    for name, default in (("class_weights", None), ("threshold", 0.5)):
        if getattr(options, name) != default and not form.has_classes:
            raise SpecError(f"`sequence.{name}` needs one target of classes.")
    if n_targets > 1 and (form.roles.text_targets or options.family == "softmax"):
        raise SpecError(f"Classes need a single target; `data.target` names {n_targets}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceForm(RowForm):
    """Rows whose features are in groups that have costs.

    Attributes
    ----------
    options : SequenceOptions
        As the spec has them.
    groups : FeatureGroups
    costs : GroupCosts
    mapped : MappedForm, optional
        Where the statistics are in mapped files.
    """

    options: SequenceOptions
    groups: FeatureGroups
    costs: GroupCosts
    mapped: MappedForm | None = None

    @classmethod
    def of_options(cls, options: SequenceOptions, inputs: Inputs, seed: int) -> SequenceForm:
        """Resolve roles, groups and costs.

        Raises
        ------
        SpecError, DataError
        """
        rows = RowForm.of(inputs, seed, classes=options.family in ("logistic", "softmax"))
        groups = resolve_groups(rows.roles.features, options.groups)
        notes = {}
        if options.family == "gaussian" and rows.roles.query is None:
            notes["class_option"] = "`sequence.family: softmax` (or `logistic`, for two)"
        if options.model != "linear":
            notes["missing_said"] = (
                "Missing values replaced with the mean while groups are put in order"
            )
        costs = resolve_costs(groups.names, options.costs, options.shared_costs, options.requires)
        return cls(**vars(rows) | notes, options=options, groups=groups, costs=costs)

    @property
    def has_classes(self) -> bool:
        """Whether the target holds classes."""
        return self.options.family in ("logistic", "softmax") and len(self.roles.target) == 1

    @property
    def stops_rows(self) -> bool:
        """Whether it is learned where each row should stop."""
        return self.has_classes and self.inputs.section.folds > 1

    @property
    def has_reference(self) -> bool:
        """Whether boosted trees on all columns are fitted, to compare with."""
        options = self.options
        section = self.inputs.section
        is_wanted = options.model == "auto" or TREES in (options.baselines or ())
        if options.model == TREES and section.folds > 1:
            is_wanted |= options.criterion in (None, GAIN)
        if options.model == "linear" and options.baselines is None:
            is_wanted = self.is_small and len(self.roles.target) == 1
        has_other_rows = bool(section.folds > 1 or section.test or self.inputs.test)
        return is_wanted and has_other_rows and not self.inputs.by_age

    @property
    def sample_share(self) -> float:
        """Share of the rows that are kept in memory for knots, trees, other fits; 0 for none."""
        is_of_one = len(self.roles.target) == 1
        is_wanted = is_of_one and (self.has_reference or not self.options.by_statistics)
        if not is_wanted and not self.has_derived:
            return 0.0
        n_rows = self.inputs.train.n_rows * (1 - self.inputs.section.test)
        n_features = len(self.roles.features)
        return sample_share(n_rows, n_features, SAMPLED_ROWS, SAMPLED_VALUES)

    @property
    def has_derived(self) -> bool:
        """Whether columns are to be derived whatever the folds say."""
        expand = self.options.expand
        return isinstance(expand, ExpandSection) and expand != ExpandSection()

    @property
    def is_in_memory(self) -> bool:
        """Whether all rows are kept in memory, and count alike whatever their age."""
        return self.sample_share >= 1.0 and not self.inputs.by_age

    @property
    def n_pairs(self) -> int:
        """Pairs of folds without which candidates are fitted, too, where rows are few; else 0."""
        section = self.inputs.section
        is_few = self.inputs.train.n_rows * (1 - section.test) <= FEW_ROWS
        is_there = self.is_in_memory or self.options.by_statistics
        if section.folds < 3 or not (is_few and is_there):
            return 0
        return math.comb(section.folds, 2)

    @property
    def is_small(self) -> bool:
        """Whether boosted trees on all columns take seconds."""
        is_wide = len(self.roles.features) > MOST_COLUMNS
        return self.inputs.train.n_rows <= MOST_ROWS and not is_wide

    @property
    def expand(self) -> ExpandSection:
        """Columns to derive; with `auto` those of splines, where models may be these.

        Their statistics stay small.
        """
        options = self.options
        n_features = len(self.roles.features)
        if options.expand != "auto":
            return options.expand or ExpandSection()
        splines = ExpandSection(splines=N_SPLINES)
        n_columns = n_features * (1 + splines.splines)
        is_small = 8 * n_columns**2 * self.inputs.n_parts <= MOST_OF_SPLINES_BYTES
        return splines if is_small and options.model == "auto" else ExpandSection()

    @property
    def compares_splines(self) -> bool:
        """Whether folds compare splines: of all rows in memory, where it takes seconds."""
        is_asked = self.options.expand == "auto" and self.expand.splines > 0
        n_products = self.inputs.train.n_rows * float(self.guessed_columns) ** 2
        most = _MOST_PRODUCTS if self.options.family == "gaussian" else _MOST_OF_FITS
        return is_asked and self.sample_share >= 1.0 and n_products <= most

    @property
    def guessed_widths(self) -> dict[str, int]:
        """Rows of a batch of each feature, before they are known."""
        expand = self.expand
        flags = int(expand.missing and self.inputs.section.missing == "mean")
        texts = self.roles.text_features
        widths = super().guessed_widths.items()
        return {n: width + flags + (0 if n in texts else expand.splines) for n, width in widths}

    def describe(self, rules: Rules) -> dict[str, str]:
        """Return what the job will do: label → text."""
        low = self.costs.alone.min()
        high = self.costs.alone.max()
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        groups = f"{len(self.groups)} ({price} each"
        if self.options.shared_costs:
            groups += f", {len(self.options.shared_costs)} costs shared"
        if self.costs.requires:
            groups += f", {len(self.costs.requires)} computed from others"
        columns = str(len(self.roles.features))
        if self.roles.text_features:
            columns += f", {len(self.roles.text_features)} of them categorical"
        if self.expand != ExpandSection():
            columns += f", expanded to about {self.guessed_columns:,}"
        baselines = [rule.name for rule in rules.baselines]
        if self.has_reference:
            baselines.append(TREES)
        lines = {
            "method": f"feature-group sequencing, {rules.chosen.name}",
            "target": ", ".join(self.roles.target),
            **self.first_values(),
            "columns": columns,
            "groups": f"{groups})",
            "baselines": ", ".join(baselines) or "none",
            "budgets": ", ".join(f"{rule.budget:g}" for rule in rules.of_budgets) or "none",
        }
        if self.mapped is not None:
            lines |= self.mapped.describe()
        return lines if self.options.by_statistics else lines | self._models_in_words()

    def candidates(self, options: SequenceOptions) -> list[Grid]:
        """Return what folds choose from; see `Job.candidates`."""
        is_gaussian = options.family == "gaussian"
        tried = RIDGES if is_gaussian else LARGER_RIDGES + FIRST_RIDGES
        ridges: dict[str, Any] = {}
        if options.ridge == "auto" and (is_gaussian or self.inputs.section.folds > 1):
            ridges["ridge"] = tried
        criteria = ("fr", GAIN) if options.criterion is None else (options.criterion,)
        if options.model == TREES:
            return [{"criterion": criteria}] if len(criteria) > 1 else []
        if options.model == "linear":
            return [ridges] if ridges else []
        grids: list[Grid] = [{"model": ("linear",), **ridges}]
        if self.compares_splines:
            grids.append({"model": ("linear",), "splines": (N_SPLINES,), **ridges})
        grids.append({"model": (TREES,), "criterion": criteria})
        return grids

    @property
    def passes(self) -> tuple[int, int | None]:
        """Fewest and most passes over the rows; see `Job.passes`."""
        fewest = 1 + bool(self.roles.text_features or self.roles.text_targets)
        if self.mapped is not None:
            fewest += self.mapped.n_passes - (not self.sample_share)
        if self.options.family != "gaussian" and not self.is_in_memory:
            return fewest + 1, None
        # Columns with knots, and all that statistics do not tell.
        return fewest, fewest + self.has_derived + 1

    def for_actors(self, n_rules: int, n_tried: int = 1) -> dict[str, float]:
        """Return what actors may do; see `Job.for_actors`."""
        if self.options.family != "gaussian":
            n_values = self.guessed_columns + len(self.roles.target) + 1
            n_operations = Passes.n_operations(n_values * self.inputs.train.n_rows)
            return {} if self.is_in_memory else {"passes": n_operations}
        if self.options.model == TREES:
            return {}
        if self.mapped is not None:
            return {"candidates": NO_GAIN}
        of_rule = search_operations(self.guessed_columns, len(self.groups), self.max_groups)
        return {"candidates": NO_GAIN, **self.inputs.on_folds(max(n_rules, n_tried) * of_rule)}

    def _models_in_words(self) -> dict[str, str]:
        """Return the same of models that are fitted to rows."""
        n_folds = self.inputs.section.folds
        n_values = self.guessed_columns + len(self.roles.target) + 1
        kinds = {"linear": "", TREES: "LightGBM, ", "auto": "linear, LightGBM or splines, "}
        model = f"{kinds[self.options.model]}{self.options.family}"
        if n_folds > 1:
            model += f", also without each of {n_folds} folds"
        return {"model": model, "rows": Passes.describe(8 * n_values * self.inputs.train.n_rows)}

    @property
    def judged_by(self) -> dict[str, bool]:
        """Measures of held-out rows; see `Job.judged_by`."""
        if self.options.by_statistics:
            return {"mse": False, "r2": True}
        return {"accuracy": True, "mse": False} if self.has_classes else {"mse": False}

    @property
    def statistics_bytes(self) -> int:
        """Size of one partial statistic in memory."""
        return super().statistics_bytes if self.mapped is None else self.mapped.statistics_bytes

    # --- how large a job in one process is ---

    @property
    def max_groups(self) -> int:
        """Most groups of a sequence."""
        return min(self.options.max_groups or len(self.groups), len(self.groups))

    @property
    def group_widths(self) -> list[int]:
        """Rows of a batch of each group, before they are known."""
        guessed = np.array(list(self.guessed_widths.values()))
        return [int(guessed[list(columns)].sum()) for columns in self.groups.columns]

    @property
    def models_bytes(self) -> int:
        """What the models of all prefixes take, and the Cholesky factor of the last."""
        n_numbers = 3 * (self.max_groups + 1) * self.guessed_columns * len(self.roles.target)
        widest = sorted(self.group_widths, reverse=True)
        return 8 * (n_numbers + 4 * sum(widest[: self.max_groups]) ** 2)

    @property
    def one_process_bytes(self) -> int:
        """What the job in one process holds: statistics twice, and models of all prefixes."""
        section = self.inputs.section
        matrices = 3 if section.missing == "mean" else 1
        n_matrices = 2 * matrices * (max(section.folds, 1) + 1) + matrices + 3
        n_targets = len(self.roles.target)
        models = 3 * (self.max_groups + 1) * self.guessed_columns * n_targets
        return 8 * (n_matrices * (self.guessed_columns + n_targets) ** 2 + models)
