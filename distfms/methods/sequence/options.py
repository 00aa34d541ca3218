"""The ``sequence`` section of a job spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, Strict, ValidationInfo, field_validator

from distfms.errors import SpecError, nearest
from distfms.methods.sequence.problem import FeatureGroups, Ladder
from distfms.solve.cholesky import CRITERIA
from distfms.solve.costs import GroupCosts, SharedCost
from distfms.spec import Listed, NonNegative, Section, expand_variables


def resolve_groups(
    column_names: Sequence[str], groups: Mapping[str, Sequence[str]] | str | None = None
) -> FeatureGroups:
    """Turn the groups of a job spec into a partition of the data's columns.

    Names and globs (``bp_*``) stand for columns. Those that no group names are groups of their own;
    they follow in order. A separator puts columns together by the part of their name before it.
    Overlaps and names that match nothing are SpecErrors.
    """
    columns = dict.fromkeys(column_names)  # in order, and quick to look up where there are many
    owner: dict[str, str] = {}
    named: dict[str, Sequence[str]] = {}
    if isinstance(groups, str):
        owner = {column: column.split(groups, 1)[0] for column in column_names}
    elif groups is not None:
        named = dict(groups)
    for group, patterns in named.items():
        problem = f"of group {group!r} is not a feature column"
        of_group = _all_matches(patterns, columns, problem)
        if not of_group:
            raise SpecError(f"Group {group!r} has no columns.")
        for column in of_group:
            if column in owner:
                raise SpecError(
                    f"Column {column!r} is in group {owner[column]!r} and in group {group!r}; "
                    "groups must not overlap, because a column is computed, and paid for, once."
                )
        owner |= dict.fromkeys(of_group, group)
    members: dict[str, list[int]] = {group: [] for group in named}
    for position, column in enumerate(column_names):
        if column in named and column not in owner:
            raise SpecError(
                f"Column {column!r} is in no group and would make a group of its own, but the "
                "spec has a group of that name: rename the group or list the column in one."
            )
        members.setdefault(owner.get(column, column), []).append(position)
    return FeatureGroups(tuple(members), tuple(map(tuple, members.values())))


def resolve_costs(
    names: Sequence[str],
    costs: Mapping[str, float] | None = None,
    shared: Mapping[str, SharedCostSection] | None = None,
    requires: Mapping[str, Sequence[str]] | None = None,
) -> GroupCosts:
    """Costs of named groups from a job spec.

    An exact name goes before a glob; ``default`` is the cost of the groups not named, 1 if left
    out. A group that requires others and is not named costs nothing beside them.
    """
    costs = dict(costs or {})
    if "default" in costs and "default" in names:
        raise SpecError("A group is named 'default', which in costs means every other group.")
    prices = np.full(len(names), float(costs.pop("default", 1.0)))
    by_glob: dict[str, str] = {}
    position = {name: group for group, name in enumerate(names)}
    for pattern, value in sorted(costs.items(), key=lambda item: item[0] in position):
        for name in _matches(pattern, position, "in costs is not a group"):
            if name != pattern and name in by_glob:
                raise SpecError(
                    f"The cost of group {name!r} is given by {by_glob[name]!r} and by "
                    f"{pattern!r}; give it by its name."
                )
            by_glob[name] = pattern
            prices[position[name]] = value
    required = _required(position, requires or {})
    prices[[group for group in required if names[group] not in by_glob]] = 0.0
    shared_costs = []

    def share(name: str, groups: set[int], cost: float) -> None:
        """Let groups share a cost, and all that are computed from these."""
        needing = {group for group, needed in required.items() if groups.intersection(needed)}
        shared_costs.append(SharedCost(name, tuple(sorted(groups | needing)), cost))

    for name, item in (shared or {}).items():
        problem = f"in shared cost {name!r} is not a group"
        of_cost = _all_matches(item.groups, position, problem)
        share(name, {position[group] for group in of_cost}, item.cost)
    # What a group costs is shared by all that are computed from it.
    for group in sorted(set(chain(*required.values()))):
        share(names[group], {group}, prices[group])
        prices[group] = 0.0
    return GroupCosts(prices, tuple(shared_costs), required)


def _required(
    position: Mapping[str, int], requires: Mapping[str, Sequence[str]]
) -> dict[int, tuple[int, ...]]:
    """Find what groups are computed from, directly or not, in the order of computation."""
    problem = "in `sequence.requires` is not a group"
    direct = dict[str, list[str]]()
    for name, patterns in requires.items():
        for group in _matches(name, position, problem):
            direct[group] = _all_matches(patterns, position, problem)
    try:
        order = list(TopologicalSorter(direct).static_order())
    except CycleError as error:
        listed = " → ".join(map(repr, error.args[1]))
        raise SpecError(f"Groups in `sequence.requires` require one another: {listed}.") from error
    needed: dict[str, tuple[str, ...]] = {}
    for name in order:
        sources = direct.get(name, ())
        of_sources = chain(*(needed[source] for source in sources))
        needed[name] = tuple(dict.fromkeys([*of_sources, *sources]))
    required = {}
    for name in direct:
        required[position[name]] = tuple(position[group] for group in needed[name])
    return required


def _matches(pattern: str, names: Collection[str], problem: str) -> list[str]:
    """Find what one name or glob stands for; `problem` says what it is no name of."""
    if pattern in names:  # first, so that a name with brackets in it is not read as a glob
        return [pattern]
    matching = [name for name in names if fnmatchcase(name, pattern)]
    if not matching:
        raise SpecError(f"{pattern!r} {problem}.{nearest(pattern, names)}")
    return matching


def _all_matches(patterns: Sequence[str], names: Collection[str], problem: str) -> list[str]:
    """Find what names or globs stand for, each once."""
    matches = dict[str, None]()
    for pattern in patterns:
        matches |= dict.fromkeys(_matches(pattern, names, problem))
    return list(matches)


ORACLE = "oracle"
"""The steps of a sequence by their gain per cost; see `evaluate.oracle_curve`."""

TREES = "lightgbm"
"""Name of the baseline that is no order of groups."""

GAIN = "gain"
"""Criterion that boosted trees on all columns know."""

N_SPLINES = 5
"""Knots of a number where ``expand`` is ``auto``."""

OTHERS = (ORACLE, "random", "sparse", TREES)
"""Baselines that are no variant of a criterion."""

_BLIND, _DOUBLING = "-blind", "-doubling"


@dataclass(frozen=True)
class OrderRule:
    """How groups are put in order: by a criterion, or as one of `OTHERS`.

    With a `budget` it finds a set for this cost instead; see :func:`greedy.best_set`. The oracle of
    another rule is `oracle_of` that.
    """

    criterion: str
    cost_aware: bool = True
    doubling: bool = False
    budget: float | None = None
    oracle_of: OrderRule | None = None

    @property
    def name(self) -> str:
        """Name in specs and results: ``fr``, ``fr-blind``, ``omp-doubling``, ``oracle:fr``, …."""
        if self.oracle_of is not None:
            return f"{ORACLE}:{self.oracle_of.name}"
        if self.budget is not None:
            return f"budget-{self.budget!r}"
        blind = "" if self.cost_aware else _BLIND
        return self.criterion + blind + (_DOUBLING if self.doubling else "")


def parse_rule(name: str) -> OrderRule:
    """Rule of a name."""
    if name in OTHERS:
        return OrderRule(name)
    base = name.removeprefix(f"{ORACLE}:")
    if base != name and not base.startswith(ORACLE):
        return OrderRule(ORACLE, oracle_of=parse_rule(base))
    single = name.removesuffix(_DOUBLING)
    criterion = single.removesuffix(_BLIND)
    rule = OrderRule(criterion, criterion == single, single != name)
    if criterion not in CRITERIA:
        names = ", ".join((*CRITERIA, *OTHERS))
        raise SpecError(
            f"Unknown rule `{name}`; choose from {names}; the first four also with the endings "
            f"{_BLIND} and {_DOUBLING}; or `{ORACLE}:` and a rule."
        )
    return rule


Family = Literal["auto", "gaussian", "logistic", "softmax", "poisson"]


class SharedCostSection(Section):
    """A cost that the first computed group of a set pays for the whole set."""

    groups: Annotated[Listed[str], Field(min_length=1)]
    """Names or globs of groups."""
    cost: NonNegative
    """Paid once, in addition to the groups' own costs."""


