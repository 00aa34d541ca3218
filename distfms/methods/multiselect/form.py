"""A multi-selection job before any row is read: what is checked, its columns, its sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.data.rows.judgments import JudgmentLayout, detect_layout
from distfms.data.rows.roles import Roles, require_same_kinds
from distfms.engine.pool import NO_GAIN
from distfms.errors import SpecError, first_of, nearest
from distfms.methods.frame.contract import Inputs, Job
from distfms.methods.frame.rows import section_roles
from distfms.methods.multiselect import slab_form
from distfms.methods.multiselect.choices import candidates, grids_of_choice, left_open, preferred
from distfms.methods.multiselect.options import MultiselectOptions, resolve_costs
from distfms.methods.multiselect.procedure import BuyingRule, SelectionProcedure
from distfms.methods.multiselect.read import JudgmentSource
from distfms.methods.multiselect.same_raters import check_buying, raters_in_words
from distfms.methods.multiselect.slab_form import SlabForm
from distfms.solve.buying import BUDGET_TOLERANCE, BuyFrom

#: Most judgments a search may have to buy one at a time; so many take a minute or two.
MOST_STEPS = 200_000

#: Rules that do not need the whole covariance in one place.
IN_SLABS = ("full", "scoring")


@dataclass(frozen=True, eq=False)
class JudgmentForm:
    """The judgments of a job before any is read, and what holds for all options that are tried.

    Attributes
    ----------
    costs, internal_variance : ndarray of shape (d,)
        Of a judgment of each attribute; NaN where the variance is not given.
    of_raters : bool
        Whether the first pass finds raters who stand out.
    slabs : SlabForm or None
        How the covariance is cut, where one process cannot hold it.
    """

    inputs: Inputs
    seed: int
    roles: Roles
    layout: JudgmentLayout
    costs: np.ndarray
    internal_variance: np.ndarray
    buy_from: BuyFrom
    of_raters: bool = False
    slabs: SlabForm | None = None

    @classmethod
    def of(cls, options: MultiselectOptions, inputs: Inputs, seed: int) -> JudgmentForm:
        """Resolve the roles of columns, and options by attribute.

        Raises
        ------
        SpecError, DataError
        """
        if len(inputs.section.target) != 1:
            raise SpecError(
                "Multi-selection predicts one label; `data.target` names "
                f"{len(inputs.section.target)}."
            )
        roles = section_roles(inputs.train, inputs.section, judgments=True)
        layout = detect_layout(inputs.train.schema, roles, options.raters)
        _check_names(options, layout.names)
        if options.buy_from == "same":
            check_buying(len(layout.names), layout.knows_raters)
        variance_of = options.internal_variance
        _require_two_judgments(layout, variance_of)
        form = cls(
            inputs,
            seed,
            roles,
            layout,
            costs=resolve_costs(options.costs, layout.names),
            internal_variance=np.array([variance_of.get(name, np.nan) for name in layout.names]),
            buy_from=options.buy_from,
            of_raters=options.robust and bool(layout.rater_columns),
        )
        if inputs.test is not None:
            test = inputs.test
            require_same_kinds(inputs.train.schema, test.schema, form.columns, test.place)
        return form

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        return self.layout.names

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the job reads."""
        layout = self.layout
        time = self.roles.time
        names = (*layout.columns, *layout.rater_columns, *self.roles.target)
        return (*self.roles.with_row_columns(names), *([] if time is None else [time]))

    def on(self, attributes: np.ndarray) -> JudgmentForm:
        """Return the form of some attributes, by position."""
        return replace(
            self,
            layout=self.layout.restricted([self.names[a] for a in attributes.tolist()]),
            costs=self.costs[attributes],
            internal_variance=self.internal_variance[attributes],
        )

    def source(self, dataset: Dataset, held_out: bool) -> JudgmentSource:
        """Return all that is needed to read a partition of a dataset."""
        section = self.inputs.section
        return JudgmentSource(dataset.reader, section, self.seed, held_out, self.layout, self.roles)

    def job(self, options: MultiselectOptions, **facts: Any) -> Job:
        """Return the record of a job on these judgments; `facts` are those that differ."""
        return Job(
            name="multiselect",
            options=options,
            inputs=self.inputs,
            seed=self.seed,
            columns=self.columns,
            features=self.names,
            describe=partial(self.describe, options),
            form=self,
            **facts,
        )

    def rules(self, options: MultiselectOptions) -> tuple[BuyingRule, ...]:
        """Return the rules that the spec names, the chosen one first."""
        chosen = preferred(options, self.inputs.section.folds)["algorithm"]
        greedy = "scoring" if chosen == "scoring" else "full"
        names = dict.fromkeys((chosen, greedy, *options.baselines))
        return tuple(BuyingRule(name) for name in names)

    def procedure(self, options: MultiselectOptions) -> SelectionProcedure:
        """Return the pure part with some options, of which open ones are the preferred."""
        rules = self.rules(options)
        return SelectionProcedure(
            names=self.names,
            budget=options.budget,
            costs=self.costs,
            ridge=preferred(options, self.inputs.section.folds)["ridge"],
            psd=options.psd,
            criterion=options.criterion,
            internal_variance=self.internal_variance,
            rules=rules if self.slabs is None else tuple(r for r in rules if r.name in IN_SLABS),
            buy_from=self.buy_from,
        )

    def describe(self, options: MultiselectOptions) -> dict[str, str]:
        """Return what the job will do: label → text."""
        lowest = self.costs.min()
        highest = self.costs.max()
        price = f"{lowest:g}"
        if highest > lowest:
            price += f" to {highest:g}"
        n_steps = most_steps(options.budget, self.costs, self.names)
        _, *baselines = self.procedure(options).rules
        names = ", ".join(rule.name for rule in baselines)
        lines = {
            "method": f"feature multi-selection, {options.algorithm}",
            "label": self.roles.target[0],
            "attributes": f"{len(self.names)} (cost {price} per judgment)",
            "budget": f"{options.budget:g} per object",
            "search": f"up to {n_steps:,} judgments, bought one at a time",
            "raters": raters_in_words(self.layout.knows_raters, self.buy_from),
            "baselines": names or "none",
        }
        if self.slabs is not None:
            lines |= self.slabs.describe()
        return lines

    def one_process_bytes(self, n_attributes: int, n_folds: int) -> int:
        """Project what one process would hold at least, where no judgment is missing.

        That is the statistics of every fold and of the held-out objects, as a file and as arrays,
        and what is derived from them.
        """
        n_parts = max(n_folds, 1) + 1
        of_raters = 4 if self.layout.knows_raters else 0  # pairs of different ones, and of the same
        n_matrices = 2 * n_parts * (1 + of_raters) + 6
        return 8 * n_matrices * n_attributes**2


