"""The ``multiselect`` section of a job spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from distfms.errors import SpecError, nearest
from distfms.spec import Listed, NonNegative, Positive, Section

BASELINES = ("full", "scoring", "averages", "copies", "lasso")


class MultiselectOptions(Section):
    """How many judgments to buy of which attributes, and how to choose them."""

    budget: Positive
    """Total cost of the judgments of one object."""
    algorithm: Literal["auto", "full", "scoring", "lasso", "nothing"] = "auto"
    """What to buy. `full`: what a greedy search finds that knows the correlations of attributes;
    `scoring`: the same as if they were uncorrelated, which is faster and can be better with few
    objects; `lasso`: the attributes of a lasso path on the averages, judged equally often, with
    weights that allow for the disagreement of raters, which can be better with few objects too;
    `nothing`: no judgment, to predict the mean label. `auto`: `full` or `lasso`, by the less
    cross-validated loss, or, unless that is less than the mean label's by more than one standard
    error of the difference, nothing; without `data.folds` and in slabs, `full`.
    """
    criterion: Literal["best", "gain_per_cost", "gain"] = "best"
    """What a greedy step maximises. Where costs differ, `best` runs both and keeps the selection
    with the larger objective.
    """
    costs: dict[str, Positive] = Field(default_factory=dict)
    """Cost of one judgment by attribute name or glob; `default` for the rest (1)."""
    internal_variance: dict[str, NonNegative] = Field(default_factory=dict)
    """Known rater variance by attribute name, instead of its estimate."""
    robust: bool = True
    """Whether far judgments and far raters count less, in training and in predictions. Where more
    than 1% of all judgments, or of some attribute's, are farther from the median than three
    standard deviations of normal ones, judgments count as the median ± 3 median absolute deviations
    of their attribute at most, if they tell more of the label so, one by one. Raters are left out
    whose judgments differ from the mean of the others' (of the same attribute and object) more than
    twice as much, squared, as the median rater's; this needs rater ids in columns, and predictions
    need them too. Estimates are then unbiased for the judgments that count.
    """
    raters: Literal["auto", "columns", "positions", "ignore"] = "auto"
    """Source of rater ids, to separate the errors that one rater's judgments share from the
    attributes. `columns`: lists of ids as long as those of the judgments, a column `NAME__raters`
    for each attribute (`data.long.worker` makes them) or one column `raters` for all. `positions`:
    the j-th judgments of all attributes of an object are one rater's. `auto`: by the columns, if
    there are any.
    """
    buy_from: Literal["independent", "same"] = "independent"
    """Raters of the judgments to buy: `independent`, one judgment of an object each, or the `same`
    for all attributes (rater j judges those bought j times or more), which needs known raters.
    """
    ridge: NonNegative | Annotated[Listed[NonNegative], Field(min_length=1)] | Literal["auto"] = (
        "auto"
    )
    """Multiple of the variance of a single judgment of each attribute that is added to the variance
    of its average. Of a list, cross-validation takes the best. `auto`: 30, 10, 3, 1, 0.3, 0.1,
    0.01, 0.001 or 0 in this way; without `data.folds` by generalised cross-validation, in slabs 0.
    """
    psd: Literal["nearest", "data_units", "none"] = "nearest"
    """Whether Full works with the positive semi-definite matrix nearest to the estimated
    covariance, or with the estimate as it is. `nearest` is meant in units of the standard deviation
    of one judgment of each attribute; `data_units` in those of the data, as in the paper, which
    errs more where attributes differ in their units. Where one process would take more than 4 GiB,
    `none` lets actors compute, keep and search the covariance in slabs of attributes; there is then
    no cross-validation and no baseline but `scoring`.
    """
    model: Literal["projected", "refit"] = "projected"
    """Weights from the statistics, or least squares on the means of the first r judgments, of the
    objects that hold so many, by a second pass over the data.
    """
    baselines: Listed[str] = ("scoring", "averages", "copies", "lasso")
    """Among `full`, `scoring`, `averages`, `copies`, `lasso` and `single:ATTRIBUTE`. Averages buys
    two judgments of every attribute it chooses, as good as two are; to Copies each of two judgments
    is an attribute of its own, with covariances from all pairs of judgments, as raters are
    exchangeable.
    """
    plan: bool = False
    """Write the acquisition plan, as Parquet: the judgments each training object lacks."""

    @field_validator("baselines", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in BASELINES and not name.startswith("single:"):
                listed = ", ".join([*BASELINES, "single:ATTRIBUTE"])
                raise ValueError(f"unknown baseline `{name}`; choose from {listed}")
        return value


#: Options that `tune` may vary.
TUNABLE = ("budget", "ridge", "algorithm", "criterion", "psd")


#: What `tune` may compare by, and whether more is better: the unbiased estimate of the squared
#: loss on the fold, at the numbers of judgments that are selected without it.
MEASURES = {"projected_loss": False}


def resolve_costs(costs: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Return the cost of one judgment of every attribute, shape (d,).

    A key may be a glob (``"bp_*"``); an exact name goes first, then the first glob that matches,
    then ``default`` (1 if absent).
    """
    patterns = [key for key in costs if key != "default"]
    for pattern in patterns:
        if not any(pattern == name or fnmatchcase(name, pattern) for name in names):
            raise SpecError(
                f"`costs` names {pattern!r}, which no attribute of the data matches."
                f"{nearest(pattern, names)}"
            )
    cost_of = []
    for name in names:
        matching = [pattern for pattern in patterns if fnmatchcase(name, pattern)]
        keys = [key for key in (name, *matching, "default") if key in costs]
        cost_of.append(costs[keys[0]] if keys else 1.0)
    return np.array(cost_of, dtype=float)


def paper(options: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return what the paper's experiments set (section 4).

    But for `model: refit`, as judgments that are bought have to be collected before.
    """
    section = {
        "algorithm": "full",
        "ridge": 0.0,
        "psd": "data_units",
        "raters": "ignore",
        "robust": False,
        "baselines": ["scoring", "averages", "copies"],
    }
    return {"multiselect": section}