class ExpandSection(Section):
    """Columns to derive within each group, at no extra cost.

    Levels are indicators anyway.
    """

    splines: Annotated[int, Field(ge=0)] = 0
    """Knots of each number, at quantiles of a sample of the training rows: a number x becomes the
    piecewise linear functions x and max(0, x − knot), of x cut to the range of the sample.
    """
    missing: bool = False
    """Add an indicator of missing values to columns that have any (with `data.missing: mean`)."""


class SequenceOptions(Section):
    """Groups, their costs, and the rule that orders them."""

    groups: dict[str, Listed[str]] | Annotated[str, Field(min_length=1)] = Field(
        default_factory=dict
    )
    """Names or globs of the columns of each group. Every other column is its own group. Or a
    separator: columns are grouped by the part of their name before it.
    """
    costs: dict[str, NonNegative] = Field(default_factory=dict)
    """Cost by name or glob of groups; `default` for the rest (1). Free groups come first. Or the
    path of a table, CSV or Parquet, with the columns `group` and `cost`, which the resolved spec
    has in place of it.
    """
    shared_costs: dict[str, SharedCostSection] = Field(default_factory=dict)
    """Named costs that several groups share: `{groups: [...], cost: 5}`."""
    requires: dict[str, Listed[str]] = Field(default_factory=dict)
    """Groups that are computed from others: `{fti: [tt4, t4u]}`. Such a group costs those of the
    others that are not bought yet, plus its own entry in `costs`.
    """
    expand: ExpandSection | Literal["auto"] | None = "auto"
    """Derived columns, for models that are not linear in the data. `auto`: splines of five knots
    where `model: auto` finds them better, none otherwise.
    """
    criterion: Literal["fr", "omp", "omp-single", "omp-no-whiten", "gain"] | None = None
    """What each step maximises: `fr` (the default), the gain in explained variance, for families
    other than `gaussian` that of the squared loss about the model of no group; or the gradient of
    the current model, whitened within the group (`omp`), its largest entry (`omp-single`) or its
    length (`omp-no-whiten`). `gain`, for LightGBM, is what LightGBM on all columns gains by those
    of the group. For LightGBM the default is the better of `fr` and `gain`, in cross-validation.
    """
    cost_aware: bool = True
    """Maximise the criterion per cost."""
    doubling: bool = False
    """Choose only among groups that cost at most the cost spent so far."""
    ridge: NonNegative | Literal["auto"] = "auto"
    """λ of linear models, in units of the standardised columns. `auto`: of 1000 (nearly the mean)
    down to 1e-5 the best in cross-validation (once, before `tune`), on average over budgets of 5 to
    100% of the cost for the family `gaussian`, for all columns for others; without `data.folds` by
    generalised cross-validation (`gaussian`), or 1e-5.
    """
    family: Family = "auto"
    """Target: a number (`gaussian`), one of two classes (`logistic`), one of several (`softmax`; of
    two it is `logistic`) or a count (`poisson`). `auto`: classes where the target holds texts, or
    `class_weights` or a `threshold` are set, otherwise a number.
    """
    model: Literal["linear", "lightgbm", "auto"] = "auto"
    """Model of a prefix. Linear models, or those of splines (`expand`), decide the order of the
    groups, unless `criterion` is `gain`. `lightgbm` needs one target, and takes missing values and
    categories as LightGBM does. `auto`: the best in cross-validation of `linear`, linear models of
    splines (with `expand: auto`, where the sample is all rows and these take seconds) and
    `lightgbm` (on a sample of up to 100,000 rows and 20 million numbers), on average over
    budgets of 5 to 100% of the cost. One that is behind another on all columns by more than two
    standard errors, paired by fold, is out before. `linear` for several targets, without
    `data.folds`, and for more than 10⁶ rows or 10³ columns.
    """
    lightgbm: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Parameters of LightGBM, such as `num_leaves`. Without `num_iterations` the models of a prefix
    have the number of trees, at most 300, that is best for one fold of the training rows when they
    are fitted to the others. `num_leaves` is 15, and with more than 50 columns `max_bin` 63.
    """
    class_weights: dict[str, NonNegative] | Literal["balanced"] | None = None
    """Weights of rows by class (default 1) in fits and deviances of `logistic` and `softmax`, or
    `balanced` for the same total weight of every class. Other measures do not weigh rows. The class
    whose probability times its weight is largest is predicted; probabilities themselves are of
    classes as frequent as in the training rows, as the weights are taken off the intercepts.
    """
    threshold: (
        Annotated[float, Field(gt=0, lt=1)]
        | Literal["f1", "balanced"]
        | dict[Literal["cost"], Annotated[tuple[NonNegative, NonNegative], Strict(False)]]
    ) = 0.5
    """Smallest probability at which the second of two classes is predicted (0.5 with
    `class_weights`: where these make it as likely as the first). Or what to optimise on the folds:
    `f1` of the second class, `balanced` accuracy, or the cost of errors: with `{cost: [1, 20]}`, a
    false alarm costs 1 and a missed row of the second class 20.
    """
    baselines: Listed[str] | None = None
    """A criterion with the endings `-blind` (costs play no part) and `-doubling`, or `oracle`,
    `random`, `sparse` (the order in which groups enter a cost-weighted group lasso; for the family
    `gaussian`, and left out where `auto` finds classes); and `lightgbm`, boosted trees on all
    columns, fitted to about 100,000 rows at most and judged on these by the folds, and on all
    held-out rows. `oracle:omp` is the oracle of `omp`, which is then compared too;
    `oracle` that of the chosen rule. Left out: `omp`, `fr-blind` (where costs differ) and `oracle`,
    for families other than `gaussian` `oracle`; and for one target, up to 10⁶ rows and 10³ columns,
    `lightgbm`.
    """
    budgets: Listed[NonNegative] | Literal["auto"] = ()
    """Also find the best set of groups for each of these costs: the better of greedy selection by
    gain per cost and by gain, improved by exchanging groups. A prediction within a budget uses the
    best model that it buys: the prefix of the sequence, or a set if that is better, with folds by
    more than a standard error in cross-validation. `auto`: budgets that double, at the prices of
    groups.
    """
    budget: NonNegative | None = None
    """Budget that predictions use by default; added to `budgets` if missing there."""
    max_groups: Annotated[int, Field(ge=1)] | None = None
    """End the sequence after this many groups. Where products of columns would take more than
    4 GiB, but not the models of a sequence that ends, the family `gaussian` reads them in several
    passes and keeps them in mapped files (whatever this machine has: it decides about last bits).
    """

    @property
    def by_statistics(self) -> bool:
        """Whether co-moments tell all that models need."""
        return self.family == "gaussian" and self.model == "linear"

    @property
    def ladder(self) -> Ladder:
        """Prefixes that have models."""
        return Ladder("few" if self.model == "lightgbm" else "auto")

    def with_family(self, has_texts: bool) -> Self:
        """Return the options with a family in place of `auto`, for a target of texts or not."""
        if self.family != "auto":
            return self
        has_classes = has_texts or self.class_weights is not None or self.threshold != 0.5
        if not has_classes:
            return self.model_copy(update={"family": "gaussian"})
        baselines = self.baselines
        if baselines is not None:
            baselines = tuple(name for name in baselines if name != "sparse")
        return self.model_copy(update={"family": "softmax", "baselines": baselines})

    @field_validator("costs", mode="before")
    @classmethod
    def _of_table(cls, value: Any) -> Any:
        return read_costs(value) if isinstance(value, str) else value

    @field_validator("groups", "requires", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: (v,) if isinstance(v, str) else v for name, v in value.items()}

    @field_validator("class_weights", "threshold")
    @classmethod
    def _of_classes(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, 0.5) and info.data.get("family") in ("gaussian", "poisson"):
            raise ValueError("only the families `logistic` and `softmax` have classes")
        return value

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            parse_rule(name)
        return value


def read_costs(path: str) -> dict[str, Any]:
    """Read a table of costs: CSV or Parquet with the columns ``group`` and ``cost``."""
    import pyarrow as pa
    import pyarrow.csv as pv
    import pyarrow.parquet as pq

    file = Path(expand_variables(path))
    types = pv.ConvertOptions(column_types={"group": pa.string()})
    try:
        is_parquet = file.suffix.lower() in (".parquet", ".pq")
        table = pq.read_table(file) if is_parquet else pv.read_csv(file, convert_options=types)
    except FileNotFoundError as error:
        raise SpecError(f"There is no table of costs {file}. Check `sequence.costs`.") from error
    except (OSError, ValueError) as error:
        raise SpecError(f"The table of costs {file} cannot be read: {error}.") from error
    if not {"group", "cost"} <= {*table.column_names}:
        raise SpecError(
            f"The table of costs {file} needs the columns 'group' and 'cost'; it has "
            f"{table.column_names}."
        )
    groups = list(map(str, table.column("group").to_pylist()))
    costs = dict(zip(groups, table.column("cost").to_pylist(), strict=True))
    for group, cost in costs.items():
        if not isinstance(cost, int | float):
            raise SpecError(
                f"In the table of costs {file}, `costs.{group}` is {cost!r}: it must be a number."
            )
    if len(costs) < len(groups):
        twice = next(group for group in costs if groups.count(group) > 1)
        raise SpecError(f"In the table of costs {file}: the group {twice!r} is there twice.")
    return costs


def paper(options: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the paper's experiments set (section 5)."""
    rules = ["fr", "omp-single", "omp-no-whiten", "omp-blind", "oracle:fr", "oracle:omp"]
    if options.get("family", "auto") in ("auto", "gaussian"):
        rules.append("sparse")
    paper_options: dict[str, Any] = {"criterion": "omp", "model": "linear", "ridge": 1e-5}
    section = {**paper_options, "expand": {}, "baselines": rules}
    return {"sequence": section, "data": {"folds": 0}}  # which would end the sequence earlier