# --- the job --------------------------------------------------------------------------------------


def make_job(options: MultiselectOptions, inputs: Inputs, seed: int) -> Job:
    """Return the job, in slabs of attributes where they are too many for one process."""
    form = JudgmentForm.of(options, inputs, seed)
    n = len(form.names)
    n_folds = inputs.section.folds
    left_open(options, n_folds)
    most_steps(options.budget, form.costs, form.names)
    able = options.algorithm in ("auto", "full") and options.psd == "none"
    able = able and options.buy_from == "independent"
    if able and form.one_process_bytes(n, n_folds) > slab_form.ONE_PROCESS_BYTES:
        return _job_in_slabs(form, options)
    n_matrices = 9 if form.layout.knows_raters else 3
    statistics_bytes = 8 * n_matrices * (n + 1) ** 2 * inputs.n_parts
    # Beside them, what is made positive semi-definite.
    n_made = (2 if options.buy_from == "same" else 1) if options.psd != "none" else 0
    return form.job(
        options,
        statistics_bytes=statistics_bytes,
        kept_bytes=statistics_bytes + 8 * n_made * n**2,
        for_actors=partial(_for_actors, form, options, NO_GAIN),
        judged_by={"projected_loss": False},
        nested="budget",
        weighs_partitions=True,
        candidates=partial(grids_of_choice, n_folds=n_folds),
        passes=_passes(form, options),
    )


