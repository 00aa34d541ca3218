"""What a multi-selection answers: the judgments to buy, and what they explain of other objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FinishedRun
from distfms.report.formatting import as_number, count, interval, number, percent
from distfms.report.headline import called, lines, sentence
from distfms.report.metrics import decided, measured, more
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, Text
from distfms.report.plots import Bar, bar_chart
from distfms.report.sections import notes, usage
from distfms.stats.base import explained_by_fold, over_folds

#: The losses of a selection, the most trusted first: on which objects.
READINGS = {
    "test": "on held-out objects",
    "validation": "in cross-validation",
    "train": "projected from the training objects",
}
#: Objects from which a share of the label's variance can be stated at all.
FEW_OBJECTS = 20
_NAMES_SAID = 2
_BARS_SHOWN = 30
_STATUSES = {
    "no_positive_gain": "The search ended below the budget: no further judgment lowers the loss.",
    "unaffordable": "The rest of the budget buys no judgment that would help.",
}
_UNSEEN = "Set `data.folds` or `data.test` to measure what they explain of other objects."
#: Intraclass correlation of one judgment that is no chance, however few objects there are.
_UNRELIABLE = 0.2
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to buy, and what it explains of other objects."""
    if not run.selection["repeats"]:
        return lines(sentence(f"Buy nothing: {_why_nothing(run)}"), unreliable(run) or "")
    loss = TrustedLoss.of(run)
    label = called(run.model["target"])
    to_buy = f"For each object buy {_bought_in_words(run)}{_cost_clause(run)}"
    if loss.explained is None:
        is_noise = unreliable(run)
        why = "raters do not agree on any attribute" if is_noise else loss.why_not
        return lines(sentence(to_buy, f"; {why}"), is_noise or "")
    if loss.rows == "train":
        answer = sentence(to_buy, f"; what they explain of {label} is not measured")
        return lines(answer, _UNSEEN)
    share = interval(loss.explained, loss.error)
    if loss.is_doubtful:
        answer = f"Do not buy judgments: the mean of {label} is as good; they explain {share} of it"
        return lines(sentence(answer), _better(run))
    evenly = _explained_by_others(run, loss).get("averages")
    even_split = "" if evenly is None else f"; an even split {percent(evenly)}"
    answer = sentence(f"{to_buy}: they explain {share} of {label}", even_split)
    return lines(answer, _better(run))


def _bought_in_words(run: FinishedRun) -> str:
    """Name what is bought where it is of few attributes, else count it."""
    repeats = run.selection["repeats"]
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    if len(ranked) > _NAMES_SAID:
        n_judgments = count(sum(repeats.values()), "judgment")
        return f"{n_judgments} of {number(len(ranked))} attributes"
    parts = [f"{r} of {called(name)}" for name, r in ranked]
    parts[0] = f"{count(ranked[0][1], 'judgment')} of {called(ranked[0][0])}"
    return " and ".join(parts)


def _cost_clause(run: FinishedRun) -> str:
    """Say what the judgments cost where they are not all of price 1."""
    if {attribute["cost"] for attribute in run.selection["attributes"]} == {1}:
        return ""
    return f" at a cost of {number(run.selection['spent'])}"


def _why_nothing(run: FinishedRun) -> str:
    if unreliable(run):
        return "raters do not agree on any attribute"
    label = called(run.model["target"])
    if run.selection["algorithm"] == "nothing" and run.metrics["folds"]:
        return f"no judgments predict {label} better than its mean does"
    return f"no judgment tells anything about {label}"


