"""What a multi-selection answers: the judgments to buy, and what they explain of other objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distfms.methods.frame.contract import FinishedRun
from distfms.report.formatting import as_number, count, interval, number, percent
from distfms.report.metrics import decided, error_of, measured, more
from distfms.report.page import Block, Figure, KeyNumber, KeyNumbers, Text
from distfms.report.plots import Bar, bar_chart
from distfms.report.sections import notes, usage

#: The losses of a selection, the most trusted first: on which objects.
READINGS = {
    "test": "on held-out objects",
    "validation": "in cross-validation",
    "train": "projected from the training objects",
}
#: Objects from which a share of the label's variance can be stated at all.
FEW_OBJECTS = 20
_NAMES_SAID = 3
_BARS_SHOWN = 30
_STATUSES = {
    "no_positive_gain": "The search ended below the budget: no further judgment lowers the loss.",
    "unaffordable": "The rest of the budget buys no judgment that would help.",
}
_UNSEEN = "hold objects out, or set `data.folds`, to see what they explain"
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to buy, and what it explains of other objects."""
    repeats = repeats_of(run.selection)
    if not repeats:
        return "Buy nothing: no judgment lowers the loss"
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    parts = [f"{r} of {name}" for name, r in ranked[:_NAMES_SAID]]
    parts[0] = f"{count(ranked[0][1], 'judgment')} of {ranked[0][0]}"
    rest = ranked[_NAMES_SAID:]
    if rest:
        others = count(len(rest), "other attribute")
        parts.append(f"{number(sum(r for _, r in rest))} of {others}")
    bought = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    loss = TrustedLoss.of(run)
    if loss.explained is None:
        return f"Buy {bought}; {loss.why_not}"
    if loss.rows == "train":
        return f"Buy {bought}; {_UNSEEN}"
    share = interval(max(loss.explained, 0.0), (loss.error or 0.0) / loss.variance)
    where = READINGS[loss.rows]
    better = _better(run, loss.rows)
    return f"Buy {bought}: they explain {share} of the label's variance {where}{better}"


def _better(run: FinishedRun, rows: str) -> str:
    """Name what cross-validation finds better than the selection, and how to buy that."""
    better = run.metrics.get("better")
    if better is None:
        return ""
    variance = run.selection["label_variance"]
    # Runs of older versions have a half width in place of the error.
    gain = interval(better["gain"] / variance, better.get("standard_error", 0.0) / variance)
    how = "; `selection: auto` buys what it chooses" if better["name"] == "lasso" else ""
    where = "" if rows == "validation" else f" {READINGS['validation']}"
    return f", but {title_of(better['name'])} explains {gain} more{where}{how}"


def title_of(name: str) -> str:
    """Return what a way to spend the budget is called in a report."""
    if name.startswith("single:"):
        return f"only {name.removeprefix('single:').strip()}"
    return name.capitalize()


def repeats_of(selection: Mapping[str, Any]) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase."""
    order = dict.fromkeys(step["attribute"] for step in selection["path"])
    bought = [*order, *(name for name in selection["repeats"] if name not in order)]
    return {name: r for name in bought if (r := selection["repeats"].get(name, 0)) > 0}


@dataclass(frozen=True)
class TrustedLoss:
    """A loss, the variance of the label among the same objects, and their number.

    With cross-validation its standard error is known.
    """

    value: float
    variance: float
    n_objects: int
    rows: str = "train"
    error: float | None = None

    @classmethod
    def of(cls, run: FinishedRun) -> TrustedLoss:
        """Return the most trusted loss: of held-out objects unless they are few."""
        train, test, chosen = (run.metrics[key] for key in ("train", "test", "chosen"))
        found = measured(chosen, "validation", "projected_loss")
        variance, n = run.selection["label_variance"], train["n_objects"]
        errors = (run.metrics["folds"], "projected_loss")
        if test is not None and (found is None or test["n_objects"] >= FEW_OBJECTS):
            value, n_test = as_number(test["projected_loss"]), test["n_objects"]
            if value is not None:
                error = error_of(run.metrics, "test", *errors)
                return cls(value, test["label_variance"], n_test, "test", error)
        if found is not None:
            error = error_of(run.metrics, "validation", *errors)
            return cls(found, variance, n, "validation", error)
        return cls(run.selection["projected_loss"], variance, n)

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
    def why_not(self) -> str:
        """Why there is no share."""
        objects = count(self.n_objects, "object")
        are = "is" if self.n_objects == 1 else "are"
        return f"{objects} {are} too few to say what they explain"


def _simple(run: FinishedRun, loss: TrustedLoss) -> list[KeyNumber]:
    """Return what the best of the baselines explains of the same objects."""
    found = {
        n: measured(e, loss.rows, "projected_loss") for n, e in run.metrics["baselines"].items()
    }
    losses = {name: value for name, value in found.items() if value is not None}
    if loss.explained is None or not losses or loss.rows == "train":
        return []
    best = min(losses, key=losses.__getitem__)
    explained = replace(loss, value=losses[best]).explained
    where = f"the best of the baselines {READINGS[loss.rows]}"
    return [KeyNumber(percent(explained), f"explained by {title_of(best)}", where)]


def key_numbers(run: FinishedRun) -> KeyNumbers:
    """Return what a reader of the report should see first."""
    selection, repeats, loss = run.selection, repeats_of(run.selection), TrustedLoss.of(run)
    where, projected = READINGS[loss.rows], loss.rows == "train"
    share = None if projected else loss.explained
    caution = "expect a larger loss on new objects" if projected else where
    unknown = _UNSEEN if projected and loss.explained is not None else loss.why_not
    return KeyNumbers(
        [
            KeyNumber(
                percent(share),
                "of the label's variance explained",
                unknown if share is None else where,
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
    bought = repeats_of(run.selection)
    columns = [name for key in bought for name in run.model.get("columns", {}).get(key, [key])]
    return [
        key_numbers(run),
        *_repeats_blocks(run),
        *usage(run.called, run.manifest, columns),
        decided(run.metrics, "What to buy comes", "these or the training objects", "object"),
        *_notes(run),
    ]


def _repeats_blocks(run: FinishedRun) -> list[Block]:
    repeats = repeats_of(run.selection)
    if not repeats:
        return []
    costs = {a["name"]: a["cost"] for a in run.selection["attributes"]}
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    bars = [
        Bar(name, r, str(r) if cost == 1 else f"{r} × {number(cost)} = {number(r * cost)}")
        for name, r in ranked
        for cost in (costs[name],)
    ]
    chart = bar_chart(
        bars,
        title="Judgments to buy of each attribute",
        xlabel="judgments of one object",
        n_bars=_BARS_SHOWN,
    )
    caption = "How many judgments of each attribute to buy for one object."
    rest = more(len(bars), _BARS_SHOWN, "in the table", "with most judgments")
    return [Figure(chart, caption + rest)]


def _notes(run: FinishedRun) -> list[Text]:
    constant, others = run.selection["constant"], []
    if constant:
        named = ", ".join(constant[:10]) + (" and others" if len(constant) > 10 else "")
        others.append(f"{count(len(constant), 'attribute')} never varied (ignored): {named}.")
    others += [text for key, text in _STATUSES.items() if run.selection["status"] == key]
    return notes(run.manifest, others)
