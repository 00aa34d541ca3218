"""What a multi-selection answers: the judgments to buy, and what they explain of other objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distfms.methods.contract import FinishedRun
from distfms.report.formatting import as_number, count, number, percent
from distfms.report.page import KeyNumber, KeyNumbers

#: The losses of a selection, the most trusted first: on which objects.
READINGS = {
    "test_loss": "on held-out objects",
    "validation_loss": "in cross-validation",
    "projected_loss": "projected from the training objects",
}
#: Objects from which a share of the label's variance can be stated at all.
FEW_OBJECTS = 20
_NAMES_SAID = 3
#: A loss of 0 may come out this far below it, in units of the label's variance.
_ROUNDING = 1e-9


def headline(run: FinishedRun) -> str:
    """Return in one sentence what to buy, and what it explains of other objects."""
    repeats = repeats_of(run.selection)
    if not repeats:
        return "No judgment is worth its cost: none lowers the loss"
    ranked = sorted(repeats.items(), key=lambda item: -item[1])
    parts = [f"{r} of {name}" for name, r in ranked[:_NAMES_SAID]]
    parts[0] = f"{count(ranked[0][1], 'judgment')} of {ranked[0][0]}"
    rest = ranked[_NAMES_SAID:]
    if rest:
        others = count(len(rest), "other attribute")
        parts.append(f"{number(sum(r for _, r in rest))} of {others}")
    bought = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    loss = Loss.of(run)
    if loss.explained is None:
        return f"Buy {bought}; {loss.why_not}"
    if loss.key == "projected_loss":
        return f"Buy {bought}; hold objects out to see what they explain"
    share = percent(max(loss.explained, 0.0))
    where = READINGS[loss.key]
    return f"Buy {bought}: they explain {share} of the label's variance {where}"


def repeats_of(selection: Mapping[str, Any]) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase."""
    order = dict.fromkeys(step["attribute"] for step in selection["path"])
    bought = [*order, *(name for name in selection["repeats"] if name not in order)]
    return {name: r for name in bought if (r := selection["repeats"].get(name, 0)) > 0}


@dataclass(frozen=True)
class Loss:
    """A loss, the variance of the label among the same objects, and their number."""

    value: float
    variance: float
    n_objects: int
    key: str = "projected_loss"

    @classmethod
    def of(cls, run: FinishedRun) -> Loss:
        """Return the most trusted loss: of held-out objects unless they are few."""
        train, test, chosen = (run.metrics[key] for key in ("train", "test", "chosen"))
        found = as_number(chosen.get("validation_loss"))
        if test is not None and (found is None or test["n_objects"] >= FEW_OBJECTS):
            for key in ("projected_loss", "mse"):
                value = as_number(test[key])
                if value is not None:
                    return cls(value, test["label_variance"], test["n_objects"], "test_loss")
        variance, n = run.selection["label_variance"], train["n_objects"]
        if found is not None:
            return cls(found, variance, n, "validation_loss")
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


def key_numbers(run: FinishedRun) -> KeyNumbers:
    """Return what a reader of the report should see first."""
    selection, repeats, loss = run.selection, repeats_of(run.selection), Loss.of(run)
    share, where = loss.explained, READINGS[loss.key]
    optimistic = ", which is optimistic" if loss.key == "projected_loss" else ""
    return KeyNumbers(
        [
            KeyNumber(
                percent(share),
                "of the label's variance explained",
                loss.why_not if share is None else where + optimistic,
            ),
            KeyNumber(
                number(selection["spent"]),
                f"spent of a budget of {number(selection['budget'])}",
                f"on {count(sum(repeats.values()), 'judgment')} of each object",
            ),
            KeyNumber(
                number(len(repeats)),
                "attribute judged" if len(repeats) == 1 else "attributes judged",
                f"of {number(len(selection['attributes']))} offered",
            ),
            KeyNumber(
                number(loss.value),
                "mean squared error, estimated",
                f"{where}; {number(loss.variance)} without judgments",
            ),
        ]
    )
