"""What is known of a job of group sequencing before any row is read, and its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from distfms.engine.memory import format_bytes
from distfms.errors import SpecError
from distfms.methods.frame import mapped
from distfms.methods.frame.contract import NO_GAIN, Grid, Inputs, Job
from distfms.methods.frame.mapped import MATRICES_WITH_GAPS, MappedForm
from distfms.methods.frame.moments import actors_on_moments
from distfms.methods.frame.passes import operations_of_passes, said_rows
from distfms.methods.frame.read import sample_share
from distfms.methods.frame.row_data import LEVELS_GUESSED, RowForm, names_classes
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
from distfms.methods.sequence.procedure import FIRST_RIDGES, RIDGES, search_operations
from distfms.methods.sequence.rules import Rules
from distfms.methods.sequence.trees import require_trees
from distfms.solve.costs import GroupCosts

#: Rows and columns up to which a job compares its linear models with trees unless told otherwise.
MOST_ROWS, MOST_COLUMNS = 10**6, 10**3
#: Rows, and numbers in them, of the sample: the trees of `model: auto` are fitted to these.
SAMPLED_ROWS, SAMPLED_VALUES = 100_000, 20_000_000
#: Largest statistics of splines that only put groups in order.
MOST_OF_SPLINES_BYTES = 256 * 2**20
NO_FOLDS = (
    "`sequence.threshold` is chosen on folds: set `data.folds` to at least 2, or give a "
    "probability."
)


def make_job(options: SequenceOptions, inputs: Inputs, seed: int) -> Job:
    """Check options against columns; with mapped files where memory is too small."""
    options = options.with_family(names_classes(inputs))
    if options.model == "auto":
        linear = make_job(options.model_copy(update={"model": "linear"}), inputs, seed)
        if why := _why_linear(linear):
            model = f"linear: `sequence.model: auto` {why}"
            return replace(linear, describe=lambda: {**linear.describe(), "model": model})
    form = SequenceForm.of_options(options, inputs, seed)
    rules = Rules.of(options, form.costs)
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
    if not options.by_statistics:
        _check_models(form)
        facts: dict[str, Any] = {
            "describe": partial(form.describe_models, rules),
            "judged_by": {"accuracy": True, "mse": False} if form.has_classes else {"mse": False},
            "folds_cost": True,
            "for_actors": partial(form.for_actors, rules),
        }
    else:
        form, facts = _by_statistics(form, rules)
    return form.job("sequence", options, candidates=form.candidates, passes=form.passes, **facts)


def _by_statistics(form: SequenceForm, rules: Rules) -> tuple[SequenceForm, dict[str, Any]]:
    """Return what is special of models of co-moments, in mapped files where these are large."""
    needed = form.one_process_bytes
    facts: dict[str, Any] = {"judged_by": {"mse": False, "r2": True}}
    if not needed > mapped.ONE_PROCESS_BYTES >= form.models_bytes:
        facts["describe"] = partial(form.describe, rules)
        facts["weighs_partitions"] = True
        facts["for_actors"] = partial(form.for_actors_of_one, len(rules.searched))
        return form, facts
    if rules.has_lasso:
        raise SpecError(
            "The baseline `sparse` needs the products of all columns in memory, where the job "
            f"takes about {format_bytes(needed)}. Leave it out of `sequence.baselines`, or use "
            "fewer columns (`data.features`)."
        )
    files = MappedForm(
        n_columns=form.guessed_columns + len(form.roles.target),
        n_parts=form.inputs.n_parts,
        n_matrices=MATRICES_WITH_GAPS if form.inputs.section.missing == "mean" else 1,
        one_process_bytes=needed,
    )
    facts["describe"] = lambda: {**form.describe(rules), **files.describe()}
    facts["statistics_bytes"] = files.statistics_bytes
    facts["kept_bytes"] = files.file_bytes
    facts["for_actors"] = lambda: {"candidates": NO_GAIN}
    return replace(form, mapped=files), facts


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
        wanted = options.model == "auto" or TREES in (options.baselines or ())
        if options.model == TREES and section.folds > 1:
            wanted |= options.criterion in (None, GAIN)
        if options.model == "linear" and options.baselines is None:
            wanted = self.is_small and len(self.roles.target) == 1
        has_other_rows = bool(section.folds > 1 or section.test or self.inputs.test)
        return wanted and has_other_rows and not self.inputs.by_age

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
    def guessed_widths(self) -> dict[str, int]:
        """Rows of a batch of each feature, before they are known."""
        expand = self.expand
        flags = int(expand.missing and self.inputs.section.missing == "mean")
        texts = self.roles.text_features
        return {
            name: flags + (LEVELS_GUESSED if name in texts else 1 + expand.splines)
            for name in self.roles.features
        }

    @property
    def guessed_columns(self) -> int:
        """Number of rows of features in a batch, before they are known."""
        return sum(self.guessed_widths.values())

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
        return {
            "method": f"feature-group sequencing, {rules.chosen.name}",
            "target": ", ".join(self.roles.target),
            **self.first_values(),
            "columns": columns,
            "groups": f"{groups})",
            "baselines": ", ".join(baselines) or "none",
            "budgets": ", ".join(f"{rule.budget:g}" for rule in rules.of_budgets) or "none",
        }

    def candidates(self, options: SequenceOptions) -> list[Grid]:
        """Return what folds choose from; see `Job.candidates`."""
        is_gaussian = options.family == "gaussian"
        ridges: Grid = {}
        if options.ridge == "auto" and (is_gaussian or self.inputs.section.folds > 1):
            ridges = {"ridge": RIDGES if is_gaussian else FIRST_RIDGES}
        criteria = ("fr", GAIN) if options.criterion is None else (options.criterion,)
        if options.model == TREES:
            return [{"criterion": criteria}] if len(criteria) > 1 else []
        if options.model == "linear":
            return [ridges] if ridges else []
        return [
            {"model": ("linear",), **ridges},
            {"model": ("linear",), "splines": (N_SPLINES,), **ridges},
            {"model": (TREES,), "criterion": criteria},
        ]

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

    def for_actors(self, rules: Rules) -> dict[str, float]:
        """Return what actors may do for models that are fitted to rows; see `Job.for_actors`."""
        if self.options.family == "gaussian":
            if self.options.model == TREES:
                return {}
            return self.for_actors_of_one(len(rules.searched))
        if self.is_in_memory:
            return {}
        n_values = self.guessed_columns + len(self.roles.target) + 1
        return {"passes": operations_of_passes(n_values * self.inputs.train.n_rows)}

    def describe_models(self, rules: Rules) -> Mapping[str, str]:
        """Return the same of a job whose models are fitted to rows."""
        options = self.options
        n_folds = self.inputs.section.folds
        n_values = self.guessed_columns + len(self.roles.target) + 1
        rows = said_rows(8 * n_values * self.inputs.train.n_rows)
        kinds = {"linear": "", TREES: "LightGBM, ", "auto": "linear, LightGBM or splines, "}
        model = f"{kinds[options.model]}{options.family}"
        if n_folds > 1:
            model += f", also without each of {n_folds} folds"
        return {**self.describe(rules), "model": model, "rows": rows}

    # --- how large a job in one process is ---

    @property
    def max_groups(self) -> int:
        """Most groups of a sequence."""
        return min(self.options.max_groups or len(self.groups), len(self.groups))

    @property
    def group_widths(self) -> list[int]:
        """Rows of a batch of each group, before they are known."""
        guessed = list(self.guessed_widths.values())
        return [sum(guessed[column] for column in group) for group in self.groups.columns]

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

    def for_actors_of_one(self, n_rules: int) -> dict[str, float]:
        """Return what actors may do where statistics are in one process; see `Job.for_actors`."""
        of_rule = search_operations(self.guessed_columns, len(self.groups), self.max_groups)
        n_folds = self.inputs.section.folds
        return {"candidates": NO_GAIN, **actors_on_moments(n_folds, n_rules, of_rule)}