def unreliable(run: FinishedRun) -> str | None:
    """Say how little raters agree on any attribute, where nothing else can be told.

    The intraclass correlation of one judgment is within two standard errors of 0 for all. That of
    n objects with k judgments is about √(2 / (n k (k − 1))), where there is none.
    """
    coefficients = dict[str, float]()
    for attribute in run.selection["attributes"]:
        between = attribute["sigma"] ** 2
        within = attribute["v"]
        k = max(attribute["mean_judgments"], 2.0)
        n = run.metrics["train"]["n_objects"] - attribute["n_missing"]
        if not within or not n:
            return None
        coefficient = between / (between + within)
        chance = 2.0 * math.sqrt(2.0 / (n * k * (k - 1.0)))
        if coefficient > min(chance, _UNRELIABLE):
            return None
        coefficients[attribute["name"]] = coefficient
    most = max(coefficients, key=coefficients.__getitem__)
    share = percent(coefficients[most])
    return f"Objects differ most on {called(most)}: {share} of the variance of its judgments."


def _better(run: FinishedRun) -> str:
    """Name what folds find better than the selection, and how to buy that."""
    better = run.metrics.get("better")
    if better is None:
        return ""
    variance = run.selection["label_variance"]
    gain = interval(better["gain"] / variance, better["standard_error"] / variance)
    points = gain.replace("%", " points")
    advice = f"{title_of(better['name'])} explains {points} more"
    if better["name"] == "lasso":
        advice += ": set `algorithm: auto` to buy what it chooses"
    return sentence(advice)


def title_of(name: str) -> str:
    """Return what a way to spend the budget is called in a report."""
    if name.startswith("single:"):
        return f"only {name.removeprefix('single:').strip()}"
    return name.capitalize()


@dataclass(frozen=True)
class TrustedLoss:
    """A loss, that of the mean label of the same objects, and their number.

    With cross-validation the standard error of the share explained is known.
    """

    value: float
    variance: float
    n_objects: int
    rows: str = "train"
    error: float | None = None

    @classmethod
    def of(cls, run: FinishedRun) -> TrustedLoss:
        """Return the most trusted loss: of held-out objects unless they are fewer than a fold's."""
        n_objects = run.metrics["train"]["n_objects"]
        folds = run.metrics["folds_of_choice"]
        of_folds = cls._of_folds(folds, n_objects)
        test = run.metrics["test"]
        if test is not None and as_number(test["projected_loss"]) is not None:
            n_held_out = test["n_objects"]
            held_out = cls(test["projected_loss"], test["label_variance"], n_held_out, "test")
            if of_folds is None:
                return held_out
            if n_held_out >= max(FEW_OBJECTS, n_objects / len(folds)):
                error = (of_folds.error or 0.0) * math.sqrt(n_objects / n_held_out)
                return replace(held_out, error=error)
        if of_folds is not None:
            return of_folds
        return cls(run.selection["projected_loss"], run.selection["label_variance"], n_objects)

    @classmethod
    def _of_folds(cls, folds: Sequence[Mapping[str, Any]], n_objects: int) -> TrustedLoss | None:
        """Return what the folds say together; None where fewer than two say anything."""
        judged = [fold for fold in folds if as_number(fold["projected_loss"]) is not None]
        if len(judged) < 2:
            return None
        weights = [fold["weight"] for fold in judged]
        losses = np.array([fold["projected_loss"] for fold in judged])
        of_mean = np.array([fold["loss_of_mean"] for fold in judged])
        shares = explained_by_fold(losses, of_mean, weights)
        return cls(
            float(over_folds(losses, weights).mean),
            float(over_folds(of_mean, weights).mean),
            n_objects,
            "validation",
            float(over_folds(shares, weights).standard_error),
        )

    @property
    def explained(self) -> float | None:
        """Share of the label's variance that it leaves explained, where that can be said.

        An unbiased estimate from few objects may fall below 0, which no model's loss can.
        """
        impossible = self.value < -_ROUNDING * self.variance
        if impossible or self.n_objects < FEW_OBJECTS or not self.variance:
            return None
        return min(1 - self.value / self.variance, 1.0)

    @property
    def is_doubtful(self) -> bool:
        """Whether the model is not better than the mean label by a standard error."""
        return self.explained is not None and self.explained <= (self.error or 0.0)

    @property
    def why_not(self) -> str:
        """Why there is no share."""
        objects = count(self.n_objects, "object")
        are = "is" if self.n_objects == 1 else "are"
        return f"{objects} {are} too few to say what they explain"