def _job_in_slabs(form: JudgmentForm, options: MultiselectOptions) -> Job:
    n = len(form.names)
    n_folds = form.inputs.section.folds
    needed = form.one_process_bytes(n, n_folds)
    form = replace(form, inputs=form.inputs.changed(folds=0))
    # Most attributes that a path can buy; each path buys from few.
    most = min(int(options.budget / form.costs.min()), n)
    rules = [rule.name for rule in form.rules(options)]
    n_chosen = min(len([name for name in rules if name in IN_SLABS]) * most, n)
    slabs = SlabForm(
        n_attributes=n,
        one_process_bytes=needed,
        chosen_bytes=form.one_process_bytes(n_chosen, 0),
        n_columns=len(form.columns),
        most_chosen=most,
        left_out=tuple(name for name in rules if name not in IN_SLABS),
    )
    form = replace(form, slabs=slabs, of_raters=False)
    return form.job(
        options,
        statistics_bytes=slabs.statistics_bytes,
        kept_bytes=slabs.kept_bytes,
        for_actors=partial(_for_actors, form, options, math.inf),
        judged_by={"mse": False},
        passes=(slabs.n_slabs + 1 + (options.model == "refit"),) * 2,
        untunable=(
            "`tune` compares by cross-validation, which this `multiselect` job does not have. "
            "Leave `tune` out or, if the job works in slabs of columns, use fewer columns "
            "(`data.features`)."
        ),
    )


def _passes(form: JudgmentForm, options: MultiselectOptions) -> tuple[int, int]:
    """Return the fewest and most passes: of statistics, of averages for a refit, and for a plan.

    Statistics take another pass where judgments turn out to be clipped, or raters left out.
    """
    fewest = 1 + (options.model == "refit")
    may_change = form.of_raters or options.robust
    return fewest, fewest + may_change


def _for_actors(
    form: JudgmentForm, options: MultiselectOptions, of_slabs: float, n_tried: int = 1
) -> dict[str, float]:
    procedure = form.procedure(options)
    n_candidates = len(candidates(options, form.inputs.section.folds))
    n_searches = max(len(procedure.rules), n_candidates * n_tried)
    folds = form.inputs.on_folds(n_searches * procedure.n_operations())
    return {"candidates": of_slabs, **folds} if procedure.has_slabs else folds


# --- checks -------------------------------------------------------------------------------------


def _check_names(options: MultiselectOptions, names: Sequence[str]) -> None:
    singles = [b.removeprefix("single:") for b in options.baselines if b.startswith("single:")]
    named = {"internal_variance": options.internal_variance, "baselines": singles}
    for key, attributes in named.items():
        for name in attributes:
            if name not in names:
                raise SpecError(
                    f"`multiselect.{key}` names `{name}`, which is not an attribute of the "
                    f"data.{nearest(name, names)}"
                )


def _require_two_judgments(layout: JudgmentLayout, internal_variance: Mapping[str, float]) -> None:
    """Refuse attributes of one column each, of which nothing tells how far judgments differ."""
    single = [a.name for a in layout.attributes if a.most_judgments < 2]
    single = [name for name in single if name not in internal_variance]
    if single and len(single) == len(layout.attributes):
        raise SpecError(
            f"Attributes {first_of(single)} have one judgment of each object, so "
            "nothing tells how far judgments differ: give two or more (`NAME__1`, `NAME__2`, or "
            "lists), or set `internal_variance`."
        )


def most_steps(budget: float, costs: np.ndarray, names: Sequence[str]) -> int:
    """Count the steps a search may take; refuse none and too many before any row is read."""
    cheapest = int(np.argmin(costs))
    if costs[cheapest] > budget * (1.0 + BUDGET_TOLERANCE):
        raise SpecError(
            f"`multiselect.budget` is {budget:g}, which buys nothing: a judgment of the cheapest "
            f"attribute, {names[cheapest]!r}, costs {costs[cheapest]:g}. Raise the budget or lower "
            "`multiselect.costs`."
        )
    most = math.floor(budget / costs[cheapest] * (1.0 + BUDGET_TOLERANCE))
    if most > MOST_STEPS:
        raise SpecError(
            f"`multiselect.budget` is {budget:g}, which buys {most:,} judgments of "
            f"{names[cheapest]!r} at {costs[cheapest]:g} each; the search takes at most "
            f"{MOST_STEPS:,} steps. Lower the budget, or let `multiselect.costs` be those of a "
            "dozen or a hundred judgments."
        )
    return most