def _explained_by_others(run: FinishedRun, loss: TrustedLoss) -> dict[str, float]:
    """Return what each of the baselines explains of the objects that a loss is of."""
    shares: dict[str, float] = {}
    if loss.explained is None or loss.rows == "train":
        return shares
    for name, entry in run.metrics["baselines"].items():
        value = measured(entry, loss.rows, "projected_loss")
        share = None if value is None else replace(loss, value=value).explained
        if share is not None:
            shares[name] = share
    return shares


def _simple(run: FinishedRun, loss: TrustedLoss) -> list[KeyNumber]:
    """Return what the best of the baselines explains of the same objects."""
    explained = _explained_by_others(run, loss)
    if not explained:
        return []
    best = max(explained, key=explained.__getitem__)
    note = f"the best of the baselines {READINGS[loss.rows]}"
    return [KeyNumber(percent(explained[best]), f"explained by {title_of(best)}", note)]


def key_numbers(run: FinishedRun) -> KeyNumbers:
    """Return what a reader of the report should see first."""
    selection = run.selection
    repeats = run.selection["repeats"]
    loss = TrustedLoss.of(run)
    reading = READINGS[loss.rows]
    projected = loss.rows == "train"
    share = None if projected else loss.explained
    caution = "expect a larger loss on new objects" if projected else reading
    unknown = _UNSEEN if projected and loss.explained is not None else loss.why_not
    return KeyNumbers(
        [
            KeyNumber(
                percent(share),
                "of the label's variance explained",
                unknown if share is None else reading,
            ),
            KeyNumber(
                number(selection["spent"]),
                f"spent of a budget of {number(selection['budget'])}",
                f"on {count(sum(repeats.values()), 'judgment')} of each object, of "
                f"{number(len(repeats))} of {count(len(selection['attributes']), 'attribute')}",
            ),
            *_simple(run, loss),
            KeyNumber(
                number(loss.value),
                "loss that the search projects" if projected else "mean squared error, estimated",
                f"{caution}; {number(loss.variance)} without judgments",
            ),
        ]
    )


def answer_blocks(run: FinishedRun) -> list[Block]:
    """Return the first screen: what to buy, what that explains, how to use it."""
    bought = run.selection["repeats"]
    columns = [name for key in bought for name in run.model.get("columns", {}).get(key, [key])]
    return [
        key_numbers(run),
        *_repeats_blocks(run),
        *usage(run.called, run.manifest, columns),
        decided(run.metrics, "What to buy comes", "these or the training objects", "object"),
        *_notes(run),
    ]


def _repeats_blocks(run: FinishedRun) -> list[Block]:
    repeats = run.selection["repeats"]
    if not repeats:
        return []
    costs = {a["name"]: a["cost"] for a in run.selection["attributes"]}
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    bars = []
    for name, bought in ranked:
        cost = costs[name]
        label = str(bought)
        if cost != 1:
            label += f" × {number(cost)} = {number(bought * cost)}"
        bars.append(Bar(name, bought, label))
    chart = bar_chart(
        bars,
        title="Judgments to buy of each attribute",
        xlabel="judgments of one object",
        n_bars=_BARS_SHOWN,
    )
    caption = "How many judgments of each attribute to buy for one object."
    caption += more(len(bars), _BARS_SHOWN, "in the table", "with most judgments")
    return [Figure(chart, caption)]


def _notes(run: FinishedRun) -> list[Text]:
    constant = run.selection["constant"]
    remarks = []
    if constant:
        named = ", ".join(constant[:10]) + (" and others" if len(constant) > 10 else "")
        remarks.append(f"{count(len(constant), 'attribute')} never varied (ignored): {named}.")
    if not _cost_clause(run):
        remarks.append("Every judgment costs 1: set `multiselect.costs` where prices differ.")
    remarks += [text for key, text in _STATUSES.items() if run.selection["status"] == key]
    return notes(run.manifest, remarks)
